"""Interpolants that extend any configuration of landmarks to new points, given dissimilarities alone.

Kernel mapping [G eq. 42-51]: y(x) = sum_j alpha_j k_j(x) / sum_l k_l(x), k_j(x) = exp(-d(x, x_j)^2 / (2 sigma_j^2)).
sigma_j is gamma (`width_factor`) times landmark j's distance to the nearest other, at most three times the median of
those: the kernel of an isolated landmark would cover everything, and the coefficients alpha (m, d), which make the
landmarks come out at their own coordinates, would blow up, as they do where landmarks are about equally far apart and
kernels of width 1 reach all of them. So gamma is 1, 1/2 or 1/4, whichever best places every fifth landmark by the
others. Coinciding landmarks share a place: alpha is then the shortest least-squares solution [G eq. 46-49]. Exponents
are relative to the largest, so a point far from all landmarks gets the coefficients of the nearest one in units of the
widths. That distance is the residual: 0 at a landmark, above about 1 / gamma beyond the landmarks' own distances.

Cubic radial basis functions with a linear part [M eq. 14; sec. 5]:

    y(x) = sum_j alpha_j |z(x) - z_j|^3 + gamma + B' z(x),   sum_j alpha_j = 0,   sum_j alpha_j z_j = 0.

[M] interpolates in x; here z(x), the classical projection onto the q leading axes of the landmarks, stands for it: a
Euclidean position, linear in the squared dissimilarities. For points in q dimensions it gives their principal
components, hence the interpolant of [M]. |r|^3 is conditionally positive definite of order 2, so the system has one
solution, and y grows no faster than |z| away from the landmarks. (Cubes of the dissimilarities themselves have
eigenvalues of both signs: on geodesics of faces they missed held-out points by 0.3 to 100 times the embedding's size,
this by 0.03 to 0.2.) q has the least leave-one-out error over the landmarks [M eq. 16], alpha_j over the j-th diagonal
entry of the system's inverse. A configuration linear in z is reproduced: for classical scaling this is the projection.
Positions are in a unit near their size; coinciding landmarks enter as one, with the mean of their coordinates.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.mds import (
    LandmarkModel,
    Placement,
    double_centered,
    moments_of,
    project_moments,
    with_fixed_signs,
)
from pipeline.types import AnyArray, FloatArray, IntArray

WIDTH_FACTOR_RANGE = (0.01, 100.0)
# Factors that are tried, and the one used when there are too few landmarks to leave some out.
WIDTH_FACTORS, USUAL_FACTOR = (1.0, 0.5, 0.25), 1.0
LEAST_TRIED, ONE_LEFT_OUT_OF = 20, 5
# Landmarks nearer to each other than this share of the largest dissimilarity, the rounding of float32, coincide.
COINCIDING = 1e-7
# Limit on distances to the nearest other landmark, relative to their median.
FARTHEST = 3.0
# Largest error of an interpolant at its landmarks, relative to the coordinates' size.
MISFIT = 1e-9
# A kernel exp(-50) times the largest is nothing beside it in double precision, whatever the coefficients.
NEGLIGIBLE_EXPONENT = -50.0


@dataclass(frozen=True, eq=False)
class KernelMappingPlacer:
    """Landmarks' coordinates (m, d), the coefficients (m, d) of their kernels, and the kernels' widths (m,)."""

    coordinates: FloatArray
    coefficients: FloatArray
    widths: FloatArray
    residual_degree: ClassVar[int] = 0

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m), not squared; a row's bytes do not depend on other rows."""
        rows = checks.rows_to_landmarks(to_landmarks, len(self.coordinates))
        return Placement(*_averages(rows, 1.0 / self.widths, self.coefficients))


def kernel_mapping(
    between: ArrayLike, coordinates: ArrayLike, width_factor: float | None = None
) -> KernelMappingPlacer:
    """Extend landmarks' coordinates (m, d) by kernel mapping, given their dissimilarities (m, m), not squared."""
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
    """Each landmark's dissimilarity (m,) to the nearest other that does not coincide with it [G eq. 44]."""
    largest = between.max()
    return np.asarray(np.where(between > COINCIDING * largest, between, largest).min(axis=1))


def normalized_kernel(to_landmarks: FloatArray, widths: FloatArray) -> FloatArray:
    """K'' (p, m): each row's kernels as shares of their sum [G eq. 47, 51]."""
    ratios = to_landmarks / widths
    nearest = ratios.min(axis=1, keepdims=True)
    kernel = np.exp(-0.5 * (ratios - nearest) * (ratios + nearest))
    return np.asarray(kernel / kernel.sum(axis=1, keepdims=True))


def interpolating_coefficients(system: FloatArray, values: FloatArray) -> FloatArray:
    """x (n, d) with system (n, n) x = values (n, d), or the shortest least-squares solution if that misses by more than
    MISFIT. One thread: bytes depend on their number."""
    with threadpool_limits(1, "blas"):
        try:
            solution = np.linalg.solve(system, values)
            missed = np.abs(system @ solution - values).max()
        except np.linalg.LinAlgError:
            missed = np.inf
        # Written so that NaN counts as missed.
        if not missed <= MISFIT * np.abs(values).max():
            solution = np.linalg.lstsq(system, values, rcond=None)[0]
    return np.ascontiguousarray(solution)


def checked_configuration(between: ArrayLike, coordinates: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Dissimilarities (m, m) between landmarks that do not all coincide, and their coordinates (m, d)."""
    apart = checks.squared_dissimilarity_matrix("between", between)
    values = np.array(checks.finite_array("coordinates", coordinates, 2), dtype=np.float64)
    if len(values) != len(apart):
        raise InvalidInputError(
            f"coordinates has {len(values)} rows and between has {len(apart)} landmarks; give a row for each."
        )
    if not apart.any():
        raise InvalidInputError(
            "between is all zero: the landmarks coincide and give no scale; use at least 2 landmarks that differ."
        )
    return apart, values


@compiled
def _averages(rows: AnyArray, inverse_widths: AnyArray, coefficients: AnyArray) -> tuple[FloatArray, FloatArray]:
    """Weighted means (p, d) of the coefficients, and the distances (p,) to the nearest landmark in units of the widths.
    Kernels are relative to that landmark's, the largest, whose exponent is exactly 0."""
    coordinates, distances = np.zeros((len(rows), coefficients.shape[1])), np.empty(len(rows))
    for i in range(len(rows)):
        row, nearest, total = rows[i], np.inf, 0.0
        for j in range(len(row)):
            nearest = min(nearest, np.float64(row[j]) * inverse_widths[j])
        distances[i] = nearest
        for j in range(len(row)):
            ratio = np.float64(row[j]) * inverse_widths[j]
            exponent = -0.5 * (ratio - nearest) * (ratio + nearest) if ratio > nearest else 0.0
            if exponent > NEGLIGIBLE_EXPONENT:
                kernel = math.exp(exponent)
                total += kernel
                for k in range(coordinates.shape[1]):
                    coordinates[i, k] += kernel * coefficients[j, k]
        for k in range(coordinates.shape[1]):
            coordinates[i, k] /= total
    return coordinates, distances


AXES_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Relative to the first eigenvalue; below this, float32 dissimilarities do not determine a position along an axis.
LEAST_EIGENVALUE = 1e-6
# Landmarks, spread evenly, by which the number of axes is chosen: each number takes a matrix inversion.
TRIAL_LANDMARKS = 1000


@dataclass(frozen=True, eq=False)
class RbfPlacer:
    """A cubic interpolant in the space of the landmarks' leading axes. axes (m, q), eigenvalues (q,), row_means (m,)
    and grand_mean form the classical model that positions points; positions (m, q) are the landmarks', in units of
    `unit`. weights (m, d) are alpha, constant (d,) gamma, slopes (q, d) B. `spacing` is the landmarks' mean
    dissimilarity to their nearest [M eq. 11]."""

    coordinates: FloatArray
    axes: FloatArray
    eigenvalues: FloatArray
    row_means: FloatArray
    grand_mean: float
    positions: FloatArray
    unit: float
    weights: FloatArray
    constant: FloatArray
    slopes: FloatArray
    spacing: float
    residual_degree: ClassVar[int] = 0

    @property
    def n_axes(self) -> int:
        return len(self.eigenvalues)

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m), not squared; a row's bytes do not depend on other rows. The
        residual is the dissimilarity to the nearest landmark in units of the landmarks' spacing."""
        rows = checks.rows_to_landmarks(to_landmarks, len(self.coordinates))
        model = LandmarkModel(self.axes, self.eigenvalues, self.row_means, self.grand_mean, self.eigenvalues)
        places = project_moments(model, moments_of(model, rows)) / self.unit
        coordinates = _evaluated(places, self.positions, self.weights, self.constant, self.slopes)
        return Placement(coordinates, rows.min(axis=1).astype(np.float64) / self.spacing)


def rbf_extension(between: ArrayLike, coordinates: ArrayLike, n_axes: int | None = None) -> RbfPlacer:
    """Extend landmarks' coordinates (m, d), given their mutual dissimilarities (m, m), not squared, by a cubic
    interpolant in `n_axes` axes, by default as many as have the least leave-one-out error."""
    apart, values = checked_configuration(between, coordinates)
    kept, means = _merged(apart, values)
    model = _leading_axes(apart, min(AXES_TRIED[-1], max(1, len(kept) - 2)))
    unit = 2.0 ** np.frexp(np.abs(model.coordinates).max())[1]
    # Summed like any other point's, so that a landmark is placed exactly on itself.
    positions = project_moments(model, moments_of(model, apart)) / unit
    q = _resolved_axes(n_axes, positions[kept], means)
    right_side = np.concatenate([means, np.zeros((1 + q, means.shape[1]))])
    # alpha (m, d), above gamma, above B.
    solution = interpolating_coefficients(_system(positions[kept, :q]), right_side)
    weights = np.zeros_like(values)
    weights[kept] = solution[: len(kept)]
    return RbfPlacer(
        coordinates=values,
        axes=np.ascontiguousarray(model.coordinates[:, :q]),
        eigenvalues=model.eigenvalues[:q].copy(),
        row_means=model.row_means,
        grand_mean=model.grand_mean,
        positions=np.ascontiguousarray(positions[:, :q]),
        unit=float(unit),
        weights=weights,
        constant=solution[len(kept)].copy(),
        slopes=solution[len(kept) + 1 :].copy(),
        spacing=float(nearest_others(apart).mean()),
    )


def _merged(between: FloatArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """The first (g,) of each group of coinciding landmarks, and the means (g, d) of the groups' values (m, d)."""
    first = np.argmax(between <= COINCIDING * between.max(), axis=1)
    while (first[first] != first).any():
        first = first[first]
    kept, group = np.unique(first, return_inverse=True)
    sums = np.zeros((len(kept), values.shape[1]))
    np.add.at(sums, group, values)
    return kept, np.asarray(sums / np.bincount(group)[:, None])


def _leading_axes(between: FloatArray, at_most: int) -> LandmarkModel:
    """Classical scaling [T fig. 2], restricted to leading axes that single precision resolves."""
    squared = between**2
    last = len(between) - 1
    with threadpool_limits(1, "blas"):
        spectrum, vectors = scipy.linalg.eigh(double_centered(squared), subset_by_index=[max(0, last - at_most), last])
    spectrum, vectors = spectrum[::-1], vectors[:, ::-1]
    q = min(at_most, int(np.count_nonzero(spectrum > LEAST_EIGENVALUE * spectrum[0])))
    axes = np.ascontiguousarray(with_fixed_signs(vectors[:, :q]) * np.sqrt(spectrum[:q]))
    return LandmarkModel(axes, spectrum[:q].copy(), squared.mean(axis=1), float(squared.mean()), spectrum.copy())


def _resolved_axes(n_axes: int | None, positions: FloatArray, values: FloatArray) -> int:
    available = positions.shape[1]
    if n_axes is not None:
        return checks.integer_in_range("n_axes", n_axes, 1, available, f"the landmarks have {available} axes")
    step = -(-len(positions) // TRIAL_LANDMARKS)
    tried = [q for q in AXES_TRIED if q < available] + [available]
    # Errors below this are rounding; the fewest axes that reach it are enough.
    floor = MISFIT * float(np.abs(values).max())
    errors = [max(floor, leave_one_out_error(positions[::step, :q], values[::step])) for q in tried]
    return tried[int(np.argmin(errors))]


def leave_one_out_error(positions: FloatArray, values: FloatArray) -> float:
    """Root mean square leave-one-out error of the interpolant of m values (m, d) [M eq. 16]."""
    m, q = positions.shape
    if m < q + 2:
        return np.inf
    with threadpool_limits(1, "blas"):
        try:
            inverse = np.linalg.inv(_system(positions))[:m, :m]
        except np.linalg.LinAlgError:
            return np.inf
        missed = inverse @ values / inverse.diagonal()[:, None]
    return float(np.sqrt(np.mean(missed**2)))


def _system(positions: FloatArray) -> FloatArray:
    """[[|z_i - z_j|^3, 1, z_i], [1, 0, 0], [z_j, 0, 0]], (m + 1 + q) square."""
    m, q = positions.shape
    system = np.zeros((m + 1 + q, m + 1 + q))
    system[:m, :m] = scipy.spatial.distance.cdist(positions, positions) ** 3
    system[:m, m] = system[m, :m] = 1.0
    system[:m, m + 1 :], system[m + 1 :, :m] = positions, positions.T
    return system


@compiled
def _evaluated(
    places: AnyArray, positions: AnyArray, weights: AnyArray, constant: AnyArray, slopes: AnyArray
) -> FloatArray:
    """The polynomial of each point, then the cubes landmark by landmark."""
    coordinates = np.empty((len(places), len(constant)))
    for i in range(len(places)):
        place, row = places[i], coordinates[i]
        row[:] = constant
        for a in range(len(place)):
            for k in range(len(row)):
                row[k] += place[a] * slopes[a, k]
        for j in range(len(positions)):
            square = 0.0
            for a in range(len(place)):
                square += (place[a] - positions[j, a]) ** 2
            cube = square * np.sqrt(square)
            for k in range(len(row)):
                row[k] += cube * weights[j, k]
    return coordinates
