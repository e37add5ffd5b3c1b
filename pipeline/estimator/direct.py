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
    distinct_points,
    embedder_of,
    in_unit,
    require_square,
)
from pipeline.methods import named, uses
from pipeline.numerics import checks
from pipeline.numerics.landmarks.choices import chosen_by_dissimilarities, chosen_rows
from pipeline.numerics.models import metrics
from pipeline.types import AnyArray, FloatArray, IntArray

# Rows of a matrix whose symmetry is checked at a time.
ROWS_PER_BLOCK = 512


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
        metrics.require_directions("X", rows, self.metric if self.kernel is None else self.kernel.name)

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return self.measured(in_unit(rows, self.data_exponent))

    def measured(self, points: AnyArray) -> FloatArray:
        """Dissimilarities (p, m) of points that are in the same units as the landmarks."""
        if self.kernel is not None:
            return self.kernel.dissimilarities(points, self.landmarks)
        return metrics.distances(self.metric, points, self.landmarks)


@dataclass(frozen=True, eq=False)
class FunctionMetric(Measure):
    """By a function of the user's, called once for every row and every landmark (m, D)."""

    function: Comparing
    landmarks: AnyArray
    exponent: int = 0

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return np.asarray(np.ldexp(self.values(rows), -self.exponent))

    def values(self, rows: AnyArray) -> FloatArray:
        """What it says of rows and landmarks (p, m)."""
        return _table("metric", self.function, rows, self.landmarks)


@dataclass(frozen=True, eq=False)
class FunctionKernel(Measure):
    """By the dissimilarities that a function of the user's, an inner product, induces; `own` (m,) are the landmarks'
    with themselves."""

    function: Comparing
    landmarks: AnyArray
    own: FloatArray
    exponent: int = 0

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return self.induced(self.values(rows), self.of_themselves(rows))

    def values(self, rows: AnyArray) -> FloatArray:
        """What it says of rows and landmarks (p, m)."""
        return _table("kernel", self.function, rows, self.landmarks)

    def of_themselves(self, rows: AnyArray) -> FloatArray:
        """What it says of every row and itself (p,)."""
        return np.array([_table("kernel", self.function, row[None], row[None])[0, 0] for row in rows])

    def induced(self, values: FloatArray, own: FloatArray) -> FloatArray:
        scaled = (np.ldexp(part, -2 * self.exponent) for part in (values, own, self.own))
        return metrics.dissimilarities_from_similarities(*scaled)


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
    space, embedded = _embedded(settings, measured, X.shape, n)
    return Fitted(space, embedded[points.node_of], points.first_rows[chosen])


def _fit_given(settings: Settings, X: AnyArray, seed: int) -> Fitted:
    require_dissimilarities(X)
    m = settings.landmark_count(len(X), f"X has {len(X)} rows")
    chosen = chosen_by_dissimilarities(
        settings.landmark_selection, len(X), lambda rows: _symmetrized(X[np.ix_(rows, rows)], are_lengths=True), m, seed
    )
    measure = GivenColumns(chosen, int(np.frexp(X.max())[1]))
    between = symmetric("X", X[np.ix_(chosen, chosen)], chosen, are_lengths=True)
    scaled = np.ldexp(between, -measure.exponent)
    measured = Measured(measure, scaled, lambda chunk: _with_zeros(measure.to_landmarks(X[chunk]), chosen, chunk))
    return Fitted(*_embedded(settings, measured, X.shape, len(X)), chosen)


def _with_zeros(to_landmarks: FloatArray, landmarks: IntArray, chunk: slice) -> FloatArray:
    """Dissimilarities (p, m) of consecutive points, those of landmarks to themselves 0: X may have rounding there, and
    a point beside a landmark is not always placed beside it."""
    here = np.flatnonzero((chunk.start <= landmarks) & (landmarks < chunk.stop))
    to_landmarks[landmarks[here] - chunk.start, here] = 0.0
    return to_landmarks


def _embedded(
    settings: Settings, measured: Measured, shape: tuple[int, int], n_points: int
) -> tuple[DirectSpace, FloatArray]:
    embedder = embedder_of(settings, measured.between, shape, measured.measure.exponent, measured.signed)
    return DirectSpace(embedder, measured.measure), embedder.embedded(n_points, measured.of_points)


def _measured(settings: Settings, X: AnyArray, points: Distinct, chosen: IntArray) -> Measured:
    if settings.function is None:
        return _by_vectors(settings, X, points, chosen)
    rows = X[points.first_rows]
    if uses(settings.method, "kernel"):
        return _by_kernel_function(settings.function, rows, points.first_rows, chosen)
    return _by_metric_function(settings.function, rows, points.first_rows, chosen)


def _by_vectors(settings: Settings, X: AnyArray, points: Distinct, chosen: IntArray) -> Measured:
    landmarks = points.points[chosen].astype(np.float64)
    kernel = _kernel(settings, landmarks, points.exponent) if uses(settings.method, "kernel") else None
    is_free = settings.metric in metrics.SCALE_FREE if kernel is None else kernel.name != "linear"
    exponent = 0 if is_free else points.exponent
    measure = VectorMeasure(landmarks, points.exponent, exponent, str(settings.metric), kernel)
    measure.check(X)
    between = measure.measured(landmarks)
    return Measured(measure, (between + between.T) / 2, lambda chunk: measure.measured(points.points[chunk]))


def _kernel(settings: Settings, landmarks: FloatArray, exponent: int) -> metrics.Kernel:
    gamma = metrics.gamma_in_unit(settings.gamma, exponent)
    found = metrics.automatic_gamma(landmarks) if gamma is None else gamma
    return metrics.Kernel(str(settings.kernel), found, settings.degree, settings.constant)


def _by_metric_function(function: Comparing, rows: AnyArray, numbers: IntArray, chosen: IntArray) -> Measured:
    metric = FunctionMetric(function, rows[chosen])
    values = metric.values(rows)
    metric = replace(metric, exponent=_exponent("metric", values))
    require_zero_diagonal("metric", values[chosen], numbers[chosen])
    between = symmetric("metric", values[chosen], numbers[chosen], are_lengths=True)
    scaled = np.ldexp(values, -metric.exponent)
    return Measured(metric, np.ldexp(between, -metric.exponent), scaled.__getitem__)


def _by_kernel_function(function: Comparing, rows: AnyArray, numbers: IntArray, chosen: IntArray) -> Measured:
    kernel = FunctionKernel(function, rows[chosen], np.empty(0))
    values, own = kernel.values(rows), kernel.of_themselves(rows)
    kernel = replace(kernel, own=own[chosen], exponent=max(_exponent("kernel", part) for part in (values, own)) // 2)
    between = symmetric("kernel", values[chosen], numbers[chosen], are_lengths=False)
    induced = kernel.induced(values, own)
    return Measured(kernel, kernel.induced(between, own[chosen]), induced.__getitem__, signed=True)


def _exponent(argument: str, values: AnyArray) -> int:
    largest = float(np.abs(values).max())
    if largest == 0:
        raise InvalidInputError(f"the {argument} of X is 0 everywhere; there is nothing to embed.")
    return int(np.frexp(largest)[1])


def _symmetrized(values: AnyArray, are_lengths: bool) -> FloatArray:
    matrix = values.astype(np.float64)
    matrix = (matrix + matrix.T) / 2
    if are_lengths:
        np.fill_diagonal(matrix, 0.0)
    return matrix


def symmetric(name: str, values: AnyArray, rows: IntArray, are_lengths: bool) -> FloatArray:
    """Values (m, m) between some rows, exactly symmetric if they are so up to rounding; lengths get a zero diagonal."""
    require_symmetric(name, values, rows, are_lengths)
    return _symmetrized(values, are_lengths)


def require_dissimilarities(X: AnyArray) -> None:
    """Refuse what cannot be the dissimilarities (n, n) between all points, with the largest deviation and where."""
    require_square(X)
    require_nonnegative(X)
    if not X.any():
        raise InvalidInputError("X is 0 everywhere; there is nothing to embed.")
    checks.require_not_too_small("X", X)
    require_zero_diagonal("X", X, np.arange(len(X)))
    require_symmetric("X", X, np.arange(len(X)), are_lengths=True)


def require_nonnegative(X: AnyArray) -> None:
    if X.min() < 0:
        i, j = (int(place) for place in np.unravel_index(int(X.argmin()), X.shape))
        # In the words that scikit-learn has for it.
        raise InvalidInputError(
            f"Negative values in data: X has {np.count_nonzero(X < 0)}, the lowest {X[i, j]:g} at ({i}, {j}); "
            "dissimilarities must be at least 0."
        )


def require_zero_diagonal(name: str, values: AnyArray, rows: IntArray) -> None:
    worst = int(np.argmax(values.diagonal()))
    if float(values[worst, worst]) ** 2 > checks.ROUNDING_FLOOR * float(values.max()) ** 2:
        raise InvalidInputError(
            f"{name} has a nonzero diagonal, {values[worst, worst]:g} at ({rows[worst]}, {rows[worst]}); the "
            "dissimilarity of a point to itself must be 0: check whether these are similarities."
        )


def require_symmetric(name: str, values: AnyArray, rows: IntArray, are_lengths: bool) -> None:
    """Refuse values (m, m) between some rows that differ across the diagonal by more than rounding, of their squares if
    they are lengths."""
    worst, i, j = 0.0, 0, 0
    largest = float(np.abs(values).max()) ** (2 if are_lengths else 1)
    for first in range(0, len(values), ROWS_PER_BLOCK):
        block = values[first : first + ROWS_PER_BLOCK].astype(np.float64)
        across = values[:, first : first + ROWS_PER_BLOCK].T.astype(np.float64)
        a, b = (block**2, across**2) if are_lengths else (block, across)
        allowed = checks.SYMMETRY_TOLERANCE * np.maximum(np.abs(a), np.abs(b)) + checks.ROUNDING_FLOOR * largest
        apart = np.where(np.abs(a - b) > allowed, np.abs(block - across), 0.0)
        row, column = np.unravel_index(int(apart.argmax()), apart.shape)
        if apart[row, column] > worst:
            worst, i, j = float(apart[row, column]), first + int(row), int(column)
    if worst:
        raise InvalidInputError(
            f"{name} is not symmetric: {values[i, j]:g} at ({rows[i]}, {rows[j]}) against {values[j, i]:g} at "
            f"({rows[j]}, {rows[i]}), the largest deviation ({worst:g}); average it with its transpose if that is what "
            "you mean."
        )
