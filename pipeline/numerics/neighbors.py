"""Exact nearest neighbors whose bytes do not depend on how the queries were batched.

A fast search (k-d tree in low dimension, blocked matrix products otherwise) only proposes candidates, with a margin for
its rounding; the answer is ranked by distances summed in float64 in a fixed order, ties by row number.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import KDTree

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray, IntArray

# Above this dimension a k-d tree visits most of its leaves, and a matrix product is faster.
KD_TREE_MAX_DIMENSION = 10
# Entries of one block of approximate squared distances: 32 MB.
BLOCK_ENTRIES = 4_000_000
# The same where few points are looked at again and again: 4 MB, which stay in the cache.
REFINED_ENTRIES = 1 << 19
# Points whose squared distances are held at once in few columns: 2 KB.
DIRECT_BLOCK = 256
# Relative rounding of the k-d tree's own distances, with room to spare.
TREE_MARGIN = 1e-9


def nearest_neighbors(
    reference: ArrayLike, queries: ArrayLike, n_neighbors: int, n_jobs: int = 1
) -> tuple[FloatArray, IntArray]:
    """Euclidean distances (p, k) and row numbers (p, k) of each query's k nearest reference points, nearest first.

    `n_jobs` threads search the tree that serves up to 10 dimensions; above, BLAS has threads of its own.
    """
    points = checks.real_array("reference", reference, 2)
    targets = checks.real_array("queries", queries, 2)
    if targets.shape[1] != points.shape[1]:
        raise InvalidInputError(
            f"queries has {targets.shape[1]} columns and reference {points.shape[1]}; they must be the same features."
        )
    why = f"reference has {len(points)} points"
    k = checks.integer_in_range("n_neighbors", n_neighbors, 1, len(points), why)
    for name, array in (("reference", points), ("queries", targets)):
        checks.require_finite(name, array)
        checks.require_not_too_large(name, array)
    # Only of the reference: a query beside the origin is as good as any, alone or in company.
    checks.require_not_too_small("reference", points)
    return NeighborSearch(points).query(targets, k, n_jobs)


def neighbors_within(points: ArrayLike, n_neighbors: int, n_jobs: int = 1) -> tuple[FloatArray, IntArray]:
    """The k nearest other points of every point, itself left out: distances (n, k) and row numbers (n, k)."""
    array = checks.real_array("points", points, 2)
    why = f"there are {len(array)} points and a point is not its own neighbor"
    k = checks.integer_in_range("n_neighbors", n_neighbors, 1, len(array) - 1, why)
    distances, indices = nearest_neighbors(array, array, k + 1, n_jobs)
    itself = indices == np.arange(len(array))[:, None]
    # Where more than k duplicates stand in lower rows the point itself is not listed; then the last one goes.
    itself[~itself.any(axis=1), -1] = True
    return distances[~itself].reshape(-1, k), indices[~itself].reshape(-1, k)


class NeighborSearch:
    """A search among fixed reference points, for callers that have checked their arrays and ask more than once."""

    def __init__(self, points: AnyArray, use_tree: bool | None = None) -> None:
        self.points = points
        wants_tree = points.shape[1] <= KD_TREE_MAX_DIMENSION if use_tree is None else use_tree
        self._tree = KDTree(points) if wants_tree else None
        if self._tree is None:
            self._center = points.mean(axis=0, dtype=np.float64)
            self._centered = points - self._center
            self._squares = np.einsum("ij,ij->i", self._centered, self._centered)

    def query(self, queries: AnyArray, k: int, n_jobs: int = 1) -> tuple[FloatArray, IntArray]:
        """Distances (p, k) and row numbers (p, k), nearest first, ties by row."""
        distances = np.empty((len(queries), k))
        indices = np.empty((len(queries), k), dtype=np.int64)
        if self._tree is not None:
            self._by_tree(self._tree, queries, n_jobs, distances, indices)
        else:
            self._by_products(queries, distances, indices)
        return distances, indices

    def _by_tree(self, tree: KDTree, queries: AnyArray, n_jobs: int, distances: FloatArray, indices: IntArray) -> None:
        """Ask the tree for a few more than k; rows whose ties run beyond those are ranked against all points."""
        k = distances.shape[1]
        open_rows = np.arange(len(queries))
        for n_candidates in (k + 4, 4 * k + 16):
            if len(open_rows) == 0 or n_candidates >= len(self.points):
                break
            answer = tree.query(queries[open_rows], k=n_candidates, workers=n_jobs)
            proposed, candidates = (np.reshape(part, (-1, n_candidates)) for part in answer)
            # Complete once a candidate lies clearly beyond the k-th: no point left out can tie with it.
            complete = proposed[:, -1] > proposed[:, k - 1] * (1 + TREE_MARGIN)
            rows = open_rows[complete]
            _rank_candidates(self.points, queries, rows, candidates[complete].astype(np.int64), distances, indices)
            open_rows = open_rows[~complete]
        _rank_all(self.points, queries, open_rows, distances, indices)

    def _by_products(self, queries: AnyArray, distances: FloatArray, indices: IntArray) -> None:
        step = max(1, BLOCK_ENTRIES // len(self.points))
        for first in range(0, len(queries), step):
            block = slice(first, first + step)
            targets = queries[block] - self._center
            squares = np.einsum("ij,ij->i", targets, targets)
            approximate = targets @ self._centered.T
            approximate *= -2.0
            approximate += self._squares
            margins = _rounding_margin(queries.shape[1], squares, float(self._squares.max()))
            _rank_block(self.points, queries[block], approximate, margins, distances[block], indices[block])


def _rounding_margin(n_features: int, squares: FloatArray, longest: float) -> FloatArray:
    """Bound on |computed - true| of r'r - 2 q'r twice over, by the standard bound on inner products."""
    unit = np.finfo(np.float64).eps
    return np.asarray(4.0 * unit * (n_features + 8) * (np.sqrt(squares) + math.sqrt(longest)) ** 2)


@compiled
def _rank_candidates(
    points: AnyArray, queries: AnyArray, rows: AnyArray, candidates: AnyArray, distances: AnyArray, indices: AnyArray
) -> None:
    for j in range(len(rows)):
        i = rows[j]
        _clear(distances[i], indices[i])
        for row in candidates[j]:
            _insert(distances[i], indices[i], _distance(points[row], queries[i]), row)


@compiled
def _rank_all(points: AnyArray, queries: AnyArray, rows: AnyArray, distances: AnyArray, indices: AnyArray) -> None:
    for i in rows:
        _clear(distances[i], indices[i])
        for row in range(len(points)):
            _insert(distances[i], indices[i], _distance(points[row], queries[i]), row)


@compiled
def _rank_block(
    points: AnyArray,
    queries: AnyArray,
    approximate: AnyArray,
    margins: AnyArray,
    distances: AnyArray,
    indices: AnyArray,
) -> None:
    """The k nearest of every query, exactly, from (b, n) squared distances known up to a margin and a constant."""
    for i in range(len(queries)):
        _clear(distances[i], indices[i])
        for row in range(len(points)):
            if approximate[i, row] < distances[i, -1]:
                _insert(distances[i], indices[i], approximate[i, row], row)
        limit = distances[i, -1] + margins[i]
        _clear(distances[i], indices[i])
        for row in range(len(points)):
            if approximate[i, row] <= limit:
                _insert(distances[i], indices[i], _distance(points[row], queries[i]), row)


def refine_neighbors(
    points: AnyArray, rows: IntArray, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray
) -> None:
    """Bring more points into the k nearest of some queries, in place: distances (p, k) and their rows (p, k).

    Lists start with distance inf and row -1. A query's own row is left out. In whatever portions and order points
    come, the end is the same: the nearest of them all, exactly, ties by row.
    """
    if points.shape[1] <= KD_TREE_MAX_DIMENSION:
        columns = np.ascontiguousarray(points.T, dtype=np.float64)
        _refine_few_columns(columns, rows, queries, own, distances, found)
    else:
        _refine_by_products(points, rows, queries, own, distances, found)


def _refine_by_products(
    points: AnyArray, rows: IntArray, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray
) -> None:
    center = points.mean(axis=0, dtype=np.float64)
    centered, targets = points - center, queries - center
    squares, lengths = (np.einsum("ij,ij->i", part, part) for part in (centered, targets))
    margins = _rounding_margin(points.shape[1], lengths, float(squares.max(initial=0.0)))
    step = max(1, REFINED_ENTRIES // len(points))
    for first in range(0, len(queries), step):
        block = slice(first, first + step)
        approximate = targets[block] @ centered.T
        approximate *= -2.0
        approximate += squares
        slack = lengths[block] - margins[block]
        _refine_block(points, rows, queries[block], own[block], approximate, slack, distances[block], found[block])


@compiled
def _refine_few_columns(
    columns: AnyArray, rows: AnyArray, queries: AnyArray, own: AnyArray, distances: AnyArray, found: AnyArray
) -> None:
    """All squared distances of a query, a block of points at a time and column by column, which vectorizes."""
    buffer = np.empty(DIRECT_BLOCK)
    n_points = columns.shape[1]
    for i in range(len(queries)):
        limit = _squared_limit(distances[i])
        for first in range(0, n_points, DIRECT_BLOCK):
            squares = buffer[: min(DIRECT_BLOCK, n_points - first)]
            least = _squared_distances(columns, first, queries[i], squares)
            if least > limit:
                continue
            for j in range(len(squares)):
                if squares[j] <= limit and rows[first + j] != own[i]:
                    _insert(distances[i], found[i], math.sqrt(squares[j]), rows[first + j])
                    limit = _squared_limit(distances[i])


@compiled
def _squared_distances(columns: AnyArray, first: int, query: AnyArray, squares: AnyArray) -> float:
    """Fill in the squared distances of a query to the points from `first` on; the least of them."""
    squares[:] = 0.0
    for k in range(len(columns)):
        column, value = columns[k, first : first + len(squares)], np.float64(query[k])
        for j in range(len(squares)):
            difference = column[j] - value
            squares[j] += difference * difference
    least = np.inf
    for j in range(len(squares)):
        least = min(least, squares[j])
    return least


@compiled
def _squared_limit(distances: AnyArray) -> float:
    """No square above it has a root that belongs into the list; rounded up, for the list's own are roots."""
    return float(distances[-1] * distances[-1] * (1 + 1e-12))


@compiled
def _refine_block(
    points: AnyArray,
    rows: AnyArray,
    queries: AnyArray,
    own: AnyArray,
    approximate: AnyArray,
    slack: AnyArray,
    distances: AnyArray,
    found: AnyArray,
) -> None:
    """Only points whose approximate distance comes within rounding of the k-th so far are looked at exactly."""
    for i in range(len(queries)):
        limit = distances[i, -1] ** 2 - slack[i]
        for j in range(len(points)):
            if approximate[i, j] <= limit and rows[j] != own[i]:
                _insert(distances[i], found[i], _distance(points[j], queries[i]), rows[j])
                limit = distances[i, -1] ** 2 - slack[i]


@compiled
def insert_labelled(
    points: AnyArray,
    labels: AnyArray,
    queries: AnyArray,
    own: AnyArray,
    rows: AnyArray,
    candidates: AnyArray,
    distances: AnyArray,
    found: AnyArray,
) -> None:
    """Bring candidates (r, c), given by their places among the points, into the lists of some rows of the queries."""
    for j in range(len(rows)):
        i = rows[j]
        for place in candidates[j]:
            if labels[place] != own[i]:
                _insert(distances[i], found[i], _distance(points[place], queries[i]), labels[place])


@compiled
def _clear(distances: AnyArray, indices: AnyArray) -> None:
    distances[:] = np.inf
    indices[:] = -1


@compiled
def _insert(distances: AnyArray, indices: AnyArray, distance: float, row: int) -> None:
    """Put (distance, row) into its place in a list sorted by distance, then row, if it belongs there."""
    place = len(distances) - 1
    if distance > distances[place] or (distance == distances[place] and row > indices[place] >= 0):
        return
    while place > 0 and (
        distance < distances[place - 1] or (distance == distances[place - 1] and row < indices[place - 1])
    ):
        distances[place], indices[place] = distances[place - 1], indices[place - 1]
        place -= 1
    distances[place], indices[place] = distance, row


@compiled
def _distance(a: AnyArray, b: AnyArray) -> float:
    """Rooted before it is ranked: squares that differ may have equal roots, and ties are those of what is returned."""
    total = 0.0
    for k in range(len(a)):
        difference = np.float64(a[k]) - np.float64(b[k])
        total += difference * difference
    return math.sqrt(total)
