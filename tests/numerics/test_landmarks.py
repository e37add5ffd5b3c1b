"""Landmarks: distinct rows, the same for the same seed; maxmin takes the farthest point each time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.errors import InvalidInputError
from pipeline.numerics.landmarks import sampling as landmarks
from pipeline.numerics.landmarks.sampling import MAXMIN_CANDIDATES_PER_LANDMARK, maxmin_landmarks, random_landmarks


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
def test_maxmin_refuses_what_has_no_distances(points, message):
    with pytest.raises(InvalidInputError, match=message):
        maxmin_landmarks(points, 2, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("columns", [1, 3, 16])
def test_summing_by_columns_chooses_the_same_rows(dtype, columns, monkeypatch):
    """More points than a block has, some of them equal."""
    points = np.random.default_rng(0).integers(0, 40, (2 * landmarks.BLOCK_ROWS + 7, columns)).astype(dtype)
    by_columns = landmarks.farthest_points(points, 5, 60)
    monkeypatch.setattr(landmarks, "FEW_COLUMNS", 0)
    np.testing.assert_array_equal(by_columns, landmarks.farthest_points(points, 5, 60))
