"""The inverse map: from coordinates in an embedding back to data, by local interpolation [M eq. 5-8, 14, 17].

Around each query the k nearest embedded points are nodes, and the rows of data that belong to them are interpolated by
radial functions with a polynomial. The value is a combination of those k rows whose weights depend on coordinates
alone: `stencils` finds the weights, with one factorization for all queries of the same nodes and one solution a query,
O(k^3 / 3), and `Stencils.combine` the rows, O(k D), of data that may stand anywhere and be of any type.

| symbol     | variable      | shape  |                                                              |
|------------|---------------|--------|--------------------------------------------------------------|
| y^(i)      | points        | (n, d) | the embedding                                                |
| x^(i)      | values        | (n, D) | the data                                                     |
| N_y        | neighborhoods | (q, k) | rows of points; -1 for none                                  |
| w(y)       | weights       | (q, k) | of [M eq. 8]: k(y, .)' K^-1; see inverse_systems             |
| h_local    | fill_distance | (q,)   | mean distance of a node to the nearest other [M eq. 11]      |

What a query gets depends neither on others nor on the order in which its neighborhood lists the nodes, to the byte.
Flags say what was not as it should be (they add up):

| flag            |                                                                                             |
|-----------------|---------------------------------------------------------------------------------------------|
| MERGED          | nodes coincide; they stand for one, with the mean of their rows                             |
| NOT_UNISOLVENT  | nodes do not determine the polynomial: fewer than d + 1, or in a plane; parts were left out |
| ILL_CONDITIONED | weights have few right digits: the system's condition is above 1e12, or the query is so far |
|                 | from all nodes that rounding is above 1e-4 of the weights or of the rows                    |
| REGULARIZED     | the system is singular to rounding; it was made solvable, and rows are smoothed somewhat    |
| DROPPED         | nodes with coordinates or rows that are not finite were left out                            |
| UNDEFINED       | the query is not finite, or no node is left; values are NaN                                 |
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.inverse.neighborhood import NOBODY, Kernel, Radial, Room, Terms, room_for
from pipeline.numerics.inverse.systems import (
    DROPPED,
    ILL_CONDITIONED,
    MERGED,
    NOT_UNISOLVENT,
    REGULARIZED,
    UNDEFINED,
    prepare,
    weigh,
)
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

__all__ = [
    "CUBIC",
    "DROPPED",
    "ILL_CONDITIONED",
    "MERGED",
    "NOBODY",
    "NOT_UNISOLVENT",
    "N_NEIGHBORS",
    "REGULARIZED",
    "UNDEFINED",
    "Inverted",
    "Kernel",
    "Stencils",
    "invert",
    "nearest_nodes",
    "stencils",
]

CUBIC = Kernel()
N_NEIGHBORS = 200
# Below that of other searches: so many neighbors lie in most of a tree's leaves already in fewer dimensions.
TREE_MAX_DIMENSION = 6
# Rows in the same place whose mean is taken: the first, if there are more. Rows that repeat by the million are alike.
MOST_ROWS_OF_NODE = 64


@dataclass(frozen=True, eq=False)
class Stencils:
    """What to make queries' values of: weights (q, k) of the rows that neighborhoods (q, k) name.

    condition (q,) of each system, in the 1-norm; amplification (q,): the sum of absolute weights, by which errors of
    rows can grow, a few where nodes surround the query and agree; distance (q,) to the nearest node, and fill_distance
    (q,) of the neighborhood; flags (q,).
    """

    neighborhoods: IntArray
    weights: FloatArray
    condition: FloatArray
    amplification: FloatArray
    distance: FloatArray
    fill_distance: FloatArray
    flags: AnyArray

    @property
    def remoteness(self) -> FloatArray:
        """Distances to the nearest node in fill distances: about 1 or less among the nodes, more away from all.

        Infinite beside a single node, 0 on it.
        """
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
        combined = np.empty((len(self.weights), values.shape[1]))
        _combine_all(self.neighborhoods, self.weights, values, combined)
        return combined


@dataclass(frozen=True, eq=False)
class Inverted:
    """values (q, D) at the queries, NaN where undefined, and what they were made by."""

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
    """Data at queries (q, d), from points (n, d) of an embedding and their rows of data (n, D).

    neighborhoods (q, k) are those of `nearest_nodes` unless given. A kernel's scale is in units of `fill_distance`,
    unless given that of each neighborhood. Rows that are not finite are left out.
    """
    rows = checks.real_array("values", values, 2)
    nodes = checks.real_array("points", points, 2)
    if len(rows) != len(nodes):
        raise InvalidInputError(f"values has {len(rows)} rows and points {len(nodes)}; give one for each.")
    near = nearest_nodes(nodes, queries) if neighborhoods is None else neighborhoods
    found = stencils(queries, nodes, near, kernel, fill_distance, finite_rows(rows))
    return Inverted(found.combine(rows), found)


def stencils(
    queries: ArrayLike,
    points: ArrayLike,
    neighborhoods: ArrayLike,
    kernel: Kernel = CUBIC,
    fill_distance: float | None = None,
    usable: BoolArray | None = None,
) -> Stencils:
    """What to make values at queries (q, d) of, by points (n, d) and neighborhoods (q, k) of them; see `invert`.

    usable (n,) says of which points there is a row; without it, of all.
    """
    places, nodes = checked_coordinates(queries, points)
    near = _checked_neighborhoods(neighborhoods, len(places), len(nodes))
    with_row = np.ones(len(nodes), dtype=np.bool_) if usable is None else usable
    if with_row.shape != (len(nodes),):
        raise InvalidInputError(f"usable has shape {with_row.shape}; it must be ({len(nodes)},), one for each point.")
    left = np.where((usable_points(nodes) & with_row)[near], near, NOBODY)
    found = _weighed(places, nodes, left, kernel, checked_length(fill_distance))
    dropped = (left != near).any(axis=1)
    return replace(found, flags=found.flags | np.where(dropped, DROPPED, 0).astype(np.uint8))


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


def ranks_within(labels: IntArray) -> IntArray:
    """Of labels that do not fall, how many of the same come before each."""
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    return np.asarray(np.arange(len(labels)) - np.repeat(starts, np.diff(starts, append=len(labels))))


def mean_rows(values: AnyArray, places: IntArray) -> tuple[FloatArray, BoolArray]:
    """The mean (m, D) of the rows (r, D) in each place, and whether (m,) it is one of rows that differ.

    places (r,) are those of the rows, from 0 to m - 1, none without a row, and do not fall.
    """
    ranks = ranks_within(places)
    firsts = np.flatnonzero(ranks == 0)
    means, differ = values[firsts].astype(np.float64), np.zeros(len(firsts), dtype=np.bool_)
    others = np.flatnonzero((ranks > 0) & (ranks < MOST_ROWS_OF_NODE))
    shared, more = places[others], values[others]
    np.logical_or.at(differ, shared, (more != values[firsts[shared]]).any(axis=1))
    # One row after the other: in any other order sums have other bytes.
    np.add.at(means, shared, more)
    several = np.unique(shared)
    means[several] /= np.minimum(np.bincount(places), MOST_ROWS_OF_NODE)[several, None]
    # The mean of rows alike is the row, to the last bit.
    alike = several[~differ[several]]
    means[alike] = values[firsts[alike]]
    return means, differ


def checked_length(fill_distance: float | None) -> float:
    """As compiled loops take it: 0 for that of each neighborhood."""
    if fill_distance is None:
        return 0.0
    return checks.number_in_range("fill_distance", fill_distance, checks.SMALLEST_SIZE, checks.LARGEST_SIZE)


def finite_rows(values: AnyArray) -> BoolArray:
    finite = np.empty(len(values), dtype=np.bool_)
    _find_finite(values, finite)
    return finite


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
    q, k = near.shape
    # In one order, so that the same nodes are the same system, to the byte.
    listed = np.argsort(near, axis=1, kind="stable")
    near_sorted = np.take_along_axis(near, listed, axis=1)
    alike = np.argsort(near_sorted.view(np.dtype((np.void, 8 * k))).ravel(), kind="stable")
    weights, figures, flags = np.empty((q, k)), np.empty((4, q)), np.empty(q, dtype=np.uint8)
    terms = kernel.terms(nodes.shape[1])
    room = room_for(k, nodes.shape[1], terms)
    _weigh_all(alike, places, nodes, near_sorted, kernel.radial(), terms, length, room, weights, figures, flags)
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
    weights: AnyArray,
    figures: AnyArray,
    flags: AnyArray,
) -> None:
    """In an order in which queries of the same nodes follow each other. Figures (4, q) are those of `Stencils`."""
    if len(order) == 0:
        return
    previous = order[0]
    facts = prepare(points, neighborhoods[previous], radial, terms, length, room)
    for i in order:
        if _differ(neighborhoods[i], neighborhoods[previous]):
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


@compiled
def _differ(a: AnyArray, b: AnyArray) -> bool:
    n_other = 0
    for j in range(len(a)):
        n_other += a[j] != b[j]
    return n_other > 0


@compiled
def _combine_all(neighborhoods: AnyArray, weights: AnyArray, values: AnyArray, combined: AnyArray) -> None:
    for i in range(len(combined)):
        # Undefined weights are all NaN, also where there is no row that they could weigh.
        combined[i, :] = 0.0 * weights[i, 0]
        _combine(neighborhoods[i], weights[i], values, combined[i])


@compiled
def _combine(rows: AnyArray, weights: AnyArray, values: AnyArray, combined: AnyArray) -> None:
    """In the order of the rows, however they are listed, so that the sum has the same bytes.

    Four rows at a time, which saves passes over the sum; the additions keep their order.
    """
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


@compiled
def _find_finite(values: AnyArray, finite: AnyArray) -> None:
    for i in range(len(values)):
        finite[i] = True
        for value in values[i]:
            if not np.isfinite(value):
                finite[i] = False
                break
