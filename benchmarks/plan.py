"""What `trigpoint plan` says beside what a fit takes: `python -m benchmarks.plan [rows columns landmarks]`.

One process on one core. The command fails if the whole takes more than twice, or less than half, the time or the disk
that was planned.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import use_one_core
from benchmarks.memory import write_source
from pipeline.jobs.fit import checked_source, fit, fit_costs
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import fit_settings
from pipeline.stages.stage import Outcome, Watch
from pipeline.store import run
from pipeline.store.ledger import StageLedger

WITHIN = 2.0


class Stopwatch(Watch):
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = 0.0

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        self._start = time.perf_counter()

    def finished(self, outcome: Outcome) -> None:
        self.seconds[outcome.ledger.stage] = time.perf_counter() - self._start


def main() -> int:
    n_rows, n_columns, n_landmarks = (int(word) for word in (sys.argv[1:4] or ("200000", "3", "300")))
    use_one_core()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.npy"
        if n_columns == 3:
            np.save(path, swiss_roll(n_rows, seed=0).points)
        else:
            write_source(path, n_rows, n_columns)
        given = {"source": str(path), "store": f"{folder}/run.zarr", "n_landmarks": n_landmarks}
        settings = fit_settings({**given, "component_policy": "bridge"})
        costs = fit_costs(settings, checked_source(settings))
        watch = Stopwatch()
        fitted = fit(settings, watch)
        store = run.open_store(settings.store)
        disk = {name: store.size(outcome.ledger.path) for name, outcome in fitted.outcomes.items()}
    seconds = {stage: cost.seconds for stage, cost in costs.items()}
    size = {stage: cost.disk for stage, cost in costs.items()}
    return 0 if _told(watch.seconds, seconds) & _told(disk, size, "bytes") else 1


def _told(seen: dict[str, float] | dict[str, int], planned: dict[str, float] | dict[str, int], unit: str = "s") -> bool:
    rows = {name: (planned[name], seen[name]) for name in seen}
    rows["whole"] = (sum(planned.values()), sum(seen.values()))
    for name, (expected, found) in rows.items():
        print(f"{name:<11} planned {expected:14,.2f} {unit}, took {found:14,.2f} ({expected / found:.2f}x)")
    expected, found = rows["whole"]
    return 1 / WITHIN <= expected / found <= WITHIN


if __name__ == "__main__":
    sys.exit(main())
