"""Shortest paths from several nearby sources at once, their lengths side by side in memory.

The search corrects labels: a node whose lengths were shortened waits to be scanned, and scanning it offers its
neighbors the path through it. The result is the same to the bit in any order of scans: the least over all paths of the
weights summed from the source. So the order is chosen for few scans and near memory: nodes wait in buckets by their
distance, as far as known, from the first source, which is in the middle of the others. Far away all fronts move the
same way and one scan of a node serves all sources; near the sources a node is scanned a few times.

Where sources are far apart, nodes wait by their distance from the nearest source instead. If weights differ too much, a
search gives up after a number of scans, and each source is searched alone, if need be with a heap: slower, never wrong.
How earlier sources went decides how later ones are searched.
"""

import heapq
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from pipeline.numerics.compiled import LANES, compiled, prefetch, relax
from pipeline.types import AnyArray, FloatArray, IntArray

# Mean scans of a node after which a search gives up, from several sources and from one.
MOST_SCANS, MOST_SCANS_ALONE = 6, 4
# Sources farther from the first than this share of the farthest node share no front. This is common among images, and
# wherever all points are about equally far apart.
FAR_APART = 0.28
# Nodes wait by their distance from the first source or from the nearest; or sources are searched one by one.
BY_FIRST, BY_NEAREST, ALONE = range(3)
# Nodes sampled to estimate the distance of the farthest.
SAMPLED_NODES = 1000
# Buckets are narrower for one source, where a node's bucket decides alone when it is scanned.
NARROWER = 4
# Open buckets; a longer edge leads into the last of them.
RING = 1024
# Weights sampled for the width of buckets.
SAMPLED_WEIGHTS = 10_000
# How many scans ahead memory is prefetched.
AHEAD = 4

# Offsets, targets and weights of a graph in CSR form.
Csr: TypeAlias = tuple[AnyArray, AnyArray, AnyArray]
# Whether a node waits to be scanned, the next node in its bucket, both (n,), and the nodes of the current bucket.
Waits: TypeAlias = tuple[AnyArray, AnyArray, AnyArray]


@dataclass(frozen=True)
class PathGraph:
    """A graph in CSR form with edges in both directions; weights are at least 0, and zero is an edge like any other."""

    offsets: IntArray
    targets: AnyArray
    weights: AnyArray

    @property
    def n_nodes(self) -> int:
        return len(self.offsets) - 1

    @property
    def csr(self) -> Csr:
        return self.offsets, self.targets, self.weights

    @cached_property
    def bucket_width(self) -> float:
        """Half a typical weight: so few nodes wait in a bucket that their order hardly matters."""
        sample = self.weights[:: max(1, len(self.weights) // SAMPLED_WEIGHTS)].astype(np.float64)
        # Halved first, as the sum of two huge weights would overflow; a subnormal width would have no reciprocal.
        halves = sample[sample > 0] / 2
        return max(float(np.median(halves)) if len(halves) else 0.5, float(np.finfo(np.float64).tiny))

    @cached_property
    def may_overflow(self) -> bool:
        """Whether the length of a path may exceed double precision."""
        return math.isinf(float(self.weights.max(initial=0.0)) * self.n_nodes)


class PathSearch:
    """Repeated searches in one graph, in the same memory, for one thread at a time: the system would take as long to
    clear fresh memory of this size as a search takes."""

    def __init__(self, graph: PathGraph) -> None:
        self._graph = graph
        n_nodes = graph.n_nodes
        self._lengths = np.empty((n_nodes, LANES))
        self._alone, self._nearest = np.empty(n_nodes), np.empty(n_nodes, dtype=np.int32)
        waiting, next_of = np.zeros(n_nodes, dtype=np.uint8), np.empty(n_nodes, dtype=np.int32)
        self._waits = waiting, next_of, np.empty(n_nodes + 1, dtype=np.int32)
        # Nodes at infinite length from the first source would never wait.
        self._least = BY_NEAREST if graph.may_overflow else BY_FIRST
        self._far_apart: bool | None = None

    def lengths(self, sources: IntArray) -> FloatArray:
        """Lengths (n, LANES) of the shortest paths from up to LANES sources, infinite where there is none and in unused
        columns. Works best with sources near each other, the middle one first. The next search overwrites the array."""
        self._lengths.fill(np.inf)
        if len(sources):
            for lane in self._not_found_together(sources):
                self._lengths[:, lane] = self.lengths_from(int(sources[lane]))
        return self._lengths

    def spread(self, starts: IntArray) -> tuple[FloatArray, AnyArray, bool]:
        """The length (n,) of each node's shortest path from the nearest start, the number of that start or -1, and
        whether these are final rather than given up. The next search overwrites the arrays."""
        graph, lengths, nearest = self._graph, self._alone, self._nearest
        lengths.fill(np.inf)
        nearest.fill(-1)
        lengths[starts], nearest[starts] = 0.0, np.arange(len(starts))
        final = _spread(graph.csr, starts, graph.bucket_width / NARROWER, self._waits, lengths, nearest)
        self._waits[0].fill(0)
        return lengths, nearest, final

    def lengths_from(self, source: int) -> FloatArray:
        lengths, _, final = self.spread(np.array([source]))
        if not final:
            _search_by_heap(self._graph.csr, source, lengths)
        return lengths

    def _not_found_together(self, sources: IntArray) -> IntArray:
        """Search from all sources at once; return the lanes whose lengths were not all found."""
        if self._far_apart is None:
            self._far_apart = _are_far_apart(self.lengths_from(int(sources[0])), sources)
        order = max(self._least, BY_NEAREST if self._far_apart else BY_FIRST)
        csr, width, lengths, by_nearest = self._graph.csr, self._graph.bucket_width, self._lengths, order == BY_NEAREST
        found = order != ALONE and _scan_together(csr, sources, by_nearest, width, self._waits, lengths)
        self._waits[0].fill(0)
        if not found:
            self._least = min(order + 1, ALONE)
            return np.arange(len(sources))
        self._far_apart = _are_far_apart(lengths[:, 0], sources)
        # A source that the front of the first never reaches knows nothing of its surroundings.
        return np.flatnonzero(np.isinf(lengths[sources, 0]) & (not by_nearest))


def _are_far_apart(from_first: FloatArray, sources: IntArray) -> bool:
    """Whether sources are far from the first relative to about the farthest node, given all distances (n,) from it."""
    seen = from_first[:: max(1, len(from_first) // SAMPLED_NODES)]
    farthest, apart = (float(each.max(initial=0.0, where=np.isfinite(each))) for each in (seen, from_first[sources]))
    return apart > FAR_APART * farthest


@compiled
def _scan_together(
    csr: Csr, sources: AnyArray, by_nearest: bool, width: float, waits: Waits, lengths: AnyArray
) -> bool:
    """Fill in the lengths from all sources, one per lane; False if that took too many scans, and the lengths are not
    final. A node stays in the bucket of its first length, although that may shorten; some nodes are scanned again for
    this. By the first source, a node reached only by other fronts does not wait: the front of the first is still to
    come."""
    offsets, targets, weights = csr
    waiting, next_of, queue = waits
    # A node waits in one list: that of a later bucket, or the queue of the current one, which is a ring.
    first_of = np.full(RING, -1, dtype=np.int32)
    for lane in range(len(sources)):
        lengths[sources[lane], lane] = 0.0
    starts = sources if by_nearest else sources[:1]
    n_waiting, bucket, per_length = _put_all(starts, waiting, first_of, next_of), 0, 1.0 / width
    scans_left = MOST_SCANS * len(waiting) + RING
    while n_waiting > 0 and scans_left > 0:
        begin, end = 0, _emptied(first_of, next_of, bucket % RING, offsets, queue)
        while begin != end and scans_left > 0:
            u = np.uint64(queue[begin])
            begin = _following(begin, queue)
            _fetch_ahead(csr, lengths, queue, begin, end)
            waiting[u] = 0
            n_waiting -= 1
            scans_left -= 1
            for edge in range(np.uint64(offsets[u]), np.uint64(offsets[u + np.uint64(1)])):
                v = np.uint64(targets[edge])
                if relax(lengths, u, v, np.float64(weights[edge])) and not waiting[v]:
                    front = _least(lengths[v]) if by_nearest else lengths[v, 0]
                    if front == np.inf:
                        continue
                    waiting[v] = 1
                    n_waiting += 1
                    place = int(min(front * per_length, bucket + RING - 1.0))
                    if place > bucket:
                        _put(first_of, next_of, place % RING, v)
                    else:
                        queue[end] = v
                        end = _following(end, queue)
        bucket += 1
    return n_waiting == 0


@compiled
def _least(row: AnyArray) -> float:
    least: float = row[0]
    for lane in range(1, LANES):
        least = min(least, row[lane])
    return least


@compiled
def _spread(csr: Csr, starts: AnyArray, width: float, waits: Waits, lengths: AnyArray, nearest: AnyArray) -> bool:
    """Fill in the length from the nearest start; False if that took too many scans, and the lengths are not final."""
    offsets, targets, weights = csr
    waiting, next_of, queue = waits
    first_of = np.full(RING, -1, dtype=np.int32)
    n_waiting, bucket, per_length = _put_all(starts, waiting, first_of, next_of), 0, 1.0 / width
    scans_left = MOST_SCANS_ALONE * len(nearest) + RING
    while n_waiting > 0 and scans_left > 0:
        begin, end = 0, _emptied(first_of, next_of, bucket % RING, offsets, queue)
        while begin != end and scans_left > 0:
            u = np.uint64(queue[begin])
            begin = _following(begin, queue)
            if begin + AHEAD < end:
                _fetch_edges(csr, queue[begin + AHEAD])
            waiting[u] = 0
            n_waiting -= 1
            scans_left -= 1
            for edge in range(np.uint64(offsets[u]), np.uint64(offsets[u + np.uint64(1)])):
                v = np.uint64(targets[edge])
                offered = lengths[u] + np.float64(weights[edge])
                if offered < lengths[v]:
                    lengths[v], nearest[v] = offered, nearest[u]
                    if not waiting[v]:
                        waiting[v] = 1
                        n_waiting += 1
                        place = int(min(offered * per_length, bucket + RING - 1.0))
                        if place > bucket:
                            _put(first_of, next_of, place % RING, v)
                        else:
                            queue[end] = v
                            end = _following(end, queue)
        bucket += 1
    return n_waiting == 0


@compiled
def _put_all(nodes: AnyArray, waiting: AnyArray, first_of: AnyArray, next_of: AnyArray) -> int:
    """Put nodes into the first bucket; return the number of different ones."""
    n_different = 0
    for node in nodes:
        if not waiting[node]:
            waiting[node] = 1
            _put(first_of, next_of, 0, node)
            n_different += 1
    return n_different


@compiled
def _put(first_of: AnyArray, next_of: AnyArray, bucket: int, node: Any) -> None:
    next_of[node] = first_of[bucket]
    first_of[bucket] = node


@compiled
def _following(place: int, queue: AnyArray) -> int:
    return place + 1 if place + 1 < len(queue) else 0


@compiled
def _emptied(first_of: AnyArray, next_of: AnyArray, bucket: int, offsets: AnyArray, queue: AnyArray) -> int:
    """Move the nodes of a bucket into the queue; return how many."""
    node, end = first_of[bucket], 0
    first_of[bucket] = -1
    while node >= 0:
        queue[end] = node
        prefetch(offsets, np.uint64(node))
        node = next_of[node]
        end += 1
    return end


@compiled
def _fetch_ahead(csr: Csr, lengths: AnyArray, queue: AnyArray, begin: int, end: int) -> None:
    """Prefetch the edges of a node that is scanned soon, and the lengths at the ends of the next node's edges."""
    if begin + AHEAD < end:
        offsets, targets, _ = csr
        _fetch_edges(csr, queue[begin + AHEAD])
        prefetch(lengths, np.uint64(queue[begin + AHEAD]))
        following = np.uint64(queue[begin + 1])
        for edge in range(np.uint64(offsets[following]), np.uint64(offsets[following + np.uint64(1)])):
            prefetch(lengths, np.uint64(targets[edge]))


@compiled
def _fetch_edges(csr: Csr, node: int) -> None:
    offsets, targets, weights = csr
    first = np.uint64(offsets[np.uint64(node)])
    prefetch(targets, first)
    prefetch(weights, first)


@compiled
def _search_by_heap(csr: Csr, source: int, lengths: AnyArray) -> None:
    """Lengths from one source by Dijkstra's algorithm, for any weights."""
    lengths[:] = np.inf
    shorten(csr, source, lengths)


@compiled
def shorten(csr: Csr, source: int, lengths: AnyArray) -> None:
    """Dijkstra's algorithm from one more source, limited to nodes that it is nearer to than `lengths` say."""
    offsets, targets, weights = csr
    lengths[source] = 0.0
    queue: Any = [(0.0, np.int64(source))]
    while queue:
        length, u = heapq.heappop(queue)
        if length > lengths[u]:
            continue
        for edge in range(offsets[u], offsets[u + 1]):
            v, offered = np.int64(targets[edge]), length + np.float64(weights[edge])
            if offered < lengths[v]:
                lengths[v] = offered
                heapq.heappush(queue, (offered, v))
