"""A fit in memory against what others offer for the same: scikit-learn's Isomap, tapkee's landmark Isomap."""

from importlib import import_module
from importlib.util import find_spec

import numpy as np
from scipy.spatial import procrustes
from sklearn.manifold import Isomap

from benchmarks.measure import Measurement, fastest_in_turns
from benchmarks.orchestration import in_own_process
from pipeline import LandmarkIsomap
from pipeline.numerics.datasets import swiss_roll
from pipeline.types import FloatArray

N_NEIGHBORS, N_COMPONENTS, N_JOBS = 10, 2, 2
SKLEARN_POINTS, SKLEARN_LANDMARKS = 8000, 400
TAPKEE_POINTS, TAPKEE_LANDMARKS = 16_000, 800
# tapkee's time varies most with what else the machine does.
SKLEARN_REPEATS, TAPKEE_REPEATS = 3, 5
LARGEST_DISTANCE = 0.01


def fit_against_sklearn() -> list[Measurement]:
    ours, theirs, distance = in_own_process(timed_with_sklearn)
    if not distance < LARGEST_DISTANCE:
        raise RuntimeError(f"the embedding is {distance:.2g} from scikit-learn's, more than {LARGEST_DISTANCE}.")
    name = f"LandmarkIsomap.fit, {SKLEARN_POINTS:,} points of a Swiss roll, m={SKLEARN_LANDMARKS}"
    note = f"Procrustes distance {distance:.2g}"
    return [Measurement("fit-sklearn", name, ours, "scikit-learn's Isomap", theirs, 1 / 40, note)]


def timed_with_sklearn() -> tuple[float, float, float]:
    """Seconds of ours and of theirs, and the Procrustes distance between both embeddings."""
    points = swiss_roll(SKLEARN_POINTS, seed=0).points
    embeddings: dict[str, FloatArray] = {}

    def ours() -> None:
        embeddings["ours"] = _embedded(points, SKLEARN_LANDMARKS)

    def theirs() -> None:
        isomap = Isomap(n_neighbors=N_NEIGHBORS, n_components=N_COMPONENTS, n_jobs=N_JOBS)
        embeddings["sklearn"] = isomap.fit_transform(points)

    _embedded(points[:1000], 20)  # compiled before the clock starts
    fastest = fastest_in_turns(SKLEARN_REPEATS, ours, theirs)
    return fastest[0], fastest[1], _distance(embeddings["sklearn"], embeddings["ours"])


def fit_against_tapkee() -> list[Measurement]:
    if find_spec("tapkee") is None:
        print("a fit against tapkee: left out, for it is not installed; it has no wheel for every platform")
        return []
    ours, theirs, distance = in_own_process(timed_with_tapkee)
    name = f"LandmarkIsomap.fit, {TAPKEE_POINTS:,} points of a Swiss roll, m={TAPKEE_LANDMARKS}"
    note = f"Procrustes distance {distance:.2g}"
    return [Measurement("fit-tapkee", name, ours, "tapkee's landmark Isomap", theirs, 1 / 4, note)]


def timed_with_tapkee() -> tuple[float, float, float]:
    """Theirs with the neighbor search that is its fastest here; its default takes a good deal longer."""
    tapkee = import_module("tapkee")
    points = swiss_roll(TAPKEE_POINTS, seed=0).points
    columns = np.asfortranarray(points.T)
    settings = {"num_neighbors": N_NEIGHBORS, "target_dimension": N_COMPONENTS, "neighbors_method": "vptree"}
    ratio = TAPKEE_LANDMARKS / TAPKEE_POINTS
    embeddings: dict[str, FloatArray] = {}

    def ours() -> None:
        embeddings["ours"] = _embedded(points, TAPKEE_LANDMARKS)

    def theirs() -> None:
        embeddings["tapkee"] = np.asarray(tapkee.embed(columns, method="l-isomap", landmark_ratio=ratio, **settings))

    _embedded(points[:1000], 20)  # compiled before the clock starts
    fastest = fastest_in_turns(TAPKEE_REPEATS, ours, theirs)
    return fastest[0], fastest[1], _distance(embeddings["tapkee"], embeddings["ours"])


def _embedded(points: FloatArray, n_landmarks: int) -> FloatArray:
    isomap = LandmarkIsomap(N_NEIGHBORS, N_COMPONENTS, n_landmarks=n_landmarks, n_jobs=N_JOBS, random_state=0)
    return isomap.fit(points).embedding_


def _distance(theirs: FloatArray, ours: FloatArray) -> float:
    """What is left between two embeddings once shifted, turned and scaled onto each other, as a share of their size."""
    return float(np.sqrt(procrustes(theirs, ours)[2]))
