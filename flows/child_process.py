"""A Prefect server or worker in a process of its own that ends with its parent, even a parent that was killed.

`python -m flows.child_process server PARENT PORT` or `python -m flows.child_process worker PARENT POOL QUEUE ...`. Both
are out of reach of the terminal's Ctrl-C, so that a run can still report how it ended.
"""

import ctypes
import os
import signal
import sys
import threading
import time

import psutil

LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1
STOP_SECONDS, WATCH_SECONDS = 10, 1


def main() -> None:
    kind, parent, *arguments = sys.argv[1:]
    end_with(int(parent))
    if kind == "server":
        start_server(*arguments)
    else:
        start_worker(int(parent), *arguments)


def end_with(parent: int) -> None:
    """Have the kernel end this process when its parent is gone; does nothing on systems other than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)


def start_server(port: str) -> None:
    """The embedded server, on this machine's loopback only."""
    _prefect("server", "start", "--host", LOOPBACK, "--port", port)


def start_worker(parent: int, pool: str, *queues: str) -> None:
    """A worker that takes the runs of the named queues only; its runs end with it."""
    threading.Thread(target=end_after, args=(parent,), daemon=True).start()
    named = (argument for queue in queues for argument in ("--work-queue", queue))
    try:
        _prefect("worker", "start", "--pool", pool, "--type", "process", *named)
    finally:
        # A worker whose server is gone leaves its runs behind, and they are not of its process group.
        end_children()


def _prefect(*arguments: str) -> None:
    from prefect.cli import app

    sys.argv = ["prefect", *arguments]
    app()


def end_after(parent: int) -> None:
    """End this process and its runs once its parent is gone.

    The server ends with the same parent, and without one a worker that is only asked to end may take long.
    """
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    end_children()
    os._exit(1)


def end_children() -> None:
    """End all processes that this one started, directly or not; kill those that do not end when asked."""
    family = psutil.Process().children(recursive=True)
    for child in psutil.Process().children():
        child.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for survivor in alive:
        survivor.kill()


if __name__ == "__main__":
    main()
