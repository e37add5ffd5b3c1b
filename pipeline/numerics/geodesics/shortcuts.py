"""Likely short circuits of a neighbor graph: long edges across gaps of the data that many shortest paths use.

Found in rounds:

1. Shortest paths from some nodes to others, both drawn by their rows, show which nodes many paths run through.
2. Around each of these, the busiest first, an island is looked for: up to 16 nodes whose edges are long
   against those of the nodes around them (such as points that lie between two turns of the data), or a node with edges
   that are long at both ends. The island is taken out of the graph. If some nodes next to it then are much farther from
   the others than across the island, its edges to all but the largest group of them are suspects, and are left out.
3. With those gone paths run elsewhere, and the next round finds what they hid, until nothing is found.

Last, the way between the ends of suspects is measured in the graph without any of them. They are short circuits if it
is many times the way across. Those that alone connect parts of the graph are none, so components stay as they are.

Ties are broken by rows, so that the result does not depend on how nodes are numbered. What is as dense as the data
around it (a narrow neck, a handle, a curve between two sheets) is taken for a part of the data.
"""

from typing import NamedTuple

import numpy as np
import scipy

from pipeline.numerics.compiled import compiled
from pipeline.numerics.geodesics.graph import UnionFind
from pipeline.numerics.geodesics.islands import (
    edges_out,
    grouped,
    has_long_edge,
    is_long,
    island_of,
    reach,
    ways_across,
)
from pipeline.numerics.geodesics.loads import PathLoads, path_loads
from pipeline.numerics.geodesics.shortest_paths import Csr, PathGraph, PathSearch
from pipeline.numerics.landmarks.sampling import row_hashes
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, SparseArray

# Nodes from which paths are followed, more where searches are short: so many nodes are reached in all, about. And nodes
# to which.
LEAST_SOURCES, MOST_SOURCES, N_REACHED, N_TARGETS = 8, 64, 1_600_000, 256
# Rounds, nodes whose surroundings are examined in each, and suspects in all.
MOST_ROUNDS, MOST_EXAMINED, MOST_SUSPECTS = 8, 4096, 100
# The least share of the paths through a node for it to be busy, also against the share that 9 of 10 nodes have at most:
# around a ring, all nodes are as busy.
LEAST_SHARE, AGAINST_OTHERS = 0.005, 1.5
# Nodes whose edges are joined at a time.
JOINED_NODES = 1 << 13
# Short circuits that are listed.
MOST_LISTED = 30
# The way that remains between the ends of a short circuit is at least so many times the way across, and it lengthens
# paths by at least such a share in the mean.
LEAST_DETOUR, LEAST_EFFECT = 5.0, 0.002


# Less far by more than lengths are rounded.
BELOW = 1.0 - 1e-6


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


def shorten(reach: FloatArray, nodes: IntArray, lengths: FloatArray) -> None:
    """Let nodes reach less far, in place, than their edges of these lengths (e,), which were cut: new points are not to
    be joined to them across the same gap."""
    np.minimum.at(reach, nodes, BELOW * lengths)


def warning_of(n_found: int, is_cut: bool, remedy: str) -> str:
    """What a user is told of short circuits."""
    found = f"The graph has {n_found} likely short circuit{'s' if n_found > 1 else ''}"
    if is_cut:
        return f"{found}, which {'were' if n_found > 1 else 'was'} cut."
    return (
        f"{found}: long edges across gaps that many paths use, so that distances along the graph are too short. Look "
        f"at those listed; {remedy} leaves them out."
    )


def nodes_reached(n_nodes: int) -> int:
    """How many nodes the searches of a round reach, about: those from so many sources."""
    return max(LEAST_SOURCES * n_nodes, min(MOST_SOURCES * n_nodes, N_REACHED))


def short_circuits(graph: PathGraph, rows: IntArray, seed: int, n_threads: int = 1) -> list[ShortCircuit]:
    """The short circuits of a graph whose nodes come from the given rows (n,), those on most paths first.

    Weights of the graph change meanwhile, and are in the end what they were.
    """
    search = _Search(graph, rows, seed, n_threads)
    mean_length = search.suspect()
    search.clear()
    found = [item._replace(detour=search.way(item)) for item in search.suspects]
    search.restore(np.ones(len(found), np.bool_))
    kept = [item for item in found if item.share * (item.detour - item.across) >= LEAST_EFFECT * mean_length]
    return sorted(kept, key=lambda item: (-item.share, int(rows[item.starts[0]]), int(rows[item.ends[0]])))


class _Search:
    """The graph without its suspects, whose weights are infinite meanwhile: a copy would be half the graph again."""

    def __init__(self, graph: PathGraph, rows: IntArray, seed: int, n_threads: int) -> None:
        self._graph, self._rows = graph, rows
        n_sources = nodes_reached(graph.n_nodes) // max(1, graph.n_nodes)
        # A copy: a slice would keep the order of all nodes in memory.
        drawn = np.argsort(row_hashes(rows, seed))[: n_sources + N_TARGETS].copy()
        self._sources, others = drawn[:n_sources], drawn[n_sources:]
        self._targets = others if len(others) else drawn
        self._search = PathSearch(graph)
        self._searches = [self._search, *(PathSearch(graph) for _ in range(n_threads - 1))]
        self._lengths = np.full(graph.n_nodes, np.inf)
        self._scales = np.full(graph.n_nodes, np.nan)
        self.suspects: list[ShortCircuit] = []

    def suspect(self) -> float:
        """Look for suspects; the mean length of paths once they are left out."""
        mean_length = 0.0
        for _ in range(MOST_ROUNDS):
            loads = path_loads(self._graph, self._searches, self._rows, self._sources, self._targets)
            n_before, mean_length = len(self.suspects), loads.mean_length
            for node in self._busy(loads).tolist():
                self._examine(node, float(loads.shares[node]))
            if len(self.suspects) in (n_before, MOST_SUSPECTS):
                break
        return mean_length

    def clear(self) -> None:
        """Clear suspects that have no long detour, and those that alone connect parts of the graph. Most data has none
        but the former, and then nothing needs the parts."""
        self._clear_near()
        if self.suspects:
            self._connect()
            self._clear_near()

    def _clear_near(self) -> None:
        for _ in range(MOST_ROUNDS):
            near = np.array([self._is_near(item) for item in self.suspects], dtype=np.bool_)
            self.restore(near)
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
        island, is_sparse = island_of(csr, scales, node)
        if not is_sparse and not has_long_edge(csr, scales, node):
            return
        starts, edges, ways = edges_out(csr, island)
        if not len(edges):
            return
        groups = grouped(csr, self._rows, island, (edges, ways), self._lengths)
        sizes = np.bincount(groups)
        stays = int(sizes.argmax())
        across = ways_across(csr, island, starts, edges, groups == stays)
        for group in np.flatnonzero(np.arange(len(sizes)) != stays).tolist():
            mine = groups == group
            suspicious = is_sparse or all(is_long(csr, scales, node, edge) for edge in edges[mine])
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

    def restore(self, cleared: BoolArray) -> None:
        """Put back the edges of some suspects (s,), and drop these from the list."""
        for item, is_cleared in zip(self.suspects, cleared.tolist(), strict=True):
            if is_cleared:
                _weigh(self._graph.csr, item.starts, item.ends, item.lengths)
        self.suspects = [item for item, gone in zip(self.suspects, cleared.tolist(), strict=True) if not gone]

    def _connect(self) -> None:
        """Restore, the shortest first, suspects between parts of the graph that nothing else connects."""
        if not self.suspects:
            return
        sets = _parts(self._graph)
        first = [(item.lengths[0], self._rows[item.starts[0]], self._rows[item.ends[0]]) for item in self.suspects]
        cleared = np.zeros(len(first), np.bool_)
        for place in sorted(range(len(first)), key=first.__getitem__):
            item, lowest = self.suspects[place], sets.lowest()
            cleared[place] = (lowest[item.starts] != lowest[item.ends]).any()
            if cleared[place]:
                sets.join(item.starts, item.ends)
        self.restore(cleared)

    def _is_near(self, item: ShortCircuit) -> bool:
        """Whether a way remains between the ends that is not much longer."""
        limit = LEAST_DETOUR * item.across
        start, end = int(item.starts[0]), int(item.ends[0])
        seen = reach(self._graph.csr, start, limit, self._graph.n_nodes, self._lengths)
        is_near = bool(self._lengths[end] < limit)
        self._lengths[seen] = np.inf
        return is_near


def _parts(graph: PathGraph) -> UnionFind:
    """The parts that edges of finite weight connect. The starts of all edges at once would be half the graph again."""
    offsets, targets, weights = graph.csr
    sets = UnionFind(graph.n_nodes)
    for first in range(0, graph.n_nodes, JOINED_NODES):
        ends = offsets[first : first + JOINED_NODES + 1]
        starts = np.repeat(np.arange(first, first + len(ends) - 1, dtype=np.int32), np.diff(ends))
        edges = slice(int(ends[0]), int(ends[-1]))
        there = np.isfinite(weights[edges])
        sets.join(starts[there], targets[edges][there])
    return sets


@compiled
def _weigh(csr: Csr, starts: AnyArray, ends: AnyArray, lengths: AnyArray) -> None:
    """Set the lengths of edges, in both directions."""
    offsets, targets, weights = csr
    for i in range(len(starts)):
        for u, v in ((starts[i], ends[i]), (ends[i], starts[i])):
            for edge in range(offsets[u], offsets[u + 1]):
                if targets[edge] == v:
                    weights[edge] = lengths[i]
