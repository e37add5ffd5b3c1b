"""A few points that stand for all: random and farthest-point landmarks; rows held out to calibrate trust; anchors; and
a subset of objects whose distances predict those to the others, by kernel semi-least squares [E].

Held-out rows are training rows treated as new: their distances to the landmarks go through their nearest other points.
Rows are drawn by a hash of their number, whatever the order and the batches in which they come. A point's key is the
least hash of its rows, and the points with the least keys are the anchors. So the rows of anchors are those with hashes
up to a threshold, and rows in any range beyond relate to the anchors like new rows, duplicates included. Near anchors
may be on different turns of the data. Their distances to the landmarks tell: by the triangle inequality, no path
between two points is shorter than the difference of their distances to any landmark.

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

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, BoolArray, FloatArray, HashArray, IntArray

# With this many candidates the covering radius is within a few percent of that on all points.
MAXMIN_CANDIDATES_PER_LANDMARK = 50
# With this many, errors on digits and words in ten components were within a few percent of their limit.
LANDMARKS_PER_COMPONENT = 40
# Up to this many columns distances are summed column by column, for many points at once.
FEW_COLUMNS = 16
BLOCK_ROWS = 512


def random_landmarks(n_points: int, n_landmarks: int, seed: int) -> IntArray:
    """Distinct rows chosen uniformly, in rising order."""
    checks.integer_in_range("n_points", n_points, 1, None, "points to choose from")
    m = checked_count(n_points, n_landmarks)
    return np.sort(checks.generator(seed).choice(n_points, m, replace=False)).astype(np.int64)


def maxmin_candidates(n_points: int, n_landmarks: int, seed: int) -> tuple[IntArray, int]:
    """The rows, rising, among which farthest points are chosen, and the place in them of the first: both at random."""
    m = checked_count(n_points, n_landmarks)
    rng, size = checks.generator(seed), min(n_points, MAXMIN_CANDIDATES_PER_LANDMARK * m)
    candidates = np.sort(rng.choice(n_points, size, replace=False)).astype(np.int64)
    return candidates, int(rng.integers(size))


def farthest_points(points: AnyArray, first: int, n_landmarks: int) -> IntArray:
    """Rows of `points`, beginning with `first`, each the farthest from those before; ties go to the lower row."""
    if points.shape[1] <= FEW_COLUMNS:
        return _farthest_by_columns(np.ascontiguousarray(points.T), first, n_landmarks)
    return _farthest_points(np.ascontiguousarray(points), first, n_landmarks)


def automatic_count(n_points: int, n_components: int) -> int:
    """Default number of landmarks: grows slowly with the points, and with the components. Its error is within a few
    percent of what more landmarks would reach (measurements in docs/studies.md)."""
    return min(n_points, max(LANDMARKS_PER_COMPONENT * (n_components + 1), round(100 + 2 * math.sqrt(n_points))))


def checked_count(n_points: int, n_landmarks: int) -> int:
    return checks.integer_in_range("n_landmarks", n_landmarks, 1, n_points, f"there are {n_points} points")


@compiled
def _farthest_by_columns(columns: AnyArray, first: int, n_landmarks: int) -> IntArray:
    """`_farthest_points` to the bit, for so few columns that stopping sums early does not pay."""
    n_points, chosen = columns.shape[1], np.empty(n_landmarks, dtype=np.int64)
    nearest, sums = np.full(n_points, np.inf), np.empty(BLOCK_ROWS)
    latest = first
    for i in range(len(chosen)):
        chosen[i] = latest
        nearest[latest] = -1.0
        farthest, following = -1.0, 0
        for begin in range(0, n_points, BLOCK_ROWS):
            size = min(BLOCK_ROWS, n_points - begin)
            sums[:size] = 0.0
            for column in columns:
                origin = np.float64(column[latest])
                for j in range(size):
                    difference = np.float64(column[begin + j]) - origin
                    sums[j] += difference * difference
            for j in range(size):
                shortest = min(nearest[begin + j], sums[j])
                nearest[begin + j] = shortest
                if shortest > farthest:
                    farthest, following = shortest, begin + j
        latest = following
    return chosen


@compiled
def _farthest_points(points: AnyArray, first: int, n_landmarks: int) -> IntArray:
    nearest, chosen = np.full(len(points), np.inf), np.empty(n_landmarks, dtype=np.int64)
    latest = first
    for i in range(len(chosen)):
        chosen[i] = latest
        # -1 rather than 0: if only duplicates of chosen points are left, one not chosen yet must still win.
        nearest[latest] = -1.0
        farthest, following = -1.0, 0
        for row in range(len(points)):
            if nearest[row] >= 0.0:
                nearest[row] = _shortened(points[row], points[latest], nearest[row])
                if nearest[row] > farthest:
                    farthest, following = nearest[row], row
        latest = following
    return chosen


@compiled
def _shortened(a: AnyArray, b: AnyArray, limit: float) -> float:
    """The smaller of ||a - b||^2 and `limit`; most landmarks are far from a point, so most sums stop early."""
    total = 0.0
    for start in range(0, len(a), 16):
        for k in range(start, min(start + 16, len(a))):
            difference = np.float64(a[k]) - np.float64(b[k])
            total += difference * difference
        if total >= limit:
            return limit
    return total


# Enough to resolve a share of one in a thousand.
MOST_HELD_OUT = 20_000


def drawn(rows: IntArray, n_rows: int, seed: int, wanted: int = MOST_HELD_OUT) -> BoolArray:
    """Whether each of these rows out of `n_rows` is drawn: all if there are few, else about as many as `wanted`."""
    if n_rows <= wanted:
        return np.ones(len(rows), dtype=np.bool_)
    return np.asarray(row_hashes(rows, seed) < np.uint64(int(wanted / n_rows * 2**64)))


def row_hashes(rows: IntArray, seed: int) -> HashArray:
    """A 64-bit number for each row that depends only on row and seed, evenly distributed and different for all rows."""
    return _mixed(rows.astype(np.uint64) + _mixed(np.array([seed], dtype=np.uint64)))


def _mixed(numbers: HashArray) -> HashArray:
    """The finalizer of splitmix64: every output bit depends on every input bit."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


MOST_CHECKED = 4000
# If few rows are left: the share of them that calibrates; the others check.
CALIBRATING_SHARE = 0.8
ALL = 2**64 - 1
# Neighbors that are farther apart along the data than through a point by this factor are on different turns of it. On
# rolls anything from 1.25 to 3 works the same; on digits less than 2 leaves out too many.
ACROSS = 2.0


class HeldRanges(NamedTuple):
    """Rows with hashes above `anchored` and up to `calibrating` calibrate; those up to `checking` check."""

    anchored: int
    calibrating: int
    checking: int


def least_keys(keys: HashArray, candidates: IntArray, count: int) -> tuple[IntArray, int]:
    """The `count` candidates (numbers into `keys`) with the least keys, rising, and the greatest of these keys."""
    if not count:
        return candidates[:0], 0
    chosen = candidates[np.argpartition(keys[candidates], count - 1)[:count]]
    return np.sort(chosen), int(keys[chosen].max())


def held_ranges(anchored: int, n_rows: int) -> HeldRanges:
    """Which hashes calibrate and which check, of `n_rows` rows: as many as are useful, or what is left."""
    left = ALL - anchored
    calibrating = min(_span(MOST_HELD_OUT, n_rows), int(left * CALIBRATING_SHARE))
    checking = min(_span(MOST_CHECKED, n_rows), left - calibrating)
    return HeldRanges(anchored, anchored + calibrating, anchored + calibrating + checking)


def _span(wanted: int, n_rows: int) -> int:
    return min(ALL, int(wanted / n_rows * ALL))


def firsts_of_groups(keys: HashArray, labels: IntArray, n_groups: int) -> IntArray:
    """The member with the least key of each of the groups labelled 1 to `n_groups`."""
    members = np.flatnonzero((labels > 0) & (labels <= n_groups))
    members = members[np.lexsort((keys[members], labels[members]))]
    _, first = np.unique(labels[members], return_index=True)
    return np.asarray(members[first])


@compiled
def widen(lengths: AnyArray, starts: AnyArray, ends: AnyArray, to_landmarks: AnyArray) -> None:
    """Raise lengths (e,), in place, to the greatest difference of the ends' distances (n, b) to some landmarks. Along
    edges widened by all landmarks no point is nearer to a landmark than it is along the data."""
    for edge in range(len(lengths)):
        for landmark in range(to_landmarks.shape[1]):
            gap = abs(to_landmarks[starts[edge], landmark] - to_landmarks[ends[edge], landmark])
            # NaN, the difference of two infinite distances, is ignored.
            if gap > lengths[edge]:
                lengths[edge] = gap


def along_the_data(distances: FloatArray, neighbors: IntArray, apart: FloatArray) -> tuple[FloatArray, IntArray]:
    """Neighbor lists (p, k) of new points with distances along the data, assuming each point is beside its nearest
    neighbor. `apart` (p, k) bounds from below how far each neighbor is from the nearest; less the distance to the
    nearest, it bounds the neighbor's distance. A neighbor across a gap is replaced by the nearest. Lists stay
    sorted."""
    nearest = distances[:, :1]
    across = apart > ACROSS * (nearest + distances)
    lengths = np.where(across, nearest, np.maximum(distances, apart - nearest))
    order = np.argsort(lengths, axis=1, kind="stable")
    listed = np.where(across, neighbors[:, :1], neighbors)
    return np.take_along_axis(lengths, order, axis=1), np.take_along_axis(listed, order, axis=1)


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
