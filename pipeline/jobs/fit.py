"""A whole fit: a provider measures, a method embeds the landmarks, all other rows are placed and published."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline.errors import InvalidInputError
from pipeline.jobs.job import Around, Done, Job, Runner, at_once, require_apart
from pipeline.jobs.measured import chosen_gamma, measured
from pipeline.jobs.plan import Plan, plan_fit
from pipeline.methods import GRAPH, METHODS, uses
from pipeline.numerics.models.catalog import Choice
from pipeline.numerics.models.metrics import gamma_in_unit
from pipeline.plugins import LOADED
from pipeline.settings import FitSettings
from pipeline.sources.inputs import AnySource, described_source, n_columns, n_points, open_input
from pipeline.stages.embed import Embed, Placing
from pipeline.stages.evaluate import Calibrate, Evaluate
from pipeline.stages.graph.components import NO_BRIDGES
from pipeline.stages.landmarks import Model
from pipeline.stages.publish import Publish
from pipeline.stages.stage import Execute, Outcome, Stage, Watch, serially
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.types import Json


class Fitted(Done):
    """What a fit came to."""


def checked_source(settings: FitSettings, data: object | None = None) -> AnySource:
    """The source of a fit, after everything that can be checked before anything runs."""
    settings.check_choices()
    source = open_input(settings, data)
    settings.check_against(n_points(source), n_columns(source))
    require_apart("store", settings.store, settings.source)
    if settings.input == GRAPH and settings.component_policy == "bridge":
        raise InvalidInputError(NO_BRIDGES)
    return source


@dataclass(frozen=True)
class FitJob(Job[Fitted]):
    """A fit whose source is open and checked; `paths` are the files that the source was read from."""

    settings: FitSettings
    source: AnySource
    paths: Sequence[str]

    @cached_property
    def plan(self) -> Plan:
        return plan_fit(self.settings, self.source)

    def planned_seconds(self) -> Mapping[str, float] | None:
        return self.plan.seconds

    def open_store(self) -> Backend:
        return run.create_run(self.settings.store)

    def stages(self, store: Backend, done: Runner) -> None:
        chain(self.settings, self.source, done)

    def manifest(self, store: Backend, outcomes: dict[str, Outcome]) -> Json:
        return described_fit(self.settings, self.source, self.paths)

    def result(self, outcomes: dict[str, Outcome], manifest: Json) -> Fitted:
        return Fitted(outcomes, manifest)


def prepare_fit(settings: FitSettings, data: object | None = None) -> FitJob:
    """Open and check the source. `data` is an array, possibly lazy, to take instead of what `source` names."""
    return FitJob(settings, checked_source(settings, data), [settings.source] if data is None else [])


def fit(
    settings: FitSettings,
    watch: Watch | None = None,
    take_over: bool = False,
    data: object | None = None,
    execute: Execute = serially,
    around: Around = at_once,
) -> Fitted:
    """Run every stage that is not complete and publish the result."""
    return prepare_fit(settings, data).run(watch, take_over, execute, around)


def chain(
    settings: FitSettings, source: AnySource, done: Runner, registration: Callable[[Outcome], Stage] | None = None
) -> None:
    """Every stage of a fit after the other.

    `registration` makes the stage that aligns what was embedded with an earlier version before it is published.
    """
    found = measured(settings, source, done)
    provider, cut, seed = found.provider, found.partitions, settings.seed
    n_clusters = (settings.n_clusters or settings.n_components) if uses(settings.method, "n_clusters") else None
    model = done(Model(provider, method_choice(settings, provider.exponent), n_clusters, seed))
    lengths = METHODS[settings.method].coordinates_are_lengths
    placing = Placing(
        provider, model, settings.diagonal_weight, lengths, cut, extra_columns=tuple(LOADED.trust_columns)
    )
    embedded = done(Embed(placing, seed))
    done(Calibrate(placing, embedded))
    done(Evaluate(placing, embedded, settings.n_neighbors, seed))
    turned = None if registration is None else done(registration(embedded))
    done(Publish(embedded, cut, settings.n_components, placing.columns, turned, placing.coordinates, placing.flags))
    provider.warn()


def method_choice(settings: FitSettings, exponent: int = 0) -> Choice:
    """The method and its parameters, for dissimilarities in units of 2^exponent of the user's."""
    gamma = gamma_in_unit(chosen_gamma(settings), exponent)
    kernel = settings.evaluates and uses(settings.method, "kernel")
    own_neighbors = uses(settings.method, "n_neighbors") and not settings.is_geodesic
    return Choice(
        method=settings.method,
        n_components=settings.n_components,
        extension=settings.extension if settings.extension == "auto" else settings.chosen_extension,
        n_neighbors=settings.n_neighbors if own_neighbors else Choice.n_neighbors,
        gamma=gamma if uses(settings.method, "gamma") else None,
        affinity=settings.takes_affinities,
        signed=settings.induces_distances or kernel,
        regularization=settings.regularization,
        stress_neighbors=settings.stress_neighbors,
    )


def described_fit(settings: FitSettings, source: AnySource, paths: Sequence[str]) -> Json:
    """The manifest of a fit but for its stages: its settings, what its data is and where."""
    return {
        "settings": settings.of_results(),
        "source": described_source(source),
        "sources": [str(Path(path).resolve()) for path in paths],
    }
