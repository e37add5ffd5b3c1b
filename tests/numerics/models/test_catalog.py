"""The additive constant of kernel Isomap: enough, no more than enough, and the eigenvalue that [G eq. 34] names."""

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist
from sklearn.datasets import make_swiss_roll
from sklearn.neighbors import kneighbors_graph
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import project
from pipeline.numerics.mds import double_centered, landmark_moments, moments_of
from pipeline.numerics.models import catalog as module
from pipeline.numerics.models.catalog import Choice, additive_constant, fitted_model, with_constant


def roll() -> np.ndarray:
    points, _ = make_swiss_roll(120, noise=0.5, random_state=3)
    return shortest_path(kneighbors_graph(points, 8, mode="distance"), directed=False)


def ring() -> np.ndarray:
    steps = np.abs(np.arange(15)[:, None] - np.arange(15))
    return np.minimum(steps, 15 - steps).astype(float)


def bipartite() -> np.ndarray:
    """Shortest paths in the complete bipartite graph of 3 and 4."""
    side = np.arange(7) < 3
    return np.where(side[:, None] == side, 2.0, 1.0) * (1 - np.eye(7))


def no_metric() -> np.ndarray:
    values = np.triu(np.random.default_rng(5).exponential(size=(30, 30)), 1)
    return values + values.T


NOT_EUCLIDEAN = pytest.mark.parametrize("between", [roll(), ring(), bipartite(), no_metric()], ids=range(4))


def spectrum(between: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(double_centered(between**2))


@NOT_EUCLIDEAN
def test_the_constant_is_enough(between):
    assert spectrum(between)[0] < -1e-3 * spectrum(between)[-1]
    eigenvalues = spectrum(with_constant(between, additive_constant(between)))
    assert eigenvalues[0] >= -1e-8 * eigenvalues[-1]


@NOT_EUCLIDEAN
def test_any_larger_constant_is_enough_and_any_smaller_one_is_not(between):
    constant = additive_constant(between)
    larger, smaller = (spectrum(with_constant(between, factor * constant)) for factor in (1.5, 0.999))
    assert larger[0] >= -1e-8 * larger[-1]
    # As far below 0 as a thousandth of the constant can bring it, which for few of these matrices is 1e-8 of the top.
    assert smaller[0] < -1e-4 * constant**2
    exact = spectrum(with_constant(between, constant))
    assert smaller[0] < 1e3 * min(exact[0], 0.0)


@NOT_EUCLIDEAN
def test_equals_the_largest_eigenvalue_of_the_block_matrix(between):
    m = len(between)
    centering = np.eye(m) - 1 / m
    of_squares, of_distances = (-centering @ values @ centering / 2 for values in (between**2, between))
    blocks = np.block([[np.zeros((m, m)), 2 * of_squares], [-np.eye(m), -4 * of_distances]])
    eigenvalues = np.linalg.eigvals(blocks)
    expected = eigenvalues.real[np.abs(eigenvalues.imag) < 1e-9].max()
    assert additive_constant(between) == pytest.approx(expected, rel=1e-9)


@NOT_EUCLIDEAN
def test_few_eigenvalues_say_the_same_as_all(between, monkeypatch):
    expected = additive_constant(between)
    monkeypatch.setattr(module, "MOST_FOR_ALL_EIGENVALUES", 0)
    monkeypatch.setattr(module, "_all_eigenvalues", None)
    assert additive_constant(between) == pytest.approx(expected, rel=1e-10)


def test_few_eigenvalues_have_the_same_bytes_each_time_and_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(module, "MOST_FOR_ALL_EIGENVALUES", 0)
    first = additive_constant(roll())
    with threadpool_limits(2):
        assert additive_constant(roll()) == first


def test_complex_eigenvalues_are_passed_over():
    eigenvalues = np.array([5 + 1j, 5 - 1j, 3 + 1e-12j, 2])
    np.testing.assert_array_equal(module._real_ones(eigenvalues), [3, 2])


@pytest.mark.parametrize(("name", "value"), [("MOST_RESTARTS", 1), ("_real_ones", None)])
def test_all_eigenvalues_are_looked_at_if_the_last_ones_do_not_say(monkeypatch, name, value):
    """Either the iteration does not converge, or all that it finds is complex."""
    between = roll()
    expected = additive_constant(between)
    monkeypatch.setattr(module, "MOST_FOR_ALL_EIGENVALUES", 0)
    found_real = module._real_ones

    def real_of_many(eigenvalues: np.ndarray) -> np.ndarray:
        return found_real(eigenvalues) if len(eigenvalues) > 6 else np.empty(0)

    monkeypatch.setattr(module, name, value or real_of_many)
    assert additive_constant(between) == expected


def test_euclidean_distances_need_no_constant(rng):
    points = rng.normal(size=(40, 3))
    assert additive_constant(cdist(points, points)) == 0
    assert additive_constant(cdist(points, points, "cityblock")) > 0
    assert additive_constant(np.zeros((3, 3))) == 0
    assert additive_constant([[0.0]]) == 0


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_the_constant_has_the_unit_of_the_dissimilarities(size):
    assert additive_constant(ring() * size) == pytest.approx(additive_constant(ring()) * size, rel=1e-10)


def test_a_slight_departure_from_euclidean_needs_a_slight_constant(rng):
    points = rng.normal(size=(30, 2))
    between = cdist(points, points)
    between[3, 7] = between[7, 3] = between[3, 7] * (1 + 1e-7)
    constant = additive_constant(between)
    assert 1e-9 < constant < 1e-5
    eigenvalues = spectrum(with_constant(between, constant))
    assert eigenvalues[0] >= -1e-12 * eigenvalues[-1]


def test_the_gram_matrix_is_that_of_the_paper():
    """K' = K(D^2) + 2c K(D) + c^2/2 H [G eq. 33]."""
    between, c = roll(), 1.7
    expected = double_centered(between**2) + 2 * c * double_centered(between)
    expected += c**2 / 2 * (np.eye(len(between)) - 1 / len(between))
    np.testing.assert_allclose(double_centered(with_constant(between, c) ** 2), expected, atol=1e-9)


def test_the_constant_is_added_to_all_but_the_diagonal():
    """Different objects at distance 0 are apart by the constant; else the matrix would not be positive semidefinite."""
    found = with_constant(np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 1.0], [2.0, 1.0, 0.0]], dtype=np.float32), 0.1)
    np.testing.assert_array_equal(found, [[0.0, 0.1, 2.1], [0.1, 0.0, 1.1], [2.1, 1.1, 0.0]])
    assert found.dtype == np.float64
    assert with_constant(np.empty((0, 0)), 0.5).shape == (0, 0)


def kernel_model(between, n_components):
    return fitted_model(Choice("kernel-isomap", n_components), between)


def usable(between):
    """How many eigenvalues of K' exceed c^2/2."""
    c = additive_constant(between)
    return int((spectrum(with_constant(between, c)) > c**2 / 2 * (1 + 1e-9)).sum())


@NOT_EUCLIDEAN
def test_landmarks_and_points_right_beside_them_are_placed_on_them(between):
    model = kernel_model(between, usable(between))
    spread = np.abs(model.coordinates).max()
    np.testing.assert_allclose(project(model, between**2), model.coordinates, rtol=0, atol=1e-9 * spread)
    moments = moments_of(model, between)
    np.testing.assert_allclose(moments.inner, model.coordinates * model.eigenvalues, atol=1e-9 * spread**3)
    few = kernel_model(between, min(2, usable(between)))
    beside = project(few, (between + 1e-9 * between.max()) ** 2)
    np.testing.assert_allclose(beside, few.coordinates, rtol=0, atol=1e-6 * spread)


@NOT_EUCLIDEAN
def test_moments_are_those_of_the_gram_matrix_of_distances_with_the_constant(between):
    """Against K' itself: rows of D + c without an entry left out, less c^2/2 H e_i where that entry would be."""
    model, m = kernel_model(between, min(2, usable(between))), len(between)
    c, lam, X = model.constant, model.eigenvalues, model.coordinates
    points = np.random.default_rng(1).uniform(0.5, 1.5, size=(5, m)) * between.mean()
    lifted = with_constant(between, c) ** 2
    a2 = (points + c) ** 2
    b = -0.5 * (a2 - a2.mean(axis=1)[:, None] - lifted.mean(axis=1) + lifted.mean())
    moments = moments_of(model, points)
    np.testing.assert_allclose(moments.inner, b @ X * lam / (lam - c**2 / 2), rtol=1e-9)
    np.testing.assert_allclose(moments.beta, a2.mean(axis=1) - lifted.mean() / 2 - c**2 / m, rtol=1e-9)
    same = landmark_moments(model, points**2)
    np.testing.assert_allclose(same.inner, moments.inner, rtol=1e-9)


@pytest.mark.parametrize("between", [roll(), ring(), no_metric()], ids=range(3))
def test_components_that_other_points_cannot_have_are_refused(between):
    available = usable(between)
    assert available < (spectrum(with_constant(between, additive_constant(between))) > 1e-9).sum()
    assert kernel_model(between, available).n_positive == available
    with pytest.raises(
        InvalidInputError, match=rf"has {available} positive eigenvalues? above c\^2/2 = .*; use n_comp"
    ):
        kernel_model(between, available + 1)


@pytest.mark.parametrize(
    ("between", "message"),
    [([[0.0, 1.0], [2.0, 0.0]], r"between is not symmetric"), ([[0.0, -1.0], [-1.0, 0.0]], r"negative entry")],
)
def test_what_are_no_dissimilarities_is_refused(between, message):
    with pytest.raises(InvalidInputError, match=message):
        additive_constant(between)
