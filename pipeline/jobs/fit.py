"""A whole fit: the stages in their order, each given the outcomes that it reads.

How a stage is run (here, on a cluster, under an orchestrator) is the caller's choice; `chain` says what comes next.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InvalidInputError, RecallWarning
from pipeline.jobs.direct_fit import direct_chain, landmark_count, method_choice, planned_landmarks, prepared
from pipeline.methods import GRAPH
from pipeline.numerics.extension.placement import TRUST
from pipeline.numerics.landmarks.sampling import MAXMIN_CANDIDATES_PER_LANDMARK, automatic_count
from pipeline.numerics.neighbors.spatial import cell_count, sample_size
from pipeline.settings.jobs import FitSettings
from pipeline.sources import Source
from pipeline.sources.graphs import GraphSource
from pipeline.sources.inputs import (
    AnySource,
    as_table,
    described_source,
    n_columns,
    n_points,
    open_input,
    partitions_of,
)
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.calibrate import Calibrate
from pipeline.stages.costs import RunShape
from pipeline.stages.embed import Embed
from pipeline.stages.evaluate import Evaluate
from pipeline.stages.graph.components import NO_BRIDGES, Components
from pipeline.stages.graph.graph import Graph
from pipeline.stages.graph.neighbors import Neighbors, Probes
from pipeline.stages.graph.partition import Assign, Cells, Order
from pipeline.stages.graph.precomputed import GivenGraph, LoadGraph
from pipeline.stages.graph.radius import RadiusGraph, RadiusProbes
from pipeline.stages.graph.rows import Rows, landmarks_per_batch, nodes_per_chunk
from pipeline.stages.landmarks import Landmarks
from pipeline.stages.model import Model
from pipeline.stages.preprocess import Axes, point_dtype
from pipeline.stages.publish import COORDINATES, Publish
from pipeline.stages.stage import Execute, Outcome, Stage, Watch, ledger_of, run_stage, serially
from pipeline.stages.validate import Validate
from pipeline.store import is_within, lease, run
from pipeline.store.backend import Backend
from pipeline.store.lease import Lease
from pipeline.types import Json

Runner = Callable[[Stage], Outcome]
# Runs a stage by calling what it is given, at once or as something that an orchestrator can see and repeat.
Around = Callable[[str, Callable[[], Outcome]], Outcome]
# Every stage that a fit along a graph may have, in order; others have some of them.
STAGES = tuple(
    stage.name
    for stage in (
        *(Validate, Axes, Cells, Assign, Order, Probes, Neighbors, Graph),
        *(Components, Landmarks, Rows, Model, Calibrate, Embed, Evaluate, Publish),
    )
)
# What an embedding of an earlier state of this version does not say of itself.
EMBEDDED = {"columns": TRUST, "coordinates": COORDINATES}
# How many neighbors a plan counts on within a radius.
WITHIN_RADIUS = 30
# Below this share of true neighbors a fit says so.
PROMISED_RECALL = 0.99


@dataclass(frozen=True)
class Fitted:
    """What a fit came to: the outcomes of its stages by name."""

    outcomes: dict[str, Outcome]

    @property
    def n_computed(self) -> int:
        """Partitions that this call had to compute."""
        return sum(outcome.n_computed for outcome in self.outcomes.values())


def checked_source(settings: FitSettings, data: object | None = None) -> AnySource:
    """The source of a fit, after all that can be known to be wrong before anything runs."""
    settings.check_choices()
    source = open_input(settings, data)
    settings.check_against(n_points(source), n_columns(source))
    require_apart("store", settings.store, settings.source)
    if settings.input == GRAPH and settings.component_policy == "bridge":
        raise InvalidInputError(NO_BRIDGES)
    return source


def at_once(_name: str, run_one: Callable[[], Outcome]) -> Outcome:
    return run_one()


def fit(
    settings: FitSettings,
    watch: Watch | None = None,
    take_over: bool = False,
    data: object | None = None,
    execute: Execute = serially,
    around: Around = at_once,
    planned: Mapping[str, float] | None = None,
) -> Fitted:
    """Run every stage that is not complete and publish the result.

    `data` is an array, also a lazy one, to be taken instead of what `settings.source` names. `execute` computes the
    partitions of a stage, one after the other unless said otherwise. `planned` are the seconds that each stage is
    thought to take, for others to tell from how long the run will take still.
    """
    source = checked_source(settings, data)
    store = run.create_run(settings.store)

    def stages(run_one: Runner) -> dict[str, Outcome]:
        return chain(settings, source, run_one)

    with lease.acquire(store, take_over) as held:
        run.write_plan(store, planned or {})
        outcomes = run_stages(store, held, stages, watch, execute, around)
        publish(held, described_fit(settings, source, [settings.source] if data is None else []), outcomes)
    return Fitted(outcomes)


def run_stages(
    store: Backend,
    held: Lease,
    stages: Callable[[Runner], dict[str, Outcome]],
    watch: Watch | None = None,
    execute: Execute = serially,
    around: Around = at_once,
) -> dict[str, Outcome]:
    """The outcomes of a chain of stages in a store that is held, what is complete taken as it is."""
    store.sweep_partials()
    journal = Journal(held)

    def run_one(stage: Stage) -> Outcome:
        held.ensure_held()
        journal.note(stage)
        return run_stage(held, stage, execute, watch)

    outcomes = stages(lambda stage: around(stage.name, lambda: run_one(stage)))
    held.ensure_held()
    if execute is not serially:
        store.sweep_partials()  # of workers that died on the way
    return outcomes


def publish(held: Lease, manifest: Json, outcomes: Mapping[str, Outcome], version: str | None = None) -> Json:
    """Make the outcomes of a chain the published ones; the manifest as it is published."""
    return run.publish(held.store, manifest, [outcome.ledger for outcome in outcomes.values()], version)


def require_apart(argument: str, folder: str, source: str) -> None:
    """A run inside its own source would change it."""
    if is_within(folder, source):
        raise InvalidInputError(f"{argument}={folder!r} is inside the source {source!r}; choose another.")


class Journal:
    """Writes down each stage before it runs, so that its results are known even if the run never ends."""

    def __init__(self, held: Lease) -> None:
        self._held = held
        self._before = run.read_journal(held.store)
        self._entries: list[Json] = []

    def note(self, stage: Stage) -> None:
        digest = ledger_of(self._held, stage).digest
        entry = {"stage": stage.name, "digest": digest, "n_partitions": stage.n_partitions()}
        if self._entries[-1:] != [entry]:  # it is when the stage is tried again
            self._entries.append(entry)
        if self._before[: len(self._entries)] != self._entries:
            self._before = []
            run.write_journal(self._held.store, self._entries)


def chain(
    settings: FitSettings, source: AnySource, run_one: Runner, registration: Callable[[Outcome], Stage] | None = None
) -> dict[str, Outcome]:
    """Every stage of a fit after the other; the outcomes by the stages' names.

    `registration` makes of what was embedded the stage that says how to turn it before it is published.
    """
    outcomes: dict[str, Outcome] = {}

    def done(stage: Stage) -> Outcome:
        outcomes[stage.name] = run_one(stage)
        return outcomes[stage.name]

    if settings.is_geodesic:
        _geodesic_chain(settings, source, done, registration)
    else:
        direct_chain(settings, source, done, registration)
    return outcomes


@dataclass(frozen=True)
class Joined:
    """Nodes and the graph that joins them, in lengths of 2^exponent of the user's; `cells` where nodes are points.

    Where neighbors have any number of neighbors, one stage is `neighbors` and `graph`.
    """

    cells: Outcome | None
    ordered: Outcome
    neighbors: Outcome
    graph: Outcome
    partitions: RowPartitions
    exponent: int
    edges_from: str


def _geodesic_chain(
    settings: FitSettings, source: AnySource, done: Runner, registration: Callable[[Outcome], Stage] | None
) -> None:
    if isinstance(source, GraphSource):
        joined = _given_graph(settings, source, done)
    else:
        joined = _joined_points(settings, as_table(source), done)
    cells, ordered, neighbors, graph = joined.cells, joined.ordered, joined.neighbors, joined.graph
    cut, exponent, weight, seed = joined.partitions, joined.exponent, settings.diagonal_weight, settings.seed
    components = done(Components(cells, ordered, graph, settings.component_policy, joined.edges_from))
    m = landmark_count(settings, int(components.figures["n_kept"]), "distinct points are embedded")
    landmarks = done(Landmarks(cells, ordered, graph, components, m, settings.selection, seed))
    rows = done(Rows(ordered, neighbors, graph, components, landmarks))
    model = done(Model(rows, method_choice(settings)))
    done(Calibrate(neighbors, rows, model, exponent, weight))
    embedded = done(Embed(ordered, neighbors, graph, components, rows, model, cut, exponent, weight, seed))
    done(Evaluate(cells, ordered, neighbors, model, embedded, settings.n_neighbors, seed))
    turned = None if registration is None else done(registration(embedded))
    columns, coordinates = (tuple(embedded.figures.get(name, was)) for name, was in EMBEDDED.items())
    done(Publish(embedded, cut, settings.n_components, columns, turned, coordinates))
    _warn_of_low_recall(neighbors.figures)


def _joined_points(settings: FitSettings, source: Source, done: Runner) -> Joined:
    """Points joined to their nearest, or to all within a radius."""
    seed, cut = settings.seed, partitions_of(source, 0, settings.partition_mib)
    data = prepared(settings, source, done(Validate(source, cut, settings.missing)), done)
    cells = done(Cells(data, cut, seed))
    ordered = done(Order(done(Assign(data, cut, cells)), cut.count, cut.rows_each))
    exponent = data.preprocessing.result_exponent
    if settings.radius is not None:
        within = settings.radius, exponent, seed
        graph = done(RadiusGraph(cells, ordered, done(RadiusProbes(cells, ordered, *within)), *within))
        return Joined(cells, ordered, graph, graph, cut, exponent, "radius")
    k = settings.n_neighbors
    probes = done(Probes(cells, ordered, k, seed, settings.recall))
    neighbors = done(Neighbors(cells, ordered, probes, k, seed))
    graph = done(Graph(ordered, neighbors))
    return Joined(cells, ordered, neighbors, graph, cut, exponent, "neighbors")


def _given_graph(settings: FitSettings, source: GraphSource, done: Runner) -> Joined:
    """A graph of the user's, whose nodes are rows."""
    cut = partitions_of(source, planned_landmarks(settings, source), settings.partition_mib)
    graph = done(GivenGraph(done(LoadGraph(source)), cut, settings.seed))
    return Joined(None, graph, graph, graph, cut, int(graph.figures["exponent"]), "given")


def run_shape(settings: FitSettings, source: Source) -> RunShape:
    """What the costs of a fit depend on; rows count as distinct until they have been looked at, and how
    many neighbors a radius gives is a guess."""
    n, columns = source.shape
    m = automatic_count(n, settings.n_components) if settings.n_landmarks == "auto" else settings.n_landmarks
    candidates = min(n, MAXMIN_CANDIDATES_PER_LANDMARK * m) if settings.selection != "random" else 0
    return RunShape(
        n_rows=n,
        n_columns=columns,
        source_itemsize=source.dtype.itemsize,
        n_axes=settings.pca or columns,
        finds_axes=settings.pca is not None,
        point_itemsize=point_dtype(source.dtype).itemsize,
        rows_each=partitions_of(source, m, settings.partition_mib).rows_each,
        n_cells=cell_count(n),
        cell_sample=sample_size(n, settings.pca or columns),
        n_neighbors=settings.n_neighbors if settings.radius is None else WITHIN_RADIUS,
        n_landmarks=m,
        landmark_candidates=candidates,
        batch=landmarks_per_batch(m),
        nodes_per_chunk=nodes_per_chunk(m, partitions_of(source, m, settings.partition_mib).rows_each),
        n_components=settings.n_components,
        edges_from="neighbors" if settings.radius is None else "radius",
    )


def graph_shape(settings: FitSettings, source: GraphSource) -> RunShape:
    """The same of a fit on a graph of the user's, of which edges may be listed from one end only."""
    n, m = source.n_nodes, planned_landmarks(settings, source)
    rows_each = partitions_of(source, m, settings.partition_mib).rows_each
    nothing = dict.fromkeys(("n_columns", "source_itemsize", "n_axes", "point_itemsize", "n_cells", "cell_sample"), 0)
    return RunShape(
        n_rows=n,
        finds_axes=False,
        rows_each=rows_each,
        n_neighbors=-(-2 * source.n_edges // n),
        n_landmarks=m,
        landmark_candidates=0,
        batch=landmarks_per_batch(m),
        nodes_per_chunk=nodes_per_chunk(m, rows_each),
        n_components=settings.n_components,
        edges_from="given",
        **nothing,
    )


def _warn_of_low_recall(figures: Json) -> None:
    if figures.get("recall", 1.0) < PROMISED_RECALL:
        warnings.warn(
            f"The neighbor search finds {figures['recall']:.1%} of the true neighbors, audited on {figures['audited']} "
            f"points; below {PROMISED_RECALL:.0%} the graph may lack edges that matter. Raise recall; 1 searches "
            "exactly.",
            RecallWarning,
            stacklevel=3,
        )


def described_fit(settings: FitSettings, source: AnySource, paths: Sequence[str]) -> Json:
    """The manifest of a fit but for its stages: what it was told, what its data is and where."""
    return {
        "settings": settings.of_results(),
        "source": described_source(source),
        "sources": [str(Path(path).resolve()) for path in paths],
    }
