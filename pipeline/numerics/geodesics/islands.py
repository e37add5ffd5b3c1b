"""Islands of a graph: a few nodes whose edges are long against those around them, and what they join.

Edges that are left out have infinite weights. `scales` (n,) keeps the typical length of each node's edges, NaN as long
as it is not known.
"""

import heapq

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.geodesics.shortest_paths import Csr
from pipeline.types import AnyArray

MOST_ISLAND = 16
# Edges of an island's nodes are that much longer than those of the nodes around it, and single ones than those of both
# their ends.
SPARSER, LONGER = 1.6, 3.0
# Which of a node's edges says how long they are around it, the shortest counted as 0.
NEAREST = 3
# How far nodes next to an island are from each other without it, against the way across it, to be in different groups.
APART = 1.6
# Nodes seen after which a search ends: what has not been reached is far.
MOST_SEEN = 20_000


@compiled
def _scale(csr: Csr, scales: AnyArray, node: int) -> float:
    """The typical length of a node's edges, the median at most, but of its nearest: within a radius the others are as
    long everywhere. Infinite if none are left."""
    if np.isnan(scales[node]):
        offsets, _, weights = csr
        own = np.sort(weights[offsets[node] : offsets[node + 1]])
        own = own[own < np.inf]
        scales[node] = own[min(NEAREST, len(own) // 2)] if len(own) else np.inf
    return float(scales[node])


@compiled
def is_long(csr: Csr, scales: AnyArray, node: int, edge: int) -> bool:
    """Whether an edge of a node is long against the edges at both its ends."""
    _, targets, weights = csr
    length = np.float64(weights[edge])
    if length == np.inf or length < LONGER * _scale(csr, scales, node):
        return False
    return bool(length >= LONGER * _scale(csr, scales, int(targets[edge])))


@compiled
def has_long_edge(csr: Csr, scales: AnyArray, node: int) -> bool:
    has_any = False
    for edge in range(csr[0][node], csr[0][node + 1]):
        has_any = has_any or is_long(csr, scales, node, edge)
    return has_any


@compiled
def island_of(csr: Csr, scales: AnyArray, node: int) -> tuple[AnyArray, bool]:
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
def ways_across(csr: Csr, island: AnyArray, starts: AnyArray, edges: AnyArray, stays: AnyArray) -> AnyArray:
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
def edges_out(csr: Csr, island: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
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
def grouped(csr: Csr, rows: AnyArray, island: AnyArray, out: tuple[AnyArray, AnyArray], lengths: AnyArray) -> AnyArray:
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
        seen = reach(csr, int(targets[edges[first]]), limit, MOST_SEEN, lengths)
        is_near = lengths[targets[edges]] <= APART * (ways[first] + ways)
        groups[is_near & (groups < 0)] = n_groups
        lengths[seen] = np.inf
        n_groups += 1
    lengths[island] = np.inf
    return groups


@compiled
def reach(csr: Csr, source: int, limit: float, most: int, lengths: AnyArray) -> AnyArray:
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
