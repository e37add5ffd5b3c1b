"""Programs of the virtual environment, started and ended by the tests."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from infra_files import ROOT

BIN = Path(sys.executable).parent
# Of the one who runs the tests, and none of theirs.
FOREIGN = ("DASK_", "PREFECT_")
FOREIGN_NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

Value = TypeVar("Value")


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN) and name not in FOREIGN_NAMES and not name.startswith("MALLOC_")
    }
    return {**kept, "HOME": str(home), **more}


@contextmanager
def running(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the background, ended with all its children when the block is left."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            in_environment(command),
            env=environment,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def in_environment(command: list[str]) -> list[str]:
    return [str(BIN / command[0]), *command[1:]]


def wait_for(value: Callable[[], Value | None], process: subprocess.Popen[bytes], log: Path, seconds: float) -> Value:
    """The first value that is not None; an error with the program's log if there is none in time."""
    deadline = time.monotonic() + seconds
    while (found := value()) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"{process.args} (exit code {process.poll()}):\n{log.read_text()}")
        time.sleep(0.05)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(20)
    # Children share the session that was made for it; normally they are gone with it.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
