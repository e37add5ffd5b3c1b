"""Coarse cells: k-means centers of a sample, numbered so that cells near each other in space have near numbers."""

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray, IntArray

ITERATIONS = 12
# Points of the sample per cell: what k-means needs to place a center, and no more.
SAMPLE_PER_CELL = 64
SAMPLE_BYTES = 1 << 28
ROWS_PER_CELL = 1024
MAX_CELLS = 16_384
# Dimensions that a curve can wind through with some bits for each.
MOST_CURVED = 10


def cell_count(n_points: int) -> int:
    """About one cell for a thousand points."""
    return max(1, min(MAX_CELLS, n_points // ROWS_PER_CELL))


def sample_size(n_points: int, n_columns: int) -> int:
    """How many points to place the cells by: 64 a cell, fewer where those would take more than 256 MB."""
    n_cells = cell_count(n_points)
    affordable = max(2 * n_cells, SAMPLE_BYTES // (4 * n_columns))
    return min(n_points, SAMPLE_PER_CELL * n_cells, affordable)


def cell_centers(sample: AnyArray, n_cells: int, seed: int) -> FloatArray:
    """Centers (c, D) with c <= n_cells, in the order of `locality_order`. The same bytes on any number of threads."""
    offset = sample.mean(axis=0, dtype=np.float64)
    points = np.empty(sample.shape, dtype=np.float32)
    np.subtract(sample, offset, out=points, casting="same_kind")
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        with threadpool_limits(1):
            kmeans = faiss.Kmeans(sample.shape[1], n_cells, niter=ITERATIONS, seed=seed, verbose=False)
            kmeans.cp.min_points_per_centroid = 1
            kmeans.cp.max_points_per_centroid = len(points)
            kmeans.train(points)
    finally:
        faiss.omp_set_num_threads(threads)
    # Centers that coincide would leave all but the first empty.
    centers = np.unique(np.asarray(kmeans.centroids, dtype=np.float64), axis=0) + offset
    return np.asarray(centers[locality_order(centers)])


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
    """For each point (n, D) a place along a curve that winds through the box of its cell, near ones near each other.

    It depends on the points of its own cell alone. In many dimensions there is no such curve, and all places are 0.
    """
    places = np.zeros(len(points), dtype=np.int64)
    if points.shape[1] <= MOST_CURVED:
        _interleave(points, cells, n_cells, min(16, 60 // points.shape[1]), places)
    return places


@compiled
def _interleave(points: AnyArray, cells: AnyArray, n_cells: int, n_bits: int, places: AnyArray) -> None:
    """Morton's order: the bits of all coordinates, measured in the box of the cell, the highest first."""
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
