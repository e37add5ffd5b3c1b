"""Shortest paths from the landmarks, and rows of new points through their neighbors [G eq. 30-31; B eq. 5, sec. 4.3].

A new point uses training points as intermediates only:
delta(new, l) = min over its k neighbors j of ||new - x_j|| + D(l, j).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.graph import checked_graph
from pipeline.types import AnyArray, FloatArray, IntArray

# Entries of one batch of float64 rows: 128 MB at most beside the result.
BATCH_ENTRIES = 16_000_000


def shortest_path_rows(graph: csr_array, sources: ArrayLike) -> AnyArray:
    """Path lengths (s, n) from each source to every node, infinite where there is no path.

    Lengths are accumulated in float64 and returned in the floating dtype of the weights. Weights of zero are edges.
    """
    csr = checked_graph(graph)
    n_nodes = csr.shape[0]
    rows = checks.row_indices("sources", sources, n_nodes)
    if csr.nnz > np.iinfo(np.int32).max:
        raise InvalidInputError(f"graph has {csr.nnz} edges; at most {np.iinfo(np.int32).max} are supported.")
    out = np.empty((len(rows), n_nodes), dtype=csr.dtype if csr.dtype.kind == "f" else np.float64)
    step = max(1, BATCH_ENTRIES // n_nodes)
    for first in range(0, len(rows), step):
        batch = slice(first, first + step)
        out[batch] = dijkstra(csr, directed=True, indices=rows[batch])
    return out


def rows_through_neighbors(distances: FloatArray, indices: IntArray, to_landmarks: AnyArray) -> AnyArray:
    """Path lengths (p, m) of new points to the landmarks, given their neighbors (p, k) and those points' (n, m)."""
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
        for landmark in range(rows.shape[1]):
            shortest = np.inf
            for j in range(indices.shape[1]):
                shortest = min(shortest, distances[i, j] + to_landmarks[indices[i, j], landmark])
            rows[i, landmark] = shortest
