"""Methods that measure straight from the landmarks: by a metric, a kernel or a function, or as it is given."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.in_memory.choosing import chosen_by_dissimilarities, chosen_points
from pipeline.in_memory.given import require_dissimilarities, require_zero_diagonal, symmetric
from pipeline.in_memory.measures import FunctionKernel, FunctionMetric, GivenColumns, Measure, VectorMeasure
from pipeline.in_memory.settings import Comparing, Settings
from pipeline.in_memory.spaces import Distinct, Embedder, Fitted, distinct_points, embedder_of
from pipeline.numerics.kernels import Kernel, automatic_gamma
from pipeline.types import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class DirectSpace:
    """A model, and what new rows are measured by."""

    embedder: Embedder
    measure: Measure
    takes_edges = False

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
    chosen = chosen_points(settings.landmark_selection, points.points, m, seed)
    measured = _measured(settings, X, points, chosen)
    space, embedded = _embedded(settings, measured, X.shape, n)
    return Fitted(space, embedded[points.node_of], points.first_rows[chosen])


def _fit_given(settings: Settings, X: AnyArray, seed: int) -> Fitted:
    require_dissimilarities(X)
    m = settings.landmark_count(len(X), f"X has {len(X)} rows")
    chosen = chosen_by_dissimilarities(settings.landmark_selection, X, m, seed)
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
    if settings.method == "kernel-mds":
        return _by_kernel_function(settings.function, rows, points.first_rows, chosen)
    return _by_metric_function(settings.function, rows, points.first_rows, chosen)


def _by_vectors(settings: Settings, X: AnyArray, points: Distinct, chosen: IntArray) -> Measured:
    landmarks = points.points[chosen].astype(np.float64)
    kernel = _kernel(settings, landmarks, points.exponent) if settings.method == "kernel-mds" else None
    measure = VectorMeasure(landmarks, points.exponent, str(settings.metric), kernel)
    measure.check(X)
    between = measure.measured(landmarks)
    return Measured(measure, (between + between.T) / 2, lambda chunk: measure.measured(points.points[chunk]))


def _kernel(settings: Settings, landmarks: FloatArray, exponent: int) -> Kernel:
    gamma = settings.gamma_in_unit(exponent)
    found = automatic_gamma(landmarks) if gamma is None else gamma
    return Kernel(str(settings.kernel), found, settings.degree, settings.constant)


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
