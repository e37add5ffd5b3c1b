"""Space divided for searching: k-means cells, bounds on which cells matter, k-d trees, and boxes around runs of points.

Cells are numbered so that near cells have near numbers. Every point of a cell is at least as near to its own center c
as to the center h of a query's cell, so the cell lies beyond the plane midway between them. The query q is (|q - c|^2 -
|q - h|^2) / 2|c - h| before that plane: nothing nearer than that is in the cell. In many dimensions, where balls around
cells overlap, such planes still separate them. In few dimensions, portions of points, each in a k-d tree, are inserted
into lists of nearest points as by `refine_neighbors`; boxes around cells' points tell which to skip.
"""

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors.exact import TREE_MARGIN
from pipeline.numerics.neighbors.products import distance_of_rows
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

ITERATIONS = 12
# Sample points per cell: enough for k-means to place a center.
SAMPLE_PER_CELL = 64
SAMPLE_BYTES = 1 << 28
ROWS_PER_CELL = 1024
MAX_CELLS = 16_384
# Dimensions up to which a space-filling curve has enough bits for each.
MOST_CURVED = 10


def cell_count(n_points: int) -> int:
    """About one cell per thousand points."""
    return max(1, min(MAX_CELLS, n_points // ROWS_PER_CELL))


def sample_size(n_points: int, n_columns: int) -> int:
    """Number of points to place the cells by: 64 per cell, fewer if those would take more than 256 MB."""
    n_cells = cell_count(n_points)
    affordable = max(2 * n_cells, SAMPLE_BYTES // (4 * n_columns))
    return min(n_points, SAMPLE_PER_CELL * n_cells, affordable)


def cell_centers(sample: AnyArray, n_cells: int, seed: int) -> FloatArray:
    """Centers (c, D) with c <= n_cells, in the order of `locality_order`; the same bytes on any number of threads."""
    offset = sample.mean(axis=0, dtype=np.float64)
    points = np.empty(sample.shape, dtype=np.float32)
    np.subtract(sample, offset, out=points, casting="same_kind")
    # All but the first of coinciding centers would stay empty.
    centers = np.unique(kmeans(points, n_cells, ITERATIONS, seed=seed), axis=0) + offset
    return np.asarray(centers[locality_order(centers)])


def kmeans(
    points: AnyArray, n_centers: int, n_iterations: int, seed: int | None = None, start: AnyArray | None = None
) -> FloatArray:
    """faiss' k-means centers (c, D) of float32 points (n, D), on one thread: the bytes depend on their number."""
    import faiss  # slow to import

    options = {} if seed is None else {"seed": seed}
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        with threadpool_limits(1):
            search = faiss.Kmeans(points.shape[1], n_centers, niter=n_iterations, verbose=False, **options)
            search.cp.min_points_per_centroid, search.cp.max_points_per_centroid = 1, len(points)
            search.train(points, init_centroids=start)
    finally:
        faiss.omp_set_num_threads(threads)
    return np.asarray(search.centroids, dtype=np.float64)


def locality_order(points: FloatArray) -> IntArray:
    """An order in which halves, quarters, ... are apart in space: split at the median along the widest axis."""
    order = np.arange(len(points))
    pieces = [order]
    while pieces:
        piece = pieces.pop()
        if len(piece) > 2:
            axis = np.argmax(np.ptp(points[piece], axis=0))
            piece[:] = piece[np.argsort(points[piece, axis], kind="stable")]
            middle = len(piece) // 2
            pieces += [piece[:middle], piece[middle:]]
    return order


def curve_places(points: AnyArray, cells: IntArray, n_cells: int) -> IntArray:
    """Each point's place along a curve through the box of its cell; near points have near places. A place depends only
    on the points of its cell. Above MOST_CURVED dimensions all places are 0."""
    places = np.zeros(len(points), dtype=np.int64)
    if points.shape[1] <= MOST_CURVED:
        _interleave(points, cells, n_cells, min(16, 60 // points.shape[1]), places)
    return places


@compiled
def _interleave(points: AnyArray, cells: AnyArray, n_cells: int, n_bits: int, places: AnyArray) -> None:
    """Morton order: the bits of all coordinates, measured in the box of the cell, the highest first."""
    n_axes = points.shape[1]
    low, high = np.full((n_cells, n_axes), np.inf), np.full((n_cells, n_axes), -np.inf)
    for i in range(len(points)):
        for axis in range(n_axes):
            low[cells[i], axis] = min(low[cells[i], axis], points[i, axis])
            high[cells[i], axis] = max(high[cells[i], axis], points[i, axis])
    steps = (1 << n_bits) - 1
    for i in range(len(points)):
        for axis in range(n_axes):
            extent = high[cells[i], axis] - low[cells[i], axis]
            if extent > 0:
                step = int(steps * ((points[i, axis] - low[cells[i], axis]) / extent))
                for bit in range(n_bits):
                    places[i] |= ((step >> bit) & 1) << (bit * n_axes + axis)


ROUNDING = 8.0 * float(np.finfo(np.float64).eps)


@compiled
def within_reach(centers: AnyArray, probes: AnyArray, apart: AnyArray, limits: AnyArray) -> BoolArray:
    """Whether cells (p, c) may hold a point within the limit (p, c) of each query. probes (p, c): numbers of cells, the
    nearest first. apart (p, c): the query's distances to their centers."""
    reached = np.ones(probes.shape, dtype=np.bool_)
    rounding = ROUNDING * (centers.shape[1] + 8)
    for i in range(len(probes)):
        for j in range(1, probes.shape[1]):
            limit = limits[i, j]
            if not np.isfinite(limit):
                continue
            gap = apart[i, j] ** 2 - apart[i, 0] ** 2
            # Distances are rounded, including those by which points were assigned to cells.
            slack = rounding * (limit + apart[i, j]) ** 2
            between = distance_of_rows(centers, probes[i, j], centers, probes[i, 0])
            reached[i, j] = gap <= 2.0 * limit * between + slack
    return reached


# Up to this dimension trees and boxes skip nearly all points; above, a search through cells is faster.
FEW_DIMENSIONS = 3


def reached_boxes(
    points: AnyArray, limits: FloatArray, sizes: IntArray, boxes: FloatArray, known: IntArray
) -> tuple[IntArray, IntArray]:
    """Places (r,) of points and of boxes within the point's limit, except the boxes `known` (p, c) to it; points come
    in runs of `sizes` that are near each other."""
    homes = cell_boxes(points, sizes)
    counts = np.zeros(len(points), dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    _list_reached(points, limits, sizes, homes, boxes, known, counts, nothing)
    reached = np.empty(int(counts.sum()), dtype=np.int64)
    _list_reached(points, limits, sizes, homes, boxes, known, counts, reached)
    return np.repeat(np.arange(len(points)), counts), reached


@compiled
def cell_boxes(points: AnyArray, sizes: AnyArray) -> FloatArray:
    """The bounding box (c, 2, D) of each of consecutive runs of points; that of an empty run is inside out."""
    boxes = np.empty((len(sizes), 2, points.shape[1]))
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf
    row = 0
    for cell in range(len(sizes)):
        for _ in range(sizes[cell]):
            for axis in range(points.shape[1]):
                value = np.float64(points[row, axis])
                boxes[cell, 0, axis] = min(boxes[cell, 0, axis], value)
                boxes[cell, 1, axis] = max(boxes[cell, 1, axis], value)
            row += 1
    return boxes


@compiled
def box_gaps(homes: AnyArray, limits: AnyArray, boxes: AnyArray) -> FloatArray:
    """The squared distance of each box (c, 2, D) from the nearest home box whose limit reaches it; inf if none does."""
    gaps = np.full(len(boxes), np.inf)
    for home in range(len(homes)):
        squared_limit = _squared_reach(limits[home])
        for cell in range(len(boxes)):
            gap = _box_gap(homes[home, 0], homes[home, 1], boxes[cell])
            if gap <= squared_limit:
                gaps[cell] = min(gaps[cell], gap)
    return gaps


@compiled
def reaching(points: AnyArray, limits: AnyArray, sizes: AnyArray, homes: AnyArray, boxes: AnyArray) -> BoolArray:
    """Whether each point has one of the boxes within its limit; points come in runs of `sizes` with boxes `homes`."""
    marked = np.zeros(len(points), dtype=np.bool_)
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
    return marked


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
    """Count the boxes that each point reaches; list them too, point after point, unless `reached` is empty."""
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
    """List the boxes within a limit of a home box; return how many."""
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
    """The squared distance of two boxes; for a point, low and high are equal."""
    total = 0.0
    for axis in range(len(low)):
        gap = max(box[0, axis] - high[axis], low[axis] - box[1, axis])
        if gap > 0:
            total += gap * gap
    return total
