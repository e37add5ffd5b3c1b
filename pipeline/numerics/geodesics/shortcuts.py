"""Likely short circuits of a neighbor graph: long edges across gaps of the data that many shortest paths use.

Found in rounds:

1. Shortest paths from some nodes to others, both drawn by their rows, show which nodes many paths run through.
2. Around each of these, the busiest first, an island is looked for: up to MOST_ISLAND nodes whose edges are long
   against those of the nodes around them (such as points that lie between two turns of the data), or a node with edges
   that are long at both ends. The island is taken out of the graph. If some nodes next to it then are much farther from
   the others than across the island, its edges to all but the largest group of them are suspects, and are left out.
3. With those gone paths run elsewhere, and the next round finds what they hid, until nothing is found.

Last, the way between the ends of suspects is measured in the graph without any of them. They are short circuits if it
is many times their length. Those that alone connect parts of the graph are none, so components stay as they are.

Ties are broken by rows, so that the result does not depend on how nodes are numbered. What is as dense as the data
around it (a narrow neck, a handle, a curve between two sheets) is taken for a part of the data.
"""

import heapq
from typing import NamedTuple

import numpy as np
import scipy

from pipeline.numerics.compiled import compiled
from pipeline.numerics.geodesics.graph import UnionFind
from pipeline.numerics.geodesics.loads import PathLoads, path_loads
from pipeline.numerics.geodesics.shortest_paths import Csr, PathGraph, PathSearch
from pipeline.numerics.landmarks.sampling import row_hashes
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, SparseArray

# Nodes from which paths are followed, and nodes to which.
N_SOURCES, N_TARGETS = 32, 256
# Rounds, nodes whose surroundings are examined in each, and suspects in all.
MOST_ROUNDS, MOST_EXAMINED, MOST_SUSPECTS = 8, 4096, 100
# The least share of the paths through a node for it to be busy, also against the share that 9 of 10 nodes have at most:
# around a ring, all nodes are as busy.
LEAST_SHARE, AGAINST_OTHERS = 0.005, 1.5
MOST_ISLAND = 16
# Short circuits that are listed.
MOST_LISTED = 30
# Edges of an island's nodes are that much longer than those of the nodes around it, and single ones than those of both
# their ends.
SPARSER, LONGER = 1.6, 3.0
# Which of a node's edges says how long they are around it, the shortest counted as 0.
NEAREST = 3
# How far nodes next to an island are from each other without it, against the way across it, to be in different groups.
APART = 1.6
# Nodes seen after which a search ends: what has not been reached is far.
MOST_SEEN = 20_000
# The way that remains between the ends of a short circuit is at least so many times the way across, and it lengthens
# paths by at least such a share in the mean.
LEAST_DETOUR, LEAST_EFFECT = 5.0, 0.002


class ShortCircuit(NamedTuple):
    """Edges (e,) from a node of an island across a gap, the shortest first; the share of the paths through the island,
    the way across it, the first edge included, and what remains between the ends of that without any short circuit."""

    starts: IntArray
    ends: IntArray
    lengths: FloatArray
    share: float
    across: float
    detour: float


class Listed(NamedTuple):
    """A short circuit by its shortest edge: the rows of data at the ends, its length, the way across with it and that
    which remains without, the share of the paths through its island, and how many edges it has."""

    row: int
    other: int
    length: float
    across: float
    detour: float
    share: float
    n_edges: int


def listed(found: list[ShortCircuit], rows: IntArray, exponent: int = 0) -> list[Listed]:
    """Some short circuits at most, in units of which those of the graph are 2^exponent."""
    return [
        Listed(
            row=int(rows[item.starts[0]]),
            other=int(rows[item.ends[0]]),
            length=float(np.ldexp(item.lengths[0], exponent)),
            across=float(np.ldexp(item.across, exponent)),
            detour=float(np.ldexp(item.detour, exponent)),
            share=item.share,
            n_edges=len(item.ends),
        )
        for item in found[:MOST_LISTED]
    ]


def all_edges(found: list[ShortCircuit]) -> tuple[IntArray, IntArray]:
    """The ends (e,) of the edges of all of them."""
    none = np.empty(0, np.int64)
    return np.concatenate([none, *(item.starts for item in found)]), np.concatenate(
        [none, *(item.ends for item in found)]
    )


def without(graph: SparseArray, starts: IntArray, ends: IntArray) -> SparseArray:
    """A symmetric CSR graph without some edges; zero weights stay edges."""
    n = graph.shape[0]
    sources = np.repeat(np.arange(n), np.diff(graph.indptr))
    gone = np.concatenate([starts * n + ends, ends * n + starts])
    left = ~np.isin(sources * n + graph.indices, gone)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(sources[left], minlength=n))])
    return scipy.sparse.csr_array((graph.data[left], graph.indices[left], offsets), shape=graph.shape)


def warning_of(n_found: int, is_cut: bool, remedy: str) -> str:
    """What a user is told of short circuits."""
    found = f"The graph has {n_found} likely short circuit{'s' if n_found > 1 else ''}"
    if is_cut:
        return f"{found}, which {'were' if n_found > 1 else 'was'} cut."
    return (
        f"{found}: long edges across gaps that many paths use, so that distances along the graph are too short. Look "
        f"at those listed; {remedy} leaves them out."
    )


def short_circuits(graph: PathGraph, rows: IntArray, seed: int) -> list[ShortCircuit]:
    """The short circuits of a graph whose nodes come from the given rows (n,), those on most paths first."""
    search = _Search(graph, rows, seed)
    mean_length = search.suspect()
    search.clear()
    found = [item._replace(detour=search.way(item)) for item in search.suspects]
    kept = [item for item in found if item.share * (item.detour - item.across) >= LEAST_EFFECT * mean_length]
    return sorted(kept, key=lambda item: (-item.share, int(rows[item.starts[0]]), int(rows[item.ends[0]])))


class _Search:
    """The graph without its suspects, whose weights are infinite meanwhile."""

    def __init__(self, graph: PathGraph, rows: IntArray, seed: int) -> None:
        self._graph = PathGraph(graph.offsets, graph.targets, graph.weights.copy())
        self._search = PathSearch(self._graph)
        self._rows = rows
        drawn = np.argsort(row_hashes(rows, seed))
        self._sources, others = drawn[:N_SOURCES], drawn[N_SOURCES : N_SOURCES + N_TARGETS]
        self._targets = others if len(others) else drawn
        self._lengths = np.full(graph.n_nodes, np.inf)
        self._scales = np.full(graph.n_nodes, np.nan)
        self.suspects: list[ShortCircuit] = []

    def suspect(self) -> float:
        """Look for suspects; the mean length of paths once they are left out."""
        mean_length = 0.0
        for _ in range(MOST_ROUNDS):
            loads = path_loads(self._graph, self._search, self._rows, self._sources, self._targets)
            n_before, mean_length = len(self.suspects), loads.mean_length
            for node in self._busy(loads).tolist():
                self._examine(node, float(loads.shares[node]))
            if len(self.suspects) in (n_before, MOST_SUSPECTS):
                break
        return mean_length

    def clear(self) -> None:
        """Clear suspects that alone connect parts of the graph, then those that have no long detour."""
        self._connect()
        for _ in range(MOST_ROUNDS):
            near = np.array([self._is_near(item) for item in self.suspects], dtype=np.bool_)
            self._restore(near)
            if not near.any():
                return

    def way(self, item: ShortCircuit) -> float:
        """The length of the way between the ends of the shortest edge."""
        return float(self._search.lengths_from(int(item.starts[0]))[item.ends[0]])

    def _busy(self, loads: PathLoads) -> IntArray:
        least = max(LEAST_SHARE, AGAINST_OTHERS * float(np.quantile(loads.shares, 0.9)))
        busy = np.flatnonzero(loads.shares >= least)
        return busy[np.lexsort((self._rows[busy], -loads.shares[busy]))][:MOST_EXAMINED]

    def _examine(self, node: int, share: float) -> None:
        """Suspect edges of a node's island if they lead to places that are far apart without it."""
        csr, scales = self._graph.csr, self._scales
        island, is_sparse = _island(csr, scales, node)
        if not is_sparse and not _has_long_edge(csr, scales, node):
            return
        starts, edges, ways = _edges_out(csr, island)
        if not len(edges):
            return
        groups = _grouped(csr, self._rows, island, (edges, ways), self._lengths)
        sizes = np.bincount(groups)
        stays = int(sizes.argmax())
        across = _ways_across(csr, island, starts, edges, groups == stays)
        for group in np.flatnonzero(np.arange(len(sizes)) != stays).tolist():
            mine = groups == group
            suspicious = is_sparse or all(_is_long(csr, scales, node, edge) for edge in edges[mine])
            if suspicious and len(self.suspects) < MOST_SUSPECTS:
                self._leave_out(starts[mine], edges[mine], across[mine], share)

    def _leave_out(self, starts: IntArray, edges: IntArray, across: FloatArray, share: float) -> None:
        """Make edges, by their places in the graph, a suspect for each node of the island that they start from."""
        rows, (_, targets, weights) = self._rows, self._graph.csr
        ends, lengths = targets[edges].astype(np.int64), weights[edges].astype(np.float64)
        order = np.lexsort((rows[ends], rows[starts], lengths))
        starts, ends, lengths, across = starts[order], ends[order], lengths[order], across[order]
        for start in dict.fromkeys(starts.tolist()):
            mine = starts == start
            item = ShortCircuit(starts[mine], ends[mine], lengths[mine], share, float(across[mine][0]), np.inf)
            self.suspects.append(item)
            _weigh(self._graph.csr, item.starts, item.ends, np.full(len(item.ends), np.inf))
            self._scales[item.starts], self._scales[item.ends] = np.nan, np.nan

    def _restore(self, cleared: BoolArray) -> None:
        for item, is_cleared in zip(self.suspects, cleared.tolist(), strict=True):
            if is_cleared:
                _weigh(self._graph.csr, item.starts, item.ends, item.lengths)
        self.suspects = [item for item, gone in zip(self.suspects, cleared.tolist(), strict=True) if not gone]

    def _connect(self) -> None:
        """Restore, the shortest first, suspects between parts of the graph that nothing else connects."""
        if not self.suspects:
            return
        offsets, targets, weights = self._graph.csr
        there = np.isfinite(weights)
        sets = UnionFind(self._graph.n_nodes)
        sets.join(np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))[there], targets[there])
        first = [(item.lengths[0], self._rows[item.starts[0]], self._rows[item.ends[0]]) for item in self.suspects]
        cleared = np.zeros(len(first), np.bool_)
        for place in sorted(range(len(first)), key=first.__getitem__):
            item, lowest = self.suspects[place], sets.lowest()
            cleared[place] = (lowest[item.starts] != lowest[item.ends]).any()
            if cleared[place]:
                sets.join(item.starts, item.ends)
        self._restore(cleared)

    def _is_near(self, item: ShortCircuit) -> bool:
        """Whether a way remains between the ends that is not much longer."""
        limit = LEAST_DETOUR * item.across
        start, end = int(item.starts[0]), int(item.ends[0])
        seen = _reach(self._graph.csr, start, limit, self._graph.n_nodes, self._lengths)
        is_near = bool(self._lengths[end] < limit)
        self._lengths[seen] = np.inf
        return is_near


@compiled
def _weigh(csr: Csr, starts: AnyArray, ends: AnyArray, lengths: AnyArray) -> None:
    """Set the lengths of edges, in both directions."""
    offsets, targets, weights = csr
    for i in range(len(starts)):
        for u, v in ((starts[i], ends[i]), (ends[i], starts[i])):
            for edge in range(offsets[u], offsets[u + 1]):
                if targets[edge] == v:
                    weights[edge] = lengths[i]


@compiled
def _scale(csr: Csr, scales: AnyArray, node: int) -> float:
    """The typical length of a node's edges, the median at most, but of its nearest: within a radius the others are as
    long everywhere. Infinite if none are left. It is kept in `scales`, where it is NaN as long as it is not known."""
    if np.isnan(scales[node]):
        offsets, _, weights = csr
        own = np.sort(weights[offsets[node] : offsets[node + 1]])
        own = own[own < np.inf]
        scales[node] = own[min(NEAREST, len(own) // 2)] if len(own) else np.inf
    return float(scales[node])


@compiled
def _is_long(csr: Csr, scales: AnyArray, node: int, edge: int) -> bool:
    """Whether an edge of a node is long against the edges at both its ends."""
    _, targets, weights = csr
    length = np.float64(weights[edge])
    if length == np.inf or length < LONGER * _scale(csr, scales, node):
        return False
    return bool(length >= LONGER * _scale(csr, scales, int(targets[edge])))


@compiled
def _has_long_edge(csr: Csr, scales: AnyArray, node: int) -> bool:
    has_any = False
    for edge in range(csr[0][node], csr[0][node + 1]):
        has_any = has_any or _is_long(csr, scales, node, edge)
    return has_any


@compiled
def _island(csr: Csr, scales: AnyArray, node: int) -> tuple[AnyArray, bool]:
    """The node, first, and all that it reaches by nodes whose edges are not much shorter than its own, and whether that
    is an island: the node alone is none if it reaches too many."""
    offsets, targets, weights = csr
    least = _scale(csr, scales, node) / SPARSER
    island = np.full(MOST_ISLAND, node)
    n_nodes, following = 1, 0
    while following < n_nodes:
        u = island[following]
        following += 1
        for edge in range(offsets[u], offsets[u + 1]):
            v = int(targets[edge])
            if weights[edge] == np.inf or _scale(csr, scales, v) < least or (island[:n_nodes] == v).any():
                continue
            if n_nodes == MOST_ISLAND:
                return island[:1], False
            island[n_nodes] = v
            n_nodes += 1
    return island[:n_nodes], True


@compiled
def _extend_within(csr: Csr, island: AnyArray, ways: AnyArray) -> None:
    """Shorten the ways to an island's nodes by paths within it."""
    offsets, targets, weights = csr
    # Paths have fewer edges than the island has nodes.
    for _ in range(len(island)):
        for i in range(len(island)):
            for edge in range(offsets[island[i]], offsets[island[i] + 1]):
                for j in np.flatnonzero(island == targets[edge]):
                    ways[j] = min(ways[j], ways[i] + np.float64(weights[edge]))


@compiled
def _ways_across(csr: Csr, island: AnyArray, starts: AnyArray, edges: AnyArray, stays: AnyArray) -> AnyArray:
    """How far the ends of the edges out of an island are, across it, from the nearest end of those that stay."""
    weights, ways = csr[2], np.full(len(island), np.inf)
    for staying in np.flatnonzero(stays):
        place = np.flatnonzero(island == starts[staying])[0]
        ways[place] = min(ways[place], np.float64(weights[edges[staying]]))
    _extend_within(csr, island, ways)
    across = np.empty(len(edges))
    for i in range(len(edges)):
        across[i] = ways[np.flatnonzero(island == starts[i])[0]] + np.float64(weights[edges[i]])
    return across


@compiled
def _edges_out(csr: Csr, island: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Edges that lead out of an island: where they start, their places in the graph, and how far the ends are from the
    first node of the island."""
    offsets, targets, weights = csr
    within = np.full(len(island), np.inf)
    within[0] = 0.0
    _extend_within(csr, island, within)
    starts, edges, ways = [np.int64(0)][:0], [np.int64(0)][:0], [0.0][:0]
    for i in range(len(island)):
        for edge in range(offsets[island[i]], offsets[island[i] + 1]):
            if weights[edge] < np.inf and not (island == targets[edge]).any():
                starts.append(island[i])
                edges.append(np.int64(edge))
                ways.append(within[i] + np.float64(weights[edge]))
    return np.array(starts), np.array(edges), np.array(ways)


@compiled
def _grouped(csr: Csr, rows: AnyArray, island: AnyArray, out: tuple[AnyArray, AnyArray], lengths: AnyArray) -> AnyArray:
    """A number for each edge out of an island, the same for ends that are near each other without it.

    A group has the end nearest to the island's first node and all that are near that.
    """
    edges, ways = out
    targets, groups, n_groups = csr[1], np.full(len(edges), -1), 0
    lengths[island] = -1.0
    while (groups < 0).any():
        first, longest = -1, 0.0
        for i in range(len(edges)):
            if groups[i] >= 0:
                continue
            longest = max(longest, ways[i])
            if first < 0 or (ways[i], rows[targets[edges[i]]]) < (ways[first], rows[targets[edges[first]]]):
                first = i
        limit = APART * (ways[first] + longest)
        seen = _reach(csr, int(targets[edges[first]]), limit, MOST_SEEN, lengths)
        is_near = lengths[targets[edges]] <= APART * (ways[first] + ways)
        groups[is_near & (groups < 0)] = n_groups
        lengths[seen] = np.inf
        n_groups += 1
    lengths[island] = np.inf
    return groups


@compiled
def _reach(csr: Csr, source: int, limit: float, most: int, lengths: AnyArray) -> AnyArray:
    """Fill in lengths up to a limit from a source, of about `most` nodes at most, into an array of infinite ones;
    return the nodes. Those of negative length are no way."""
    offsets, targets, weights = csr
    lengths[source] = 0.0
    seen, queue = [np.int64(source)], [(0.0, np.int64(source))]
    while queue and len(seen) < most:
        length, u = heapq.heappop(queue)
        if length > lengths[u]:
            continue
        for edge in range(offsets[u], offsets[u + 1]):
            v, offered = np.int64(targets[edge]), length + np.float64(weights[edge])
            if offered <= limit and offered < lengths[v]:
                if lengths[v] == np.inf:
                    seen.append(v)
                lengths[v] = offered
                heapq.heappush(queue, (offered, v))
    return np.array(seen)
