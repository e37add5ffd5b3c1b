"""Methods that measure along a graph: of the nearest neighbors, of all within a radius, or one that is given."""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pipeline.errors import ComponentWarning, InvalidInputError, ShortcutWarning
from pipeline.estimator.base import (
    Distinct,
    Fitted,
    Settings,
    Space,
    chunks,
    counts_of,
    distinct_directions,
    distinct_points,
    embedder_of,
    in_unit,
    require_square,
)
from pipeline.methods import DIRECTIONAL
from pipeline.numerics import checks
from pipeline.numerics.directions import edge_lengths, reach_of, require_directions, unit_points
from pipeline.numerics.geodesics.graph import (
    Connected,
    apply_component_policy,
    graph_from_edges,
    neighbor_graph,
    undirected_graph,
)
from pipeline.numerics.geodesics.rows import each_search, rows_through_lists, rows_through_neighbors
from pipeline.numerics.geodesics.shortcuts import Listed, all_edges, listed, short_circuits, warning_of, without
from pipeline.numerics.geodesics.shortest_paths import PathGraph
from pipeline.numerics.landmarks.choices import chosen_nodes, chosen_rows
from pipeline.numerics.neighbors.exact import NeighborSearch, neighbors_within
from pipeline.numerics.neighbors.radius import Pairs, RadiusSearch, lists_of
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, SparseArray

# Frames from `fit_geodesic` to whoever called `fit`, to whom warnings are addressed.
TO_THE_CALLER = 4


@dataclass(frozen=True, eq=False)
class NearPoints:
    """New rows have edges to their nearest nodes: so many, or all within a radius and at least one. One that is nearer
    to a node that was dropped is dropped too."""

    metric: str
    exponent: int
    search: NeighborSearch
    dropped: NeighborSearch | None
    n_neighbors: int
    within: RadiusSearch | None = None
    radius: float = 0.0

    def lengths(self, rows: AnyArray, to_landmarks: AnyArray, n_threads: int) -> tuple[AnyArray, BoolArray]:
        """Path lengths (u, m) to the landmarks of those rows that reach a node, given the nodes' own (k, m), and which
        rows these are (p,)."""
        points = self._points(rows)
        distances, indices = self.search.query(points, self.n_neighbors, n_threads)
        reached = np.ones(len(points), dtype=np.bool_)
        if self.dropped is not None:
            reached = distances[:, 0] <= self.dropped.query(points, 1, n_threads)[0][:, 0]
        found = rows_through_neighbors(edge_lengths(self.metric, distances[reached]), indices[reached], to_landmarks)
        if self.within is not None:
            lists = self.within.lists(points[reached], self.radius, n_threads)
            measured = lists._replace(distances=edge_lengths(self.metric, lists.distances))
            found = np.minimum(found, rows_through_lists(measured, to_landmarks))
        return found, reached

    def _points(self, rows: AnyArray) -> AnyArray:
        if self.metric in DIRECTIONAL:
            return unit_points(rows, self.metric, self.search.points.dtype)
        return in_unit(rows, self.exponent)


@dataclass(frozen=True, eq=False)
class GivenEdges:
    """New rows have the edges (p, n) that they come with, to nodes that have a place (n,) among those embedded."""

    exponent: int
    place_of: IntArray

    def lengths(self, rows: SparseArray, to_landmarks: AnyArray, n_threads: int) -> tuple[AnyArray, BoolArray]:
        edges = rows.tocoo()
        starts, nodes = (part.astype(np.int64) for part in edges.coords)
        kept = self.place_of[nodes] >= 0
        lengths = np.ldexp(edges.data[kept].astype(np.float64), -self.exponent)
        lists = lists_of(int(rows.shape[0]), Pairs(starts[kept], self.place_of[nodes[kept]], lengths))
        found, reached = rows_through_lists(lists, to_landmarks), np.diff(lists.offsets) > 0
        return found[reached], reached


# How new rows reach the nodes (k,) that are embedded.
Entry: TypeAlias = NearPoints | GivenEdges


@dataclass(frozen=True, eq=False)
class GeodesicSpace(Space):
    """The path lengths (k, m) of embedded nodes to the landmarks, and how new rows reach these nodes."""

    entry: Entry
    to_landmarks: AnyArray

    @property
    def takes_edges(self) -> bool:
        return isinstance(self.entry, GivenEdges)

    def placed(self, rows: Any, n_threads: int) -> FloatArray:
        if isinstance(self.entry, NearPoints):
            require_directions("X", rows, self.entry.metric)
        out = np.full((rows.shape[0], self.embedder.answers.n_components), np.nan)
        for chunk in chunks(len(out)):
            lengths, reached = self.entry.lengths(rows[chunk], self.to_landmarks, n_threads)
            out[chunk][reached] = self.embedder.coordinates(lengths)
        return out


class Network(NamedTuple):
    """A graph after its policy, what it is made of, the lengths' unit 2^exponent and type, and what was found of short
    circuits."""

    connected: Connected
    points: Distinct | None
    exponent: int
    dtype: np.dtype[Any]
    short_circuits: list[Listed]


def fit_geodesic(settings: Settings, X: Any, seed: int, n_threads: int) -> Fitted:
    """Fit rows of points, or a graph of the user's."""
    network = _given_network(settings, X) if settings.is_precomputed else _network_of_points(settings, X, n_threads)
    connected, points = network.connected, network.points
    if connected.labels.any():
        warnings.warn(_component_report(settings, connected), ComponentWarning, stacklevel=TO_THE_CALLER)
    kept = np.flatnonzero(connected.kept)
    landmarks = _chosen(settings, network, kept, seed)
    to_landmarks, between = _path_lengths(connected, landmarks, kept, network.dtype, n_threads)
    first_rows, n_rows = _rows_of(network, kept)
    places = np.searchsorted(kept, landmarks)
    weights = counts_of(settings, lambda chunk: to_landmarks[chunk], places, first_rows, n_rows)
    embedder = embedder_of(settings, between, X.shape, network.exponent, weights=weights)
    space = GeodesicSpace(embedder, _entry(settings, network, kept), to_landmarks)
    embedded = np.full((len(connected.kept), settings.components), np.nan)
    embedded[kept] = embedder.embedded(len(kept), lambda chunk: to_landmarks[chunk])
    if points is None:
        return Fitted(space, embedded, landmarks, connected.labels, network.short_circuits)
    labels = connected.labels[points.node_of]
    return Fitted(space, embedded[points.node_of], points.first_rows[landmarks], labels, network.short_circuits)


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
        checks.integer_in_range("n_neighbors", settings.n_neighbors, 1, n - 1, where)
    settings.landmark_count(n, where)
    graph, found = _audited(settings, _graph_of_points(settings, points, n_threads), points.first_rows, points.exponent)
    edges_from = "neighbors" if settings.radius is None else "radius"
    connected = apply_component_policy(points.points, graph, settings.component_policy, edges_from, metric)
    return Network(connected, points, points.exponent, X.dtype, found)


def _given_network(settings: Settings, X: SparseArray) -> Network:
    require_square(X)
    edges = X.tocoo()
    starts, ends = (part.astype(np.int64) for part in edges.coords)
    graph = undirected_graph("X", X.shape[0], starts, ends, edges.data.astype(np.float64))
    exponent = int(np.frexp(graph.data.max(initial=0.0))[1])
    graph.data = np.ldexp(graph.data, -exponent)
    graph, found = _audited(settings, graph, np.arange(X.shape[0]), exponent)
    connected = apply_component_policy(None, graph, settings.component_policy, "given")
    return Network(connected, None, exponent, graph.dtype, found)


def _audited(settings: Settings, graph: SparseArray, rows: IntArray, exponent: int) -> tuple[SparseArray, list[Listed]]:
    """The graph, without its short circuits if they are to be cut, and a list of them."""
    # In single precision, as paths on disk have them: what is found is the same.
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices, graph.data.astype(np.float32))
    found, is_cut = short_circuits(paths, rows, settings.seed), settings.shortcuts == "cut"
    if found:
        message = warning_of(len(found), is_cut, "shortcuts='cut'")
        warnings.warn(message, ShortcutWarning, stacklevel=TO_THE_CALLER + 2)
    return without(graph, *all_edges(found)) if is_cut and found else graph, listed(found, rows, exponent)


def _graph_of_points(settings: Settings, points: Distinct, n_threads: int) -> SparseArray:
    radius, metric = settings.radius, str(settings.metric)
    if radius is None:
        apart, neighbors = neighbors_within(points.points, settings.n_neighbors, n_threads)
        return neighbor_graph(edge_lengths(metric, apart), neighbors)
    scaled = _reach(settings, points.exponent)
    try:
        lists = RadiusSearch(points.points).lists(points.points, scaled, n_threads)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace(f"radius={scaled:g}", f"radius={radius:g}")) from error
    starts = np.repeat(np.arange(len(points.points)), np.diff(lists.offsets))
    others = starts != lists.indices
    lengths = edge_lengths(metric, lists.distances[others])
    return graph_from_edges(len(points.points), starts[others], lists.indices[others], lengths)


def _chosen(settings: Settings, network: Network, kept: IntArray, seed: int) -> IntArray:
    where = f"the part of the graph that is embedded has {len(kept)} distinct points"
    m = settings.landmark_count(len(kept), where)
    if network.points is None:
        graph = network.connected.graph
        paths = PathGraph(graph.indptr.astype(np.int64), graph.indices, graph.data)
        return chosen_nodes(settings.landmark_selection, paths, kept, m, seed)
    return np.asarray(kept[chosen_rows(settings.landmark_selection, network.points.points[kept], m, seed)])


def _entry(settings: Settings, network: Network, kept: IntArray) -> Entry:
    if network.points is None:
        place_of = np.full(len(network.connected.kept), -1)
        place_of[kept] = np.arange(len(kept))
        return GivenEdges(network.exponent, place_of)
    metric, points, exponent = str(settings.metric), network.points.points, network.exponent
    dropped = NeighborSearch(points[~network.connected.kept]) if len(kept) < len(points) else None
    search = NeighborSearch(points[kept])
    if settings.radius is None:
        return NearPoints(metric, exponent, search, dropped, settings.n_neighbors)
    within, reach = RadiusSearch(search.points), _reach(settings, exponent)
    return NearPoints(metric, exponent, search, dropped, 1, within, reach)


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


def _component_report(settings: Settings, connected: Connected) -> str:
    sizes = np.bincount(connected.labels)
    found = f"The neighbor graph has {len(sizes)} components (largest {sizes[0]} distinct points)"
    larger = "n_neighbors" if settings.radius is None else "radius"
    if connected.n_bridges:
        return (
            f"{found}, joined by their {connected.n_bridges} shortest links. Distances between components are then a "
            f"guess; a larger {larger} may connect them."
        )
    remedy = "" if settings.is_precomputed else f" A larger {larger} may connect them."
    n_dropped = int((~connected.kept).sum())
    return f"{found}; all but the largest are dropped, and {n_dropped} distinct points become NaN.{remedy}"


def require_edge_lengths(X: SparseArray) -> None:
    """Refuse edges (p, n) whose lengths are none."""
    # Written so that NaN fails it too.
    bad = np.flatnonzero(~((X.data >= 0) & (X.data <= checks.LARGEST_SIZE)))
    if len(bad):
        row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
        raise InvalidInputError(
            f"X has {len(bad)} weights that are negative, NaN, infinite or above {checks.LARGEST_SIZE:g}, the first "
            f"{X.data[bad[0]]:g} from row {row} to node {X.indices[bad[0]]}; lengths must be finite and at least 0: "
            "leave out what is no edge."
        )
