"""The neighbor graph (duplicates collapsed, edges in both directions, zero weights kept) and its components."""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray, IntArray, SparseArray

# Starts, ends and weights of edges.
Edges = tuple[AnyArray, AnyArray, AnyArray]
# Nodes with more edges than this are sorted by merging rather than insertion.
MANY_EDGES = 64


class Collapsed(NamedTuple):
    """Distinct points: first_rows (u,) in rising order, node_of (n,) the node of every row, counts (u,)."""

    first_rows: IntArray
    node_of: IntArray
    counts: IntArray


def collapse_duplicates(points: ArrayLike) -> Collapsed:
    """One node for each group of identical rows, numbered by first appearance."""
    # Adding 0 turns -0 into +0, so that equal numbers have equal bytes.
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
    """Rows, rising, whose hash is that of another row."""
    hashes = _hashes(array.view(np.uint32))
    order = np.argsort(hashes)
    same = hashes[order[1:]] == hashes[order[:-1]]
    return np.unique(np.concatenate([order[1:][same], order[:-1][same]]))


def _first_equal(array: AnyArray) -> IntArray:
    """For each row the first one with the same bytes."""
    if not len(array):
        return np.empty(0, dtype=np.int64)
    as_bytes = array.view(np.dtype((np.void, array.dtype.itemsize * array.shape[1]))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.ravel()])


@compiled
def _hashes(words: AnyArray) -> AnyArray:
    """FNV-1a over the 32-bit words of each row, its high bits folded down."""
    hashes = np.empty(len(words), dtype=np.uint64)
    for i in range(len(words)):
        value = np.uint64(14695981039346656037)
        for word in words[i]:
            value = (value ^ np.uint64(word)) * np.uint64(1099511628211)
            value ^= value >> np.uint64(29)
        hashes[i] = value
    return hashes


def neighbor_graph(distances: FloatArray, indices: IntArray) -> SparseArray:
    """Symmetric CSR (n, n) graph with an edge where either end has the other among its neighbors (n, k). A zero weight
    is an edge of length 0, not a missing one: nothing here adds or compares sparse matrices, which would drop it."""
    n, k = indices.shape
    rows = np.repeat(np.arange(n, dtype=np.int64), k)
    return graph_from_edges(n, rows, indices.ravel(), distances.ravel())


def with_edges(graph: SparseArray, starts: IntArray, ends: IntArray, weights: FloatArray) -> SparseArray:
    """`graph` with further undirected edges; the dtype of its weights is kept."""
    rows = np.repeat(np.arange(graph.shape[0], dtype=np.int64), np.diff(graph.indptr))
    return graph_from_edges(
        graph.shape[0],
        np.concatenate([rows, starts]),
        np.concatenate([graph.indices, ends]),
        np.concatenate([graph.data, weights.astype(graph.dtype)]),
    )


def graph_from_edges(n_nodes: int, starts: IntArray, ends: IntArray, weights: FloatArray) -> SparseArray:
    """Symmetric CSR graph of undirected edges; of repeated edges the shortest is kept."""
    _check_edges(n_nodes, starts, ends, weights)
    offsets, targets, lengths = symmetric_csr(0, n_nodes, starts, ends, weights)
    return scipy.sparse.csr_array((lengths, targets, offsets), shape=(n_nodes, n_nodes))


def undirected_graph(name: str, n_nodes: int, starts: IntArray, ends: IntArray, weights: FloatArray) -> SparseArray:
    """Symmetric CSR graph (n, n) of edges that are listed from one end or from both, without loops. Of an edge listed
    several times the shortest is kept, but from both ends it must be as long, up to rounding."""
    pairs = starts * np.int64(n_nodes) + ends
    order = np.lexsort((weights, pairs))
    order = order[np.diff(pairs[order], prepend=-1) > 0]
    order = order[starts[order] != ends[order]]
    starts, ends, weights = starts[order], ends[order], weights[order]
    graph = graph_from_edges(n_nodes, starts, ends, weights)
    _require_one_length(name, graph, starts, ends, weights)
    return graph


def _require_one_length(name: str, graph: SparseArray, starts: IntArray, ends: IntArray, weights: FloatArray) -> None:
    """Refuse edges that are longer than those kept of the same ends, beyond rounding."""
    n = graph.shape[0]
    pairs = np.repeat(np.arange(n), np.diff(graph.indptr)) * n + graph.indices
    kept = graph.data[np.searchsorted(pairs, starts * n + ends)]
    longer = weights - kept
    longer[longer <= checks.SYMMETRY_TOLERANCE * weights + checks.ROUNDING_FLOOR * weights.max(initial=0.0)] = 0.0
    if longer.any():
        worst = int(np.argmax(longer))
        (start, one), (end, other) = sorted([(starts[worst], weights[worst]), (ends[worst], kept[worst])])
        raise InvalidInputError(
            f"{name} is not symmetric: {one:g} from node {start} to {end} against {other:g} from {end} to {start}, the "
            f"largest difference ({longer[worst]:g}) of {np.count_nonzero(longer)} edges; an undirected graph is "
            "needed: list each edge once, or with the same length both ways."
        )


def symmetric_csr(
    first: int, last: int, starts: AnyArray, ends: AnyArray, weights: AnyArray
) -> tuple[IntArray, AnyArray, AnyArray]:
    """Offsets, rising targets and weights of the nodes from `first` up to `last`, from undirected edges that touch any
    of them; of repeated edges, in either direction, the shortest is kept."""
    offsets = np.zeros(last - first + 1, dtype=np.int64)
    _count_ends(first, last, starts, ends, offsets)
    np.cumsum(offsets, out=offsets)
    targets, lengths = np.empty(offsets[-1], dtype=ends.dtype), np.empty(offsets[-1], dtype=weights.dtype)
    _fill_ends(first, last, (starts, ends, weights), offsets[:-1].copy(), targets, lengths)
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
def _fill_ends(first: int, last: int, edges: Edges, places: AnyArray, targets: AnyArray, lengths: AnyArray) -> None:
    starts, ends, weights = edges
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
    """Sort each node's edges by target, then length; keep the first of each target and return how many are kept."""
    kept, begin = 0, 0
    for node in range(len(offsets) - 1):
        end = offsets[node + 1]
        if end - begin > MANY_EDGES:
            order = begin + np.argsort(lengths[begin:end], kind="mergesort")
            order = order[np.argsort(targets[order], kind="mergesort")]
            targets[begin:end], lengths[begin:end] = targets[order], lengths[order]
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


def checked_graph(graph: SparseArray) -> SparseArray:
    """`graph` as CSR with weights for which shortest paths are defined."""
    if not hasattr(graph, "tocsr"):
        raise InvalidInputError(f"graph is a {type(graph).__name__}; it must be a scipy.sparse matrix of edge lengths.")
    csr = scipy.sparse.csr_array(graph)
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
    # NaN fails this comparison too.
    bad = ~(weights >= 0) | np.isinf(weights)
    if bad.any():
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(bad)} weights that are negative, NaN or infinite, the first "
            f"{weights[bad][0]:g}; lengths must be finite and at least 0."
        )


def component_labels(graph: SparseArray) -> IntArray:
    """The component of every node, numbered by falling size, then by first node."""
    _, labels = scipy.sparse.csgraph.connected_components(graph, directed=False)
    return by_falling_size(labels)


def by_falling_size(labels: AnyArray) -> IntArray:
    """Component numbers that rise with the first node, replaced by numbers by falling size, then by first node."""
    sizes = np.bincount(labels)
    order = np.argsort(-sizes, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(sizes))
    return np.asarray(number[labels], dtype=np.int64)


class UnionFind:
    """Components of a graph whose edges arrive in batches; each set is represented by its lowest node."""

    def __init__(self, nodes: int | AnyArray) -> None:
        """From the number of nodes, each its own set, or from an array with a lower node of each node's set."""
        self._parents = np.arange(nodes, dtype=np.int64) if isinstance(nodes, int) else nodes.astype(np.int64)

    def join(self, starts: AnyArray, ends: AnyArray) -> None:
        """Add edges."""
        _join(self._parents, starts, ends)

    def lowest(self) -> IntArray:
        """The lowest node of every node's set."""
        _flatten(self._parents)
        return self._parents

    def labels(self) -> IntArray:
        """The component of every node, numbered by falling size, then by first node."""
        parents = self.lowest()
        # A set's lowest node is the one that is its own parent.
        return by_falling_size((np.cumsum(parents == np.arange(len(parents))) - 1)[parents])


@compiled
def _root(parents: AnyArray, node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@compiled
def _join(parents: AnyArray, starts: AnyArray, ends: AnyArray) -> None:
    for i in range(len(starts)):
        a, b = _root(parents, starts[i]), _root(parents, ends[i])
        parents[max(a, b)] = min(a, b)


@compiled
def _flatten(parents: AnyArray) -> None:
    for node in range(len(parents)):
        parents[node] = _root(parents, node)
