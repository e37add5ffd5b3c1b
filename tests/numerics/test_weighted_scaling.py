"""Classical scaling of landmarks that count by weights: that of landmarks repeated, and every form that follows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import (
    joint_restricted_reconstruction,
    project,
    reconstruction_arc,
    restricted_reconstruction,
)
from pipeline.numerics.mds import MomentSums, classical_mds, landmark_moments
from pipeline.numerics.models.catalog import Choice, additive_constant, fitted_model, with_constant

SEEDS = st.integers(0, 2**32 - 1)
NEW = 4


def dissimilarities(seed: int, m: int, power: float = 0.7) -> np.ndarray:
    """Squared, of m landmarks and a few new points; Euclidean ones for the power 1."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m + NEW, 5)) * np.array([3, 2, 1, 0.5, 0.3])
    return cdist(points, points, "sqeuclidean") ** power


def weighted(seed: int, m: int, d: int, power: float = 0.7):
    """A model of weighted landmarks, its shares, and the squared dissimilarities of other points to the landmarks."""
    squared = dissimilarities(seed, m, power)
    counts = np.random.default_rng([seed, 1]).integers(1, 30, m)
    model = classical_mds(squared[:m, :m], d, weights=counts)
    return model, counts / counts.sum(), squared[m:, :m]


@given(SEEDS, st.integers(4, 12), st.sampled_from([(0.4, 2), (1.0, 2), (1.3, 1)]))
def test_equals_the_scaling_of_landmarks_repeated_as_often_as_they_count(seed, m, power_and_components):
    power, d = power_and_components
    squared = dissimilarities(seed, m, power)[:m, :m]
    counts = np.random.default_rng([seed, 1]).integers(1, 6, m)
    each = np.repeat(np.arange(m), counts)
    model, repeated = classical_mds(squared, d, weights=counts), classical_mds(squared[np.ix_(each, each)], d)
    scale = np.abs(repeated.coordinates).max()
    np.testing.assert_allclose(model.coordinates[each], repeated.coordinates, atol=1e-9 * scale)
    np.testing.assert_allclose(model.eigenvalues * len(each) / m, repeated.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(model.row_means[each], repeated.row_means, rtol=1e-9)
    assert model.grand_mean == pytest.approx(repeated.grand_mean, rel=1e-9)
    for name in ("negative_mass", "explained_mass"):
        assert getattr(model, name) == pytest.approx(getattr(repeated, name), abs=1e-9)
    assert model.n_positive == repeated.n_positive


@given(SEEDS, st.integers(4, 12))
def test_repeated_landmarks_place_new_points_alike(seed, m):
    squared = dissimilarities(seed, m)
    counts = np.random.default_rng([seed, 1]).integers(1, 6, m)
    each = np.repeat(np.arange(m), counts)
    model, repeated = classical_mds(squared[:m, :m], 2, weights=counts), classical_mds(squared[np.ix_(each, each)], 2)
    ours, theirs = landmark_moments(model, squared[m:, :m]), landmark_moments(repeated, squared[m:][:, each])
    np.testing.assert_allclose(ours.beta, theirs.beta, rtol=1e-9)
    # lam and c count m landmarks or all copies, and so does the weight of restricted reconstruction.
    scale = np.abs(theirs.inner).max()
    np.testing.assert_allclose(ours.inner * len(each) / m, theirs.inner, rtol=1e-8, atol=1e-9 * scale)
    ones = restricted_reconstruction(model, squared[m:, :m], 1.0)
    all_copies = restricted_reconstruction(repeated, squared[m:][:, each], len(each) / m)
    np.testing.assert_allclose(ones.coordinates, all_copies.coordinates, atol=1e-7)


@given(SEEDS, st.integers(5, 15))
def test_coordinates_are_centered_and_orthogonal_by_weight(seed, m):
    model, shares, _ = weighted(seed, m, 3)
    X, W = model.coordinates, np.diag(m * shares)
    np.testing.assert_allclose(shares @ X, 0, atol=1e-9)
    np.testing.assert_allclose(X.T @ W @ X, np.diag(model.eigenvalues), atol=1e-9 * model.eigenvalues[0])
    np.testing.assert_allclose(model.weights, m * shares)


@given(SEEDS, st.integers(5, 15))
def test_landmarks_return_to_their_places(seed, m):
    squared, (model, _, _) = dissimilarities(seed, m)[:m, :m], weighted(seed, m, 3)
    np.testing.assert_allclose(project(model, squared), model.coordinates, atol=1e-9)


@given(SEEDS, st.integers(5, 15))
def test_projection_is_the_weighted_least_squares_fit_of_the_inner_products(seed, m):
    model, shares, rows = weighted(seed, m, 3)
    roots = np.sqrt(m * shares)[:, None]
    expected, *_ = np.linalg.lstsq(roots * model.coordinates, roots * inner_products(model, shares, rows).T, rcond=None)
    np.testing.assert_allclose(project(model, rows), expected.T, atol=1e-8)


def inner_products(model, shares, rows):
    """b (p, m), of new points with the landmarks from the weighted centroid."""
    return -0.5 * (rows - (rows @ shares)[:, None] - model.row_means + model.grand_mean)


@settings(max_examples=15)
@given(SEEDS, st.integers(5, 10), st.sampled_from([0.2, 1.0, 20.0]))
def test_restricted_reconstruction_minimizes_the_weighted_objective(seed, m, weight):
    model, shares, rows = weighted(seed, m, 2)
    W, b = m * shares, inner_products(model, shares, rows)
    beta = rows @ shares - model.grand_mean / 2
    found = restricted_reconstruction(model, rows, weight)

    def objective(y, i):
        return 2 * W @ (model.coordinates @ y - b[i]) ** 2 + weight * (y @ y - beta[i]) ** 2

    starts = np.random.default_rng(seed).normal(size=(4, 2)) * 3
    for i in range(NEW):
        best = min(minimize(objective, start, args=(i,)).fun for start in starts)
        assert objective(found.coordinates[i], i) <= best + 1e-8 * (1 + abs(best))
        constant = 2 * W @ b[i] ** 2
        assert found.objective[i] + constant == pytest.approx(objective(found.coordinates[i], i), rel=1e-6)


@given(SEEDS, st.integers(5, 10))
def test_the_arc_joins_the_two_answers(seed, m):
    model, _, rows = weighted(seed, m, 2)
    arc = reconstruction_arc(model, rows[0], 9)
    np.testing.assert_array_equal(arc[0], project(model, rows)[0])
    np.testing.assert_array_equal(arc[-1], restricted_reconstruction(model, rows).coordinates[0])


def test_joint_reconstruction_minimizes_the_weighted_objective():
    for seed in range(3):
        m, squared = 8, dissimilarities(seed, 8)
        model, shares, rows = weighted(seed, m, 2)
        W, b, means = m * shares, inner_products(model, shares, rows), rows @ shares
        gram = -0.5 * (squared[m:, m:] - means[:, None] - means + model.grand_mean)

        def objective(y, model=model, W=W, b=b, gram=gram):
            Y = y.reshape(NEW, 2)
            return 2 * (W[:, None] * (model.coordinates @ Y.T - b.T) ** 2).sum() + ((Y @ Y.T - gram) ** 2).sum()

        found = objective(joint_restricted_reconstruction(model, rows, squared[m:, m:]).coordinates)
        starts = np.random.default_rng(seed).normal(size=(20, NEW * 2)) * 2
        assert found <= min(minimize(objective, start).fun for start in starts) * (1 + 1e-7)


@given(SEEDS, st.integers(2, 20))
def test_equal_weights_are_none(seed, m):
    squared = dissimilarities(seed, m)
    plain, equal = classical_mds(squared[:m, :m], 1), classical_mds(squared[:m, :m], 1, weights=np.full(m, 7.0))
    np.testing.assert_allclose(equal.coordinates, plain.coordinates, atol=1e-9)
    np.testing.assert_allclose(project(equal, squared[m:, :m]), project(plain, squared[m:, :m]), atol=1e-8)


def test_moments_do_not_depend_on_batches_of_landmarks():
    model, _, rows = weighted(0, 13, 3)
    whole, parts = MomentSums(model, NEW), MomentSums(model, NEW)
    lengths = np.sqrt(rows)
    whole.add(lengths)
    for some in (slice(0, 4), slice(4, 5), slice(5, 13)):
        parts.add(np.ascontiguousarray(lengths[:, some]))
    for one, other in zip(whole.moments(), parts.moments(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_draw_the_axes_to_where_the_points_are():
    """Two crossed lines: the first axis is that of the heavier one."""
    line = np.linspace(-1, 1, 9)[:, None]
    cross = np.vstack([line * [1.1, 0], line * [0, 1]])
    squared = cdist(cross, cross, "sqeuclidean")
    for heavy, axis in ((slice(0, 9), 0), (slice(9, 18), 1)):
        weights = np.ones(18)
        weights[heavy] = 5
        first = classical_mds(squared, 2, weights=weights).coordinates[:, 0]
        np.testing.assert_allclose(np.abs(first), np.abs(cross[:, axis]), atol=1e-9)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, 2, 3], "weights holds 3 numbers; give one for each of the 6 objects"),
        ([1, 1, 1, 1, 0, 1], "weights has 1 entries that are not positive, the lowest 0"),
        ([1, 1, np.nan, 1, 1, 1], "weights"),
        ([[1] * 6], "weights"),
    ],
)
def test_weights_that_mean_nothing_are_refused(weights, words):
    with pytest.raises(InvalidInputError, match=words):
        classical_mds(dissimilarities(0, 6)[:6, :6], 2, weights=weights)


def kernel_problem(seed: int, m: int):
    """Dissimilarities, not squared, that are far from Euclidean, and counts."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m + NEW, 3))
    counts = rng.integers(1, 20, m)
    return cdist(points, points, "sqeuclidean") ** 0.8, counts


@given(SEEDS, st.integers(5, 15))
def test_the_constant_is_the_least_that_makes_the_weighted_gram_matrix_semidefinite(seed, m):
    between, counts = kernel_problem(seed, m)
    between, shares = between[:m, :m], counts / counts.sum()
    c = additive_constant(between, counts)

    def spectrum(constant):
        """Of W^1/2 (K(D^2) + 2c K(D) + c^2/2 (W^-1 - ee'/m)) W^1/2, by matrices."""
        center = np.eye(m) - np.outer(np.ones(m), shares)
        of_squares, of_distances = (-0.5 * center @ matrix @ center.T for matrix in (between**2, between))
        own = np.diag(1 / (m * shares)) - 1 / m
        roots = np.sqrt(m * shares)
        gram = of_squares + 2 * constant * of_distances + constant**2 / 2 * own
        return np.linalg.eigvalsh(roots[:, None] * gram * roots)

    scale = between.max() ** 2
    assert c > 0
    assert abs(spectrum(c)[0]) < 1e-7 * scale
    assert spectrum(0.99 * c)[0] < -1e-9 * scale
    assert spectrum(1.5 * c)[0] > -1e-9 * scale
    model = classical_mds(with_constant(between, c) ** 2, 1, constant=c, weights=counts)
    np.testing.assert_allclose(model.spectrum, spectrum(c)[::-1], atol=1e-8 * scale)


@given(SEEDS, st.integers(8, 15))
def test_kernel_isomap_returns_weighted_landmarks_and_is_continuous_beside_them(seed, m):
    between, counts = kernel_problem(seed, m)
    model = fitted_model(Choice("kernel-isomap", 2), between[:m, :m], counts)
    np.testing.assert_allclose(project(model, between[:m, :m] ** 2), model.coordinates, atol=1e-8)
    beside = project(model, (between[:m, :m] + 1e-9) ** 2)
    np.testing.assert_allclose(beside, model.coordinates, atol=1e-6 * np.abs(model.coordinates).max())


def test_kernel_isomap_with_equal_weights_is_without():
    between, _ = kernel_problem(3, 12)
    plain = fitted_model(Choice("kernel-isomap", 2), between[:12, :12])
    equal = fitted_model(Choice("kernel-isomap", 2), between[:12, :12], np.full(12, 3))
    np.testing.assert_allclose(equal.coordinates, plain.coordinates, atol=1e-8)
    ours, theirs = (landmark_moments(model, between[12:, :12] ** 2) for model in (equal, plain))
    np.testing.assert_allclose(ours.inner, theirs.inner, atol=1e-7)
    np.testing.assert_allclose(ours.beta, theirs.beta, rtol=1e-9)


@pytest.mark.parametrize("extension", ["projection", "kernel-mapping", "rbf"])
@pytest.mark.parametrize("method", ["isomap", "kernel-isomap", "mds", "kernel-mds"])
def test_every_extension_returns_weighted_landmarks(method, extension):
    rng = np.random.default_rng(0)
    points, counts = rng.normal(size=(30, 3)), rng.integers(1, 50, 30)
    between = cdist(points, points)
    model = fitted_model(Choice(method, 2, extension), between, counts)
    placed = project(model, between**2) if extension == "projection" else model.place(between).coordinates
    weighted_alone = fitted_model(Choice(method, 2), between, counts).coordinates
    np.testing.assert_allclose(placed, weighted_alone, atol=1e-7)
    assert np.abs(weighted_alone - fitted_model(Choice(method, 2), between).coordinates).max() > 0.01
