"""A whole fit: a provider measures, a method embeds the landmarks, all other rows are placed and published."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Unpack

from pipeline.errors import InvalidInputError, StoreError
from pipeline.jobs.job import Done, Job, Runner, Way, require_apart
from pipeline.jobs.measured import ALONG_NEIGHBORS, measured, measuring_stages
from pipeline.jobs.plan import Plan, assumed, fit_shape, method_choice, planned
from pipeline.methods import METHODS, VECTORS, uses
from pipeline.plugins import LOADED
from pipeline.settings import FitSettings
from pipeline.sources.inputs import AnySource, described_source, n_columns, n_points, open_input
from pipeline.stages.dominance import dominance
from pipeline.stages.embed import Embed, Placing
from pipeline.stages.evaluate import Calibrate, Evaluate
from pipeline.stages.graph.bridges import JOINING
from pipeline.stages.graph.pairs import Pairs
from pipeline.stages.landmarks import AutomaticComponents, LandmarkCounts, Model
from pipeline.stages.publish import Publish
from pipeline.stages.stage import Cost, Outcome, Stage, Watch, costs_of
from pipeline.stages.validate import Validate
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

# Settings that choose what of the data is used.
CHOOSING = ("input", "key", "columns", "exclude", "missing")
# What every fit does once points are measured, and every stage that a fit along a graph has, in order.
EMBEDDING: tuple[type[Stage], ...] = (Model, Embed, Calibrate, Evaluate, Publish)
EMBEDDING_ALONG_PATHS: tuple[type[Stage], ...] = (*EMBEDDING[:-2], Pairs, *EMBEDDING[-2:])
STAGES = tuple(stage.name for stage in (*ALONG_NEIGHBORS, *EMBEDDING_ALONG_PATHS))
# Stages that a fit has only if a setting, or its data, asks for them.
ON_REQUEST = (AutomaticComponents.name, LandmarkCounts.name, *(stage.name for stage in JOINING))


def checked_source(settings: FitSettings, data: object | None = None) -> AnySource:
    """The source of a fit, after everything that can be checked before anything runs."""
    settings.check_choices()
    source = open_input(settings, data)
    settings.check_against(n_points(source), n_columns(source))
    require_apart("store", settings.store, settings.source)
    return source


def fit_costs(settings: FitSettings, source: AnySource) -> dict[str, Cost]:
    """What each stage of a fit takes on one core, in their order."""
    weighting = [LandmarkCounts] if settings.counts_rows else []
    shape = fit_shape(assumed(settings, source), source)
    embedding = EMBEDDING_ALONG_PATHS if settings.is_geodesic else EMBEDDING
    return costs_of((*measuring_stages(settings, source), *weighting, *embedding), shape)


def plan_fit(settings: FitSettings, source: AnySource) -> Plan:
    """The plan of a fit; nothing is read of the source but its shape."""
    plan = planned(fit_costs(settings, source), settings.cluster, settings.store)
    assumptions = []
    if settings.n_components == "auto":
        d = assumed(settings, source).components
        assumptions.append(f"n_components=auto is counted as {d}; the fit finds it from the data")
    if settings.is_geodesic and settings.input == VECTORS and settings.component_policy == "bridge":
        joining = costs_of(JOINING, fit_shape(assumed(settings, source), source))
        seconds = sum(planned(joining, settings.cluster, settings.store).seconds.values())
        assumptions.append(f"the graph is in one piece; to join one in pieces takes up to {seconds:,.0f} s more")
    return replace(plan, assumptions=tuple(assumptions))


@dataclass(frozen=True)
class FitJob(Job):
    """A fit whose source is open and checked; `paths` are the files that the source was read from."""

    settings: FitSettings
    source: AnySource
    paths: Sequence[str]

    @cached_property
    def plan(self) -> Plan:
        return plan_fit(self.settings, self.source)

    def planned_seconds(self) -> Mapping[str, float]:
        return self.plan.seconds

    def stages(self, done: Runner) -> None:
        """Every stage of a fit; other data than the store has is refused before anything but the scan is computed."""

        def checked(stage: Stage) -> Outcome:
            outcome = done(stage)
            if stage.name == Validate.name:
                self._require_same_data(outcome)
            return outcome

        chain(self.settings, self.source, checked)

    def version_of(self, store: Backend, outcomes: dict[str, Outcome]) -> str | None:
        """Other data makes a version of its own, beside those that are published."""
        states = _readable_states(store)
        if not states or not self._is_other_data(outcomes[Validate.name]):
            return self.version
        return run.free_name(1 + max(map(run.version_number, states)), map(run.version_name, states))

    def _require_same_data(self, scanned: Outcome) -> None:
        if self.settings.on_changed_source == "version" or not self._is_other_data(scanned):
            return
        store = scanned.ledger.store
        published = _readable_states(store)[-1]
        n_rows, name = int(published["source"]["n_rows"]), run.version_name(published)
        raise InvalidInputError(
            f"{self.settings.source} is not the data that version {name!r} in {store} was fitted on ({n_rows:,} rows; "
            f"now {n_points(self.source):,}, or of other content). Nothing was replaced: fit into another store, or "
            "publish the result as the next version with --on-changed-source version."
        )

    def _is_other_data(self, scanned: Outcome) -> bool:
        """Whether no version in the store is of this data, though they choose the same parts of it."""
        store, content = scanned.ledger.store, scanned.figures["content"]
        chosen = self.settings.of_results()
        alike = [
            state
            for state in _readable_states(store)
            if all(state["settings"].get(name) == chosen.get(name) for name in CHOOSING)
        ]
        contents = [
            StageLedger(store, scanned.ledger.stage, state["stages"][scanned.ledger.stage]["digest"]).finished() or {}
            for state in alike
            if scanned.ledger.stage in state["stages"]
        ]
        return bool(contents) and content not in [figures.get("content") for figures in contents]

    def manifest(self, outcomes: dict[str, Outcome]) -> Json:
        found = outcomes.get(AutomaticComponents.name)
        settings = self.settings if found is None else self.settings.with_components(found.figures["n_components"])
        described = described_source(self.source)
        vectors = settings.input == VECTORS
        dominant = dominance(settings, described["column_names"], outcomes[Validate.name]) if vectors else None
        return {
            **({} if dominant is None else {"dominating_columns": dominant}),
            "settings": settings.of_results(),
            "source": described,
            "sources": [str(Path(path).resolve()) for path in self.paths],
        }


def _readable_states(store: Backend) -> list[Json]:
    """The versions in a store; none if what is published is damaged, which a fit writes anew."""
    try:
        return run.states(store)
    except StoreError:
        return []


def prepare_fit(settings: FitSettings, data: object | None = None) -> FitJob:
    """Open and check the source. `data` is an array, possibly lazy, to take instead of what `source` names."""
    return FitJob(settings.store, settings, checked_source(settings, data), [settings.source] if data is None else [])


def fit(settings: FitSettings, watch: Watch | None = None, data: object | None = None, **way: Unpack[Way]) -> Done:
    """Run every stage that is not complete and publish the result."""
    return prepare_fit(settings, data).run(watch, **way)


def chain(
    settings: FitSettings, source: AnySource, done: Runner, registration: Callable[[Outcome], Stage] | None = None
) -> None:
    """Every stage of a fit after the other.

    `registration` makes the stage that aligns what was embedded with an earlier version before it is published.
    """
    found = measured(settings, source, done)
    provider, cut, seed = found.provider, found.partitions, settings.seed
    settings = settings.with_components(found.n_components)
    n_clusters = (settings.n_clusters or settings.components) if uses(settings.method, "n_clusters") else None
    counted = done(LandmarkCounts(provider, found.landmarks, cut)) if settings.counts_rows else None
    model = done(Model(provider, method_choice(settings, provider.exponent), n_clusters, seed, counted))
    lengths = METHODS[settings.method].coordinates_are_lengths
    extra = tuple(LOADED.trust_columns)
    placing = Placing(provider, model, settings.diagonal_weight, lengths, cut, None, extra, settings.spread)
    embedded = done(Embed(placing, seed))
    done(Calibrate(placing, embedded))
    between = provider.pairs_stage(embedded, seed)
    pairs = None if between is None else done(between)
    done(Evaluate(placing, embedded, settings.n_neighbors, seed, pairs))
    turned = None if registration is None else done(registration(embedded))
    done(Publish(embedded, cut, settings.components, placing.columns, turned, placing.coordinates, placing.flags))
    provider.warn()
