"""A Prefect worker as a process of its own: `python -m flows.worker_process PARENT POOL QUEUE ...`.

It takes the runs of the named queues only, and ends with its parent, even one that was killed; its runs end with it.
"""

import os
import sys
import threading
import time

import psutil

from flows.server_process import end_with

STOP_SECONDS, WATCH_SECONDS = 10, 1


def main() -> None:
    parent, pool, *queues = sys.argv[1:]
    end_with(int(parent))
    threading.Thread(target=end_after, args=(int(parent),), daemon=True).start()
    from prefect.cli import app

    sys.argv = ["prefect", "worker", "start", "--pool", pool, "--type", "process"]
    sys.argv += [argument for queue in queues for argument in ("--work-queue", queue)]
    try:
        app()
    finally:
        # A worker whose server is gone leaves its runs behind, and they are not of its process group.
        end_children()


def end_after(parent: int) -> None:
    """End this process and its runs once its parent is gone.

    The server ends with the same parent, and a worker that is only asked to end may take long over it without one.
    """
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    end_children()
    os._exit(1)


def end_children() -> None:
    """End everything that this process started, and what that started; what does not go by itself is killed."""
    family = psutil.Process().children(recursive=True)
    for child in psutil.Process().children():
        child.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for survivor in alive:
        survivor.kill()


if __name__ == "__main__":
    main()
