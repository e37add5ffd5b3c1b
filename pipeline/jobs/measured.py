"""The stages of a fit that depend on what is given: up to a provider of dissimilarities to the landmarks."""

from dataclasses import dataclass

from pipeline.jobs.choices import evaluated_count, kernel_choice, landmark_count, planned_landmarks
from pipeline.jobs.job import Runner
from pipeline.methods import METHODS, SIMILARITIES
from pipeline.settings import FitSettings
from pipeline.sources.graphs import GraphSource
from pipeline.sources.inputs import AnySource, as_table, comparison_of, partitions_of
from pipeline.sources.objects import ObjectSource
from pipeline.sources.partitions import RowPartitions
from pipeline.sources.proximities import ProximitySource
from pipeline.sources.source import Source
from pipeline.stages.graph import stages as graph
from pipeline.stages.landmarks import Landmarks
from pipeline.stages.providers.geodesic import GeodesicRows, NodeCandidates
from pipeline.stages.providers.objects import (
    Compare,
    ComparedRows,
    EstimatedRows,
    ObjectCandidates,
    ScanObjects,
    Subset,
)
from pipeline.stages.providers.provider import Candidates, Measured
from pipeline.stages.providers.proximities import MatrixCandidates, PrecomputedRows, ScanProximities
from pipeline.stages.providers.vectors import VectorCandidates, VectorRows
from pipeline.stages.stage import Outcome, Stage
from pipeline.stages.validate import Axes, PreparedSource, Validate

# The stages of a fit along a graph of neighbors up to distances to the landmarks, in order.
ALONG_NEIGHBORS: tuple[type[Stage], ...] = (
    *(Validate, Axes, graph.Cells, graph.Assign, graph.Order, graph.Probes, graph.Neighbors, graph.Graph),
    *(graph.Components, Landmarks, graph.Rows),
)


def measuring_stages(settings: FitSettings, source: AnySource) -> list[type[Stage]]:
    """The stages that `measured` runs, in their order, for a plan to count."""
    if isinstance(source, GraphSource):
        return [graph.LoadGraph, graph.GivenGraph, graph.Components, Landmarks, graph.Rows]
    if isinstance(source, ProximitySource):
        return [Landmarks, ScanProximities]
    if isinstance(source, ObjectSource):
        return [ScanObjects, Landmarks, *([Subset] if settings.n_evaluated is not None else []), Compare]
    within = {graph.Probes: graph.RadiusProbes, graph.Neighbors: None, graph.Graph: graph.RadiusGraph}
    stages = ALONG_NEIGHBORS if settings.is_geodesic else (Validate, Axes, Landmarks)
    chosen = [stage if settings.radius is None else within.get(stage, stage) for stage in stages]
    return [stage for stage in chosen if stage is not None and (stage is not Axes or settings.pca is not None)]


def measured(settings: FitSettings, source: AnySource, done: Runner) -> Measured:
    """Run all stages up to what every point is to the landmarks."""
    if settings.is_geodesic:
        return _along_a_graph(settings, source, done)
    if isinstance(source, ProximitySource):
        return _precomputed(settings, source, done)
    if isinstance(source, ObjectSource):
        return _compared(settings, source, done)
    return _vectors(settings, as_table(source), done)


def _least_landmarks(settings: FitSettings, n_landmarks: int) -> int:
    """The fewest landmarks that will do where points repeat: all of them, if a number was asked for."""
    return settings.n_components + 1 if settings.n_landmarks == "auto" else n_landmarks


def _chosen(settings: FitSettings, candidates: Candidates, n_landmarks: int, done: Runner) -> Outcome:
    return done(Landmarks(candidates, n_landmarks, settings.selection, settings.seed))


def _vectors(settings: FitSettings, source: Source, done: Runner) -> Measured:
    cut = partitions_of(source, planned_landmarks(settings, source), settings.partition_mib)
    data = _prepared(settings, source, cut, done)
    usable = int(data.validated.figures["n_rows"] - data.validated.figures["n_dropped_rows"])
    m = landmark_count(settings, usable, "rows are embedded")
    landmarks = _chosen(settings, VectorCandidates(data, cut, _least_landmarks(settings, m)), m, done)
    return Measured(VectorRows(data, landmarks, settings.metric, kernel_choice(settings)), landmarks, cut)


def _prepared(settings: FitSettings, source: Source, cut: RowPartitions, done: Runner) -> PreparedSource:
    """The validated source with the preprocessing that is asked for."""
    validated = done(Validate(source, cut, settings.missing))
    if settings.pca is None:
        return PreparedSource(source, validated, settings.standardize)
    axes = done(Axes(source, validated, settings.standardize, settings.pca))
    return PreparedSource(source, validated, settings.standardize, axes)


def _precomputed(settings: FitSettings, source: ProximitySource, done: Runner) -> Measured:
    m, similar = planned_landmarks(settings, source), settings.input == SIMILARITIES
    cut = partitions_of(source, m, settings.partition_mib)
    landmarks = _chosen(settings, MatrixCandidates(source, settings.landmarks_key, similar), m, done)
    affinity, nearest_own = settings.takes_affinities, METHODS[settings.method].returns_by_itself
    scanned = done(ScanProximities(source, landmarks, cut, similar, affinity))
    provider = PrecomputedRows(source, scanned, landmarks, similar, affinity, settings.own_key, nearest_own=nearest_own)
    return Measured(provider, landmarks, cut)


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
    return Measured(provider if subset is None else EstimatedRows(provider, subset), landmarks, cut)


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


def _along_a_graph(settings: FitSettings, source: AnySource, done: Runner) -> Measured:
    """Geodesic distances: a graph, its components, landmarks among its nodes, shortest paths from them."""
    if isinstance(source, GraphSource):
        joined = _precomputed_graph(settings, source, done)
    else:
        joined = _joined_points(settings, as_table(source), done)
    cells, ordered, edges = joined.cells, joined.ordered, joined.graph
    components = done(graph.Components(cells, ordered, edges, settings.component_policy, joined.edges_from))
    m = landmark_count(settings, int(components.figures["n_kept"]), "distinct points are embedded")
    landmarks = _chosen(settings, NodeCandidates(cells, ordered, edges, components), m, done)
    rows = done(graph.Rows(ordered, joined.neighbors, edges, components, landmarks))
    provider = GeodesicRows(cells, ordered, joined.neighbors, edges, components, rows, joined.exponent)
    return Measured(provider, landmarks, joined.partitions)


def _joined_points(settings: FitSettings, source: Source, done: Runner) -> Joined:
    """Points joined to their nearest, or to all within a radius."""
    seed, cut = settings.seed, partitions_of(source, 0, settings.partition_mib)
    data = _prepared(settings, source, cut, done)
    cells = done(graph.Cells(data, cut, seed))
    ordered = done(graph.Order(done(graph.Assign(data, cut, cells)), cut.count, cut.rows_each))
    exponent = data.preprocessing.result_exponent
    if settings.radius is not None:
        within = settings.radius, exponent, seed
        probes = done(graph.RadiusProbes(cells, ordered, *within))
        edges = done(graph.RadiusGraph(cells, ordered, probes, *within))
        return Joined(cells, ordered, edges, edges, cut, exponent, "radius")
    k = settings.n_neighbors
    probes = done(graph.Probes(cells, ordered, k, seed, settings.recall))
    neighbors = done(graph.Neighbors(cells, ordered, probes, k, seed))
    return Joined(cells, ordered, neighbors, done(graph.Graph(ordered, neighbors)), cut, exponent, "neighbors")


def _precomputed_graph(settings: FitSettings, source: GraphSource, done: Runner) -> Joined:
    """A graph of the user's, whose nodes are rows."""
    cut = partitions_of(source, planned_landmarks(settings, source), settings.partition_mib)
    edges = done(graph.GivenGraph(done(graph.LoadGraph(source)), cut, settings.seed))
    return Joined(None, edges, edges, edges, cut, int(edges.figures["exponent"]), "given")
