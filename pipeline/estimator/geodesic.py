"""Methods that measure along a graph: of the nearest neighbors, of all within a radius, or one that is given."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import ComponentWarning, InvalidInputError, ShortcutWarning
from pipeline.estimator.base import (
    Distinct,
    Fitted,
    chunks,
    counts_of,
    distinct_directions,
    distinct_points,
    embedder_of,
    in_unit,
    require_square,
)
from pipeline.estimator.paths import Entry, GeodesicSpace, GivenEdges
from pipeline.estimator.settings import Settings
from pipeline.methods import BOTH, DIRECTIONAL, fewer_neighbors
from pipeline.numerics import checks
from pipeline.numerics.directions import edge_lengths, reach_of, require_directions, unit_points
from pipeline.numerics.geodesics.components import (
    Connected,
    apply_component_policy,
    components_in_words,
    enough_neighbors,
)
from pipeline.numerics.geodesics.graph import graph_from_edges, neighbor_graph, undirected_graph
from pipeline.numerics.geodesics.rows import each_search, with_direct_ways
from pipeline.numerics.geodesics.shortcuts import (
    Listed,
    all_edges,
    listed,
    short_circuits,
    shorten,
    warning_of,
    without,
)
from pipeline.numerics.geodesics.shortest_paths import PathGraph
from pipeline.numerics.landmarks.choices import chosen_nodes, chosen_rows
from pipeline.numerics.neighbors.exact import NeighborSearch, neighbors_within
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, RadiusSearch, even_lists, joined_pairs, lists_of
from pipeline.numerics.neighbors.takers import TakerSearch, with_takers
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json, SparseArray

# Frames from `fit_geodesic` to whoever called `fit`, to whom warnings are addressed.
TO_THE_CALLER = 4


@dataclass(frozen=True, eq=False)
class NearPoints(Entry):
    """New rows have edges to their nearest nodes, so many, and to their takers, if they are asked for; or to all within
    a radius and at least one. One that is nearer to a node that was dropped is dropped too."""

    metric: str
    exponent: int
    search: NeighborSearch
    components: IntArray
    dropped: NeighborSearch | None
    dropped_components: IntArray
    n_neighbors: int
    within: RadiusSearch | None = None
    radius: float = 0.0
    takers: TakerSearch | None = None

    @property
    def calibrates_rows(self) -> bool:
        return self.takers is not None

    def check(self, rows: AnyArray) -> None:
        require_directions("X", rows, self.metric)

    def reached(self, rows: AnyArray, n_threads: int) -> tuple[RadiusLists, BoolArray, IntArray]:
        points = self._points(rows)
        distances, indices = self.search.query(points, self.n_neighbors, n_threads)
        kept, component = np.ones(len(points), dtype=np.bool_), self.components[indices[:, 0]]
        if self.dropped is not None:
            apart, others = self.dropped.query(points, 1, n_threads)
            kept = distances[:, 0] <= apart[:, 0]
            component = np.where(kept, component, self.dropped_components[others[:, 0]])
        lengths = edge_lengths(self.metric, distances[kept])
        if self.takers is not None:
            return with_takers(lengths, indices[kept], self.takers.pairs(points[kept], n_threads)), kept, component
        lists = even_lists(lengths, indices[kept])
        if self.within is not None:
            found = self.within.lists(points[kept], self.radius, n_threads)
            lists = _or_else(found._replace(distances=edge_lengths(self.metric, found.distances)), lists)
        return lists, kept, component

    def with_edges(self, between: FloatArray, rows: AnyArray, lists: RadiusLists) -> FloatArray:
        # Of edges in both directions the own ones come first.
        reach = lists.distances[lists.offsets[:-1] + self.n_neighbors - 1]
        if self.within is not None:
            reach = np.full(len(reach), edge_lengths(self.metric, np.array(self.radius)))
        return with_direct_ways(between, self._points(rows), reach, self.metric)

    def nearest(self, graph: SparseArray, n_threads: int) -> FloatArray:
        nodes = np.arange(len(self.search.points))
        return np.concatenate([self._others(nodes[chunk], 1, n_threads)[0][:, 0] for chunk in chunks(len(nodes))])

    def as_new(self, graph: SparseArray, nodes: IntArray, repeated: BoolArray, n_threads: int) -> RadiusLists:
        lengths, others = self._others(nodes, self.n_neighbors, n_threads)
        lengths[repeated, 0], others[repeated, 0] = 0.0, nodes[repeated]
        if self.within is None:
            return even_lists(lengths, others)
        found = self.within.lists(self.search.points[nodes], self.radius, n_threads)
        queries = np.repeat(np.arange(len(nodes)), found.sizes)
        pairs = Pairs(queries, found.indices, edge_lengths(self.metric, found.distances))
        found = lists_of(len(nodes), pairs.where((found.indices != nodes[queries]) | repeated[queries]))
        return _or_else(found, even_lists(lengths, others))

    def _others(self, nodes: IntArray, k: int, n_threads: int) -> tuple[FloatArray, IntArray]:
        """Lengths (h, k) of edges of some nodes to the nearest others, and these others (h, k)."""
        distances, indices = self.search.query(self.search.points[nodes], k + 1, n_threads)
        itself = indices == nodes[:, None]
        itself[~itself.any(axis=1), -1] = True
        return edge_lengths(self.metric, distances[~itself].reshape(-1, k)), indices[~itself].reshape(-1, k)

    def _points(self, rows: AnyArray) -> AnyArray:
        if self.metric in DIRECTIONAL:
            return unit_points(rows, self.metric, self.search.points.dtype)
        return in_unit(rows, self.exponent)


class Network(NamedTuple):
    """A graph after its policy, what it is made of, the lengths' unit 2^exponent and type, and what was found of short
    circuits."""

    connected: Connected
    points: Distinct | None
    exponent: int
    dtype: np.dtype[Any]
    short_circuits: list[Listed]
    reach: FloatArray | None = None


def fit_geodesic(settings: Settings, X: Any, seed: int, n_threads: int) -> Fitted:
    """Fit rows of points, or a graph of the user's."""
    network = (
        _given_network(settings, X, n_threads)
        if settings.is_precomputed
        else _network_of_points(settings, X, n_threads)
    )
    connected, points = network.connected, network.points
    in_pieces = _component_figures(settings, network) if connected.labels.any() else None
    if in_pieces is not None:
        warnings.warn(components_in_words(in_pieces), ComponentWarning, stacklevel=TO_THE_CALLER)
    kept = np.flatnonzero(connected.kept)
    landmarks = _chosen(settings, network, kept, seed)
    to_landmarks, between = _path_lengths(connected, landmarks, kept, network.dtype, n_threads)
    first_rows, n_rows = _rows_of(network, kept)
    places = np.searchsorted(kept, landmarks)
    weights = counts_of(settings, lambda chunk: to_landmarks[chunk], places, first_rows, n_rows)
    embedder = embedder_of(settings, between, X.shape, network.exponent, weights=weights)
    graph = connected.graph if len(kept) == len(connected.kept) else connected.graph[kept][:, kept]
    space = GeodesicSpace(embedder, _entry(settings, network, kept), to_landmarks, graph, n_rows > 1)
    answer = embedder.answered(len(kept), lambda chunk: to_landmarks[chunk])
    place_of = np.full(len(connected.kept), -1)
    place_of[kept] = np.arange(len(kept))
    of_graph = network.short_circuits, in_pieces
    if points is None:
        return Fitted(space, answer, place_of, landmarks, connected.labels, *of_graph)
    of_rows, first_rows = points.node_of, points.first_rows[landmarks]
    return Fitted(space, answer, place_of[of_rows], first_rows, connected.labels[of_rows], *of_graph)


def _rows_of(network: Network, nodes: IntArray) -> tuple[IntArray, IntArray]:
    """The first row of X that each of some nodes is, and how many it is."""
    if network.points is None:
        return nodes, np.ones(len(nodes), np.int64)
    return network.points.first_rows[nodes], np.bincount(network.points.node_of)[nodes]


def _network_of_points(settings: Settings, X: AnyArray, n_threads: int) -> Network:
    metric = str(settings.metric)
    points = distinct_directions(X, metric) if metric in DIRECTIONAL else distinct_points(X)
    n = len(points.points)
    where = f"X has {n} distinct rows"
    if settings.radius is None:
        settings = replace(settings, n_neighbors=fewer_neighbors(settings.n_neighbors, n))
        checks.integer_in_range("n_neighbors", settings.n_neighbors, 1, n - 1, where)
    settings.landmark_count(n, where)
    edges, reach = _graph_of_points(settings, points, n_threads)
    graph, found, cuts = _audited(settings, edges, points.first_rows, points.exponent, n_threads)
    if reach is not None and len(cuts[0]):
        starts, ends = np.concatenate(cuts), np.concatenate(cuts[::-1])
        shorten(reach, starts, np.asarray(edges[starts, ends]).ravel())
    edges_from = "neighbors" if settings.radius is None else "radius"
    connected = apply_component_policy(points.points, graph, settings.component_policy, edges_from, metric)
    return Network(connected, points, points.exponent, X.dtype, found, reach)


def _given_network(settings: Settings, X: SparseArray, n_threads: int) -> Network:
    require_square(X)
    edges = X.tocoo()
    starts, ends = (part.astype(np.int64) for part in edges.coords)
    graph = undirected_graph("X", X.shape[0], starts, ends, edges.data.astype(np.float64))
    exponent = int(np.frexp(graph.data.max(initial=0.0))[1])
    graph.data = np.ldexp(graph.data, -exponent)
    graph, found, _ = _audited(settings, graph, np.arange(X.shape[0]), exponent, n_threads)
    connected = apply_component_policy(None, graph, settings.component_policy, "given")
    return Network(connected, None, exponent, graph.dtype, found)


def _audited(
    settings: Settings, graph: SparseArray, rows: IntArray, exponent: int, n_threads: int
) -> tuple[SparseArray, list[Listed], tuple[IntArray, IntArray]]:
    """The graph, without its short circuits if they are to be cut; a list of them; and the ends of edges cut."""
    # In single precision, as paths on disk have them: what is found is the same.
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices, graph.data.astype(np.float32))
    found, is_cut = short_circuits(paths, rows, settings.seed, n_threads), settings.shortcuts == "cut"
    if found:
        message = warning_of(len(found), is_cut, "shortcuts='cut'")
        warnings.warn(message, ShortcutWarning, stacklevel=TO_THE_CALLER + 2)
    cuts = all_edges(found if is_cut else [])
    return without(graph, *cuts) if len(cuts[0]) else graph, listed(found, rows, exponent), cuts


def _graph_of_points(settings: Settings, points: Distinct, n_threads: int) -> tuple[SparseArray, FloatArray | None]:
    """The graph, and of nearest neighbors how long each point's edge to its last one is."""
    radius, metric = settings.radius, str(settings.metric)
    if radius is None:
        apart, neighbors = neighbors_within(points.points, settings.n_neighbors, n_threads)
        lengths = edge_lengths(metric, apart)
        return neighbor_graph(lengths, neighbors), lengths[:, -1].copy()
    scaled = _reach(settings, points.exponent)
    try:
        lists = RadiusSearch(points.points).lists(points.points, scaled, n_threads)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace(f"radius={scaled:g}", f"radius={radius:g}")) from error
    starts = np.repeat(np.arange(len(points.points)), np.diff(lists.offsets))
    others = starts != lists.indices
    lengths = edge_lengths(metric, lists.distances[others])
    return graph_from_edges(len(points.points), starts[others], lists.indices[others], lengths), None


def _chosen(settings: Settings, network: Network, kept: IntArray, seed: int) -> IntArray:
    where = f"the part of the graph that is embedded has {len(kept)} distinct points"
    m = settings.landmark_count(len(kept), where)
    if network.points is None:
        graph = network.connected.graph
        paths = PathGraph(graph.indptr.astype(np.int64), graph.indices, graph.data)
        return chosen_nodes(settings.landmark_selection, paths, kept, m, seed)
    return np.asarray(kept[chosen_rows(settings.landmark_selection, network.points.points[kept], m, seed)])


def _entry(settings: Settings, network: Network, kept: IntArray) -> Entry:
    labels, is_kept = network.connected.labels, network.connected.kept
    if network.points is None:
        place_of = np.full(len(is_kept), -1)
        place_of[kept] = np.arange(len(kept))
        return GivenEdges(network.exponent, place_of, labels)
    metric, points, exponent = str(settings.metric), network.points.points, network.exponent
    dropped = NeighborSearch(points[~is_kept]) if len(kept) < len(points) else None
    search = NeighborSearch(points[kept])
    known = metric, exponent, search, labels[kept], dropped, labels[~is_kept]
    if settings.radius is None:
        takers = None
        if settings.new_edges == BOTH and network.reach is not None:
            takers = TakerSearch(search.points, network.reach[kept], metric)
        k = fewer_neighbors(settings.n_neighbors, len(points))
        return NearPoints(*known, k, takers=takers)
    return NearPoints(*known, 1, RadiusSearch(search.points), _reach(settings, exponent))


def _reach(settings: Settings, exponent: int) -> float:
    """How far apart points within the radius may be, in units of 2^exponent."""
    return reach_of(str(settings.metric), float(np.ldexp(float(settings.radius or 0.0), -exponent)))


def _path_lengths(
    connected: Connected, landmarks: IntArray, nodes: IntArray, dtype: np.dtype[Any], n_threads: int
) -> tuple[AnyArray, FloatArray]:
    """Distances of nodes to landmarks (n, m) in `dtype`, and between landmarks (m, m) in full precision.

    Filled a few landmarks at a time, so that little stands beside them.
    """
    to_landmarks = np.empty((len(nodes), len(landmarks)), dtype=dtype)
    between = np.empty((len(landmarks), len(landmarks)))

    def take(batch: IntArray, lengths: FloatArray, place_of: IntArray) -> None:
        to_landmarks[:, batch], between[batch] = lengths[place_of[nodes]], lengths[place_of[landmarks]].T

    each_search(connected.graph, landmarks, take, n_threads)
    return to_landmarks, between


def _component_figures(settings: Settings, network: Network) -> Json:
    """What `components_in_words` takes."""
    connected, points = network.connected, network.points
    labels = connected.labels if points is None else connected.labels[points.node_of]
    rows = np.bincount(labels)
    edges_from = "given" if points is None else "neighbors" if settings.radius is None else "radius"
    enough: float | None = None
    if points is not None and len(connected.links[2]):
        enough = enough_neighbors(points.points, connected.links)
        if settings.radius is not None:
            enough = float(np.ldexp(connected.links[2].max(), network.exponent))
    return {
        "n_components": len(rows),
        "largest_rows": np.sort(rows)[::-1].tolist(),
        "n_bridges": len(connected.links[2]),
        "exact": connected.exact,
        "n_dropped_rows": 0 if connected.kept.all() else int(rows[1:].sum()),
        "edges_from": edges_from,
        "enough": enough,
    }


def _or_else(lists: RadiusLists, others: RadiusLists) -> RadiusLists:
    """The lists, or other ones for those queries whose list is empty."""
    empty = np.flatnonzero(lists.sizes == 0)
    if not len(empty):
        return lists
    filling = others.of(empty)
    ours = Pairs(np.repeat(np.arange(len(lists.sizes)), lists.sizes), lists.indices, lists.distances)
    theirs = Pairs(np.repeat(empty, filling.sizes), filling.indices, filling.distances)
    return lists_of(len(lists.sizes), joined_pairs([ours, theirs]))
