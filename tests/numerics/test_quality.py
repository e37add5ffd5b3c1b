"""Quality figures: equal to the textbook and to other libraries, and honest about sampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import ortho_group
from sklearn import manifold

from pipeline.errors import InvalidInputError
from pipeline.numerics.statistics.quality import (
    continuity,
    neighbor_recall,
    normalized_stress,
    residual_variance,
    trustworthiness,
)


def noisy_embedding(rng, p=40, m=12, d=3):
    """Points (p, d), landmarks (m, d) and dissimilarities (p, m) that fit them roughly."""
    points, landmarks = rng.normal(size=(p, d)), rng.normal(size=(m, d))
    return cdist(points, landmarks) + 0.6 * rng.random((p, m)), points, landmarks


def test_residual_variance_is_that_of_the_correlation_for_each_number_of_components(rng):
    dissimilarities, points, landmarks = noisy_embedding(rng)
    expected = [
        1 - np.corrcoef(dissimilarities.ravel(), cdist(points[:, :k], landmarks[:, :k]).ravel())[0, 1] ** 2
        for k in (1, 2, 3)
    ]
    np.testing.assert_allclose(residual_variance(dissimilarities, points, landmarks), expected, rtol=1e-10)
    assert min(expected) > 0.01


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 5), scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_an_exact_embedding_leaves_nothing(seed, d, scale):
    rng = np.random.default_rng(seed)
    points, landmarks = scale * rng.normal(size=(9, d)), scale * rng.normal(size=(4, d))
    exact = cdist(points, landmarks)
    assert residual_variance(exact, points, landmarks)[-1] == pytest.approx(0, abs=1e-12)
    assert normalized_stress(exact, points, landmarks) == pytest.approx(0, abs=1e-12)
    if d > 1:
        assert residual_variance(exact, points, landmarks)[0] > 1e-6


def test_residual_variance_does_not_mind_scale_and_offset_but_stress_does(rng):
    dissimilarities, points, landmarks = noisy_embedding(rng)
    np.testing.assert_allclose(
        residual_variance(3 * dissimilarities + 1, points, landmarks),
        residual_variance(dissimilarities, points, landmarks),
        rtol=1e-9,
    )
    assert normalized_stress(3 * dissimilarities, points, landmarks) > 0.5


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_dissimilarities_without_variance_explain_nothing(rng, value):
    _, points, landmarks = noisy_embedding(rng)
    np.testing.assert_array_equal(residual_variance(np.full((40, 12), value), points, landmarks), [1, 1, 1])


def test_normalized_stress_is_its_formula(rng):
    dissimilarities, points, landmarks = noisy_embedding(rng)
    misfit = total = 0.0
    for i, j in np.ndindex(dissimilarities.shape):
        misfit += (dissimilarities[i, j] - np.linalg.norm(points[i] - landmarks[j])) ** 2
        total += dissimilarities[i, j] ** 2
    assert normalized_stress(dissimilarities, points, landmarks) == pytest.approx(np.sqrt(misfit / total), rel=1e-12)


def test_collapsing_everything_has_stress_one(rng):
    dissimilarities, points, landmarks = noisy_embedding(rng)
    assert normalized_stress(dissimilarities, 0 * points, 0 * landmarks) == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize("figure", [residual_variance, normalized_stress])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 3), (5, 2), (3, 2)), r"they must be \(p, m\), \(p, d\) and \(m, d\)"),
        (((4, 3), (4, 2), (4, 2)), r"to_landmarks has shape \(4, 3\)"),
        (((4, 3), (4, 2), (3, 1)), r"landmark_coordinates \(3, 1\)"),
        (((4,), (4, 2), (3, 2)), r"to_landmarks has shape \(4,\)"),
        (((4, 3), (4,), (3, 2)), r"coordinates has shape \(4,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(figure, shapes, message):
    with pytest.raises(InvalidInputError, match=message):
        figure(*(np.ones(shape) for shape in shapes))


@pytest.mark.parametrize("figure", [residual_variance, normalized_stress])
@pytest.mark.parametrize("which", ["to_landmarks", "coordinates", "landmark_coordinates"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_holes_in_an_embedding_are_refused(rng, figure, which, bad):
    names = ("to_landmarks", "coordinates", "landmark_coordinates")
    arguments = dict(zip(names, noisy_embedding(rng), strict=True))
    arguments[which][2, 1] = bad
    with pytest.raises(InvalidInputError, match=rf"^{which} has 1 NaN or infinite entries, first in row 2;"):
        figure(**arguments)


def test_stress_relative_to_nothing_is_refused():
    with pytest.raises(InvalidInputError, match="to_landmarks are all zero"):
        normalized_stress(np.zeros((3, 2)), np.arange(3.0)[:, None], np.arange(2.0)[:, None])


@pytest.mark.parametrize("k", [1, 2, 5, 20, 39])
@pytest.mark.parametrize("d", [1, 2])
def test_trustworthiness_on_all_points_is_that_of_scikit_learn(rng, k, d):
    points, coordinates = rng.normal(size=(80, 4)), rng.normal(size=(80, d))
    found = trustworthiness(points, coordinates, k)
    expected = manifold.trustworthiness(points, coordinates, n_neighbors=k)
    assert expected < 0.95
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.low == found.value == found.high


@pytest.mark.parametrize("figure", [trustworthiness, continuity])
def test_rank_figures_are_one_for_the_data_itself_and_blind_to_rigid_motion_and_scale(rng, figure):
    points = rng.normal(size=(50, 3))
    moved = 7 * points @ ortho_group.rvs(3, random_state=rng) + [1, 2, 3]
    assert figure(points, moved, 6) == (1, 1, 1)
    coordinates = points[:, :2] + 0.2 * rng.normal(size=(50, 2))
    assert figure(moved, coordinates, 6) == figure(points, coordinates, 6) < (1, 1, 1)


def test_trustworthiness_is_near_zero_for_the_worst_embedding():
    """Every neighbor in view is the farthest in truth."""
    n, k = 40, 1
    angle = 2 * np.pi * np.arange(n) / n
    circle = np.c_[np.cos(angle), np.sin(angle)]
    beside_its_opposite = np.arange(n) % (n // 2) + 1e-3 * np.arange(n)
    found = trustworthiness(circle, beside_its_opposite[:, None], k).value
    assert found == pytest.approx(0, abs=0.01)


def test_continuity_is_trustworthiness_with_the_roles_swapped(rng):
    points, coordinates = rng.normal(size=(70, 4)), rng.normal(size=(70, 2))
    for size in (30, 70):
        swapped = trustworthiness(coordinates, points, 5, size, seed=4)
        assert continuity(points, coordinates, 5, size, seed=4) == swapped
    assert continuity(points, coordinates, 5) != trustworthiness(points, coordinates, 5)


def test_a_fold_is_not_trustworthy_and_a_tear_is_not_continuous():
    line = np.linspace(-1, 1, 101)[:, None] + 1e-4 * np.arange(101)[:, None] ** 2 / 101
    fold, tear = np.abs(line), np.where(line > 0, line - 10, line)
    assert trustworthiness(line, fold, 5).value < 0.8 < 0.95 < continuity(line, fold, 5).value
    assert continuity(line, tear, 5).value < 1
    assert trustworthiness(line, tear, 5).value > continuity(line, tear, 5).value


@pytest.mark.parametrize("figure", [trustworthiness, continuity])
def test_the_interval_of_a_sample_covers_the_value_on_all_points(rng, figure):
    points = rng.normal(size=(250, 4))
    coordinates = points[:, :2] + 0.3 * rng.normal(size=(250, 2))
    full = figure(points, coordinates, 8).value
    sampled = [figure(points, coordinates, 8, sample_size=60, seed=seed) for seed in range(60)]
    assert all(low < value < high for value, low, high in sampled)
    assert len({estimate.value for estimate in sampled}) > 50
    # Expected to cover 57 of 60 times with a standard deviation of 1.7.
    assert sum(low <= full <= high for _, low, high in sampled) >= 51
    # An interval wider than it need be would also cover.
    errors = np.array([value - full for value, _, _ in sampled])
    half_widths = np.array([(high - low) / 2 for _, low, high in sampled])
    assert 0.7 < half_widths.mean() / (1.96 * np.sqrt((errors**2).mean())) < 1.4


def test_a_sample_larger_than_the_data_is_the_data(rng):
    points, coordinates = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    assert trustworthiness(points, coordinates, 4, 10_000, seed=1) == trustworthiness(points, coordinates, 4, 30)


def test_samples_repeat_with_the_seed(rng):
    points, coordinates = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    first, again, other = (trustworthiness(points, coordinates, 4, 20, seed=seed) for seed in (5, 5, 6))
    assert first == again != other


@pytest.mark.parametrize("figure", [trustworthiness, continuity])
@pytest.mark.parametrize(
    ("points", "coordinates", "options", "message"),
    [
        ((11, 3), (11, 2), {"n_neighbors": 0}, r"n_neighbors=0 .*from 1 to 5 \(fewer than half of the 11 points\)"),
        ((11, 3), (11, 2), {"n_neighbors": 6}, r"n_neighbors=6 .*from 1 to 5"),
        ((10, 3), (10, 2), {"n_neighbors": 5}, r"n_neighbors=5 .*from 1 to 4"),
        ((11, 3), (11, 2), {"n_neighbors": 2.5}, r"n_neighbors=2\.5 .*from 1 to 5"),
        ((11, 3), (11, 2), {"sample_size": 1}, r"sample_size=1 .*at least 2"),
        ((11, 3), (11, 2), {"sample_size": True}, r"sample_size=True .*at least 2"),
        ((11, 3), (9, 2), {}, r"points has 11 rows and coordinates 9;"),
        ((11,), (11, 2), {}, r"^points has shape \(11,\)"),
        ((11, 3), (11,), {}, r"^coordinates has shape \(11,\)"),
    ],
)
def test_bad_arguments_of_rank_figures_are_named(figure, points, coordinates, options, message):
    with pytest.raises(InvalidInputError, match=message):
        figure(np.ones(points), np.ones(coordinates), **{"n_neighbors": 2, **options})


@pytest.mark.parametrize("figure", [trustworthiness, continuity])
@pytest.mark.parametrize("which", ["points", "coordinates"])
def test_holes_in_points_or_coordinates_are_refused(rng, figure, which):
    arguments = {"points": rng.normal(size=(11, 3)), "coordinates": rng.normal(size=(11, 2))}
    arguments[which][4, 0] = np.nan
    with pytest.raises(InvalidInputError, match=rf"^{which} has 1 NaN or infinite entries, first in row 4;"):
        figure(**arguments, n_neighbors=2)


def test_largest_number_of_neighbors_allowed_is_that_of_scikit_learn(rng):
    for n in (10, 11):
        points, coordinates = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
        largest = (n - 1) // 2
        expected = manifold.trustworthiness(points, coordinates, n_neighbors=largest)
        assert trustworthiness(points, coordinates, largest).value == pytest.approx(expected, rel=1e-12)
        with pytest.raises(ValueError, match="n_neighbors"):
            manifold.trustworthiness(points, coordinates, n_neighbors=largest + 1)


@pytest.mark.parametrize(
    ("found", "recall"),
    [
        ([[1, 2, 3], [4, 5, 6]], 1),
        ([[3, 1, 2], [6, 4, 5]], 1),
        ([[1, 2, 9], [4, 5, 6]], 5 / 6),
        ([[1, 1, 1], [4, 4, 5]], 3 / 6),
        ([[4, 5, 6], [1, 2, 3]], 0),
    ],
)
def test_recall_is_the_share_found_row_by_row(found, recall):
    assert neighbor_recall(np.array(found), np.array([[1, 2, 3], [4, 5, 6]])) == pytest.approx(recall, rel=1e-15)


def test_recall_needs_as_many_found_as_exact():
    with pytest.raises(InvalidInputError, match=r"found has shape \(2, 2\) and exact \(2, 3\)"):
        neighbor_recall(np.zeros((2, 2), dtype=int), np.zeros((2, 3), dtype=int))
