"""The embedded Prefect server, as a process of its own: `python -m flows.server_process PORT PARENT`.

It ends with its parent, even one that was killed, and is out of reach of the terminal's Ctrl-C, so that the run can
still report how it ended.
"""

import ctypes
import os
import signal
import sys

LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the kernel end this process when its parent is gone; on other systems than Linux nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)


def main() -> None:
    port, parent = sys.argv[1:3]
    end_with(int(parent))
    from prefect.cli import app

    sys.argv = ["prefect", "server", "start", "--host", LOOPBACK, "--port", port]
    app()


if __name__ == "__main__":
    main()
