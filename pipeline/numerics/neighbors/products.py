"""Nearest neighbors in many dimensions: float32 matrix products select candidates, float64 distances rank them.

Points p and queries q are centered on the points' mean and scaled by powers of two to a length of at most 1. The
product of [q, 1] with [-2p, p'p] is then their squared distance less q'q. Its rounding is bounded, so points whose
product exceeds the k-th distance so far by more than that bound need no exact distance.

Lists of nearest points are sorted by distance, ties by row; the result does not depend on the order of insertion.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray, IntArray

# Distances (p, k) and rows (p, k) of the nearest points of p queries.
Lists: TypeAlias = tuple[AnyArray, AnyArray]


@compiled
def insert(distances: AnyArray, indices: AnyArray, distance: float, row: int) -> None:
    """Insert (distance, row) into a list sorted by distance, then row, if it belongs there."""
    place = len(distances) - 1
    if distance > distances[place] or (distance == distances[place] and row > indices[place] >= 0):
        return
    while place > 0 and (
        distance < distances[place - 1] or (distance == distances[place - 1] and row < indices[place - 1])
    ):
        distances[place], indices[place] = distances[place - 1], indices[place - 1]
        place -= 1
    distances[place], indices[place] = distance, row


@compiled
def insert_into_row(distances: AnyArray, indices: AnyArray, row: int, n_found: int, distance: float, index: int) -> int:
    """`insert` into one of many lists, of which `n_found` places are filled; return how many are filled then. For inner
    loops: no slices, unsigned indices (signed ones are checked for being negative), and only filled places move."""
    i, place = np.uint64(row), np.uint64(min(n_found, distances.shape[1] - 1))
    if n_found > place and (
        distance > distances[i, place] or (distance == distances[i, place] and index > indices[i, place])
    ):
        return n_found
    while place > 0:
        before = place - np.uint64(1)
        if not (distance < distances[i, before] or (distance == distances[i, before] and index < indices[i, before])):
            break
        distances[i, place], indices[i, place] = distances[i, before], indices[i, before]
        place = before
    distances[i, place], indices[i, place] = distance, index
    return int(min(n_found + 1, distances.shape[1]))


@compiled
def n_listed(indices: AnyArray, row: int) -> int:
    """How many places of one of many lists are filled; the rest is -1."""
    i, n_found = np.uint64(row), 0
    while n_found < indices.shape[1] and indices[i, np.uint64(n_found)] >= 0:
        n_found += 1
    return n_found


@compiled
def distance_of_rows(points: AnyArray, i: int, others: AnyArray, j: int) -> float:
    """Rooted before ranking: squares that differ may have equal roots, and ties are those of the returned roots."""
    one, other, total = np.uint64(i), np.uint64(j), 0.0
    for k in range(points.shape[1]):
        axis = np.uint64(k)
        difference = np.float64(points[one, axis]) - np.float64(others[other, axis])
        total += difference * difference
    return math.sqrt(total)


# Points compared with queries at once, few enough for the products of many queries to stay in the cache.
PORTION = 2048
# Entries of a block of products: 1 MB, which stays in the cache.
BLOCK_ENTRIES = 1 << 18
# Entries compared with the limit at once, in vector registers; most runs have no hit.
RUN = 64
# Products represented by their least in the search for a limit.
SHARE = 16
# Outliers, with this many times the median squared distance from the mean, get their own portion: the bound on
# rounding grows with the farthest point.
FAR = 64.0
SINGLE, DOUBLE = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
# Bound on the sum of numbers too small for float32, in up to a million columns.
UNDERFLOW = 2.0**-100
# The least power of two to scale by: squares of the scale must not overflow.
LEAST_EXPONENT = -400


def portions(points: AnyArray, rows: IntArray) -> Iterator["Portion"]:
    """Points (n, D) with their rows (n,) in portions that are searched together, outliers apart."""
    n_parts = -(-len(points) // PORTION)
    bounds = [len(points) * part // n_parts for part in range(n_parts + 1)]
    for first, last in pairwise(bounds):
        yield from _alike(points[first:last], rows[first:last])


def local_portions(points: AnyArray, at_most: int = PORTION) -> Iterator["Portion"]:
    """Portions of points in any order, known by their places and near each other."""
    for piece in local_pieces(points, at_most):
        yield from _alike(points[piece], piece)


def local_pieces(points: AnyArray, at_most: int) -> Iterator[IntArray]:
    """The places of all points, halved along the widest axis until small enough."""
    pieces = [np.arange(len(points))]
    while pieces:
        piece = pieces.pop()
        if len(piece) <= at_most:
            yield piece
        else:
            here, middle = points[piece], len(piece) // 2
            order = np.argpartition(here[:, np.argmax(np.ptp(here, axis=0))], middle)
            pieces += [piece[order[middle:]], piece[order[:middle]]]


def _alike(points: AnyArray, rows: IntArray) -> Iterator["Portion"]:
    center = points.mean(axis=0, dtype=np.float64)
    squares = _squared_lengths(points, center)
    longest, middle = squares.max(), np.partition(squares, len(squares) // 2)[len(squares) // 2]
    if longest > FAR * middle:
        far = squares > FAR * middle
        for part in (~far, far):
            yield from _alike(points[part], rows[part])
    else:
        yield Portion(points, rows, center, math.sqrt(longest))


class Room(NamedTuple):
    """Workspace for the products of b queries. bounds (b, 3): q'q, the margin for rounding, and the factor by which
    these and a squared distance are multiplied for comparison with products."""

    near: IntArray
    factors: AnyArray
    products: AnyArray
    bounds: FloatArray


class Portion:
    """Points (n, D) that are searched together, each known by a row (n,), which breaks ties. center: any place among
    them; longest: the distance of the farthest from it."""

    def __init__(self, points: AnyArray, rows: IntArray, center: FloatArray, longest: float) -> None:
        self.points, self.rows = points, rows
        self._center, self._longest = center, longest
        self.exponent = max(LEAST_EXPONENT, math.frexp(longest)[1])
        self._factors = _factors(points, center, math.ldexp(1.0, -self.exponent))

    def refine(
        self,
        queries: AnyArray,
        own: IntArray,
        distances: FloatArray,
        found: IntArray,
        among: IntArray | None = None,
        at_least: float = 0.0,
        also: "Callable[[IntArray, Room], None] | None" = None,
    ) -> None:
        """Insert these points into the lists of the k nearest of all queries, or of those `among` them, in place.

        `also` is called with each block of queries that may have points as near as their k-th or within `at_least`,
        and with the products of these.
        """
        chosen = np.arange(len(queries)) if among is None else among
        for block, room in self.blocks(queries, chosen, distances[:, -1], at_least):
            _refine_block(self.points, self.rows, queries, own, block, room, (distances, found))
            if also is not None:
                also(block, room)

    def blocks(
        self, queries: AnyArray, among: IntArray, limits: FloatArray, at_least: float = 0.0
    ) -> Iterator[tuple[IntArray, "Room"]]:
        """Those queries that may have points within their limits (p,) or `at_least`, some at a time, with their
        products. The room is the same each time."""
        step = max(1, min(len(among), BLOCK_ENTRIES // len(self.points)))
        room = self.room(step)
        for first in range(0, len(among), step):
            yield self.multiply(queries, among[first : first + step], limits, room, at_least), room

    def room(self, n_queries: int) -> Room:
        n_points, n_factors = self._factors.shape
        return Room(
            np.empty(n_queries, dtype=np.int64),
            np.empty((n_queries, n_factors), dtype=np.float32),
            np.empty((n_queries, n_points), dtype=np.float32),
            np.empty((n_queries, 3)),
        )

    def multiply(
        self, queries: AnyArray, among: IntArray, limits: FloatArray, room: Room, at_least: float = 0.0
    ) -> IntArray:
        """Fill in products and bounds of those queries that may have points within their limits (p,), or `at_least`;
        return them."""
        n_near = _convert_queries(queries, among, limits, at_least, self._center, self.exponent, self._longest, room)
        np.matmul(room.factors[:n_near], self._factors.T, out=room.products[:n_near])
        return room.near[:n_near]


@compiled
def _squared_lengths(points: AnyArray, center: AnyArray) -> FloatArray:
    squares = np.empty(len(points))
    for i in range(len(points)):
        squares[i] = _squared_length(points[i], center)
    return squares


@compiled
def _squared_length(point: AnyArray, center: AnyArray) -> float:
    total = 0.0
    for k in range(len(center)):
        difference = np.float64(point[k]) - center[k]
        total += difference * difference
    return total


@compiled
def _factors(points: AnyArray, center: AnyArray, scale: float) -> AnyArray:
    n_columns = len(center)
    factors = np.empty((len(points), n_columns + 1), dtype=np.float32)
    for i in range(len(points)):
        point, row, square = points[i], factors[i], 0.0
        for k in range(n_columns):
            value = (np.float64(point[k]) - center[k]) * scale
            row[k] = -2.0 * value
            square += value * value
        row[n_columns] = square
    return factors


@compiled
def _convert_queries(
    queries: AnyArray,
    among: AnyArray,
    limits: AnyArray,
    at_least: float,
    center: AnyArray,
    exponent: int,
    longest: float,
    room: Room,
) -> int:
    """Fill in the queries that may have points within their limits; return how many. A query longer than all points is
    scaled by its own length, so nothing overflows."""
    n_columns, n_near = len(center), 0
    for i in among:
        query, row = queries[i], room.factors[n_near]
        square = _squared_length(query, center)
        length = math.sqrt(square)
        if length - longest > max(limits[i], at_least) + 4.0 * DOUBLE * (n_columns + 8) * (length + longest):
            continue
        own_exponent = max(exponent, math.frexp(max(length, longest))[1])
        scale = math.ldexp(1.0, -own_exponent)
        for k in range(n_columns):
            row[k] = (np.float64(query[k]) - center[k]) * scale
        row[n_columns] = math.ldexp(1.0, exponent - own_exponent)
        room.near[n_near] = i
        room.bounds[n_near, 0] = square
        room.bounds[n_near, 1] = rounding_margin(n_columns, length, longest)
        room.bounds[n_near, 2] = math.ldexp(1.0, -exponent - own_exponent)
        n_near += 1
    return n_near


@compiled
def rounding_margin(n_columns: int, length: float, longest: float) -> float:
    """Bound on the rounding of p'p - 2 q'p, and of the squared distances that it is compared with.

    With u = SINGLE / 2, converting p, q and p'p to float32 changes terms by at most 3u of p'p + 2|q||p|, and a sum of D
    + 1 products in any order by (D + 1) u of it and little more; doubled, D + 8 times SINGLE. The float64 squares are
    at most (|q| + |p|)^2.
    """
    in_single = SINGLE * (n_columns + 8) * longest * (longest + 2.0 * length)
    return in_single + 4.0 * DOUBLE * (n_columns + 8) * (length + longest) ** 2


@compiled
def _refine_block(
    points: AnyArray, rows: AnyArray, queries: AnyArray, own: AnyArray, among: AnyArray, room: Room, lists: Lists
) -> None:
    """Compute exact distances only for points whose product is within rounding of the k-th distance so far."""
    products, bounds = room.products, room.bounds
    distances, found = lists
    places = np.empty(len(points), dtype=np.int64)
    minima = np.empty(len(points) // SHARE, dtype=np.float32)
    least = np.empty(distances.shape[1] + 1, dtype=np.float32)
    for b in range(len(among)):
        i = among[b]
        limit = product_limit(distances[i, -1], bounds[b])
        if limit == np.inf:
            limit = _limit_within(products[b], bounds[b], minima, least)
        n_hits = hits(products[b], limit, places)
        for place in places[:n_hits]:
            if products[b, place] <= limit and rows[place] != own[i]:
                insert(distances[i], found[i], distance_of_rows(points, place, queries, i), rows[place])
                limit = min(limit, product_limit(distances[i, -1], bounds[b]))


@compiled
def product_limit(distance: float, bound: AnyArray) -> np.float32:
    """No point within `distance` has a product above it; rounded up."""
    limit = (distance * distance - bound[0] + bound[1]) * bound[2] + UNDERFLOW
    return np.float32(limit + abs(limit) * SINGLE)


@compiled
def _limit_within(products: AnyArray, bound: AnyArray, minima: AnyArray, least: AnyArray) -> np.float32:
    """None of the k nearest of these points has a product above it; minima (n // SHARE,) and least (k + 1,) are
    workspace. If k is small beside n, the least of each SHARE products represents them: none of the k + 1 least of
    these is below the k + 1 least of all. One more than k, as the query itself may be among the points. `least` is a
    heap with the largest on top, which is faster than a sorted list for hundreds of entries."""
    least[:] = np.inf
    if len(minima) >= 2 * len(least):
        minima[:] = products[: len(minima)]
        for share in range(1, SHARE):
            others = products[share * len(minima) : (share + 1) * len(minima)]
            for j in range(len(minima)):
                minima[j] = others[j] if others[j] < minima[j] else minima[j]
        _keep_least(minima, least)
    else:
        _keep_least(products, least)
    limit = np.float64(least[0]) + 2.0 * (bound[1] * bound[2] + UNDERFLOW)
    return np.float32(limit + abs(limit) * SINGLE)


@compiled
def _keep_least(values: AnyArray, least: AnyArray) -> None:
    for value in values:
        if value < least[0]:
            _replace_largest(least, value)


@compiled
def _replace_largest(heap: AnyArray, value: np.float32) -> None:
    """Replace the largest value of a heap, which is on top."""
    n, place = np.uint64(len(heap)), np.uint64(0)
    while True:
        child = np.uint64(2) * place + np.uint64(1)
        if child + np.uint64(1) < n and heap[child + np.uint64(1)] > heap[child]:
            child += np.uint64(1)
        if child >= n or heap[child] <= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@compiled
def hits(products: AnyArray, limit: np.float32, places: AnyArray) -> int:
    """List the places of products up to a limit; return how many."""
    n_hits = 0
    n_runs = len(products) // RUN
    for run in range(n_runs):
        first = run * RUN
        any_hit = np.int32(0)
        for j in range(RUN):
            any_hit = np.int32(any_hit | np.int32(products[first + j] <= limit))
        if any_hit:
            for j in range(first, first + RUN):
                if products[j] <= limit:
                    places[n_hits] = j
                    n_hits += 1
    for j in range(n_runs * RUN, len(products)):
        if products[j] <= limit:
            places[n_hits] = j
            n_hits += 1
    return n_hits
