"""A study: which landmarks, how many, and how many neighbors give how good an embedding, and at what cost.

On a sample of the source every combination is fitted, rows that were held out are placed as `extend` would place them,
and the distances between them are held against the true ones. What a fit of the whole source would take is predicted.
The recommendation is the cheapest of those that are as good as the best (`numerics.statistics`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from pipeline.errors import DisconnectedGraphError, InvalidInputError
from pipeline.jobs import study_spaces as spaces
from pipeline.jobs.connectivity import Connectivity, connectivity
from pipeline.jobs.fit import checked_source, plan_fit
from pipeline.jobs.plan import cores, kernel_choice, method_choice
from pipeline.methods import DIRECTIONAL, DISSIMILARITIES
from pipeline.numerics.dimension import Dimension, automatic_components, dimension_of_points
from pipeline.numerics.extension.placement import weighted_answers
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.models.metrics import Kernel, automatic_gamma, distances, gamma_in_unit
from pipeline.numerics.statistics import MeanError, estimated, good_enough, measure_of, recommended
from pipeline.settings import FitSettings, StudySettings
from pipeline.sources.inputs import AnySource, n_columns, n_points
from pipeline.stages.stage import Execute, serially
from pipeline.types import IntArray

Say = Callable[[str], None]
# Numbers of landmarks that are tried unless told: so many doublings, from a few for each component on.
LEAST_LANDMARKS, PER_COMPONENT, DOUBLINGS = 25, 4, 5
# No more than so large a share of the sample: beyond, landmarks of all selections are the same.
SHARE_OF_SAMPLE = 4
# Numbers of components that are tried with what is recommended.
COMPONENTS = (1, 2, 3, 5, 8, 10)
# Points whose distances set the width of a kernel.
WIDTH_POINTS = 1000


@dataclass(frozen=True)
class Trial:
    """A combination, the error of each repeat, and what a fit of the whole source would take."""

    selection: str
    n_landmarks: int
    n_neighbors: int | None
    errors: tuple[float, ...]
    seconds: float
    n_evaluations: int

    @cached_property
    def error(self) -> MeanError:
        return estimated(self.errors)


@dataclass(frozen=True)
class Study:
    """What came out; `left_out` says why combinations were not tried, `gamma` is the kernel's width if it was found,
    `intrinsic_dimension` that of the sample. Of what is recommended: the errors with other numbers of components, and
    in how many pieces the graph of all rows is."""

    n_rows: int
    n_training: int
    n_held_out: int
    n_components: int
    measure: str
    trials: tuple[Trial, ...]
    left_out: tuple[str, ...]
    automatic: int
    gamma: float | None = None
    intrinsic_dimension: Dimension | None = None
    by_components: tuple[tuple[int, MeanError], ...] = ()
    connectivity: Connectivity | None = None

    @cached_property
    def best(self) -> Trial:
        """The one with the lowest error, a standard error added."""
        return min(self.trials, key=lambda trial: trial.error.bound)

    @cached_property
    def recommended(self) -> Trial:
        """The cheapest of those as good as the best; of several that cost about the same, the best."""
        return self.trials[recommended([trial.error for trial in self.trials], [t.seconds for t in self.trials])]

    @cached_property
    def limit(self) -> float:
        """What an error may be to be as good as the best."""
        return good_enough(self.best.error.bound)

    @cached_property
    def close(self) -> tuple[Trial, ...]:
        """Those as good as the best."""
        return tuple(trial for trial in self.trials if trial.error.bound <= self.limit)

    @cached_property
    def still_falling(self) -> bool:
        """Whether of several numbers of landmarks only the largest is as good as the best: more may be better still."""
        sizes = {trial.n_landmarks for trial in self.trials}
        return len(sizes) > 1 and {trial.n_landmarks for trial in self.close} == {max(sizes)}


def study(
    settings: StudySettings, say: Say = lambda _: None, data: object | None = None, execute: Execute = serially
) -> Study:
    """Try every combination on a sample. `data` is an array to be taken instead of what `settings.source` names;
    `execute` computes what is looked at of all rows."""
    source = checked_source(settings, data)
    _require_room(settings, *spaces.sample_sizes(settings, n_points(source)))
    sample = spaces.drawn_sample(settings, source)
    _require_room(settings, sample.n_training, sample.n_held_out)
    dimension = _dimension(settings, sample)
    if settings.n_components == "auto":
        most = settings.most_components(sample.n_training, n_columns(source))
        settings = settings.with_components(automatic_components(dimension, sample.n_training, most))
    return _Studying(settings, source, sample, dimension, say, execute).study()


def _dimension(settings: StudySettings, sample: spaces.Sample) -> Dimension | None:
    """Of the sample, where its rows are points."""
    if settings.input == DISSIMILARITIES or (
        settings.metric != settings.metric_of_points and settings.n_components != "auto"
    ):
        return None
    return dimension_of_points(sample.values[: sample.n_training], settings.n_neighbors)


def tried_landmarks(settings: StudySettings, n_training: int, n_rows: int) -> tuple[int, ...]:
    """Numbers of landmarks to try: those that are asked for, or doubling ones and what `auto` takes of all rows."""
    if settings.tried_landmarks:
        return settings.tried_landmarks
    least = min(n_training, max(LEAST_LANDMARKS, PER_COMPONENT * (settings.components + 1)))
    doubling = (m for m in (least << i for i in range(DOUBLINGS)) if m <= n_training // SHARE_OF_SAMPLE)
    automatic = automatic_count(n_rows, settings.components)
    return tuple(sorted({least, *doubling, *([automatic] if automatic <= n_training // 2 else [])}))


def _require_room(settings: StudySettings, n_training: int, n_held_out: int) -> None:
    """Refuse what a sample of so many points has no room for."""
    limits = {
        "landmarks": (settings.tried_landmarks, settings.least_components + 1, n_training, "points to choose among"),
        "neighbors": (settings.tried_neighbors, 1, n_training - 1, "others to each point"),
        "n_components": ((settings.least_components,), 1, n_training - 1, "points to choose among but one"),
    }
    for name, (values, low, high, what) in limits.items():
        for value in values:
            if not low <= value <= high:
                raise InvalidInputError(
                    f"{name}={value} is out of range; use one from {low} to {high}: the sample, {n_training} distinct "
                    f"rows and {n_held_out} held out, has {high} {what}."
                )


class _Studying:
    """A study under way."""

    def __init__(
        self,
        settings: StudySettings,
        source: AnySource,
        sample: spaces.Sample,
        dimension: Dimension | None,
        say: Say,
        execute: Execute,
    ) -> None:
        self._settings, self._source, self._sample, self._say = settings, source, sample, say
        self._execute = execute
        self._dimension_of_sample = dimension
        self._sizes = tried_landmarks(settings, sample.n_training, n_points(source))
        self._measure = measure_of(settings.method)
        self._left_out: list[str] = []

    def study(self) -> Study:
        space, trials = self._space(), []
        for k in self._settings.tried_neighbors or (None,):
            self._say(f"Trying {k} neighbors ..." if k else "Trying ...")
            try:
                trials += self._trials(space, k)
            except DisconnectedGraphError as error:
                self._left_out.append(f"{k} neighbors: {error}")
        if not trials:
            raise InvalidInputError(f"nothing can be compared. {' '.join(self._left_out)}")
        n_rows = n_points(self._source)
        found = Study(
            n_rows=n_rows,
            n_training=self._sample.n_training,
            n_held_out=self._sample.n_held_out,
            n_components=self._settings.components,
            measure=self._measure.__name__,
            trials=tuple(trials),
            left_out=tuple(self._left_out),
            automatic=automatic_count(n_rows, self._settings.components),
            gamma=self._found_gamma,
            intrinsic_dimension=self._dimension_of_sample,
        )
        by_components = self._by_components(space, found.recommended)
        return replace(found, by_components=by_components, connectivity=self._connectivity(found.recommended))

    def _by_components(self, space: spaces.Paths | spaces.Direct, trial: Trial) -> tuple[tuple[int, MeanError], ...]:
        """Errors of what is recommended with other numbers of components."""
        self._say("Trying numbers of components ...")
        asked = self._settings.n_neighbors if trial.n_neighbors is None else trial.n_neighbors
        repeats = self._chosen(space.nodes(asked), [trial.selection], [trial.n_landmarks])
        places = repeats[trial.selection, trial.n_landmarks]
        candidates = np.unique(np.concatenate(places))
        measured, found = space.measured(asked, candidates), []
        choice = method_choice(self._settings.model_copy(update={"n_neighbors": asked}), self._exponent)
        for d in sorted({*COMPONENTS, self._settings.components}):
            one = replace(choice, n_components=d)
            try:
                errors = [self._error(one, measured, np.searchsorted(candidates, each)) for each in places]
            except InvalidInputError:
                break  # so many components the landmarks do not have
            found.append((d, estimated(errors)))
        return tuple(found)

    def _connectivity(self, trial: Trial) -> Connectivity | None:
        """In how many pieces the graph of all rows is."""
        if not self._settings.is_geodesic:
            return None
        self._say("Looking whether the graph of all rows is in one piece ...")
        settings: FitSettings = self._settings.model_copy(update={"n_neighbors": trial.n_neighbors})
        return connectivity(settings, self._source, self._execute)

    def _trials(self, space: spaces.Paths | spaces.Direct, k: int | None) -> list[Trial]:
        """Every combination with so many neighbors, measured together."""
        asked = self._settings.n_neighbors if k is None else k
        nodes = space.nodes(asked)
        if len(nodes) < max(self._sizes):
            self._left_out.append(f"More than {len(nodes)} landmarks, {k} neighbors: so few points are embedded.")
        chosen = self._chosen(nodes, self._settings.tried_selections, self._sizes)
        if not chosen:
            return []
        candidates = np.unique(np.concatenate([places for repeats in chosen.values() for places in repeats]))
        measured = space.measured(asked, candidates)
        choice = method_choice(self._settings.model_copy(update={"n_neighbors": asked}), self._exponent)
        trials = []
        for (selection, m), repeats in chosen.items():
            try:
                errors = tuple(self._error(choice, measured, np.searchsorted(candidates, each)) for each in repeats)
            except InvalidInputError as error:
                self._left_out.append(f"{m} landmarks by {selection}{f', {k} neighbors' if k else ''}: {error}")
                continue
            combination = {"n_landmarks": m, "landmark_selection": selection, "n_neighbors": asked}
            planned: FitSettings = self._settings.model_copy(update=combination)
            seconds = sum(plan_fit(planned, self._source).seconds.values())
            trials.append(Trial(selection, m, k, errors, seconds, m * n_points(self._source)))
        return trials

    def _chosen(
        self, nodes: IntArray, selections: Sequence[str], sizes: Sequence[int]
    ) -> dict[tuple[str, int], list[IntArray]]:
        """For each selection and number, the landmarks of each repeat among the points that are embedded."""
        seeds = range(self._settings.seed, self._settings.seed + self._settings.repeats)
        return {
            (selection, m): [self._chooser.chosen(nodes, selection, m, seed) for seed in seeds]
            for selection in selections
            for m in sizes
            if m <= len(nodes)
        }

    def _error(self, choice: Choice, measured: spaces.Measured, places: IntArray) -> float:
        """The error with the landmarks at some places among the candidates."""
        placed, d = np.flatnonzero(measured.placed), choice.n_components
        weights = measured.counts(places) if self._settings.counts_rows else None
        model = fitted_model(choice, measured.between[np.ix_(places, places)], weights)
        answers = weighted_answers(model, self._settings.diagonal_weight)
        both = answers.of(measured.to_candidates[np.ix_(placed, places)]).coordinates
        coordinates = both[:, d:] if self._settings.chosen_extension == "restricted" else both[:, :d]
        return self._measure(measured.among[np.ix_(placed, placed)], coordinates)

    @cached_property
    def _chooser(self) -> spaces.Chooser:
        n, values, most = self._sample.n_training, self._sample.values, max(self._sizes)
        if self._settings.input == DISSIMILARITIES:
            return spaces.Chooser(spaces.by_dissimilarities, values[:n, :n], most)
        return spaces.Chooser(spaces.by_points, spaces.on_leading_axes(values[:n]), most)

    def _space(self) -> spaces.Paths | spaces.Direct:
        settings, n, values = self._settings, self._sample.n_training, self._sample.values
        if settings.input == DISSIMILARITIES:
            given = np.arange(len(values))
            return spaces.Direct(given, n, lambda rows, columns: values[np.ix_(rows, columns)], settings.counts_rows)
        if settings.is_geodesic:
            most = max(settings.tried_neighbors)
            policy, counted = settings.component_policy, settings.counts_rows
            return spaces.Paths(values, n, policy, most, cores(), counted, settings.metric)
        compare = partial(distances, settings.metric) if self._kernel is None else self._kernel.dissimilarities
        return spaces.Direct(values, n, compare, settings.counts_rows)

    @property
    def _exponent(self) -> int:
        """Of the unit that dissimilarities are in."""
        return 0 if self._settings.is_geodesic or self._settings.metric in DIRECTIONAL else self._sample.exponent

    @cached_property
    def _kernel(self) -> Kernel | None:
        """One kernel for all, so that the true distances are the same; a fit finds its width from its landmarks."""
        given = kernel_choice(self._settings)
        if given is None:
            return None
        gamma = gamma_in_unit(given.gamma, self._sample.exponent)
        if gamma is None:
            gamma = automatic_gamma(self._sample.values[: min(WIDTH_POINTS, self._sample.n_training)])
        return Kernel(given.name, gamma, given.degree, given.constant)

    @property
    def _found_gamma(self) -> float | None:
        """The kernel's width in the user's units, if it was not given."""
        if self._kernel is None or self._settings.gamma != "auto" or self._kernel.name not in ("rbf", "polynomial"):
            return None
        return float(np.ldexp(self._kernel.gamma, -2 * self._sample.exponent))
