"""The stages that depend on what is given: up to a provider of dissimilarities to the landmarks.

`measured` runs those of a fit, `new_rows` those of new rows in the space of a fitted run.
"""

from dataclasses import dataclass

from pipeline.jobs.batches import AnyBatch, fitted_settings, own_key_of
from pipeline.jobs.job import Runner
from pipeline.jobs.plan import assumed, cut_rows, evaluated_count, kernel_choice, landmark_count, planned_landmarks
from pipeline.methods import BOTH, METHODS, OWN, SIMILARITIES, fewer_neighbors
from pipeline.settings import ExtendSettings, FitSettings
from pipeline.sources.graphs import GraphSource, NewNodes
from pipeline.sources.inputs import AnySource, as_table, comparison_of, partitions_of
from pipeline.sources.objects import ObjectSource
from pipeline.sources.partitions import RowPartitions
from pipeline.sources.proximities import ProximitySource, between_new, own_similarities
from pipeline.sources.source import Source
from pipeline.stages.dominance import dominance, warn_of_dominance
from pipeline.stages.graph import stages as graph
from pipeline.stages.landmarks import AutomaticComponents, Landmarks
from pipeline.stages.providers.geodesic import GeodesicRows, NodeCandidates, SearchedRows
from pipeline.stages.providers.objects import (
    Compare,
    ComparedRows,
    EstimatedRows,
    NewObjects,
    ObjectCandidates,
    ScanObjects,
    Subset,
)
from pipeline.stages.providers.provider import Candidates, Measured, Provider
from pipeline.stages.providers.proximities import (
    MatrixCandidates,
    NewProximities,
    PrecomputedRows,
    ScanBetween,
    ScanProximities,
    warn_of_diagonal,
)
from pipeline.stages.providers.vectors import VectorCandidates, VectorRows
from pipeline.stages.space import GraphSpace, Space
from pipeline.stages.stage import Outcome, Stage
from pipeline.stages.validate import Axes, PreparedSource, ReplayedSource, Validate, ValidateBatch, point_dtype

# The stages of a fit along a graph of neighbors up to distances to the landmarks, in order.
ALONG_NEIGHBORS: tuple[type[Stage], ...] = (
    *(Validate, Axes, graph.Cells, graph.Assign, graph.Order, graph.Probes, graph.Neighbors, graph.Graph),
    *(graph.Shortcuts, graph.Components, graph.Reach, Landmarks, graph.Rows),
)


def measuring_stages(settings: FitSettings, source: AnySource) -> list[type[Stage]]:
    """The stages that `measured` runs, in their order, for a plan to count."""
    if isinstance(source, GraphSource):
        return [graph.LoadGraph, graph.GivenGraph, graph.Shortcuts, graph.Components, Landmarks, graph.Rows]
    if isinstance(source, ProximitySource):
        return [Landmarks, ScanProximities]
    if isinstance(source, ObjectSource):
        return [ScanObjects, Landmarks, *([Subset] if settings.n_evaluated is not None else []), Compare]
    within = {
        graph.Probes: graph.RadiusProbes,
        graph.Neighbors: None,
        graph.Reach: None,
        graph.Graph: graph.RadiusGraph,
    }
    measuring = ALONG_NEIGHBORS[2:] if settings.is_geodesic else (Landmarks,)
    stages: tuple[type[Stage], ...] = (Validate, Axes, AutomaticComponents, *measuring)
    left_out = {
        Axes: settings.pca is None,
        AutomaticComponents: settings.n_components != "auto",
        graph.Reach: settings.new_edges != BOTH,
    }
    chosen = [stage if settings.radius is None else within.get(stage, stage) for stage in stages]
    return [stage for stage in chosen if stage is not None and not left_out.get(stage)]


def measured(settings: FitSettings, source: AnySource, done: Runner) -> Measured:
    """Run all stages up to what every point is to the landmarks."""
    if isinstance(source, GraphSource):
        return _along_a_graph(settings, _precomputed_graph(settings, source, done), done)
    if isinstance(source, ProximitySource):
        return _precomputed(settings, source, done)
    if isinstance(source, ObjectSource):
        return _compared(settings, source, done)
    return _points(settings, as_table(source), done)


def _least_landmarks(settings: FitSettings, n_landmarks: int) -> int:
    """The fewest landmarks that will do where points repeat: all of them, if a number was asked for."""
    return settings.components + 1 if settings.n_landmarks == "auto" else n_landmarks


def _chosen(settings: FitSettings, candidates: Candidates, n_landmarks: int, done: Runner) -> Outcome:
    return done(Landmarks(candidates, n_landmarks, settings.selection, settings.seed))


def _points(settings: FitSettings, source: Source, done: Runner) -> Measured:
    planned = 0 if settings.is_geodesic else planned_landmarks(assumed(settings, source), source)
    cut = partitions_of(source, planned, settings.partition_mib)
    data = _prepared(settings, source, cut, done)
    if settings.n_components == "auto":
        most = settings.most_components(*source.shape)
        found = done(AutomaticComponents(data, settings.n_neighbors, most, settings.seed))
        settings = settings.with_components(found.figures["n_components"])
    if settings.is_geodesic:
        return _along_a_graph(settings, _joined_points(settings, data, cut, done), done)
    return _vectors(settings, data, cut, done)


def _vectors(settings: FitSettings, data: PreparedSource, cut: RowPartitions, done: Runner) -> Measured:
    usable = int(data.validated.figures["n_rows"] - data.validated.figures["n_dropped_rows"])
    m = landmark_count(settings, usable, "rows are embedded")
    landmarks = _chosen(settings, VectorCandidates(data, cut, _least_landmarks(settings, m)), m, done)
    provider = VectorRows(data, landmarks, settings.metric, kernel_choice(settings))
    return Measured(provider, landmarks, cut, settings.components)


def _prepared(settings: FitSettings, source: Source, cut: RowPartitions, done: Runner) -> PreparedSource:
    """The validated source with the preprocessing that is asked for."""
    validated = done(Validate(source, cut, settings.missing, settings.metric_of_rows))
    warn_of_dominance(dominance(settings, source.column_names, validated))
    axes = None
    if settings.pca is not None:
        axes = done(Axes(source, validated, settings.standardize, settings.pca))
    return PreparedSource(source, validated, settings.standardize, axes, settings.metric_of_points)


def _precomputed(settings: FitSettings, source: ProximitySource, done: Runner) -> Measured:
    m, similar = planned_landmarks(settings, source), settings.input == SIMILARITIES
    cut = partitions_of(source, m, settings.partition_mib)
    landmarks = _chosen(settings, MatrixCandidates(source, settings.landmarks_key, similar), m, done)
    if similar and not settings.takes_affinities:
        warn_of_diagonal(source, landmarks)
    affinity, nearest_own = settings.takes_affinities, METHODS[settings.method].returns_by_itself
    scanned = done(ScanProximities(source, landmarks, cut, similar, affinity))
    provider = PrecomputedRows(source, scanned, landmarks, similar, affinity, settings.own_key, nearest_own=nearest_own)
    return Measured(provider, landmarks, cut, settings.components)


def _compared(settings: FitSettings, source: ObjectSource, done: Runner) -> Measured:
    m, comparison = planned_landmarks(settings, source), comparison_of(settings)
    cut = partitions_of(source, m, settings.partition_mib)
    scanned = done(ScanObjects(source, cut))
    landmarks = _chosen(settings, ObjectCandidates(source, scanned, _least_landmarks(settings, m)), m, done)
    subset = None
    if settings.n_evaluated is not None:
        n_evaluated = evaluated_count(settings.n_evaluated, landmarks.figures["n_landmarks"])
        subset = done(Subset(landmarks, comparison, n_evaluated))
    compared = done(Compare(source, scanned, landmarks, comparison, subset))
    provider = ComparedRows(compared, landmarks, comparison.is_kernel, source.name)
    estimated = provider if subset is None else EstimatedRows(provider, subset)
    return Measured(estimated, landmarks, cut, settings.components)


@dataclass(frozen=True)
class Joined:
    """Nodes and the graph that joins them, in lengths of 2^exponent of the user's; `cells` where nodes are points.

    For ragged neighbor lists one stage plays both roles, `neighbors` and `graph`.
    """

    cells: Outcome | None
    ordered: Outcome
    neighbors: Outcome
    graph: Outcome
    partitions: RowPartitions
    exponent: int
    edges_from: str
    metric: str = "euclidean"
    new_edges: str = OWN


def _along_a_graph(settings: FitSettings, joined: Joined, done: Runner) -> Measured:
    """Geodesic distances: the short circuits and components of a graph, landmarks among its nodes, shortest paths from
    them."""
    cells, ordered, edges = joined.cells, joined.ordered, joined.graph
    found = done(graph.Shortcuts(ordered, edges, joined.exponent, settings.seed))
    components = _joined_components(settings, joined, graph.to_cut(found, settings.shortcuts), done)
    reach = None
    if joined.new_edges == BOTH:
        reach = done(graph.Reach(ordered, joined.neighbors, edges, components))
    m = landmark_count(settings, int(components.figures["n_kept"]), "distinct points are embedded")
    landmarks = _chosen(settings, NodeCandidates(cells, ordered, edges, components), m, done)
    rows = done(graph.Rows(ordered, joined.neighbors, edges, components, landmarks))
    chosen, units = (components, landmarks, rows), (joined.exponent, joined.metric, reach)
    provider = GeodesicRows(cells, ordered, joined.neighbors, edges, *chosen, *units)
    return Measured(provider, landmarks, joined.partitions, settings.components)


def joined_rows(settings: FitSettings, source: Source, done: Runner) -> Joined:
    """Run the stages up to the graph of a source's rows."""
    cut = partitions_of(source, 0, settings.partition_mib)
    return _joined_points(settings, _prepared(settings, source, cut, done), cut, done)


def _joined_components(settings: FitSettings, joined: Joined, cut: Outcome | None, done: Runner) -> Outcome:
    """What is done with a graph in several components; one in one piece needs nothing."""
    cells, ordered, edges, policy = joined.cells, joined.ordered, joined.graph, settings.component_policy
    found = dict[str, Outcome]()
    links = None
    if graph.require_joinable(edges, policy, joined.edges_from) and cells is not None:
        links = _links(cells, joined, done)
        if joined.edges_from == "neighbors" and graph.are_countable(links):
            found["connecting"] = done(graph.Connecting(cells, ordered, links))
    units = joined.edges_from, joined.metric, cut, joined.exponent
    found["components"] = done(graph.Components(ordered, edges, policy, links, *units))
    graph.warn_of_components(graph.component_figures({name: outcome.figures for name, outcome in found.items()}))
    return found["components"]


def _links(cells: Outcome, joined: Joined, done: Runner) -> Outcome:
    """The shortest links between the components of a graph of points."""
    nodes = cells, joined.ordered, joined.graph
    pieces = done(graph.PiecesOfCells(*nodes))
    links = done(graph.NearLinks(*nodes, pieces))
    return done(graph.FarLinks(*nodes, pieces, links)) if links.figures["n_pairs"] else links


def _joined_points(settings: FitSettings, data: PreparedSource, cut: RowPartitions, done: Runner) -> Joined:
    """Points joined to their nearest, or to all within a radius."""
    seed, metric = settings.seed, settings.metric_of_points
    cells = done(graph.Cells(data, cut, seed))
    ordered = done(graph.Order(done(graph.Assign(data, cut, cells)), cut.count, cut.rows_each))
    exponent = data.preprocessing.result_exponent
    if settings.radius is not None:
        within = settings.radius, exponent, seed, metric
        probes = done(graph.RadiusProbes(cells, ordered, *within))
        edges = done(graph.RadiusGraph(cells, ordered, probes, *within))
        return Joined(cells, ordered, edges, edges, cut, exponent, "radius", metric)
    k = fewer_neighbors(settings.n_neighbors, int(ordered.figures["n_nodes"]))
    probes = done(graph.Probes(cells, ordered, k, seed, settings.recall))
    neighbors = done(graph.Neighbors(cells, ordered, probes, k, seed, metric))
    edges = done(graph.Graph(ordered, neighbors))
    return Joined(cells, ordered, neighbors, edges, cut, exponent, "neighbors", metric, new_edges=settings.new_edges)


def _precomputed_graph(settings: FitSettings, source: GraphSource, done: Runner) -> Joined:
    """A graph of the user's, whose nodes are rows."""
    cut = partitions_of(source, planned_landmarks(settings, source), settings.partition_mib)
    edges = done(graph.GivenGraph(done(graph.LoadGraph(source)), cut, settings.seed))
    return Joined(None, edges, edges, edges, cut, int(edges.figures["exponent"]), "given")


def new_rows(settings: ExtendSettings, space: Space, source: AnyBatch, done: Runner) -> tuple[Provider, RowPartitions]:
    """Run the stages up to what every new row is to the landmarks."""
    if isinstance(space, GraphSpace):
        if isinstance(source, NewNodes):
            return _new_nodes(settings, space, source, done)
        return _searched(settings, space, as_table(source), done)
    if isinstance(source, NewNodes):
        raise TypeError("new nodes come to runs on a graph only")
    cut = partitions_of(source, space.answers.n_landmarks, settings.partition_mib)
    if isinstance(source, ProximitySource):
        return _new_precomputed(settings, space, source, cut, done), cut
    if isinstance(source, ObjectSource):
        return _new_compared(space, source, cut, done), cut
    told, data = fitted_settings(space), _replayed(settings, space, as_table(source), cut, done)
    return VectorRows(data, space.stages["landmarks"], told.metric, kernel_choice(told)), cut


def _new_precomputed(
    settings: ExtendSettings, space: Space, source: ProximitySource, cut: RowPartitions, done: Runner
) -> Provider:
    told, landmarks = fitted_settings(space), space.stages["landmarks"]
    similar, affinity = told.input == SIMILARITIES, told.takes_affinities
    scanned = done(ScanProximities(source, landmarks, cut, similar, affinity))
    own_key, new = own_key_of(settings, told), None
    if settings.joint is not None and settings.between_key is not None:
        between = between_new(source, settings.between_key)
        own = own_similarities(source, own_key) if own_key is not None and similar else None
        new = NewProximities(between, done(ScanBetween(between, cut, settings.joint, own)))
    return PrecomputedRows(source, scanned, landmarks, similar, affinity, own_key, space.exponent, new=new)


def _new_compared(space: Space, source: ObjectSource, cut: RowPartitions, done: Runner) -> Provider:
    comparison, fitted = comparison_of(fitted_settings(space)), space.stages
    landmarks, subset = fitted["landmarks"], fitted.get("subset")
    scanned = done(ScanObjects(source, cut))
    compared = done(Compare(source, scanned, landmarks, comparison, subset, has_landmarks=False))
    rows = fitted.get("rows")
    new = NewObjects(source, comparison)
    values = ComparedRows(compared, landmarks, comparison.is_kernel, source.name, space.exponent, rows, new)
    return values if subset is None else EstimatedRows(values, subset, has_landmarks=False)


def _replayed(
    settings: ExtendSettings, space: Space, source: Source, cut: RowPartitions, done: Runner
) -> ReplayedSource:
    """New vectors with the preprocessing of the fit."""
    fitted, told = space.stages, fitted_settings(space)
    validated = done(ValidateBatch(source, cut, settings.missing, told.metric_of_rows, space.exponent_of_source))
    dtype, axes = point_dtype(fitted["validate"].figures["dtype"]), fitted.get("axes")
    metric = told.metric_of_points
    return ReplayedSource(source, fitted["validate"], told.standardize, axes, metric, validated, dtype)


def _searched(
    settings: ExtendSettings, space: GraphSpace, source: Source, done: Runner
) -> tuple[Provider, RowPartitions]:
    """New points that look for their neighbors among the fitted ones."""
    row_bytes = bytes_of_new_row(source.shape[1] * source.dtype.itemsize, space)
    cut = cut_rows(source.shape[0], row_bytes, settings.partition_mib)
    data = _replayed(settings, space, source, cut, done)
    assigned = done(graph.Assign(data, cut, space.stages["cells"]))
    ordered = done(graph.Order(assigned, cut.count, cut.rows_each))
    search = graph.Search if space.radius is None else graph.SearchWithin
    keeps_lists = bool(settings.joint or settings.arc)
    return SearchedRows(space, ordered, done(search(space, ordered)), keeps_lists), cut


def _new_nodes(
    settings: ExtendSettings, space: GraphSpace, source: NewNodes, done: Runner
) -> tuple[Provider, RowPartitions]:
    """New nodes of a graph of the user's, each with its edges."""
    cut = cut_rows(source.n_nodes, bytes_of_new_row(0, space), settings.partition_mib)
    joined = done(graph.JoinNewNodes(space, done(graph.LoadNewNodes(source, settings.missing)), cut))
    return SearchedRows(space, joined, joined, bool(settings.joint or settings.arc)), cut


def bytes_of_new_row(own: int, space: GraphSpace) -> int:
    """Bytes that a new row counts, of which `own` are its data: its neighbors and results may take more."""
    results = len(space.answers.coordinates) * space.answers.n_components + len(space.published_columns)
    return own + 12 * space.edges_each + 8 * results
