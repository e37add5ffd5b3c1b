"""Locally linear embedding from dissimilarities alone [B sec. 2.5, 4.4].

A point is written as a weighted mean of its k nearest landmarks, and its coordinates are the same mean of theirs. With
a the point's dissimilarities (p, m) and d those between landmarks (m, m), the local Gram matrix is G_jl = (a_j^2 +
a_l^2 - d_jl^2) / 2, the inner product of x_j - x and x_l - x. The weights W minimize w'Gw with sum 1, so they are
proportional to G^-1 e; the landmarks' coordinates are eigenvectors of M = (I - W)'(I - W).

If k exceeds the data's dimension, G is singular: `regularization` times its trace is added to the diagonal. If
dissimilarities are not Euclidean, G may be indefinite, and the added amount grows tenfold until it is not.

The lowest eigenvector of M, all ones, carries no information. It is moved to the top of the spectrum instead of
skipped: if neighbors form several groups, 0 is a repeated eigenvalue, and the first vector of its space is arbitrary.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.mds import Placement, with_fixed_signs
from pipeline.numerics.neighbors.products import insert
from pipeline.types import AnyArray, FloatArray, SparseArray

# Tenfold regularizations tried before all neighbors get the same weight, their limit.
MOST_TRIES = 30
NOBODY = -1


@dataclass(frozen=True, eq=False)
class LlePlacer:
    """Landmarks' coordinates (m, d), unit vectors, and the eigenvalues (d,) of M that belong to them, lowest first.
    between (m, m), n_neighbors and regularization determine the weights of other points. An eigenvalue of 0 up to
    rounding means that neighbors form separate groups, which that component tells apart."""

    coordinates: FloatArray
    eigenvalues: FloatArray
    between: FloatArray
    n_neighbors: int
    regularization: float
    residual_degree: ClassVar[int] = 2

    def place(self, to_landmarks: AnyArray) -> Placement:
        """The weighted mean of the nearest landmarks' coordinates [B eq. 16], ties by number; exactly a landmark's
        coordinates at dissimilarity 0 from it. The residual is the squared distance of the point from its weighted
        mean; 0 if dissimilarities are not Euclidean and make it negative."""
        rows = checks.rows_to_landmarks(to_landmarks, len(self.coordinates))
        neighbors, weights, residual = _reconstructed(rows, self.between, self.n_neighbors, self.regularization, False)
        return Placement(_averages(neighbors, weights, self.coordinates), residual)


def locally_linear(between: ArrayLike, n_components: int, n_neighbors: int, regularization: float = 1e-3) -> LlePlacer:
    """Embed landmarks by their dissimilarities (m, m), not squared. On Euclidean distances this equals scikit-learn's
    LocallyLinearEmbedding, and placing its transform."""
    apart = checks.squared_dissimilarity_matrix("between", between)
    m = len(apart)
    if m < 3:
        raise InvalidInputError(f"between has {m} landmarks; locally linear embedding needs at least 3.")
    d = checks.integer_in_range("n_components", n_components, 1, m - 1, f"fewer than the {m} landmarks")
    k = checks.integer_in_range(
        "n_neighbors", n_neighbors, 1, m - 1, f"or more landmarks: only the {m} landmarks are neighbors"
    )
    checks.require_parameter("regularization", regularization)
    share = float(regularization)
    neighbors, weights, _ = _reconstructed(apart, apart, k, share, True)
    W = scipy.sparse.csr_array((weights.ravel(), neighbors.ravel(), np.arange(0, m * k + 1, k)), shape=(m, m))
    eigenvalues, vectors = _lowest_pairs(W, d)
    return LlePlacer(vectors, eigenvalues, apart, k, share)


def _lowest_pairs(weights: SparseArray, n_components: int) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (d,) and vectors (m, d) of M = (I - W)'(I - W) from the lowest up, without the vector of ones."""
    m = weights.shape[0]
    matrix = (weights.T @ weights - weights.T - weights).toarray()
    np.fill_diagonal(matrix, matrix.diagonal() + 1.0)
    highest = np.abs(matrix).sum(axis=1).max()
    matrix += highest / m
    # The bytes of a decomposition depend on the number of threads.
    with threadpool_limits(1, "blas"):
        eigenvalues, vectors = scipy.linalg.eigh(matrix, driver="evd", overwrite_a=True, check_finite=False)
    return eigenvalues[:n_components].copy(), np.ascontiguousarray(with_fixed_signs(vectors[:, :n_components]))


@compiled
def _reconstructed(
    rows: AnyArray, between: AnyArray, k: int, regularization: float, are_landmarks: bool
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Each row's nearest landmarks (p, k), their weights (p, k) and the squared error (p,) of their mean. If the rows
    are the landmarks', none is its own neighbor."""
    neighbors = np.empty((len(rows), k), dtype=np.int64)
    weights, errors = np.empty((len(rows), k)), np.empty(len(rows))
    distances, gram, factor = np.empty(k), np.empty((k, k)), np.empty((k, k))
    for i in range(len(rows)):
        _find_nearest(rows[i], i if are_landmarks else NOBODY, distances, neighbors[i])
        if distances[0] == 0.0 and not are_landmarks:
            weights[i], errors[i] = 0.0, 0.0
            weights[i, 0] = 1.0
            continue
        size = _fill_gram(distances, neighbors[i], between, gram)
        _solve(gram, regularization, factor, weights[i])
        error = 0.0
        for j in range(k):
            for h in range(k):
                error += weights[i, j] * gram[j, h] * weights[i, h]
        errors[i] = max(0.0, error) * size * size
    return neighbors, weights, errors


@compiled
def _find_nearest(row: AnyArray, own: int, distances: AnyArray, neighbors: AnyArray) -> None:
    distances[:], neighbors[:] = np.inf, NOBODY
    last = len(distances) - 1
    for j in range(len(row)):
        if row[j] < distances[last] and j != own:
            insert(distances, neighbors, np.float64(row[j]), j)


@compiled
def _fill_gram(distances: AnyArray, neighbors: AnyArray, between: AnyArray, gram: AnyArray) -> float:
    """G in units of the largest distance, which is returned; weights do not depend on the unit."""
    k = len(distances)
    size = distances[k - 1] if distances[k - 1] > 0.0 else 1.0
    for j in range(k):
        for h in range(j + 1):
            a, b, c = distances[j] / size, distances[h] / size, between[neighbors[j], neighbors[h]] / size
            gram[j, h] = 0.5 * (a * a + b * b - c * c)
            gram[h, j] = gram[j, h]
    return float(size)


@compiled
def _solve(gram: AnyArray, regularization: float, factor: AnyArray, weights: AnyArray) -> None:
    """Weights of sum 1 proportional to (G + r I)^-1 e, with the least r tried that makes that positive definite."""
    k = len(weights)
    trace = 0.0
    for j in range(k):
        trace += gram[j, j]
    added = regularization * trace if trace > 0.0 else regularization
    for _ in range(MOST_TRIES):
        if _factorize(gram, added, factor):
            _substitute(factor, weights)
            return
        added *= 10.0
    weights[:] = 1.0 / k


@compiled
def _factorize(gram: AnyArray, added: float, factor: AnyArray) -> bool:
    """The lower Cholesky factor of G + added I; False if there is none."""
    for j in range(len(gram)):
        pivot = gram[j, j] + added
        for s in range(j):
            pivot -= factor[j, s] * factor[j, s]
        if not pivot > 0.0:
            return False
        factor[j, j] = math.sqrt(pivot)
        for h in range(j + 1, len(gram)):
            total = gram[h, j]
            for s in range(j):
                total -= factor[h, s] * factor[j, s]
            factor[h, j] = total / factor[j, j]
    return True


@compiled
def _substitute(factor: AnyArray, weights: AnyArray) -> None:
    """Solve with ones on the right, and divide by the sum, which is positive for a positive definite matrix."""
    k = len(weights)
    for j in range(k):
        total = 1.0
        for s in range(j):
            total -= factor[j, s] * weights[s]
        weights[j] = total / factor[j, j]
    sum_of_weights = 0.0
    for j in range(k - 1, -1, -1):
        total = weights[j]
        for s in range(j + 1, k):
            total -= factor[s, j] * weights[s]
        weights[j] = total / factor[j, j]
        sum_of_weights += weights[j]
    for j in range(k):
        weights[j] /= sum_of_weights


@compiled
def _averages(neighbors: AnyArray, weights: AnyArray, coordinates: AnyArray) -> FloatArray:
    averages = np.empty((len(neighbors), coordinates.shape[1]))
    for i in range(len(averages)):
        for c in range(averages.shape[1]):
            total = 0.0
            for j in range(weights.shape[1]):
                total += weights[i, j] * coordinates[neighbors[i, j], c]
            averages[i, c] = total
    return averages
