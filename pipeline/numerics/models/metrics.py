"""Dissimilarities of vectors to landmarks, by metrics or by kernels, in compiled loops.

Dissimilarities are squared downstream, so "sqeuclidean" is not a metric here. "cosine" (1 - cos), "angular" and
"correlation" are functions of the distance between unit vectors, by which they are exactly 0 between equal rows.

A kernel k is an inner product of mapped vectors, so d^2(x, y) = k(x, x) - 2 k(x, y) + k(y, y) is a squared distance,
and its classical scaling is kernel PCA; centering of the kernel cancels in d^2 [G sec. 2.1.2; T eq. 2-5].

| kernel     | k(x, y)                       | d(x, y)                            |
|------------|-------------------------------|------------------------------------|
| linear     | x.y                           | Euclidean distance                 |
| rbf        | exp(-gamma ||x - y||^2)       | sqrt(-2 expm1(-gamma ||x - y||^2)) |
| cosine     | x.y / (||x|| ||y||)           | Euclidean distance of unit vectors |
| polynomial | (gamma x.y + constant)^degree | by the definition                  |

Similarities that are no kernel can have d^2 < 0: `signed_roots` keeps the sign, and downstream a square is v |v|.

The inner loop runs across a block of landmarks that stays in the cache, for four columns of one point at a time: it
vectorizes although every sum runs over the columns in order. A row's bytes depend only on that row and the landmarks.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.methods import GAMMA_RANGE, KERNELS, METRICS
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled, inlined
from pipeline.numerics.directions import LISTED_ROWS, centered_for, from_squared_chords, refuse_undirected, unit_rows
from pipeline.types import AnyArray, FloatArray

LANDMARKS_PER_BLOCK = 256
COLUMNS_PER_PASS = 4
# With a block of landmarks this is 128 KB, which stays in the second-level cache for all points.
COLUMNS_PER_TILE = 64
SQUARES, SIZES, LARGEST, PRODUCTS = range(4)


def distances(metric: str, points: ArrayLike, landmarks: ArrayLike) -> FloatArray:
    """Dissimilarities (p, m) of points (p, D) to landmarks (m, D) by one of METRICS; 0 between equal rows."""
    checks.one_of("metric", metric, METRICS)
    rows, marks = checked_vectors(points, landmarks)
    if metric == "cityblock":
        return _totals(rows, marks, SIZES)
    if metric == "chebyshev":
        return _totals(rows, marks, LARGEST)
    if metric == "euclidean":
        return euclidean(rows, marks)
    directions = unit_vectors(centered_for(metric, rows), centered_for(metric, marks), metric)
    return from_squared_chords(metric, _totals(*directions, SQUARES))


def euclidean(points: AnyArray, landmarks: AnyArray) -> FloatArray:
    """Euclidean distances (p, m) between vectors already checked."""
    squares = _totals(points, landmarks, SQUARES)
    return np.sqrt(squares, out=squares)


def squared_distances(points: ArrayLike, landmarks: ArrayLike) -> FloatArray:
    """Squared Euclidean distances (p, m), the same bits whose roots "euclidean" gives."""
    return _totals(*checked_vectors(points, landmarks), SQUARES)


def inner_products(points: ArrayLike, landmarks: ArrayLike) -> FloatArray:
    """Inner products (p, m); for equal rows the bits of `squared_lengths`."""
    return _totals(*checked_vectors(points, landmarks), PRODUCTS)


def squared_lengths(points: ArrayLike) -> FloatArray:
    """Inner products (p,) of points with themselves."""
    return _squared_lengths(_checked("points", points))


def checked_vectors(points: ArrayLike, landmarks: ArrayLike) -> tuple[AnyArray, AnyArray]:
    """Both as contiguous finite arrays with the same number of columns, small enough to be squared."""
    rows, marks = _checked("points", points), _checked("landmarks", landmarks)
    if rows.shape[1] != marks.shape[1]:
        raise InvalidInputError(
            f"points has {rows.shape[1]} columns and landmarks has {marks.shape[1]}; both must have the same."
        )
    return rows, marks


def unit_vectors(points: AnyArray, landmarks: AnyArray, metric: str) -> tuple[FloatArray, FloatArray]:
    """Both with every row divided by its length; an error that names `metric` if a row is zero."""
    return _units("points", points, metric), _units("landmarks", landmarks, metric)


def _units(name: str, rows: AnyArray, metric: str) -> FloatArray:
    units, has_length = unit_rows(rows)
    bad = np.flatnonzero(~has_length)
    refuse_undirected(name, len(bad), bad[:LISTED_ROWS], metric)
    return units


def _checked(name: str, values: ArrayLike) -> AnyArray:
    array = checks.real_array(name, values, 2, allow_empty=name == "points")
    if array.shape[1] == 0:
        raise InvalidInputError(f"{name} has shape {array.shape}; it must have at least one column.")
    if len(array):
        checks.require_finite(name, array)
        checks.require_not_too_large(name, array)
    return np.ascontiguousarray(array)


def _totals(points: AnyArray, landmarks: AnyArray, kind: int) -> FloatArray:
    totals = np.zeros((len(points), len(landmarks)))
    _accumulate(points, _side_by_side(landmarks), kind, totals)
    return totals


def _side_by_side(landmarks: AnyArray) -> FloatArray:
    """(blocks, D, LANDMARKS_PER_BLOCK), padded to whole blocks and passes with zeros, which add exactly nothing."""
    m, n_columns = landmarks.shape
    n_blocks, n_passes = -(-m // LANDMARKS_PER_BLOCK), -(-n_columns // COLUMNS_PER_PASS)
    padded = np.zeros((n_blocks * LANDMARKS_PER_BLOCK, n_passes * COLUMNS_PER_PASS))
    padded[:m, :n_columns] = landmarks
    return np.ascontiguousarray(padded.reshape(n_blocks, LANDMARKS_PER_BLOCK, -1).transpose(0, 2, 1))


@compiled
def _accumulate(points: AnyArray, blocks: AnyArray, kind: int, totals: AnyArray) -> None:
    n_points, m = totals.shape
    n_columns = blocks.shape[1]
    x = np.zeros(COLUMNS_PER_TILE)
    for b in range(len(blocks)):
        first = b * LANDMARKS_PER_BLOCK
        size = min(LANDMARKS_PER_BLOCK, m - first)
        for begin in range(0, n_columns, COLUMNS_PER_TILE):
            end = min(begin + COLUMNS_PER_TILE, n_columns)
            x[:] = 0.0
            for i in range(n_points):
                for k in range(begin, min(end, points.shape[1])):
                    x[k - begin] = points[i, k]
                _add_tile(x, blocks[b, begin:end], kind, totals[i, first : first + size])


@compiled
def _add_tile(x: AnyArray, tile: AnyArray, kind: int, totals: AnyArray) -> None:
    for k in range(0, len(tile), COLUMNS_PER_PASS):
        columns = tile[k : k + COLUMNS_PER_PASS]
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        # The compiler takes the kind, which is the same for all, out of the loop.
        for j in range(len(totals)):
            total = _with_term(totals[j], kind, x0, columns[0, j])
            total = _with_term(total, kind, x1, columns[1, j])
            total = _with_term(total, kind, x2, columns[2, j])
            totals[j] = _with_term(total, kind, x3, columns[3, j])


@inlined
def _with_term(total: float, kind: int, x: float, y: float) -> float:
    if kind == SQUARES:
        return total + (x - y) * (x - y)
    if kind == SIZES:
        return total + abs(x - y)
    return max(total, abs(x - y)) if kind == LARGEST else total + x * y


@compiled
def _squared_lengths(rows: AnyArray) -> FloatArray:
    lengths = np.empty(len(rows))
    for i in range(len(rows)):
        total = 0.0
        for k in range(rows.shape[1]):
            total += np.float64(rows[i, k]) * np.float64(rows[i, k])
        lengths[i] = total
    return lengths


@dataclass(frozen=True)
class Kernel:
    """One of KERNELS with its parameters, named as in scikit-learn's pairwise kernels (`constant` is coef0, which must
    not be negative)."""

    name: str
    gamma: float = 1.0
    degree: int = 3
    constant: float = 1.0

    def __post_init__(self) -> None:
        checks.one_of("kernel", self.name, KERNELS)
        for name in KERNELS["polynomial"]:
            checks.require_parameter(name, getattr(self, name))

    def dissimilarities(self, points: ArrayLike, landmarks: ArrayLike) -> FloatArray:
        """Dissimilarities (p, m), not squared, of points (p, D) to landmarks (m, D); 0 between equal rows."""
        rows, marks = checked_vectors(points, landmarks)
        if self.name == "linear":
            return euclidean(rows, marks)
        if self.name == "cosine":
            return euclidean(*unit_vectors(rows, marks, "cosine"))
        if self.name == "rbf":
            values = squared_distances(rows, marks)
            _to_radial(values, self.gamma)
            return values
        return self._polynomial(rows, marks)

    def _polynomial(self, points: AnyArray, landmarks: AnyArray) -> FloatArray:
        values = inner_products(points, landmarks)
        own, of_landmarks = squared_lengths(points), squared_lengths(landmarks)
        _to_polynomial(values, own, of_landmarks, self.gamma, self.constant, self.degree)
        if not np.isfinite(values).all():
            raise InvalidInputError(
                f"the polynomial kernel of degree={self.degree} with gamma={self.gamma:g} leaves double precision on "
                "these points; lower the degree or gamma, or rescale the points."
            )
        return values


def gamma_in_unit(gamma: float | None, exponent: int) -> float | None:
    """A user's gamma for lengths in units of 2^exponent, kept within GAMMA_RANGE; None stays None."""
    if gamma is None:
        return None
    with np.errstate(over="ignore"):
        scaled = float(np.ldexp(float(gamma), 2 * exponent))
    return min(max(scaled, GAMMA_RANGE[0]), GAMMA_RANGE[1])


def automatic_gamma(points: ArrayLike) -> float:
    """1 / median squared Euclidean distance between the points (m, D), over pairs of different rows."""
    return _reciprocal_median(squared_distances(points, points), "points")


def automatic_gamma_of(between: ArrayLike) -> float:
    """1 / median squared dissimilarity between landmarks, from dissimilarities (m, m), over pairs of different ones."""
    return _reciprocal_median(checks.squared_dissimilarity_matrix("between", between) ** 2, "landmarks")


def signed_roots(squared: ArrayLike) -> FloatArray:
    """sign(s) sqrt(|s|), from which v |v| gives back s."""
    values = np.asarray(squared, dtype=np.float64)
    return np.asarray(np.copysign(np.sqrt(np.abs(values)), values))


# Of pairs, the share that no squared distance goes with, for the similarities to be called impossible.
MOSTLY = 0.5


def impossible_share(similarities: FloatArray) -> float:
    """The share of the pairs (m, m) that are more similar than both are to themselves in the mean."""
    own, n = similarities.diagonal(), len(similarities)
    return float((own[:, None] + own < 2 * similarities).sum() / max(1, n * (n - 1)))


def impossible_in_words(similarities: FloatArray) -> str:
    """What to say of similarities that most pairs cannot have; nothing if that is not so."""
    share, own = impossible_share(similarities), similarities.diagonal()
    if share <= MOSTLY:
        return ""
    return (
        f"{share:.0%} of the pairs of landmarks are more similar to each other than to themselves (the diagonal is "
        f"from {own.min():g} to {own.max():g}): their squared distances are negative. If the diagonal was never filled "
        "in, give each point its similarity to itself."
    )


def dissimilarities_from_similarities(
    similarities: ArrayLike, own: ArrayLike, of_landmarks: ArrayLike, exponent: int = 0
) -> FloatArray:
    """Signed roots (p, m) of own - 2 similarities + of_landmarks, for any similarities [T eq. 2-5]: similarities (p, m)
    of points to landmarks, own (p,) and of_landmarks (m,) of points and landmarks to themselves. The roots are in units
    of 2^exponent."""
    to_landmarks = checks.finite_array("similarities", similarities, 2, allow_empty=True)
    to_self = checks.finite_array("own", own, 1, allow_empty=True)
    marks_to_self = checks.finite_array("of_landmarks", of_landmarks, 1)
    if to_landmarks.shape != (len(to_self), len(marks_to_self)):
        raise InvalidInputError(
            f"similarities has shape {to_landmarks.shape}, own {to_self.shape} and of_landmarks {marks_to_self.shape}; "
            "they must be (n_points, n_landmarks), (n_points,) and (n_landmarks,)."
        )
    own64, marks64, between = (
        np.ldexp(np.asarray(a, dtype=np.float64), -2 * exponent) for a in (to_self, marks_to_self, to_landmarks)
    )
    # In this order the result for equal similarities is exactly 0.
    return signed_roots((own64[:, None] - between) + (marks64 - between))


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
            # Only rounding can make a kernel's squared distance negative. NaN must pass.
            products[i, j] = 0.0 if square < 0.0 else math.sqrt(square)


@compiled
def _power(base: float, degree: int) -> float:
    result = 1.0
    for _ in range(degree):
        result *= base
    return result
