"""Partitions on threads of this process: no start-up, for work that is over before workers would be there.

Kernels hold no lock of the interpreter, and each partition computes with one thread of the linear algebra, as it does
serially and on workers: bytes are the same.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from threadpoolctl import threadpool_limits

from pipeline.errors import described
from pipeline.fanout.faults import TRIES, is_passing
from pipeline.stages.stage import Work

POLL_SECONDS = 0.2
THREAD = "partitions"


class Threads:
    """Threads that take one partition of a stage after the other, for as long as this lasts.

    They end with the process: a Ctrl-C does not wait for them, and what is not committed by then is computed again.
    """

    def __init__(
        self, work: Work, partitions: Sequence[int], n_threads: int, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._work, self._notice, self._n_left = work, notice, len(partitions)
        self._waiting: SimpleQueue[int] = SimpleQueue()
        self._ended: SimpleQueue[tuple[int, Exception | None]] = SimpleQueue()
        self._tries: Counter[int] = Counter()
        self._stopped = threading.Event()
        for partition in partitions:
            self._waiting.put(partition)
        n_useful = min(n_threads, len(partitions))
        self._threads = [threading.Thread(target=self._take, daemon=True, name=THREAD) for _ in range(n_useful)]

    def __enter__(self) -> Self:
        # The threads compute with as little as a serial run does. Some limits hold in the whole process, others in the
        # thread that sets them.
        self._limits = threadpool_limits(1)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        self._stopped.set()
        if kind is None or issubclass(kind, Exception):
            for thread in self._threads:
                thread.join()
            self._work.stage.release()
        self._limits.restore_original_limits()

    def are_done(self) -> bool:
        return not self._n_left

    def next(self) -> int | None:
        """A partition that was committed just now; None if there was none for a moment."""
        try:
            partition, error = self._ended.get(timeout=POLL_SECONDS)
        except Empty:
            return None
        if error is None:
            self._n_left -= 1
            return partition
        self._tries[partition] += 1
        if not is_passing(error) or self._tries[partition] >= TRIES:
            raise error
        self._notice(f"{described(error)}; trying it again")
        self._waiting.put(partition)
        thread = threading.Thread(target=self._take, daemon=True, name=THREAD)
        self._threads.append(thread)
        thread.start()
        return None

    def take_back(self) -> list[int]:
        """The partitions that no thread has begun; none will."""
        taken = []
        while True:
            try:
                taken.append(self._waiting.get_nowait())
            except Empty:
                self._n_left -= len(taken)
                return sorted(taken)

    def _take(self) -> None:
        with threadpool_limits(1, user_api="openmp"):
            self._work_on()

    def _work_on(self) -> None:
        while not self._stopped.is_set():
            try:
                partition = self._waiting.get_nowait()
            except Empty:
                return
            try:
                self._work.run([partition])
            except Exception as error:
                self._ended.put((partition, error))
                return
            self._ended.put((partition, None))
