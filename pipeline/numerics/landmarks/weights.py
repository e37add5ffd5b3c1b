"""How much each landmark counts: by how many points it stands for, those that it is the nearest landmark of.

Landmarks chosen farthest first cover sparse and dense parts of the data alike. Weighted by these counts they make up
for it: classical scaling is then that of all points, each moved to its nearest landmark.
"""

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray, IntArray

NOWHERE = -1


def relative_weights(weights: ArrayLike, n_objects: int) -> FloatArray:
    """Positive weights (m,), one for each object, scaled to mean 1."""
    values = checks.finite_array("weights", weights, 1).astype(np.float64)
    if len(values) != n_objects:
        raise InvalidInputError(f"weights holds {len(values)} numbers; give one for each of the {n_objects} objects.")
    if values.min() <= 0:
        raise InvalidInputError(
            f"weights has {np.count_nonzero(values <= 0)} entries that are not positive, the lowest {values.min():g}; "
            "give positive ones, and leave out objects that count for nothing."
        )
    return np.asarray(values / values.mean())


class NearestLandmarks:
    """The nearest landmark of each of p points, whose dissimilarities arrive a few landmarks at a time, in order. Of
    landmarks equally near, the one in the earliest of `rows` (m,): how landmarks are ordered does not matter."""

    def __init__(self, rows: IntArray, n_points: int) -> None:
        self._rows, self._n_added = rows, 0
        self._least, self.places = np.full(n_points, np.inf), np.full(n_points, NOWHERE)

    def add(self, to_landmarks: AnyArray) -> None:
        """Look at the dissimilarities (p, b) to the next b landmarks."""
        _take_nearer(to_landmarks, self._n_added, self._rows, self._least, self.places)
        self._n_added += to_landmarks.shape[1]


@compiled
def _take_nearer(to_landmarks: AnyArray, first: int, rows: AnyArray, least: AnyArray, places: AnyArray) -> None:
    for j in range(len(places)):
        for i in range(to_landmarks.shape[1]):
            length, place = to_landmarks[j, i], first + i
            if length < least[j] or (length == least[j] and places[j] >= 0 and rows[place] < rows[places[j]]):
                least[j], places[j] = length, place


def landmark_counts(nearest: IntArray, points: IntArray, landmarks: IntArray, n_rows: IntArray) -> IntArray:
    """How many rows (m,) each landmark stands for: those of the points that it is nearest to. Of points (p,), given by
    number, `nearest` are the places of their landmarks or NOWHERE, `n_rows` how many rows each is. A landmark, its
    point's number in `landmarks` (m,), stands for itself even if another is at distance 0."""
    own, place_of = np.isin(points, landmarks), np.argsort(landmarks)
    places = nearest.copy()
    places[own] = place_of[np.searchsorted(landmarks, points[own], sorter=place_of)]
    known = places != NOWHERE
    counts = np.zeros(len(landmarks), np.int64)
    np.add.at(counts, places[known], n_rows[known])
    return counts
