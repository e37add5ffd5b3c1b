"""The neighbor graph: exact duplicates collapsed, edges in both directions, zero weights kept."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray, IntArray

# Edges of a node from which on sorting them by comparing neighbors takes too long.
MANY_EDGES = 64


class Collapsed(NamedTuple):
    """Distinct points: first_rows (u,) in rising order, node_of (n,) the node of every row, counts (u,)."""

    first_rows: IntArray
    node_of: IntArray
    counts: IntArray


def collapse_duplicates(points: ArrayLike) -> Collapsed:
    """One node for each group of identical rows, numbered by first appearance.

    Rows are compared by a hash first: only those that share theirs with another are compared in full.
    """
    # Adding 0 turns -0 into +0: equal numbers then have equal bytes.
    array = np.ascontiguousarray(checks.real_array("points", points, 2, allow_empty=True) + 0)
    checks.require_finite("points", array)
    everything = np.arange(len(array))
    leaders = everything.copy()
    suspects = _sharing_their_hash(array)
    leaders[suspects] = suspects[_first_equal(array[suspects])]
    leading = leaders == everything
    node_of = (np.cumsum(leading) - 1)[leaders]
    return Collapsed(np.flatnonzero(leading), node_of, np.bincount(node_of))


def _sharing_their_hash(array: AnyArray) -> IntArray:
    """Rows, rising, whose bytes may be those of another row."""
    hashes = np.empty(len(array), dtype=np.uint64)
    _hash_rows(array.view(np.uint32), hashes)
    order = np.argsort(hashes)
    same = hashes[order[1:]] == hashes[order[:-1]]
    return np.unique(np.concatenate([order[1:][same], order[:-1][same]]))


def _first_equal(array: AnyArray) -> IntArray:
    """For each row the first that has the same bytes."""
    if not len(array):
        return np.empty(0, dtype=np.int64)
    as_bytes = array.view(np.dtype((np.void, array.dtype.itemsize * array.shape[1]))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.ravel()])


@compiled
def _hash_rows(words: AnyArray, hashes: AnyArray) -> None:
    """FNV-1a over 32-bit words, its high bits folded down."""
    for i in range(len(words)):
        value = np.uint64(14695981039346656037)
        for word in words[i]:
            value = (value ^ np.uint64(word)) * np.uint64(1099511628211)
            value ^= value >> np.uint64(29)
        hashes[i] = value


def neighbor_graph(distances: FloatArray, indices: IntArray) -> csr_array:
    """Symmetric CSR (n, n) graph with an edge where either end has the other among its neighbors.

    A zero weight is an edge of no length, not a missing one: the matrix stores it, and nothing here adds or
    compares sparse matrices, which would drop it.
    """
    n, k = indices.shape
    rows = np.repeat(np.arange(n, dtype=np.int64), k)
    return graph_from_edges(n, rows, indices.ravel(), distances.ravel())


def with_edges(graph: csr_array, starts: IntArray, ends: IntArray, weights: FloatArray) -> csr_array:
    """`graph` with more undirected edges, its weights' dtype kept."""
    rows = np.repeat(np.arange(graph.shape[0], dtype=np.int64), np.diff(graph.indptr))
    return graph_from_edges(
        graph.shape[0],
        np.concatenate([rows, starts]),
        np.concatenate([graph.indices, ends]),
        np.concatenate([graph.data, weights.astype(graph.dtype)]),
    )


def graph_from_edges(n_nodes: int, starts: IntArray, ends: IntArray, weights: FloatArray) -> csr_array:
    """Symmetric CSR graph of undirected edges; of an edge given several times the shortest is kept."""
    _check_edges(n_nodes, starts, ends, weights)
    offsets, targets, lengths = symmetric_csr(0, n_nodes, starts, ends, weights)
    return csr_array((lengths, targets, offsets), shape=(n_nodes, n_nodes))


def symmetric_csr(
    first: int, last: int, starts: AnyArray, ends: AnyArray, weights: AnyArray
) -> tuple[IntArray, AnyArray, AnyArray]:
    """Offsets, targets and weights of the nodes from `first` up to `last`, of undirected edges that each touch one.

    Targets rise; of an edge given several times, also from both ends, the shortest is kept.
    """
    offsets = np.zeros(last - first + 1, dtype=np.int64)
    _count_ends(first, last, starts, ends, offsets)
    np.cumsum(offsets, out=offsets)
    targets, lengths = np.empty(offsets[-1], dtype=ends.dtype), np.empty(offsets[-1], dtype=weights.dtype)
    _fill_ends(first, last, starts, ends, weights, offsets[:-1].copy(), targets, lengths)
    n_kept = _sort_ends(offsets, targets, lengths)
    return offsets, targets[:n_kept], lengths[:n_kept]


@compiled
def _count_ends(first: int, last: int, starts: AnyArray, ends: AnyArray, counts: AnyArray) -> None:
    for edge in range(len(starts)):
        if first <= starts[edge] < last:
            counts[starts[edge] - first + 1] += 1
        if first <= ends[edge] < last:
            counts[ends[edge] - first + 1] += 1


@compiled
def _fill_ends(
    first: int,
    last: int,
    starts: AnyArray,
    ends: AnyArray,
    weights: AnyArray,
    places: AnyArray,
    targets: AnyArray,
    lengths: AnyArray,
) -> None:
    for edge in range(len(starts)):
        if first <= starts[edge] < last:
            place = places[starts[edge] - first]
            targets[place], lengths[place] = ends[edge], weights[edge]
            places[starts[edge] - first] += 1
        if first <= ends[edge] < last:
            place = places[ends[edge] - first]
            targets[place], lengths[place] = starts[edge], weights[edge]
            places[ends[edge] - first] += 1


@compiled
def _sort_ends(offsets: AnyArray, targets: AnyArray, lengths: AnyArray) -> int:
    """Sort the edges of every node by target, then length, and keep the first of each target; how many are kept."""
    kept, begin = 0, 0
    for node in range(len(offsets) - 1):
        end = offsets[node + 1]
        if end - begin > MANY_EDGES:
            _sort_many(targets[begin:end], lengths[begin:end])
        else:
            _sort_few(targets[begin:end], lengths[begin:end])
        offsets[node] = kept
        for edge in range(begin, end):
            if edge == begin or targets[edge] != targets[edge - 1]:
                target, length = targets[edge], lengths[edge]
                targets[kept], lengths[kept] = target, length
                kept += 1
        begin = end
    offsets[-1] = kept
    return kept


@compiled
def _sort_few(targets: AnyArray, lengths: AnyArray) -> None:
    for i in range(1, len(targets)):
        target, length, place = targets[i], lengths[i], i
        while place > 0 and (
            targets[place - 1] > target or (targets[place - 1] == target and lengths[place - 1] > length)
        ):
            targets[place], lengths[place] = targets[place - 1], lengths[place - 1]
            place -= 1
        targets[place], lengths[place] = target, length


@compiled
def _sort_many(targets: AnyArray, lengths: AnyArray) -> None:
    by_length = np.argsort(lengths, kind="mergesort")
    order = by_length[np.argsort(targets[by_length], kind="mergesort")]
    targets[:], lengths[:] = targets[order], lengths[order]


def checked_graph(graph: csr_array) -> csr_array:
    """`graph` as CSR with weights that shortest paths are defined for."""
    if not hasattr(graph, "tocsr"):
        raise InvalidInputError(f"graph is a {type(graph).__name__}; it must be a scipy.sparse matrix of edge lengths.")
    csr = csr_array(graph)
    if csr.ndim != 2 or csr.shape[0] != csr.shape[1]:
        raise InvalidInputError(f"graph has shape {csr.shape}; it must be square, a row and a column for each node.")
    if csr.nnz:
        _check_weights("graph", csr.data)
    return csr


def _check_edges(n_nodes: int, starts: IntArray, ends: IntArray, weights: FloatArray) -> None:
    if not len(starts) == len(ends) == len(weights):
        raise InvalidInputError(
            f"starts has {len(starts)}, ends {len(ends)} and weights {len(weights)} entries; they must be as many."
        )
    if len(weights):
        checks.row_indices("starts", starts, n_nodes)
        checks.row_indices("ends", ends, n_nodes)
        _check_weights("weights", weights)


def _check_weights(name: str, weights: AnyArray) -> None:
    if weights.dtype.kind not in "fiu":
        raise InvalidInputError(f"{name} has weights of dtype {weights.dtype}; they must be real numbers.")
    # Written so that NaN fails it too.
    bad = ~(weights >= 0) | np.isinf(weights)
    if bad.any():
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(bad)} weights that are negative, NaN or infinite, the first "
            f"{weights[bad][0]:g}; lengths must be finite and at least 0."
        )
