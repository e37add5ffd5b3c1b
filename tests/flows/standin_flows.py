"""A flow that a test can hold: it ends when a file is gone. Workers of the tests import it."""

import time
from pathlib import Path

from prefect import flow


@flow(name="refit")
def refit(settings: dict[str, object], held_by: str = "", **keywords: object) -> object:
    deadline = time.monotonic() + 100
    while held_by and Path(held_by).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(held_by)
        time.sleep(0.05)
    return settings["store"]
