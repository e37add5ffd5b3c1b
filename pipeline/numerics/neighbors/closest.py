"""The closest pair of two sets of points, and how many points are nearer to one than another is: float32 products
propose, distances summed in float64 decide, ties by row."""

from collections.abc import Iterable

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors.products import (
    SINGLE,
    UNDERFLOW,
    Portion,
    Room,
    distance_of_rows,
    hits,
    product_limit,
)
from pipeline.types import AnyArray, IntArray

# A length, and the rows at its ends, the lower first.
Link = tuple[float, int, int]


def closest_pair(portions: Iterable[Portion], queries: AnyArray, rows: IntArray, limit: float, best: Link) -> Link:
    """The link between a point of the portions and a query, known by its row, that is less than `best`, if there is one
    up to `limit`."""
    length, low, high = best
    for portion in portions:
        limits = np.full(len(queries), min(limit, length))
        for block, room in portion.blocks(queries, np.arange(len(queries)), limits):
            length, low, high = _closest(
                (portion.points, portion.rows), (queries, rows), block, room, limit, (length, low, high)
            )
    return float(length), int(low), int(high)


@compiled
def _closest(
    points: tuple[AnyArray, AnyArray],
    queries: tuple[AnyArray, AnyArray],
    block: AnyArray,
    room: Room,
    limit: float,
    best: Link,
) -> Link:
    """A better link to queries whose products are known, or the best so far. Only pairs are measured whose product is
    within rounding of it."""
    length, low, high = best
    places = np.empty(len(points[0]), dtype=np.int64)
    for b in range(len(block)):
        i = block[b]
        if min(length, limit) == np.inf:
            length, low, high = _less(points, queries, int(np.argmin(room.products[b])), i, length, low, high)
        allowed = product_limit(min(length, limit), room.bounds[b])
        n_hits = hits(room.products[b], allowed, places)
        for place in places[:n_hits]:
            if room.products[b, place] <= allowed:
                before = length
                length, low, high = _less(points, queries, place, i, length, low, high)
                if length < before:
                    allowed = min(allowed, product_limit(min(length, limit), room.bounds[b]))
    return length, low, high


@compiled
def _less(
    points: tuple[AnyArray, AnyArray],
    queries: tuple[AnyArray, AnyArray],
    place: int,
    i: int,
    length: float,
    low: int,
    high: int,
) -> Link:
    """The lesser of a link and that from a point to a query."""
    apart = distance_of_rows(points[0], place, queries[0], i)
    row, other = points[1][place], queries[1][i]
    lower, higher = min(row, other), max(row, other)
    if apart < length or (apart == length and (lower < low or (lower == low and higher < high))):
        return apart, lower, higher
    return length, low, high


class NearerCounts:
    """How many points are nearer to either end of some links than the other end, itself among them, counted as points
    come along. Ends are points (l, D) with their rows (l,)."""

    def __init__(self, starts: tuple[AnyArray, IntArray], ends: tuple[AnyArray, IntArray]) -> None:
        self._points = np.concatenate([starts[0], ends[0]])
        self._others = np.concatenate([ends[1], starts[1]])
        self._lengths = _lengths_between(self._points, np.concatenate([ends[0], starts[0]]))
        self.counts = np.zeros(len(self._points), np.int64)

    def add(self, portion: Portion) -> None:
        """Take in some of the points."""
        found = self._points, self._others, self._lengths
        for block, room in portion.blocks(self._points, np.arange(len(self._points)), self._lengths):
            _count_nearer((portion.points, portion.rows), found, block, room, self.counts)


def enough_neighbors_of(counts: IntArray) -> int:
    """The number of neighbors with which one end of each link at least is among those of the other, given how many
    points (2 l,) are nearer to either end, itself among them."""
    return max(1, int(counts.reshape(2, -1).min(axis=0).max()))


@compiled
def _lengths_between(points: AnyArray, others: AnyArray) -> AnyArray:
    lengths = np.empty(len(points))
    for i in range(len(points)):
        lengths[i] = distance_of_rows(points, i, others, i)
    return lengths


@compiled
def _count_nearer(
    points: tuple[AnyArray, AnyArray],
    ends: tuple[AnyArray, AnyArray, AnyArray],
    block: AnyArray,
    room: Room,
    counts: AnyArray,
) -> None:
    """Count the points that are nearer to queries than their limit, or as near with a lower row than the other end.
    Those whose product says so, whatever its rounding, are not measured."""
    queries, others, lengths = ends
    places = np.empty(len(points[0]), dtype=np.int64)
    for b in range(len(block)):
        i, bound = block[b], room.bounds[b]
        surely = (lengths[i] * lengths[i] - bound[0] - bound[1]) * bound[2]
        surely -= UNDERFLOW + abs(surely) * SINGLE
        n_hits = hits(room.products[b], product_limit(lengths[i], bound), places)
        for place in places[:n_hits]:
            is_nearer = room.products[b, place] < surely
            if not is_nearer:
                apart = distance_of_rows(points[0], place, queries, i)
                is_nearer = apart < lengths[i] or (apart == lengths[i] and points[1][place] < others[i])
            counts[i] += is_nearer
