"""Locally linear embedding from dissimilarities: scikit-learn's from vectors, and its transform."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics.models import lle as module
from pipeline.numerics.models.lle import locally_linear

CASES = pytest.mark.parametrize(
    ("m", "n_columns", "d", "k", "regularization"),
    [(40, 3, 2, 5, 1e-3), (90, 3, 2, 12, 1e-3), (60, 10, 4, 7, 1e-2), (30, 3, 1, 29, 1e-3)],
)


def points_of(rng: np.random.Generator, m: int, n_columns: int) -> np.ndarray:
    if n_columns == 3:
        return make_swiss_roll(m, noise=0.2, random_state=int(rng.integers(1000)))[0]
    return rng.normal(size=(m, n_columns)) * np.linspace(3, 1, n_columns)


def rolled(rng: np.random.Generator, m: int = 80):
    landmarks, others = points_of(rng, m, 3), points_of(rng, 30, 3)
    return locally_linear(cdist(landmarks, landmarks), 2, 8), landmarks, others


def weights_of(point: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
    gram = (neighbors - point) @ (neighbors - point).T
    weights = np.linalg.solve(gram + 1e-3 * np.trace(gram) * np.eye(len(gram)), np.ones(len(gram)))
    return weights / weights.sum()


@CASES
def test_equals_scikit_learn_and_its_transform(rng, m, n_columns, d, k, regularization):
    landmarks, others = points_of(rng, m, n_columns), points_of(rng, 20, n_columns)
    reference = LocallyLinearEmbedding(n_neighbors=k, n_components=d, reg=regularization, eigen_solver="dense")
    expected = reference.fit_transform(landmarks)
    placer = locally_linear(cdist(landmarks, landmarks), d, k, regularization)
    placed = placer.place(cdist(others, landmarks)).coordinates
    assert placer.eigenvalues.sum() == pytest.approx(reference.reconstruction_error_, rel=1e-6, abs=1e-12)
    signs = np.sign((placer.coordinates * expected).sum(axis=0))
    np.testing.assert_allclose(placer.coordinates * signs, expected, atol=1e-6)
    np.testing.assert_allclose(placed * signs, reference.transform(others), atol=1e-6)


def test_placing_is_the_weighted_mean_of_the_neighbors_and_the_residual_its_squared_error(rng):
    placer, landmarks, others = rolled(rng)
    to_landmarks = cdist(others, landmarks)
    nearest = np.argsort(to_landmarks, axis=1)[:, :8]
    weights = np.array([weights_of(point, landmarks[near]) for point, near in zip(others, nearest, strict=True)])
    placement = placer.place(to_landmarks)
    np.testing.assert_allclose(
        placement.coordinates, (weights[:, :, None] * placer.coordinates[nearest]).sum(axis=1), atol=1e-9
    )
    means = (weights[:, :, None] * landmarks[nearest]).sum(axis=1)
    np.testing.assert_allclose(placement.residual, ((others - means) ** 2).sum(axis=1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_landmark_is_placed_on_itself_exactly(rng, dtype):
    placer, landmarks, _ = rolled(rng)
    placement = placer.place(cdist(landmarks, landmarks).astype(dtype))
    np.testing.assert_array_equal(placement.coordinates, placer.coordinates)
    np.testing.assert_array_equal(placement.residual, 0)


def test_a_row_has_the_same_bytes_whatever_stands_beside_it(rng):
    placer, landmarks, others = rolled(rng)
    to_landmarks = cdist(others, landmarks)
    together = placer.place(to_landmarks)
    for rows in (slice(0, 1), slice(3, 30), slice(None, None, -2)):
        alone = placer.place(to_landmarks[rows])
        np.testing.assert_array_equal(alone.coordinates, together.coordinates[rows])
        np.testing.assert_array_equal(alone.residual, together.residual[rows])
    assert placer.place(to_landmarks[:0]).coordinates.shape == (0, 2)


def test_of_equally_near_landmarks_the_first_are_taken():
    """A point in the middle of a square: with two neighbors of four, the first two."""
    landmarks = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [9.0, 9.0]])
    placer = locally_linear(cdist(landmarks, landmarks), 1, 2)
    placement = placer.place(np.full((1, 5), np.sqrt(2)))
    np.testing.assert_allclose(placement.coordinates[0], placer.coordinates[:2].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(placement.residual, 1.0, rtol=1e-12)


@pytest.mark.parametrize("size", [1e-200, 1e-9, 1e9, 1e100])
def test_weights_do_not_depend_on_the_unit_of_the_dissimilarities(rng, size):
    landmarks, others = rng.normal(size=(20, 2)), rng.normal(size=(10, 2))
    between, to_landmarks = cdist(landmarks, landmarks), cdist(others, landmarks)
    _, expected, errors = module._reconstructed(to_landmarks, between, 5, 1e-3, False)
    _, found, scaled_errors = module._reconstructed(to_landmarks * size, between * size, 5, 1e-3, False)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(scaled_errors, errors * size * size, rtol=1e-6)


def test_dissimilarities_that_are_not_euclidean_have_finite_weights_of_sum_one(rng):
    """Local Gram matrices of such are indefinite far beyond the regularization."""
    between = rng.exponential(size=(30, 30))
    between = np.triu(between, 1) + np.triu(between, 1).T
    rows = rng.exponential(size=(50, 30)) ** 2
    gram = 0.5 * (rows[0, :6, None] ** 2 + rows[0, :6] ** 2 - between[:6, :6] ** 2)
    assert np.linalg.eigvalsh(gram)[0] < -1e-3 * np.trace(gram)
    _, weights, errors = module._reconstructed(rows, between, 6, 1e-3, False)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-9)
    assert (errors >= 0).all()
    placement = locally_linear(between, 2, 6).place(rows)
    assert np.isfinite(placement.coordinates).all()


def test_neighbors_that_contradict_each_other_beyond_measure_weigh_the_same():
    between = np.array([[0.0, 1e60, 1.0], [1e60, 0.0, 1.0], [1.0, 1.0, 0.0]])
    _, weights, _ = module._reconstructed(np.array([[1.0, 1.0, 3.0]]), between, 2, 1e-3, False)
    np.testing.assert_array_equal(weights, 0.5)


def test_duplicates_among_landmarks_are_harmless(rng):
    landmarks = np.repeat(rng.normal(size=(10, 3)), 3, axis=0)
    placer = locally_linear(cdist(landmarks, landmarks), 2, 2)
    assert np.isfinite(placer.coordinates).all()
    assert np.isfinite(placer.place(cdist(rng.normal(size=(5, 3)), landmarks)).coordinates).all()


def test_separate_groups_are_told_apart_by_components_of_eigenvalue_zero(rng):
    """The vector of ones is left out although 0 is then a repeated eigenvalue."""
    landmarks = np.concatenate([rng.normal(size=(20, 3)), rng.normal(size=(25, 3)) + 100])
    placer = locally_linear(cdist(landmarks, landmarks), 2, 6)
    assert abs(placer.eigenvalues[0]) < 1e-12 < placer.eigenvalues[1]
    first, second = placer.coordinates[:20, 0], placer.coordinates[20:, 0]
    assert np.ptp(first) < 1e-6
    assert np.ptp(second) < 1e-6
    assert first[0] * second[0] < 0


def test_coordinates_are_centered_unit_vectors_of_the_same_bytes_on_any_number_of_threads(rng):
    placer, landmarks, _ = rolled(rng)
    np.testing.assert_allclose(placer.coordinates.T @ placer.coordinates, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(placer.coordinates.sum(axis=0), 0, atol=1e-7)
    with threadpool_limits(2):
        again = locally_linear(cdist(landmarks, landmarks), 2, 8)
    np.testing.assert_array_equal(again.coordinates, placer.coordinates)


SQUARE = cdist(np.eye(5), np.eye(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SQUARE[:2, :2], 1, 1), r"between has 2 landmarks; .* at least 3"),
        ((SQUARE, 5, 2), r"n_components=5 is out of range; use one from 1 to 4"),
        ((SQUARE, 2, 5), r"n_neighbors=5 is out of range; use one from 1 to 4"),
        ((SQUARE, 2, 2, 0.0), r"regularization=0.0 is out of range"),
        ((SQUARE - 1, 2, 2), r"between has a negative entry"),
    ],
)
def test_what_cannot_be_embedded_is_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        locally_linear(*arguments)


@pytest.mark.parametrize(
    ("rows", "message"),
    [(np.ones((2, 4)), r"must be \(n_points, 5\)"), (np.full((1, 5), np.nan), r"NaN"), (-np.ones((1, 5)), r"negative")],
)
def test_what_cannot_be_placed_is_refused(rng, rows, message):
    landmarks = rng.normal(size=(5, 3))
    with pytest.raises(InvalidInputError, match=message):
        locally_linear(cdist(landmarks, landmarks), 2, 3).place(rows)
