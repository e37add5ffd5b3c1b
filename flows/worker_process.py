"""A Prefect worker as a process of its own: `python -m flows.worker_process PARENT POOL QUEUE ...`.

It takes the runs of the named queues only, and ends with its parent, even one that was killed.
"""

import sys

from flows.server_process import end_with


def main() -> None:
    parent, pool, *queues = sys.argv[1:]
    end_with(int(parent))
    from prefect.cli import app

    sys.argv = ["prefect", "worker", "start", "--pool", pool, "--type", "process"]
    sys.argv += [argument for queue in queues for argument in ("--work-queue", queue)]
    app()


if __name__ == "__main__":
    main()
