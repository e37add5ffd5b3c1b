"""The demonstration: a Swiss roll unrolled, checked against the sheet it was made from, and drawn."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist

from pipeline import LandmarkIsomap
from pipeline.datasets import SwissRoll, swiss_roll
from pipeline.types import FloatArray

N_NEIGHBORS = 10
N_LANDMARKS = 300
HELD_OUT_SHARE = 0.1


def run_demo(n_points: int, picture: Path, seed: int, say: Callable[[str], None]) -> dict[str, float]:
    """Fit on nine tenths of the roll, place the rest, report how well the sheet was recovered, write the picture."""
    roll = swiss_roll(n_points, seed)
    n_fit = n_points - int(n_points * HELD_OUT_SHARE)
    isomap = LandmarkIsomap(N_NEIGHBORS, 2, n_landmarks=N_LANDMARKS, random_state=seed)
    say(f"A Swiss roll: {n_points:,} points in 3 dimensions, a flat sheet rolled up.")
    with _timed(say, f"fit        {n_fit:,} points, {N_NEIGHBORS} neighbors, {N_LANDMARKS} landmarks"):
        isomap.fit(roll.points[:n_fit])
    with _timed(say, f"transform  {n_points - n_fit:,} points the fit never saw"):
        placed = isomap.transform(roll.points[n_fit:])
    figures = {
        "fit": sheet_residual(roll.sheet[:n_fit], isomap.embedding_, seed),
        "transform": sheet_residual(roll.sheet[n_fit:], placed, seed),
    }
    say("Residual variance against the true sheet (0 is perfect, 1 is unrelated):")
    for name, value in figures.items():
        say(f"  {name:<9}  {value:.1e}")
    draw(roll, np.concatenate([isomap.embedding_, placed]), n_fit, picture)
    say(f"The picture is in {picture}.")
    return figures


def sheet_residual(sheet: FloatArray, coordinates: FloatArray, seed: int, sample_size: int = 1500) -> float:
    """1 - r^2 of distances on the sheet against distances in the embedding, between sampled points."""
    size = min(len(sheet), sample_size)
    sample = np.random.default_rng(seed).choice(len(sheet), size, replace=False)
    correlation = np.corrcoef(pdist(sheet[sample]), pdist(coordinates[sample]))[0, 1]
    return float(1 - correlation**2)


def draw(roll: SwissRoll, coordinates: FloatArray, n_fit: int, path: Path) -> None:
    """The roll in space; beside it the fitted points unrolled and the points placed afterwards, colored alike."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[1, 1.7])
    color = roll.sheet[:, 0]
    shown = np.random.default_rng(0).permutation(len(color))[:12_000]
    rolled = figure.add_subplot(grid[:, 0], projection="3d", computed_zorder=False)
    rolled.scatter(*roll.points[shown].T, c=color[shown], s=2, cmap="viridis")
    rolled.view_init(10, -75)
    rolled.set_box_aspect((1, 0.9, 1), zoom=1.35)
    rolled.set_title(f"{len(color):,} points in space", y=0.98)
    rolled.set_axis_off()
    limits = (float(color.min()), float(color.max()))
    panels = [
        (shown[shown < n_fit], f"{n_fit:,} fitted"),
        (shown[shown >= n_fit], f"{len(color) - n_fit:,} placed after"),
    ]
    for row, (rows, title) in enumerate(panels):
        axes = figure.add_subplot(grid[row, 1])
        x, y = coordinates[rows].T
        axes.scatter(x, y, c=color[rows], s=2, cmap="viridis", vmin=limits[0], vmax=limits[1])
        axes.set(aspect="equal", title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


@contextmanager
def _timed(say: Callable[[str], None], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    say(f"  {what}: {time.perf_counter() - start:.1f} s")
