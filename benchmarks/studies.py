"""From how many landmarks on the error is near its limit, and what `auto` takes: the table of docs/studies.md.

`TRIGPOINT_DATA=... python -m benchmarks.studies [NAME...]` runs those of that name, or all. Data sets that are not in
the folder are left out, in words.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.jobs.study import study
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.statistics import MeanError, good_enough
from pipeline.settings import StudySettings, job_settings
from pipeline.types import AnyArray

# With `auto` landmarks are chosen by the first of these, unless distances cost much: then by the second.
SELECTIONS = ("maxmin", "random", "kmeans")
SIZES = (25, 50, 100, 200, 400, 800, 1600)
# Of so many rows on, fewer are tried: all that are tried are measured against each other.
MANY_ROWS, MOST_OF_MANY = 20_000, 400
N_HELD_OUT, N_REPEATS, N_NEIGHBORS = 1000, 3, 10
Curve = dict[int, MeanError]


def of_file(name: str) -> Callable[[int], AnyArray]:
    """Rows of a data set, in random order: as many as asked for, or all."""

    def read(n_rows: int) -> AnyArray:
        with np.load(Path(os.environ.get("TRIGPOINT_DATA", "")) / f"{name}.npz") as file:
            rows = file["X"]
        chosen = np.random.default_rng(0).permutation(len(rows))[:n_rows]
        return np.asarray(rows[chosen], dtype=np.float32)

    return read


def roll(n_rows: int) -> AnyArray:
    return swiss_roll(n_rows, seed=0).points


# Each with the numbers of rows that landmarks are chosen among and of components.
DATA: dict[str, tuple[Callable[[int], AnyArray], list[tuple[int, int]]]] = {
    "roll": (roll, [(2000, 2), (10_000, 2), (50_000, 2), (10_000, 10)]),
    "faces": (of_file("isomap_faces_32x32"), [(550, 2), (550, 10)]),
    "mnist": (of_file("mnist70k"), [(4000, 2), (4000, 10), (12_000, 10)]),
    "glove": (of_file("glove100d_60k"), [(4000, 2), (4000, 10), (16_000, 10)]),
}


def curves(rows: AnyArray, n_training: int, n_components: int) -> dict[str, Curve]:
    """For each selection the errors by the number of landmarks, that of `auto` among them."""
    most = MOST_OF_MANY if n_training >= MANY_ROWS else min(n_training, SIZES[-1])
    sizes = sorted({*(m for m in SIZES if m < most), most, automatic_count(n_training, n_components)})
    given = {"source": "memory", "component_policy": "bridge", "n_neighbors": N_NEIGHBORS, "repeats": N_REPEATS}
    settings = job_settings(StudySettings, {**given, "selections": SELECTIONS, "n_components": n_components})
    # A study by the command keeps to smaller samples.
    chosen = {"landmarks": tuple(sizes), "sample": n_training, "held_out": N_HELD_OUT}
    trials = study(settings.model_copy(update=chosen), data=rows).trials
    return {name: {t.n_landmarks: t.error for t in trials if t.selection == name} for name in SELECTIONS}


def enough(curve: Curve) -> int:
    """From how many landmarks on the error is as good as with the most of them."""
    limit = good_enough(curve[max(curve)].value)
    short = [m for m, error in curve.items() if error.bound > limit]
    return min(m for m in curve if m > max(short, default=0))


def excess(curve: Curve, n_landmarks: int) -> float:
    """By which share of it the error is above that with the most landmarks."""
    return curve[n_landmarks].value / curve[max(curve)].value - 1


def line(name: str, rows: AnyArray, n_training: int, n_components: int) -> str:
    found, m = curves(rows, n_training, n_components), automatic_count(n_training, n_components)
    limits = "/".join(f"{curve[max(curve)].value:.2g}" for curve in found.values())
    needed = "/".join(f"{enough(curve):,}" for curve in found.values())
    above = "/".join(f"{excess(curve, m):+.0%}" for curve in found.values())
    return f"| {name} | {n_training:,} | {n_components} | {limits} | {needed} | {m} | {above} |"


def main() -> None:
    by_selection = "/".join(SELECTIONS)
    print(f"Each three figures are of {by_selection}.")
    print("| data | rows | components | error, most landmarks | enough landmarks | auto | error there, above that |")
    print("|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or DATA:
        read, cases = DATA[name]
        try:
            for n_training, n_components in cases:
                rows = read(n_training + min(N_HELD_OUT, n_training // 4))
                print(line(name, rows, n_training, n_components), flush=True)
        except FileNotFoundError as error:
            print(f"{name} is left out: {error.filename} is not there; TRIGPOINT_DATA names the folder of data sets.")


if __name__ == "__main__":
    main()
