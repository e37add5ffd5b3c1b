"""Quality figures: equal to the textbook and to other libraries, and honest about sampling.

The error of points that a model has not seen, and what follows from errors and costs.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import ortho_group, spearmanr
from sklearn import manifold

from pipeline.errors import InvalidInputError
from pipeline.methods import METHODS
from pipeline.numerics.statistics import (
    MeanError,
    continuity,
    estimated,
    good_enough,
    lost_neighbors,
    measure_of,
    neighbor_recall,
    normalized_stress,
    recommended,
    residual_variance,
    trustworthiness,
    unexplained_order,
    unexplained_variance,
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


MEASURES = (unexplained_variance, unexplained_order, lost_neighbors)


@pytest.fixture
def cloud(rng):
    """True distances between points in four dimensions, and two of their coordinates."""
    points = rng.normal(size=(60, 4)) * [4, 3, 2, 1]
    return cdist(points, points), points[:, :2]


def pairs(square):
    return square[np.tril_indices(len(square), -1)]


def test_it_is_what_a_line_through_the_distances_does_not_explain(cloud):
    true, coordinates = cloud
    x, y = pairs(true), pairs(cdist(coordinates, coordinates))
    fitted = np.polyval(np.polyfit(x, y, 1), x)
    assert unexplained_variance(true, coordinates) == pytest.approx(
        ((y - fitted) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    )


def test_of_the_order_it_is_that_of_ranks(cloud):
    true, coordinates = cloud
    correlation = spearmanr(pairs(true), pairs(cdist(coordinates, coordinates))).statistic
    assert unexplained_order(true, coordinates) == pytest.approx(1 - correlation**2)
    assert unexplained_order(np.expm1(true), coordinates) == pytest.approx(unexplained_order(true, coordinates))


def test_lost_neighbors_are_counted_one_by_one(cloud):
    true, coordinates = cloud
    lost, embedded = 0, cdist(coordinates, coordinates)
    for i in range(len(true)):
        others = [j for j in range(len(true)) if j != i]
        near, seen = (set(sorted(others, key=lambda j: apart[i, j])[:10]) for apart in (true, embedded))
        lost += len(near - seen)
    assert lost > 0
    assert lost_neighbors(true, coordinates) == pytest.approx(lost / (10 * len(true)))


@pytest.mark.parametrize("measure", MEASURES)
def test_the_truth_has_no_error_and_motion_and_scale_make_none(cloud, measure, rng):
    true, coordinates = cloud
    known = cdist(coordinates, coordinates)
    moved = coordinates @ ortho_group.rvs(2, random_state=rng) * 1e3 + [5, -7]
    assert measure(known, moved) == pytest.approx(0, abs=1e-12)
    assert measure(true, moved) == pytest.approx(measure(true, coordinates))
    assert measure(true, coordinates) > 0.05


def test_a_constant_that_is_added_to_all_distances_is_no_error(cloud):
    """As kernel Isomap adds it."""
    _, coordinates = cloud
    known = cdist(coordinates, coordinates) + 10 * (1 - np.eye(len(coordinates)))
    assert unexplained_variance(known, coordinates) == pytest.approx(0, abs=1e-12)


def test_distances_that_fall_where_they_should_rise_explain_nothing(cloud):
    _, coordinates = cloud
    known = cdist(coordinates, coordinates)
    assert unexplained_variance((known.max() + 1 - known) * (1 - np.eye(len(known))), coordinates) == 1
    assert unexplained_variance(known, np.zeros_like(coordinates)) == 1


def test_every_method_has_a_measure_that_is_fair_to_it():
    assert {measure_of(name) for name in METHODS} == set(MEASURES)
    neighbors_only = {name for name in METHODS if measure_of(name) is lost_neighbors}
    assert measure_of("nonmetric-mds") is unexplained_order
    of_no_length = {name for name, method in METHODS.items() if not method.coordinates_are_lengths}
    assert neighbors_only | {"nonmetric-mds"} == of_no_length


@pytest.mark.parametrize(
    ("true", "coordinates", "words"),
    [
        (np.zeros((4, 3)), np.zeros((4, 2)), r"\(4, 3\)"),
        (np.zeros((4, 4)), np.zeros((5, 2)), r"\(5, 2\)"),
        (np.zeros((2, 2)), np.zeros((2, 2)), "p > 2"),
        (np.zeros((4, 4)), np.full((4, 2), np.nan), "coordinates has 8 NaN"),
        (np.full((4, 4), np.inf), np.zeros((4, 2)), "true has 16 NaN or infinite"),
    ],
)
def test_other_shapes_and_nan_are_refused(true, coordinates, words):
    for measure in MEASURES:
        with pytest.raises(InvalidInputError, match=words):
            measure(true, coordinates)


def test_repeats_are_summed_up_by_mean_and_standard_error():
    estimate = estimated([0.2, 0.4, 0.9])
    assert estimate == pytest.approx((0.5, np.std([0.2, 0.4, 0.9], ddof=1) / np.sqrt(3)))
    assert estimate.bound == pytest.approx(sum(estimate))
    assert estimated([0.3]) == (0.3, 0.0)


def exactly(*values):
    return [MeanError(value, 0.0) for value in values]


def test_the_cheapest_of_those_as_good_as_the_best_is_recommended():
    assert recommended(exactly(0.5, 0.52, 0.53), [9, 5, 1]) == 1
    assert recommended(exactly(0.5, 0.52, 0.6), [9, 9.5, 1]) == 0
    assert recommended(exactly(0.0001, 0.001, 0.002), [9, 5, 1]) == 1


def test_of_those_that_cost_about_the_same_the_best_is_taken():
    assert recommended(exactly(0.5, 0.505, 0.51), [2, 1.05, 1]) == 1


def test_what_is_good_by_luck_does_not_win():
    assert recommended([MeanError(0.5, 0.2), MeanError(0.55, 0.0)], [1, 2]) == 1


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.1), st.floats(0.1, 100)), min_size=1, max_size=20))
def test_nothing_else_that_is_as_good_is_cheaper_by_more_than_a_tenth(tried):
    estimates, costs = [MeanError(value, spread) for value, spread, _ in tried], [cost for *_, cost in tried]
    place = recommended(estimates, costs)
    limit = good_enough(min(estimate.bound for estimate in estimates))
    good = [cost for estimate, cost in zip(estimates, costs, strict=True) if estimate.bound <= limit]
    assert estimates[place].bound <= limit
    assert costs[place] <= 1.1 * min(good) * (1 + 1e-12)
