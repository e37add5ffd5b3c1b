"""Sketches of distributions: exact under merging, close in their quantiles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.numerics.statistics.distributions import merged, quantiles, sketch

NUMBERS = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e200, 1e200))


def ones(values):
    return np.ones(len(values), dtype=np.int64)


@given(NUMBERS, st.integers(0, 60))
def test_portions_add_up_to_the_sketch_of_the_whole(values, cut):
    whole = sketch(values, ones(values))
    parts = [part for part in (values[:cut], values[cut:]) if len(part)]
    joined = merged([sketch(part, ones(part)) for part in reversed(parts)])
    np.testing.assert_array_equal(joined.bins, whole.bins)
    np.testing.assert_array_equal(joined.counts, whole.counts)
    assert whole.counts.sum() == len(values)


@given(NUMBERS)
def test_bins_are_in_the_order_of_the_numbers(values):
    bins = [int(sketch(values[i : i + 1], ones(values[:1])).bins[0]) for i in np.argsort(values)]
    assert bins == sorted(bins)


@pytest.mark.parametrize("kind", ["normal", "lognormal", "mostly zero", "negative"])
def test_quantiles_are_close_to_the_true_ones(rng, kind):
    values = {
        "normal": rng.normal(size=20_000),
        "lognormal": np.exp(5 * rng.normal(size=20_000)),
        "mostly zero": np.where(rng.random(20_000) < 0.8, 0.0, rng.random(20_000)),
        "negative": -np.exp(rng.normal(size=20_000)),
    }[kind]
    shares = np.array([0.001, 0.05, 0.3, 0.5, 0.77, 0.99, 1.0])
    found = quantiles(sketch(values, ones(values)), shares)
    exact = np.quantile(values, shares, method="inverted_cdf")
    np.testing.assert_allclose(found, exact, rtol=1 / 256)
    assert (found[exact == 0] == 0).all()


def test_weights_count_numbers_several_times():
    found = sketch(np.array([1.0, 5.0, -0.0, 0.0]), np.array([2, 3, 4, 1]))
    np.testing.assert_array_equal(found.counts, [5, 2, 3])
    np.testing.assert_allclose(quantiles(found, np.array([0.5, 0.55, 0.9])), [0, 1, 5], rtol=1 / 256)
