"""Kernels as dissimilarities: classical scaling of them is kernel PCA."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import pairwise_kernels

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import project
from pipeline.numerics.mds import classical_mds
from pipeline.numerics.models.metrics import (
    KERNELS,
    Kernel,
    automatic_gamma,
    automatic_gamma_of,
    dissimilarities_from_similarities,
    signed_roots,
)
from pipeline.numerics.models.spectral import nystrom_error

OF_SKLEARN = {"linear": "linear", "rbf": "rbf", "cosine": "cosine", "polynomial": "poly"}
CASES = [
    Kernel("linear"),
    Kernel("rbf", gamma=0.05),
    Kernel("rbf", gamma=2.0),
    Kernel("cosine"),
    Kernel("polynomial", gamma=0.1, degree=3, constant=1.0),
    Kernel("polynomial", gamma=0.7, degree=2, constant=0.0),
]
every_case = pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: f"{kernel.name}-{kernel.gamma}")


def parameters(kernel: Kernel) -> dict[str, float]:
    return {
        "linear": {},
        "cosine": {},
        "rbf": {"gamma": kernel.gamma},
        "polynomial": {"gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.constant},
    }[kernel.name]


def sklearn_kernel(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return pairwise_kernels(a, b, metric=OF_SKLEARN[kernel.name], **parameters(kernel))


def up_to_sign(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return np.sign((found * expected).sum(axis=0))


@every_case
def test_squares_are_those_the_kernel_induces(rng, kernel):
    points, landmarks = rng.normal(size=(30, 6)), rng.normal(size=(20, 6))
    own = sklearn_kernel(kernel, points, points).diagonal()
    of_landmarks = sklearn_kernel(kernel, landmarks, landmarks).diagonal()
    expected = own[:, None] - 2 * sklearn_kernel(kernel, points, landmarks) + of_landmarks
    np.testing.assert_allclose(kernel.dissimilarities(points, landmarks) ** 2, expected, rtol=1e-9, atol=1e-12)


@every_case
def test_classical_scaling_with_every_point_a_landmark_is_kernel_pca(rng, kernel):
    points, others = rng.normal(size=(60, 5)) * np.linspace(2, 1, 5), rng.normal(size=(15, 5))
    reference = KernelPCA(3, kernel=OF_SKLEARN[kernel.name], eigen_solver="dense", **parameters(kernel))
    expected = reference.fit_transform(points)
    model = classical_mds(kernel.dissimilarities(points, points) ** 2, 3)
    signs = up_to_sign(model.coordinates, expected)
    np.testing.assert_allclose(model.coordinates * signs, expected, atol=1e-6)
    placed = project(model, kernel.dissimilarities(others, points) ** 2)
    np.testing.assert_allclose(placed * signs, reference.transform(others), atol=1e-6)


@every_case
def test_points_that_are_landmarks_have_dissimilarity_exactly_zero(rng, kernel):
    landmarks = rng.normal(size=(40, 9)).astype(np.float32)
    found = kernel.dissimilarities(landmarks.astype(np.float64), landmarks)
    np.testing.assert_array_equal(found.diagonal(), 0)
    assert np.count_nonzero(found) == 40 * 39


@every_case
def test_a_row_has_the_same_bytes_whatever_stands_beside_it(rng, kernel):
    points, landmarks = rng.normal(size=(33, 8)), rng.normal(size=(300, 8))
    together = kernel.dissimilarities(points, landmarks)
    for rows in (slice(0, 1), slice(5, 33), slice(None, None, 3)):
        np.testing.assert_array_equal(kernel.dissimilarities(points[rows], landmarks), together[rows])
    assert kernel.dissimilarities(points[:0], landmarks).shape == (0, 300)


def test_radial_dissimilarities_of_close_points_keep_their_digits():
    """1 - exp(-1e-20) is 0 in double precision; its root is 1e-10."""
    found = Kernel("rbf", gamma=1.0).dissimilarities([[1e-10]], [[0.0]])
    assert found[0, 0] == pytest.approx(math.sqrt(2) * 1e-10, rel=1e-14)


def test_automatic_gamma_is_the_reciprocal_median_over_pairs(rng):
    points = rng.normal(size=(31, 4))
    expected = 1 / np.median(pdist(points) ** 2)
    assert automatic_gamma(points) == pytest.approx(expected, rel=1e-12)
    assert automatic_gamma_of(cdist(points, points)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("points", "message"),
    [([[1.0, 2.0]], r"needs at least 2 points"), (np.ones((5, 2)), r"more than half of those are 0")],
)
def test_automatic_gamma_needs_points_that_differ(points, message):
    with pytest.raises(InvalidInputError, match=message):
        automatic_gamma(points)


def test_signed_roots_are_undone_by_signed_squares(rng):
    squared = np.append(rng.normal(size=50), [0.0, -4.0])
    roots = signed_roots(squared)
    np.testing.assert_allclose(roots * np.abs(roots), squared, rtol=1e-15)
    assert roots[-1] == -2


def test_similarities_of_a_kernel_give_its_dissimilarities(rng):
    kernel = Kernel("rbf", gamma=0.2)
    points, landmarks = rng.normal(size=(12, 3)), rng.normal(size=(7, 3))
    found = dissimilarities_from_similarities(sklearn_kernel(kernel, points, landmarks), np.ones(12), np.ones(7))
    np.testing.assert_allclose(found, kernel.dissimilarities(points, landmarks), atol=1e-7)


def test_indefinite_similarities_keep_negative_squares():
    """Objects more alike to each other than to themselves [T eq. 2-5]."""
    similarities = np.array([[1.0, 3.0, 0.0], [3.0, 2.0, 1.0]])
    found = dissimilarities_from_similarities(similarities, [1.0, 2.0], [1.0, 2.0, 5.0])
    squares = np.array([[0.0, -3.0, 6.0], [-3.0, 0.0, 5.0]])
    np.testing.assert_allclose(found * np.abs(found), squares, rtol=1e-15)
    np.testing.assert_array_equal(found[squares == 0], 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "gaussian"}, r"kernel='gaussian' is not known; use one of 'linear', 'rbf'"),
        ({"name": "rbf", "gamma": 0.0}, r"gamma=0.0 is out of range"),
        ({"name": "polynomial", "degree": 2.5}, r"degree=2.5 is not a whole number"),
        ({"name": "polynomial", "constant": -1.0}, r"constant=-1.0 is out of range"),
    ],
)
def test_parameters_that_give_no_kernel_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Kernel(**arguments)


def test_a_polynomial_that_overflows_is_refused():
    with pytest.raises(InvalidInputError, match=r"degree=50 with gamma=1e\+10 leaves double precision"):
        Kernel("polynomial", gamma=1e10, degree=50).dissimilarities([[1e3], [1.0]], [[1e3]])


def test_zero_rows_have_no_cosine():
    with pytest.raises(InvalidInputError, match=r"points has 1 rows of zeros"):
        Kernel("cosine").dissimilarities([[0.0, 0.0]], [[1.0, 0.0]])


@pytest.mark.parametrize(
    ("own", "of_landmarks", "message"),
    [([1.0], [1.0, 1.0], r"similarities has shape \(2, 2\)"), ([1.0, np.nan], [1.0, 1.0], r"own has 1 NaN")],
)
def test_similarities_must_fit_each_other(own, of_landmarks, message):
    with pytest.raises(InvalidInputError, match=message):
        dissimilarities_from_similarities(np.eye(2), own, of_landmarks)


def test_every_kernel_is_among_the_cases():
    assert {kernel.name for kernel in CASES} == set(KERNELS)


def test_nystrom_error_is_that_of_the_missing_block(rng):
    """C against B' A^-1 B [G eq. 58-59]."""
    kernel = Kernel("rbf", gamma=0.5)
    landmarks, sample = rng.normal(size=(15, 4)), rng.normal(size=(25, 4))
    a, b, c = (sklearn_kernel(kernel, *pair) for pair in ((landmarks,) * 2, (sample, landmarks), (sample,) * 2))
    expected = np.linalg.norm(c - b @ np.linalg.inv(a) @ b.T) / np.linalg.norm(c)
    assert 0.1 < expected < 1
    assert nystrom_error(a, b, c) == pytest.approx(expected, rel=1e-9)


def test_nystrom_is_exact_for_a_kernel_of_low_rank_and_for_the_landmarks_themselves(rng):
    landmarks, sample = rng.normal(size=(20, 3)), rng.normal(size=(10, 3))
    assert nystrom_error(landmarks @ landmarks.T, sample @ landmarks.T, sample @ sample.T) < 1e-12
    radial = sklearn_kernel(Kernel("rbf", gamma=0.1), landmarks, landmarks)
    assert nystrom_error(radial, radial, radial) < 1e-12


def test_nystrom_error_falls_with_more_landmarks(rng):
    kernel = Kernel("rbf", gamma=0.3)
    points, sample = rng.normal(size=(80, 3)), rng.normal(size=(30, 3))
    errors = [
        nystrom_error(*(sklearn_kernel(kernel, *pair) for pair in ((marks, marks), (sample, marks), (sample, sample))))
        for marks in (points[:m] for m in (5, 10, 20, 40, 80))
    ]
    assert (np.diff(errors) < 0).all()


def test_nystrom_error_needs_matrices_that_fit():
    with pytest.raises(InvalidInputError, match=r"must be \(m, m\), \(s, m\) and \(s, s\)"):
        nystrom_error(np.eye(3), np.ones((2, 3)), np.eye(3))
