"""Proximities that are given, looked at before they are used: dissimilarities of all points, or lengths of edges."""

import numpy as np
from scipy.sparse import csr_array

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.geodesics.graph import graph_from_edges
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, lists_of
from pipeline.types import AnyArray, FloatArray, IntArray

ROWS_PER_BLOCK = 512


def symmetric(name: str, values: AnyArray, rows: IntArray, are_lengths: bool) -> FloatArray:
    """Values (m, m) between some rows as they are up to rounding: exactly symmetric, and lengths 0 on the diagonal."""
    require_symmetric(name, values, rows, are_lengths)
    matrix = values.astype(np.float64)
    matrix = (matrix + matrix.T) / 2
    if are_lengths:
        np.fill_diagonal(matrix, 0.0)
    return matrix


def require_square(X: AnyArray | csr_array) -> None:
    if X.shape[0] != X.shape[1]:
        raise InvalidInputError(
            f"X has shape {X.shape}; with metric='precomputed' it must be square, a row and a column for each point."
        )


def require_dissimilarities(X: AnyArray) -> None:
    """Refuse what cannot be the dissimilarities (n, n) between all points, with the largest deviation and where."""
    require_square(X)
    require_nonnegative(X)
    if not X.any():
        raise InvalidInputError("X is 0 everywhere; there is nothing to embed.")
    checks.require_not_too_small("X", X)
    require_zero_diagonal("X", X, np.arange(len(X)))
    require_symmetric("X", X, np.arange(len(X)), are_lengths=True)


def require_nonnegative(X: AnyArray) -> None:
    if X.min() < 0:
        i, j = (int(place) for place in np.unravel_index(int(X.argmin()), X.shape))
        # In the words that scikit-learn has for it.
        raise InvalidInputError(
            f"Negative values in data: X has {np.count_nonzero(X < 0)}, the lowest {X[i, j]:g} at ({i}, {j}); "
            "dissimilarities must be at least 0."
        )


def require_zero_diagonal(name: str, values: AnyArray, rows: IntArray) -> None:
    worst = int(np.argmax(values.diagonal()))
    if float(values[worst, worst]) ** 2 > checks.ROUNDING_FLOOR * float(values.max()) ** 2:
        raise InvalidInputError(
            f"{name} has a nonzero diagonal, {values[worst, worst]:g} at ({rows[worst]}, {rows[worst]}); the "
            "dissimilarity of a point to itself must be 0: check whether these are similarities."
        )


def require_symmetric(name: str, values: AnyArray, rows: IntArray, are_lengths: bool) -> None:
    """Refuse values (m, m) between some rows that differ across the diagonal by more than rounding, of their squares if
    they are lengths."""
    worst, i, j = 0.0, 0, 0
    largest = float(np.abs(values).max()) ** (2 if are_lengths else 1)
    for first in range(0, len(values), ROWS_PER_BLOCK):
        block = values[first : first + ROWS_PER_BLOCK].astype(np.float64)
        across = values[:, first : first + ROWS_PER_BLOCK].T.astype(np.float64)
        apart = _beyond_rounding(block, across, largest, are_lengths)
        row, column = np.unravel_index(int(apart.argmax()), apart.shape)
        if apart[row, column] > worst:
            worst, i, j = float(apart[row, column]), first + int(row), int(column)
    if worst:
        raise InvalidInputError(
            f"{name} is not symmetric: {values[i, j]:g} at ({rows[i]}, {rows[j]}) against {values[j, i]:g} at "
            f"({rows[j]}, {rows[i]}), the largest deviation ({worst:g}); average it with its transpose if that is what "
            "you mean."
        )


def _beyond_rounding(block: FloatArray, across: FloatArray, largest: float, are_lengths: bool) -> FloatArray:
    """How far values are apart; 0 where that is rounding."""
    a, b = (block**2, across**2) if are_lengths else (block, across)
    allowed = checks.SYMMETRY_TOLERANCE * np.maximum(np.abs(a), np.abs(b)) + checks.ROUNDING_FLOOR * largest
    return np.where(np.abs(a - b) > allowed, np.abs(block - across), 0.0)


def require_edge_lengths(X: csr_array) -> None:
    """Refuse edges (p, n) whose lengths are none."""
    # Written so that NaN fails it too.
    bad = np.flatnonzero(~((X.data >= 0) & (X.data <= checks.LARGEST_SIZE)))
    if len(bad):
        row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
        raise InvalidInputError(
            f"X has {len(bad)} weights that are negative, NaN, infinite or above {checks.LARGEST_SIZE:g}, the first "
            f"{X.data[bad[0]]:g} from row {row} to node {X.indices[bad[0]]}; lengths must be finite and at least 0: "
            "leave out what is no edge."
        )


def undirected_graph(X: csr_array) -> csr_array:
    """A symmetric graph (n, n) in double precision of edges that are listed once, or both ways with the same length.

    Loops are dropped. A zero that is stored is an edge of no length.
    """
    require_square(X)
    edges = X.tocoo()
    starts, ends = (part.astype(np.int64) for part in edges.coords)
    proper = starts != ends
    starts, ends, weights = starts[proper], ends[proper], edges.data[proper].astype(np.float64)
    graph = graph_from_edges(int(X.shape[0]), starts, ends, weights)
    _require_one_length(graph, starts, ends, weights)
    return graph


def edges_of_new_points(X: csr_array, place_of: IntArray, exponent: int) -> RadiusLists:
    """Of new points the edges (p, n) to nodes that have a place, nearest first, in units of 2^exponent."""
    edges = X.tocoo()
    rows, nodes = (part.astype(np.int64) for part in edges.coords)
    kept = place_of[nodes] >= 0
    lengths = np.ldexp(edges.data[kept].astype(np.float64), -exponent)
    return lists_of(int(X.shape[0]), Pairs(rows[kept], place_of[nodes[kept]], lengths))


def _require_one_length(graph: csr_array, starts: IntArray, ends: IntArray, weights: FloatArray) -> None:
    """Refuse edges that are longer than those kept of the same ends, beyond rounding."""
    if not len(weights):
        return
    n = int(graph.shape[0])
    pairs = np.repeat(np.arange(n), np.diff(graph.indptr)) * n + graph.indices
    kept = graph.data[np.searchsorted(pairs, starts * n + ends)]
    longer = weights - kept
    longer[longer <= checks.SYMMETRY_TOLERANCE * weights + checks.ROUNDING_FLOOR * weights.max()] = 0.0
    worst = int(np.argmax(longer))
    if longer[worst]:
        start, end = starts[worst], ends[worst]
        raise InvalidInputError(
            f"X is not symmetric: {weights[worst]:g} from node {start} to {end} against {kept[worst]:g} from {end} to "
            f"{start}, the largest difference ({longer[worst]:g}) of {np.count_nonzero(longer)} edges; an undirected "
            "graph is needed: list each edge once, or with the same length both ways."
        )
