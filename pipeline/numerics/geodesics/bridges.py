"""Links that join the components of a graph: a minimum spanning tree over components, by the points they are made of.

Points are taken in pieces: those of a component that are near each other.

1. Near pairs: each piece, except those of the largest component, is compared with the pieces of others nearest to it,
   and with what else it takes for the links found to join everything.
2. The tree of these links bounds how long another must not be to matter: no longer than the longest link of the tree
   on the way between its components. Pieces whose balls are farther apart are never compared.
3. Far pairs: the other ones are compared, unless they are too many. The tree of all links is then the shortest there
   is; if not, it joins everything still, by links that may not be the shortest.

Links are compared by (length, lower row, higher row), a strict order, so that there is one shortest tree.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from pipeline.numerics.compiled import compiled
from pipeline.numerics.geodesics.graph import UnionFind
from pipeline.numerics.neighbors.closest import Link, closest_pair
from pipeline.numerics.neighbors.exact import KD_TREE_MAX_DIMENSION, NeighborSearch
from pipeline.numerics.neighbors.products import Portion, local_pieces, portions
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Pieces of other components that each piece is compared with in any case.
N_NEAR = 8
# Pairs of points that far pairs of pieces may have, for each point. All pairs of few points are as many.
FAR_PAIRS_PER_POINT = 4096
# Distances between centers, times columns, that the search for far pairs may take: some ten seconds.
MOST_GAPS = 1 << 33
# Components with more pieces than this look for others on their own.
SHARED_PIECES = 32
# Pieces in many dimensions of which some stand for all in the search for near pairs.
MOST_PIECES = 1 << 15
# Points in a piece of points in memory.
POINTS_PER_PIECE = 1024
# Relative rounding of distances to centers, with room to spare.
MARGIN = 1e-9


class Pieces(NamedTuple):
    """Points that are near each other and in one component: centers (p, D) and radii (p,) of their balls, components
    and sizes (p,)."""

    centers: FloatArray
    radii: FloatArray
    components: IntArray
    sizes: IntArray


class Pairs(NamedTuple):
    """Pieces (q,) to compare, the lower first, and how long links between them may be to matter."""

    first: IntArray
    second: IntArray
    limits: FloatArray


class Links(NamedTuple):
    """Links between components (l, 2), the lower first: lengths (l,), and ends (l, 4): rows, the lower first, then the
    numbers of the points."""

    components: IntArray
    lengths: FloatArray
    ends: IntArray

    def where(self, chosen: IntArray) -> "Links":
        return Links(self.components[chosen], self.lengths[chosen], self.ends[chosen])


class Members(NamedTuple):
    """The points of a piece (p, D), their rows and numbers (p,)."""

    points: AnyArray
    rows: IntArray
    numbers: IntArray

    def where(self, chosen: BoolArray | IntArray) -> "Members":
        return Members(*(part[chosen] for part in self))


def joined_links(parts: Sequence[Links]) -> Links:
    components, lengths, ends = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Links(components, lengths, ends)


def balls(points: AnyArray, piece_of: IntArray) -> tuple[FloatArray, FloatArray]:
    """Centers (p, D) and radii (p,) of pieces, given the piece of every point; pieces come one after the other."""
    begins = np.flatnonzero(np.diff(piece_of, prepend=-1))
    sizes = np.diff(begins, append=len(points))
    centers = np.empty((len(begins), points.shape[1]))
    radii = np.empty(len(begins))
    for i, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
        mine = points[begin : begin + size]
        centers[i] = mine.mean(axis=0, dtype=np.float64)
        radii[i] = distances(mine, centers[i]).max()
    return centers, radii


def distances(points: AnyArray, center: FloatArray) -> FloatArray:
    """Of every point to one."""
    return np.asarray(scipy.spatial.distance.cdist(points, center[None])[:, 0])


def gaps(apart: FloatArray, radii: FloatArray | float) -> FloatArray:
    """What is left between things `apart` from each other when their radii are taken off, rounded down."""
    return np.asarray(apart - radii - MARGIN * (apart + radii))


def near_pairs(pieces: Pieces) -> Pairs:
    """Pairs of near pieces of different components; together they join all components."""
    labels, n_components = pieces.components, int(pieces.components.max()) + 1
    chosen = _standing_for_all(pieces)
    centers, labels = pieces.centers[chosen], labels[chosen]
    i, j, _ = _nearest_outsiders(centers, labels, N_NEAR)
    found = [np.stack([i, j], axis=1)]
    sets = UnionFind(n_components)
    sets.join(labels[i], labels[j])
    while (parts := sets.labels()[labels]).any():
        i, j, apart = _nearest_outsiders(centers, parts, 1)
        order = np.lexsort((j, i, apart, parts[i]))
        leads = order[np.diff(parts[i][order], prepend=-1) > 0]
        found.append(np.stack([i[leads], j[leads]], axis=1))
        sets.join(labels[i[leads]], labels[j[leads]])
    pairs = np.unique(np.sort(chosen[np.concatenate(found)], axis=1), axis=0)
    return Pairs(pairs[:, 0], pairs[:, 1], np.full(len(pairs), np.inf))


def _standing_for_all(pieces: Pieces) -> IntArray:
    """Pieces to look among: all, or in many dimensions, where searching takes its time, some of each component."""
    n_pieces, n_columns = pieces.centers.shape
    if n_columns <= KD_TREE_MAX_DIMENSION or n_pieces <= MOST_PIECES:
        return np.arange(n_pieces)
    order = np.argsort(pieces.components, kind="stable")
    sorted_labels = pieces.components[order]
    rank = np.arange(n_pieces) - np.searchsorted(sorted_labels, sorted_labels)
    return np.sort(order[rank % -(-n_pieces // MOST_PIECES) == 0])


def _nearest_outsiders(centers: FloatArray, labels: IntArray, k: int) -> tuple[IntArray, IntArray, FloatArray]:
    """For every center of another label than 0 the k nearest of other labels than its own: pairs and distances."""
    counts, searching = np.bincount(labels), np.flatnonzero(labels)
    few = counts[labels[searching]] <= SHARED_PIECES
    shared, found = searching[few], []
    if len(shared):
        n_asked = min(len(centers), k + int(counts[labels[shared]].max()))
        apart, near = NeighborSearch(centers).query(centers[shared], n_asked)
        outside = labels[near] != labels[shared, None]
        places, columns = np.nonzero(outside & (np.cumsum(outside, axis=1) <= k))
        found.append((shared[places], near[places, columns], apart[places, columns]))
    for label in np.unique(labels[searching[~few]]).tolist():
        mine, others = np.flatnonzero(labels == label), np.flatnonzero(labels != label)
        apart, near = NeighborSearch(centers[others]).query(centers[mine], min(k, len(others)))
        found.append((np.repeat(mine, apart.shape[1]), others[near.ravel()], apart.ravel()))
    i, j, lengths = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return i, j, lengths


def spanning_tree(links: Links) -> Links:
    """The minimum spanning tree of links that join all components, the shortest link first."""
    order = np.lexsort((links.ends[:, 1], links.ends[:, 0], links.lengths))
    links = links.where(order)
    _, first = np.unique(links.components, axis=0, return_index=True)
    links = links.where(np.sort(first))
    n_components = int(links.components.max()) + 1
    # By their places in the order, which are all different.
    places = scipy.sparse.coo_array(
        (np.arange(1.0, len(first) + 1), tuple(links.components.T)), shape=(n_components, n_components)
    )
    tree = scipy.sparse.csgraph.minimum_spanning_tree(places.tocsr())
    return links.where(np.sort(tree.data.astype(np.int64)) - 1)


def far_pairs(pieces: Pieces, tree: Links, near: Pairs) -> Pairs | None:
    """All other pairs of pieces that may have a link of a shorter tree; None if to look for them, or at them, would
    take too long."""
    n_pieces, n_components = len(pieces.sizes), len(tree.lengths) + 1
    searching = np.flatnonzero(pieces.components)
    if len(searching) * n_pieces * pieces.centers.shape[1] + n_components**2 > MOST_GAPS:
        return None
    left = FAR_PAIRS_PER_POINT * int(pieces.sizes.sum())
    known, found = near.first * n_pieces + near.second, []
    neighborhoods = _neighborhoods(tree)
    for label in range(1, n_components):
        mine = searching[pieces.components[searching] == label]
        longest = np.zeros(n_components)
        _longest_on_the_way(*neighborhoods, label, longest)
        limits = longest[pieces.components]
        # Another component that looks too finds the same.
        others = np.flatnonzero((pieces.components == 0) | (pieces.components > label))
        apart = scipy.spatial.distance.cdist(pieces.centers[mine], pieces.centers[others])
        bounds = gaps(apart, pieces.radii[mine, None] + pieces.radii[others])
        i, j = np.nonzero(bounds <= limits[others])
        ends = np.sort(np.stack([mine[i], others[j]], axis=1), axis=1)
        new = ~np.isin(ends[:, 0] * n_pieces + ends[:, 1], known)
        left -= int(pieces.sizes[ends[new, 0]] @ pieces.sizes[ends[new, 1]])
        if left < 0:
            return None
        # Links as long as the limit may win by their rows.
        found.append(Pairs(ends[new, 0], ends[new, 1], np.nextafter(limits[others[j[new]]], np.inf)))
    first, second, limits = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((second, first))
    return Pairs(first[order], second[order], limits[order])


def _neighborhoods(tree: Links) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The tree from each of its components, in CSR form."""
    starts, ends = np.concatenate([tree.components, tree.components[:, ::-1]]).T
    order = np.argsort(starts, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(starts))])
    return offsets, ends[order], np.concatenate([tree.lengths, tree.lengths])[order]


@compiled
def _longest_on_the_way(offsets: AnyArray, ends: AnyArray, lengths: AnyArray, start: int, longest: AnyArray) -> None:
    """Fill in the longest link on the way from one component of a tree to each."""
    waiting = np.empty(len(longest), np.int64)
    came_from = np.full(len(longest), -1)
    waiting[0], n_waiting = start, 1
    while n_waiting:
        n_waiting -= 1
        here = waiting[n_waiting]
        for edge in range(offsets[here], offsets[here + 1]):
            there = ends[edge]
            if there != came_from[here]:
                came_from[there], longest[there] = here, max(longest[here], lengths[edge])
                waiting[n_waiting] = there
                n_waiting += 1


class LinkSearch:
    """The shortest link of each pair of components among the pieces that are compared."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._best = pieces, dict[tuple[int, int], Link]()
        self._numbers = dict[tuple[int, int], tuple[int, int]]()
        self._portions: tuple[int, list[Portion]] = -1, []

    def compare(self, first: tuple[int, Members], second: tuple[int, Members], limit: float) -> None:
        """Compare two pieces, given with their members; fastest where the second is that of the call before."""
        labels = self._pieces.components
        ends = sorted((int(labels[first[0]]), int(labels[second[0]])))
        key = ends[0], ends[1]
        best = self._best.get(key, (np.inf, -1, -1))
        limit = min(limit, best[0])
        queries = self._within(limit, first[1], second[0])
        if len(queries.rows):
            link = closest_pair(self._in_portions(*second), queries.points, queries.rows, limit, best)
            if link != best:
                self._best[key] = link
                numbers = {int(row): int(number) for end in (queries, second[1]) for row, number in _found(end, link)}
                self._numbers[key] = numbers[link[1]], numbers[link[2]]

    def links(self) -> Links:
        keys = sorted(self._best)
        ends = [(*self._best[key][1:], *self._numbers[key]) for key in keys]
        return Links(
            np.array(keys, np.int64).reshape(-1, 2),
            np.array([self._best[key][0] for key in keys], np.float64),
            np.array(ends, np.int64).reshape(-1, 4),
        )

    def _within(self, limit: float, members: Members, other: int) -> Members:
        """Those members that may be within a limit of another piece."""
        if not np.isfinite(limit):
            return members
        away = distances(members.points, self._pieces.centers[other])
        return members.where(gaps(away, float(self._pieces.radii[other])) <= limit)

    def _in_portions(self, piece: int, members: Members) -> list[Portion]:
        if self._portions[0] != piece:
            self._portions = piece, list(portions(members.points, members.rows))
        return self._portions[1]


def _found(members: Members, link: Link) -> Iterator[tuple[int, int]]:
    """The rows and numbers of those members that a link joins."""
    for row in link[1:]:
        yield from ((row, int(members.numbers[place])) for place in np.flatnonzero(members.rows == row))


def links_in_memory(points: AnyArray, labels: IntArray) -> tuple[Links, bool]:
    """Links that join the components of points, the shortest first, and whether they are the shortest there are."""
    piece_of = np.empty(len(points), np.int64)
    for number, places in enumerate(local_pieces(points, POINTS_PER_PIECE)):
        piece_of[places] = number
    order = np.lexsort((labels, piece_of))
    begins = np.flatnonzero(np.diff(piece_of[order] * (labels.max() + 1) + labels[order], prepend=-1))
    sizes = np.diff(begins, append=len(points))
    centers, radii = balls(points[order], np.repeat(np.arange(len(begins)), sizes))
    pieces = Pieces(centers, radii, labels[order[begins]], sizes)

    def members(piece: int) -> Members:
        rows = order[begins[piece] : begins[piece] + sizes[piece]]
        return Members(points[rows], rows, rows)

    def compared(pairs: Pairs) -> Links:
        search = LinkSearch(pieces)
        for place in np.lexsort((pairs.first, pairs.second)).tolist():
            first, second = int(pairs.first[place]), int(pairs.second[place])
            search.compare((first, members(first)), (second, members(second)), float(pairs.limits[place]))
        return search.links()

    return shortest_links(pieces, compared)


def shortest_links(pieces: Pieces, compared: Callable[[Pairs], Links]) -> tuple[Links, bool]:
    """The tree of links, given what compares pairs of pieces, and whether it is the shortest there is."""
    near = near_pairs(pieces)
    tree = spanning_tree(compared(near))
    far = far_pairs(pieces, tree, near)
    if far is None:
        return tree, False
    return spanning_tree(joined_links([tree, compared(far)])), True
