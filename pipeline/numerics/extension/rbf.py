"""Cubic radial basis functions: the smooth interpolant of any configuration, extended to new points [M eq. 14; sec. 5].

In place of a Nystrom formula, which is not continuous for a truncated kernel, [M sec. 5] suggests to interpolate each
coordinate by y(x) = sum_j alpha_j |x - x_j|^3 + gamma + beta.x. Only dissimilarities are known here, not x. But the
classical projection z(x) of them onto the q leading axes of the landmarks is a position in a Euclidean space, linear
in the squared dissimilarities, and there the interpolant can be had with its linear part:

    y(x) = sum_j alpha_j |z(x) - z_j|^3 + gamma + B' z(x),   sum_j alpha_j = 0,   sum_j alpha_j z_j = 0.

- Of points in q dimensions z are the principal components, and this is the interpolant of [M eq. 14] in x itself.
- |r|^3 is conditionally positive definite of order 2 in Euclidean spaces: with the linear part the system has one
  solution, and away from the landmarks y grows no faster than |z|. Cubes of the dissimilarities themselves with a
  constant (the nearest that one comes without positions) have eigenvalues of both signs, and some near 0, as soon as
  the data is not low-dimensional and Euclidean: with 100 to 300 landmarks on geodesics of faces such interpolants
  missed held-out points by 0.3 to 100 times the size of the embedding, where this one misses by 0.03 to 0.2.
- How many axes: those with the least leave-one-out error over the landmarks [M eq. 16], which needs no refitting: it
  is alpha_j over the j-th diagonal entry of the system's inverse. More axes tell points apart, fewer leave out noise.
- A configuration that is linear in z is reproduced. So for classical scaling on the same dissimilarities this *is* the
  projection; it differs for stress, spectral and locally linear configurations.

| symbol | variable              | shape  |
|--------|-----------------------|--------|
| z_j    | positions             | (m, q) |
| alpha  | weights               | (m, d) |
| gamma  | constant              | (d,)   |
| B      | slopes                | (q, d) |

Conditioning: positions are measured in a unit near their size. Landmarks that coincide enter as one, with the mean of
their coordinates. The system is solved directly if it gives the landmarks back to 1e-9 of their size, else by least
squares without singular values below rounding (`interpolating_coefficients`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.extension.kernel_mapping import (
    COINCIDING,
    MISFIT,
    checked_configuration,
    checked_rows,
    interpolating_coefficients,
    nearest_others,
)
from pipeline.numerics.extension.placement import Placement
from pipeline.numerics.extension.reconstruction import MomentSums, project_moments
from pipeline.numerics.mds import LandmarkModel, double_centered, with_fixed_signs
from pipeline.types import AnyArray, FloatArray, IntArray

AXES_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Of the first axis' eigenvalue: below, float32 dissimilarities say nothing about a point's place along an axis.
LEAST_EIGENVALUE = 1e-6
# Landmarks by which the number of axes is chosen, spread evenly over all: each number of axes takes an inversion.
TRIAL_LANDMARKS = 1000


@dataclass(frozen=True, eq=False)
class RbfPlacer:
    """An interpolant in the space of the landmarks' leading axes.

    axes (m, q), eigenvalues (q,), row_means (m,) and grand_mean are the classical model that gives points their
    positions; those of landmarks are `positions` (m, q), in units of `unit`. `spacing` is the landmarks' mean
    dissimilarity to their nearest [M eq. 11].
    """

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

    @property
    def residual_degree(self) -> int:
        return 0

    @property
    def n_axes(self) -> int:
        return len(self.eigenvalues)

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m), not squared; a row's bytes do not depend on others.

        The residual is the dissimilarity to the nearest landmark in units of the landmarks' spacing.
        """
        rows = checked_rows(to_landmarks, len(self.coordinates))
        coordinates = np.empty((len(rows), self.coordinates.shape[1]))
        places = _projected(self._model(), rows) / self.unit
        _evaluate(places, self.positions, self.weights, self.constant, self.slopes, coordinates)
        return Placement(coordinates, rows.min(axis=1).astype(np.float64) / self.spacing)

    def _model(self) -> LandmarkModel:
        return LandmarkModel(self.axes, self.eigenvalues, self.row_means, self.grand_mean, self.eigenvalues)


def rbf_extension(between: ArrayLike, coordinates: ArrayLike, n_axes: int | None = None) -> RbfPlacer:
    """Extend landmarks' coordinates (m, d), given the dissimilarities (m, m), not squared, between them.

    `n_axes` of the landmarks' axes are told apart; if not given, as many as have the least leave-one-out error.
    """
    apart, values = checked_configuration(between, coordinates)
    kept, means = _merged(apart, values)
    model = _leading_axes(apart, min(AXES_TRIED[-1], max(1, len(kept) - 2)))
    unit = 2.0 ** np.frexp(np.abs(model.coordinates).max())[1]
    # By the same sums as any other point's, so that a landmark comes to lie exactly on itself.
    positions = _projected(model, apart) / unit
    q = _resolved_axes(n_axes, positions[kept], means)
    weights, polynomial = _solved(positions[kept, :q], means)
    weights_of_all = np.zeros_like(values)
    weights_of_all[kept] = weights
    return RbfPlacer(
        coordinates=values,
        axes=np.ascontiguousarray(model.coordinates[:, :q]),
        eigenvalues=model.eigenvalues[:q].copy(),
        row_means=model.row_means,
        grand_mean=model.grand_mean,
        positions=np.ascontiguousarray(positions[:, :q]),
        unit=float(unit),
        weights=weights_of_all,
        constant=polynomial[0].copy(),
        slopes=polynomial[1:].copy(),
        spacing=float(nearest_others(apart).mean()),
    )


def _merged(between: FloatArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """The first (g,) of each group of landmarks that coincide, and the means (g, d) of the groups' values (m, d)."""
    first = np.argmax(between <= COINCIDING * between.max(), axis=1)
    while (first[first] != first).any():
        first = first[first]
    kept, group = np.unique(first, return_inverse=True)
    sums = np.zeros((len(kept), values.shape[1]))
    np.add.at(sums, group, values)
    return kept, np.asarray(sums / np.bincount(group)[:, None])


def _solved(positions: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """alpha (m, d), and the polynomial (1 + q, d): gamma above B."""
    m, q = positions.shape
    right_side = np.concatenate([values, np.zeros((1 + q, values.shape[1]))])
    solution = interpolating_coefficients(_system(positions), right_side)
    return solution[:m], solution[m:]


def _leading_axes(between: FloatArray, at_most: int) -> LandmarkModel:
    """Classical scaling [T fig. 2], of its axes only the leading ones that stand above single precision."""
    squared = between**2
    last = len(between) - 1
    with threadpool_limits(1, "blas"):
        spectrum, vectors = eigh(double_centered(squared), subset_by_index=[max(0, last - at_most), last])
    spectrum, vectors = spectrum[::-1], vectors[:, ::-1]
    q = min(at_most, int(np.count_nonzero(spectrum > LEAST_EIGENVALUE * spectrum[0])))
    axes = np.ascontiguousarray(with_fixed_signs(vectors[:, :q]) * np.sqrt(spectrum[:q]))
    return LandmarkModel(axes, spectrum[:q].copy(), squared.mean(axis=1), float(squared.mean()), spectrum.copy())


def _projected(model: LandmarkModel, to_landmarks: AnyArray) -> FloatArray:
    """z (p, q): positions of points along the landmarks' axes [T eq. 7]."""
    sums = MomentSums(model, len(to_landmarks))
    sums.add(to_landmarks)
    return project_moments(model, sums.moments())


def _resolved_axes(n_axes: int | None, positions: FloatArray, values: FloatArray) -> int:
    available = positions.shape[1]
    if n_axes is not None:
        return checks.integer_in_range("n_axes", n_axes, 1, available, f"the landmarks have {available} axes")
    step = -(-len(positions) // TRIAL_LANDMARKS)
    tried = [q for q in AXES_TRIED if q < available] + [available]
    # Below this any error is rounding, and the fewest axes that come so near are enough.
    floor = MISFIT * float(np.abs(values).max())
    errors = [max(floor, leave_one_out_error(positions[::step, :q], values[::step])) for q in tried]
    return tried[int(np.argmin(errors))]


def leave_one_out_error(positions: FloatArray, values: FloatArray) -> float:
    """Root mean square of what the interpolant of all others misses each of m values (m, d) by [M eq. 16]."""
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
    system[:m, :m] = cdist(positions, positions) ** 3
    system[:m, m] = system[m, :m] = 1.0
    system[:m, m + 1 :], system[m + 1 :, :m] = positions, positions.T
    return system


@compiled
def _evaluate(
    places: AnyArray,
    positions: AnyArray,
    weights: AnyArray,
    constant: AnyArray,
    slopes: AnyArray,
    coordinates: AnyArray,
) -> None:
    """The polynomial of each point, then the cubes landmark by landmark."""
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
