"""Disparities: the best monotone fit, ties free, the same map for pairs of landmarks and for anything between."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.spatial.distance import cdist, squareform
from sklearn.isotonic import IsotonicRegression

from pipeline.numerics.models.monotone import MonotoneMap, MonotoneStress

seeds = st.integers(0, 2**32 - 1)


def dissimilarities(seed, m, n_levels=None):
    """Any symmetric ones; with few levels many tie, and some are 0."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.1, 2, size=m * (m - 1) // 2)
    return squareform(values if n_levels is None else np.floor(values * n_levels / 2))


def configuration(seed, m, d=2):
    return np.random.default_rng([seed, 1]).normal(size=(d, m))


def disparities_by_definition(between, distances):
    """Isotonic regression of distances sorted by dissimilarity and, where these tie, by distance."""
    upper = np.triu_indices(len(between), 1)
    delta, d = between[upper], distances[upper]
    expected = np.zeros_like(d)
    positive = np.flatnonzero(delta > 0)
    order = positive[np.lexsort((d[positive], delta[positive]))]
    expected[order] = isotonic_regression(d[order]).x
    return expected


@given(seeds, st.integers(3, 12), st.sampled_from([None, 3, 8, 1000]))
def test_stress_is_kruskals_stress_1_with_ties_approached_the_primary_way(seed, m, n_levels):
    between, X = dissimilarities(seed, m, n_levels), configuration(seed, m)
    assume(between.any())
    distances = cdist(X.T, X.T)
    d = distances[np.triu_indices(m, 1)]
    expected = ((d - disparities_by_definition(between, distances)) ** 2).sum() / (d**2).sum()
    assert MonotoneStress(between).at(X).value == pytest.approx(expected, rel=1e-11, abs=1e-25)


@given(seeds)
def test_without_ties_disparities_are_those_of_scikit_learn(seed):
    between, X = dissimilarities(seed, 9), configuration(seed, 9)
    upper = np.triu_indices(9, 1)
    d = cdist(X.T, X.T)[upper]
    fit = IsotonicRegression().fit_transform(between[upper], d)
    assert MonotoneStress(between).at(X).value == pytest.approx(((d - fit) ** 2).sum() / (d**2).sum(), rel=1e-11)


@given(seeds, st.sampled_from([None, 3, 8]))
def test_derivatives_are_those_of_finite_differences(seed, n_levels):
    """At a random configuration no pair is at a kink, where the second derivative jumps."""
    between, X = dissimilarities(seed, 8, n_levels), configuration(seed, 8, 3)
    objective, h = MonotoneStress(between), 1e-6
    direction = np.random.default_rng([seed, 2]).normal(size=X.shape)
    point, after, before = objective.at(X), objective.at(X + h * direction), objective.at(X - h * direction)
    assert np.vdot(point.gradient, direction) == pytest.approx((after.value - before.value) / (2 * h), abs=1e-8)
    assume((after.pools == point.pools).all() and (before.pools == point.pools).all())
    expected = (after.gradient - before.gradient) / (2 * h)
    np.testing.assert_allclose(point.curvature(direction), expected, atol=1e-7)


@given(seeds, st.sampled_from([None, 3, 8]), st.floats(0.01, 100))
def test_stress_does_not_depend_on_size(seed, n_levels, factor):
    objective, X = MonotoneStress(dissimilarities(seed, 7, n_levels)), configuration(seed, 7)
    assert objective.at(factor * X).value == pytest.approx(objective.at(X).value, rel=1e-9, abs=1e-25)


@given(seeds, st.integers(3, 10), st.sampled_from([None, 2, 5]))
def test_the_map_repeats_every_disparity_of_the_fit(seed, m, n_levels):
    """A pair's disparity is its distance brought into the interval of its dissimilarity."""
    between, X = dissimilarities(seed, m, n_levels), configuration(seed, m)
    assume(between.any())
    objective = MonotoneStress(between)
    distances, upper = cdist(X.T, X.T), np.triu_indices(m, 1)
    lower, top = objective.map_of(objective.at(X)).intervals(between)
    assert (np.diag(lower) == 0).all()
    assert (np.diag(top) == 0).all()
    found = np.clip(distances, lower, top)[upper]
    np.testing.assert_allclose(found, disparities_by_definition(between, distances), rtol=1e-12, atol=1e-15)


@given(seeds, st.sampled_from([None, 4]))
def test_the_map_rises_from_0_without_end(seed, n_levels):
    objective = MonotoneStress(dissimilarities(seed, 8, n_levels))
    fitted = objective.map_of(objective.at(configuration(seed, 8)))
    values = np.sort(np.concatenate([fitted.knots, np.linspace(0, 1.5 * fitted.knots[-1], 301)]))
    lower, upper = fitted.intervals(values)
    assert lower[0] == upper[0] == 0
    assert (lower <= upper).all()
    assert (upper[:-1] <= lower[1:] + 1e-14 * upper[-1])[np.diff(values) > 0].all()
    assert upper[-1] == pytest.approx(1.5 * fitted.upper[-1], rel=1e-12)


def test_between_knots_the_map_is_linear_and_beyond_them_proportional():
    fitted = MonotoneMap(np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 5.0]), np.array([0.0, 3.0, 6.0]))
    lower, upper = fitted.intervals(np.array([[0.0, 0.5, 1.0], [2.0, 3.0, 6.0]]))
    np.testing.assert_array_equal(lower, [[0, 1, 2], [4, 5, 12]])
    np.testing.assert_array_equal(upper, [[0, 1, 3], [4, 6, 12]])


def test_a_constant_run_of_disparities_needs_two_knots():
    rng = np.random.default_rng(0)
    between = dissimilarities(0, 60)
    objective = MonotoneStress(between)
    fitted = objective.map_of(objective.at(rng.normal(size=(2, 60))))
    n_values = len(np.unique(fitted.lower))
    assert n_values < 100
    assert len(fitted.knots) <= 2 * n_values


def test_large_and_small_classes_of_ties_are_sorted_alike():
    """One class has more than 256 pairs, others two."""
    rng = np.random.default_rng(3)
    values = np.concatenate([np.ones(300), np.repeat(np.arange(2.0, 95.0), 2), [99.0] * 10])
    between, X = squareform(rng.permutation(values)[: 30 * 29 // 2]), rng.normal(size=(2, 30))
    distances = cdist(X.T, X.T)
    d = distances[np.triu_indices(30, 1)]
    expected = ((d - disparities_by_definition(between, distances)) ** 2).sum() / (d**2).sum()
    assert MonotoneStress(between).at(X).value == pytest.approx(expected, rel=1e-12)
