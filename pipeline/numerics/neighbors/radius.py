"""All points within a radius, exactly: ragged lists whose bytes do not depend on how queries were batched.

As in `exact`, a fast search (k-d trees in few dimensions, float32 matrix products otherwise) only proposes pairs, with
a margin for its rounding; the distance summed in float64 in a fixed order decides.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

import numpy as np
import scipy

from pipeline.errors import InvalidInputError
from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors.exact import KD_TREE_MAX_DIMENSION, TREE_MARGIN
from pipeline.numerics.neighbors.products import (
    BLOCK_ENTRIES,
    PORTION,
    SINGLE,
    UNDERFLOW,
    Portion,
    distance_of_rows,
    local_pieces,
)
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Neighbors of all queries together: 2 GB as lists, and about as much while searching.
MOST_LISTED = 1 << 27
# Queries searched together, fewer if they would have more than PAIRS_AT_ONCE pairs: 100 MB.
QUERIES_AT_ONCE, PAIRS_AT_ONCE = 1 << 13, 1 << 21


class RadiusLists(NamedTuple):
    """Neighbors of q queries in CSR form: query i has those from offsets[i] up to offsets[i + 1]. offsets: (q + 1,).
    indices: rows of the reference. distances: rising within a query, ties by lower row."""

    offsets: IntArray
    indices: IntArray
    distances: FloatArray

    @property
    def sizes(self) -> IntArray:
        """Number of neighbors of each query."""
        return np.diff(self.offsets)

    def of(self, queries: IntArray) -> "RadiusLists":
        """The lists of some queries (p,)."""
        sizes = self.sizes[queries]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[queries] - offsets[:-1], sizes)
        return RadiusLists(offsets, self.indices[places], self.distances[places])


class Pairs(NamedTuple):
    """Places (r,) of queries and of points that are near each other, and their distances (r,)."""

    queries: IntArray
    points: IntArray
    distances: FloatArray

    def where(self, chosen: BoolArray) -> "Pairs":
        return Pairs(self.queries[chosen], self.points[chosen], self.distances[chosen])


class Room:
    """A limit on the number of pairs found for `n_queries` queries, shared by threads."""

    def __init__(self, n_queries: int, radius: float, most: int = MOST_LISTED) -> None:
        self._n_queries, self._radius, self._most = n_queries, radius, most
        self._lock, self._taken = Lock(), 0

    def take(self, n_pairs: int) -> None:
        """Count further pairs: an error once lists would not fit into memory."""
        with self._lock:
            self._taken += n_pairs
        if self._taken > self._most:
            raise InvalidInputError(
                f"radius={self._radius:g} gives each of {self._n_queries:,} points more than "
                f"{self._taken / self._n_queries:,.0f} neighbors on average; more than {self._most:,} in all do not "
                "fit into memory. Choose a smaller radius, or n_neighbors instead."
            )


class RadiusSearch:
    """A search among fixed points (n, D), for callers that have checked their arrays and search repeatedly."""

    def __init__(self, points: AnyArray) -> None:
        self.points = points
        few = points.shape[1] <= KD_TREE_MAX_DIMENSION
        self._tree = scipy.spatial.KDTree(points) if few else None
        self._pieces = [] if few else [_Piece(points, places) for places in local_pieces(points, PORTION)]

    def lists(self, queries: AnyArray, radius: float, n_threads: int = 1, most: int = MOST_LISTED) -> RadiusLists:
        """Places and distances of the points within `radius` of each query."""
        room = Room(len(queries), radius, most)

        def listed(first: int) -> RadiusLists:
            block = queries[first : first + QUERIES_AT_ONCE]
            return lists_of(len(block), self._counted_pairs(block, radius, room))

        with ThreadPoolExecutor(n_threads) as pool:
            parts = list(pool.map(listed, range(0, len(queries), QUERIES_AT_ONCE)))
        return joined_lists(parts)

    def pairs(self, queries: AnyArray, radius: float) -> Iterator[Pairs]:
        """The pairs within `radius`, each once, in batches and in no particular order."""
        if self._tree is None:
            yield from self._by_products(queries, radius)
        elif len(queries):
            yield from self._by_tree(self._tree, queries, radius, 0)

    def _counted_pairs(self, queries: AnyArray, radius: float, room: Room) -> Pairs:
        parts = []
        for pairs in self.pairs(queries, radius):
            room.take(len(pairs.queries))
            parts.append(pairs)
        return joined_pairs(parts)

    def _by_tree(self, tree: "scipy.spatial.KDTree", queries: AnyArray, radius: float, first: int) -> Iterator[Pairs]:
        """Two trees can count the pairs before they list them."""
        reach, others = radius * (1 + TREE_MARGIN), scipy.spatial.KDTree(queries)
        if len(queries) > 1 and others.count_neighbors(tree, reach) > PAIRS_AT_ONCE:
            middle = len(queries) // 2
            yield from self._by_tree(tree, queries[:middle], radius, first)
            yield from self._by_tree(tree, queries[middle:], radius, first + middle)
            return
        found = others.sparse_distance_matrix(tree, reach, output_type="ndarray")
        pairs = self._within(queries, found["i"].astype(np.int64), found["j"].astype(np.int64), radius)
        yield pairs._replace(queries=pairs.queries + first)

    def _by_products(self, queries: AnyArray, radius: float) -> Iterator[Pairs]:
        limits, everyone = np.full(len(queries), radius), np.arange(len(queries))
        for piece in self._pieces:
            step = max(1, min(len(queries), BLOCK_ENTRIES // len(piece.places)))
            for first in range(0, len(queries), step):
                rows, places = piece.proposed(queries, everyone[first : first + step], limits)
                yield self._within(queries, rows, places, radius)

    def _within(self, queries: AnyArray, rows: IntArray, places: IntArray, radius: float) -> Pairs:
        """Those of the proposed pairs that are within the radius."""
        distances = _distances_of_pairs(self.points, places, queries, rows)
        near = distances <= radius
        return Pairs(rows[near], places[near], distances[near])


class _Piece:
    """Some of the points, given by their places, and the products that tell which queries may be near them."""

    def __init__(self, points: AnyArray, places: IntArray) -> None:
        self.places = places
        members = points[places]
        center = members.mean(axis=0, dtype=np.float64)
        longest = float(np.sqrt(np.square(members - center).sum(axis=1).max()))
        self._portion = Portion(members, places, center, longest * (1 + TREE_MARGIN))

    def proposed(self, queries: AnyArray, among: IntArray, limits: FloatArray) -> tuple[IntArray, IntArray]:
        """Places of queries, from `among`, and of points that may be within a query's limit."""
        room = self._portion.room(len(among))
        near = self._portion.multiply(queries, among, limits, room)
        squares, margins, scales = room.bounds[: len(near)].T
        # No point within the limit has a product above this, rounded up.
        highest = (limits[near] ** 2 - squares + margins) * scales + UNDERFLOW
        highest += np.abs(highest) * SINGLE
        rows, members = np.nonzero(room.products[: len(near)] <= highest.astype(np.float32)[:, None])
        return near[rows], self.places[members]


def joined_pairs(parts: list[Pairs]) -> Pairs:
    """Concatenated pairs."""
    nothing = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    return Pairs(*(np.concatenate(columns) for columns in zip(nothing, *parts, strict=True)))


def lists_of(n_queries: int, pairs: Pairs) -> RadiusLists:
    """Pairs in any order as lists of each query."""
    order = np.lexsort((pairs.points, pairs.distances, pairs.queries))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(pairs.queries, minlength=n_queries))])
    return RadiusLists(offsets, pairs.points[order], pairs.distances[order])


def even_lists(distances: FloatArray, indices: AnyArray) -> RadiusLists:
    """Lists (q, k) of equal length in CSR form."""
    offsets = np.arange(len(indices) + 1) * indices.shape[1]
    return RadiusLists(offsets, indices.ravel(), distances.ravel())


def without_last(lists: RadiusLists) -> RadiusLists:
    """The lists without the farthest neighbor of each query that has another."""
    last = lists.offsets[1:][lists.sizes > 1] - 1
    left = np.ones(len(lists.indices), dtype=np.bool_)
    left[last] = False
    offsets = np.concatenate([[0], np.cumsum(np.where(lists.sizes > 1, lists.sizes - 1, lists.sizes))])
    return RadiusLists(offsets, lists.indices[left], lists.distances[left])


def joined_lists(parts: list[RadiusLists]) -> RadiusLists:
    """The lists of consecutive batches of queries, concatenated."""
    sizes = [np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]
    indices = [np.empty(0, np.int64), *(part.indices for part in parts)]
    distances = [np.empty(0), *(part.distances for part in parts)]
    return RadiusLists(np.cumsum(np.concatenate(sizes)), np.concatenate(indices), np.concatenate(distances))


@compiled
def _distances_of_pairs(points: AnyArray, places: AnyArray, queries: AnyArray, rows: AnyArray) -> FloatArray:
    distances = np.empty(len(rows))
    for pair in range(len(rows)):
        distances[pair] = distance_of_rows(points, places[pair], queries, rows[pair])
    return distances
