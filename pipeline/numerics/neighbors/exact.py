"""Exact nearest neighbors whose bytes do not depend on how the queries were batched.

A fast search (k-d tree in few dimensions, float32 matrix products otherwise) only proposes candidates, with a margin
for its rounding; they are ranked by distances summed in float64 in a fixed order, ties by row number.
"""

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors.products import (
    PORTION,
    Lists,
    Portion,
    distance_of_rows,
    insert,
    insert_into_row,
    local_portions,
    n_listed,
    portions,
)
from pipeline.types import AnyArray, FloatArray, IntArray

# Above this dimension a k-d tree visits most of its leaves, and a matrix product is faster.
KD_TREE_MAX_DIMENSION = 10
# Distances that are sorted at once: 8 MB.
SORTED_ENTRIES = 1 << 20
# Points per block of squared distances: 2 KB.
DIRECT_BLOCK = 256
# If more than one in this many points is asked for, all distances are sorted.
MANY_ASKED = 8
# Points in a portion per neighbor asked for, if that makes more than PORTION.
POINTS_PER_NEIGHBOR = 128
# Queries per call of a tree, whose results stay small beside the points.
QUERIES_AT_ONCE = 1 << 14
# Generous bound on the relative rounding of the k-d tree's distances.
TREE_MARGIN = 1e-9


def nearest_neighbors(
    reference: ArrayLike, queries: ArrayLike, n_neighbors: int, n_jobs: int = 1
) -> tuple[FloatArray, IntArray]:
    """Euclidean distances (p, k) and row numbers (p, k) of each query's k nearest reference points, nearest first.
    `n_jobs` is for the tree that serves up to 10 dimensions; above, BLAS uses its own threads."""
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
    # Only the reference: a query may be as near to the origin as it likes.
    checks.require_not_too_small("reference", points)
    return NeighborSearch(points).query(targets, k, n_jobs)


def neighbors_within(points: ArrayLike, n_neighbors: int, n_jobs: int = 1) -> tuple[FloatArray, IntArray]:
    """The k nearest other points of every point: distances (n, k) and row numbers (n, k)."""
    array = checks.real_array("points", points, 2)
    why = f"there are {len(array)} points and a point is not its own neighbor"
    k = checks.integer_in_range("n_neighbors", n_neighbors, 1, len(array) - 1, why)
    distances, indices = nearest_neighbors(array, array, k + 1, n_jobs)
    itself = indices == np.arange(len(array))[:, None]
    # With more than k duplicates in lower rows the point itself is not listed; the last neighbor is dropped instead.
    itself[~itself.any(axis=1), -1] = True
    return distances[~itself].reshape(-1, k), indices[~itself].reshape(-1, k)


class NeighborSearch:
    """A search among fixed reference points, for callers that have checked their arrays and search repeatedly."""

    def __init__(self, points: AnyArray, use_tree: bool | None = None) -> None:
        self.points = points
        wants_tree = points.shape[1] <= KD_TREE_MAX_DIMENSION if use_tree is None else use_tree
        self._tree = LabelledTree(points, np.arange(len(points))) if wants_tree else None
        self._portions: dict[int, list[Portion]] = {}

    def query(self, queries: AnyArray, k: int, n_jobs: int = 1) -> tuple[FloatArray, IntArray]:
        """Distances (p, k) and row numbers (p, k), nearest first, ties by row."""
        distances = np.full((len(queries), k), np.inf)
        indices = np.full((len(queries), k), -1, dtype=np.int64)
        nobody = np.full(len(queries), -1)
        if self._tree is not None:
            self._tree.refine(queries, nobody, distances, indices, n_jobs)
        elif MANY_ASKED * k > len(self.points):
            self._by_sorting(queries, distances, indices)
        else:
            for portion in self._portions_for(k):
                portion.refine(queries, nobody, distances, indices)
        return distances, indices

    def _portions_for(self, k: int) -> list[Portion]:
        """The points in portions, larger ones for long lists, which every nearer portion would fill anew."""
        size = max(PORTION, POINTS_PER_NEIGHBOR * k)
        if size not in self._portions:
            self._portions[size] = list(local_portions(self.points, size))
        return self._portions[size]

    def _by_sorting(self, queries: AnyArray, distances: FloatArray, indices: IntArray) -> None:
        """For many neighbors per query: sorting all distances is faster than inserting each into a list."""
        k, step = distances.shape[1], max(1, SORTED_ENTRIES // len(self.points))
        columns = np.ascontiguousarray(self.points.T, dtype=np.float64)
        for first in range(0, len(queries), step):
            block = slice(first, first + step)
            apart = _all_distances(columns, queries[block])
            indices[block] = np.argsort(apart, axis=1, kind="stable")[:, :k]
            distances[block] = np.take_along_axis(apart, indices[block], axis=1)


@compiled
def _all_distances(columns: AnyArray, queries: AnyArray) -> FloatArray:
    apart = np.empty((len(queries), columns.shape[1]))
    for i in range(len(queries)):
        for first in range(0, columns.shape[1], DIRECT_BLOCK):
            _squared_distances(columns, first, queries[i], apart[i, first : first + DIRECT_BLOCK])
        apart[i] = np.sqrt(apart[i])
    return apart


class LabelledTree:
    """A k-d tree of points (n, D), each known by a label (n,), which breaks ties."""

    def __init__(self, points: AnyArray, labels: IntArray) -> None:
        self._points, self._labels = points, labels
        self._tree = scipy.spatial.KDTree(points, leafsize=16)

    def refine(
        self, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray, n_threads: int = 1
    ) -> None:
        """Insert these points into the k nearest of queries, in place: distances (p, k) and labels (p, k). Lists start
        with distance inf and label -1. A point with a query's own label is skipped."""
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            block = slice(first, first + QUERIES_AT_ONCE)
            self._refine_block(queries[block], own[block], distances[block], found[block], n_threads)

    def _refine_block(
        self, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray, n_threads: int
    ) -> None:
        """Ask the tree for a few more than k; where ties may run beyond those, for more, then for all that tie."""
        k = distances.shape[1]
        rows = np.arange(len(queries))
        for n_candidates in (k + 2, 4 * k + 16):
            n_asked = min(n_candidates, len(self._points))
            before = distances[rows], found[rows]
            answer = self._tree.query(queries[rows], k=np.arange(1, n_asked + 1), workers=n_threads)
            apart, places = map(np.asarray, answer)
            insert_labelled(self._points, self._labels, queries, own, rows, places, (distances, found))
            if n_asked == len(self._points):
                return
            # Complete if a candidate lies clearly beyond the k-th: no other point can tie with that.
            open_rows = apart[:, -1] <= distances[rows, -1] * (1 + TREE_MARGIN)
            rows = rows[open_rows]
            radii = distances[rows, -1] * (1 + TREE_MARGIN)
            distances[rows], found[rows] = (part[open_rows] for part in before)
            if not len(rows):
                return
        for row, radius in zip(rows, radii, strict=True):
            tied = np.array([self._tree.query_ball_point(queries[row], radius)], dtype=np.int64)
            insert_labelled(self._points, self._labels, queries, own, np.array([row]), tied, (distances, found))


def refine_neighbors(
    points: AnyArray, rows: IntArray, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray
) -> None:
    """Insert more points, known by their `rows`, into the k nearest of queries, in place: distances (p, k) and rows (p,
    k). Lists start with distance inf and row -1. A query's own row is skipped. The result is exact, ties by row, in
    whatever batches and order points come."""
    if points.shape[1] <= KD_TREE_MAX_DIMENSION:
        columns = np.ascontiguousarray(points.T, dtype=np.float64)
        _refine_few_columns(columns, rows, queries, own, distances, found)
    else:
        for portion in portions(points, rows):
            portion.refine(queries, own, distances, found)


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
                    insert(distances[i], found[i], math.sqrt(squares[j]), rows[first + j])
                    limit = _squared_limit(distances[i])


@compiled
def _squared_distances(columns: AnyArray, first: int, query: AnyArray, squares: AnyArray) -> float:
    """Fill in the squared distances of a query to the points from `first` on; return the least."""
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
    """No square above it has a root that belongs in the list; rounded up because the list holds roots."""
    return float(distances[-1] * distances[-1] * (1 + 1e-12))


@compiled
def insert_labelled(
    points: AnyArray, labels: AnyArray, queries: AnyArray, own: AnyArray, rows: AnyArray, places: AnyArray, lists: Lists
) -> None:
    """Insert candidates, given by their places (r, c) among the points, into the lists of these rows of the queries."""
    distances, found = lists
    for j in range(len(rows)):
        i = rows[j]
        n_found = n_listed(found, i)
        for c in range(places.shape[1]):
            place = places[j, c]
            if labels[place] != own[i]:
                apart = distance_of_rows(points, place, queries, i)
                n_found = insert_into_row(distances, found, i, n_found, apart, labels[place])
