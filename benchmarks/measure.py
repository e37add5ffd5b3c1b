"""What a benchmark reports: a ratio, its limit, and the times behind it; and how two sides are timed in turns."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class Measurement:
    """`key` is what it goes by in the committed table and must never change; `note` is what else was found."""

    key: str
    name: str
    seconds: float
    baseline: str
    baseline_seconds: float
    limit: float
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.seconds / self.baseline_seconds

    def holds(self) -> bool:
        return self.ratio <= self.limit

    def fastest_of(self, again: Self) -> Self:
        """Two measurements of the same as one, of more turns."""
        return replace(
            self,
            seconds=min(self.seconds, again.seconds),
            baseline_seconds=min(self.baseline_seconds, again.baseline_seconds),
        )

    def __str__(self) -> str:
        verdict = "ok" if self.holds() else "TOO SLOW"
        return (
            f"{self.name}: {self.seconds:.3g} s, {self.ratio:.3g}x {self.baseline} ({self.baseline_seconds:.3g} s), "
            f"limit {self.limit:.3g}x: {verdict}" + (f" ({self.note})" if self.note else "")
        )


def use_one_core() -> None:
    """Bind this process to one of its cores, so that both sides of a ratio have the same."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def fastest_in_turns(repeats: int, *sides: Callable[[], object]) -> list[float]:
    """Seconds of each side. The fastest of its turns counts: what else the machine does only ever makes it slower."""
    rounds = [[seconds(side) for side in sides] for _ in range(repeats)]
    return [min(times) for times in zip(*rounds, strict=True)]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
