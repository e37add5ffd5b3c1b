"""Classical multidimensional scaling of the landmarks [T fig. 2; G eq. 13-15; B sec. 2.1], projection onto it, and
what other models offer.

Symbols: Delta_2 (m, m) squared_dissimilarities, B (m, m) double_centered(...), X (m, d) model.coordinates, lam (d,)
model.eigenvalues, mean_i (m,) model.row_means, g model.grand_mean. Because X'X = diag(lam), every formula downstream is
diagonal and needs no linear solve.

Other points are placed by d + 1 moments of their squared dissimilarities a_2 (p, m) to the landmarks: c = X'b (p, d),
`inner`, and beta (p,) [T eq. 6, 9]. X is centered, so c = -1/2 X'(a_2 - mean_i); the mean of mean_i is g, so beta =
mean(a_2) - g/2 = mean(a_2 - mean_i) + g/2. Projection is y = c / lam: Gower's formula for adding a point, kernel PCA,
Nystrom extension, least squares on X and distance-based triangulation alike [T eq. 4, 7, 8; G eq. 39, 60; B eq. 11,
15]. ([G eq. 41] is printed with unsquared distances and a scalar average.) It ignores whatever lies outside the
landmarks' space.

With `weights` w (m,) of mean 1 and W = diag(w), landmark i counts as w_i points: means are weighted, mean_i =
(Delta_2 w)_i / m, and (lam, U) are eigenpairs of W^1/2 B W^1/2, so that X = W^-1/2 U sqrt(lam) has X'WX = diag(lam).
All formulas hold with X'W for X' and weighted means. X is what it would be if landmarks were repeated as often as they
count.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.landmarks.weights import relative_weights
from pipeline.types import AnyArray, FloatArray


@dataclass(frozen=True, eq=False)
class LandmarkModel:
    """The landmarks' classical scaling: all that placing a new point needs, and its spectrum. `spectrum` (m,) holds
    every eigenvalue of B, largest first; geodesic Gram matrices have negative ones. `constant` c is what was added to
    dissimilarities between different objects; those of new points are given without it, and get it as the moments say.
    In a `signed` model squared dissimilarities may be negative, as indefinite similarities make them. `weights` (m,),
    of mean 1, say how much each landmark counts; with None all count the same. Means and spectrum are weighted."""

    coordinates: FloatArray
    eigenvalues: FloatArray
    row_means: FloatArray
    grand_mean: float
    spectrum: FloatArray
    constant: float = 0.0
    signed: bool = False
    weights: FloatArray | None = None

    @cached_property
    def factors(self) -> FloatArray:
        """W (X, e), (m, d + 1): what the moments multiply the landmarks' terms by."""
        plain = np.column_stack([self.coordinates, np.ones(self.n_landmarks)])
        return plain if self.weights is None else plain * self.weights[:, None]

    @property
    def n_landmarks(self) -> int:
        return len(self.coordinates)

    @property
    def n_components(self) -> int:
        return len(self.eigenvalues)

    @property
    def n_positive(self) -> int:
        """Number of eigenvalues that other points can be placed by: the most components that the landmarks support."""
        return count_usable(self.spectrum, self.constant)

    @property
    def negative_mass(self) -> float:
        """Share of the spectrum's absolute sum that is negative; 0 for Euclidean dissimilarities."""
        return float(-self.spectrum[self.spectrum < 0].sum() / np.abs(self.spectrum).sum())

    @property
    def explained_mass(self) -> float:
        """Share of the spectrum's positive sum in the kept components."""
        return float(self.eigenvalues.sum() / self.spectrum[self.spectrum > 0].sum())


def classical_mds(
    squared_dissimilarities: ArrayLike,
    n_components: int,
    signed: bool = False,
    constant: float = 0.0,
    weights: ArrayLike | None = None,
) -> LandmarkModel:
    """Embed m objects by their (m, m) squared dissimilarities, negative only if `signed`: X = U sqrt(lam) of B. They
    include the `constant` that was added to dissimilarities, if any. With positive `weights` (m,), of which only the
    ratios matter, object i counts as weights_i copies of it, which are the constant apart. All eigenvalues are
    computed: the negative mass and the number of usable components need them, and the first components then have the
    same bytes for any `n_components`. Memory: three (m, m) float64 arrays."""
    delta2 = checks.squared_dissimilarity_matrix("squared_dissimilarities", squared_dissimilarities, signed)
    d, w = _checked_sizes(delta2, n_components), None if weights is None else relative_weights(weights, len(delta2))
    if w is not None:
        # The mean over pairs of w_i copies: each is c from all but itself.
        np.fill_diagonal(delta2, constant**2 * (1 - 1 / w))
    row_means = _means(delta2, w)
    grand_mean = float(delta2.mean() if w is None else _means(row_means, w))
    spectrum, vectors = eigenpairs(double_centered(delta2, w))
    _require_usable(d, spectrum, constant)
    eigenvalues, axes = spectrum[:d].copy(), vectors[:, :d]
    return LandmarkModel(
        coordinates=np.ascontiguousarray(with_fixed_signs(_unweighted(axes, w)) * np.sqrt(eigenvalues)),
        eigenvalues=eigenvalues,
        row_means=row_means,
        grand_mean=grand_mean,
        spectrum=spectrum,
        constant=constant,
        signed=signed,
        weights=w,
    )


def _checked_sizes(squared_dissimilarities: FloatArray, n_components: int) -> int:
    """The number of components, if so many objects that differ can have it."""
    m = len(squared_dissimilarities)
    if m < 2:
        raise InvalidInputError("squared_dissimilarities holds 1 object; at least 2 are needed to embed anything.")
    d = checks.integer_in_range("n_components", n_components, 1, m - 1, f"fewer than the {m} objects")
    if not squared_dissimilarities.any():
        raise InvalidInputError(
            "squared_dissimilarities are all zero: every object is the same, so there is nothing to embed; "
            "use objects that differ."
        )
    return d


def _means(values: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Means along the last axis, of objects that count as much as their weights say."""
    if weights is None:
        return np.asarray(values.mean(axis=-1))
    # No product of BLAS: its bytes depend on the number of threads.
    return np.asarray((values * weights).sum(axis=-1) / len(weights))


def _unweighted(vectors: FloatArray, weights: FloatArray | None) -> FloatArray:
    """W^-1/2 U."""
    return vectors if weights is None else vectors / np.sqrt(weights)[:, None]


def eigenpairs(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """All eigenvalues (m,) and vectors (m, m) of a symmetric matrix, which is overwritten, largest first."""
    # The bytes of a decomposition depend on the number of threads.
    with threadpool_limits(1, "blas"):
        eigenvalues, vectors = scipy.linalg.eigh(matrix, driver="evd", overwrite_a=True, check_finite=False)
    return eigenvalues[::-1].copy(), vectors[:, ::-1]


def double_centered(squared_dissimilarities: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """B = -1/2 P Delta_2 P with P = I - ee'/m, exactly symmetric if the argument is [T fig. 2]. With weights of mean 1
    W^1/2 B W^1/2, where B = -1/2 (I - ew'/m) Delta_2 (I - we'/m)."""
    means = _means(squared_dissimilarities, weights)
    centered = np.asarray(-0.5 * (squared_dissimilarities - (means[:, None] + means) + _means(means, weights)))
    return centered if weights is None else centered * np.sqrt(np.multiply.outer(weights, weights))


def with_fixed_signs(vectors: FloatArray) -> FloatArray:
    """Columns flipped so that the largest absolute entry of each is positive. The first of entries that tie up to
    rounding decides; otherwise symmetric configurations would flip with the noise."""
    sizes = np.abs(vectors)
    deciding = np.argmax(sizes >= sizes.max(axis=0) * (1 - 1e-8), axis=0)
    signs = np.sign(vectors[deciding, np.arange(vectors.shape[1])])
    return np.asarray(vectors * signs)


def count_positive(spectrum: FloatArray) -> int:
    """Number of eigenvalues above rounding error."""
    floor = len(spectrum) * np.finfo(np.float64).eps * np.abs(spectrum).max()
    return int(np.count_nonzero(spectrum > floor))


def with_constant(dissimilarities: ArrayLike, constant: float) -> FloatArray:
    """Dissimilarities (k, k) between objects with the constant added to all but those of objects to themselves."""
    values = np.array(dissimilarities, dtype=np.float64) + constant
    np.fill_diagonal(values, 0.0)
    return values


def count_usable(spectrum: FloatArray, constant: float) -> int:
    """Number of eigenvalues above rounding error and above c^2/2, which a new point's dissimilarities are short of."""
    return min(count_positive(spectrum), count_positive(spectrum - constant**2 / 2))


def _require_usable(n_components: int, spectrum: FloatArray, constant: float) -> None:
    available = count_usable(spectrum, constant)
    if n_components > available:
        which = f"above c^2/2 = {constant**2 / 2:.6g}, for the added constant c = {constant:.6g}" if constant else ""
        remedy = f"use n_components from 1 to {available}" if available else "use method='isomap', which adds none"
        raise InvalidInputError(
            f"n_components={n_components} is more than the dissimilarities support: their centered Gram matrix has "
            f"{available} positive eigenvalue{'s' * (available != 1)}{' ' * bool(which)}{which}; {remedy}."
        )


# Points per pass: their accumulators and differences stay in the first-level cache. The number does not affect the
# bytes of a result: each point's sum runs over the landmarks in order.
POINTS_PER_BLOCK = 128
LANDMARKS_PER_PASS = 4


class Moments(NamedTuple):
    """c = X'b (p, d) and beta (p,) of p points; `squares` (p,) are the sums of (a_2 - mean_i)^2, if asked for."""

    inner: FloatArray
    beta: FloatArray
    squares: FloatArray | None = None


def landmark_moments(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> Moments:
    """The moments of points given by their (p, m) squared dissimilarities to the landmarks, without the constant."""
    squared = checks.landmark_rows("squared_to_landmarks", squared_to_landmarks, model.n_landmarks)
    if len(squared) and not model.signed:
        checks.require_nonnegative("squared_to_landmarks", squared)
    sums = np.zeros((model.n_components + 1, len(squared)))
    values = np.sqrt(squared) if model.constant else squared
    _add_squares(values, not model.constant, model.constant, model.factors, model.row_means, sums)
    moments = _from_sums(model, sums)
    # Checking the d + 1 sums is enough: NaN or infinity among the m entries always reaches them.
    if not _are_usable(moments):
        checks.require_finite("squared_to_landmarks", squared)
        checks.require_not_too_large("squared_to_landmarks", squared)
    return moments


def moments_of(model: LandmarkModel, to_landmarks: AnyArray) -> Moments:
    """The moments of points given by their (p, m) dissimilarities, not squared, to the landmarks."""
    sums = MomentSums(model, len(to_landmarks))
    sums.add(to_landmarks)
    return sums.moments()


class MomentSums:
    """The moments of p points whose dissimilarities arrive a few landmarks at a time, in order; the same bits as
    `landmark_moments` of the squares, which are summed too `with_squares`."""

    def __init__(self, model: LandmarkModel, n_points: int, with_squares: bool = False) -> None:
        self._model, self._n_added = model, 0
        self._sums = np.zeros((model.n_components + 1 + with_squares, n_points))

    def add(self, to_landmarks: AnyArray) -> None:
        """Add the dissimilarities (p, b) to the next b landmarks, not squared; signed roots if the model is signed."""
        landmarks = slice(self._n_added, self._n_added + to_landmarks.shape[1])
        model = self._model
        factors, row_means = model.factors[landmarks], model.row_means[landmarks]
        _add_squares(to_landmarks, False, model.constant, factors, row_means, self._sums)
        self._n_added = landmarks.stop

    def moments(self) -> Moments:
        """The moments once all landmarks are in; an error if they are not finite."""
        if self._n_added != self._model.n_landmarks:
            raise InvalidInputError(
                f"dissimilarities to {self._n_added} of {self._model.n_landmarks} landmarks were given; give all."
            )
        moments = _from_sums(self._model, self._sums)
        if not _are_usable(moments):
            raise InvalidInputError("dissimilarities to landmarks are NaN, infinite or too large to be squared.")
        return moments


def _from_sums(model: LandmarkModel, sums: FloatArray) -> Moments:
    """The moments from the sums over landmarks.

    With a constant c, every dissimilarity to a landmark is c larger, one of zero as well, while between landmarks those
    of objects to themselves stay 0. A landmark's row is therefore off by c^2 at one entry: its sums give (lam_k -
    c^2/2) / lam_k of its c_k, and c^2/m more than its beta. Both are corrected, for every point alike, so that
    landmarks return to themselves and nothing jumps beside them. (With weights beta is that of a copy of the landmark,
    which is c^2/2 (1 - 1/w_i) farther from the center than the mean of its w_i copies.)
    """
    d = model.n_components
    inner = np.ascontiguousarray(-0.5 * sums[:d].T)
    beta = sums[d] / model.n_landmarks + model.grand_mean / 2
    if model.constant:
        inner *= model.eigenvalues / (model.eigenvalues - model.constant**2 / 2)
        beta -= model.constant**2 / model.n_landmarks
    return Moments(inner, beta, sums[d + 1] if len(sums) > d + 1 else None)


def _are_usable(moments: Moments) -> bool:
    return bool(np.isfinite(moments.inner).all() and (np.abs(moments.beta) <= checks.LARGEST_SIZE).all())


@compiled
def _add_squares(
    to_landmarks: AnyArray, squared: bool, constant: float, factors: AnyArray, row_means: AnyArray, sums: AnyArray
) -> None:
    """sums[k] += (to_landmarks^2 - row_means) @ factors[:, k]; one more row of sums, if there is one, is that of the
    squared terms times the last factor. Unless the dissimilarities are `squared`, the constant is added, and squares
    keep the sign. Sums are vectorized across points, never across landmarks, which are added in order."""
    n_points, n_landmarks = to_landmarks.shape
    n_sums = factors.shape[1]
    padded = np.zeros((-(-n_landmarks // LANDMARKS_PER_PASS) * LANDMARKS_PER_PASS, n_sums))
    padded[:n_landmarks] = factors
    terms, totals = np.zeros((LANDMARKS_PER_PASS, POINTS_PER_BLOCK)), np.empty((len(sums), POINTS_PER_BLOCK))
    for first in range(0, n_points, POINTS_PER_BLOCK):
        size = min(POINTS_PER_BLOCK, n_points - first)
        totals[:, :size] = sums[:, first : first + size]
        for i in range(0, n_landmarks, LANDMARKS_PER_PASS):
            _fill_terms(terms, to_landmarks, first, size, i, squared, constant, row_means)
            for k in range(n_sums):
                x = padded[i : i + LANDMARKS_PER_PASS, k]
                _add_terms(totals[k], terms, size, x[0], x[1], x[2], x[3])
            if len(sums) > n_sums:
                w = padded[i : i + LANDMARKS_PER_PASS, n_sums - 1]
                _add_squared_terms(totals[n_sums], terms, size, w[0], w[1], w[2], w[3])
        sums[:, first : first + size] = totals[:, :size]


@compiled
def _fill_terms(
    terms: AnyArray,
    to_landmarks: AnyArray,
    first: int,
    size: int,
    landmark: int,
    squared: bool,
    constant: float,
    row_means: AnyArray,
) -> None:
    """The terms of a pass of landmarks and a block of points; 0 past the last landmark, which adds exactly nothing."""
    for s in range(LANDMARKS_PER_PASS):
        i = landmark + s
        if i >= len(row_means):
            terms[s] = 0.0
        elif squared:
            for j in range(size):
                terms[s, j] = np.float64(to_landmarks[first + j, i]) - row_means[i]
        else:
            for j in range(size):
                length = np.float64(to_landmarks[first + j, i]) + constant
                terms[s, j] = length * abs(length) - row_means[i]


@compiled
def _add_terms(sums: AnyArray, terms: AnyArray, size: int, x0: float, x1: float, x2: float, x3: float) -> None:
    """sums[j] += x . terms[:, j], one landmark after the other; four at a time, so that a sum stays in a register."""
    for j in range(size):
        total = sums[j] + x0 * terms[0, j]
        total = total + x1 * terms[1, j]
        total = total + x2 * terms[2, j]
        sums[j] = total + x3 * terms[3, j]


@compiled
def _add_squared_terms(sums: AnyArray, terms: AnyArray, size: int, w0: float, w1: float, w2: float, w3: float) -> None:
    """sums[j] += w . terms[:, j]^2, in the same order."""
    for j in range(size):
        total = sums[j] + w0 * (terms[0, j] * terms[0, j])
        total = total + w1 * (terms[1, j] * terms[1, j])
        total = total + w2 * (terms[2, j] * terms[2, j])
        sums[j] = total + w3 * (terms[3, j] * terms[3, j])


@compiled
def add_multiple(sums: AnyArray, terms: AnyArray, x: float) -> None:
    for j in range(len(sums)):
        sums[j] += x * terms[j]


def project(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> FloatArray:
    """Coordinates (p, d) of points from their (p, m) squared dissimilarities to the landmarks; a landmark's own row
    gives its own coordinates. A row's bytes do not depend on other rows."""
    return project_moments(model, landmark_moments(model, squared_to_landmarks))


def project_moments(model: LandmarkModel, moments: Moments) -> FloatArray:
    """y = c / lam."""
    return np.asarray(moments.inner / model.eigenvalues)


class Placement(NamedTuple):
    """Coordinates (p, d) of points, and a residual (p,) that grows as a point fits the landmarks less well."""

    coordinates: FloatArray
    residual: FloatArray


class Placer(Protocol):
    """Landmarks with coordinates (m, d), and a way to place other points among them."""

    @property
    def coordinates(self) -> FloatArray: ...

    @property
    def residual_degree(self) -> int:
        """The power of a length that the residual is, which says how it scales with the dissimilarities."""
        ...

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m), not squared, to the landmarks."""
        ...


Model: TypeAlias = LandmarkModel | Placer
