"""Registration: a planted motion is recovered, mirrored or not; undetermined directions are left as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.numerics.registration import rigid_motion, rms_distance, shared_rows


def orthogonal(rng, d, mirrored):
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    if (np.linalg.det(turn) < 0) != mirrored:
        turn[:, 0] *= -1
    return turn


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.booleans(), st.sampled_from([1e-140, 1.0, 1e140]))
def test_a_planted_motion_is_recovered(seed, d, mirrored, scale):
    rng = np.random.default_rng(seed)
    points = scale * rng.normal(size=(8 * d + 3, d)) * 2.0 ** -np.arange(d)
    turn, shift = orthogonal(rng, d, mirrored), 10 * scale * rng.normal(size=d)
    onto = points @ turn + shift
    found = rigid_motion(points, onto)
    assert found.rank == d
    np.testing.assert_allclose(found.turn, turn, rtol=0, atol=1e-12 * 2**d)
    np.testing.assert_allclose(found.apply(points), onto, rtol=0, atol=1e-12 * np.abs(onto).max())
    assert np.linalg.det(found.turn) == pytest.approx(-1 if mirrored else 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 5))
def test_a_flat_configuration_turns_no_more_than_it_must(seed, d, rank):
    """Points in a subspace, not moved at all: the identity, though any turn about them would do as well."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(20, min(rank, d))) @ np.linalg.qr(rng.normal(size=(d, d)))[0][: min(rank, d)]
    found = rigid_motion(points, points + 3)
    assert found.rank == min(rank, d)
    np.testing.assert_allclose(found.turn, np.eye(d), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.shift, 3, rtol=0, atol=1e-12)


def test_a_turned_plane_in_space_is_found_without_mirroring_what_is_off_it(rng):
    plane = np.column_stack([rng.normal(size=(30, 2)), np.zeros(30)])
    turn = np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    found = rigid_motion(plane, plane @ turn)
    assert found.rank == 2
    np.testing.assert_allclose(found.turn, turn, rtol=0, atol=1e-12)


def test_no_other_motion_comes_closer(rng):
    points, onto = rng.normal(size=(2, 40, 3))
    best = rms_distance(rigid_motion(points, onto).apply(points), onto)
    for _ in range(200):
        turn = orthogonal(rng, 3, bool(rng.integers(2)))
        shift = (onto - points @ turn).mean(axis=0)
        assert rms_distance(points @ turn + shift, onto) >= best


def test_lengths_are_kept(rng):
    points = rng.normal(size=(40, 2))
    turn = rigid_motion(points, 3 * points).turn
    np.testing.assert_allclose(turn, np.eye(2), rtol=0, atol=1e-14)


def test_only_rows_known_on_both_sides_are_shared():
    points, onto = np.zeros((4, 2)), np.zeros((4, 2))
    points[1, 0], onto[2] = np.nan, np.nan
    np.testing.assert_array_equal(shared_rows(points, onto), [True, False, False, True])


def test_distances_are_told_at_any_size():
    apart = np.array([[3.0, 4.0], [0.0, 0.0]])
    for scale in (1e-300, 1.0, 1e300):
        assert rms_distance(scale * apart, 0 * apart) == pytest.approx(scale * np.sqrt(12.5))
    assert rms_distance(apart, apart) == 0
