"""What the second opinion costs: restricted reconstruction against projection of the same rows."""

import time
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.measure import Measurement, use_one_core
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension import project, restricted_reconstruction
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.types import AnyArray

N_POINTS, N_LANDMARKS, N_COMPONENTS = 1_000_000, 1000, 10
CHUNK = 4096


def restricted_against_projection() -> list[Measurement]:
    """A million points, d = 10, m = 1000, one core, in chunks as the pipeline reads them, alternating the two."""
    use_one_core()
    return [_compared(1.0, np.float64), _compared("balanced", np.float64), _compared(1.0, np.float32)]


def _compared(weight: DiagonalWeight, dtype: type) -> Measurement:
    model, chunk = _problem(dtype)
    both: dict[str, Callable[[AnyArray], object]] = {
        "projection": lambda rows: project(model, rows),
        "restricted": lambda rows: restricted_reconstruction(model, rows, weight),
    }
    seconds = dict.fromkeys(both, 0.0)
    for extend in both.values():
        extend(chunk[:CHUNK])  # compiled before the clock starts
    done = 0
    while done < N_POINTS:
        first = done % (len(chunk) - CHUNK + 1)
        rows = chunk[first : first + min(CHUNK, N_POINTS - done)]
        for name, extend in both.items():
            start = time.perf_counter()
            extend(rows)
            seconds[name] += time.perf_counter() - start
        done += len(rows)
    name = f"restricted reconstruction, {N_POINTS:,} points, m={N_LANDMARKS}, d={N_COMPONENTS}, weight {weight}, "
    key = f"restricted-{weight}-{np.dtype(dtype).name}"
    return Measurement(
        key, name + np.dtype(dtype).name, seconds["restricted"], "projection", seconds["projection"], 4.0
    )


def _problem(dtype: type) -> tuple[LandmarkModel, AnyArray]:
    """A noisy roll in 30 dimensions: a spectrum that falls off, and points partly outside the 10 kept components."""
    rng = np.random.default_rng(0)
    points = swiss_roll(N_LANDMARKS + 6 * CHUNK, seed=0).points @ rng.normal(size=(3, 30))
    points += rng.normal(size=points.shape) * np.geomspace(8, 1, 30)
    landmarks, new = points[:N_LANDMARKS], points[N_LANDMARKS:]
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), N_COMPONENTS)
    return model, cdist(new, landmarks, "sqeuclidean").astype(dtype)
