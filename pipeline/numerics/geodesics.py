"""Shortest paths from the landmarks, and rows of new points through their neighbors [G eq. 30-31; B eq. 5, sec. 4.3].

A new point uses training points as intermediates only:
delta(new, l) = min over its k neighbors j of ||new - x_j|| + D(l, j).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.graph import checked_graph
from pipeline.numerics.nearby import nearby_order
from pipeline.numerics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.vectors import LANES, prefetch
from pipeline.types import AnyArray, FloatArray, IntArray

# Where the ends of edges are, on average, further apart in number than this share of all nodes, their order is no help.
FAR_APART = 1 / 32
SAMPLED_EDGES = 100_000
# How many nodes ahead memory is asked for.
AHEAD = 8


def shortest_path_rows(graph: csr_array, sources: ArrayLike, n_jobs: int = 1) -> AnyArray:
    """Path lengths (s, n) from each source to every node, infinite where there is no path.

    Lengths are accumulated in float64 and returned in the floating dtype of the weights. Weights of zero are edges.
    `n_jobs` threads search; the answer is the same to the bit.
    """
    csr = checked_graph(graph)
    rows = checks.row_indices("sources", sources, csr.shape[0])
    out = np.empty((len(rows), csr.shape[0]), dtype=csr.dtype if csr.dtype.kind == "f" else np.float64)

    def take(batch: IntArray, lengths: FloatArray, place_of: IntArray) -> None:
        _write_rows(lengths, place_of, batch, out)

    each_search(csr, rows, take, n_jobs)
    return out


def each_search(
    csr: csr_array, sources: IntArray, take: Callable[[IntArray, FloatArray, IntArray], None], n_jobs: int = 1
) -> None:
    """Search from all sources, a few at a time, and hand over what is found: their places in `sources` (b,), the
    lengths (n, b) in double precision, and where in these each node is. `take` is called from several threads."""
    if not len(sources):
        return
    paths, place_of = _in_good_order(csr)
    places = place_of[sources]
    order = nearby_order(paths, places)

    searches: SimpleQueue[PathSearch] = SimpleQueue()
    for _ in range(n_jobs):
        searches.put(PathSearch(paths))

    def search(first: int) -> None:
        batch, free = order[first : first + LANES], searches.get()
        try:
            take(batch, free.lengths(places[batch])[:, : len(batch)], place_of)
        finally:  # another thread may wait for it, and would for ever
            searches.put(free)

    with ThreadPoolExecutor(n_jobs) as pool:
        for _ in pool.map(search, range(0, len(order), LANES)):
            pass


def _in_good_order(csr: csr_array) -> tuple[PathGraph, IntArray]:
    """The graph with its nodes so numbered that neighbors are near in memory, and the new number of each.

    The order is left as it is where it is good already, or there are too many edges for scipy to find one.
    """
    n_nodes = csr.shape[0]
    offsets, weights = csr.indptr.astype(np.int64), csr.data if csr.dtype.kind == "f" else csr.data.astype(np.float64)
    targets: AnyArray = csr.indices.astype(np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64, copy=False)
    if csr.nnz > np.iinfo(np.int32).max or _is_near(offsets, targets):
        return PathGraph(offsets, targets, weights), np.arange(n_nodes)
    node_at = reverse_cuthill_mckee(csr, symmetric_mode=True)
    place_of = np.empty(n_nodes, dtype=np.int64)
    place_of[node_at] = np.arange(n_nodes)
    renumbered = np.zeros_like(offsets), np.empty_like(targets), np.empty_like(weights)
    np.cumsum(np.diff(offsets)[node_at], out=renumbered[0][1:])
    _renumber(offsets, targets, weights, node_at, place_of, *renumbered)
    return PathGraph(*renumbered), place_of


def _is_near(offsets: IntArray, targets: AnyArray) -> bool:
    edges = np.arange(0, len(targets), max(1, len(targets) // SAMPLED_EDGES))
    starts = np.searchsorted(offsets, edges, side="right") - 1
    return not len(edges) or float(np.abs(starts - targets[edges]).mean()) <= FAR_APART * len(offsets)


@compiled
def _write_rows(lengths: AnyArray, place_of: AnyArray, rows: AnyArray, out: AnyArray) -> None:
    for node in range(len(place_of)):
        # Lines of memory as far apart as the orders differ: asked for long before they are read.
        prefetch(lengths, np.uint64(place_of[min(node + AHEAD, len(place_of) - 1)]))
        found = lengths[place_of[node]]
        for lane in range(len(rows)):
            out[rows[lane], node] = found[lane]


@compiled
def _renumber(
    old_offsets: AnyArray,
    old_targets: AnyArray,
    old_weights: AnyArray,
    node_at: AnyArray,
    place_of: AnyArray,
    offsets: AnyArray,
    targets: AnyArray,
    weights: AnyArray,
) -> None:
    for place in range(len(node_at)):
        edge = offsets[place]
        for old in range(old_offsets[node_at[place]], old_offsets[node_at[place] + 1]):
            targets[edge], weights[edge] = place_of[old_targets[old]], old_weights[old]
            edge += 1


def rows_through_neighbors(distances: FloatArray, indices: IntArray, to_landmarks: AnyArray) -> AnyArray:
    """Path lengths (p, m) of new points to the landmarks, given their neighbors (p, k) and those points' (n, m).

    A point at no distance from its nearest neighbor is that neighbor: it gets that one's lengths to the bit.
    """
    if distances.shape != indices.shape or distances.ndim != 2:
        raise InvalidInputError(
            f"distances has shape {distances.shape} and indices {indices.shape}; both must be (n_points, n_neighbors)."
        )
    if indices.size:
        checks.row_indices("indices", indices.ravel(), len(to_landmarks))
    rows = np.empty((len(indices), to_landmarks.shape[1]), dtype=to_landmarks.dtype)
    _through_neighbors(distances, indices, to_landmarks, rows)
    return rows


@compiled
def _through_neighbors(distances: AnyArray, indices: AnyArray, to_landmarks: AnyArray, rows: AnyArray) -> None:
    for i in range(len(indices)):
        nearest = indices[i, 0]
        for landmark in range(rows.shape[1]):
            rows[i, landmark] = distances[i, 0] + to_landmarks[nearest, landmark]
        if distances[i, 0] == 0.0:
            continue
        for j in range(1, indices.shape[1]):
            apart, neighbor = distances[i, j], indices[i, j]
            for landmark in range(rows.shape[1]):
                # The least so far is rounded already, which changes no minimum.
                rows[i, landmark] = min(rows[i, landmark], apart + to_landmarks[neighbor, landmark])
