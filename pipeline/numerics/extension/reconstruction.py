"""Restricted reconstruction of single points, the arc that leads there from the projection, and of k points together.

Restricted reconstruction also fits the squared length beta, which projection ignores: min_y 2||Xy - b||^2 + w (y'y -
beta)^2, with a global guarantee [T eq. 10, 12, sec. 5]. The paper has w = 1, which hardly matters with many landmarks
because lam_d grows like m; w = m ("balanced") makes a residual count once it compares with lam_d / m, the variance of
the last component.

The arc is y(x) = c / (lam + x) for x from 0 to mu; as mu >= -lam_d, it has none of the singularities that the paper
expects. In the hard case (mu = -lam_d, c_d = 0) it ends with a straight piece along the last axis.

For k points together [T sec. 6] minimize over Y (k, d): 2||XY' - b||_F^2 + ||YY' - beta||_F^2 with beta (k, k), `gram`,
from the squared dissimilarities between the new points, beta_ij = -1/2 (alpha2_ij - mean(a2_i) - mean(a2_j) + g), and C
(k, d) = b'X, `inner`. Nothing certifies a global minimum: the result is the best of several descents, in which single
points also move globally, and is never worse than reconstructing the points one by one. The Hessian is only applied,
never formed, so memory is k^2 rather than (k d)^2.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.extension.secular import AMBIGUITY_TOLERANCE, solve_secular
from pipeline.numerics.mds import LandmarkModel, Moments, landmark_moments, project_moments
from pipeline.types import BoolArray, FloatArray

DiagonalWeight = float | Literal["balanced"]


# Positions at which an arc's length is measured, evenly spaced in the logarithm of the smallest denominator: from one
# to the next y grows by at most a fixed factor, however close the pole is.
LENGTH_SAMPLES = 16384
MAX_SETTLING_ROUNDS = 20


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
    """The best positions of points given their (p, m) squared dissimilarities to the fixed landmarks. Of equally good
    positions the one with a positive last coordinate is returned and flagged as ambiguous."""
    weight = resolved_weight(model, diagonal_weight)
    return reconstruct_moments(model, landmark_moments(model, squared_to_landmarks), weight)


def reconstruct_moments(model: LandmarkModel, moments: Moments, weight: float) -> Reconstruction:
    """Restricted reconstruction from moments."""
    coordinates, multipliers, ambiguous = solve_secular(model.eigenvalues, moments.inner, moments.beta, weight)
    return Reconstruction(coordinates, multipliers, _objective(model, moments, weight, coordinates), ambiguous)


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


def joint_restricted_reconstruction(
    model: LandmarkModel, squared_to_landmarks: ArrayLike, squared_between: ArrayLike
) -> Reconstruction:
    """Positions of k points that also fit the (k, k) squared dissimilarities between them.

    `objective` holds each point's share (the rows of the Frobenius norms), whose sum is the joint objective without the
    constant 2||b||^2; `multipliers` are y'y - beta; `ambiguous` marks points that a reflection moves without changing
    the joint objective.
    """
    between = checks.squared_dissimilarity_matrix("squared_between", squared_between)
    moments = landmark_moments(model, squared_to_landmarks)
    if len(between) != len(moments.beta):
        raise InvalidInputError(
            f"squared_between has shape {between.shape}; it must be ({len(moments.beta)}, {len(moments.beta)}), a row "
            "and a column for each row of squared_to_landmarks."
        )
    return reconstruct_moments_jointly(model, moments, between)


def reconstruct_moments_jointly(model: LandmarkModel, moments: Moments, between: FloatArray) -> Reconstruction:
    """Joint reconstruction of k points from their moments and their (k, k) squared dissimilarities."""
    # In units of lam_1 every number of a well-posed problem is near 1, so one tolerance fits all.
    unit = float(np.sqrt(model.eigenvalues[0]))
    # As mean(a2_i) = beta_i + g/2, the constants cancel, and the diagonal is beta itself.
    gram = (moments.beta[:, None] + moments.beta - between) / 2
    problem = _JointProblem(model.eigenvalues / unit**2, moments.inner / unit**3, gram / unit**2)
    single = reconstruct_moments(model, moments, 1.0)
    starts = [
        single.coordinates / unit,
        _with_consistent_signs(single.coordinates / unit, single.ambiguous, problem.gram),
        project_moments(model, moments) / unit,
        _best_factor(problem.gram, problem.inner),
    ]
    best = min((problem.settle(start) for start in starts), key=problem.objective)
    ambiguous = single.ambiguous & _reflection_is_as_good(problem, best, single.ambiguous)
    return Reconstruction(
        coordinates=best * unit,
        multipliers=((best * best).sum(axis=1) - problem.gram.diagonal()) * unit**2,
        objective=problem.shares(best) * unit**4,
        ambiguous=ambiguous,
    )


@dataclass(frozen=True, eq=False)
class _JointProblem:
    """The joint objective, its gradient and its descent, in any consistent units."""

    eigenvalues: FloatArray
    inner: FloatArray
    gram: FloatArray

    def shares(self, Y: FloatArray) -> FloatArray:
        misfit = Y @ Y.T - self.gram
        linear = 2 * (Y * (self.eigenvalues * Y - 2 * self.inner)).sum(axis=1)
        return np.asarray(linear + (misfit * misfit).sum(axis=1))

    def objective(self, Y: FloatArray) -> float:
        return float(self.shares(Y).sum())

    def gradient(self, Y: FloatArray) -> FloatArray:
        return np.asarray(4 * (Y * self.eigenvalues - self.inner) + 4 * (Y @ Y.T - self.gram) @ Y)

    def curvature(self, Y: FloatArray, V: FloatArray) -> FloatArray:
        """The Hessian at Y applied to the direction V."""
        mixed = V @ Y.T
        return np.asarray(4 * V * self.eigenvalues + 4 * (mixed + mixed.T) @ Y + 4 * (Y @ Y.T - self.gram) @ V)

    def descend(self, start: FloatArray) -> FloatArray:
        """The end of a trust-region Newton descent from `start`, or `start` itself if that is not higher."""
        shape = start.shape
        tolerance = 1e-13 * (1 + float(np.abs(self.gram).max())) ** 1.5
        result = scipy.optimize.minimize(  # type: ignore[call-overload]
            lambda y: self.objective(y.reshape(shape)),
            start.ravel(),
            jac=lambda y: self.gradient(y.reshape(shape)).ravel(),
            hessp=lambda y, v: self.curvature(y.reshape(shape), v.reshape(shape)).ravel(),
            method="trust-ncg",
            options={"maxiter": 500, "gtol": tolerance},
        )
        end = self.polish(np.asarray(result.x).reshape(shape))
        return end if self.objective(end) < self.objective(start) else start

    def settle(self, start: FloatArray) -> FloatArray:
        """Alternate descents and global moves of single points until neither lowers the objective."""
        Y = self.descend(start)
        for _ in range(MAX_SETTLING_ROUNDS):
            moved = self.descend(self.move_points(Y))
            if not self.objective(moved) < self.objective(Y):
                break
            Y = moved
        return Y

    def move_points(self, Y: FloatArray) -> FloatArray:
        """Move each point in turn to the global minimum of the joint objective with the others fixed.

        The others act as further landmarks: 2||Xy - b||^2 + 2||Y_others y - beta_others||^2 + (y'y - beta)^2 is a
        restricted reconstruction once diag(lam) + Y_others' Y_others is diagonalized.
        """
        Y = Y.copy()
        for i in range(len(Y)):
            others = np.delete(Y, i, axis=0)
            to_others = np.delete(self.gram[i], i)
            lam, axes = np.linalg.eigh(np.diag(self.eigenvalues) + others.T @ others)
            lam, axes = lam[::-1].copy(), axes[:, ::-1]
            inner = (self.inner[i] + to_others @ others) @ axes
            y, _, _ = solve_secular(lam, inner[None], self.gram[i, i, None], 1.0)
            Y[i] = axes @ y[0]
        return Y

    def polish(self, Y: FloatArray) -> FloatArray:
        """Newton steps while the gradient falls: near a minimum it resolves differences that the objective cannot."""
        for _ in range(5):
            moved = Y + self.newton_step(Y)
            if not np.linalg.norm(self.gradient(moved)) < np.linalg.norm(self.gradient(Y)):
                return Y
            Y = moved
        return Y

    def newton_step(self, Y: FloatArray) -> FloatArray:
        hessian = scipy.sparse.linalg.LinearOperator(
            (Y.size, Y.size), dtype=np.float64, matvec=lambda v: self.curvature(Y, v.reshape(Y.shape)).ravel()
        )
        step, _ = scipy.sparse.linalg.minres(hessian, -self.gradient(Y).ravel(), rtol=1e-12)
        return np.asarray(step).reshape(Y.shape)


def _best_factor(gram: FloatArray, inner: FloatArray) -> FloatArray:
    """The configuration (k, d) nearest to the Gram matrix, rotated to agree with C: right if its term dominates."""
    k, d = inner.shape
    eigenvalues, vectors = np.linalg.eigh(gram)
    top = min(k, d)
    factor = np.zeros((k, d))
    factor[:, :top] = vectors[:, ::-1][:, :top] * np.sqrt(np.maximum(eigenvalues[::-1][:top], 0.0))
    left, _, right = np.linalg.svd(factor.T @ inner)
    return np.asarray(factor @ left @ right)


def _with_consistent_signs(Y: FloatArray, ambiguous: BoolArray, gram: FloatArray) -> FloatArray:
    """`Y` with the last coordinate of ambiguous points flipped where that agrees better with the Gram matrix."""
    signed = Y.copy()
    for i in np.flatnonzero(ambiguous):
        placed = signed[:i]
        flipped = signed[i].copy()
        flipped[-1] *= -1
        as_is, turned = (((placed @ y - gram[i, :i]) ** 2).sum() for y in (signed[i], flipped))
        if turned < as_is:
            signed[i] = flipped
    return signed


def _reflection_is_as_good(problem: _JointProblem, Y: FloatArray, chosen: BoolArray) -> bool:
    """Whether flipping the last coordinate of all `chosen` points leaves the objective unchanged up to rounding."""
    reflected = Y.copy()
    reflected[chosen, -1] *= -1
    scale = np.abs(problem.gram).max() ** 2 + problem.eigenvalues[0] ** 2
    return bool(problem.objective(reflected) - problem.objective(Y) <= AMBIGUITY_TOLERANCE * scale)
