"""Restricted reconstruction of k points together, and a proof that its minimum is global [T sec. 6].

Minimize over Y (k, d)

    F(Y) = 2||XY' - b||_F^2 + w ||YY' - beta||_F^2

with C (k, d) = b'X, `inner`, and beta (k, k), `gram`, from the squared dissimilarities alpha2 between the new points:
beta_ij = -1/2 (alpha2_ij - mean(a2_i) - mean(a2_j) + g). A constant that was added to dissimilarities is added to those
between new points too, also to one of zero.

In units of sqrt(lam_1 / w) for lengths, F is lam_1^2 / w times the same with lam / lam_1 for lam and without w. Then
every number of a well-posed problem is near 1, and one tolerance fits all.

The certificate: with S = YY' - beta and R = Y diag(lam) + SY - C, a quarter of the gradient, for any Z = Y + E

    F(Z) - F(Y) = 4 <R, E> + 2 sum_l e_l'(lam_l I + S) e_l + ||ZZ' - YY'||_F^2,

e_l the columns of E. So with mu = lam_d + lambda_min(S) > 0 nothing is better than Y by more than 2||R||^2 / mu. If mu
is 0 up to rounding, as in the hard case, what is better than Y lies within a known distance, which bounds the gain as
well. The condition is sufficient, not necessary. A single point always meets it; several do where lam_d, which grows
like m, exceeds w times what their inner products have outside d dimensions, which grows like k. Two copies of a point
coincide at every stationary Y.

Where it is not met, F may have several minima, and the result is the best of many descents, in which single points
also move globally: never worse than the points one by one. The Hessian is only applied, never formed, so memory is k^2
rather than (k d)^2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.extension.reconstruction import (
    DiagonalWeight,
    Reconstruction,
    reconstruct_moments,
    resolved_weight,
)
from pipeline.numerics.extension.secular import AMBIGUITY_TOLERANCE, solve_secular
from pipeline.numerics.mds import LandmarkModel, Moments, landmark_moments, project_moments, with_constant
from pipeline.types import AnyArray, BoolArray, FloatArray

MAX_SETTLING_ROUNDS = 20
# Starts at random where the minimum is not certified, of at most so many points together, and how far each descends
# before the best goes on.
RANDOM_STARTS, RANDOM_POINTS, ROUGHLY = 24, 1536, 1e-6
# Certified if nothing can be better by more than this share of the objective's scale.
CERTIFIED_GAP = 1e-9


def joint_restricted_reconstruction(
    model: LandmarkModel,
    squared_to_landmarks: ArrayLike,
    squared_between: ArrayLike,
    diagonal_weight: DiagonalWeight = 1.0,
) -> Reconstruction:
    """Positions of k points that also fit the (k, k) squared dissimilarities between them, given without the model's
    constant like those to the landmarks.

    `objective` holds each point's share (the rows of the Frobenius norms), whose sum is the joint objective without the
    constant 2||b||^2; `multipliers` are w (y'y - beta); `ambiguous` marks points that a reflection moves without
    changing the joint objective; `certified` is the same for all.
    """
    between = checks.squared_dissimilarity_matrix("squared_between", squared_between, model.signed)
    moments = landmark_moments(model, squared_to_landmarks)
    if len(between) != len(moments.beta):
        raise InvalidInputError(
            f"squared_between has shape {between.shape}; it must be ({len(moments.beta)}, {len(moments.beta)}), a row "
            "and a column for each row of squared_to_landmarks."
        )
    return reconstruct_moments_jointly(model, moments, between, resolved_weight(model, diagonal_weight))


def reconstruct_moments_jointly(
    model: LandmarkModel, moments: Moments, squared_between: AnyArray, weight: float
) -> Reconstruction:
    """Joint reconstruction of k points from their moments and their (k, k) squared dissimilarities."""
    unit = float(np.sqrt(model.eigenvalues[0] / weight))
    lam_1, gram = float(model.eigenvalues[0]), gram_matrix(model, moments, squared_between)
    problem = JointProblem(model.eigenvalues / lam_1, moments.inner / (lam_1 * unit), gram / unit**2)
    single = reconstruct_moments(model, moments, weight)
    alone, projected = single.coordinates / unit, project_moments(model, moments) / unit
    best, certified = problem.solved(alone, single.ambiguous, projected)
    ambiguous = single.ambiguous & _reflection_is_as_good(problem, best, single.ambiguous)
    return Reconstruction(
        coordinates=best * unit,
        multipliers=((best * best).sum(axis=1) - problem.gram.diagonal()) * lam_1,
        objective=problem.shares(best) * (lam_1**2 / weight),
        ambiguous=ambiguous,
        certified=np.full(len(best), certified),
    )


def gram_matrix(model: LandmarkModel, moments: Moments, squared_between: AnyArray) -> FloatArray:
    """beta (k, k), whose diagonal is that of the moments."""
    if model.constant:
        squared_between = with_constant(np.sqrt(squared_between), model.constant) ** 2
    # As mean(a2_i) = beta_i + g/2, the constants cancel.
    return np.asarray((moments.beta[:, None] + moments.beta - squared_between) / 2)


@dataclass(frozen=True, eq=False)
class JointProblem:
    """The joint objective for w = 1, its descents and its certificate, in any consistent units."""

    eigenvalues: FloatArray
    inner: FloatArray
    gram: FloatArray

    def solved(self, alone: FloatArray, ambiguous: BoolArray, projected: FloatArray) -> tuple[FloatArray, bool]:
        """The best configuration found and whether it is certified, from the points reconstructed one by one, which of
        them are ambiguous, and their projections."""
        best = self.settle(_with_consistent_signs(alone, ambiguous, self.gram))
        if self.is_certified(best):
            return best, True
        others = [alone, projected, _best_factor(self.gram, self.inner), *self._random_starts()]
        other = min((self.descend_roughly(start) for start in others), key=self.objective)
        if self.objective(other) < self.objective(best):
            best = min(best, self.settle(other), key=self.objective)
        return best, self.is_certified(best)

    def _random_starts(self) -> Iterator[FloatArray]:
        generator, size = np.random.default_rng(0), np.sqrt(np.abs(self.gram).max())
        n_starts = min(RANDOM_STARTS, max(1, RANDOM_POINTS // len(self.inner)))
        return (size * generator.normal(size=self.inner.shape) for _ in range(n_starts))

    def shares(self, Y: FloatArray) -> FloatArray:
        misfit = Y @ Y.T - self.gram
        linear = 2 * (Y * (self.eigenvalues * Y - 2 * self.inner)).sum(axis=1)
        return np.asarray(linear + (misfit * misfit).sum(axis=1))

    def objective(self, Y: FloatArray) -> float:
        return float(self.shares(Y).sum())

    def residue(self, Y: FloatArray) -> FloatArray:
        """R, a quarter of the gradient."""
        return np.asarray(Y * self.eigenvalues - self.inner + (Y @ Y.T - self.gram) @ Y)

    def curvature(self, Y: FloatArray, V: FloatArray) -> FloatArray:
        """A quarter of the Hessian at Y applied to the direction V."""
        mixed = V @ Y.T
        return np.asarray(V * self.eigenvalues + (mixed + mixed.T) @ Y + (Y @ Y.T - self.gram) @ V)

    def is_certified(self, Y: FloatArray) -> bool:
        """Whether nothing can be better than Y by more than a negligible share of the objective's scale."""
        # The objective at 0, and what the first term can gain.
        scale = (self.gram**2).sum() + 2 * (self.inner**2 / self.eigenvalues).sum()
        return bool(self.largest_gain(Y) <= CERTIFIED_GAP * scale)

    def largest_gain(self, Y: FloatArray) -> float:
        """An upper bound of F(Y) - F(Z) over all Z, rounding included."""
        square = Y @ Y.T
        lowest, R = float(np.linalg.eigvalsh(square - self.gram)[0]), float(np.linalg.norm(self.residue(Y)))
        sizes = self.eigenvalues[0] + np.linalg.norm(square) + np.linalg.norm(self.gram)
        mu = float(self.eigenvalues[-1] + lowest - len(Y) * np.finfo(np.float64).eps * sizes)
        # 4 R t - 2 mu t^2, at its largest over distances t up to the reach of what is better than Y.
        reach = self._largest_norm(Y) + float(np.linalg.norm(Y))
        distance = R / mu if mu * reach > R else reach
        return 4 * R * distance - 2 * mu * distance**2

    def _largest_norm(self, Y: FloatArray) -> float:
        """An upper bound of ||Z||, given F(Z) <= F(Y): as F(Z) >= 2 lam_d ||Z||^2 - 4 ||C|| ||Z||."""
        lam, C = float(self.eigenvalues[-1]), float(np.linalg.norm(self.inner))
        return (C + float(np.sqrt(max(C**2 + lam * self.objective(Y) / 2, 0.0)))) / lam

    def settle(self, start: FloatArray) -> FloatArray:
        """Alternate descents and global moves of single points until neither lowers the objective."""
        Y = self.descend(start)
        for _ in range(MAX_SETTLING_ROUNDS):
            moved = self.descend(self.move_points(Y))
            if not self.objective(moved) < self.objective(Y):
                break
            Y = moved
        return Y

    def descend(self, start: FloatArray) -> FloatArray:
        """The end of a trust-region Newton descent from `start`, or `start` itself if that is not higher."""
        shape = start.shape
        result = scipy.optimize.minimize(  # type: ignore[call-overload]
            lambda y: self.objective(y.reshape(shape)) / 4,
            start.ravel(),
            jac=lambda y: self.residue(y.reshape(shape)).ravel(),
            hessp=lambda y, v: self.curvature(y.reshape(shape), v.reshape(shape)).ravel(),
            method="trust-ncg",
            options={"maxiter": 500, "gtol": 1e-13 * self._size},
        )
        end = self.polish(np.asarray(result.x).reshape(shape))
        return end if self.objective(end) < self.objective(start) else start

    def descend_roughly(self, start: FloatArray) -> FloatArray:
        """Near the end of a quasi-Newton descent from `start`: near enough to tell a better one from others."""
        shape = start.shape
        result = scipy.optimize.minimize(  # type: ignore[call-overload]
            lambda y: (self.objective(y.reshape(shape)) / 4, self.residue(y.reshape(shape)).ravel()),
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 500, "gtol": ROUGHLY * self._size, "ftol": ROUGHLY**2},
        )
        return np.asarray(result.x).reshape(shape)

    @property
    def _size(self) -> float:
        """The size of the terms of R."""
        length = max(float(np.sqrt(np.abs(self.gram).max())), float(np.abs(self.inner).max()))
        return length * (1 + length**2)

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
            if not np.linalg.norm(self.residue(moved)) < np.linalg.norm(self.residue(Y)):
                return Y
            Y = moved
        return Y

    def newton_step(self, Y: FloatArray) -> FloatArray:
        hessian = scipy.sparse.linalg.LinearOperator(
            (Y.size, Y.size), dtype=np.float64, matvec=lambda v: self.curvature(Y, v.reshape(Y.shape)).ravel()
        )
        step, _ = scipy.sparse.linalg.minres(hessian, -self.residue(Y).ravel(), rtol=1e-12)
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


def _reflection_is_as_good(problem: JointProblem, Y: FloatArray, chosen: BoolArray) -> bool:
    """Whether flipping the last coordinate of all `chosen` points leaves the objective unchanged up to rounding."""
    reflected = Y.copy()
    reflected[chosen, -1] *= -1
    scale = np.abs(problem.gram).max() ** 2 + problem.eigenvalues[0] ** 2
    return bool(problem.objective(reflected) - problem.objective(Y) <= AMBIGUITY_TOLERANCE * scale)
