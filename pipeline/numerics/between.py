"""Distances between new points, with fitted points as the only intermediates.

The length of the way from new point i to new point j is the least over fitted points a near i and b near j of
||i - a|| + D(a, b) + ||b - j||. For it new points become nodes with edges that lead out of them only: a search from one
of them never passes through another. Points that are nearer to each other than the farthest neighbor of either would be
neighbors in a graph of both, and have the direct way as well.
"""

import numpy as np
from scipy.spatial.distance import cdist

from pipeline.numerics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.vectors import LANES
from pipeline.types import AnyArray, FloatArray


def with_new_nodes(graph: PathGraph, distances: FloatArray, neighbors: AnyArray) -> PathGraph:
    """The graph with p nodes after its own, each with edges out to its neighbors (p, k)."""
    n_new, k = neighbors.shape
    ends = graph.offsets[-1] + k * np.arange(1, n_new + 1)
    return PathGraph(
        np.concatenate([graph.offsets, ends]),
        np.concatenate([graph.targets, neighbors.ravel().astype(graph.targets.dtype)]),
        np.concatenate([graph.weights, distances.ravel().astype(graph.weights.dtype)]),
    )


def lengths_between(search: PathSearch, first: int, distances: FloatArray, neighbors: AnyArray) -> FloatArray:
    """Path lengths (p, p) between new points that are the nodes from `first` on and have these neighbors (p, k)."""
    n_new = len(neighbors)
    between = np.empty((n_new, n_new))
    for start in range(0, n_new, LANES):
        lanes = np.arange(start, min(start + LANES, n_new))
        lengths = search.lengths(first + lanes)[:, : len(lanes)]
        between[lanes] = (lengths[neighbors] + distances[:, :, None]).min(axis=1).T
    between = np.minimum(between, between.T)
    np.fill_diagonal(between, 0.0)
    return between


def bound_between(batches: "list[AnyArray]") -> FloatArray:
    """The least way (p, p) over a landmark, an upper bound, from the distances (p, b) to each batch of landmarks."""
    n_new = len(batches[0])
    between = np.full((n_new, n_new), np.inf)
    for to_landmarks in batches:
        for column in to_landmarks.T.astype(np.float64):
            np.minimum(between, column[:, None] + column, out=between)
    np.fill_diagonal(between, 0.0)
    return between


def with_direct_ways(between: FloatArray, points: AnyArray, reach: FloatArray) -> FloatArray:
    """The lengths (p, p), or the direct distance where it is shorter and within the reach (p,) of either point."""
    direct = cdist(points, points)
    near = direct <= np.maximum(reach[:, None], reach)
    return np.where(near, np.minimum(between, direct), between)
