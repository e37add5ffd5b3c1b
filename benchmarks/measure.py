"""What a benchmark reports: a ratio, its limit, and the times behind it."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    name: str
    seconds: float
    baseline: str
    baseline_seconds: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.baseline_seconds

    def holds(self) -> bool:
        return self.ratio <= self.limit

    def __str__(self) -> str:
        verdict = "ok" if self.holds() else "TOO SLOW"
        return (
            f"{self.name}: {self.seconds:.2f} s, {self.ratio:.2f}x {self.baseline} ({self.baseline_seconds:.2f} s), "
            f"limit {self.limit:g}x: {verdict}"
        )


def use_one_core() -> None:
    """Bind this process to one of its cores, so that both sides of a ratio have the same."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
