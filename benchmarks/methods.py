"""How fast each method places new points: distances to the landmarks and its own extension, on one core.

`python -m benchmarks placing_by_every_method`. The measure is what plain numpy takes for the simplest of them:
scipy's distances, squared, and a matrix product.
"""

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.measure import Measurement, fastest_in_turns, use_one_core
from pipeline.methods import METHODS
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension.placement import answers_of
from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.models.metrics import distances
from pipeline.types import FloatArray

N_POINTS, N_LANDMARKS, N_COMPONENTS, N_COLUMNS = 20_000, 300, 2, 20
# Placed by one call: so much memory is had again and again, where new memory would take longer than what is measured.
BLOCK_POINTS = 500
TURNS = 5
# Times that of plain numpy: sums over landmarks, exponentials, small systems, a minimization for every point.
LIMITS = {"projection": 2.5, "weights": 2.5, "kernel-mapping": 2.5, "rbf": 2.5, "stress": 40.0}


def placing_by_every_method() -> list[Measurement]:
    """Every method that measures directly by its own extension, and classical scaling by the two that fit any."""
    use_one_core()
    landmarks, new = _points()
    cases = [(method, "auto") for method, entry in METHODS.items() if not entry.geodesic]
    return [_measured(*case, landmarks, new) for case in [*cases, ("mds", "kernel-mapping"), ("mds", "rbf")]]


def _measured(method: str, extension: str, landmarks: FloatArray, new: FloatArray) -> Measurement:
    between = distances("euclidean", landmarks, landmarks)
    answers = answers_of(fitted_model(Choice(method, N_COMPONENTS, extension), between))
    plain = _plain_projection(landmarks)

    blocks = [new[first : first + BLOCK_POINTS] for first in range(0, len(new), BLOCK_POINTS)]

    def place() -> None:
        for block in blocks:
            answers.of(distances("euclidean", block, landmarks))

    def place_plainly() -> None:
        for block in blocks:
            plain(block)

    place()  # compiled before the clock starts
    ours, beside = fastest_in_turns(TURNS, place, place_plainly)
    own = METHODS[method].extensions[0] if extension == "auto" else extension
    name = f"{N_POINTS:,} points placed by {method}, {own}, m={N_LANDMARKS}, d={N_COMPONENTS}, {N_COLUMNS} columns"
    note = f"{N_POINTS / ours:,.0f} points a second"
    key = f"placing-{method}-{own}"
    return Measurement(key, name, ours, "projection in plain numpy", beside, LIMITS[own], note)


def _plain_projection(landmarks: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """What a user would write: y = c / lam from squared distances, in matrix products."""
    squared = cdist(landmarks, landmarks, "sqeuclidean")
    means = squared.mean(axis=0)
    lam, vectors = np.linalg.eigh(-0.5 * (squared - means - means[:, None] + means.mean()))
    onto = vectors[:, -N_COMPONENTS:] / np.sqrt(lam[-N_COMPONENTS:])
    return lambda new: np.asarray(-0.5 * (cdist(new, landmarks, "sqeuclidean") - means) @ onto)


def _points() -> tuple[FloatArray, FloatArray]:
    """A noisy roll in many columns: landmarks and new points."""
    rng = np.random.default_rng(0)
    points = swiss_roll(N_LANDMARKS + N_POINTS, seed=0).points @ rng.normal(size=(3, N_COLUMNS))
    points += rng.normal(size=points.shape)
    return points[:N_LANDMARKS], points[N_LANDMARKS:]
