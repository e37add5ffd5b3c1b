"""What spreading the work costs: a fit on two workers against the serial one, and partitions with nothing in them.

`python -m benchmarks.orchestration` runs these two alone.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Measurement, use_one_core
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import ClusterSettings, fit_settings
from pipeline.stages.stage import Execute, Stage, run_stage, serially
from pipeline.store import lease
from pipeline.store.ledger import StageLedger
from pipeline.store.local import LocalBackend
from pipeline.types import Json

N_POINTS, N_LANDMARKS, N_EMPTY = 200_000, 300, 10_000
# In turns, and the fastest of each counts: what else the machine does only ever makes things slower.
KINDS, REPEATS = ("serial", "local"), 3
TWO_WORKERS = ClusterSettings(kind="local", n_workers=2)


def spreading_the_work() -> list[Measurement]:
    """Each in a process of its own, so that neither finds anything loaded by the other."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "roll.npy", swiss_roll(N_POINTS, seed=0).points)
        serial, spread = _fastest([[in_own_process(timed_fit, folder, kind) for kind in KINDS] for _ in range(REPEATS)])
        empty = in_own_process(timed_empty_stage, folder)
    name = f"fit of {N_POINTS:,} points, m={N_LANDMARKS}, on two workers of one thread, start-up excluded"
    nothing = f"{N_EMPTY:,} empty partitions on two workers"
    return [
        Measurement("two-workers", name, spread, "serial on one core", serial, 0.6),
        Measurement("empty-partitions", nothing, empty, "5 ms each", 0.005 * N_EMPTY, 1.0),
    ]


def _fastest(rounds: list[list[float]]) -> list[float]:
    return [min(times) for times in zip(*rounds, strict=True)]


def in_own_process(function: Callable[..., Any], *arguments: object) -> Any:
    with get_context("spawn").Pool(1, initializer=_as_parent) as pool:
        return pool.apply(function, arguments)


def _as_parent() -> None:
    """A process of a pool may not start processes unless it says that it is no helper."""
    from multiprocessing import current_process

    current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def timed_fit(folder: str, kind: str) -> float:
    """Seconds of a fit, from the workers' being there to the published result."""
    store = tempfile.mkdtemp(prefix=kind, dir=folder)
    given = {"source": f"{folder}/roll.npy", "store": store, "n_landmarks": N_LANDMARKS}
    if kind == "serial":
        use_one_core()
        return _seconds(lambda: fit(fit_settings(given)))
    with executor(TWO_WORKERS) as execute:
        return _seconds(lambda: fit(fit_settings(given), execute=execute))


def timed_empty_stage(folder: str) -> float:
    with executor(TWO_WORKERS) as execute:
        return _seconds(lambda: _run_empty(Path(folder) / "empty.zarr", execute))


def _run_empty(store: Path, execute: Execute = serially) -> None:
    with lease.acquire(LocalBackend(store)) as held:
        run_stage(held, Empty(N_EMPTY), execute)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Empty(Stage):
    """Partitions that compute and write nothing but their commit."""

    count: int
    name = "empty"

    def settings(self) -> Json:
        return {"count": self.count}

    def inputs(self) -> list[str]:
        return []

    def n_partitions(self) -> int:
        return self.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        return {}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"count": len(figures)}, []


def main() -> int:
    print(f"{len(os.sched_getaffinity(0))} cores")
    measurements = spreading_the_work()
    for measurement in measurements:
        print(measurement)
    return 0 if all(map(Measurement.holds, measurements)) else 1


if __name__ == "__main__":
    sys.exit(main())
