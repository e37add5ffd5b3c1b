"""Which embedded points a query is interpolated between, and how far apart points are [M eq. 11, sec. 4]."""

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.inverse_nodes import NOBODY
from pipeline.numerics.neighbors import NeighborSearch, neighbors_within
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

N_NEIGHBORS = 200
# Below that of other searches: so many neighbors lie in most of a tree's leaves already in fewer dimensions.
TREE_MAX_DIMENSION = 6


def nearest_nodes(points: ArrayLike, queries: ArrayLike, n_neighbors: int = N_NEIGHBORS) -> IntArray:
    """The nearest points (q, k) of each query, all of them if there are fewer; those that are not finite aside."""
    places, nodes = checked_coordinates(queries, points)
    candidates = np.flatnonzero(usable_points(nodes))
    wanted = checks.integer_in_range("n_neighbors", n_neighbors, 1, None, "nodes to interpolate between")
    k = min(wanted, len(candidates))
    found = np.full((len(places), max(k, 1)), NOBODY, dtype=np.int64)
    asking = np.flatnonzero(usable_points(places))
    if k and len(asking):
        search = NeighborSearch(nodes[candidates], use_tree=nodes.shape[1] <= TREE_MAX_DIMENSION)
        found[asking] = candidates[search.query(places[asking], k)[1]]
    return found


def other_nodes(points: ArrayLike, n_neighbors: int = N_NEIGHBORS) -> IntArray:
    """Of each point the nearest others (n, k), all of them if there are fewer: to leave it out [M sec. 4]."""
    nodes = checks.real_array("points", points, 2)
    wanted = checks.integer_in_range("n_neighbors", n_neighbors, 1, None, "nodes to interpolate between")
    finite = np.flatnonzero(usable_points(nodes))
    k = min(wanted, len(finite) - 1)
    found = np.full((len(nodes), max(k, 1)), NOBODY, dtype=np.int64)
    if k > 0:
        found[finite] = finite[neighbors_within(nodes[finite], k)[1]]
    return found


def whole_fill_distance(points: ArrayLike) -> float:
    """[M eq. 11] of all points (n, d) together: the mean distance to the nearest other that does not coincide."""
    apart = neighbors_within(points, 1)[0]
    if not apart.any():
        raise InvalidInputError("points all have another at the same place; a fill distance needs some that differ.")
    return float(apart[apart > 0].mean())


def usable_points(points: AnyArray) -> BoolArray:
    """Which rows (n,) have coordinates all finite and of a size whose squares can be summed."""
    return np.asarray((np.abs(points) <= checks.LARGEST_SIZE).all(axis=1))


def checked_coordinates(queries: ArrayLike, points: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Queries (q, d) and points (n, d) in double precision; what is not finite is let through."""
    places = checks.real_array("queries", queries, 2, allow_empty=True)
    nodes = checks.real_array("points", points, 2)
    if places.shape[1] != nodes.shape[1]:
        raise InvalidInputError(
            f"queries has {places.shape[1]} columns and points {nodes.shape[1]}; they must be the same coordinates."
        )
    # As compiled loops know them: those of arrays laid out otherwise, or read-only, would be compiled anew.
    return np.require(places, np.float64, ["C", "W"]), np.require(nodes, np.float64, ["C", "W"])
