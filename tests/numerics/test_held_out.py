"""Rows taken as if they were new: drawn by their number alone, evenly, about as many as wanted."""

import numpy as np

from pipeline.numerics.landmarks.sampling import drawn


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
