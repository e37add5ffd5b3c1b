"""Laplacian eigenmaps and spectral clustering, extended by the Nystrom formula [B sec. 2.2, 2.3, 4.2; G eq. 59].

Affinities are K = exp(-gamma a^2) of dissimilarities a (p, m), or given. With degrees S_i (m,) of the landmarks, lam
and v the eigenpairs of K_ij / sqrt(S_i S_j) between landmarks, S(x) = sum_i K(x, x_i) and shares p_i(x) = K(x, x_i) /
S(x), the Nystrom formula with the normalized kernel is

    y_k(x) = 1/lam_k sum_i v_ki K(x, x_i) / sqrt(S(x) S_i) = sqrt(S(x)) / lam_k sum_i p_i(x) v_ki / sqrt(S_i).

Spectral clustering takes y_k itself, and an object's affinity to itself counts. Laplacian eigenmaps take u_k = v_k /
sqrt(S) without the trivial vector, and set affinities of objects to themselves to 0, like scikit-learn. With a diagonal
of zeros the Nystrom formula would be discontinuous at the landmarks: a point right beside one has the affinity that the
landmark itself has not. So other points are placed at

    u_k(x) = sum_i K(x, x_i) u_ki / (lam_k S(x) + (1 - lam_k) max_i K(x, x_i)),

in which a landmark's affinity to itself is the largest of its row: its own terms cancel, and it returns to itself. Far
from all landmarks u(x) tends to the nearest one, and the scale of given affinities does not matter.

Far away all affinities vanish, but shares do not: exponents are relative to the largest, so shares go to the nearest
landmark, and Laplacian coordinates are finite everywhere. Spectral ones fall with sqrt(S(x)), which is kept above
SMALLEST_ROOT so that the direction, which determines the cluster, survives. Only a row of given affinities that are all
0 has no shares: its coordinates are NaN and its residual is infinite.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.methods import GAMMA_RANGE
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.directions import unit_rows
from pipeline.numerics.mds import Placement, add_multiple, count_positive, eigenpairs, with_fixed_signs
from pipeline.numerics.models.metrics import squared_distances
from pipeline.types import AnyArray, FloatArray, IntArray

SMALLEST_DEGREE = 1e-290
# Products with coordinates down to 1e-8 still fit in float32.
SMALLEST_ROOT = 1e-30
RESTARTS = 10
MOST_ROUNDS = 300
NO_CLUSTER = -1
# Points per pass, whose sums stay in the cache; the bytes of a result do not depend on it.
POINTS_PER_BLOCK = 128


@dataclass(frozen=True, eq=False)
class NystromPlacer:
    """Landmarks' coordinates (m, d), and what placing other points needs. eigenvalues (d,) and the whole spectrum (m,),
    largest first, are those of the normalized kernel between landmarks, degrees (m,) its row sums before normalization.
    `affinity`: rows are affinities, and gamma is not used. `clustering`: coordinates of spectral clustering rather than
    Laplacian eigenmaps."""

    coordinates: FloatArray
    eigenvalues: FloatArray
    spectrum: FloatArray
    degrees: FloatArray
    gamma: float
    affinity: bool
    clustering: bool
    residual_degree: ClassVar[int] = 0

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by dissimilarities (p, m), not squared, or by affinities, to the landmarks [B eq. 11, sec. 4.2].
        The residual is the share of a normalized kernel row's squared length that the Nystrom formula leaves
        unexplained [B eq. 13]: 0 for a combination of the kept eigenvectors and the trivial one, 1 far away, where only
        one landmark counts."""
        rows = checks.rows_to_landmarks(to_landmarks, len(self.coordinates))
        loadings = self.coordinates / np.sqrt(self.degrees)[:, None] if self.clustering else self.coordinates
        # Sums (d + 2, p) are over affinities in units of each point's largest, which has the roots (p,).
        sums, roots = affinity_sums(rows, loadings, 1.0 / self.degrees, self.gamma, self.affinity)
        total = sums[-1]
        # NaN where no affinity is above 0.
        with np.errstate(invalid="ignore", divide="ignore"):
            means, squared_length = sums[:-2] / total, sums[-2] / total / total
            scale = np.maximum(np.sqrt(total) * roots, SMALLEST_ROOT)
            explained = np.full(len(roots), 0.0 if self.clustering else 1.0 / self.degrees.sum())
            coordinates = np.empty((len(roots), len(means)))
            for k, (mean, lam) in enumerate(zip(means, self.eigenvalues, strict=True)):
                coordinates[:, k] = mean / lam * scale if self.clustering else mean / (lam + (1.0 - lam) / total)
                explained += mean * mean
            residual = np.maximum(0.0, 1.0 - explained / squared_length)
        return Placement(coordinates, np.where(total > 0, residual, np.inf))


def laplacian_eigenmaps(between: ArrayLike, n_components: int, gamma: float, affinity: bool = False) -> NystromPlacer:
    """Embed landmarks by dissimilarities (m, m), not squared, like scikit-learn's SpectralEmbedding; with `affinity`,
    `between` holds the affinities themselves, and gamma is not used."""
    kernel, degrees = _normalized_kernel(between, n_components, gamma, affinity, clustering=False)
    trivial = np.sqrt(degrees / degrees.sum())
    # Removed from the spectrum rather than skipped: among groups without affinity 1 is a repeated eigenvalue, and the
    # first vector of its space is arbitrary.
    eigenvalues, vectors = eigenpairs(kernel - np.multiply.outer(trivial, trivial))
    others = np.delete(eigenvalues, np.argmin(np.abs(eigenvalues)))
    spectrum = np.concatenate([[1.0], others])
    _require_positive(n_components, count_positive(spectrum) - 1, "besides the trivial one")
    coordinates = np.ascontiguousarray(with_fixed_signs(vectors[:, :n_components] / np.sqrt(degrees)[:, None]))
    return NystromPlacer(coordinates, others[:n_components].copy(), spectrum, degrees, float(gamma), affinity, False)


def spectral_embedding(between: ArrayLike, n_components: int, gamma: float, affinity: bool = False) -> NystromPlacer:
    """Eigenvectors for spectral clustering, the first included [B sec. 2.2]; arguments as for `laplacian_eigenmaps`."""
    kernel, degrees = _normalized_kernel(between, n_components, gamma, affinity, clustering=True)
    spectrum, vectors = eigenpairs(kernel)
    _require_positive(n_components, count_positive(spectrum), "in all")
    coordinates = np.ascontiguousarray(with_fixed_signs(vectors[:, :n_components]))
    return NystromPlacer(coordinates, spectrum[:n_components].copy(), spectrum, degrees, float(gamma), affinity, True)


def cluster_centers(coordinates: ArrayLike, n_clusters: int, seed: int) -> FloatArray:
    """Centers (c, d) of the clusters of the directions of rows (m, d) [B sec. 2.2]: k-means on unit rows, the best of
    some seeded starts, numbered by their first row. Rows of zeros have no direction and are left out."""
    rows = np.ascontiguousarray(checks.finite_array("coordinates", coordinates, 2))
    rng = checks.generator(seed)
    units, has_direction = unit_rows(rows)
    units = units[has_direction]
    n_distinct = len(np.unique(units, axis=0))
    c = checks.integer_in_range("n_clusters", n_clusters, 1, n_distinct, f"there are {n_distinct} distinct directions")
    found = [_refined(units, _spread_start(units, c, rng)) for _ in range(RESTARTS)]
    centers = min(found, key=lambda centers: float(squared_distances(units, centers).min(axis=1).sum()))
    labels = squared_distances(units, centers).argmin(axis=1)
    return np.asarray(centers[np.argsort([np.argmax(labels == cluster) for cluster in range(c)])])


def cluster_labels(coordinates: AnyArray, centers: FloatArray) -> IntArray:
    """The cluster (p,) whose center is nearest to each row's direction, ties by number; NO_CLUSTER for rows of zeros or
    NaN. A label does not depend on other rows."""
    rows = np.ascontiguousarray(coordinates)
    units, has_direction = unit_rows(np.where(np.isfinite(rows).all(axis=1)[:, None], rows, 0.0))
    labels = np.full(len(rows), NO_CLUSTER)
    labels[has_direction] = squared_distances(units[has_direction], centers).argmin(axis=1)
    return labels


def _spread_start(units: FloatArray, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Rows drawn in turn with probability proportional to the squared distance from those before."""
    chosen = [int(rng.integers(len(units)))]
    nearest = squared_distances(units, units[chosen])[:, 0]
    while len(chosen) < n_clusters:
        chosen.append(int(rng.choice(len(units), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, squared_distances(units, units[chosen[-1:]])[:, 0])
    return np.asarray(units[chosen])


def _refined(units: FloatArray, centers: FloatArray) -> FloatArray:
    """Centers moved to the means of their rows until they rest; unused ones go to the farthest rows."""
    for _ in range(MOST_ROUNDS):
        squares = squared_distances(units, centers)
        labels = squares.argmin(axis=1)
        counts = np.bincount(labels, minlength=len(centers))
        sums = [np.bincount(labels, weights=column, minlength=len(centers)) for column in units.T]
        moved = np.stack(sums, axis=1) / np.maximum(counts, 1)[:, None]
        unused = np.flatnonzero(counts == 0)
        moved[unused] = units[np.argsort(-squares.min(axis=1), kind="stable")[: len(unused)]]
        if np.array_equal(moved, centers):
            break
        centers = moved
    return centers


def _landmark_kernel(
    between: ArrayLike, n_components: int, gamma: float, affinity: bool, clustering: bool
) -> FloatArray:
    """Affinities (m, m) between landmarks, given or from dissimilarities, with or without the diagonal."""
    values = np.array(checks.real_array("between", between, 2), dtype=np.float64)
    to_self = values.diagonal().copy()
    if affinity:
        checks.require_finite("between", values)
        checks.require_nonnegative("between", values)
        np.fill_diagonal(values, 0.0)
    matrix = checks.squared_dissimilarity_matrix("between", values)
    why = f"fewer than the {len(matrix)} landmarks"
    checks.integer_in_range("n_components", n_components, 1, len(matrix) - 1, why)
    if affinity:
        np.fill_diagonal(matrix, to_self if clustering else 0.0)
        return matrix
    checks.number_in_range("gamma", gamma, *GAMMA_RANGE)
    affinities = np.exp(-gamma * matrix**2)
    if not clustering:
        np.fill_diagonal(affinities, 0.0)
    return affinities


def _normalized_kernel(
    between: ArrayLike, n_components: int, gamma: float, affinity: bool, clustering: bool
) -> tuple[FloatArray, FloatArray]:
    """K_ij / sqrt(S_i S_j) between landmarks (m, m), and the degrees S (m,)."""
    kernel = _landmark_kernel(between, n_components, gamma, affinity, clustering)
    degrees = kernel.sum(axis=1)
    alone = np.flatnonzero(degrees < SMALLEST_DEGREE)
    if len(alone):
        raise InvalidInputError(
            f"{len(alone)} landmarks have no affinity to any other, first {', '.join(map(str, alone[:5]))}; use a "
            "smaller gamma, so that affinities reach farther, or leave those landmarks out."
        )
    roots = np.sqrt(degrees)
    return kernel / np.multiply.outer(roots, roots), degrees


def _require_positive(n_components: int, available: int, which: str) -> None:
    if n_components > available:
        remedy = f"use n_components from 1 to {available}, or another gamma" if available else "use another gamma"
        raise InvalidInputError(
            f"n_components={n_components} is more than the affinities support: their normalized kernel has {available} "
            f"positive eigenvalue{'s' * (available != 1)} {which}; {remedy}."
        )


@compiled
def affinity_sums(
    rows: AnyArray, factors: AnyArray, square_factors: AnyArray, gamma: float, affinity: bool
) -> tuple[FloatArray, FloatArray]:
    """Sums over landmarks of the affinities K of points, in units of each point's largest, and that one's root (p,).
    Affinities are exp(-gamma rows^2) or, with `affinity`, the rows (p, m) themselves. The sums (d + 2, p) are of K
    factors (m, d), of K^2 square_factors (m,), and of K; they run over the landmarks in order and stay in range however
    far a point is."""
    n_points, m = rows.shape
    d = factors.shape[1]
    sums, roots = np.empty((d + 2, n_points)), np.empty(n_points)
    totals = np.empty((d + 2, POINTS_PER_BLOCK))
    origins, terms = np.empty(POINTS_PER_BLOCK), np.empty(POINTS_PER_BLOCK)
    for first in range(0, n_points, POINTS_PER_BLOCK):
        size = min(POINTS_PER_BLOCK, n_points - first)
        block = rows[first : first + size]
        _find_origins(block, gamma, affinity, origins, roots[first : first + size])
        totals[:] = 0.0
        for i in range(m):
            _fill_affinities(block, i, gamma, affinity, origins, terms)
            for k in range(d):
                add_multiple(totals[k, :size], terms, factors[i, k])
            add_multiple(totals[d + 1, :size], terms, 1.0)
            for j in range(size):
                totals[d, j] += terms[j] * terms[j] * square_factors[i]
        sums[:, first : first + size] = totals[:, :size]
    return sums, roots


def nystrom_error(between: ArrayLike, to_landmarks: ArrayLike, sample: ArrayLike) -> float:
    """Relative error of the Nystrom approximation of a kernel between s points by the landmarks [G eq. 59].

    For kernel matrices A = between (m, m), B' = to_landmarks (s, m) and C = sample (s, s): ||C - B' A^+ B|| / ||C|| in
    the Frobenius norm, A^+ without eigenvalues below rounding.
    """
    a, b, c = (
        checks.finite_array(*named, 2).astype(np.float64)
        for named in (("between", between), ("to_landmarks", to_landmarks), ("sample", sample))
    )
    if a.shape != (b.shape[1], b.shape[1]) or c.shape != (len(b), len(b)):
        raise InvalidInputError(
            f"between has shape {a.shape}, to_landmarks {b.shape} and sample {c.shape}; they must be (m, m), (s, m) "
            "and (s, s)."
        )
    with threadpool_limits(1, "blas"):
        eigenvalues, vectors = scipy.linalg.eigh(a, driver="evd")
        kept = np.abs(eigenvalues) > len(a) * np.finfo(np.float64).eps * np.abs(eigenvalues).max()
        parts = b @ vectors[:, kept]
        missed = c - (parts / eigenvalues[kept]) @ parts.T
        return float(np.linalg.norm(missed) / np.linalg.norm(c))


@compiled
def _find_origins(block: AnyArray, gamma: float, affinity: bool, origins: AnyArray, roots: AnyArray) -> None:
    """The entry of each row with the largest affinity, and the root of that affinity."""
    for j in range(len(block)):
        origin = 0.0 if affinity else np.inf
        for i in range(block.shape[1]):
            value = np.float64(block[j, i])
            if affinity:
                origin = max(origin, value)
            elif value < origin:
                origin = value
        origins[j] = origin
        roots[j] = math.sqrt(origin) if affinity else math.exp(-0.5 * gamma * origin * origin)


@compiled
def _fill_affinities(block: AnyArray, i: int, gamma: float, affinity: bool, origins: AnyArray, terms: AnyArray) -> None:
    """Affinities of a block of points to landmark i, in units of each point's largest."""
    for j in range(len(block)):
        value, origin = np.float64(block[j, i]), origins[j]
        if value == 0.0 and affinity:
            terms[j] = 0.0
        elif affinity:
            terms[j] = value / origin
        else:
            terms[j] = math.exp(-gamma * (value - origin) * (value + origin))
