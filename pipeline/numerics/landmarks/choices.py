"""Landmark choices by name: the built-in ones and those of plugins, in one table."""

from collections import ChainMap
from collections.abc import Callable, Mapping

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.geodesics.rows import farthest_nodes
from pipeline.numerics.geodesics.shortest_paths import PathGraph
from pipeline.numerics.landmarks.greedy import (
    KINDS,
    choose_by_dissimilarities,
    kmeans_landmarks,
    pivoted_cholesky_landmarks,
    trace_landmarks,
)
from pipeline.numerics.landmarks.sampling import farthest_points, maxmin_candidates, random_landmarks
from pipeline.plugins import LOADED
from pipeline.types import AnyArray, FloatArray, IntArray

# Candidates whose dissimilarities are looked at: their matrix takes 128 MB.
MOST_CANDIDATES = 4096
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


def chosen_by_dissimilarities(
    selection: str, n_points: int, between: Callable[[IntArray], FloatArray], n_landmarks: int, seed: int
) -> IntArray:
    """Rising rows of landmarks, by the dissimilarities (c, c) that `between` returns for candidate rows (c,)."""
    if n_landmarks == n_points:
        return np.arange(n_points)
    if selection == "random":
        return random_landmarks(n_points, n_landmarks, seed)
    candidates = random_landmarks(n_points, max(n_landmarks, min(n_points, MOST_CANDIDATES)), seed)
    return np.sort(candidates[choose_by_dissimilarities(selection, between(candidates), n_landmarks, seed)])


def chosen_nodes(selection: str, graph: PathGraph, nodes: IntArray, n_landmarks: int, seed: int) -> IntArray:
    """Some of the nodes of a connected graph: at random, or farthest along the graph first, from a sample."""
    if selection == "random":
        return nodes[random_landmarks(len(nodes), n_landmarks, seed)]
    places, first = maxmin_candidates(len(nodes), n_landmarks, seed)
    return np.asarray(nodes[places][farthest_nodes(graph, nodes[places], first, n_landmarks)])


def _require_places(selection: str, places: AnyArray, n_points: int, n_landmarks: int) -> None:
    whole = places.dtype.kind in "iu" and places.shape == (n_landmarks,)
    if not whole or len(np.unique(places)) < n_landmarks or not 0 <= places.min() <= places.max() < n_points:
        raise InvalidInputError(
            f"landmark_selection={selection!r} is a plugin's and did not return {n_landmarks} different whole numbers "
            f"from 0 to {n_points - 1}; correct the plugin."
        )
