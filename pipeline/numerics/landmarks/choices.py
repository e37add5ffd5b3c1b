"""Landmark choices by name: the built-in ones and those of plugins, in one table."""

from collections import ChainMap
from collections.abc import Callable, Mapping

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.landmarks.greedy import KINDS, kmeans_landmarks, pivoted_cholesky_landmarks, trace_landmarks
from pipeline.numerics.landmarks.sampling import farthest_points, maxmin_candidates, random_landmarks
from pipeline.plugins import LOADED
from pipeline.types import AnyArray, IntArray

# From points (c, D), the place of the first landmark (for choices that start from one), n_landmarks and a seed to
# places among the points.
Choose = Callable[[AnyArray, int, int, int], IntArray]
_BUILT_IN: dict[str, Choose] = {
    "random": lambda points, _, n_landmarks, seed: random_landmarks(len(points), n_landmarks, seed),
    "maxmin": lambda points, first, n_landmarks, _: farthest_points(points, first, n_landmarks),
    "kmeans": lambda points, _, n_landmarks, seed: kmeans_landmarks(points, n_landmarks, seed),
    "trace": lambda points, _, n_landmarks, seed: trace_landmarks(points, n_landmarks, seed),
    "cholesky": lambda points, _, n_landmarks, seed: pivoted_cholesky_landmarks(points, n_landmarks, seed),
}
CHOICES: Mapping[str, Choose] = ChainMap(_BUILT_IN, LOADED.landmark_choices)


def chosen_points(selection: str, points: AnyArray, first: int, n_landmarks: int, seed: int) -> IntArray:
    """Distinct places of landmarks among candidates (c, D)."""
    places = np.asarray(CHOICES[selection](points, first, n_landmarks, seed))
    if selection not in _BUILT_IN:
        _require_places(selection, places, len(points), n_landmarks)
    return places


def chosen_rows(selection: str, points: AnyArray, n_landmarks: int, seed: int) -> IntArray:
    """Rows of landmarks among all points (n, D); a choice that does not draw its own candidates gets a sample."""
    if selection in ("random", *KINDS):
        return chosen_points(selection, points, 0, n_landmarks, seed)
    candidates, first = maxmin_candidates(len(points), n_landmarks, seed)
    return np.asarray(candidates[chosen_points(selection, points[candidates], first, n_landmarks, seed)])


def _require_places(selection: str, places: AnyArray, n_points: int, n_landmarks: int) -> None:
    whole = places.dtype.kind in "iu" and places.shape == (n_landmarks,)
    if not whole or len(np.unique(places)) < n_landmarks or not 0 <= places.min() <= places.max() < n_points:
        raise InvalidInputError(
            f"landmark_selection={selection!r} is a plugin's and did not return {n_landmarks} different whole numbers "
            f"from 0 to {n_points - 1}; correct the plugin."
        )
