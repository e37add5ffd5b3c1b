"""How the cost of a fit grows: `python -m benchmarks.scaling [most points]` measures, fits exponents and draws them.

Swiss rolls of 10,000 to 10,000,000 points with 100 landmarks, and 100 to 2,000 landmarks on 1,000,000 points, each fit
on two workers of one thread in processes of its own, start-up excluded. Results go to benchmarks/scaling.json, from
which the picture in docs/images is drawn.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Measurement
from benchmarks.orchestration import in_own_process
from benchmarks.whole_fit import timed_stages
from pipeline.numerics.datasets import swiss_roll
from pipeline.types import Json

POINTS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
LANDMARKS = (100, 200, 500, 1000, 2000)
FEW_LANDMARKS, MANY_POINTS = 100, 1_000_000
# Exponents are those of sizes from here on: below, what every fit costs counts most.
LEAST_POINTS = 100_000
# Fits with one worker and with two.
TURNS = 3
STEEPEST = {"points": 1.2, "landmarks": 1.1}
RESULTS = Path(__file__).parent / "scaling.json"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "scaling.png"
SHOWN = ("neighbors", "graph", "rows", "embed")


def study(most_points: int = POINTS[-1]) -> Json:
    """Seconds of each stage, for each size."""
    by_points = {n: seconds_of(n, FEW_LANDMARKS) for n in POINTS if n <= most_points}
    n_points = min(MANY_POINTS, most_points)
    by_landmarks = {m: seconds_of(n_points, m) for m in LANDMARKS}
    return {"points": by_points, "landmarks": by_landmarks}


def seconds_of(n_points: int, n_landmarks: int, n_workers: int = 2) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "roll.npy", swiss_roll(n_points, seed=0).points)
        seconds: dict[str, float] = in_own_process(timed_stages, folder, n_landmarks, n_workers)
    print(f"{n_points:>12,} points, {n_landmarks:>5,} landmarks: {sum(seconds.values()):8.1f} s")
    return seconds


def exponent(costs: dict[int, float]) -> float:
    """The slope of a line through the logarithms."""
    return float(np.polyfit(np.log(list(costs)), np.log(list(costs.values())), 1)[0])


def exponents(found: Json) -> dict[str, float]:
    totals = {axis: {int(size): sum(seconds.values()) for size, seconds in found[axis].items()} for axis in STEEPEST}
    totals["points"] = {n: total for n, total in totals["points"].items() if n >= LEAST_POINTS}
    return {axis: exponent(costs) for axis, costs in totals.items()}


def draw(found: Json, path: Path) -> None:
    """Time against points and against landmarks, whole and by stage, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, axis in zip(figure.subplots(1, 2), STEEPEST, strict=True):
        sizes = [int(size) for size in found[axis]]
        each = list(found[axis].values())
        axes.loglog(sizes, [sum(seconds.values()) for seconds in each], "k-o", label="whole fit")
        for stage in SHOWN:
            axes.loglog(sizes, [seconds[stage] for seconds in each], "-o", markersize=3, label=stage)
        axes.set_xlabel(axis)
        axes.set_title(f"grows as {axis}$^{{{exponents(found)[axis]:.2f}}}$", fontsize=11)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("seconds on two workers")
    figure.axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def two_workers_against_one(n_points: int = 1_000_000, n_landmarks: int = 300) -> list[Measurement]:
    """In turns, and the fastest of each counts: what else the machine does only ever makes things slower."""
    turns = [[seconds_of(n_points, n_landmarks, n_workers) for n_workers in (1, 2)] for _ in range(TURNS)]
    rows = [min(seconds["rows"] for seconds in times) for times in zip(*turns, strict=True)]
    whole = [min(sum(seconds.values()) for seconds in times) for times in zip(*turns, strict=True)]
    of = f"of {n_points:,} points, m={n_landmarks}, on two workers"
    return [
        Measurement("rows-on-two", f"rows stage {of}", rows[1], "on one", rows[0], 1 / 1.7),
        Measurement("fit-on-two", f"whole fit {of}", whole[1], "on one", whole[0], 1 / 1.4),
    ]


def main() -> int:
    found = json.loads(json.dumps(study(int(float(sys.argv[1])) if len(sys.argv) > 1 else POINTS[-1])))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    draw(found, PICTURE)
    grown = exponents(found)
    for axis, steepest in STEEPEST.items():
        verdict = "ok" if grown[axis] <= steepest else "TOO STEEP"
        print(f"the cost grows as {axis}^{grown[axis]:.2f}, limit {steepest}: {verdict}")
    return 0 if all(grown[axis] <= steepest for axis, steepest in STEEPEST.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
