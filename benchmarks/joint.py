"""Is joint reconstruction right, is its certificate, and how long does a block take? Figures of docs/extension.md.

Joint minima against the best of 25 quasi-Newton descents from random starts: for 60 problems with 4 landmarks and 3 far
points, where local minima abound, and for 10,000 small problems of many kinds, among which the certified ones must have
no counterexample. Then the time of blocks. Run with `python -m benchmarks.joint [PROBLEMS]`.
"""

import sys
import time
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import Reconstruction, joint_restricted_reconstruction
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.types import FloatArray

N_PROBLEMS, N_STARTS, COUNTEREXAMPLE = 10_000, 25, 1e-9


class Problem(NamedTuple):
    """New points given to a model by squared dissimilarities (k, m) and (k, k), and the weight of their lengths."""

    model: LandmarkModel
    to_landmarks: FloatArray
    between: FloatArray
    weight: float

    def answer(self) -> Reconstruction:
        return joint_restricted_reconstruction(self.model, self.to_landmarks, self.between, self.weight)

    @property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """C (k, d) and beta (k, k) as [T sec. 6] defines them, by dense algebra."""
        model, rows = self.model, self.to_landmarks
        means = rows.mean(axis=1)
        b = -0.5 * (rows - means[:, None] - model.row_means + model.grand_mean)
        return b @ model.coordinates, -0.5 * (self.between - means[:, None] - means + model.grand_mean)

    @property
    def scale(self) -> float:
        """The size of the objective."""
        inner, gram = self.moments
        return float(self.weight * (gram**2).sum() + 2 * (inner**2 / self.model.eigenvalues).sum())

    def best_of_random_starts(self, n_starts: int = N_STARTS, seed: int = 0) -> float:
        """The least objective, without the constant 2||b||^2, of descents that know nothing of the problem."""
        (inner, gram), lam, w = self.moments, self.model.eigenvalues, self.weight
        shape, size, scale = inner.shape, np.sqrt(np.abs(gram).max()), self.scale

        def objective(y: FloatArray) -> tuple[float, FloatArray]:
            Y = size * y.reshape(shape)
            misfit = Y @ Y.T - gram
            value = 2 * (Y * (lam * Y - 2 * inner)).sum() + w * (misfit**2).sum()
            return value / scale, size / scale * 4 * (Y * lam - inner + w * misfit @ Y).ravel()

        starts = np.random.default_rng(seed).normal(size=(n_starts, inner.size))
        limits = {"gtol": 1e-12, "ftol": 1e-16, "maxiter": 2000}
        ends = (
            minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)  # type: ignore[call-overload]
            for start in starts
        )
        return float(scale * min(end.fun for end in ends))


def far_problem(seed: int) -> Problem:
    """4 landmarks near a plane and 3 points far from it."""
    points = np.random.default_rng(seed).normal(size=(7, 5))
    points[:4, 2:] *= 0.1
    points[4:] *= 5
    points[4:, :2] = 0
    squared = cdist(points, points, "sqeuclidean")
    return Problem(classical_mds(squared[:4, :4], 2), squared[4:, :4], squared[4:, 4:], 1.0)


def small_problem(seed: int) -> Problem | None:
    """A few landmarks and points, near the landmarks' space or far from it, Euclidean or not; None if there is none."""
    rng = np.random.default_rng([seed, 1])
    m, k = int(rng.integers(3, 13)), int(rng.integers(1, 6))
    d = int(rng.integers(1, min(4, m)))
    points = rng.normal(size=(m + k, d + int(rng.integers(0, 4))))
    points[:m, d:] *= rng.choice([0.1, 1])
    points[m:, d:] *= rng.choice([0.3, 1, 3, 6])
    squared = cdist(points, points, "sqeuclidean") ** rng.choice([1, 1, 0.7])
    try:
        model = classical_mds(squared[:m, :m], d)
    except InvalidInputError:
        return None
    return Problem(model, squared[m:, :m], squared[m:, m:], float(rng.choice([0.1, 1, m])))


def missed(problem: Problem, answer: Reconstruction, seed: int) -> bool:
    """Whether random starts find something better."""
    best = problem.best_of_random_starts(seed=seed)
    return best < float(answer.objective.sum()) - COUNTEREXAMPLE * problem.scale


def block_problem(m: int, k: int, d: int, far: float) -> Problem:
    """m landmarks and k points in 12 dimensions, the points `far` times as spread."""
    points = np.random.default_rng([m, k, d]).normal(size=(m + k, 12)) * np.geomspace(3, 0.3, 12)
    points[m:] *= far
    squared = cdist(points, points, "sqeuclidean")
    return Problem(classical_mds(squared[:m, :m], d), squared[m:, :m], squared[m:, m:], 1.0)


def main() -> None:
    n_problems = int(sys.argv[1]) if len(sys.argv) > 1 else N_PROBLEMS
    found = [not missed(far_problem(seed), far_problem(seed).answer(), seed) for seed in range(60)]
    print(f"60 far problems: {sum(found)} reach the best of {N_STARTS} random starts.")
    n_certified = n_others = n_wrong = n_missed = 0
    for seed in range(n_problems):
        problem = small_problem(seed)
        if problem is None:
            continue
        answer = problem.answer()
        is_missed = missed(problem, answer, seed)
        if answer.certified.all():
            n_certified, n_wrong = n_certified + 1, n_wrong + is_missed
        else:
            n_others, n_missed = n_others + 1, n_missed + is_missed
    print(f"{n_certified:,} small problems certified, {n_wrong} of them with a counterexample.")
    print(f"{n_others:,} not certified, {n_missed} of them missed the best of {N_STARTS} random starts.")
    print("| landmarks | points | seconds | certified, w = 1 | twice as far | 4 times as far | balanced |")
    print("|---|---|---|---|---|---|---|")
    for m in (8, 50, 200, 1000):
        for k in (3, 16, 128):
            print(f"| {m:,} | {k} | {' | '.join(_row(m, k))} |")


def _row(m: int, k: int) -> list[str]:
    """How long a block takes, and whether it is certified, also farther out and with the balanced weight."""
    near = block_problem(m, k, 2, 1)
    began = time.perf_counter()
    answers = [near.answer()]
    seconds = time.perf_counter() - began
    answers += [block_problem(m, k, 2, far).answer() for far in (2, 4)]
    answers.append(near._replace(weight=float(m)).answer())
    return [f"{seconds:.3f}", *("yes" if answer.certified.all() else "no" for answer in answers)]


if __name__ == "__main__":
    main()
