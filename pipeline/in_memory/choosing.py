"""Landmarks by any of the selections, from what there is to tell points apart: vectors, dissimilarities or a graph."""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from pipeline.numerics.farthest_nodes import farthest_nodes
from pipeline.numerics.landmark_choice import (
    choose_by_dissimilarities,
    kmeans_landmarks,
    pivoted_cholesky_landmarks,
    trace_landmarks,
)
from pipeline.numerics.landmarks import maxmin_candidates, maxmin_landmarks, random_landmarks
from pipeline.numerics.shortest_paths import PathGraph
from pipeline.types import AnyArray, IntArray

# Of a matrix, points that landmarks are chosen among: their own matrix takes 128 MB.
MOST_CANDIDATES = 4096

BY_POINTS: dict[str, Callable[[AnyArray, int, int], IntArray]] = {
    "random": lambda points, n_landmarks, seed: random_landmarks(len(points), n_landmarks, seed),
    "maxmin": maxmin_landmarks,
    "kmeans": kmeans_landmarks,
    "trace": trace_landmarks,
    "cholesky": pivoted_cholesky_landmarks,
}


def chosen_points(selection: str, points: AnyArray, n_landmarks: int, seed: int) -> IntArray:
    """Rows of points (n, D), by Euclidean distances between them."""
    return BY_POINTS[selection](points, n_landmarks, seed)


def chosen_by_dissimilarities(selection: str, apart: AnyArray, n_landmarks: int, seed: int) -> IntArray:
    """Rows of dissimilarities (n, n), rising."""
    n = len(apart)
    if n_landmarks == n:
        return np.arange(n)
    if selection == "random":
        return random_landmarks(n, n_landmarks, seed)
    candidates = random_landmarks(n, max(n_landmarks, min(n, MOST_CANDIDATES)), seed)
    between = apart[np.ix_(candidates, candidates)].astype(np.float64)
    between = (between + between.T) / 2
    np.fill_diagonal(between, 0.0)
    return np.sort(candidates[choose_by_dissimilarities(selection, between, n_landmarks, seed)])


def chosen_nodes(selection: str, graph: csr_array, nodes: IntArray, n_landmarks: int, seed: int) -> IntArray:
    """Some of the nodes, which all reach each other: at random, or of a sample each the farthest along the graph."""
    if selection == "random":
        return nodes[random_landmarks(len(nodes), n_landmarks, seed)]
    places, first = maxmin_candidates(len(nodes), n_landmarks, seed)
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices, graph.data)
    return np.asarray(nodes[places][farthest_nodes(paths, nodes[places], first, n_landmarks)])
