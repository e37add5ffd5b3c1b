"""Kernel mapping: a weighted mean of coefficients, by kernels as wide as the landmarks are apart [G eq. 42-51].

A point gets y(x) = sum_j alpha_j k_j(x) / sum_l k_l(x), k_j(x) = exp(-d(x, x_j)^2 / (2 sigma_j^2)), with
sigma_j = gamma times the distance of landmark j to the nearest other one, or three times what is usual where that is
less: the kernel of a landmark far from all others would cover everything else, whose coefficients then blow up. The
coefficients alpha are those for which the landmarks come out at their own coordinates. It needs nothing but
dissimilarities, so it extends any configuration.

| symbol  | variable                | shape  |
|---------|-------------------------|--------|
| d(x, .) | to_landmarks            | (p, m) |
| gamma   | width_factor            | ()     |
| sigma   | widths                  | (m,)   |
| K''     | normalized_kernel(...)  | (p, m) |
| alpha   | coefficients            | (m, d) |
| Y       | coordinates             | (m, d) |

Which gamma serves depends on the data: 1 lets kernels reach the next landmarks, but where nearly all landmarks are as
far as the next they reach all of them, and the coefficients blow up. So it is 1, 1/2 or 1/4, whichever best places
every fifth landmark by the others. Beyond 1 some points come out far off: with 2, ten times the error on a plane.

How exactly a landmark returns to itself: K'' alpha = Y is a square system, solved directly, and the solution is kept if
it gives Y back to 1e-9 of its size. Where landmarks coincide there is no such solution unless their coordinates do too:
then alpha is the shortest of the least-squares solutions [G eq. 46-49] that leave out singular values below rounding,
and such landmarks share a place.

Exponents are measured from the largest, so that a point far from all landmarks is not 0/0 but goes to the coefficients
of the landmark that it is nearest to in units of the widths. That distance is the residual: 0 at a landmark, and above
about 1 / gamma farther away than landmarks are from each other.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.extension.placement import Placement
from pipeline.types import AnyArray, FloatArray

WIDTH_FACTOR_RANGE = (0.01, 100.0)
# Those that are tried, and the one for so few landmarks that none can be left out.
WIDTH_FACTORS, USUAL_FACTOR = (1.0, 0.5, 0.25), 1.0
LEAST_TRIED, ONE_LEFT_OUT_OF = 20, 5
# Landmarks nearer to each other than this part of the largest dissimilarity are one and the same: rounding of float32.
COINCIDING = 1e-7
# Of the median over the landmarks: what the distance to the nearest other one counts for at most.
FARTHEST = 3.0
# Of the coordinates' size: what an interpolant may miss its landmarks by.
MISFIT = 1e-9
# exp(-50) of the largest kernel: nothing beside it in double precision, whatever the coefficients.
NEGLIGIBLE_EXPONENT = -50.0


@dataclass(frozen=True, eq=False)
class KernelMappingPlacer:
    """Landmarks' coordinates (m, d), the coefficients (m, d) of their kernels, and the kernels' widths (m,)."""

    coordinates: FloatArray
    coefficients: FloatArray
    widths: FloatArray

    @property
    def residual_degree(self) -> int:
        return 0

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m), not squared; a row's bytes do not depend on others."""
        rows = checked_rows(to_landmarks, len(self.coordinates))
        coordinates, residual = np.empty((len(rows), self.coordinates.shape[1])), np.empty(len(rows))
        _place_all(rows, 1.0 / self.widths, self.coefficients, coordinates, residual)
        return Placement(coordinates, residual)


def kernel_mapping(
    between: ArrayLike, coordinates: ArrayLike, width_factor: float | None = None
) -> KernelMappingPlacer:
    """Extend landmarks' coordinates (m, d), given the dissimilarities (m, m), not squared, between them.

    Without a `width_factor` it is the one that best places landmarks by others.
    """
    apart, values = checked_configuration(between, coordinates)
    if width_factor is None:
        return _mapping(apart, values, best_factor(apart, values))
    return _mapping(apart, values, checks.number_in_range("width_factor", width_factor, *WIDTH_FACTOR_RANGE))


def best_factor(between: FloatArray, coordinates: FloatArray) -> float:
    """The width factor that best places every fifth landmark by the others."""
    left_out = np.arange(len(between)) % ONE_LEFT_OUT_OF == ONE_LEFT_OUT_OF - 1
    others = between[np.ix_(~left_out, ~left_out)]
    if len(between) < LEAST_TRIED or not others.any():
        return USUAL_FACTOR
    to_others = between[np.ix_(left_out, ~left_out)]

    def error(factor: float) -> float:
        placed = _mapping(others, coordinates[~left_out], factor).place(to_others).coordinates
        return float(np.mean((placed - coordinates[left_out]) ** 2))

    return min(WIDTH_FACTORS, key=error)


def _mapping(between: FloatArray, coordinates: FloatArray, factor: float) -> KernelMappingPlacer:
    nearest = nearest_others(between)
    widths = factor * np.minimum(nearest, FARTHEST * np.median(nearest))
    coefficients = interpolating_coefficients(normalized_kernel(between, widths), coordinates)
    return KernelMappingPlacer(coordinates, coefficients, widths)


def nearest_others(between: FloatArray) -> FloatArray:
    """Of each landmark the dissimilarity (m,) to the nearest that does not coincide with it [G eq. 44]."""
    largest = between.max()
    return np.asarray(np.where(between > COINCIDING * largest, between, largest).min(axis=1))


def normalized_kernel(to_landmarks: FloatArray, widths: FloatArray) -> FloatArray:
    """K'' (p, m): kernels of every row as shares of their sum [G eq. 47, 51]."""
    ratios = to_landmarks / widths
    nearest = ratios.min(axis=1, keepdims=True)
    kernel = np.exp(-0.5 * (ratios - nearest) * (ratios + nearest))
    return np.asarray(kernel / kernel.sum(axis=1, keepdims=True))


def interpolating_coefficients(system: FloatArray, values: FloatArray) -> FloatArray:
    """x (n, d) with system (n, n) x = values (n, d), or the shortest least-squares solution where that cannot be had.

    The latter leaves out singular values below n times the rounding of the largest. On one thread: the bytes of a
    solution depend on how many threads share it.
    """
    with threadpool_limits(1, "blas"):
        try:
            solution = np.linalg.solve(system, values)
            missed = np.abs(system @ solution - values).max()
        except np.linalg.LinAlgError:
            missed = np.inf
        # Not to be missed either: a NaN compares as false.
        if not missed <= MISFIT * np.abs(values).max():
            solution = np.linalg.lstsq(system, values, rcond=None)[0]
    return np.ascontiguousarray(solution)


def checked_configuration(between: ArrayLike, coordinates: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Dissimilarities (m, m) between landmarks that do not all coincide, and coordinates (m, d) of as many."""
    apart = checks.squared_dissimilarity_matrix("between", between)
    values = np.array(checks.real_array("coordinates", coordinates, 2), dtype=np.float64)
    checks.require_finite("coordinates", values)
    if len(values) != len(apart):
        raise InvalidInputError(
            f"coordinates has {len(values)} rows and between is of {len(apart)} landmarks; give a row for each."
        )
    if not apart.any():
        raise InvalidInputError(
            "between is all zero: the landmarks are one and the same, and tell nothing of how far a point may be; use "
            "at least 2 landmarks that differ."
        )
    return apart, values


def checked_rows(to_landmarks: ArrayLike, n_landmarks: int) -> AnyArray:
    """Dissimilarities (p, m), not squared, of points to all landmarks."""
    rows = checks.real_array("to_landmarks", to_landmarks, 2, allow_empty=True)
    if rows.shape[1] != n_landmarks:
        raise InvalidInputError(
            f"to_landmarks has shape {rows.shape}; it must be (n_points, {n_landmarks}), a row for each point and a "
            "column for each landmark."
        )
    if len(rows):
        checks.require_finite("to_landmarks", rows)
        checks.require_nonnegative("to_landmarks", rows)
    return rows


@compiled
def _place_all(
    rows: AnyArray, inverse_widths: AnyArray, coefficients: AnyArray, coordinates: AnyArray, residual: AnyArray
) -> None:
    for i in range(len(rows)):
        residual[i] = _nearest(rows[i], inverse_widths)
        _average(rows[i], inverse_widths, residual[i], coefficients, coordinates[i])


@compiled
def _nearest(row: AnyArray, inverse_widths: AnyArray) -> float:
    nearest = np.inf
    for j in range(len(row)):
        nearest = min(nearest, np.float64(row[j]) * inverse_widths[j])
    return nearest


@compiled
def _average(
    row: AnyArray, inverse_widths: AnyArray, nearest: float, coefficients: AnyArray, coordinates: AnyArray
) -> None:
    """Kernels relative to the largest, that of the `nearest` in units of the widths; its exponent is exactly 0."""
    total = 0.0
    coordinates[:] = 0.0
    for j in range(len(row)):
        ratio = np.float64(row[j]) * inverse_widths[j]
        exponent = -0.5 * (ratio - nearest) * (ratio + nearest) if ratio > nearest else 0.0
        if exponent > NEGLIGIBLE_EXPONENT:
            kernel = math.exp(exponent)
            total += kernel
            for k in range(len(coordinates)):
                coordinates[k] += kernel * coefficients[j, k]
    for k in range(len(coordinates)):
        coordinates[k] /= total
