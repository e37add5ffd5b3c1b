"""The demonstration: a Swiss roll unrolled by the real flow, checked against the sheet it was made from, and drawn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist

from flows.commands import run_fit
from flows.terminal import command_line
from pipeline.numerics.datasets import SwissRoll, swiss_roll
from pipeline.results.run import open_run
from pipeline.settings import fit_settings
from pipeline.types import FloatArray

N_NEIGHBORS, N_LANDMARKS = 10, 300


def run_demo(
    n_points: int, folder: Path, picture: Path, seed: int, cluster_kind: str, say: Callable[[str], None]
) -> float:
    """Fit a roll on disk, report how well the sheet was recovered, write the picture, say what to try next."""
    roll = swiss_roll(n_points, seed)
    folder.mkdir(parents=True, exist_ok=True)
    points, store = folder / "points.npy", folder / "run.zarr"
    np.save(points, roll.points)
    say(f"A Swiss roll: {n_points:,} points in 3 dimensions, a flat sheet rolled up, in {points}.")
    given = {"source": points, "store": store, "n_neighbors": N_NEIGHBORS, "n_landmarks": N_LANDMARKS, "seed": seed}
    settings = fit_settings({name: str(value) for name, value in given.items()} | {"cluster": {"kind": cluster_kind}})
    run_fit(settings, take_over=False, anyway=False, as_json=False, picture=None, say=say)
    coordinates = open_run(store).embedding("projection")
    residual = sheet_residual(roll.sheet, coordinates, seed)
    say(f"Residual variance against the true sheet (0 is perfect, 1 is unrelated): {residual:.1e}")
    draw(roll, coordinates, picture)
    say(f"The picture is in {picture}. Try next:")
    common = [str(points), "--store", str(store), "--n-landmarks", str(N_LANDMARKS)]
    for arguments in (
        ["status", str(store)],
        ["fit", *common, "--n-components", "3"],
        ["export", str(store), "--array", "projection", "--output", str(folder / "projection.npy")],
    ):
        say(f"  {command_line(arguments)}")
    return residual


def sheet_residual(sheet: FloatArray, coordinates: FloatArray, seed: int, sample_size: int = 1500) -> float:
    """1 - r^2 of distances on the sheet against distances in the embedding, between sampled points."""
    size = min(len(sheet), sample_size)
    sample = np.random.default_rng(seed).choice(len(sheet), size, replace=False)
    correlation = np.corrcoef(pdist(sheet[sample]), pdist(coordinates[sample]))[0, 1]
    return float(1 - correlation**2)


def draw(roll: SwissRoll, coordinates: FloatArray, path: Path) -> None:
    """The roll in space; beside it the sheet it was made from and the sheet that was found, colored alike."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[1, 1.7])
    color = roll.sheet[:, 0]
    shown = np.random.default_rng(0).permutation(len(color))[:6000]
    rolled = figure.add_subplot(grid[:, 0], projection="3d", computed_zorder=False)
    rolled.scatter(*roll.points[shown].T, c=color[shown], s=3, cmap="viridis")
    rolled.view_init(10, -75)
    rolled.set_box_aspect((1, 0.9, 1), zoom=1.35)
    rolled.set_title(f"{len(color):,} points in space", y=0.98)
    rolled.set_axis_off()
    # An embedding is known up to reflections: turned so that both sheets read the same way.
    turned = coordinates * np.sign(np.einsum("ij,ij->j", coordinates, roll.sheet - roll.sheet.mean(axis=0)))
    for row, (sheet, title) in enumerate(
        ((roll.sheet, "the sheet it was rolled from"), (turned, "as it was unrolled"))
    ):
        axes = figure.add_subplot(grid[row, 1])
        x, y = sheet[shown].T
        axes.scatter(x, y, c=color[shown], s=3, cmap="viridis")
        axes.set(aspect="equal", title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=110)
