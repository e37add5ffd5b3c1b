"""The inverse map: from coordinates in an embedding back to data, by local interpolation [M eq. 5-8, 14, 17].

Around each query y the k nearest embedded points are nodes (a row of `neighborhoods` (q, k); -1 for none), whose rows
of data are interpolated by radial functions with a polynomial. The value is a combination of these rows with weights
w(y) = k(y, .)' K^-1 [M eq. 8] that depend on coordinates alone: `stencils` finds the weights, one factorization for all
queries with the same nodes and one solve per query, O(k^3 / 3); `Stencils.combine` combines the rows, O(k D), of data
of any type. `fill_distance` is the mean distance of a node to the nearest other [M eq. 11].

A query's bytes depend neither on other queries nor on the order of its neighborhood. Flags (they add up):

| flag            | meaning                                                                              |
|-----------------|--------------------------------------------------------------------------------------|
| MERGED          | coinciding nodes were merged into one with the mean of their rows                    |
| NOT_UNISOLVENT  | the nodes (fewer than d + 1, or in a plane) do not determine the whole polynomial    |
| ILL_CONDITIONED | few right digits: condition above 1e12, or rounding above 1e-4 far from all nodes    |
| REGULARIZED     | the system was singular to rounding and made solvable; rows are smoothed somewhat    |
| DROPPED         | nodes with coordinates or rows that are not finite were left out                     |
| UNDEFINED       | the query is not finite, or has no nodes; values are NaN                             |
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.inverse.neighborhood import NOBODY, Kernel, Radial, Room, Terms, room_for
from pipeline.numerics.inverse.systems import DROPPED, ILL_CONDITIONED, MERGED, UNDEFINED, prepare, weigh
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

CUBIC = Kernel()
N_NEIGHBORS = 200
# Lower than for other searches: this many neighbors are spread over most leaves of a tree in fewer dimensions.
TREE_MAX_DIMENSION = 6
# At most this many rows in the same place are averaged, the first ones.
MOST_ROWS_OF_NODE = 64


class Stencils(NamedTuple):
    """Weights (q, k) of the rows that `neighborhoods` (q, k) name, which give the queries' values. condition (q,) of
    each system in the 1-norm; amplification (q,), the sum of absolute weights, by which errors of rows can grow: a few
    where nodes surround the query; distance (q,) to the nearest node; fill_distance (q,); flags (q,)."""

    neighborhoods: IntArray
    weights: FloatArray
    condition: FloatArray
    amplification: FloatArray
    distance: FloatArray
    fill_distance: FloatArray
    flags: AnyArray

    @property
    def remoteness(self) -> FloatArray:
        """Distance to the nearest node in fill distances: up to about 1 among nodes, infinite beside a single one."""
        apart, spacing = self.distance, np.where(self.fill_distance > 0, self.fill_distance, 1.0)
        alone = (self.fill_distance == 0) & (apart > 0)
        return np.asarray(np.where(alone, np.inf, apart / spacing))

    def combine(self, values: AnyArray) -> FloatArray:
        """Values (q, D) of the queries, from rows (n, D) of real numbers of any type; rows of weight 0 are not read."""
        highest = int(self.neighborhoods.max(initial=NOBODY))
        if values.ndim != 2 or len(values) <= highest:
            raise InvalidInputError(
                f"values has shape {values.shape}; it must be (n, D) with a row for each point, at least {highest + 1}."
            )
        return _combined(self.neighborhoods, self.weights, values)

    def of_some(self, queries: slice, neighborhoods: IntArray) -> "Stencils":
        """Those of some queries, whose rows are now numbered by `neighborhoods` (b, k)."""
        return Stencils(neighborhoods, *(column[queries] for column in self[1:]))

    def of_means(self, means: FloatArray, differ: BoolArray) -> "Inverted":
        """Values by what `mean_rows` gave, flagged where the rows of a node differ."""
        # The last place is that of NOBODY.
        merged = np.append(differ, False)[self.neighborhoods]
        return Inverted(self.combine(means), self.flagged(np.asarray(merged.any(axis=1)), MERGED))

    def flagged(self, which: BoolArray, flag: int) -> "Stencils":
        return self._replace(flags=self.flags | np.where(which, flag, 0).astype(np.uint8))


class Inverted(NamedTuple):
    """values (q, D) at the queries, NaN where undefined, and their stencils."""

    values: FloatArray
    stencils: Stencils


def invert(
    queries: ArrayLike,
    points: ArrayLike,
    values: ArrayLike,
    neighborhoods: ArrayLike | None = None,
    kernel: Kernel = CUBIC,
    fill_distance: float | None = None,
) -> Inverted:
    """Data at queries (q, d), from points (n, d) of an embedding and their rows of data (n, D). neighborhoods (q, k)
    are by default those of `nearest_nodes`. A kernel's scale is in units of `fill_distance`, by default that of each
    neighborhood. Rows that are not finite are left out."""
    rows = checks.real_array("values", values, 2)
    nodes = checks.real_array("points", points, 2)
    if len(rows) != len(nodes):
        raise InvalidInputError(f"values has {len(rows)} rows and points {len(nodes)}; give one for each.")
    near = nearest_nodes(nodes, queries) if neighborhoods is None else neighborhoods
    known = np.isfinite(rows).all(axis=1, keepdims=True)
    found = stencils(queries, np.where(known, nodes, np.nan), near, kernel, fill_distance)
    return Inverted(found.combine(rows), found)


def stencils(
    queries: ArrayLike,
    points: ArrayLike,
    neighborhoods: ArrayLike,
    kernel: Kernel = CUBIC,
    fill_distance: float | None = None,
) -> Stencils:
    """Weights for values at queries (q, d), by points (n, d) and neighborhoods (q, k); see `invert`."""
    places, nodes = checked_coordinates(queries, points)
    near = _checked_neighborhoods(neighborhoods, len(places), len(nodes))
    left = np.where(usable_points(nodes)[near], near, NOBODY)
    length = 0.0  # that of each neighborhood
    if fill_distance is not None:
        length = checks.number_in_range("fill_distance", fill_distance, checks.SMALLEST_SIZE, checks.LARGEST_SIZE)
    return _weighed(places, nodes, left, kernel, length).flagged((left != near).any(axis=1), DROPPED)


def nearest_nodes(points: ArrayLike, queries: ArrayLike, n_neighbors: int = N_NEIGHBORS) -> IntArray:
    """The nearest finite points (q, k) of each query, all if there are fewer."""
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


def usable_points(points: AnyArray) -> BoolArray:
    """Which rows (n,) have finite coordinates whose squares can be summed."""
    return np.asarray((np.abs(points) <= checks.LARGEST_SIZE).all(axis=1))


def checked_coordinates(queries: ArrayLike, points: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Queries (q, d) and points (n, d) in double precision; they may hold NaN and infinity."""
    places = checks.real_array("queries", queries, 2, allow_empty=True)
    nodes = checks.real_array("points", points, 2)
    if places.shape[1] != nodes.shape[1]:
        raise InvalidInputError(
            f"queries has {places.shape[1]} columns and points {nodes.shape[1]}; they must be the same coordinates."
        )
    # Another layout, or a read-only array, would make numba compile the loops again.
    return np.require(places, np.float64, ["C", "W"]), np.require(nodes, np.float64, ["C", "W"])


def ranks_within(labels: IntArray) -> IntArray:
    """For labels that never fall: how many equal ones come before each."""
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    return np.asarray(np.arange(len(labels)) - np.repeat(starts, np.diff(starts, append=len(labels))))


def mean_rows(values: AnyArray, places: IntArray) -> tuple[FloatArray, BoolArray]:
    """The mean (m, D) of the rows (r, D) in each place, and whether (m,) these rows differ. places (r,) of the rows run
    from 0 to m - 1 without gaps and never fall."""
    ranks = ranks_within(places)
    firsts = np.flatnonzero(ranks == 0)
    means, differ = values[firsts].astype(np.float64), np.zeros(len(firsts), dtype=np.bool_)
    others = np.flatnonzero((ranks > 0) & (ranks < MOST_ROWS_OF_NODE))
    shared, more = places[others], values[others]
    np.logical_or.at(differ, shared, (more != values[firsts[shared]]).any(axis=1))
    # Row after row: the bytes of a sum depend on the order.
    np.add.at(means, shared, more)
    several = np.unique(shared)
    means[several] /= np.minimum(np.bincount(places), MOST_ROWS_OF_NODE)[several, None]
    # The mean of equal rows is the row itself, to the bit.
    alike = several[~differ[several]]
    means[alike] = values[firsts[alike]]
    return means, differ


def _checked_neighborhoods(neighborhoods: ArrayLike, n_queries: int, n_points: int) -> IntArray:
    near = np.asarray(neighborhoods)
    if near.ndim != 2 or len(near) != n_queries or near.shape[1] == 0 or near.dtype.kind not in "iu":
        raise InvalidInputError(
            f"neighborhoods has shape {near.shape} and dtype {near.dtype}; it must be ({n_queries}, k), whole numbers."
        )
    if near.size and (near.min() < NOBODY or near.max() >= n_points):
        wrong = near[(near < NOBODY) | (near >= n_points)][0]
        raise InvalidInputError(
            f"neighborhoods has {wrong}; rows of points run from 0 to {n_points - 1}, and -1 stands for none."
        )
    return np.asarray(near, dtype=np.int64)


def _weighed(places: AnyArray, nodes: AnyArray, near: IntArray, kernel: Kernel, length: float) -> Stencils:
    # Sorted, so that the same nodes give the same system to the byte.
    listed = np.argsort(near, axis=1, kind="stable")
    near_sorted = np.take_along_axis(near, listed, axis=1)
    alike = np.argsort(near_sorted.view(np.dtype((np.void, 8 * near.shape[1]))).ravel(), kind="stable")
    terms = kernel.terms(nodes.shape[1])
    room = room_for(near.shape[1], nodes.shape[1], terms)
    weights, figures, flags = _weigh_all(alike, places, nodes, near_sorted, kernel.radial(), terms, length, room)
    unsorted = np.empty_like(weights)
    np.put_along_axis(unsorted, listed, weights, axis=1)
    condition, amplification, distance, spacing = figures
    return Stencils(near, unsorted, condition, amplification, distance, spacing, flags)


@compiled
def _weigh_all(
    order: AnyArray,
    queries: AnyArray,
    points: AnyArray,
    neighborhoods: AnyArray,
    radial: Radial,
    terms: Terms,
    length: float,
    room: Room,
) -> tuple[FloatArray, FloatArray, AnyArray]:
    """Weights (q, k), figures (4, q) and flags (q,) of `Stencils`, for queries in an order in which those with the same
    nodes are adjacent."""
    n_queries, previous = len(order), order[0] if len(order) else 0
    weights, figures = np.empty(neighborhoods.shape), np.empty((4, n_queries))
    flags = np.empty(n_queries, dtype=np.uint8)
    if n_queries:
        facts = prepare(points, neighborhoods[previous], radial, terms, length, room)
    for i in order:
        if (neighborhoods[i] != neighborhoods[previous]).any():
            facts = prepare(points, neighborhoods[i], radial, terms, length, room)
        previous = i
        apart, amplification, is_rounded = np.nan, np.nan, False
        if facts.n_nodes:
            apart, amplification, is_rounded = weigh(queries[i], radial, terms, facts, room, weights[i])
        figures[0, i], figures[1, i] = facts.condition, amplification
        figures[2, i], figures[3, i] = apart, facts.fill_distance * facts.unit
        flags[i] = facts.flags | (ILL_CONDITIONED if is_rounded else 0)
        if not np.isfinite(amplification) or not np.isfinite(apart):
            weights[i, :] = np.nan
            figures[1, i], figures[2, i], flags[i] = np.nan, np.nan, facts.flags | UNDEFINED
    return weights, figures, flags


@compiled
def _combined(neighborhoods: AnyArray, weights: AnyArray, values: AnyArray) -> FloatArray:
    combined = np.empty((len(weights), values.shape[1]))
    for i in range(len(combined)):
        # Undefined weights are all NaN, even if there is no row to weigh.
        combined[i, :] = 0.0 * weights[i, 0]
        _combine(neighborhoods[i], weights[i], values, combined[i])
    return combined


@compiled
def _combine(rows: AnyArray, weights: AnyArray, values: AnyArray, combined: AnyArray) -> None:
    """Summed in the order of the rows, however listed, for the same bytes; four at a time, which saves passes."""
    used = np.flatnonzero((rows != NOBODY) & (weights != 0.0))
    used = used[np.argsort(rows[used], kind="mergesort")]
    together = len(used) - len(used) % 4
    for s in range(0, together, 4):
        j, h, m, p = used[s], used[s + 1], used[s + 2], used[s + 3]
        a, b, c, d = weights[j], weights[h], weights[m], weights[p]
        first, second, third, fourth = values[rows[j]], values[rows[h]], values[rows[m]], values[rows[p]]
        for i in range(len(combined)):
            combined[i] = combined[i] + a * first[i] + b * second[i] + c * third[i] + d * fourth[i]
    for s in range(together, len(used)):
        a, first = weights[used[s]], values[rows[used[s]]]
        for i in range(len(combined)):
            combined[i] += a * first[i]
