"""What runs in a worker process: batches of partitions of the stage that the process holds.

Also a Dask preload module: `dask_setup` makes a worker ready before it takes work.
"""

import pickle
import signal
import threading
import traceback
from typing import cast

from distributed import secede
from threadpoolctl import threadpool_limits

from pipeline import plugins
from pipeline.errors import StageError, described
from pipeline.stages.stage import Work, release_free_memory


def packed(work: Work) -> bytes:
    """What `run_batch` is sent: the same bytes for every batch of a stage, so that a process keeps it between them."""
    return pickle.dumps((plugins.loaded(), work))


def unpacked(packed_work: bytes) -> Work:
    names, work = pickle.loads(packed_work)
    plugins.load(names)
    return cast(Work, work)


def run_batch(packed_work: bytes, partitions: list[int]) -> None:
    """Compute and commit some partitions. Nothing is returned: an answer would have to be fetched from a worker that
    may be dead by then, while an error comes along with the news of it."""
    try:
        # While this batch waits for the disk the next one computes: Dask gives its place to another.
        _HELD.work(packed_work).run(partitions, secede)
    except Exception as error:
        failure = _portable(error)
    else:
        return
    raise failure  # not from within the handler: what it handles would come along, and cannot always be sent


async def release(packed_work: bytes) -> None:
    """Let go of a stage if this process holds it still. Of a kind that Dask need not wait for."""
    _HELD.drop(packed_work)


def dask_setup(_worker: object) -> None:
    """Before the first task: leave Ctrl-C to the process that started the workers. What a stage needs, the compiler
    too, is loaded with the stage."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _portable(error: Exception) -> Exception:
    """The error as it can be sent, with the place it came from; one of a kind that cannot be sent becomes words."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        if isinstance(error, StageError):
            return StageError(error.stage, error.partition, described(error.cause))
        return RuntimeError(described(error))
    return error


class _Held:
    """The one stage whose partitions this process computes, shared by its threads; a graph is loaded once for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._packed = b""
        self._work: Work | None = None

    def work(self, packed_work: bytes) -> Work:
        with self._lock:
            if self._work is None or packed_work != self._packed:
                self._forget()
                # Workers that others started may not have been told: a partition's share of a core is one thread.
                threadpool_limits(1)
                self._packed, self._work = packed_work, unpacked(packed_work)
            return self._work

    def drop(self, packed_work: bytes) -> None:
        with self._lock:
            if packed_work == self._packed:
                self._forget()

    def _forget(self) -> None:
        if self._work is not None:
            self._work.stage.release()
            self._packed, self._work = b"", None
            release_free_memory()


_HELD = _Held()
