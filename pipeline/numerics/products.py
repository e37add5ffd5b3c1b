"""Nearest neighbors in many dimensions: float32 matrix products say which points to look at, float64 ranks them.

Points p and queries q are taken relative to the points' mean and scaled by powers of two so that none is longer than
1. A product of [q, 1] with [-2p, p'p] is then the squared distance of both, less q'q. Its rounding is bounded, so a
point whose product says that it is farther than the k-th so far by more than that bound needs no look.
"""

import math

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.lists import distance_between, insert
from pipeline.types import AnyArray, FloatArray, IntArray

# Entries of one block of products, 1 MB, which stay in the cache until they have been looked through.
BLOCK_ENTRIES = 1 << 18
# Entries whose hits are counted at once, in vector registers; most such runs have none.
RUN = 64
# Above this many hits for each neighbor that is wanted, the products themselves first say which are worth a look.
MANY_HITS = 2
SINGLE, DOUBLE = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
# What numbers too small for float32 may add up to, in up to a million columns; entries are at most of order 1.
UNDERFLOW = 2.0**-100
# Points nearer to their mean than 2 to this are not scaled up further: squares of the scale must not overflow.
LEAST_EXPONENT = -400


class Portion:
    """Points (n, D) that are looked at together, each known by a row (n,); ties are broken by it."""

    def __init__(self, points: AnyArray, rows: IntArray) -> None:
        self._points, self._rows = points, rows
        self._center = points.mean(axis=0, dtype=np.float64)
        squares = np.empty(len(points))
        _squared_lengths(points, self._center, squares)
        self._longest = math.sqrt(squares.max(initial=0.0))
        self._exponent = max(LEAST_EXPONENT, math.frexp(self._longest)[1])
        self._factors = np.empty((len(points), points.shape[1] + 1), dtype=np.float32)
        _convert_points(points, self._center, math.ldexp(1.0, -self._exponent), self._factors)

    def refine(
        self, queries: AnyArray, own: IntArray, distances: FloatArray, found: IntArray, among: IntArray | None = None
    ) -> None:
        """Bring these points into the lists of the k nearest of some queries, or of some of them, in place."""
        chosen = np.arange(len(queries)) if among is None else among
        step = max(1, BLOCK_ENTRIES // max(1, len(self._points)))
        for first in range(0, len(chosen), step):
            block = chosen[first : first + step]
            products, bounds = self.products(queries, block)
            _refine_block(self._points, self._rows, queries, own, block, products, bounds, distances, found)

    def products(self, queries: AnyArray, among: IntArray) -> tuple[AnyArray, FloatArray]:
        """Squared distances (b, n) of some queries less a constant and times a factor of each, and `_bounds` (b, 3)."""
        factors = np.empty((len(among), self._factors.shape[1]), dtype=np.float32)
        bounds = np.empty((len(among), 3))
        _convert_queries(queries, among, self._center, self._exponent, self._longest, factors, bounds)
        return factors @ self._factors.T, bounds


@compiled
def _squared_lengths(points: AnyArray, center: AnyArray, squares: AnyArray) -> None:
    for i in range(len(points)):
        squares[i] = _squared_length(points[i], center)


@compiled
def _squared_length(point: AnyArray, center: AnyArray) -> float:
    total = 0.0
    for k in range(len(center)):
        difference = np.float64(point[k]) - center[k]
        total += difference * difference
    return total


@compiled
def _convert_points(points: AnyArray, center: AnyArray, scale: float, factors: AnyArray) -> None:
    n_columns = len(center)
    for i in range(len(points)):
        square = 0.0
        for k in range(n_columns):
            value = (np.float64(points[i, k]) - center[k]) * scale
            factors[i, k] = -2.0 * value
            square += value * value
        factors[i, n_columns] = square


@compiled
def _convert_queries(
    queries: AnyArray,
    among: AnyArray,
    center: AnyArray,
    exponent: int,
    longest: float,
    factors: AnyArray,
    bounds: AnyArray,
) -> None:
    """A query longer than all points is scaled by its own length: however far it is, nothing overflows."""
    n_columns = len(center)
    for i in range(len(among)):
        query = queries[among[i]]
        square = _squared_length(query, center)
        length = math.sqrt(square)
        own_exponent = max(exponent, math.frexp(length)[1])
        scale = math.ldexp(1.0, -own_exponent)
        for k in range(n_columns):
            factors[i, k] = (np.float64(query[k]) - center[k]) * scale
        factors[i, n_columns] = math.ldexp(1.0, exponent - own_exponent)
        bounds[i, 0] = square
        bounds[i, 1] = rounding_margin(n_columns, length, longest)
        bounds[i, 2] = math.ldexp(1.0, -exponent - own_exponent)


@compiled
def rounding_margin(n_columns: int, length: float, longest: float) -> float:
    """Bound on what rounding does to p'p - 2 q'p, and to squares of distances that it is compared with.

    With u = SINGLE / 2: converting p and q to float32 and p'p again changes terms by at most 3u of p'p + 2|q||p|, and a
    sum of D + 1 products, in any order, by (D + 1) u of it and little more. Twice over that is D + 8 of SINGLE. Squares
    of distances themselves, in float64, are no longer than |q| + |p|.
    """
    in_single = SINGLE * (n_columns + 8) * longest * (longest + 2.0 * length)
    return in_single + 4.0 * DOUBLE * (n_columns + 8) * (length + longest) ** 2


@compiled
def _refine_block(
    points: AnyArray,
    rows: AnyArray,
    queries: AnyArray,
    own: AnyArray,
    among: AnyArray,
    products: AnyArray,
    bounds: AnyArray,
    distances: AnyArray,
    found: AnyArray,
) -> None:
    """Only points whose product comes within rounding of the k-th distance so far are looked at exactly."""
    places = np.empty(len(points), dtype=np.int64)
    nearest = np.empty(distances.shape[1], dtype=np.float32)
    for b in range(len(among)):
        i = among[b]
        limit = _limit(distances[i, -1], bounds[b])
        n_hits = _hits(products[b], limit, places)
        if n_hits > MANY_HITS * len(nearest):
            limit = min(limit, _limit_within(products[b], places[:n_hits], rows, own[i], bounds[b], nearest))
        for place in places[:n_hits]:
            if products[b, place] <= limit and rows[place] != own[i]:
                insert(distances[i], found[i], distance_between(points[place], queries[i]), rows[place])
                limit = min(limit, _limit(distances[i, -1], bounds[b]))


@compiled
def _limit(distance: float, bound: AnyArray) -> np.float32:
    """No product above it is of a point within that distance; rounded up."""
    limit = (distance * distance - bound[0] + bound[1]) * bound[2] + UNDERFLOW
    return np.float32(limit + abs(limit) * SINGLE)


@compiled
def _limit_within(
    products: AnyArray, places: AnyArray, rows: AnyArray, own: int, bound: AnyArray, nearest: AnyArray
) -> np.float32:
    """No product above it is of one of the k nearest among some points; the k least products are left in `nearest`."""
    nearest[:] = np.inf
    last = len(nearest) - 1
    for place in places:
        product = products[place]
        if product < nearest[last] and rows[place] != own:
            j = last
            while j > 0 and product < nearest[j - 1]:
                nearest[j] = nearest[j - 1]
                j -= 1
            nearest[j] = product
    limit = np.float64(nearest[last]) + 2.0 * (bound[1] * bound[2] + UNDERFLOW)
    return np.float32(limit + abs(limit) * SINGLE)


@compiled
def _hits(products: AnyArray, limit: np.float32, places: AnyArray) -> int:
    """List the places of products up to a limit; how many there are."""
    n_hits = 0
    n_runs = len(products) // RUN
    for run in range(n_runs):
        first = run * RUN
        count = np.int32(0)
        for j in range(RUN):
            count += np.int32(products[first + j] <= limit)
        if count:
            for j in range(first, first + RUN):
                if products[j] <= limit:
                    places[n_hits] = j
                    n_hits += 1
    for j in range(n_runs * RUN, len(products)):
        if products[j] <= limit:
            places[n_hits] = j
            n_hits += 1
    return n_hits
