"""The demonstration: a Swiss roll unrolled by the real flow, checked against the sheet it was made from, and drawn."""

from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist

from flows.pictures import swiss_roll_picture
from flows.runner import FitJob, run_job
from flows.terminal import Say, command_line
from pipeline.numerics.datasets import swiss_roll
from pipeline.results.run import open_run
from pipeline.settings import fit_settings
from pipeline.types import FloatArray

N_NEIGHBORS, N_LANDMARKS = 10, 300


def run_demo(n_points: int, folder: Path, picture: Path, seed: int, cluster_kind: str, say: Say) -> float:
    """Fit a roll on disk, report how well the sheet was recovered, write the picture, say what to try next."""
    roll = swiss_roll(n_points, seed)
    folder.mkdir(parents=True, exist_ok=True)
    points, store = folder / "points.npy", folder / "run.zarr"
    np.save(points, roll.points)
    say(f"A Swiss roll: {n_points:,} points in 3 dimensions, a flat sheet rolled up, in {points}.")
    given = {"source": points, "store": store, "n_neighbors": N_NEIGHBORS, "n_landmarks": N_LANDMARKS, "seed": seed}
    settings = fit_settings({name: str(value) for name, value in given.items()} | {"cluster": {"kind": cluster_kind}})
    run_job(FitJob(settings), take_over=False, as_json=False, say=say)
    coordinates = open_run(store).embedding("projection")
    residual = sheet_residual(roll.sheet, coordinates, seed)
    say(f"Residual variance against the true sheet (0 is perfect, 1 is unrelated): {residual:.1e}")
    picture.write_bytes(swiss_roll_picture(roll, coordinates))
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
