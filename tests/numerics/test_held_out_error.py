"""The error of points that a model has not seen, and what follows from errors and costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import ortho_group, spearmanr

from pipeline.errors import InvalidInputError
from pipeline.methods import METHODS
from pipeline.numerics.statistics.held_out_error import (
    Estimate,
    estimated,
    good_enough,
    lost_neighbors,
    measure_of,
    recommended,
    unexplained_order,
    unexplained_variance,
)

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
    assert neighbors_only == {name for name, method in METHODS.items() if not method.coordinates_are_lengths}
    assert measure_of("nonmetric-mds") is unexplained_order


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
    return [Estimate(value, 0.0) for value in values]


def test_the_cheapest_of_those_as_good_as_the_best_is_recommended():
    assert recommended(exactly(0.5, 0.52, 0.53), [9, 5, 1]) == 1
    assert recommended(exactly(0.5, 0.52, 0.6), [9, 9.5, 1]) == 0
    assert recommended(exactly(0.0001, 0.001, 0.002), [9, 5, 1]) == 1


def test_of_those_that_cost_about_the_same_the_best_is_taken():
    assert recommended(exactly(0.5, 0.505, 0.51), [2, 1.05, 1]) == 1


def test_what_is_good_by_luck_does_not_win():
    assert recommended([Estimate(0.5, 0.2), Estimate(0.55, 0.0)], [1, 2]) == 1


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.1), st.floats(0.1, 100)), min_size=1, max_size=20))
def test_nothing_else_that_is_as_good_is_cheaper_by_more_than_a_tenth(tried):
    estimates, costs = [Estimate(value, spread) for value, spread, _ in tried], [cost for *_, cost in tried]
    place = recommended(estimates, costs)
    limit = good_enough(min(estimate.bound for estimate in estimates))
    good = [cost for estimate, cost in zip(estimates, costs, strict=True) if estimate.bound <= limit]
    assert estimates[place].bound <= limit
    assert costs[place] <= 1.1 * min(good) * (1 + 1e-12)
