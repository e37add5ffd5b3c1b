"""Exact neighbors in few dimensions: k-d trees over portions of the points, and boxes that prove where not to look.

Like `refine_neighbors`, portions bring their points into lists of the nearest so far, in any order with the same end. A
box around each cell's points says which cells may hold a point that belongs into a list: the others are never read.
"""

import numpy as np
from scipy.spatial import KDTree

from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors import TREE_MARGIN, insert_labelled
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Up to so many dimensions trees and boxes leave out nearly all points; above, a search through cells is faster.
FEW_DIMENSIONS = 3
# Queries answered at once: what a tree returns stays small beside the points.
QUERIES_AT_ONCE = 1 << 14


class LabelledTree:
    """Points (n, D) to be searched, each known by a label (n,); ties are broken by it."""

    def __init__(self, points: AnyArray, labels: IntArray) -> None:
        self._points, self._labels = points, labels
        self._tree = KDTree(points, leafsize=16)

    def refine(self, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray) -> None:
        """Bring these points into the k nearest of some queries, in place: distances (p, k) and labels (p, k).

        Lists start with distance inf and label -1. A point with a query's own label is left out.
        """
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            block = slice(first, first + QUERIES_AT_ONCE)
            self._refine_block(queries[block], own[block], distances[block], found[block])

    def _refine_block(self, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray) -> None:
        """Ask the tree for a few more than k; where ties may run beyond those, for more, then for all that tie."""
        k = distances.shape[1]
        rows = np.arange(len(queries))
        for n_candidates in (k + 2, 4 * k + 16):
            n_asked = min(n_candidates, len(self._points))
            before = distances[rows], found[rows]
            apart, places = map(np.asarray, self._tree.query(queries[rows], k=np.arange(1, n_asked + 1)))
            self._insert(queries, own, rows, places, distances, found)
            if n_asked == len(self._points):
                return
            # Complete once a candidate lies clearly beyond the k-th: no point left out can tie with it.
            open_rows = apart[:, -1] <= distances[rows, -1] * (1 + TREE_MARGIN)
            rows = rows[open_rows]
            radii = distances[rows, -1] * (1 + TREE_MARGIN)
            distances[rows], found[rows] = (part[open_rows] for part in before)
            if not len(rows):
                return
        for row, radius in zip(rows, radii, strict=True):
            tied = np.array([self._tree.query_ball_point(queries[row], radius)], dtype=np.int64)
            self._insert(queries, own, np.array([row]), tied, distances, found)

    def _insert(
        self, queries: AnyArray, own: IntArray, rows: IntArray, places: AnyArray, distances: AnyArray, found: AnyArray
    ) -> None:
        insert_labelled(self._points, self._labels, queries, own, rows, places, distances, found)


def cell_boxes(points: AnyArray, sizes: IntArray) -> FloatArray:
    """The least box (c, 2, D) around each of consecutive runs of points; one of no points is inside out."""
    boxes = np.empty((len(sizes), 2, points.shape[1]))
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf
    _grow_boxes(points, sizes, boxes)
    return boxes


def box_gaps(homes: FloatArray, limits: FloatArray, boxes: FloatArray) -> FloatArray:
    """How far each box (c, 2, D) is from the nearest of the home boxes whose limit reaches it; inf if none does."""
    gaps = np.full(len(boxes), np.inf)
    _find_gaps(homes, limits, boxes, gaps)
    return gaps


def reaching(points: AnyArray, limits: FloatArray, sizes: IntArray, homes: FloatArray, boxes: FloatArray) -> BoolArray:
    """Whether each point has one of the boxes within its limit; points come in runs of `sizes`, each with its box."""
    marked = np.zeros(len(points), dtype=np.bool_)
    _mark_reaching(points, limits, sizes, homes, boxes, marked)
    return marked


def reached_boxes(
    points: AnyArray, limits: FloatArray, sizes: IntArray, boxes: FloatArray, known: IntArray
) -> tuple[IntArray, IntArray]:
    """Each point and box within its limit, as places (r,) of points and of boxes (r,), but for the boxes `known` (p, c)
    to it already; points come in runs of `sizes` that are near each other."""
    homes = cell_boxes(points, sizes)
    counts = np.zeros(len(points), dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    _list_reached(points, limits, sizes, homes, boxes, known, counts, nothing)
    reached = np.empty(int(counts.sum()), dtype=np.int64)
    _list_reached(points, limits, sizes, homes, boxes, known, counts, reached)
    return np.repeat(np.arange(len(points)), counts), reached


@compiled
def _grow_boxes(points: AnyArray, sizes: AnyArray, boxes: AnyArray) -> None:
    row = 0
    for cell in range(len(sizes)):
        for _ in range(sizes[cell]):
            for axis in range(points.shape[1]):
                value = np.float64(points[row, axis])
                boxes[cell, 0, axis] = min(boxes[cell, 0, axis], value)
                boxes[cell, 1, axis] = max(boxes[cell, 1, axis], value)
            row += 1


@compiled
def _find_gaps(homes: AnyArray, limits: AnyArray, boxes: AnyArray, gaps: AnyArray) -> None:
    for home in range(len(homes)):
        squared_limit = _squared_reach(limits[home])
        for cell in range(len(boxes)):
            gap = _box_gap(homes[home, 0], homes[home, 1], boxes[cell])
            if gap <= squared_limit:
                gaps[cell] = min(gaps[cell], gap)


@compiled
def _mark_reaching(
    points: AnyArray, limits: AnyArray, sizes: AnyArray, homes: AnyArray, boxes: AnyArray, marked: AnyArray
) -> None:
    near = np.empty(len(boxes), dtype=np.int64)
    first = 0
    for home in range(len(sizes)):
        last = first + sizes[home]
        if last > first:
            n_near = _near_boxes(homes[home], limits[first:last].max(), boxes, near)
            for row in range(first, last):
                squared_limit = _squared_reach(limits[row])
                for box in near[:n_near]:
                    if _box_gap(points[row], points[row], boxes[box]) <= squared_limit:
                        marked[row] = True
                        break
        first = last


@compiled
def _list_reached(
    points: AnyArray,
    limits: AnyArray,
    sizes: AnyArray,
    homes: AnyArray,
    boxes: AnyArray,
    known: AnyArray,
    counts: AnyArray,
    reached: AnyArray,
) -> None:
    """Count the boxes that each point reaches; list them too, one point's after the other's, if there is room."""
    near = np.empty(len(boxes), dtype=np.int64)
    first, n_listed = 0, 0
    for home in range(len(sizes)):
        last = first + sizes[home]
        n_near = _near_boxes(homes[home], limits[first:last].max(), boxes, near) if last > first else 0
        for row in range(first, last):
            squared_limit, n_before = _squared_reach(limits[row]), n_listed
            for box in near[:n_near]:
                if _box_gap(points[row], points[row], boxes[box]) <= squared_limit and not (known[row] == box).any():
                    if len(reached):
                        reached[n_listed] = box
                    n_listed += 1
            counts[row] = n_listed - n_before
        first = last


@compiled
def _near_boxes(home: AnyArray, limit: float, boxes: AnyArray, near: AnyArray) -> int:
    """List the boxes within a limit of a home box; how many there are."""
    n_near, squared_limit = 0, _squared_reach(limit)
    for box in range(len(boxes)):
        if _box_gap(home[0], home[1], boxes[box]) <= squared_limit:
            near[n_near] = box
            n_near += 1
    return n_near


@compiled
def _squared_reach(limit: float) -> float:
    """Rounded up: what is at the limit itself may tie."""
    return limit * limit * (1 + TREE_MARGIN)


@compiled
def _box_gap(low: AnyArray, high: AnyArray, box: AnyArray) -> float:
    """The squared distance between two boxes; of a point, both ends are itself."""
    total = 0.0
    for axis in range(len(low)):
        gap = max(box[0, axis] - high[axis], low[axis] - box[1, axis])
        if gap > 0:
            total += gap * gap
    return total
