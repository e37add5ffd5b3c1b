"""Methods that measure straight from the landmarks: rows by a metric, a kernel or a function of the user's."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.estimator.base import (
    Distinct,
    Fitted,
    Reached,
    Space,
    counts_of,
    distinct_points,
    embedder_of,
    in_unit,
)
from pipeline.estimator.settings import Comparing, Settings
from pipeline.methods import DIRECTIONAL, named, uses
from pipeline.numerics import checks
from pipeline.numerics.checks import Entries
from pipeline.numerics.directions import require_directions
from pipeline.numerics.geodesics.rows import bound_between
from pipeline.numerics.landmarks.choices import chosen_rows
from pipeline.numerics.landmarks.sampling import calibrating
from pipeline.numerics.landmarks.subset import EvaluatedSubset, evaluated_places
from pipeline.numerics.models import metrics
from pipeline.types import AnyArray, FloatArray, IntArray

NOT_ITSELF = "the dissimilarity of a point to itself must be 0: check whether these are similarities"


class Measure(ABC):
    """Dissimilarities of rows, which are in the user's units, to the landmarks and to each other: in units of
    2^exponent of these."""

    exponent: int

    def check(self, rows: Any) -> None:  # noqa: B027  a function of the user's takes any row
        """Refuse rows that cannot be measured."""

    @abstractmethod
    def to_landmarks(self, rows: Any) -> AnyArray:
        """Dissimilarities (p, m), of which each row depends on that row alone."""

    @abstractmethod
    def between(self, rows: Any) -> FloatArray:
        """Dissimilarities (p, p) between the rows."""

    def between_as_given(self, given: FloatArray, rows: Any) -> FloatArray:
        """The same from those (p, p) that a user gives."""
        return np.asarray(np.ldexp(exact_dissimilarities(Entries("between", given)), -self.exponent))


@dataclass(frozen=True, eq=False)
class VectorMeasure(Measure):
    """Between vectors: by a metric, or induced by a kernel. landmarks (m, D) are in units of 2^data_exponent."""

    landmarks: FloatArray
    data_exponent: int
    exponent: int
    metric: str
    kernel: metrics.Kernel | None

    def check(self, rows: AnyArray) -> None:
        require_directions("X", rows, self.metric if self.kernel is None else self.kernel.name)

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return self.measured(in_unit(rows, self.data_exponent), self.landmarks)

    def between(self, rows: AnyArray) -> FloatArray:
        points = self.in_unit(rows)
        return self.measured(points, points)

    def in_unit(self, rows: AnyArray) -> AnyArray:
        """Rows as points that `measured` takes."""
        return in_unit(rows, self.data_exponent)

    def measured(self, points: AnyArray, others: AnyArray) -> FloatArray:
        """Dissimilarities (p, q) of points to others that are in the same units."""
        if self.kernel is not None:
            return self.kernel.dissimilarities(points, others)
        return metrics.distances(self.metric, points, others)


@dataclass(frozen=True, eq=False)
class FunctionMeasure(Measure):
    """By a function of the user's, called once for every row and every landmark (m, D): a metric, or a kernel, by the
    dissimilarities that it induces; `own` (m,) is what a kernel says of landmarks and themselves. With a `subset` of
    the landmarks a metric is called for these only, and distances to the others are estimated."""

    argument: str
    function: Comparing
    landmarks: AnyArray
    own: FloatArray | None = None
    exponent: int = 0
    subset: EvaluatedSubset | None = None

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return self.dissimilarities(*self.compared(rows))

    def between(self, rows: AnyArray) -> FloatArray:
        entries = Entries(self.argument, self._table(rows, rows))
        if self.own is None:
            return np.asarray(np.ldexp(exact_dissimilarities(entries), -self.exponent))
        checks.require_symmetric(entries)
        between = checks.symmetrized(entries.matrix, zero_diagonal=False)
        own = between.diagonal().copy()
        return metrics.dissimilarities_from_similarities(between, own, own, self.exponent)

    def compared(self, rows: AnyArray) -> tuple[FloatArray, FloatArray | None]:
        """What it says of rows and landmarks (p, m), and if it is a kernel, of every row and itself (p,)."""
        if self.subset is not None:
            return self.subset.to_landmarks(self._table(rows, self.landmarks[self.subset.places])), None
        values = self._table(rows, self.landmarks)
        if self.argument == "metric":
            return values, None
        return values, np.array([self._table(row[None], row[None])[0, 0] for row in rows])

    def dissimilarities(self, values: FloatArray, own: FloatArray | None) -> FloatArray:
        if own is None or self.own is None:
            return np.asarray(np.ldexp(values, -self.exponent))
        return metrics.dissimilarities_from_similarities(values, own, self.own, self.exponent)

    def _table(self, rows: AnyArray, others: AnyArray) -> FloatArray:
        return _table(self.argument, self.function, rows, others)


def _table(argument: str, function: Comparing, rows: AnyArray, others: AnyArray) -> FloatArray:
    values = np.empty((len(rows), len(others)))
    for i, one in enumerate(rows):
        for j, other in enumerate(others):
            words = partial(_words, argument, function, one, other)
            values[i, j] = checks.compared_number(function(one, other), argument == "kernel", words)
    return values


def _words(argument: str, function: Comparing, one: AnyArray, other: AnyArray, given: str) -> str:
    shown = (np.array2string(row, precision=4, threshold=6, edgeitems=2) for row in (one, other))
    return f"{argument}={named(function)} gives {given} for the rows {' and '.join(shown)} of X"


# Points whose dissimilarities to the landmarks are kept, to tell how good the embedding is.
MOST_KEPT, KEPT_ENTRIES = 4000, 1_000_000


class Sampled(NamedTuple):
    """Some points (s,), rising, and their dissimilarities (s, m) to the landmarks."""

    places: IntArray
    to_landmarks: AnyArray


@dataclass(frozen=True, eq=False)
class DirectSpace(Space):
    """A model, what new rows are measured by, how far the nearest landmark is from each fitted point (u,), and what
    some points are to all landmarks."""

    measure: Measure
    to_nearest: FloatArray
    sampled: "Sampled"

    def check(self, rows: Any) -> None:
        self.measure.check(rows)

    def reached(self, rows: Any, n_threads: int) -> Reached:
        everything = np.ones(rows.shape[0], np.bool_)
        return Reached(everything, self.measure.to_landmarks(rows), np.zeros(len(everything), np.int64))

    def between(self, rows: Any, only_bounds: bool, n_threads: int) -> FloatArray:
        return bound_between([self.measure.to_landmarks(rows)]) if only_bounds else self.measure.between(rows)

    def between_as_given(self, given: FloatArray, rows: Any) -> FloatArray:
        return self.measure.between_as_given(given, rows)

    def nearest_of_points(self, n_threads: int) -> FloatArray:
        return self.to_nearest

    def trust_as_new(self, fitted: Fitted, seed: int, n_threads: int) -> FloatArray:
        """Rows that are no landmarks are as good as new."""
        columns = self.embedder.columns(fitted.answer, self.to_nearest)
        trust = np.stack([columns[name] for name in self.embedder.trust_names], axis=1)[fitted.place_of]
        like_new, landmarks = calibrating(np.arange(len(trust)), len(trust), seed, fitted.landmarks)
        return np.asarray(trust[like_new if like_new.any() else landmarks])


@dataclass(frozen=True, eq=False)
class Measured:
    """A measure, what it says between the landmarks (m, m), and of some of the training points at a time."""

    measure: Measure
    between: FloatArray
    of_points: Callable[[slice], AnyArray]
    signed: bool = False

    def space(self, settings: Settings, shape: tuple[int, int], n_points: int, weights: IntArray | None) -> Fitted:
        """The landmarks embedded, and the points placed, which are the rows until it is said which they are."""
        exponent, to_nearest = self.measure.exponent, np.empty(n_points)
        embedder = embedder_of(settings, self.between, shape, exponent, self.signed, weights)

        n_kept = min(n_points, MOST_KEPT, max(100, KEPT_ENTRIES // len(self.between)))
        kept = np.sort(np.random.default_rng(settings.seed).choice(n_points, n_kept, replace=False))
        sampled = []

        def to_landmarks(chunk: slice) -> AnyArray:
            found = self.of_points(chunk)
            to_nearest[chunk] = found.min(axis=1)
            mine = slice(*np.searchsorted(kept, [chunk.start, chunk.stop]))
            sampled.append(found[kept[mine] - chunk.start])
            return found

        answer = embedder.answered(n_points, to_landmarks)
        space = DirectSpace(embedder, self.measure, to_nearest, Sampled(kept, np.concatenate(sampled)))
        return Fitted(space, answer, np.arange(n_points), np.empty(0, int))


def fit_direct(settings: Settings, X: AnyArray, seed: int) -> Fitted:
    """Fit rows of points."""
    points = distinct_points(X)
    n = len(points.points)
    m = settings.landmark_count(n, f"X has {n} distinct rows")
    chosen = chosen_rows(settings.landmark_selection, points.points, m, seed)
    measured = _measured(settings, X, points, chosen)
    weights = counts_of(settings, measured.of_points, chosen, points.first_rows, np.bincount(points.node_of))
    fitted = measured.space(settings, X.shape, n, weights)
    return replace(fitted, place_of=points.node_of, landmarks=points.first_rows[chosen])


def _measured(settings: Settings, X: AnyArray, points: Distinct, chosen: IntArray) -> Measured:
    if settings.function is None:
        return _by_vectors(settings, X, points, chosen)
    rows, numbers = X[points.first_rows], points.first_rows
    if settings.n_evaluated is not None:
        return _by_estimates(settings.n_evaluated, settings.function, rows, numbers, chosen)
    argument = "kernel" if uses(settings.method, "kernel") else "metric"
    return _by_function(argument, settings.function, rows, numbers, chosen)


def _by_vectors(settings: Settings, X: AnyArray, points: Distinct, chosen: IntArray) -> Measured:
    landmarks = points.points[chosen].astype(np.float64)
    kernel = _kernel(settings, landmarks, points.exponent) if uses(settings.method, "kernel") else None
    is_free = settings.metric in DIRECTIONAL if kernel is None else kernel.name != "linear"
    exponent = 0 if is_free else points.exponent
    measure = VectorMeasure(landmarks, points.exponent, exponent, str(settings.metric), kernel)
    measure.check(X)
    between = measure.measured(landmarks, landmarks)
    return Measured(measure, (between + between.T) / 2, lambda chunk: measure.measured(points.points[chunk], landmarks))


def _kernel(settings: Settings, landmarks: FloatArray, exponent: int) -> metrics.Kernel:
    gamma = metrics.gamma_in_unit(settings.gamma, exponent)
    found = metrics.automatic_gamma(landmarks) if gamma is None else gamma
    return metrics.Kernel(str(settings.kernel), found, settings.degree, settings.constant)


def _by_function(argument: str, function: Comparing, rows: AnyArray, numbers: IntArray, chosen: IntArray) -> Measured:
    measure = FunctionMeasure(argument, function, rows[chosen])
    values, own = measure.compared(rows)
    between = Entries(argument, values[chosen], numbers[chosen], numbers[chosen])
    is_metric, own_between = own is None, None
    if own is None:
        measure = replace(measure, exponent=_exponent(argument, values))
        require_dissimilarities(between)
    else:
        own_between = own[chosen]
        exponent = max(_exponent(argument, part) for part in (values, own)) // 2
        measure = replace(measure, own=own_between, exponent=exponent)
    checks.require_symmetric(between, are_lengths=is_metric)
    exact = checks.symmetrized(between.matrix, zero_diagonal=is_metric)
    of_points = measure.dissimilarities(values, own)
    return Measured(measure, measure.dissimilarities(exact, own_between), of_points.__getitem__, signed=not is_metric)


def _exponent(argument: str, values: AnyArray) -> int:
    largest = float(np.abs(values).max())
    if largest == 0:
        raise InvalidInputError(f"the {argument} of X is 0 everywhere; there is nothing to embed.")
    return int(np.frexp(largest)[1])


def _by_estimates(
    n_evaluated: int, function: Comparing, rows: AnyArray, numbers: IntArray, chosen: IntArray
) -> Measured:
    """The function is called between all landmarks, and for every row and those of a subset that tell most."""
    m = len(chosen)
    n_evaluated = checks.integer_in_range("n_evaluated", n_evaluated, 2, m, f"there are {m} landmarks")
    measure = FunctionMeasure("metric", function, rows[chosen])
    between = exact_dissimilarities(
        Entries("metric", measure.compared(rows[chosen])[0], numbers[chosen], numbers[chosen])
    )
    subset = EvaluatedSubset(between, evaluated_places(between, n_evaluated))
    measure = replace(measure, exponent=_exponent("metric", between), subset=subset)
    of_points = measure.to_landmarks(rows)
    of_points[chosen] = scaled = np.ldexp(between, -measure.exponent)
    return Measured(measure, scaled, of_points.__getitem__)


def exact_dissimilarities(entries: Entries) -> FloatArray:
    """Exactly symmetric dissimilarities (n, n) with a zero diagonal, if they are so up to rounding."""
    require_dissimilarities(entries)
    return checks.symmetrized(entries.matrix, zero_diagonal=True)


def require_dissimilarities(entries: Entries) -> None:
    """Refuse what cannot be dissimilarities (n, n) between points, with the largest deviation and where."""
    require_nonnegative(entries.name, entries.matrix)
    checks.require_zero_diagonal(entries, NOT_ITSELF, are_lengths=True)
    checks.require_symmetric(entries, are_lengths=True)


def require_nonnegative(name: str, X: AnyArray, what: str = "dissimilarities") -> None:
    if X.min() < 0:
        lowest = Entries(name, X).described(*np.unravel_index(int(X.argmin()), X.shape))
        # In the words that scikit-learn has for it.
        raise InvalidInputError(
            f"Negative values in data: {name} has {np.count_nonzero(X < 0)}, the lowest {lowest}; {what} must be at "
            "least 0."
        )
