"""Edges in both directions [B sec. 2]: new points are joined to their nearest, and to those that would take them.

A fitted point takes a new one if that is no farther than its own k-th neighbor: every point has a radius of its own. In
few dimensions boxes around the balls of nearby points, and around boxes, tell which of them a query is in; in many,
float32 products propose pairs as in a search for nearest points. In both cases the distance summed in float64 decides.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.directions import chords_of, edge_lengths
from pipeline.numerics.neighbors.exact import KD_TREE_MAX_DIMENSION, TREE_MARGIN
from pipeline.numerics.neighbors.products import (
    SINGLE,
    UNDERFLOW,
    Portion,
    Room,
    distance_of_rows,
    local_portions,
)
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, joined_pairs
from pipeline.numerics.neighbors.spatial import curve_places
from pipeline.types import AnyArray, FloatArray, IntArray

# Points in a box of the lowest level, and boxes in one of the next.
POINTS_PER_BOX, BOXES_PER_BOX = 16, 8
QUERIES_AT_ONCE = 1 << 13
# Pairs that are listed at once, if a query has no more: 24 MB.
PAIRS_AT_ONCE = 1 << 20
# Edges of a new point at most, per neighbor of its own and in any case. Without a limit, rows beside a point that
# thousands take for their neighbor would have thousands of edges each; the nearest are those that matter.
MOST_EDGES_PER_NEIGHBOR, MOST_EDGES = 4, 256


class TakerSearch:
    """A search among fixed points (n, D), each with its reach (n,) by a metric, for those that reach to a query."""

    def __init__(self, points: AnyArray, reach: FloatArray, metric: str = "euclidean") -> None:
        self._reach, self._metric = reach, metric
        radii = self._radii = reaching_chords(metric, reach)
        few = points.shape[1] <= KD_TREE_MAX_DIMENSION
        self._balls = _Balls(points, radii) if few else None
        self._portions = [] if few else list(local_portions(points))

    def pairs(self, queries: AnyArray, n_threads: int = 1) -> Pairs:
        """Every query with each point that reaches to it, as far apart as the metric says, in no particular order."""

        def listed(first: int) -> Pairs:
            found = within_reach_of(self._metric, self._pairs(queries[first : first + QUERIES_AT_ONCE]), self._reach)
            return found._replace(queries=found.queries + first)

        with ThreadPoolExecutor(n_threads) as pool:
            return joined_pairs(list(pool.map(listed, range(0, len(queries), QUERIES_AT_ONCE))))

    def _pairs(self, queries: AnyArray) -> Pairs:
        if self._balls is not None:
            return self._balls.pairs(queries)
        parts, everyone, nothing = [], np.arange(len(queries)), np.zeros(len(queries))
        for portion in self._portions:
            radii = self._radii[portion.rows]
            for block, room in portion.blocks(queries, everyone, nothing, float(radii.max())):
                found = reaching_pairs(portion, radii, queries, block, room)
                parts += [pairs._replace(points=portion.rows[pairs.points]) for pairs in found]
        return joined_pairs(parts)


class _Balls:
    """Points in the order of a space-filling curve, and the boxes around the balls of consecutive ones."""

    def __init__(self, points: AnyArray, radii: FloatArray) -> None:
        self._order = np.argsort(curve_places(points, np.zeros(len(points), np.int64), 1), kind="stable")
        self._points, self._radii = points[self._order], radii[self._order]
        lowest = _ball_boxes(self._points, self._radii)
        levels = [lowest]
        while len(levels[-1]) > BOXES_PER_BOX:
            levels.append(_boxes_of_boxes(levels[-1]))
        self._boxes = np.concatenate(levels[::-1])
        # Where each level begins, the uppermost first, and where the last ends.
        self._begins = np.cumsum([0, *(len(level) for level in levels[::-1])])

    def pairs(self, queries: AnyArray) -> Pairs:
        n_points = len(self._points)
        room, parts, done = _room(min(max(PAIRS_AT_ONCE, n_points), len(queries) * n_points)), [], 0
        while done < len(queries):
            done, n = _list_in_balls(self._points, self._radii, self._boxes, self._begins, queries, done, room)
            found = _listed(room, n)
            parts.append(found._replace(points=self._order[found.points]))
        return joined_pairs(parts)


def _room(size: int) -> Pairs:
    return Pairs(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size))


def _listed(room: Pairs, n_pairs: int) -> Pairs:
    return Pairs(room.queries[:n_pairs].copy(), room.points[:n_pairs].copy(), room.distances[:n_pairs].copy())


@compiled
def _ball_boxes(points: AnyArray, radii: AnyArray) -> FloatArray:
    n_boxes = -(-len(points) // POINTS_PER_BOX)
    boxes = np.empty((n_boxes, 2, points.shape[1]))
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf
    for i in range(len(points)):
        box, reach = boxes[i // POINTS_PER_BOX], radii[i] * (1 + TREE_MARGIN)
        for axis in range(points.shape[1]):
            value = np.float64(points[i, axis])
            box[0, axis] = min(box[0, axis], value - reach)
            box[1, axis] = max(box[1, axis], value + reach)
    return boxes


@compiled
def _boxes_of_boxes(lower: AnyArray) -> FloatArray:
    boxes = np.empty((-(-len(lower) // BOXES_PER_BOX), *lower.shape[1:]))
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf
    for i in range(len(lower)):
        for axis in range(lower.shape[2]):
            box = boxes[i // BOXES_PER_BOX]
            box[0, axis] = min(box[0, axis], lower[i, 0, axis])
            box[1, axis] = max(box[1, axis], lower[i, 1, axis])
    return boxes


@compiled
def _list_in_balls(
    points: AnyArray, radii: AnyArray, boxes: AnyArray, begins: AnyArray, queries: AnyArray, first: int, room: Pairs
) -> tuple[int, int]:
    """List the balls that hold queries, from the `first` query on, as long as there is room for all points; return the
    query that is next, and how many were listed."""
    n_listed = 0
    # A box of each level that is open, and those beside it that wait.
    waiting = np.empty((len(begins) * BOXES_PER_BOX, 2), np.int64)
    for query in range(first, len(queries)):
        if n_listed + len(points) > len(room.queries):
            return query, n_listed
        n_waiting = _put(waiting, 0, 0, begins[0], begins[1])
        while n_waiting:
            n_waiting -= 1
            level, box = waiting[n_waiting]
            if _is_inside(queries, query, boxes, box):
                place = box - begins[level]
                if level + 2 < len(begins):
                    below, end = begins[level + 1] + place * BOXES_PER_BOX, begins[level + 2]
                    n_waiting = _put(waiting, n_waiting, level + 1, below, min(below + BOXES_PER_BOX, end))
                else:
                    n_listed = _list_in_box(points, radii, place * POINTS_PER_BOX, queries, query, room, n_listed)
    return len(queries), n_listed


@compiled
def _put(waiting: AnyArray, n_waiting: int, level: int, first: int, last: int) -> int:
    """Let boxes of a level wait; return how many do then."""
    for box in range(first, last):
        waiting[n_waiting, 0], waiting[n_waiting, 1] = level, box
        n_waiting += 1
    return n_waiting


@compiled
def _list_in_box(
    points: AnyArray, radii: AnyArray, first: int, queries: AnyArray, query: int, room: Pairs, n_listed: int
) -> int:
    for point in range(first, min(first + POINTS_PER_BOX, len(points))):
        n_listed = _list_if_near(points, radii, point, queries, query, room, n_listed)
    return n_listed


@compiled
def _list_if_near(
    points: AnyArray, radii: AnyArray, point: int, queries: AnyArray, query: int, room: Pairs, n_listed: int
) -> int:
    """List a pair if the point's radius reaches to the query; return how many pairs are listed then."""
    apart = distance_of_rows(points, point, queries, query)
    if apart > radii[point]:
        return n_listed
    room.queries[n_listed], room.points[n_listed], room.distances[n_listed] = query, point, apart
    return n_listed + 1


@compiled
def _is_inside(queries: AnyArray, query: int, boxes: AnyArray, box: int) -> bool:
    for axis in range(queries.shape[1]):
        value = np.float64(queries[query, axis])
        if value < boxes[box, 0, axis] or value > boxes[box, 1, axis]:
            return False
    return True


def reaching_pairs(
    portion: Portion, radii: FloatArray, queries: AnyArray, block: IntArray, room: Room
) -> Iterator[Pairs]:
    """Some queries, whose products are known, with those points of a portion whose radius (n,) reaches to them, by
    their places in it."""
    # Squared in units of the products, and rounded up.
    squares = np.square(np.ldexp(radii, -portion.exponent)) * (1.0 + 4 * SINGLE)
    with np.errstate(over="ignore"):
        limits = squares.astype(np.float32)
    listed, done = _room(max(1 << 14, len(portion.points))), 0
    while done < len(block):
        done, n = _list_reaching(portion.points, radii, limits, queries, block, room, done, listed)
        yield _listed(listed, n)


@compiled
def _list_reaching(
    points: AnyArray,
    radii: AnyArray,
    limits: AnyArray,
    queries: AnyArray,
    among: AnyArray,
    room: Room,
    first: int,
    listed: Pairs,
) -> tuple[int, int]:
    """List the points that reach to queries, from the `first` of the block on, as long as there is room for all points;
    return the place in the block that is next, and how many were listed. The bound on rounding is that of a search for
    nearest points, with each point's own limit instead of the query's."""
    n_listed, n_points, largest = 0, len(points), limits.max()
    for b in range(first, len(among)):
        if n_listed + n_points > len(listed.queries):
            return b, n_listed
        products, scale = room.products[b], room.factors[b, room.factors.shape[1] - 1]
        bound = (room.bounds[b, 1] - room.bounds[b, 0]) * room.bounds[b, 2] + UNDERFLOW
        base = np.float32(bound + 4.0 * SINGLE * (abs(bound) + largest * scale))
        for start in range(0, n_points, RUN):
            if start + RUN > n_points or _any_near(products, limits, base, scale, start):
                for j in range(start, min(start + RUN, n_points)):
                    if products[j] <= base + limits[j] * scale:
                        n_listed = _list_if_near(points, radii, j, queries, among[b], listed, n_listed)
    return len(among), n_listed


@compiled
def _any_near(products: AnyArray, limits: AnyArray, base: np.float32, scale: np.float32, start: int) -> bool:
    # Slices of a known length: only so is the loop compiled to vector instructions.
    some, own, any_near = products[start : start + RUN], limits[start : start + RUN], np.int32(0)
    for j in range(RUN):
        any_near = np.int32(any_near | np.int32(some[j] <= np.float32(base + own[j] * scale)))
    return bool(any_near)


# Products compared at once, in vector registers; most runs have no hit.
RUN = 64


def most_edges(k: int) -> int:
    """How many edges a new point has at most if it has k of its own."""
    return max(MOST_EDGES, MOST_EDGES_PER_NEIGHBOR * k)


def nearest_takers(takers: Pairs, k: int) -> Pairs:
    """Those pairs that may be among the edges of new points with k of their own, where very many were found."""
    order = np.lexsort((takers.points, takers.distances, takers.queries))
    queries = takers.queries[order]
    nearest = order[np.arange(len(order)) - np.searchsorted(queries, queries) < most_edges(k)]
    return Pairs(takers.queries[nearest], takers.points[nearest], takers.distances[nearest])


def with_takers(distances: FloatArray, neighbors: IntArray, takers: Pairs) -> RadiusLists:
    """The k nearest (p, k) of new points and all that would take them, each once; of very many the nearest."""
    n_points, k = neighbors.shape
    order = np.argsort(takers.queries, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(takers.queries, minlength=n_points))])
    room = k * n_points + len(order)
    lists = RadiusLists(np.zeros(n_points + 1, np.int64), np.empty(room, np.int64), np.empty(room))
    _merge(distances, neighbors, takers.points[order], takers.distances[order], begins, most_edges(k), lists)
    n = int(lists.offsets[-1])
    return RadiusLists(lists.offsets, lists.indices[:n], lists.distances[:n])


@compiled
def _merge(
    distances: AnyArray,
    neighbors: AnyArray,
    takers: AnyArray,
    apart: AnyArray,
    begins: AnyArray,
    most: int,
    lists: RadiusLists,
) -> None:
    """Each query's nearest, which are sorted, then its takers inserted by distance, ties by number."""
    k, end = neighbors.shape[1], 0
    for i in range(len(neighbors)):
        first = end
        for j in range(k):
            lists.indices[end], lists.distances[end] = neighbors[i, j], distances[i, j]
            end += 1
        for taker in range(begins[i], begins[i + 1]):
            end = _inserted(lists, first, min(end, first + most), end - first >= most, takers[taker], apart[taker])
        lists.offsets[i + 1] = end


@compiled
def _inserted(lists: RadiusLists, first: int, end: int, is_full: bool, point: int, distance: float) -> int:
    """Insert a point into the sorted list from `first` up to `end` unless it is there; return where the list ends."""
    indices, distances = lists.indices, lists.distances
    place = end
    while place > first and (
        distance < distances[place - 1] or (distance == distances[place - 1] and point < indices[place - 1])
    ):
        place -= 1
    # The nearest may tie in another order: by the rows that nodes stand for.
    other = place - 1
    while other >= first and distances[other] == distance:
        if indices[other] == point:
            return end
        other -= 1
    other = place
    while other < end and distances[other] == distance:
        if indices[other] == point:
            return end
        other += 1
    if is_full and place == end:
        return end
    last = end - 1 if is_full else end
    for j in range(last, place, -1):
        indices[j], distances[j] = indices[j - 1], distances[j - 1]
    indices[place], distances[place] = point, distance
    return last + 1


def reaching_chords(metric: str, reach: FloatArray) -> FloatArray:
    """How far apart points may be for one to reach the other by a metric; a little more, as chords are rounded."""
    chords = chords_of(metric, reach)
    return chords if chords is reach else chords * (1.0 + TREE_MARGIN)


def within_reach_of(metric: str, pairs: Pairs, reach: FloatArray) -> Pairs:
    """Pairs as far apart as a metric says, those that are within the reach (n,) of their points."""
    lengths = edge_lengths(metric, pairs.distances)
    return pairs._replace(distances=lengths).where(lengths <= reach[pairs.points])
