"""Projection: one formula under many names, the same bytes however rows are batched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA, KernelPCA

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import project
from pipeline.numerics.mds import classical_mds, double_centered

seeds = st.integers(0, 2**32 - 1)


def problem(seed, m=20, p=7, d=3, power=0.8):
    """Non-Euclidean squared dissimilarities: between landmarks, and of new points to them."""
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(m, 5)), rng.normal(size=(p, 5))
    squared = cdist(landmarks, landmarks, "sqeuclidean") ** power
    return classical_mds(squared, d), squared, cdist(points, landmarks, "sqeuclidean") ** power


def centered_kernel(squared, to_landmarks):
    """b of [T eq. 6] for every new point, by its definition."""
    return -0.5 * (to_landmarks - to_landmarks.mean(axis=1)[:, None] - squared.mean(axis=0) + squared.mean())


@given(seeds)
def test_is_the_least_squares_solution(seed):
    """[T eq. 7], after Anderson and Robinson."""
    model, squared, to_landmarks = problem(seed)
    b = centered_kernel(squared, to_landmarks)
    expected = np.linalg.lstsq(model.coordinates, b.T, rcond=None)[0].T
    np.testing.assert_allclose(project(model, to_landmarks), expected, rtol=1e-9, atol=1e-11)


@given(seeds)
def test_is_distance_based_triangulation(seed):
    """[T eq. 8], after de Silva and Tenenbaum: the pseudo-inverse of X' on -1/2 (a_2 - mean_i)."""
    model, squared, to_landmarks = problem(seed)
    expected = -0.5 * (to_landmarks - squared.mean(axis=0)) @ np.linalg.pinv(model.coordinates).T
    np.testing.assert_allclose(project(model, to_landmarks), expected, rtol=1e-9, atol=1e-11)


@given(seeds)
def test_is_the_eigenfunction_formula(seed):
    """[B eq. 11, 15], [T eq. 4]: sqrt(lam_k)/lam_k sum_i v_ik k(new, x_i)."""
    model, squared, to_landmarks = problem(seed)
    eigenvalues, vectors = np.linalg.eigh(double_centered(squared))
    lam, V = eigenvalues[::-1][:3], vectors[:, ::-1][:, :3]
    V = V * np.sign((V * model.coordinates).sum(axis=0))
    expected = centered_kernel(squared, to_landmarks) @ V / np.sqrt(lam)
    np.testing.assert_allclose(project(model, to_landmarks), expected, rtol=1e-9, atol=1e-11)


@given(seeds)
def test_is_kernel_pca(seed):
    """[G eq. 39]: scikit-learn's KernelPCA on -1/2 Delta_2 centers the same way."""
    model, squared, to_landmarks = problem(seed, power=0.5)
    kernel_pca = KernelPCA(3, kernel="precomputed", eigen_solver="dense").fit(-0.5 * squared)
    expected = kernel_pca.transform(-0.5 * to_landmarks)
    found = project(model, to_landmarks)
    np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, rtol=1e-8, atol=1e-10)


@given(seeds)
def test_is_gowers_formula_and_so_adds_a_point_to_a_principal_component_analysis(seed):
    """[T eq. 1], after Gower: with Euclidean distances the score of the new point."""
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(15, 4)) * [4, 3, 2, 1], rng.normal(size=(6, 4))
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), 2)
    expected = PCA(2).fit(landmarks).transform(points)
    found = project(model, cdist(points, landmarks, "sqeuclidean"))
    np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, rtol=1e-8, atol=1e-10)


@given(seeds, st.integers(3, 40), st.integers(1, 3))
def test_a_landmark_projects_to_its_own_coordinates(seed, m, d):
    model, squared, _ = problem(seed, m=m, d=min(d, m - 2), power=0.7)
    np.testing.assert_allclose(project(model, squared), model.coordinates, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("m", [4, 5, 6, 7, 129])
def test_a_row_has_the_same_bytes_in_any_batch(m, order, dtype):
    model, _, to_landmarks = problem(0, m=m, p=300, d=2)
    rows = np.asarray(to_landmarks, dtype=dtype, order=order)
    whole = project(model, rows)
    for size in (1, 2, 7, 127, 128, 129):
        pieces = [project(model, rows[i : i + size]) for i in range(0, 300, size)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_single_precision_rows_are_summed_in_double_precision():
    model, _, to_landmarks = problem(3, m=501, p=5)
    rows = to_landmarks.astype(np.float32)
    np.testing.assert_array_equal(project(model, rows), project(model, rows.astype(np.float64)))


def test_no_points_give_no_coordinates():
    model, _, _ = problem(0)
    assert project(model, np.empty((0, 20))).shape == (0, 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, 19)), r"shape \(2, 19\); it must be \(n_points, 20\)"),
        (np.ones(20), r"shape \(20,\)"),
        (np.full((2, 20), -1.0), r"squared_to_landmarks has a negative entry, -1 at \(0, 0\)"),
        (np.where(np.eye(2, 20) > 0, np.nan, 1), "2 NaN or infinite entries, first in rows 0, 1"),
        (np.where(np.eye(2, 20, 1) > 0, np.inf, 1), "2 NaN or infinite entries, first in rows 0, 1"),
        (np.full((1, 20), 1e308), r"squared_to_landmarks reaches 1e\+308 .* rescale"),
        (np.ones((2, 20), complex), "real numbers"),
        (np.ones((2, 20), object), "real numbers"),
        ([["a"] * 20], "real numbers"),
    ],
)
def test_bad_rows_are_refused(rows, message):
    model, _, _ = problem(0)
    with pytest.raises(InvalidInputError, match=message):
        project(model, rows)
