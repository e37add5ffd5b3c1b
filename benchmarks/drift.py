"""How well batches of other digits are told: `TRIGPOINT_DATA=... python -m benchmarks.drift [picture]`.

A run is fitted on most of the digits 0 to 8 of MNIST. Batches are drawn from those that were left out, a share of each
replaced by 9s, which the run has never seen. The curve shows how often the alarm is raised, by the share and the size
of the batch; at share 0 it is how often it is false.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.orchestration import TWO_WORKERS, in_own_process
from pipeline.fanout.execution import executor
from pipeline.jobs.extend import extend
from pipeline.jobs.fit import fit
from pipeline.numerics.statistics import compared, gap_counts
from pipeline.results.run import open_run
from pipeline.settings import ExtendSettings, fit_settings, job_settings
from pipeline.types import FloatArray

# Columns that a batch is judged by.
WATCHED = ("residual", "gap", "nearest")
N_HELD_OUT, LEVEL, N_BATCHES = 12_000, 0.01, 200
SIZES, SHARES = (50, 100, 200, 500, 1000), (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
SETTINGS = {"n_neighbors": 10, "n_landmarks": 1000, "n_components": 10, "component_policy": "bridge"}
Columns = dict[str, FloatArray]


def split_digits(images: Any, labels: Any) -> dict[str, Any]:
    """Digits 0 to 8 to be fitted and held out, 9s, and held-out digits with black and white exchanged."""
    known = np.random.default_rng(0).permutation(np.flatnonzero(labels < 9))
    held_out = images[known[:N_HELD_OUT]]
    return {
        "fitted": images[known[N_HELD_OUT:]],
        "known": held_out,
        "nines": images[labels == 9],
        "inverted": 255 - held_out[:1000],
    }


def extended_digits(folder: str) -> None:
    """Fit, and extend to each of the others, on two workers."""
    with np.load(Path(os.environ["TRIGPOINT_DATA"]) / "mnist70k.npz") as file:
        parts = split_digits(file["X"], file["y"])
    for name, rows in parts.items():
        np.save(f"{folder}/{name}.npy", rows)
    with executor(TWO_WORKERS) as execute:
        fit(fit_settings({**SETTINGS, "source": f"{folder}/fitted.npy", "store": f"{folder}/run"}), execute=execute)
        for name in ("known", "nines", "inverted"):
            given = {"store": f"{folder}/run", "source": f"{folder}/{name}.npy", "output": f"{folder}/{name}.zarr"}
            extend(job_settings(ExtendSettings, given), execute=execute)


class Judge:
    """Says of batches, given by the watched columns of their rows, what an extension would say."""

    def __init__(self, folder: str) -> None:
        run = open_run(f"{folder}/run")
        self._references = run.calibration_values
        self._margins = run.stage_figures("calibrate")["margins"]
        self.columns = {name: self._read(f"{folder}/{name}.zarr") for name in ("known", "nines", "inverted")}

    def _read(self, store: str) -> Columns:
        opened = open_run(store)
        return {name: opened.embedding(name) for name in WATCHED}

    def drifts(self, batch: Columns) -> bool:
        counts = {
            name: gap_counts(self._references[name], values, np.ones(len(values), dtype=np.int64))
            for name, values in batch.items()
        }
        return bool(compared(self._references, counts, self._margins, LEVEL)["drifts"])

    def drawn(self, rng: np.random.Generator, size: int, share: float) -> Columns:
        """A batch of held-out digits 0 to 8, a share of it 9s."""
        n_nines = round(share * size)
        known, nines = self.columns["known"], self.columns["nines"]
        rows = rng.choice(len(known["gap"]), size - n_nines, replace=False)
        others = rng.choice(len(nines["gap"]), n_nines, replace=False)
        return {name: np.concatenate([known[name][rows], nines[name][others]]) for name in WATCHED}

    def power(self, size: int, share: float, n_batches: int = N_BATCHES) -> float:
        """How many of some random batches raise the alarm."""
        rng = np.random.default_rng((size, round(1000 * share)))
        return sum(self.drifts(self.drawn(rng, size, share)) for _ in range(n_batches)) / n_batches


def draw(powers: dict[int, list[float]], path: Path) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for size, line in powers.items():
        axes.plot([100 * share for share in SHARES], line, marker="o", label=f"{size:,} rows")
    axes.axhline(LEVEL, color="gray", linewidth=0.8, linestyle="--")
    axes.set(xlabel="9s in the batch, %", ylabel=f"alarms at level {LEVEL:.0%}", ylim=(-0.02, 1.02))
    axes.set_title("Fitted on the digits 0 to 8 of MNIST")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        in_own_process(extended_digits, folder)
        judge = Judge(folder)
        powers = {size: [judge.power(size, share) for share in SHARES] for size in SIZES}
        inverted = judge.drifts(judge.columns["inverted"])
        margins = open_run(f"{folder}/run").stage_figures("calibrate")["margins"]
    print("| rows | " + " | ".join(f"{share:.0%} 9s" for share in SHARES) + " |")
    print("|---" * (len(SHARES) + 1) + "|")
    for size, line in powers.items():
        print(f"| {size:,} | " + " | ".join(f"{power:.3g}" for power in line) + " |")
    print(f"inverted digits {'drift' if inverted else 'DO NOT DRIFT'}; margins {margins}")
    if len(sys.argv) > 1:
        draw(powers, Path(sys.argv[1]))
    false_alarms = max(line[0] for line in powers.values())
    return 0 if inverted and false_alarms <= 5 * LEVEL else 1


if __name__ == "__main__":
    sys.exit(main())
