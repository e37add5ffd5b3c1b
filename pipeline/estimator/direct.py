"""Methods that measure straight from the landmarks: by a metric, a kernel or a function, or as it is given."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.estimator.base import (
    Comparing,
    Distinct,
    Fitted,
    Settings,
    Space,
    counts_of,
    distinct_points,
    embedder_of,
    in_unit,
    require_square,
)
from pipeline.methods import DIRECTIONAL, named, uses
from pipeline.numerics import checks
from pipeline.numerics.checks import Entries
from pipeline.numerics.directions import require_directions
from pipeline.numerics.landmarks.choices import chosen_by_dissimilarities, chosen_rows
from pipeline.numerics.models import metrics
from pipeline.types import AnyArray, FloatArray, IntArray

NOT_ITSELF = "the dissimilarity of a point to itself must be 0: check whether these are similarities"


class Measure(ABC):
    """Dissimilarities of rows, which are in the user's units, to the landmarks: in units of 2^exponent of these."""

    exponent: int

    def check(self, rows: AnyArray) -> None:  # noqa: B027  a function of the user's takes any row
        """Refuse rows that cannot be measured."""

    @abstractmethod
    def to_landmarks(self, rows: AnyArray) -> AnyArray:
        """Dissimilarities (p, m), of which each row depends on that row alone."""


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
        return self.measured(in_unit(rows, self.data_exponent))

    def measured(self, points: AnyArray) -> FloatArray:
        """Dissimilarities (p, m) of points that are in the same units as the landmarks."""
        if self.kernel is not None:
            return self.kernel.dissimilarities(points, self.landmarks)
        return metrics.distances(self.metric, points, self.landmarks)


@dataclass(frozen=True, eq=False)
class FunctionMeasure(Measure):
    """By a function of the user's, called once for every row and every landmark (m, D): a metric, or a kernel, by the
    dissimilarities that it induces; `own` (m,) is what a kernel says of landmarks and themselves."""

    argument: str
    function: Comparing
    landmarks: AnyArray
    own: FloatArray | None = None
    exponent: int = 0

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return self.dissimilarities(*self.compared(rows))

    def compared(self, rows: AnyArray) -> tuple[FloatArray, FloatArray | None]:
        """What it says of rows and landmarks (p, m), and if it is a kernel, of every row and itself (p,)."""
        values = _table(self.argument, self.function, rows, self.landmarks)
        if self.argument == "metric":
            return values, None
        return values, np.array([_table("kernel", self.function, row[None], row[None])[0, 0] for row in rows])

    def dissimilarities(self, values: FloatArray, own: FloatArray | None) -> FloatArray:
        if own is None or self.own is None:
            return np.asarray(np.ldexp(values, -self.exponent))
        return metrics.dissimilarities_from_similarities(values, own, self.own, self.exponent)


@dataclass(frozen=True, eq=False)
class GivenColumns(Measure):
    """Rows are dissimilarities to all training points, some of which (m,) are the landmarks."""

    landmarks: IntArray
    exponent: int

    def check(self, rows: AnyArray) -> None:
        require_nonnegative(rows)

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        # Rows stay contiguous, as compiled loops take them.
        return np.asarray(np.ldexp(np.take(rows, self.landmarks, axis=1).astype(np.float64), -self.exponent))


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


@dataclass(frozen=True, eq=False)
class DirectSpace(Space):
    """A model, and what new rows are measured by."""

    measure: Measure

    def placed(self, rows: Any, n_threads: int) -> FloatArray:
        self.measure.check(rows)
        return self.embedder.embedded(len(rows), lambda chunk: self.measure.to_landmarks(rows[chunk]))


@dataclass(frozen=True, eq=False)
class Measured:
    """A measure, what it says between the landmarks (m, m), and of some of the training points at a time."""

    measure: Measure
    between: FloatArray
    of_points: Callable[[slice], AnyArray]
    signed: bool = False


def fit_direct(settings: Settings, X: AnyArray, seed: int) -> Fitted:
    """Fit rows of points, or dissimilarities between all points."""
    if settings.is_precomputed:
        return _fit_given(settings, X, seed)
    points = distinct_points(X)
    n = len(points.points)
    m = settings.landmark_count(n, f"X has {n} distinct rows")
    chosen = chosen_rows(settings.landmark_selection, points.points, m, seed)
    measured = _measured(settings, X, points, chosen)
    weights = counts_of(settings, measured.of_points, chosen, points.first_rows, np.bincount(points.node_of))
    space, embedded = _embedded(settings, measured, X.shape, n, weights)
    return Fitted(space, embedded[points.node_of], points.first_rows[chosen])


def _fit_given(settings: Settings, X: AnyArray, seed: int) -> Fitted:
    require_dissimilarities(X)
    m = settings.landmark_count(len(X), f"X has {len(X)} rows")

    def between(rows: IntArray) -> FloatArray:
        return checks.symmetrized(X[np.ix_(rows, rows)], zero_diagonal=True)

    chosen = chosen_by_dissimilarities(settings.landmark_selection, len(X), between, m, seed)
    measure = GivenColumns(chosen, int(np.frexp(X.max())[1]))
    scaled = np.ldexp(between(chosen), -measure.exponent)
    measured = Measured(measure, scaled, lambda chunk: _with_zeros(measure.to_landmarks(X[chunk]), chosen, chunk))
    weights = counts_of(settings, measured.of_points, chosen, np.arange(len(X)), np.ones(len(X), np.int64))
    return Fitted(*_embedded(settings, measured, X.shape, len(X), weights), chosen)


def _with_zeros(to_landmarks: FloatArray, landmarks: IntArray, chunk: slice) -> FloatArray:
    """Dissimilarities (p, m) of consecutive points, those of landmarks to themselves 0: X may have rounding there, and
    a point beside a landmark is not always placed beside it."""
    here = np.flatnonzero((chunk.start <= landmarks) & (landmarks < chunk.stop))
    to_landmarks[landmarks[here] - chunk.start, here] = 0.0
    return to_landmarks


def _embedded(
    settings: Settings, measured: Measured, shape: tuple[int, int], n_points: int, weights: IntArray | None
) -> tuple[DirectSpace, FloatArray]:
    embedder = embedder_of(settings, measured.between, shape, measured.measure.exponent, measured.signed, weights)
    return DirectSpace(embedder, measured.measure), embedder.embedded(n_points, measured.of_points)


def _measured(settings: Settings, X: AnyArray, points: Distinct, chosen: IntArray) -> Measured:
    if settings.function is None:
        return _by_vectors(settings, X, points, chosen)
    argument = "kernel" if uses(settings.method, "kernel") else "metric"
    return _by_function(argument, settings.function, X[points.first_rows], points.first_rows, chosen)


def _by_vectors(settings: Settings, X: AnyArray, points: Distinct, chosen: IntArray) -> Measured:
    landmarks = points.points[chosen].astype(np.float64)
    kernel = _kernel(settings, landmarks, points.exponent) if uses(settings.method, "kernel") else None
    is_free = settings.metric in DIRECTIONAL if kernel is None else kernel.name != "linear"
    exponent = 0 if is_free else points.exponent
    measure = VectorMeasure(landmarks, points.exponent, exponent, str(settings.metric), kernel)
    measure.check(X)
    between = measure.measured(landmarks)
    return Measured(measure, (between + between.T) / 2, lambda chunk: measure.measured(points.points[chunk]))


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
        checks.require_zero_diagonal(between, NOT_ITSELF, are_lengths=True)
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


def require_dissimilarities(X: AnyArray) -> None:
    """Refuse what cannot be the dissimilarities (n, n) between all points, with the largest deviation and where."""
    require_square(X)
    require_nonnegative(X)
    if not X.any():
        raise InvalidInputError("X is 0 everywhere; there is nothing to embed.")
    checks.require_not_too_small("X", X)
    checks.require_zero_diagonal(Entries("X", X), NOT_ITSELF, are_lengths=True)
    checks.require_symmetric(Entries("X", X), are_lengths=True)


def require_nonnegative(X: AnyArray) -> None:
    if X.min() < 0:
        lowest = Entries("X", X).described(*np.unravel_index(int(X.argmin()), X.shape))
        # In the words that scikit-learn has for it.
        raise InvalidInputError(
            f"Negative values in data: X has {np.count_nonzero(X < 0)}, the lowest {lowest}; dissimilarities must be "
            "at least 0."
        )
