"""Anchors: drawn by the least keys, rows left by ranges of hashes, neighbors across gaps told by the landmarks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.numerics.landmarks.sampling import (
    ALL,
    MOST_CHECKED,
    MOST_HELD_OUT,
    along_the_data,
    firsts_of_groups,
    held_ranges,
    least_keys,
    row_hashes,
    widen,
)


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
    distances, neighbors = np.array([[1.0, 2.0, 3.0, 3.5]]), np.array([[7, 3, 9, 4]])
    apart = np.array([[0.0, 100.0, 5.0, 1.0]])
    lengths, listed = along_the_data(distances, neighbors, apart)
    np.testing.assert_array_equal(lengths, [[1.0, 1.0, 3.5, 4.0]])
    np.testing.assert_array_equal(listed, [[7, 7, 4, 9]])


def test_on_a_straight_line_nothing_changes(rng):
    """There distances to a landmark at the end differ by as much as points are apart."""
    places, queries = np.sort(rng.uniform(size=50)), rng.uniform(size=20)
    apart = np.abs(queries[:, None] - places)
    neighbors = np.argsort(apart, axis=1)[:, :5]
    distances = np.take_along_axis(apart, neighbors, axis=1)
    bound = np.zeros(neighbors.size)
    widen(bound, np.repeat(neighbors[:, 0], 5), neighbors.ravel(), places[:, None])
    lengths, listed = along_the_data(distances, neighbors, bound.reshape(neighbors.shape))
    np.testing.assert_array_equal(listed, neighbors)
    np.testing.assert_allclose(lengths, distances, rtol=0, atol=1e-15)
