"""Is a new point placed as well as one that was fitted? [B fig. 1]

    TRIGPOINT_DATA=... python -m benchmarks.papers.out_of_sample_error [picture.png]

Data are split at random into F, R1 and R2, the latter two of the same size. A method is fitted to F + R1 and to F + R2;
how far apart points of F then are, after the affine map that takes one embedding closest to the other, is what
substituting R2 for R1 does. Points of F are also left out of F + R1 and placed as new ones; how far they are from where
they were when fitted is the out-of-sample error. The curve is the first less the second: where it is above 0, placing a
point is safer than changing so many others.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from scipy import stats

from benchmarks.papers.data import arrays
from benchmarks.papers.embedding import Embedding, Measured, Studied, fitted, measured, studied
from benchmarks.papers.pictures import save
from pipeline.numerics.datasets import swiss_roll
from pipeline.types import FloatArray, IntArray

# Of the training samples, those substituted.
SHARES = (0.003, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25)
N_SPLITS, N_LEFT_OUT = 8, 3
ROLL_POINTS, ROLL_HEIGHT = 500, 10.0
CONFIDENCE = 0.95
# Factors that keep the bars of three data sets from covering each other.
BESIDE = (0.94, 1.0, 1.06)


# The panels of the figure, and beside them Laplacian eigenmaps as this project has them, and Isomap with fewer edges.
PANELS = {"mds": "MDS", "spectral": "spectral clustering", "isomap": "Isomap", "lle": "LLE"}
STUDIED = {method: studied(method, 2) for method in (*PANELS, "laplacian")}
STUDIED["isomap, own edges"] = replace(STUDIED["isomap"], new_edges="own")


class Errors(NamedTuple):
    """Mean distances, in units of the embedding's spread, that substituting and that leaving out move points by."""

    variability: float
    out_of_sample: float


class Difference(NamedTuple):
    """Variability less out-of-sample error, with half the width of its confidence interval over splits."""

    mean: float
    margin: float


def main() -> None:
    curves: dict[str, dict[str, list[Difference]]] = {method: {} for method in STUDIED}
    print("| method | data | " + " | ".join(f"{share:.1%}" for share in SHARES) + " | crosses zero at |")
    print("|---" * (len(SHARES) + 3) + "|")
    for name, data in data_sets():
        for method, how in STUDIED.items():
            curve = [difference(how, data, share) for share in SHARES]
            curves[method][name] = curve
            print(f"| {method} | {name} | " + " | ".join(map(_cell, curve)) + f" | {crossing(curve)} |", flush=True)
    if len(sys.argv) > 1:
        draw(curves, Path(sys.argv[1]))


def data_sets() -> Iterator[tuple[str, Measured]]:
    yield "faces", measured(arrays("isomap_faces_32x32")["X"])
    yield "ionosphere", measured(arrays("ionosphere")["X"])
    yield "Swiss roll", measured(swiss_roll(ROLL_POINTS, seed=0, height=ROLL_HEIGHT).points)


def difference(how: Studied, data: Measured, share: float, n_splits: int = N_SPLITS) -> Difference:
    """Over some splits in which this share of the training samples is substituted."""
    found = [errors(how, data, share, np.random.default_rng((seed, 1))) for seed in range(n_splits)]
    differences = np.array([split.variability - split.out_of_sample for split in found])
    wide = stats.t.ppf((1 + CONFIDENCE) / 2, n_splits - 1)
    return Difference(float(differences.mean()), float(wide * differences.std(ddof=1) / np.sqrt(n_splits)))


def errors(
    how: Studied, data: Measured, share: float, rng: np.random.Generator, n_left_out: int = N_LEFT_OUT
) -> Errors:
    """Of one split. All points of F tell the variability, some of them the out-of-sample error."""
    kept, first, second = split_rows(len(data.rows), share, rng)
    embedding = fitted(how, data, np.concatenate([kept, first]))
    was = embedding.coordinates[: len(kept)]
    becomes = fitted(how, data, np.concatenate([kept, second])).coordinates[: len(kept)]
    moved = np.linalg.norm(aligned(becomes, becomes, was) - was, axis=1)
    left_out = [error_when_left_out(embedding, i) for i in rng.choice(len(kept), n_left_out, replace=False)]
    return Errors(float(moved.mean() / embedding.spread), float(np.mean(left_out) / embedding.spread))


def split_rows(n_rows: int, share: float, rng: np.random.Generator) -> tuple[IntArray, IntArray, IntArray]:
    """F, R1 and R2, so that R1 is this share of F + R1, but at least one row."""
    size = max(1, round(n_rows * share / (1 + share)))
    order = rng.permutation(n_rows)
    return order[2 * size :], order[:size], order[size : 2 * size]


def error_when_left_out(embedding: Embedding, i: int) -> float:
    """How far the i-th training row is from its place if it is not fitted but placed."""
    without = fitted(embedding.studied, embedding.data, np.delete(embedding.training, i))
    was = embedding.coordinates
    placed = without.placed(embedding.training[i : i + 1])
    return float(np.linalg.norm(aligned(placed, without.coordinates, np.delete(was, i, axis=0)) - was[i]))


def aligned(points: FloatArray, like: FloatArray, onto: FloatArray) -> FloatArray:
    """Points (p, d) under the affine map that takes some (n, d) closest to others (n, d)."""
    with_ones = np.column_stack([like, np.ones(len(like))])
    affine = np.linalg.lstsq(with_ones, onto, rcond=None)[0]
    return np.asarray(np.column_stack([points, np.ones(len(points))]) @ affine)


def crossing(curve: list[Difference]) -> str:
    """The share from which on the curve stays above zero, between two that were tried."""
    below = [i for i, found in enumerate(curve) if found.mean <= 0]
    if not below:
        return f"< {SHARES[0]:.1%}"
    last = below[-1]
    if last == len(SHARES) - 1:
        return f"> {SHARES[-1]:.0%}"
    low, high = curve[last].mean, curve[last + 1].mean
    return f"{SHARES[last] + (SHARES[last + 1] - SHARES[last]) * low / (low - high):.1%}"


def _cell(found: Difference) -> str:
    return f"{100 * found.mean:.2f} ± {100 * found.margin:.2f}"


def draw(curves: dict[str, dict[str, list[Difference]]], path: Path) -> None:
    figure = Figure(figsize=(8, 6), layout="constrained")
    for axes, (method, title) in zip(figure.subplots(2, 2, sharex=True).flat, PANELS.items(), strict=True):
        _draw_panel(axes, title, curves[method])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    figure.supxlabel("training samples substituted", fontsize="medium")
    figure.supylabel("variability less out-of-sample error, % of the embedding's spread", fontsize="medium")
    save(figure, path)


def _draw_panel(axes: Axes, title: str, curves: dict[str, list[Difference]]) -> None:
    for beside, (name, curve) in zip(BESIDE, curves.items(), strict=True):
        means, margins = (100 * np.array(column) for column in zip(*curve, strict=True))
        shares = beside * np.array(SHARES)
        axes.errorbar(shares, means, yerr=margins, marker="o", markersize=3, capsize=2, linewidth=1.2, label=name)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_title(title, fontsize="medium")
    axes.set_xscale("log")
    axes.set_xticks(SHARES)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.2g}%"))


if __name__ == "__main__":
    main()
