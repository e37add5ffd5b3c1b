"""X."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class LandmarkModel:
    """What the landmarks' classical scaling leaves behind: all that a new point needs, and figures of its fit.

    `spectrum` (m,) holds every eigenvalue of B, largest first; geodesic Gram matrices have negative ones. `constant` is
    what was added to every dissimilarity but those of an object to itself, and has to be to a new point's. `signed`
    models are of squared dissimilarities that may be negative, as indefinite similarities give them.
    """

    coordinates: FloatArray
    eigenvalues: FloatArray
    row_means: FloatArray
    grand_mean: float
    spectrum: FloatArray
    constant: float = 0.0
    signed: bool = False

    @property
    def n_landmarks(self) -> int:
        return len(self.coordinates)

    @property
    def n_components(self) -> int:
        return len(self.eigenvalues)

    @property
    def n_positive(self) -> int:
        """How many eigenvalues stand above rounding error: the most components the landmarks can give."""
        return count_positive(self.spectrum)

    @property
    def negative_mass(self) -> float:
        """Share of the spectrum's absolute sum that is negative; 0 for Euclidean dissimilarities."""
        return float(-self.spectrum[self.spectrum < 0].sum() / np.abs(self.spectrum).sum())

    @property
    def explained_mass(self) -> float:
        """Share of the spectrum's positive sum that the kept components carry."""
        return float(self.eigenvalues.sum() / self.spectrum[self.spectrum > 0].sum())


def classical_mds(squared_dissimilarities: ArrayLike, n_components: int, signed: bool = False) -> LandmarkModel:
    """Embed m objects from their (m, m) squared dissimilarities; X = U sqrt(lam) of B = -1/2 P Delta_2 P.

    With `signed` squares may be negative, as those are that indefinite similarities induce. The whole decomposition is
    computed, not only its top: the negative mass and the number of usable components need all of it, and the first
    components then have the same bytes for any `n_components`. It takes three (m, m) float64 arrays of memory.
    """
    delta2 = checks.squared_dissimilarity_matrix("squared_dissimilarities", squared_dissimilarities, signed)
    d = _checked_n_components(n_components, len(delta2))
    if not delta2.any():
        raise InvalidInputError(
            "squared_dissimilarities are all zero: every object is the same, so there is nothing to embed; "
            "use objects that differ."
        )
    row_means, grand_mean = delta2.mean(axis=1), float(delta2.mean())
    # On one thread: the bytes of a decomposition depend on how many threads share it.
    with threadpool_limits(1, "blas"):
        spectrum, vectors = eigh(double_centered(delta2), driver="evd", overwrite_a=True, check_finite=False)
    spectrum, vectors = spectrum[::-1], vectors[:, ::-1]
    _require_positive(d, spectrum)
    eigenvalues = spectrum[:d].copy()
    return LandmarkModel(
        coordinates=np.ascontiguousarray(with_fixed_signs(vectors[:, :d]) * np.sqrt(eigenvalues)),
        eigenvalues=eigenvalues,
        row_means=row_means,
        grand_mean=grand_mean,
        spectrum=spectrum.copy(),
        signed=signed,
    )


def double_centered(squared_dissimilarities: FloatArray) -> FloatArray:
    """-1/2 P Delta_2 P with P = I - ee'/m, exactly symmetric if the argument is [T fig. 2]."""
    means = squared_dissimilarities.mean(axis=1)
    return np.asarray(-0.5 * (squared_dissimilarities - (means[:, None] + means) + means.mean()))


def with_fixed_signs(vectors: FloatArray) -> FloatArray:
    """Columns flipped so that the largest absolute entry of each is positive.

    Of entries that tie up to rounding the first decides, or symmetric configurations would flip with the noise.
    """
    sizes = np.abs(vectors)
    deciding = np.argmax(sizes >= sizes.max(axis=0) * (1 - 1e-8), axis=0)
    signs = np.sign(vectors[deciding, np.arange(vectors.shape[1])])
    return np.asarray(vectors * signs)


def count_positive(spectrum: FloatArray) -> int:
    """Number of eigenvalues above what rounding leaves of a zero one."""
    floor = len(spectrum) * np.finfo(np.float64).eps * np.abs(spectrum).max()
    return int(np.count_nonzero(spectrum > floor))


def _checked_n_components(n_components: object, n_landmarks: int) -> int:
    if n_landmarks < 2:
        raise InvalidInputError("squared_dissimilarities holds 1 object; at least 2 are needed to embed anything.")
    why = f"fewer than the {n_landmarks} objects"
    return checks.integer_in_range("n_components", n_components, 1, n_landmarks - 1, why)


def _require_positive(n_components: int, spectrum: FloatArray) -> None:
    available = count_positive(spectrum)
    if n_components > available:
        raise InvalidInputError(
            f"n_components={n_components} is more than the dissimilarities support: their centered Gram matrix has "
            f"{available} positive eigenvalue{'s' * (available != 1)}; use n_components from 1 to {available}."
        )


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """rows -> ((rows 2^-exponent - center) / spread) axes, in `dtype`; any of the last three steps may be left out.

    Scaling by a power of two is exact and keeps every square within range.
    """

    exponent: int
    dtype: np.dtype[Any]
    center: FloatArray | None = None
    spread: FloatArray | None = None
    axes: FloatArray | None = None

    @property
    def result_exponent(self) -> int:
        """The power of two that takes results back to the user's units; standardized data has none."""
        return self.exponent if self.spread is None else 0

    def apply(self, rows: AnyArray) -> AnyArray:
        values: AnyArray = np.ldexp(rows.astype(self.dtype), -self.exponent)
        if self.center is None:
            return values
        values = values - self.center
        if self.spread is not None:
            values /= self.spread
        if self.axes is not None:
            values = fixed_order_product(values, self.axes)
        return values.astype(self.dtype)


def fixed_order_product(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """rows (p, D) times matrix (D, q), each entry summed over D in order."""
    out = np.empty((len(rows), matrix.shape[1]))
    _multiply(np.ascontiguousarray(rows), np.ascontiguousarray(matrix), out)
    return out


@compiled
def _multiply(rows: AnyArray, matrix: AnyArray, out: AnyArray) -> None:
    for i in range(len(rows)):
        out[i] = 0.0
        for j in range(len(matrix)):
            for k in range(matrix.shape[1]):
                out[i, k] += rows[i, j] * matrix[j, k]


def scatter_matrix(centered: FloatArray) -> FloatArray:
    """Sum (D, D) over rows of the outer products, on one thread: its bytes depend on how many share it."""
    with threadpool_limits(1, "blas"):
        return np.asarray(centered.T @ centered)


def principal_axes(scatter: FloatArray, n_axes: int) -> tuple[FloatArray, float]:
    """The first axes (D, n_axes) of a scatter matrix, each with its largest entry positive, and their share of it."""
    with threadpool_limits(1, "blas"):
        values, vectors = eigh(scatter)
    axes = vectors[:, ::-1][:, :n_axes]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(n_axes)])
    total = float(values.sum())
    return axes * signs, float(values[::-1][:n_axes].sum()) / total if total > 0 else 0.0


class RigidMotion(NamedTuple):
    """Points x go to x @ turn + shift; `turn` (d, d) is orthogonal and may mirror, `shift` is (d,).

    Only in `rank` directions do the points say where to turn; the others stay as near to where they were as they can.
    """

    turn: FloatArray
    shift: FloatArray
    rank: int

    def apply(self, points: FloatArray) -> FloatArray:
        return points @ self.turn + self.shift


def rigid_motion(points: FloatArray, onto: FloatArray) -> RigidMotion:
    """The motion that takes points (n, d) closest to others (n, d), by the sum of squared distances."""
    center, target = points.mean(axis=0), onto.mean(axis=0)
    a, b = _scaled(points - center), _scaled(onto - target)
    turn, rank = _nearest_turn(a.T @ b, len(points))
    return RigidMotion(turn, target - center @ turn, rank)


def shared_rows(points: FloatArray, onto: FloatArray) -> BoolArray:
    """Which rows have coordinates on both sides."""
    return np.asarray(np.isfinite(points).all(axis=1) & np.isfinite(onto).all(axis=1))


def rms_distance(points: FloatArray, others: FloatArray) -> float:
    """Root mean square distance between points and others, row by row."""
    largest = float(np.abs(points - others).max(initial=0.0))
    if not largest:
        return 0.0
    return float(largest * np.sqrt((((points - others) / largest) ** 2).sum(axis=1).mean()))


def _scaled(centered: FloatArray) -> FloatArray:
    """At a size whose products neither overflow nor vanish; a power of two, so that nothing is rounded."""
    return np.ldexp(centered, -int(np.frexp(np.abs(centered).max(initial=0.0))[1]))


def _nearest_turn(products: FloatArray, n_points: int) -> tuple[FloatArray, int]:
    """U Vᵀ, and in how many directions it is determined.

    Where singular values vanish, any orthogonal map between the left and right null spaces is as good. The one nearest
    to the identity does not depend on the bases that the decomposition happens to return for them.
    """
    u, s, vt = np.linalg.svd(products)
    rank = int(np.count_nonzero(s > s[0] * max(n_points, len(s)) * np.finfo(np.float64).eps))
    left, right = u[:, rank:], vt[rank:].T
    inner_u, _, inner_vt = np.linalg.svd(left.T @ right)
    return u[:, :rank] @ vt[:rank] + left @ (inner_u @ inner_vt) @ right.T, rank
