"""Shortest paths from many sources, and rows of path lengths of new points [G eq. 30-31; B eq. 5, sec. 4.3].

Sources near each other along the graph are searched together: every node belongs to the territory of its nearest
source, and edges across touching territories link their sources; grouping needs only the distances along those links.

A new point has only fitted points as intermediates: delta(new, l) = min over its neighbors j of ||new - x_j|| + D(l,
j). Between new points i and j it is the least over fitted a near i and b near j of ||i - a|| + D(a, b) + ||b - j||: new
points become nodes with outgoing edges only, so paths never pass through other new points. Two new points nearer to
each other than the farthest neighbor of either would be neighbors in a joint graph, and get the direct distance too.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import LANES, compiled, prefetch
from pipeline.numerics.directions import edge_lengths
from pipeline.numerics.geodesics.graph import checked_graph
from pipeline.numerics.geodesics.shortest_paths import Csr, PathGraph, PathSearch, shorten
from pipeline.numerics.neighbors.radius import RadiusLists, even_lists
from pipeline.types import AnyArray, FloatArray, IntArray, SparseArray


def nearby_order(graph: PathGraph, sources: IntArray) -> IntArray:
    """An order of the sources in which every LANES consecutive ones are near each other, the middle one first. Groups
    are taken from the far end of the remaining sources, so that those stay in one piece."""
    links = np.full((len(sources), len(sources)), np.inf, dtype=np.float32)
    _link_territories(graph.csr, *PathSearch(graph).spread(sources)[:2], links)
    ends = np.nonzero(np.isfinite(links))
    between = scipy.sparse.coo_array((links[ends].astype(np.float64), ends), shape=(len(sources), len(sources))).tocsr()
    depth = scipy.sparse.csgraph.dijkstra(between, indices=[0])[0]
    left = np.ones(len(sources), dtype=np.bool_)
    groups = []
    while left.any():
        remaining = np.flatnonzero(left)
        seed = remaining[np.argmax(depth[remaining])]
        away = scipy.sparse.csgraph.dijkstra(between, indices=[seed])[0, remaining]
        group = remaining[np.argsort(away, kind="stable")[:LANES]]
        groups.append(_middle_first(links, group))
        left[group] = False
    return np.concatenate(groups)


def _middle_first(links: AnyArray, group: IntArray) -> IntArray:
    """The group, beginning with the source whose farthest other, along links within the group, is nearest."""
    away: FloatArray = scipy.sparse.csgraph.floyd_warshall(links[np.ix_(group, group)].astype(np.float64))
    middle = int(np.argmin(away.max(axis=1, initial=0.0)))
    return np.concatenate([group[middle : middle + 1], np.delete(group, middle)])


@compiled
def _link_territories(csr: Csr, lengths: AnyArray, nearest: AnyArray, links: AnyArray) -> None:
    """The shortest path across one edge between each two sources whose territories touch."""
    offsets, targets, weights = csr
    for u in range(len(nearest)):
        own = nearest[u]
        if own < 0:
            continue
        for edge in range(offsets[u], offsets[u + 1]):
            other = nearest[targets[edge]]
            if other != own and other >= 0:
                length = np.float32(lengths[u] + weights[edge] + lengths[targets[edge]])
                if length < links[own, other]:
                    links[own, other] = length
                    links[other, own] = length


def farthest_nodes(graph: PathGraph, candidates: IntArray, first: int, n_chosen: int) -> IntArray:
    """Places in `candidates`, beginning with `first`, each the farthest along the graph from those before; ties go to
    the lower place. The candidates must reach each other. Each search goes only as far as it shortens a node's path to
    the nearest choice, so all of them together cost little more than a few full searches."""
    lengths = np.full(graph.n_nodes, np.inf)
    chosen = np.empty(n_chosen, dtype=np.int64)
    left = np.ones(len(candidates), dtype=np.bool_)
    for i in range(n_chosen):
        # Nodes may be at distance 0 from each other.
        chosen[i] = first if i == 0 else np.argmax(np.where(left, lengths[candidates], -1.0))
        left[chosen[i]] = False
        shorten(graph.csr, int(candidates[chosen[i]]), lengths)
    return chosen


# If the ends of edges differ in number by more than this share of all nodes on average, nodes are renumbered.
FAR_APART = 1 / 32
SAMPLED_EDGES = 100_000
# How many nodes ahead memory is prefetched.
AHEAD = 8


def shortest_path_rows(graph: SparseArray, sources: ArrayLike, n_jobs: int = 1) -> AnyArray:
    """Path lengths (s, n) from each source to every node, infinite where there is no path. Lengths are summed in
    float64 and returned in the floating dtype of the weights; a weight of zero is an edge. The result has the same bits
    for any number `n_jobs` of threads."""
    csr = checked_graph(graph)
    rows = checks.row_indices("sources", sources, csr.shape[0])
    out = np.empty((len(rows), csr.shape[0]), dtype=csr.dtype if csr.dtype.kind == "f" else np.float64)

    def take(batch: IntArray, lengths: FloatArray, place_of: IntArray) -> None:
        _write_rows(lengths, place_of, batch, out)

    each_search(csr, rows, take, n_jobs)
    return out


def each_search(
    csr: SparseArray, sources: IntArray, take: Callable[[IntArray, FloatArray, IntArray], None], n_jobs: int = 1
) -> None:
    """Search from all sources, a few at a time, and pass `take` their places in `sources` (b,), the float64 lengths (n,
    b), and the row of these for each node. `take` is called from several threads."""
    if not len(sources):
        return
    paths, place_of = _in_good_order(csr)
    places = place_of[sources]
    order = nearby_order(paths, places)

    searches: SimpleQueue[PathSearch] = SimpleQueue()
    for _ in range(n_jobs):
        searches.put(PathSearch(paths))

    def search(first: int) -> None:
        batch, free = order[first : first + LANES], searches.get()
        try:
            take(batch, free.lengths(places[batch])[:, : len(batch)], place_of)
        finally:  # another thread may be waiting for it
            searches.put(free)

    with ThreadPoolExecutor(n_jobs) as pool:
        for _ in pool.map(search, range(0, len(order), LANES)):
            pass


def _in_good_order(csr: SparseArray) -> tuple[PathGraph, IntArray]:
    """The graph renumbered so that neighbors are near in memory, and the new number of each node. The order is kept if
    it is good already or there are too many edges for scipy."""
    paths, n_nodes = _path_graph(csr), csr.shape[0]
    if csr.nnz > np.iinfo(np.int32).max or _is_near(paths.offsets, paths.targets):
        return paths, np.arange(n_nodes)
    node_at = scipy.sparse.csgraph.reverse_cuthill_mckee(csr, symmetric_mode=True)
    return _path_graph(csr[node_at][:, node_at]), np.argsort(node_at)


def _path_graph(csr: SparseArray) -> PathGraph:
    number = np.int32 if csr.shape[0] <= np.iinfo(np.int32).max else np.int64
    weights = csr.data if csr.dtype.kind == "f" else csr.data.astype(np.float64)
    return PathGraph(csr.indptr.astype(np.int64), csr.indices.astype(number, copy=False), weights)


def _is_near(offsets: IntArray, targets: AnyArray) -> bool:
    edges = np.arange(0, len(targets), max(1, len(targets) // SAMPLED_EDGES))
    starts = np.searchsorted(offsets, edges, side="right") - 1
    return not len(edges) or float(np.abs(starts - targets[edges]).mean()) <= FAR_APART * len(offsets)


@compiled
def _write_rows(lengths: AnyArray, place_of: AnyArray, rows: AnyArray, out: AnyArray) -> None:
    for node in range(len(place_of)):
        # Lines of memory are as far apart as the two orders differ.
        prefetch(lengths, np.uint64(place_of[min(node + AHEAD, len(place_of) - 1)]))
        found = lengths[place_of[node]]
        for lane in range(len(rows)):
            out[rows[lane], node] = found[lane]


def rows_through_neighbors(distances: FloatArray, indices: IntArray, to_landmarks: AnyArray) -> AnyArray:
    """`rows_through_lists` for neighbors (p, k) of all points."""
    if distances.shape != indices.shape or distances.ndim != 2:
        raise InvalidInputError(
            f"distances has shape {distances.shape} and indices {indices.shape}; both must be (n_points, n_neighbors)."
        )
    if indices.size:
        checks.row_indices("indices", indices.ravel(), len(to_landmarks))
    return rows_through_lists(even_lists(distances, indices), to_landmarks)


def rows_through_lists(lists: RadiusLists, to_landmarks: AnyArray) -> AnyArray:
    """Path lengths (q, m) of new points to the landmarks through their neighbors, whose lengths are (n, m); infinite
    for empty lists. A point at distance 0 from its nearest neighbor gets that neighbor's lengths to the bit."""
    rows = np.full((len(lists.offsets) - 1, to_landmarks.shape[1]), np.inf, dtype=to_landmarks.dtype)
    _through_lists(lists.offsets, lists.indices, lists.distances, to_landmarks, rows)
    return rows


def rows_with_and_without_last(lists: RadiusLists, to_landmarks: AnyArray) -> AnyArray:
    """`rows_through_lists` in float32, to which the neighbors' lengths are rounded first, (q, 2, m): with all
    neighbors, and without the farthest of each query that has another."""
    rows = np.full((len(lists.offsets) - 1, 2, to_landmarks.shape[1]), np.inf, dtype=np.float32)
    _with_and_without_last(lists.offsets, lists.indices, lists.distances, to_landmarks, rows)
    return rows


@compiled
def _through_lists(
    offsets: AnyArray, indices: AnyArray, distances: AnyArray, to_landmarks: AnyArray, rows: AnyArray
) -> None:
    for i in range(len(rows)):
        for j in range(offsets[i], offsets[i + 1]):
            apart, neighbor = distances[j], indices[j]
            for landmark in range(rows.shape[1]):
                # The least so far is already rounded, which does not change the minimum.
                rows[i, landmark] = min(rows[i, landmark], apart + to_landmarks[neighbor, landmark])
            if apart == 0.0:
                break


@compiled
def _with_and_without_last(
    offsets: AnyArray, indices: AnyArray, distances: AnyArray, to_landmarks: AnyArray, rows: AnyArray
) -> None:
    least = np.empty(rows.shape[2])
    for i in range(len(rows)):
        # The next list's rows are far apart in memory; waiting for each in turn would take most of the time.
        for j in range(offsets[i + 1], offsets[min(i + 2, len(rows))]):
            prefetch(to_landmarks, np.uint64(indices[j]))
        begin, end = offsets[i], offsets[i + 1]
        last = end - 1 if end - begin > 1 else end
        least[:] = np.inf
        is_copy = _shorten(least, range(begin, last), indices, distances, to_landmarks)
        rows[i, 1] = least
        if not is_copy:
            _shorten(least, range(last, end), indices, distances, to_landmarks)
        rows[i, 0] = least


@compiled
def _shorten(least: AnyArray, places: range, indices: AnyArray, distances: AnyArray, to_landmarks: AnyArray) -> bool:
    """Lower `least` to the paths through the neighbors at these places of the lists; return whether one is at distance
    0, in which case later ones do not count."""
    for j in places:
        apart, neighbor = distances[j], np.uint64(indices[j])
        for landmark in range(len(least)):
            way = apart + np.float64(np.float32(to_landmarks[neighbor, landmark]))
            least[landmark] = way if way < least[landmark] else least[landmark]
        if apart == 0.0:
            return True
    return False


def with_new_nodes(graph: PathGraph, lists: RadiusLists) -> PathGraph:
    """The graph with p nodes appended, each with edges out to its neighbors."""
    return PathGraph(
        np.concatenate([graph.offsets, graph.offsets[-1] + lists.offsets[1:]]),
        np.concatenate([graph.targets, lists.indices.astype(graph.targets.dtype)]),
        np.concatenate([graph.weights, lists.distances.astype(graph.weights.dtype)]),
    )


def lengths_between(search: PathSearch, first: int, lists: RadiusLists) -> FloatArray:
    """Path lengths (p, p) between new points, which are the nodes from `first` on and have these neighbors."""
    n_new = len(lists.sizes)
    between = np.empty((n_new, n_new))
    for start in range(0, n_new, LANES):
        lanes = np.arange(start, min(start + LANES, n_new))
        lengths = search.lengths(first + lanes)[:, : len(lanes)]
        between[lanes] = rows_through_lists(lists, lengths).T
    between = np.minimum(between, between.T)
    np.fill_diagonal(between, 0.0)
    return between


def bound_between(batches: "list[AnyArray]") -> FloatArray:
    """The least length (p, p) via a landmark, an upper bound, from the distances (p, b) to each batch of landmarks."""
    n_new = len(batches[0])
    between = np.full((n_new, n_new), np.inf)
    for to_landmarks in batches:
        for column in to_landmarks.T.astype(np.float64):
            np.minimum(between, column[:, None] + column, out=between)
    np.fill_diagonal(between, 0.0)
    return between


def with_direct_ways(between: FloatArray, points: AnyArray, reach: FloatArray, metric: str = "euclidean") -> FloatArray:
    """The lengths (p, p), or the direct one where it is shorter and within the reach (p,) of either point."""
    direct = edge_lengths(metric, scipy.spatial.distance.cdist(points, points))
    near = direct <= np.maximum(reach[:, None], reach)
    return np.where(near, np.minimum(between, direct), between)
