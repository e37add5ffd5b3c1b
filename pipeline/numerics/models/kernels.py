"""Kernels on vectors as the dissimilarities they induce [G sec. 2.1.2; T eq. 2-5].

A kernel k is an inner product of what it maps vectors to, so d^2(x, y) = k(x, x) - 2 k(x, y) + k(y, y) is a squared
distance there, and classical scaling of d^2 is kernel PCA. Rows of dissimilarities are all that the stages downstream
need, and no centering of the kernel is lost: it cancels in d^2.

| kernel     | k(x, y)                           | d(x, y)                             |
|------------|-----------------------------------|-------------------------------------|
| linear     | x.y                               | Euclidean distance                  |
| rbf        | exp(-gamma ||x - y||^2)           | sqrt(-2 expm1(-gamma ||x - y||^2))  |
| cosine     | x.y / (||x|| ||y||)               | Euclidean distance of unit vectors  |
| polynomial | (gamma x.y + constant)^degree     | by the definition                   |

Similarities that are no kernel can have d^2 < 0. `signed_roots` keeps the sign: downstream a square is v |v|.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.methods import GAMMA_RANGE, KERNELS
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.models import metrics
from pipeline.types import AnyArray, FloatArray

# Points per pass: what is computed of them stays in the cache. It does not touch the bytes of a result.
POINTS_PER_BLOCK = 128


@dataclass(frozen=True)
class Kernel:
    """One of KERNELS with its parameters, named as in scikit-learn's pairwise kernels (`constant` is its coef0).

    gamma: of "rbf" and "polynomial"; `automatic_gamma` suggests one for the former. degree, constant: of "polynomial".
    The constant must not be negative, or the polynomial would be no kernel.
    """

    name: str
    gamma: float = 1.0
    degree: int = 3
    constant: float = 1.0

    def __post_init__(self) -> None:
        checks.one_of("kernel", self.name, KERNELS)
        for name in KERNELS["polynomial"]:
            checks.require_parameter(name, getattr(self, name))

    def dissimilarities(self, points: ArrayLike, landmarks: ArrayLike) -> FloatArray:
        """Dissimilarities (p, m), not squared, of points (p, D) to landmarks (m, D); 0 between equal rows.

        A row's bytes do not depend on the rows beside it.
        """
        rows, marks = metrics.checked_vectors(points, landmarks)
        if self.name == "linear":
            return metrics.euclidean(rows, marks)
        if self.name == "cosine":
            return metrics.euclidean(*metrics.unit_vectors(rows, marks, "cosine"))
        if self.name == "rbf":
            return self._radial(rows, marks)
        return self._polynomial(rows, marks)

    def _radial(self, points: AnyArray, landmarks: AnyArray) -> FloatArray:
        values = metrics.squared_distances(points, landmarks)
        _to_radial(values, self.gamma)
        return values

    def _polynomial(self, points: AnyArray, landmarks: AnyArray) -> FloatArray:
        values = metrics.inner_products(points, landmarks)
        own, of_landmarks = metrics.squared_lengths(points), metrics.squared_lengths(landmarks)
        _to_polynomial(values, own, of_landmarks, self.gamma, self.constant, self.degree)
        if not np.isfinite(values).all():
            raise InvalidInputError(
                f"the polynomial kernel of degree={self.degree} with gamma={self.gamma:g} leaves double precision on "
                "these points; lower the degree or gamma, or rescale the points."
            )
        return values


def gamma_in_unit(gamma: float | None, exponent: int) -> float | None:
    """A gamma of the user's for lengths in units of 2^exponent; None if it is to be found from the landmarks."""
    if gamma is None:
        return None
    with np.errstate(over="ignore"):
        scaled = float(np.ldexp(float(gamma), 2 * exponent))
    return min(max(scaled, GAMMA_RANGE[0]), GAMMA_RANGE[1])


def automatic_gamma(points: ArrayLike) -> float:
    """1 / median squared Euclidean distance between the points (m, D), over pairs of different rows."""
    return _reciprocal_median(metrics.squared_distances(points, points), "points")


def automatic_gamma_of(between: ArrayLike) -> float:
    """1 / median squared dissimilarity, from dissimilarities (m, m) between landmarks, over pairs of different ones."""
    return _reciprocal_median(checks.squared_dissimilarity_matrix("between", between) ** 2, "landmarks")


def signed_roots(squared: ArrayLike) -> FloatArray:
    """sign(s) sqrt(|s|): what v |v| gives back."""
    values = np.asarray(squared, dtype=np.float64)
    return np.asarray(np.copysign(np.sqrt(np.abs(values)), values))


def dissimilarities_from_similarities(similarities: ArrayLike, own: ArrayLike, of_landmarks: ArrayLike) -> FloatArray:
    """Signed roots (p, m) of own - 2 similarities + of_landmarks, for similarities of any kind [T eq. 2-5].

    similarities (p, m) of points to landmarks, own (p,) of the points to themselves, of_landmarks (m,) of the
    landmarks to themselves.
    """
    to_landmarks = checks.real_array("similarities", similarities, 2, allow_empty=True)
    to_self = checks.real_array("own", own, 1, allow_empty=True)
    marks_to_self = checks.real_array("of_landmarks", of_landmarks, 1)
    if to_landmarks.shape != (len(to_self), len(marks_to_self)):
        raise InvalidInputError(
            f"similarities has shape {to_landmarks.shape}, own {to_self.shape} and of_landmarks {marks_to_self.shape}; "
            "they must be (n_points, n_landmarks), (n_points,) and (n_landmarks,)."
        )
    for name, array in (("similarities", to_landmarks), ("own", to_self), ("of_landmarks", marks_to_self)):
        checks.require_finite(name, array)
    own64, marks64, between = (np.asarray(a, dtype=np.float64) for a in (to_self, marks_to_self, to_landmarks))
    # In this order the sum of equal similarities is exactly 0.
    return signed_roots((own64[:, None] - between) + (marks64 - between))


def affinity_sums(
    rows: AnyArray, factors: FloatArray, square_factors: FloatArray, gamma: float, affinity: bool, skip_zeros: bool
) -> tuple[FloatArray, FloatArray]:
    """Sums over landmarks of the affinities K of points, in units of each point's largest, and that one's root (p,).

    Affinities are exp(-gamma rows^2) or, with `affinity`, the rows (p, m) themselves; if `skip_zeros`, an entry of 0
    counts as affinity 0 in both. The sums (d + 2, p) are of K factors (m, d), of K^2 square_factors (m,), and of K.
    They stay in range however far a point is, and run over the landmarks in order.
    """
    sums, roots = np.empty((factors.shape[1] + 2, len(rows))), np.empty(len(rows))
    _sum_affinities(rows, gamma, affinity, skip_zeros, factors, square_factors, sums, roots)
    return sums, roots


def nystrom_error(between: ArrayLike, to_landmarks: ArrayLike, sample: ArrayLike) -> float:
    """How far a kernel between s points is from what landmarks say of it, relative to its norm [G eq. 59].

    Of kernel matrices A = between (m, m), B' = to_landmarks (s, m) and C = sample (s, s): ||C - B' A^+ B|| / ||C|| in
    the Frobenius norm. The pseudo-inverse leaves out eigenvalues of A below rounding.
    """
    a, b, c = (
        checks.real_array(*named, 2).astype(np.float64)
        for named in (("between", between), ("to_landmarks", to_landmarks), ("sample", sample))
    )
    if a.shape != (b.shape[1], b.shape[1]) or c.shape != (len(b), len(b)):
        raise InvalidInputError(
            f"between has shape {a.shape}, to_landmarks {b.shape} and sample {c.shape}; they must be (m, m), (s, m) "
            "and (s, s)."
        )
    for name, array in (("between", a), ("to_landmarks", b), ("sample", c)):
        checks.require_finite(name, array)
    with threadpool_limits(1, "blas"):
        eigenvalues, vectors = eigh(a, driver="evd")
        kept = np.abs(eigenvalues) > len(a) * np.finfo(np.float64).eps * np.abs(eigenvalues).max()
        parts = b @ vectors[:, kept]
        missed = c - (parts / eigenvalues[kept]) @ parts.T
        return float(np.linalg.norm(missed) / np.linalg.norm(c))


def _reciprocal_median(squared: FloatArray, what: str) -> float:
    if len(squared) < 2:
        raise InvalidInputError(f"gamma='auto' needs at least 2 {what}, and there is {len(squared)}; give a number.")
    median = float(np.median(squared[~np.tri(len(squared), dtype=np.bool_)]))
    if not median > 0:
        raise InvalidInputError(
            f"gamma='auto' is 1 / the median squared dissimilarity between {what}, and more than half of those are 0; "
            "give gamma as a number, or drop duplicates."
        )
    return 1.0 / median


@compiled
def _to_radial(squares: AnyArray, gamma: float) -> None:
    for i in range(squares.shape[0]):
        for j in range(squares.shape[1]):
            squares[i, j] = math.sqrt(-2.0 * math.expm1(-gamma * squares[i, j]))


@compiled
def _to_polynomial(
    products: AnyArray, own: AnyArray, of_landmarks: AnyArray, gamma: float, constant: float, degree: int
) -> None:
    marks = np.empty(len(of_landmarks))
    for j in range(len(marks)):
        marks[j] = _power(gamma * of_landmarks[j] + constant, degree)
    for i in range(len(own)):
        mine = _power(gamma * own[i] + constant, degree)
        for j in range(len(marks)):
            kernel = _power(gamma * products[i, j] + constant, degree)
            square = (mine - kernel) + (marks[j] - kernel)
            # A kernel's squared distance is never negative, but rounding can make it so. (NaN must pass as it is.)
            products[i, j] = 0.0 if square < 0.0 else math.sqrt(square)


@compiled
def _power(base: float, degree: int) -> float:
    result = 1.0
    for _ in range(degree):
        result *= base
    return result


@compiled
def _sum_affinities(
    rows: AnyArray,
    gamma: float,
    affinity: bool,
    skip_zeros: bool,
    factors: AnyArray,
    square_factors: AnyArray,
    sums: AnyArray,
    roots: AnyArray,
) -> None:
    n_points, m = rows.shape
    d = factors.shape[1]
    totals = np.empty((d + 2, POINTS_PER_BLOCK))
    origins, terms = np.empty(POINTS_PER_BLOCK), np.empty(POINTS_PER_BLOCK)
    for first in range(0, n_points, POINTS_PER_BLOCK):
        size = min(POINTS_PER_BLOCK, n_points - first)
        block = rows[first : first + size]
        _find_origins(block, gamma, affinity, skip_zeros, origins, roots[first : first + size])
        totals[:] = 0.0
        for i in range(m):
            _fill_affinities(block, i, gamma, affinity, skip_zeros, origins, terms)
            for k in range(d):
                _add(totals[k], terms, factors[i, k], size)
            _add(totals[d + 1], terms, 1.0, size)
            for j in range(size):
                totals[d, j] += terms[j] * terms[j] * square_factors[i]
        sums[:, first : first + size] = totals[:, :size]


@compiled
def _add(totals: AnyArray, terms: AnyArray, factor: float, size: int) -> None:
    for j in range(size):
        totals[j] += factor * terms[j]


@compiled
def _find_origins(
    block: AnyArray, gamma: float, affinity: bool, skip_zeros: bool, origins: AnyArray, roots: AnyArray
) -> None:
    """The entry of each row whose affinity is the largest, and the root of that affinity."""
    for j in range(len(block)):
        origin = 0.0 if affinity else np.inf
        for i in range(block.shape[1]):
            value = np.float64(block[j, i])
            if affinity:
                origin = max(origin, value)
            elif value < origin and not (skip_zeros and value == 0.0):
                origin = value
        origins[j] = origin
        roots[j] = math.sqrt(origin) if affinity else math.exp(-0.5 * gamma * origin * origin)


@compiled
def _fill_affinities(
    block: AnyArray, i: int, gamma: float, affinity: bool, skip_zeros: bool, origins: AnyArray, terms: AnyArray
) -> None:
    """Affinities of a block of points to landmark i, in units of each point's largest."""
    for j in range(len(block)):
        value, origin = np.float64(block[j, i]), origins[j]
        if value == 0.0 and (affinity or skip_zeros):
            terms[j] = 0.0
        elif affinity:
            terms[j] = value / origin
        else:
            terms[j] = math.exp(-gamma * (value - origin) * (value + origin))
