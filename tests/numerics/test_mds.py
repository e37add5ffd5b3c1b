"""Classical scaling: exact on Euclidean distances, honest about the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics.mds import classical_mds, double_centered


def squared_distances(points: np.ndarray) -> np.ndarray:
    return cdist(points, points, "sqeuclidean")


def up_to_sign(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return found * np.sign((found * expected).sum(axis=0))


@pytest.mark.parametrize(("m", "d"), [(3, 2), (12, 4), (200, 10)])
def test_equals_principal_component_scores_on_euclidean_distances(rng, m, d):
    points = rng.normal(size=(m, d)) * np.linspace(3, 1, d)
    scores = PCA(d).fit_transform(points)
    model = classical_mds(squared_distances(points), d)
    np.testing.assert_allclose(up_to_sign(model.coordinates, scores), scores, atol=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(2, 15), st.integers(1, 6))
def test_reproduces_the_distances_it_was_given(seed, m, d):
    points = np.random.default_rng(seed).normal(size=(m, d))
    squared = squared_distances(points)
    model = classical_mds(squared, min(m - 1, d))
    np.testing.assert_allclose(squared_distances(model.coordinates), squared, atol=1e-9)


def test_coordinates_are_centered_and_orthogonal_with_the_eigenvalues_as_squared_lengths(rng):
    model = classical_mds(squared_distances(rng.normal(size=(30, 5))) ** 0.8, 4)
    np.testing.assert_allclose(model.coordinates.sum(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(model.coordinates.T @ model.coordinates, np.diag(model.eigenvalues), atol=1e-9)
    assert (np.diff(model.eigenvalues) <= 0).all()


def test_means_are_those_of_the_squared_dissimilarities(rng):
    squared = squared_distances(rng.normal(size=(9, 3)))
    model = classical_mds(squared, 2)
    np.testing.assert_allclose(model.row_means, squared.mean(axis=1), rtol=1e-13)
    assert model.grand_mean == pytest.approx(squared.mean(), rel=1e-13)


def test_spectrum_figures_match_the_gram_matrix(rng):
    squared = squared_distances(rng.normal(size=(25, 6))) ** 1.4
    eigenvalues = np.linalg.eigvalsh(double_centered(squared))
    model = classical_mds(squared, 2)
    np.testing.assert_allclose(model.spectrum, eigenvalues[::-1], atol=1e-9)
    negative = -eigenvalues[eigenvalues < -1e-9].sum()
    assert negative > 0.01
    assert model.negative_mass == pytest.approx(negative / np.abs(eigenvalues).sum(), rel=1e-9)
    assert model.n_positive == np.count_nonzero(eigenvalues > 1e-9)
    assert model.explained_mass == pytest.approx(eigenvalues[-2:].sum() / eigenvalues[eigenvalues > 0].sum(), rel=1e-9)


def test_euclidean_distances_have_no_negative_mass(rng):
    assert classical_mds(squared_distances(rng.normal(size=(40, 3))), 3).negative_mass < 1e-12


def test_signs_are_fixed_by_the_largest_entry(rng):
    for _ in range(20):
        X = classical_mds(squared_distances(rng.normal(size=(7, 4))), 3).coordinates
        assert (X[np.abs(X).argmax(axis=0), range(3)] > 0).all()


def test_sign_of_a_symmetric_configuration_is_that_of_its_first_row(rng):
    """Entries that tie up to rounding must not let the rounding decide."""
    for scale in rng.uniform(0.1, 10, size=50):
        X = classical_mds(np.array([[0, 4], [4, 0]]) * scale, 1).coordinates
        assert X[0, 0] > 0


def test_fewer_components_are_a_prefix_to_the_bit(rng):
    squared = squared_distances(rng.normal(size=(50, 8)))
    np.testing.assert_array_equal(classical_mds(squared, 2).coordinates, classical_mds(squared, 6).coordinates[:, :2])


@pytest.mark.parametrize("exponent", [-100, -6, 5, 100])
def test_rescaling_by_a_power_of_two_rescales_the_bits(rng, exponent):
    squared = squared_distances(rng.normal(size=(20, 4)))
    plain, scaled = classical_mds(squared, 3), classical_mds(squared * 4.0**exponent, 3)
    np.testing.assert_array_equal(scaled.coordinates, plain.coordinates * 2.0**exponent)


def test_rounding_asymmetry_is_averaged_away(rng):
    squared = squared_distances(rng.normal(size=(10, 3)))
    noisy = squared * (1 + 1e-7 * rng.normal(size=squared.shape))
    np.testing.assert_allclose(
        classical_mds(noisy, 2).coordinates, classical_mds((noisy + noisy.T) / 2, 2).coordinates, rtol=1e-12
    )


def test_components_beyond_the_positive_eigenvalues_are_refused_with_their_number(rng):
    squared = squared_distances(rng.normal(size=(10, 3)))
    with pytest.raises(
        InvalidInputError, match=r"n_components=4 .* 3 positive eigenvalues; use n_components from 1 to 3"
    ):
        classical_mds(squared, 4)


SQUARE = squared_distances(np.random.default_rng(0).normal(size=(6, 3)))


def changed(entries: dict[tuple[int, int], float]) -> np.ndarray:
    matrix = SQUARE.copy()
    for where, value in entries.items():
        matrix[where] = value
    return matrix


def outlier_beside():
    """An asymmetry between small entries that is tiny beside the largest."""
    matrix = SQUARE.copy()
    matrix[0, 1:] = matrix[1:, 0] = 1e6
    matrix[1, 2], matrix[2, 1] = 0, 9
    return matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (changed({(1, 4): 99.0}), r"not symmetric: 99 at \(1, 4\).*largest deviation"),
        (outlier_beside(), r"not symmetric: 0 at \(1, 2\) against 9 at \(2, 1\)"),
        (SQUARE * 1e200, r"squared_dissimilarities reaches .* from 1e-150 to 1e\+150; rescale"),
        (SQUARE * 1e-200, r"squared_dissimilarities reaches .* from 1e-150 to 1e\+150; rescale"),
        ([[0, 1], [1]], "not a rectangular array"),
        (changed({(2, 2): 5.0}), r"nonzero diagonal, 5 at \(2, 2\)"),
        (changed({(0, 3): -1.0, (3, 0): -1.0}), r"negative entry, -1 at \(0, 3\)"),
        (changed({(5, 1): np.nan}), r"1 NaN or infinite entries, first in row 5"),
        (changed({(0, 1): np.inf, (1, 0): np.inf}), r"2 NaN or infinite entries, first in rows 0, 1"),
        (SQUARE[:4], r"shape \(4, 6\); it must be square"),
        (SQUARE[0], "must have 2 dimensions"),
        (SQUARE.astype(complex), "dtype complex128; it must hold real numbers"),
        (SQUARE.astype(str), "it must hold real numbers"),
        (SQUARE.astype(object), "dtype object; it must hold real numbers"),
        (np.empty((0, 0)), "it is empty"),
        (np.zeros((1, 1)), "1 object; at least 2"),
        (np.zeros((4, 4)), "all zero"),
    ],
)
def test_bad_dissimilarities_are_refused_with_what_and_where(matrix, message):
    with pytest.raises(InvalidInputError, match=message):
        classical_mds(matrix, 1)


@pytest.mark.parametrize("n_components", [0, -1, 6, 2.0, "2", True, None])
def test_bad_numbers_of_components_are_refused_with_the_range(n_components):
    with pytest.raises(InvalidInputError, match=r"n_components=.* from 1 to 5"):
        classical_mds(SQUARE, n_components)


def test_bytes_do_not_depend_on_the_threads_of_the_linear_algebra(rng):
    squared = squared_distances(rng.normal(size=(700, 5))) ** 0.9
    models = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            models.append(classical_mds(squared, 5).coordinates)
    np.testing.assert_array_equal(*models)
