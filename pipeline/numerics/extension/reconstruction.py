"""Projection and restricted reconstruction of single points, and the arc between them [T eq. 4-12, sec. 5].

Both need only d + 1 moments of a point's squared dissimilarities a_2 (p, m) to the landmarks: c = X'b (p, d), `inner`,
and beta (p,) [T eq. 6, 9]. X is centered, so c = -1/2 X'(a_2 - mean_i); the mean of mean_i is g, so beta = mean(a_2) -
g/2 = mean(a_2 - mean_i) + g/2.

Projection is y = c / lam: Gower's formula for adding a point, kernel PCA, Nystrom extension, least squares on X and
distance-based triangulation alike [T eq. 4, 7, 8; G eq. 39, 60; B eq. 11, 15]. ([G eq. 41] is printed with unsquared
distances and a scalar average.) It ignores whatever lies outside the landmarks' space; restricted reconstruction also
fits the squared length beta: min_y 2||Xy - b||^2 + w (y'y - beta)^2, with a global guarantee [T eq. 10, 12, sec. 5].
The paper has w = 1, which hardly matters with many landmarks because lam_d grows like m; w = m ("balanced") makes a
residual count once it compares with lam_d / m, the variance of the last component.

The arc is y(x) = c / (lam + x) for x from 0 to mu; as mu >= -lam_d, it has none of the singularities that the paper
expects. In the hard case (mu = -lam_d, c_d = 0) it ends with a straight piece along the last axis.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.extension.secular import solve_secular
from pipeline.numerics.mds import LandmarkModel
from pipeline.types import AnyArray, BoolArray, FloatArray

# Points per pass: their accumulators and differences stay in the first-level cache. The number does not affect the
# bytes of a result: each point's sum runs over the landmarks in order.
POINTS_PER_BLOCK = 128


class Moments(NamedTuple):
    """c = X'b (p, d) and beta (p,) of p points."""

    inner: FloatArray
    beta: FloatArray


def landmark_moments(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> Moments:
    """The moments of points given by their (p, m) squared dissimilarities to the landmarks."""
    squared = _checked(model, squared_to_landmarks)
    sums = np.zeros((model.n_components + 1, len(squared)))
    _add_squares(squared, True, 0.0, model.coordinates, model.row_means, sums)
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
    `landmark_moments` of the squares."""

    def __init__(self, model: LandmarkModel, n_points: int) -> None:
        self._model, self._n_added = model, 0
        self._sums = np.zeros((model.n_components + 1, n_points))

    def add(self, to_landmarks: AnyArray) -> None:
        """Add the dissimilarities (p, b), not squared (signed roots if the model is signed), to the next b
        landmarks."""
        landmarks = slice(self._n_added, self._n_added + to_landmarks.shape[1])
        model = self._model
        coordinates, row_means = model.coordinates[landmarks], model.row_means[landmarks]
        _add_squares(to_landmarks, False, model.constant, coordinates, row_means, self._sums)
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
    return Moments(np.ascontiguousarray(-0.5 * sums[:-1].T), sums[-1] / model.n_landmarks + model.grand_mean / 2)


def _are_usable(moments: Moments) -> bool:
    return bool(np.isfinite(moments.inner).all() and (np.abs(moments.beta) <= checks.LARGEST_SIZE).all())


def _checked(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> AnyArray:
    squared = checks.real_array("squared_to_landmarks", squared_to_landmarks, 2, allow_empty=True)
    if squared.shape[1] != model.n_landmarks:
        raise InvalidInputError(
            f"squared_to_landmarks has shape {squared.shape}; it must be (n_points, {model.n_landmarks}), a row for "
            "each point and a column for each landmark of the model."
        )
    if len(squared) and not model.signed:
        checks.require_nonnegative("squared_to_landmarks", squared)
    return squared


@compiled
def _add_squares(
    to_landmarks: AnyArray, squared: bool, constant: float, coordinates: AnyArray, row_means: AnyArray, sums: AnyArray
) -> None:
    """sums[k] += (to_landmarks^2 - row_means) @ coordinates[:, k]; the last row of sums takes 1 as its coordinate.

    Unless the dissimilarities are `squared`, the constant is added to positive ones, and squares keep the sign. Sums
    are vectorized across points, never across landmarks, which are added in order.
    """
    n_points, n_landmarks = to_landmarks.shape
    d = coordinates.shape[1]
    terms = np.empty(POINTS_PER_BLOCK)
    for first in range(0, n_points, POINTS_PER_BLOCK):
        size = min(POINTS_PER_BLOCK, n_points - first)
        for i in range(n_landmarks):
            for j in range(size):
                value = np.float64(to_landmarks[first + j, i])
                if not squared:
                    value += constant if value > 0.0 else 0.0
                    value *= abs(value)
                terms[j] = value - row_means[i]
            for k in range(d):
                _add_term(sums[k, first : first + size], terms, coordinates[i, k])
            _add_term(sums[d, first : first + size], terms, 1.0)


@compiled
def _add_term(sums: AnyArray, terms: AnyArray, x: float) -> None:
    for j in range(len(sums)):
        sums[j] += x * terms[j]


def project(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> FloatArray:
    """Coordinates (p, d) of points from their (p, m) squared dissimilarities to the landmarks; a landmark's own row
    gives its own coordinates. A row's bytes do not depend on other rows."""
    return project_moments(model, landmark_moments(model, squared_to_landmarks))


def project_moments(model: LandmarkModel, moments: Moments) -> FloatArray:
    """y = c / lam."""
    return np.asarray(moments.inner / model.eigenvalues)


DiagonalWeight = float | Literal["balanced"]


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Global minimizers: coordinates (p, d); multipliers (p,), the mu of (diag(lam) + mu I) y = c; objective (p,)
    without the constant 2||b||^2; ambiguous (p,), True where a distant minimizer is equally good up to rounding."""

    coordinates: FloatArray
    multipliers: FloatArray
    objective: FloatArray
    ambiguous: BoolArray


def restricted_reconstruction(
    model: LandmarkModel, squared_to_landmarks: ArrayLike, diagonal_weight: DiagonalWeight = 1.0
) -> Reconstruction:
    """The best positions of points given their (p, m) squared dissimilarities to the fixed landmarks.

    Of equally good positions the one with a positive last coordinate is returned and flagged as ambiguous.
    """
    weight = resolved_weight(model, diagonal_weight)
    return reconstruct_moments(model, landmark_moments(model, squared_to_landmarks), weight)


def reconstruct_moments(model: LandmarkModel, moments: Moments, weight: float) -> Reconstruction:
    """Restricted reconstruction from moments."""
    coordinates, multipliers, ambiguous = solve_secular(model.eigenvalues, moments.inner, moments.beta, weight)
    return Reconstruction(
        coordinates=coordinates,
        multipliers=multipliers,
        objective=_objective(model, moments, weight, coordinates),
        ambiguous=ambiguous,
    )


def resolved_weight(model: LandmarkModel, diagonal_weight: DiagonalWeight) -> float:
    """The number w that `diagonal_weight` stands for."""
    check_weight(diagonal_weight)
    return float(model.n_landmarks) if diagonal_weight == "balanced" else float(diagonal_weight)


def check_weight(diagonal_weight: object) -> None:
    """Refuse a weight that is neither "balanced" nor a number within range."""
    if isinstance(diagonal_weight, str):
        checks.one_of("diagonal_weight", diagonal_weight, ("balanced",))
    else:
        checks.require_parameter("diagonal_weight", diagonal_weight)


def _objective(model: LandmarkModel, moments: Moments, weight: float, coordinates: FloatArray) -> FloatArray:
    """2 (y' diag(lam) y - 2 c'y) + w (y'y - beta)^2, summed in a fixed order for every row."""
    linear = np.zeros(len(coordinates))
    length = np.zeros(len(coordinates))
    for k, lam in enumerate(model.eigenvalues):
        y, c = coordinates[:, k], moments.inner[:, k]
        linear += y * (lam * y - 2 * c)
        length += y * y
    return np.asarray(2 * linear + weight * (length - moments.beta) ** 2)


# Positions at which the curve's length is measured, evenly spaced in the logarithm of the smallest denominator: from
# one to the next y grows by at most a fixed factor, however close the pole is.
LENGTH_SAMPLES = 16384


def reconstruction_arc(
    model: LandmarkModel, squared_to_landmarks: ArrayLike, n_steps: int, diagonal_weight: DiagonalWeight = 1.0
) -> FloatArray:
    """Positions (n_steps, d), evenly spaced by length from the projection to the restricted reconstruction of one
    point, given by its (m,) squared dissimilarities."""
    steps = checks.integer_in_range("n_steps", n_steps, 2, None, "both ends of the arc are given")
    squared = checks.real_array("squared_to_landmarks", squared_to_landmarks, 1)
    weight = resolved_weight(model, diagonal_weight)
    return arc_of_moments(model, landmark_moments(model, squared[None]), steps, weight)


def arc_of_moments(model: LandmarkModel, moments: Moments, steps: int, weight: float) -> FloatArray:
    """The arc of one point from its moments."""
    end = reconstruct_moments(model, moments, weight).coordinates[0]
    arc = _evenly_spaced(model.eigenvalues, moments.inner[0], end, steps)
    arc[0], arc[-1] = project_moments(model, moments)[0], end
    return arc


def _evenly_spaced(lam: FloatArray, c: FloatArray, end: FloatArray, n_steps: int) -> FloatArray:
    """Positions at equal distances along the curve and the straight piece after it."""
    parameters = np.linspace(0.0, 1.0, LENGTH_SAMPLES)
    curve = _curve(lam, c, end, parameters)
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))])
    straight = end - curve[-1]
    straight_length = float(np.linalg.norm(straight))
    wanted = np.linspace(0.0, lengths[-1] + straight_length, n_steps)
    positions = _curve(lam, c, end, np.interp(wanted, lengths, parameters))
    beyond = np.maximum(wanted - lengths[-1], 0.0)[:, None]
    return np.asarray(positions + straight * (beyond / max(straight_length, np.finfo(np.float64).tiny)))


def _curve(lam: FloatArray, c: FloatArray, end: FloatArray, parameters: FloatArray) -> FloatArray:
    """c / (lam + x), x = 0 at parameter 0 and mu at parameter 1."""
    # A coordinate follows the curve only if its own equation determines it; the free part of the hard case does not.
    active = (c != 0) & (np.sign(c) == np.sign(end))
    curve = np.zeros((len(parameters), len(c)))
    if active.any():
        nearest = np.flatnonzero(active)[-1]
        # The last denominator comes from y = c / (lam + mu), which keeps the digits that computing lam + mu cancels.
        denominators = lam[nearest] * (c[nearest] / end[nearest] / lam[nearest]) ** parameters
        curve[:, active] = c[active] / (lam[active] - lam[nearest] + denominators[:, None])
    return curve
