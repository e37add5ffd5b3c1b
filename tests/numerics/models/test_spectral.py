"""Spectral methods: scikit-learn's and the papers' formulas, landmarks on themselves, clusters as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_circles
from sklearn.manifold import SpectralEmbedding
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics.models import spectral
from pipeline.numerics.models.metrics import automatic_gamma_of
from pipeline.numerics.models.spectral import (
    NO_CLUSTER,
    cluster_centers,
    cluster_labels,
    laplacian_eigenmaps,
    nystrom_error,
    spectral_embedding,
)

GAMMA = 0.3
EVERY_METHOD = pytest.mark.parametrize("embed", [laplacian_eigenmaps, spectral_embedding])


@pytest.fixture
def landmarks(rng):
    return rng.normal(size=(60, 3)) * np.array([3.0, 2.0, 1.0])


@pytest.fixture
def others(rng):
    return rng.normal(size=(25, 3)) * np.array([3.0, 2.0, 1.0])


def up_to_sign(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return found * np.sign((found * expected).sum(axis=0))


def normalized(kernel: np.ndarray) -> np.ndarray:
    degrees = kernel.sum(axis=1)
    return kernel / np.sqrt(np.outer(degrees, degrees))


def test_laplacian_eigenmaps_equal_scikit_learn(landmarks):
    expected = SpectralEmbedding(4, affinity="rbf", gamma=GAMMA, random_state=0).fit_transform(landmarks)
    found = laplacian_eigenmaps(cdist(landmarks, landmarks), 4, GAMMA).coordinates
    np.testing.assert_allclose(up_to_sign(found, expected), expected, atol=1e-6)


def test_given_affinities_equal_scikit_learn_whatever_stands_on_the_diagonal(rng, landmarks):
    affinities = 1 / (1 + cdist(landmarks, landmarks))
    expected = SpectralEmbedding(3, affinity="precomputed", random_state=0).fit_transform(affinities)
    np.fill_diagonal(affinities, rng.exponential(size=60))
    found = laplacian_eigenmaps(affinities, 3, 0.0, affinity=True).coordinates
    np.testing.assert_allclose(up_to_sign(found, expected), expected, atol=1e-6)


@pytest.mark.parametrize("affinity", [False, True])
def test_spectral_embedding_is_that_of_the_normalized_kernel_with_its_diagonal(landmarks, affinity):
    kernel = rbf_kernel(landmarks, gamma=GAMMA)
    eigenvalues, vectors = np.linalg.eigh(normalized(kernel))
    found = spectral_embedding(kernel if affinity else cdist(landmarks, landmarks), 4, GAMMA, affinity)
    np.testing.assert_allclose(up_to_sign(found.coordinates, vectors[:, :-5:-1]), vectors[:, :-5:-1], atol=1e-9)
    np.testing.assert_allclose(found.eigenvalues, eigenvalues[:-5:-1], atol=1e-12)
    np.testing.assert_allclose(found.spectrum, eigenvalues[::-1], atol=1e-12)


def test_the_spectrum_of_laplacian_eigenmaps_is_that_of_the_normalized_kernel_without_diagonal(landmarks):
    kernel = rbf_kernel(landmarks, gamma=GAMMA)
    np.fill_diagonal(kernel, 0)
    found = laplacian_eigenmaps(cdist(landmarks, landmarks), 2, GAMMA)
    np.testing.assert_allclose(found.spectrum, np.linalg.eigvalsh(normalized(kernel))[::-1], atol=1e-12)
    np.testing.assert_array_equal(found.eigenvalues, found.spectrum[1:3])


@EVERY_METHOD
@pytest.mark.parametrize("affinity", [False, True])
def test_new_points_are_placed_by_the_formula_of_the_paper(landmarks, others, embed, affinity):
    """y_k = 1/lam_k sum_i v_ki K~(x, x_i), K~ = 1/m K / sqrt(E_x[K] E_x'[K]) [B eq. 11, sec. 4.2]; the residual is the
    share of sum_i (K~(x, x_i) - sum_t lam_t y_t v_ti)^2 [B eq. 13], trivial vector included. Without the diagonal
    1/lam_k becomes S / (lam_k S + (1 - lam_k) max K)."""
    m, d, kernel, to_others = 60, 3, rbf_kernel(landmarks, gamma=GAMMA), rbf_kernel(others, landmarks, gamma=GAMMA)
    if embed is laplacian_eigenmaps:
        np.fill_diagonal(kernel, 0)
    eigenvalues, vectors = (part[..., ::-1] for part in np.linalg.eigh(normalized(kernel)))
    extended = to_others / m / np.sqrt(np.outer(to_others.mean(axis=1), kernel.mean(axis=1)))
    used = slice(1, d + 1) if embed is laplacian_eigenmaps else slice(0, d)
    kept = slice(0, used.stop)
    y = extended @ vectors / eigenvalues
    expected = y[:, used]
    if embed is laplacian_eigenmaps:
        lam, S = eigenvalues[used], to_others.sum(axis=1)[:, None]
        expected = expected / np.sqrt(S) * lam * S / (lam * S + (1 - lam) * to_others.max(axis=1)[:, None])
    misfit = ((extended - (y * eigenvalues)[:, kept] @ vectors[:, kept].T) ** 2).sum(axis=1)

    placer = embed(kernel, d, 0.0, True) if affinity else embed(cdist(landmarks, landmarks), d, GAMMA)
    placement = placer.place(to_others if affinity else cdist(others, landmarks))
    np.testing.assert_allclose(up_to_sign(placement.coordinates, expected), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(placement.residual, misfit / (extended**2).sum(axis=1), atol=1e-9)


@EVERY_METHOD
def test_landmarks_are_placed_on_themselves(landmarks, embed):
    between = cdist(landmarks, landmarks)
    placer = embed(between, 5, GAMMA)
    np.testing.assert_allclose(placer.place(between).coordinates, placer.coordinates, atol=1e-12)


@EVERY_METHOD
def test_landmarks_are_placed_on_themselves_by_given_affinities(landmarks, embed):
    affinities = rbf_kernel(landmarks, gamma=GAMMA)
    placer = embed(affinities, 3, 0.0, affinity=True)
    np.testing.assert_allclose(placer.place(affinities).coordinates, placer.coordinates, atol=1e-12)


@EVERY_METHOD
def test_landmarks_that_coincide_share_a_place_and_return_to_it(landmarks, embed):
    doubled = np.concatenate([landmarks, landmarks[:7]])
    between = cdist(doubled, doubled)
    placer = embed(between, 3, GAMMA)
    np.testing.assert_allclose(placer.coordinates[:7], placer.coordinates[60:], atol=1e-12)
    np.testing.assert_allclose(placer.place(between).coordinates, placer.coordinates, atol=1e-12)


@EVERY_METHOD
@given(seed=st.integers(0, 2**32 - 1), gamma=st.floats(0.3, 3.0), affinity=st.booleans())
def test_a_point_beside_a_landmark_is_placed_beside_it(embed, seed, gamma, affinity):
    rng = np.random.default_rng(seed)
    landmarks = 2 * rng.normal(size=(20, 3))
    between, beside = cdist(landmarks, landmarks), cdist(landmarks + 1e-9 * rng.normal(size=(20, 3)), landmarks)
    if affinity:
        between, beside = np.exp(-gamma * between**2), np.exp(-gamma * beside**2)
    placer = embed(between, 1, gamma, affinity)
    found = placer.place(beside).coordinates
    np.testing.assert_allclose(found, placer.coordinates, rtol=0, atol=1e-6 * np.abs(placer.coordinates).max())


def test_the_scale_of_given_affinities_does_not_matter(landmarks, others):
    affinities, to_others = rbf_kernel(landmarks, gamma=GAMMA), rbf_kernel(others, landmarks, gamma=GAMMA)
    expected = laplacian_eigenmaps(affinities, 3, 0.0, affinity=True).place(to_others).coordinates
    # Coordinates are v / sqrt(S), so those of all scale with the root; a point's own row has no scale.
    scaled = laplacian_eigenmaps(affinities * 1e6, 3, 0.0, affinity=True)
    for factor in (1e-9, 1.0, 1e6):
        np.testing.assert_allclose(1e3 * scaled.place(factor * to_others).coordinates, expected, rtol=1e-9)


@pytest.mark.parametrize("far", [1e2, 1e8, 1e100])
def test_far_points_go_with_the_nearest_landmark(landmarks, far):
    """All affinities are 0 in double precision, and yet one is beyond measure larger than the others."""
    rows, nearest, between = np.full((1, 60), 2 * far), 17, cdist(landmarks, landmarks)
    rows[0, nearest] = far
    smooth, clustering = laplacian_eigenmaps(between, 3, GAMMA), spectral_embedding(between, 3, GAMMA)
    np.testing.assert_allclose(smooth.place(rows).coordinates[0], smooth.coordinates[nearest], rtol=1e-12)
    placement = clustering.place(rows)
    found, expected = placement.coordinates[0], clustering.coordinates[nearest] / clustering.eigenvalues
    np.testing.assert_allclose(found / np.linalg.norm(found), expected / np.linalg.norm(expected), rtol=1e-12)
    assert 0 < np.abs(found.astype(np.float32)).min() < np.abs(found).max() < 1e-29
    assert 0 <= placement.residual[0] <= 1


def test_the_residual_grows_away_from_the_landmarks(rng):
    ring = 10 * np.stack([np.cos(np.arange(100) / 100 * 2 * np.pi), np.sin(np.arange(100) / 100 * 2 * np.pi)], axis=1)
    placer = laplacian_eigenmaps(cdist(ring, ring), 4, 0.2)
    residuals = [placer.place(cdist(ring[:5] * factor, ring)).residual.min() for factor in (1.001, 1.5, 3.0)]
    assert 0 < residuals[0] < residuals[1] < residuals[2] < 1


@EVERY_METHOD
def test_a_point_without_any_affinity_has_no_place(landmarks, embed):
    placer = embed(rbf_kernel(landmarks, gamma=GAMMA), 2, 0.0, affinity=True)
    placement = placer.place(np.zeros((2, 60)))
    assert np.isnan(placement.coordinates).all()
    assert np.isinf(placement.residual).all()
    np.testing.assert_array_equal(cluster_labels(placement.coordinates, np.eye(2)), NO_CLUSTER)


@EVERY_METHOD
@pytest.mark.parametrize("affinity", [False, True])
def test_a_row_has_the_same_bytes_whatever_stands_beside_it(rng, landmarks, embed, affinity):
    points = rng.normal(size=(300, 3))
    rows = cdist(points, landmarks)
    between = rbf_kernel(landmarks, gamma=GAMMA) if affinity else cdist(landmarks, landmarks)
    placer = embed(between, 3, GAMMA, affinity)
    together = placer.place(rows)
    for part in (slice(0, 1), slice(100, 290), slice(299, 300)):
        alone = placer.place(rows[part])
        np.testing.assert_array_equal(alone.coordinates, together.coordinates[part])
        np.testing.assert_array_equal(alone.residual, together.residual[part])
    assert placer.place(rows[:0]).coordinates.shape == (0, 3)


def test_rows_in_single_precision_and_column_by_column(landmarks, others):
    rows = cdist(others, landmarks).astype(np.float32)
    placer = laplacian_eigenmaps(cdist(landmarks, landmarks), 3, GAMMA)
    expected = placer.place(rows.astype(np.float64)).coordinates
    np.testing.assert_array_equal(placer.place(rows).coordinates, expected)
    np.testing.assert_array_equal(placer.place(np.asfortranarray(rows)).coordinates, expected)


@EVERY_METHOD
def test_the_fit_has_the_same_bytes_on_any_number_of_threads(landmarks, embed):
    between = cdist(landmarks, landmarks)
    with threadpool_limits(2):
        found = embed(between, 3, GAMMA)
    np.testing.assert_array_equal(found.coordinates, embed(between, 3, GAMMA).coordinates)


def test_groups_without_affinity_are_told_apart_by_the_first_component(rng):
    """1 is a repeated eigenvalue then; the trivial vector must be the one left out."""
    points = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(30, 2)) + 1000])
    placer = laplacian_eigenmaps(cdist(points, points), 2, 1.0)
    assert placer.eigenvalues[0] == pytest.approx(1, abs=1e-12)
    first, second = placer.coordinates[:20, 0], placer.coordinates[20:, 0]
    assert np.ptp(first) < 1e-10
    assert np.ptp(second) < 1e-10
    assert first[0] * second[0] < 0


def rings(seed: int, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    return make_circles(n_points, noise=0.03, factor=0.4, random_state=seed)


def blobs(seed: int, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    centers = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    return make_blobs(n_points, centers=centers, random_state=seed)


@pytest.mark.parametrize(("data", "n_clusters", "gamma"), [(rings, 2, 30.0), (blobs, 3, 0.5)])
def test_clusters_of_landmarks_and_of_new_points_are_the_true_ones(data, n_clusters, gamma):
    landmarks, truth = data(0, 150)
    points, truth_of_points = data(1, 200)
    placer = spectral_embedding(cdist(landmarks, landmarks), n_clusters, gamma)
    centers = cluster_centers(placer.coordinates, n_clusters, seed=0)
    labels = cluster_labels(placer.coordinates, centers)
    to_truth = np.array([np.bincount(truth[labels == cluster]).argmax() for cluster in range(n_clusters)])
    np.testing.assert_array_equal(to_truth[labels], truth)
    placed = placer.place(cdist(points, landmarks)).coordinates
    np.testing.assert_array_equal(to_truth[cluster_labels(placed, centers)], truth_of_points)
    if data is rings:
        plain = KMeans(2, n_init=5, random_state=0).fit_predict(landmarks)
        assert 0.3 < np.mean(plain == truth) < 0.7


def test_centers_are_as_good_as_those_of_scikit_learn(rng):
    rows = rng.normal(size=(400, 4))
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centers = cluster_centers(rows, 8, seed=1)
    inertia = cdist(units, centers, "sqeuclidean").min(axis=1).sum()
    assert inertia <= 1.02 * KMeans(8, n_init=10, random_state=0).fit(units).inertia_
    labels = cdist(units, centers).argmin(axis=1)
    means = np.array([units[labels == cluster].mean(axis=0) for cluster in range(8)])
    np.testing.assert_allclose(centers, means, atol=1e-12)


def test_clusters_are_numbered_as_rows_first_belong_to_them_whatever_the_seed(rng):
    directions = np.eye(4)[[2, 2, 0, 3, 0, 1, 3]] * rng.uniform(1, 5, size=(7, 1))
    for seed in range(5):
        centers = cluster_centers(directions, 4, seed)
        np.testing.assert_array_equal(cluster_labels(directions, centers), [0, 0, 1, 2, 1, 3, 2])


def test_the_same_seed_gives_the_same_bytes(rng):
    rows = rng.normal(size=(200, 5))
    np.testing.assert_array_equal(cluster_centers(rows, 6, 3), cluster_centers(rows, 6, 3))


def test_rows_without_direction_belong_to_no_cluster(rng):
    centers = cluster_centers(np.concatenate([np.zeros((3, 2)), np.eye(2), 2 * np.eye(2)]), 2, 0)
    np.testing.assert_array_equal(centers, np.eye(2))
    rows = np.array([[0.0, 0.0], [np.nan, 1.0], [1e-200, 0.0], [0.0, 1e200], [-1.0, -1.0]])
    np.testing.assert_array_equal(cluster_labels(rows, centers), [NO_CLUSTER, NO_CLUSTER, 0, 1, 0])
    assert cluster_labels(rows, centers).dtype == np.int64
    assert cluster_labels(np.empty((0, 2)), centers).shape == (0,)


def test_labels_do_not_depend_on_the_rows_beside(rng):
    rows, centers = rng.normal(size=(100, 3)), rng.normal(size=(7, 3))
    together = cluster_labels(rows, centers)
    np.testing.assert_array_equal(np.concatenate([cluster_labels(row[None], centers) for row in rows]), together)


def test_a_center_that_nothing_is_nearest_to_goes_to_the_farthest_row():
    units = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    start = np.array([[0.5, 0.5], [-0.9, 0.0], [50.0, 50.0]])
    found = spectral._refined(units, start)
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(units, axis=0))


def test_gamma_and_the_error_of_the_approximation_can_be_had_here(landmarks):
    assert automatic_gamma_of(cdist(landmarks, landmarks)) > 0
    kernel = rbf_kernel(landmarks, gamma=GAMMA)
    assert nystrom_error(kernel, kernel, kernel) < 1e-12


EQUIDISTANT = np.ones((5, 5)) - np.eye(5)
LINE = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: laplacian_eigenmaps(EQUIDISTANT, 1, 1.0),
            r"has 0 positive eigenvalues besides the trivial one",
        ),
        (lambda: laplacian_eigenmaps(LINE, 5, 0.5), r"n_components=5 is more than .* use n_components from 1 to 2"),
        (lambda: spectral_embedding(np.ones((4, 4)), 2, 0.0, True), r"has 1 positive eigenvalue in all"),
        (lambda: laplacian_eigenmaps(LINE, 6, 0.5), r"n_components=6 is out of range; use one from 1 to 5"),
        (lambda: laplacian_eigenmaps(LINE * 1e3, 2, 1.0), r"6 landmarks have no affinity to any other, first 0, 1"),
        (lambda: spectral_embedding(LINE, 2, 0.0), r"gamma=0.0 is out of range"),
        (lambda: spectral_embedding(LINE - 1, 2, 0.0, True), r"between has a negative entry"),
        (lambda: spectral_embedding(np.triu(LINE), 2, 0.0, True), r"between is not symmetric"),
        (lambda: spectral_embedding(LINE[:4], 2, 1.0), r"must be square"),
        (lambda: spectral_embedding(LINE, 2, 1.0).place(np.ones((2, 5))), r"must be \(n_points, 6\)"),
        (lambda: cluster_centers(np.ones((5, 2)), 2, 0), r"n_clusters=2 .*there are 1 distinct directions"),
        (lambda: cluster_centers([[np.nan, 1.0]], 1, 0), r"coordinates has 1 NaN"),
        (lambda: cluster_centers(np.eye(2), 2, -1), r"seed=-1 is out of range"),
    ],
)
def test_what_cannot_be_done_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
