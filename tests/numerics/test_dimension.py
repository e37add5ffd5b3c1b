"""Intrinsic dimension: known ones are found, with intervals that hold what they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from scipy.stats import linregress

from pipeline.errors import InvalidInputError
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.dimension import (
    Dimension,
    automatic_components,
    automatic_rows,
    dimension_of_points,
    intrinsic_dimension,
)
from pipeline.numerics.statistics import Estimate


def distances(points, k=10, period=None):
    return cKDTree(points, boxsize=period).query(points, k + 1)[0][:, 1:]


def sphere(n, d, seed):
    points = np.random.default_rng(seed).normal(size=(n, d + 1))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("points", "d"), [(lambda s: swiss_roll(10_000, seed=s)[0], 2), (lambda s: sphere(10_000, 4, s), 4)]
)
def test_known_dimensions_are_found(points, d, seed):
    found = intrinsic_dimension(distances(points(seed)))
    assert found.two_nearest.value == pytest.approx(d, rel=0.05)
    assert found.maximum_likelihood.value == pytest.approx(d, rel=0.15)
    for estimate in found[:2]:
        assert estimate.low < estimate.value < estimate.high
        assert estimate.high - estimate.low < 0.1 * d


def test_maximum_likelihood_is_low_in_many_dimensions_and_lower_with_more_neighbors():
    values = [intrinsic_dimension(distances(sphere(5000, 8, 0), k)).maximum_likelihood.value for k in (5, 20, 80)]
    assert 8 > values[0] > values[1] > values[2] > 0.85 * 8


@pytest.mark.parametrize("which", ["two_nearest", "maximum_likelihood"])
def test_intervals_cover_the_dimension_of_data_without_edges(which):
    """On a torus only chance is left: 95% of intervals, give or take three standard errors of 200 trials."""
    rng, n_covered = np.random.default_rng(0), 0
    for _ in range(200):
        estimate = getattr(intrinsic_dimension(distances(rng.random((400, 2)), 10, 1.0)), which)
        n_covered += estimate.low <= 2 <= estimate.high
    assert n_covered >= 181


def test_two_nearest_is_near_the_line_that_the_paper_fits():
    """Facco et al. fit -log(1 - F) against log mu through the origin, without the largest tenth."""
    nearest = distances(sphere(3000, 3, 1), 2)
    ratios = np.sort(np.log(nearest[:, 1] / nearest[:, 0]))
    share = np.arange(len(ratios)) / len(ratios)
    kept = slice(0, int(0.9 * len(ratios)))
    x, y = ratios[kept], -np.log(1 - share[kept])
    assert linregress(x, y).rvalue > 0.999
    assert intrinsic_dimension(nearest).two_nearest.value == pytest.approx((x @ y) / (x @ x), rel=0.02)


@given(st.integers(0, 2**32 - 1), st.integers(25, 60), st.integers(1, 4), st.integers(2, 8))
def test_estimates_follow_their_formulas(seed, n, d, k):
    near = np.sort(np.random.default_rng(seed).random((n, k)) ** (1 / d) + 1e-3, axis=1)
    found = intrinsic_dimension(near)
    inverse = np.mean([np.mean([np.log(row[-1] / t) for t in row[:-1]]) for row in near])
    assert found.maximum_likelihood.value == pytest.approx(1 / inverse, rel=1e-12)
    ratios, kept = sorted(np.log(near[:, 1] / near[:, 0])), int(0.9 * n)
    mass = sum(min(ratio, ratios[kept - 1]) for ratio in ratios)
    assert found.two_nearest.value == pytest.approx((kept - 1) / mass, rel=1e-12)
    scaled = intrinsic_dimension(np.ldexp(near, 40))
    np.testing.assert_allclose(np.ravel(scaled[:2]), np.ravel(found[:2]), rtol=1e-9)


def test_rows_that_repeat_count_once():
    points = sphere(500, 2, 0)
    repeated = np.concatenate([points, points[:100], points[:7]])
    assert dimension_of_points(repeated, 10) == dimension_of_points(points, 10)
    assert dimension_of_points(points, 10) == intrinsic_dimension(distances(points))


def test_where_nothing_can_be_said_nothing_is():
    assert dimension_of_points(np.zeros((100, 2)), 10) is None
    assert dimension_of_points(sphere(19, 2, 0), 5) is None
    # On a grid all neighbors are equally far.
    assert dimension_of_points(np.arange(100.0)[:, None], 2) is None
    assert intrinsic_dimension(np.zeros((100, 3))) is None
    with pytest.raises(InvalidInputError, match=r"\(100, 1\)"):
        intrinsic_dimension(np.ones((100, 1)))


@pytest.mark.parametrize(
    ("value", "most", "expected"), [(0.3, 9, 1), (1.49, 9, 1), (1.5, 9, 2), (2.5, 9, 3), (7.8, 9, 8), (7.8, 5, 5)]
)
def test_the_automatic_number_is_the_nearest_within_its_bounds(value, most, expected):
    estimate = Estimate(value, value - 0.1, value + 0.1)
    # The second estimate, which is lower in many dimensions, has no say.
    found = Dimension(estimate, Estimate(1.0, 0.9, 1.1), 100)
    assert automatic_components(found, 100, most) == expected


def test_without_an_estimate_there_is_no_automatic_number():
    with pytest.raises(InvalidInputError, match="intrinsic dimension, and 7 rows give none"):
        automatic_components(None, 7, 5)


@given(st.integers(1, 10**7), st.integers(1, 10**6), st.integers(0, 100))
def test_the_sample_is_of_rows_of_the_source_and_bounded(n_rows, n_columns, seed):
    rows = automatic_rows(n_rows, n_columns, seed)
    assert len(np.unique(rows)) == len(rows)
    assert 0 <= rows[0] <= rows[-1] < n_rows
    assert len(rows) == min(n_rows, 10_000) or 8 * len(rows) * n_columns >= 2**28 - 8 * n_columns or len(rows) <= 256
    assert len(rows) <= max(20, min(10_000, 2**28 // (8 * n_columns)))
