"""A subset of objects whose distances predict those to the others, by kernel semi-least squares [E].

A Hilbertian distance d belongs to a kernel k(q, q') = g(q) - d^2(q, q')/2 + g(q') [E eq. 3]. Where evaluating d is
slow, a new object q is compared only with the m members of a subset R, and its distances to all n members of Q are

    d_hat^2(q, q_i) = k(q, q) - 2 beta' K_i + K_ii,   beta = pinv(K_RQ) k_R(q)   [E eq. 13-15],

clipped at 0, and exact for members of R. ([E eq. 30] equates the pseudo-inverse with a product of inverses, which is
Nystrom's approximation instead.) K beta = W' k_R(q) with W = pinv(K_RQ)' K (`weights`, (m, n)) is, member by member,
the least-squares prediction of k(q, q_i) from k_R(q), trained on the members; Nystrom's W = pinv(K_RR) K_RQ projects q
onto the span of R and ignores how Q is distributed.

g is free. `gram_matrix` takes g(q) = d^2(q, q0)/2 for a member q0: inner products of differences from q0, positive
semidefinite for every Hilbertian d. With q0 in R an object still costs m evaluations. A constant g [E sec. 10] is
positive semidefinite only for objects on a sphere, such as binary codes with d^2 the Hamming distance.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray, IntArray

EPSILON = float(np.finfo(np.float64).eps)
# Greedy choice. Squared residuals below this share of their last fresh value are rounding, and are left out.
STALE = 1e-8
# When the largest falls below this share of its fresh value, all are recomputed.
REFRESHED = 1e-6
# Relative to the largest squared length of K_r: the rounding of one that lies in the span of others.
EXHAUSTED = 1e-20
# Relative difference from the best of choices that are equally good up to rounding.
TIE = 1e-9


@dataclass(frozen=True, eq=False)
class SubsetDistances:
    """Weights (m, n) that predict the kernel with all members from that with a subset; self_kernel (n,) of members."""

    subset: IntArray
    weights: FloatArray
    self_kernel: FloatArray

    def squared_distances(self, to_subset: ArrayLike, own: ArrayLike) -> FloatArray:
        """d_hat^2 (p, n) of objects with kernel values k_R(q) (p, m) and k(q, q) (p,) [E eq. 15], row by row."""
        kernel = checks.finite_array("to_subset", to_subset, 2, allow_empty=True)
        selves = checks.finite_array("own", own, 1, allow_empty=True)
        if kernel.shape != (len(selves), len(self.subset)):
            raise InvalidInputError(
                f"to_subset has shape {kernel.shape} and own {selves.shape}; they must be (n_objects, "
                f"{len(self.subset)}), a column for each member of the subset, and (n_objects,)."
            )
        return _predicted(kernel, selves, self.weights, self.self_kernel)


def semi_least_squares(gram: ArrayLike, subset: ArrayLike) -> SubsetDistances:
    """W = pinv(K_RQ)' K, with singular values below rounding taken as 0 [E eq. 13-15]."""
    K = _checked_gram(gram)
    R = checks.row_indices("subset", subset, len(K))
    with threadpool_limits(1, "blas"):
        weights = np.linalg.pinv(K[R], rcond=len(K) * EPSILON).T @ K
    return SubsetDistances(R, np.ascontiguousarray(weights), K.diagonal().copy())


def distance_kernel(dissimilarities: FloatArray, of_rows: ArrayLike, of_columns: ArrayLike) -> FloatArray:
    """k (p, m) of dissimilarities (p, m), not squared, with g of the rows (p,) and of the columns (m,) [E eq. 3]."""
    offsets = np.asarray(of_rows)[..., None] + np.asarray(of_columns)
    return np.asarray(offsets - 0.5 * np.square(dissimilarities, dtype=np.float64))


def gram_matrix(between: ArrayLike, origin: int) -> FloatArray:
    """K (n, n) from the dissimilarities (n, n), not squared, between members; `origin` is the row of q0."""
    apart = checks.squared_dissimilarity_matrix("between", between)
    why = f"a row of between, which has {len(apart)}"
    offsets = 0.5 * apart[checks.integer_in_range("origin", origin, 0, len(apart) - 1, why)] ** 2
    return distance_kernel(apart, offsets, offsets)


def kernel_of_objects(to_subset: ArrayLike, from_origin: ArrayLike, origin: int) -> tuple[FloatArray, FloatArray]:
    """k_R(q) (p, m) and k(q, q) (p,) from dissimilarities (p, m), not squared, to the subset, in which q0 is at
    `origin` and `from_origin` (m,) are the dissimilarities to it."""
    rows = np.asarray(checks.real_array("to_subset", to_subset, 2, allow_empty=True), dtype=np.float64)
    why = f"a column of to_subset, which has {rows.shape[1]}"
    offsets = 0.5 * rows[:, checks.integer_in_range("origin", origin, 0, rows.shape[1] - 1, why)] ** 2
    return distance_kernel(rows, offsets, 0.5 * np.square(from_origin)), 2 * offsets


def _checked_gram(gram: ArrayLike) -> FloatArray:
    K = np.asarray(checks.square_matrix("gram", gram), dtype=np.float64)
    checks.require_finite("gram", K)
    deviation = float(np.abs(K - K.T).max())
    if deviation > checks.SYMMETRY_TOLERANCE * float(np.abs(K).max()):
        raise InvalidInputError(
            f"gram is not symmetric: entries differ from their mirror images by up to {deviation:g}; kernels must be."
        )
    return np.asarray((K + K.T) / 2)


@compiled
def _predicted(kernel: AnyArray, own: AnyArray, weights: AnyArray, self_kernel: AnyArray) -> FloatArray:
    squared = np.zeros((len(kernel), len(self_kernel)))
    for i in range(len(kernel)):
        row = squared[i]
        for r in range(len(weights)):
            value = np.float64(kernel[i, r])
            for j in range(len(row)):
                row[j] += value * weights[r, j]
        for j in range(len(row)):
            row[j] = max(0.0, own[i] - 2.0 * row[j] + self_kernel[j])
    return squared


def trace_greedy(gram: ArrayLike, n_chosen: int) -> IntArray:
    """Members chosen in turn, each adding most to trace(P_RQ K) [E eq. 24], ties by row; fewer than asked for if the
    rest lies in the span of the chosen up to rounding. Takes O(n^2) per member and an (n, n) product for every six
    digits by which the largest squared residual falls."""
    K = _checked_gram(gram)
    m = checks.integer_in_range("n_chosen", n_chosen, 1, len(K), f"there are {len(K)} members")
    # A power of two near its size as the unit keeps cubes of entries in range.
    K = np.ldexp(K, -np.frexp(np.abs(K).max())[1])
    # The bytes of a product depend on the number of threads.
    with threadpool_limits(1, "blas"):
        return _TraceGreedy(K, m).chosen()


class _TraceGreedy:
    """The residuals v_r = (I - P) K_r of all members: |v_r|^2 and v_r' K v_r, whose ratio is the gain of choosing r.

    Choosing a member with normalized residual u takes (u' K_r) u from every other, so both numbers follow from two
    products with K. Their rounding stays at their initial size, so they are recomputed from time to time.
    """

    def __init__(self, K: FloatArray, m: int) -> None:
        self._K, self._m = K, m
        self._basis, self._images = np.empty((m, len(K))), np.empty((m, len(K)))
        self._rows: list[int] = []
        self._refresh()
        self._least = EXHAUSTED * self._lengths.max()

    def chosen(self) -> IntArray:
        while len(self._rows) < self._m:
            row = self._best()
            if row is None:
                break
            self._add(row)
        return np.array(self._rows, dtype=np.int64)

    def _best(self) -> int | None:
        if self._usable().max(initial=0.0) < REFRESHED * self._fresh.max():
            self._refresh()
        usable = self._usable()
        gains = np.divide(self._forms, usable, out=np.full(len(usable), -np.inf), where=usable > 0)
        best = gains.max()
        return int(np.argmax(gains >= best - TIE * abs(best))) if usable.any() else None

    def _usable(self) -> FloatArray:
        """Squared lengths of the residuals that can be trusted, 0 for the others."""
        return np.asarray(np.where(self._lengths > np.maximum(self._least, STALE * self._fresh), self._lengths, 0))

    def _refresh(self) -> None:
        n_chosen = len(self._rows)
        residual = self._K - self._basis[:n_chosen].T @ self._images[:n_chosen]
        residual[:, self._rows] = 0.0
        self._lengths = np.einsum("ij,ij->j", residual, residual)
        self._forms = np.einsum("ij,ij->j", residual, self._K @ residual)
        self._fresh = self._lengths.copy()

    def _add(self, row: int) -> None:
        basis, images = self._basis[: len(self._rows)], self._images[: len(self._rows)]
        u = self._K[row].copy()
        for _ in range(2):
            u -= basis.T @ (basis @ u)
        u /= np.linalg.norm(u)
        image = self._K @ u
        through = self._K @ image - images.T @ (basis @ image)
        self._forms += image * (image * (u @ image) - 2 * through)
        self._lengths -= image**2
        self._lengths[row] = 0.0
        self._basis[len(self._rows)], self._images[len(self._rows)] = u, image
        self._rows.append(row)


def evaluated_places(between: FloatArray, n_evaluated: int) -> IntArray:
    """Places (r,) among the landmarks, given their distances (m, m), of those that every object is compared with: the
    one in their middle, which is the origin of the kernel, and others greedily; fewer if more would tell nothing."""
    origin = int(np.argmin((between**2).mean(axis=0)))
    # One thread, for how many cut a sum decides its last bits, and these may decide the choice.
    with threadpool_limits(1):
        others = trace_greedy(gram_matrix(between, origin), n_evaluated - 1)
    return np.concatenate([[origin], others[others != origin]]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class EvaluatedSubset:
    """Distances `between` (m, m) of the landmarks, and the `places` (r,) of those that objects are compared with, the
    origin first."""

    between: FloatArray
    places: IntArray

    def to_landmarks(self, evaluated: FloatArray) -> FloatArray:
        """Distances (p, m) of objects to all landmarks from those (p, r) to the subset, which are kept."""
        from_origin = self.between[self.places[0], self.places]
        rows = np.sqrt(self._estimator.squared_distances(*kernel_of_objects(evaluated, from_origin, 0)))
        rows[:, self.places] = evaluated
        return np.asarray(rows)

    @cached_property
    def _estimator(self) -> SubsetDistances:
        return semi_least_squares(gram_matrix(self.between, int(self.places[0])), self.places)
