"""A stage that does what a script says, and leaves a mark each time it is called."""

import errno
import os
import signal
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.stages.stage import Stage


class UnsendableError(Exception):
    """Cannot be pickled."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


def _fail(error):
    def script(_stage, _partition, _n_before):
        raise error

    return script


def _kill(_stage, _partition, _n_before):
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_once(_stage, _partition, n_before):
    if not n_before:
        os.kill(os.getpid(), signal.SIGKILL)


def _pass_twice(_stage, _partition, n_before):
    if n_before < 2:
        raise OSError(errno.EIO, "Input/output error")


def _unsendable(_stage, _partition, _n_before):
    raise UnsendableError("no way")


def _commit_and_die(stage, partition, n_before):
    """As if the worker had died after its commit, before it could say so."""
    if not n_before:
        stage.written_by_a_dead_worker.commit({partition: ({"n": partition}, [])})
        os.kill(os.getpid(), signal.SIGKILL)


SCRIPTS = {
    "bug": _fail(ZeroDivisionError("division by zero")),
    "disk full": _fail(OSError(errno.ENOSPC, "No space left on device", "chunk")),
    "passing": _fail(OSError(errno.EIO, "Input/output error")),
    "passing twice": _pass_twice,
    "bad input": _fail(InvalidInputError("rows 3, 5 are NaN; fill them.")),
    "memory": _fail(MemoryError("Unable to allocate 9 TiB")),
    "kill": _kill,
    "kill once": _kill_once,
    "unsendable": _unsendable,
    "commit and die": _commit_and_die,
}


@dataclass(frozen=True)
class Scripted(Stage):
    """Partitions that write three numbers each; `script` happens at partition `at`."""

    folder: Path
    count: int
    script: str = ""
    at: int = 5
    written_by_a_dead_worker: object = None
    name = "scripted"

    def settings(self):
        return {"count": self.count}

    def inputs(self):
        return []

    def n_partitions(self):
        return self.count

    def run_partition(self, ledger, partition):
        before = self.calls(partition)
        (self.folder / f"call-{partition}-{uuid.uuid4().hex}").touch()
        if self.script and partition == self.at:
            SCRIPTS[self.script](self, partition, len(before))
        return {"n": partition}, ledger.write_parts(partition, {"x": np.full(3, partition)})

    def finish(self, ledger, figures):
        return {"total": sum(entry["n"] for entry in figures.values())}, []

    def release(self):
        (self.folder / f"released-{uuid.uuid4().hex}").touch()

    def calls(self, partition):
        return list(self.folder.glob(f"call-{partition}-*"))

    def n_calls(self):
        return {partition: len(self.calls(partition)) for partition in range(self.count)}
