"""The neighbor graph (duplicates collapsed, edges in both directions, zero weights kept), its components, and policies
for several of them: `error` refuses, `bridge` joins them by the shortest links between them (a minimum spanning tree
over components), `largest` keeps the largest and gives other points no coordinates."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pipeline.errors import DisconnectedGraphError, InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.directions import edge_lengths
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, SparseArray

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


ComponentPolicy = Literal["error", "bridge", "largest"]
POLICIES: tuple[str, ...] = get_args(ComponentPolicy)
# What to do about several components, by what the edges come from: neighbors, a radius, or the user's own graph.
JOIN_OR_DROP = "or choose component_policy='bridge' (join them by the shortest links) or 'largest'"
REMEDIES = {
    "neighbors": f"Raise n_neighbors, {JOIN_OR_DROP}",
    "radius": f"Raise radius, {JOIN_OR_DROP}",
    "given": "Add the edges that are missing (there are no points to find links by), or use component_policy='largest'",
}
# Nearest neighbors searched for an outsider before a component gets a search of its own.
MAX_SHARED_NEIGHBORS = 65
Link = tuple[float, int, int]
NO_LINK: Link = (np.inf, -1, -1)


class Connected(NamedTuple):
    """A graph on all n nodes after the policy; labels (n,) before it, 0 the largest; kept (n,), the nodes that stay."""

    graph: SparseArray
    labels: IntArray
    kept: BoolArray
    n_bridges: int


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


def apply_component_policy(
    points: AnyArray | None,
    graph: SparseArray,
    policy: ComponentPolicy,
    edges_from: str = "neighbors",
    metric: str = "euclidean",
) -> Connected:
    """A graph in which all kept nodes reach each other; without points no links between components can be found."""
    checks.one_of("policy", policy, POLICIES)
    labels = component_labels(graph)
    if policy == "largest" or not labels.any():
        return Connected(graph, labels, labels == 0, 0)
    if policy == "error" or points is None:
        raise DisconnectedGraphError(disconnected_message(np.bincount(labels).tolist(), edges_from=edges_from))
    starts, ends, lengths = shortest_bridges(points, labels, metric)
    return Connected(with_edges(graph, starts, ends, lengths), labels, np.ones(len(labels), np.bool_), len(starts))


def shortest_bridges(points: AnyArray, labels: IntArray, metric: str = "euclidean") -> Edges:
    """Links of a minimum spanning tree over components, as long as `metric` has it, by Boruvka's algorithm. In a round
    every component but the largest finds its shortest link to another. Links are compared by (distance, lower row,
    higher row), a strict order, so no round closes a cycle."""
    links: list[Link] = []
    _, first = np.unique(labels, return_index=True)
    sets, current = UnionFind(first[labels]), labels
    while current.any():
        links.extend(sorted(set(_shortest_links(points, current))))
        lengths, low, high = (np.array(column) for column in zip(*links, strict=True))
        sets.join(low, high)
        current = sets.labels()
    return low, high, edge_lengths(metric, lengths)


def _shortest_links(points: AnyArray, labels: IntArray) -> list[Link]:
    """The shortest link out of every component but the largest. All components search together while few neighbors may
    reveal an outsider. Points of a component whose known neighbors are all insiders, and nearer than its best link,
    then search the outside alone."""
    best: list[Link] = [NO_LINK] * (int(labels.max()) + 1)
    pending = np.flatnonzero(labels)
    k = 5
    search = NeighborSearch(points)
    while len(pending) and k <= min(MAX_SHARED_NEIGHBORS, len(points)):
        distances, indices = search.query(points[pending], k)
        outside = labels[indices] != labels[pending, None]
        seen = outside.any(axis=1)
        nearest = outside.argmax(axis=1)[:, None]
        lengths, ends = (np.take_along_axis(part, nearest, 1).ravel() for part in (distances, indices))
        _improve(best, labels, pending[seen], ends[seen], lengths[seen])
        limits = np.array([link[0] for link in best])[labels[pending]]
        pending = pending[~seen & (distances[:, -1] <= limits)]
        k = 4 * k - 3
    for component in np.unique(labels[pending]):
        inside, others = pending[labels[pending] == component], np.flatnonzero(labels != component)
        distances, indices = NeighborSearch(points[others]).query(points[inside], 1)
        _improve(best, labels, inside, others[indices.ravel()], distances.ravel())
    return best[1:]


def _improve(best: list[Link], labels: IntArray, starts: IntArray, ends: IntArray, lengths: FloatArray) -> None:
    for i, j, length in zip(starts.tolist(), ends.tolist(), lengths.tolist(), strict=True):
        best[labels[i]] = min(best[labels[i]], (length, min(i, j), max(i, j)))


def disconnected_message(sizes: Sequence[int], n_components: int | None = None, edges_from: str = "neighbors") -> str:
    """The error message, given the sizes of all components, or of the ten largest and the number of all."""
    n_components = len(sizes) if n_components is None else n_components
    listed = ", ".join(map(str, sizes[:10])) + (", ..." if n_components > 10 else "")
    return (
        f"The {'neighbor graph' if edges_from == 'neighbors' else 'graph'} has {n_components} components, of sizes "
        f"{listed}; distances between them are undefined. {REMEDIES[edges_from]} (embed only the largest; other rows "
        "get NaN)."
    )
