"""Restricted reconstruction of k points together [T sec. 6].

Minimize over Y (k, d): 2||XY' - b||_F^2 + ||YY' - beta||_F^2 with beta (k, k), `gram`, from the squared dissimilarities
between the new points, beta_ij = -1/2 (alpha2_ij - mean(a2_i) - mean(a2_j) + g), and C (k, d) = b'X, `inner`. Unlike
for a single point, nothing certifies a global minimum: the result is the best of several descents, in which single
points also move globally, and is never worse than reconstructing the points one by one. The Hessian is only applied,
never formed, so memory is k^2 rather than (k d)^2.
"""

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.extension.reconstruction import (
    Moments,
    Reconstruction,
    landmark_moments,
    project_moments,
    reconstruct_moments,
)
from pipeline.numerics.extension.secular import AMBIGUITY_TOLERANCE, solve_secular
from pipeline.numerics.mds import LandmarkModel
from pipeline.types import BoolArray, FloatArray

MAX_SETTLING_ROUNDS = 20


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


class _JointProblem:
    """The joint objective, its gradient and its descent, in any consistent units."""

    def __init__(self, eigenvalues: FloatArray, inner: FloatArray, gram: FloatArray) -> None:
        self.eigenvalues = eigenvalues
        self.inner = inner
        self.gram = gram

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
        from scipy.optimize import minimize  # slow to import

        result = minimize(  # type: ignore[call-overload]
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
        """Newton steps while the gradient falls: near a minimum it still resolves differences that the objective
        cannot."""
        for _ in range(5):
            moved = Y + self.newton_step(Y)
            if not np.linalg.norm(self.gradient(moved)) < np.linalg.norm(self.gradient(Y)):
                return Y
            Y = moved
        return Y

    def newton_step(self, Y: FloatArray) -> FloatArray:
        from scipy.sparse.linalg import LinearOperator, minres

        hessian = LinearOperator(
            (Y.size, Y.size), dtype=np.float64, matvec=lambda v: self.curvature(Y, v.reshape(Y.shape)).ravel()
        )
        step, _ = minres(hessian, -self.gradient(Y).ravel(), rtol=1e-12)
        return np.asarray(step).reshape(Y.shape)


def _best_factor(gram: FloatArray, inner: FloatArray) -> FloatArray:
    """The (k, d) configuration nearest to the Gram matrix, rotated to agree with C: the right start when its term
    dominates."""
    k, d = inner.shape
    eigenvalues, vectors = np.linalg.eigh(gram)
    top = min(k, d)
    factor = np.zeros((k, d))
    factor[:, :top] = vectors[:, ::-1][:, :top] * np.sqrt(np.maximum(eigenvalues[::-1][:top], 0.0))
    left, _, right = np.linalg.svd(factor.T @ inner)
    return np.asarray(factor @ left @ right)


def _with_consistent_signs(Y: FloatArray, ambiguous: BoolArray, gram: FloatArray) -> FloatArray:
    """`Y` with the last coordinate of ambiguous points flipped, one by one, where that agrees better with the Gram
    matrix."""
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
    """Whether flipping the last coordinate of all `chosen` points leaves the joint objective unchanged up to
    rounding."""
    reflected = Y.copy()
    reflected[chosen, -1] *= -1
    scale = np.abs(problem.gram).max() ** 2 + problem.eigenvalues[0] ** 2
    return bool(problem.objective(reflected) - problem.objective(Y) <= AMBIGUITY_TOLERANCE * scale)
