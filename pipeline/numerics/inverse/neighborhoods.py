"""Which embedded points a query is interpolated between, and how far apart points are [M eq. 11, sec. 4].

Rows of data whose embedded points are in the same place: they stand for one node, with their mean.

What one neighborhood's system takes in memory, made once and used for neighborhood after neighborhood.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.inverse.kernels import Terms
from pipeline.numerics.inverse.nodes import NOBODY, Nodes, room_for_nodes
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Rows in the same place whose mean is taken: the first, if there are more. Rows that repeat by the million are alike.
MOST_ROWS_OF_NODE = 64


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


class Room(NamedTuple):
    """What one neighborhood takes, up to k nodes with up to r polynomials of c terms; see the table in inverse_systems.

    triangle (r, r) and sources (r,) say how polynomials were made of monomials; turned (d, k) are the nodes'
    coordinates along the directions (d, d) in which they spread. whole (k + r, k + r), its rows (k + r,), right side
    and solution are those of the whole system, where that is solved as it stands: memory that is not touched otherwise.
    The last five are those of one query.
    """

    nodes: Nodes
    directions: FloatArray
    turned: FloatArray
    monomials: FloatArray
    sources: IntArray
    triangle: FloatArray
    basis: FloatArray
    crossed: FloatArray
    images: FloatArray
    matrix: FloatArray
    factor: FloatArray
    whole: FloatArray
    whole_rows: IntArray
    right_side: FloatArray
    solution: FloatArray
    place: FloatArray
    terms: FloatArray
    fixed: FloatArray
    weights: FloatArray
    spare: FloatArray


class Facts(NamedTuple):
    """Of one neighborhood: distinct nodes, polynomials kept, size; the fill distance, and the length that the kernel
    goes by, in units of the size; tau, condition, flags; rounding: what is left in weights of the rounding of a right
    side of size 1; whether the whole system is solved."""

    n_nodes: int
    n_terms: int
    unit: float
    fill_distance: float
    length: float
    tau: float
    condition: float
    flags: int
    rounding: float
    is_whole: bool


def room_for(k: int, d: int, terms: Terms) -> Room:
    c = len(terms.parents)
    r = min(k, c)
    return Room(
        nodes=room_for_nodes(k, d),
        directions=np.empty((d, d)),
        turned=np.empty((d, k)),
        monomials=np.empty((c, k)),
        sources=np.empty(r, dtype=np.int64),
        triangle=np.empty((r, r)),
        basis=np.empty((r, k)),
        crossed=np.empty((r, r)),
        images=np.empty((r, k)),
        matrix=np.empty((k, k)),
        factor=np.empty((k, k)),
        whole=np.empty((k + r, k + r)),
        whole_rows=np.empty(k + r, dtype=np.int64),
        right_side=np.empty(k + r),
        solution=np.empty(k + r),
        place=np.empty(d),
        terms=np.empty(c),
        fixed=np.empty(r),
        weights=np.empty(k),
        spare=np.empty(k),
    )


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
