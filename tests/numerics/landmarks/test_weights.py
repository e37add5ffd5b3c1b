"""How many rows each landmark stands for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.numerics.landmarks.weights import NOWHERE, NearestLandmarks, landmark_counts


def nearest(lengths: np.ndarray, rows: np.ndarray, cuts: list[int] | None = None) -> np.ndarray:
    found = NearestLandmarks(rows, len(lengths))
    for part in np.split(lengths, cuts or [], axis=1):
        found.add(np.ascontiguousarray(part))
    return found.places


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 9), st.sampled_from([np.float32, np.float64]))
def test_is_the_least_of_each_row_and_of_ties_the_earliest_row_in_any_batches(seed, p, m, dtype):
    rng = np.random.default_rng(seed)
    # Few values, so that many tie.
    lengths, rows = rng.integers(0, 4, (p, m)).astype(dtype), rng.permutation(100)[:m]
    order = np.argsort(rows)
    expected = order[lengths[:, order].argmin(axis=1)]
    np.testing.assert_array_equal(nearest(lengths, rows), expected)
    cuts = sorted(rng.integers(0, m + 1, 3).tolist())
    np.testing.assert_array_equal(nearest(lengths, rows, cuts), expected)


def test_negative_roots_of_similarities_are_the_nearest():
    np.testing.assert_array_equal(nearest(np.array([[0.5, -0.2, 0.0]]), np.arange(3)), [1])


@given(st.integers(0, 2**32 - 1))
def test_counts_are_those_of_rows_and_every_landmark_stands_for_itself(seed):
    rng = np.random.default_rng(seed)
    points, n_rows = rng.permutation(40)[:25], rng.integers(1, 5, 25)
    landmarks = rng.choice(points, 6, replace=False)
    places = rng.integers(-1, 6, 25)
    expected = np.zeros(6, int)
    for point, place, n in zip(points, places, n_rows, strict=True):
        if point in landmarks:
            expected[list(landmarks).index(point)] += n
        elif place != NOWHERE:
            expected[place] += n
    found = landmark_counts(places, points, landmarks, n_rows)
    np.testing.assert_array_equal(found, expected)
    assert (found >= 1).all()
