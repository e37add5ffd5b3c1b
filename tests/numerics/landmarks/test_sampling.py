"""Landmarks: distinct rows, the same for the same seed; maxmin takes the farthest point each time.

Anchors: drawn by the least keys, rows left by ranges of hashes, neighbors across gaps told by the landmarks.

Rows taken as if they were new: drawn by their number alone, evenly, about as many as wanted.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.errors import InvalidInputError
from pipeline.numerics.landmarks import sampling as landmarks
from pipeline.numerics.landmarks.choices import choose_rows, chosen_rows
from pipeline.numerics.landmarks.sampling import (
    ALL,
    MAXMIN_CANDIDATES_PER_LANDMARK,
    MOST_CHECKED,
    MOST_HELD_OUT,
    along_the_data,
    drawn,
    firsts_of_groups,
    held_ranges,
    least_keys,
    random_landmarks,
    row_hashes,
    widen,
)
from pipeline.numerics.neighbors.radius import RadiusLists, even_lists

maxmin_landmarks = partial(chosen_rows, "maxmin")


def farthest_first(points, first, m):
    """The greedy choice by definition; ties, also those of points already covered, go to the lower row."""
    points = np.asarray(points, dtype=np.float64)
    chosen = [int(first)]
    while len(chosen) < m:
        squared = ((points[:, None] - points[chosen]) ** 2).sum(axis=2).min(axis=1)
        squared[chosen] = -1
        chosen.append(int(squared.argmax()))
    return chosen


def on_a_grid(seed, n, m):
    return maxmin_landmarks(np.arange(n)[:, None], m, seed)


@pytest.mark.parametrize(
    "choose", [lambda n, m, seed: random_landmarks(n, m, seed), lambda n, m, s: on_a_grid(s, n, m)]
)
@given(seed=st.integers(0, 2**63), n=st.integers(1, 300), share=st.floats(0, 1))
def test_landmarks_are_distinct_rows_and_repeat_with_the_seed(choose, seed, n, share):
    m = max(1, round(share * n))
    chosen = choose(n, m, seed)
    assert chosen.dtype == np.int64
    assert len(set(chosen.tolist())) == len(chosen) == m
    assert 0 <= chosen.min() <= chosen.max() < n
    np.testing.assert_array_equal(choose(n, m, seed), chosen)


def test_other_seeds_choose_other_landmarks(rng):
    points = rng.normal(size=(500, 2))
    assert len({tuple(random_landmarks(500, 5, seed)) for seed in range(10)}) == 10
    assert len({int(maxmin_landmarks(points, 5, seed)[0]) for seed in range(10)}) > 5


def test_random_landmarks_rise_and_are_uniform():
    draws = np.array([random_landmarks(10, 3, seed) for seed in range(2000)])
    assert (np.diff(draws, axis=1) > 0).all()
    # Each row is expected 600 times with a standard deviation of 20.
    assert np.abs(np.bincount(draws.ravel(), minlength=10) - 600).max() < 100


@pytest.mark.parametrize("kind", ["random", "wide", "lattice", "float32", "integers"])
@pytest.mark.parametrize("m", [1, 4, 30])
def test_maxmin_is_farthest_first_on_all_points_when_they_are_few(rng, kind, m):
    points = {
        "random": rng.normal(size=(150, 3)),
        "wide": rng.normal(size=(150, 50)),
        "lattice": np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2),
        "float32": rng.normal(size=(150, 3)).astype(np.float32),
        "integers": rng.integers(0, 1000, size=(150, 3)),
    }[kind]
    for seed in range(3):
        # With one landmark the candidates are a sample, and only the first, random choice is made.
        chosen = maxmin_landmarks(points, m, seed)
        np.testing.assert_array_equal(chosen, farthest_first(points, chosen[0], m))


@given(st.data())
def test_maxmin_takes_every_distinct_point_before_a_duplicate(data):
    n, width = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 3))
    points = data.draw(arrays(np.float64, (n, width), elements=st.integers(0, 2).map(float)))
    m = data.draw(st.integers(1, n))
    chosen = maxmin_landmarks(points, m, data.draw(st.integers(0, 100)))
    assert len(set(chosen.tolist())) == m
    assert len(np.unique(points[chosen], axis=0)) == min(m, len(np.unique(points, axis=0)))
    np.testing.assert_array_equal(chosen, farthest_first(points, chosen[0], m))


@pytest.mark.parametrize("points", [np.zeros((9, 2)), np.arange(9.0)[:, None], np.eye(9)])
def test_all_points_may_be_landmarks(points):
    np.testing.assert_array_equal(np.sort(maxmin_landmarks(points, 9, seed=3)), np.arange(9))
    np.testing.assert_array_equal(random_landmarks(9, 9, seed=3), np.arange(9))


def test_maxmin_on_many_points_is_farthest_first_among_its_candidates(rng):
    """The far corner is seen only if it is a candidate, and is then chosen at once."""
    n, m = 1000, 2
    points = rng.random((n, 2))
    points[0] = 1e3
    seen = [0 in maxmin_landmarks(points, m, seed) for seed in range(200)]
    # A sample of 100 of the 1000 points: expected 20 times with a standard deviation of 4.2.
    assert MAXMIN_CANDIDATES_PER_LANDMARK * m == 100
    assert 5 <= sum(seen) <= 35


def test_maxmin_spreads_wider_than_chance(rng):
    points = rng.normal(size=(400, 2))

    def covering_radius(rows):
        return np.linalg.norm(points[:, None] - points[rows], axis=2).min(axis=1).max()

    assert covering_radius(maxmin_landmarks(points, 20, 0)) < 0.7 * covering_radius(random_landmarks(400, 20, 0))


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_maxmin_does_not_depend_on_the_unit(rng, scale):
    points = rng.normal(size=(60, 3))
    np.testing.assert_array_equal(maxmin_landmarks(points * scale, 10, 1), maxmin_landmarks(points, 10, 1))


@pytest.mark.parametrize("m", [0, -1, 8, True, 2.0, None, "3"])
@pytest.mark.parametrize("choose", [lambda m: random_landmarks(7, m, 0), lambda m: maxmin_landmarks(np.eye(7), m, 0)])
def test_numbers_of_landmarks_out_of_range_are_refused(choose, m):
    with pytest.raises(InvalidInputError, match=r"n_landmarks=.*from 1 to 7 \(there are 7 points\)"):
        choose(m)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.ones(4), r"points has shape \(4,\)"),
        (np.empty((0, 2)), r"points has shape \(0, 2\); it is empty"),
        (np.eye(3) * 1j, r"points has dtype complex128"),
        (np.full((4, 2), np.nan), r"points has 8 NaN or infinite entries"),
        (np.array([[0.0], [np.inf], [1.0]]), r"points has 1 NaN or infinite entries, first in row 1;"),
        (np.eye(3) * 1e200, r"points reaches 1e\+200 in absolute value, .*rescale it"),
        (np.eye(3) * 1e-200, r"points reaches 1e-200 in absolute value, .*rescale it"),
    ],
)
def test_points_without_distances_are_refused(points, message):
    with pytest.raises(InvalidInputError, match=message):
        choose_rows("trace", points, 2, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("columns", [1, 3, 16])
def test_summing_by_columns_chooses_the_same_rows(dtype, columns, monkeypatch):
    """More points than a block has, some of them equal."""
    points = np.random.default_rng(0).integers(0, 40, (2 * landmarks.BLOCK_ROWS + 7, columns)).astype(dtype)
    by_columns = landmarks.farthest_points(points, 5, 60)
    monkeypatch.setattr(landmarks, "FEW_COLUMNS", 0)
    np.testing.assert_array_equal(by_columns, landmarks.farthest_points(points, 5, 60))


def test_no_two_rows_share_a_hash():
    assert len(np.unique(row_hashes(np.arange(300_000), seed=5))) == 300_000


@given(st.integers(0, 200), st.integers(0, 1000))
def test_the_least_keys_are_chosen_and_their_greatest_told(count, seed):
    rng = np.random.default_rng(seed)
    keys = row_hashes(np.arange(400), seed)
    candidates = np.sort(rng.choice(400, 200, replace=False))
    chosen, greatest = least_keys(keys, candidates, count)
    assert len(chosen) == count
    np.testing.assert_array_equal(chosen, candidates[keys[candidates] <= greatest][:count])


@given(st.integers(0, ALL), st.integers(1, 10**9))
def test_ranges_of_hashes_follow_each_other_and_end_in_time(anchored, n_rows):
    ranges = held_ranges(anchored, n_rows)
    assert anchored <= ranges.calibrating <= ranges.checking <= ALL
    assert (ranges.calibrating - anchored) / 2**64 * n_rows <= MOST_HELD_OUT * (1 + 1e-9)
    assert (ranges.checking - ranges.calibrating) / 2**64 * n_rows <= MOST_CHECKED * (1 + 1e-9)


def test_where_few_rows_are_left_most_calibrate():
    ranges = held_ranges(ALL // 2, 1000)
    assert ranges.checking == ALL
    np.testing.assert_allclose((ranges.calibrating - ALL // 2) / (ALL - ALL // 2), 0.8)


def test_the_first_of_each_group_is_its_least_key():
    labels, keys = np.array([0, 2, 1, 2, 1, 3]), np.array([0, 5, 9, 4, 8, 1], dtype=np.uint64)
    np.testing.assert_array_equal(firsts_of_groups(keys, labels, 3), [4, 3, 5])
    np.testing.assert_array_equal(firsts_of_groups(keys, labels, 1), [4])
    assert not len(firsts_of_groups(keys, labels, 0))


def test_edges_are_widened_to_the_greatest_difference_if_any_is_known():
    to_landmarks = np.array([[0.0, 5.0], [4.0, 1.0], [np.inf, np.inf], [np.inf, np.inf], [4.5, 1.0]], dtype=np.float32)
    lengths = np.array([1.0, 1.0, 1.0, 7.0])
    widen(lengths, np.array([0, 2, 1, 0]), np.array([1, 3, 4, 4]), to_landmarks)
    np.testing.assert_array_equal(lengths, [4.0, 1.0, 1.0, 7.0])


def test_neighbors_across_a_gap_are_replaced_by_the_nearest():
    lists = RadiusLists(np.array([0, 4, 6]), np.array([7, 3, 9, 4, 5, 6]), np.array([1.0, 2.0, 3.0, 3.5, 2.0, 2.5]))
    found = along_the_data(lists, np.array([0.0, 100.0, 5.0, 1.0, 0.0, 0.0]))
    np.testing.assert_array_equal(found.offsets, [0, 4, 6])
    np.testing.assert_array_equal(found.distances, [1.0, 1.0, 3.5, 4.0, 2.0, 2.5])
    np.testing.assert_array_equal(found.indices, [7, 7, 4, 9, 5, 6])


def test_on_a_straight_line_nothing_changes(rng):
    """There distances to a landmark at the end differ by as much as points are apart."""
    places, queries = np.sort(rng.uniform(size=50)), rng.uniform(size=20)
    apart = np.abs(queries[:, None] - places)
    neighbors = np.argsort(apart, axis=1)[:, :5]
    distances = np.take_along_axis(apart, neighbors, axis=1)
    bound = np.zeros(neighbors.size)
    widen(bound, np.repeat(neighbors[:, 0], 5), neighbors.ravel(), places[:, None])
    found = along_the_data(even_lists(distances, neighbors), bound)
    np.testing.assert_array_equal(found.indices, neighbors.ravel())
    np.testing.assert_allclose(found.distances, distances.ravel(), rtol=0, atol=1e-15)


def test_a_row_is_drawn_whatever_comes_with_it(rng):
    rows = rng.permutation(50_000)
    whole = drawn(rows, 50_000, seed=3, wanted=1000)
    parts = np.concatenate([drawn(part, 50_000, seed=3, wanted=1000) for part in np.array_split(rows, 7)])
    np.testing.assert_array_equal(parts, whole)


def test_about_as_many_as_wanted_are_drawn_evenly():
    taken = np.flatnonzero(drawn(np.arange(200_000), 200_000, seed=0, wanted=10_000))
    assert abs(len(taken) - 10_000) < 500
    per_tenth = np.histogram(taken, bins=10, range=(0, 200_000))[0]
    assert (np.abs(per_tenth - 1000) < 150).all()


def test_seeds_draw_other_rows_and_few_rows_are_all_drawn():
    first, second = (drawn(np.arange(10_000), 10_000, seed, wanted=1000) for seed in (0, 1))
    assert (first & second).sum() < 200
    assert drawn(np.arange(50), 50, seed=0, wanted=50).all()
