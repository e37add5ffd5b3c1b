"""Work that begins here at once, on threads of this process, and moves to workers if it turns out to be long.

Workers are started beside the first stages, only once there is something long to compute: a run with little or nothing
left to do starts none.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from pipeline.fanout.threads import Threads
from pipeline.stages.stage import BASE, Execute, Work

# What is planned to take longer, or has taken longer, is worth the start of workers.
SHORT_SECONDS = 60.0
# What starts workers loads a good deal: the first stage is left alone for as long.
ALONE_SECONDS = 1.0


class Growing:
    """Computes the partitions of stages; give it to `run_stage`, and leave it as a context when all is done.

    planned: seconds of each stage, in order, if that is known. when_long: called when workers are being started.
    """

    def __init__(
        self,
        workers: Callable[[], AbstractContextManager[Execute]],
        n_threads: Callable[[str], int],
        planned: Mapping[str, float],
        notice: Callable[[str], None],
        when_long: Callable[[], None],
    ) -> None:
        self._workers, self._n_threads, self._planned = workers, n_threads, dict(planned)
        self._notice, self._when_long = notice, when_long
        self._begun = time.monotonic()
        self._starter: threading.Thread | None = None
        self._stack = ExitStack()
        self._started: Execute | None = None
        self._fault: Exception | None = None
        self._share_left, self._first = 1.0, ""

    def __call__(self, work: Work, partitions: Sequence[int], computed: Callable[[int], None]) -> None:
        stage = work.stage.name
        left = list(partitions)
        if left and not self._has_workers():
            self._share_left = len(left) / work.stage.n_partitions()
            self._start_if_long(stage)
            left = self._on_threads(work, left, computed)
        if left and self._started is not None:
            self._started(work, left, computed)

    def _on_threads(self, work: Work, partitions: list[int], computed: Callable[[int], None]) -> list[int]:
        """Compute partitions here until there are workers; those that are left then."""
        left: list[int] = []
        with Threads(work, partitions, self._n_threads(work.stage.name), self._notice) as threads:
            while not threads.are_done():
                partition = threads.next()
                if partition is not None:
                    computed(partition)
                self._start_if_long(work.stage.name)
                if self._has_workers():
                    left += threads.take_back()
        return left

    def _has_workers(self) -> bool:
        return self._started is not None

    def close(self) -> None:
        """End the workers, if there are any."""
        if self._starter is not None:
            self._starter.join()
        self._stack.close()

    def seconds_left(self, stage: str) -> float:
        """What is planned from a stage on, and of that what is missing; nothing of stages that no plan has."""
        names = list(self._planned)
        if stage not in names:
            return 0.0
        to_come = names[names.index(stage) + 1 :]
        return self._share_left * self._planned[stage] + sum(self._planned[name] for name in to_come)

    def _start_if_long(self, stage: str) -> None:
        took, self._first = time.monotonic() - self._begun, self._first or stage
        is_alone = stage == self._first and took < min(ALONE_SECONDS, SHORT_SECONDS)
        if self._starter is None and not is_alone and max(self.seconds_left(stage), took) > SHORT_SECONDS:
            self._starter = threading.Thread(target=self._start, daemon=True)
            self._starter.start()
            self._when_long()
        elif self._fault is not None:
            self._notice(f"{self._fault}; going on without workers")
            self._fault = None

    def _start(self) -> None:
        begun = time.monotonic()
        try:
            execute = self._stack.enter_context(self._workers())
        except Exception as error:
            self._fault = error
            return
        self._notice(f"workers are there, after {time.monotonic() - begun:.1f} s")
        self._started = execute


def threads_within(memory: int, n_threads: int, peaks: Mapping[str, int], of_one: int = 1) -> Callable[[str], int]:
    """How many threads a stage may have in so much memory, where `peaks` are what workers of `of_one` threads take."""

    def count(stage: str) -> int:
        each = (peaks.get(stage, BASE) - BASE) // of_one
        return max(1, min(n_threads, (memory - BASE) // max(1, each)))

    return count
