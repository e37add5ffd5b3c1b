"""Sketches of distributions: exact under merging, close in their quantiles.

The two-sample test in portions: scipy's, whatever the portions, and the level that it states.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import ks_2samp

from pipeline.numerics.statistics import gap_counts, merged, quantiles, sketch, two_sample_test

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


@given(seed=st.integers(0, 2**32 - 1), ties=st.booleans())
def test_the_statistic_is_that_of_scipy(seed, ties):
    rng = np.random.default_rng(seed)
    reference, batch = rng.normal(size=rng.integers(1, 80)), rng.normal(0.3, 1.2, size=rng.integers(1, 80))
    if ties:
        reference, batch = reference.round(), batch.round()
    reference = np.sort(reference)
    counts = gap_counts(reference, batch, np.ones(len(batch), dtype=np.int64))
    expected = ks_2samp(reference, batch, method="asymp")
    found = two_sample_test(reference, counts)
    assert found.statistic == pytest.approx(expected.statistic, abs=1e-12)
    assert found.p_value == pytest.approx(expected.pvalue, abs=1e-9)


def test_portions_add_up_and_weights_repeat(rng):
    reference, batch = np.sort(rng.normal(size=200)), rng.normal(size=90)
    weights = rng.integers(1, 4, size=90)
    whole = gap_counts(reference, np.repeat(batch, weights), np.ones(weights.sum(), dtype=np.int64))
    parts = sum(gap_counts(reference, batch[i::3], weights[i::3]) for i in range(3))
    np.testing.assert_array_equal(parts, whole)
    assert whole.sum() == weights.sum()


def test_no_rows_are_no_evidence():
    assert two_sample_test(np.arange(5.0), np.zeros(11, dtype=np.int64)) == (0.0, 1.0)


@pytest.mark.parametrize("size", [1, 5, 40, 1000])
def test_the_level_holds_for_batches_of_the_same_kind(rng, size):
    reference, n_batches = np.sort(rng.normal(size=5000)), 1000
    ones = np.ones(size, dtype=np.int64)
    alarms = sum(
        two_sample_test(reference, gap_counts(reference, rng.normal(size=size), ones)).p_value < 0.05
        for _ in range(n_batches)
    )
    assert alarms <= 0.05 * n_batches + 3 * np.sqrt(0.05 * 0.95 * n_batches)


def test_a_shifted_batch_is_told(rng):
    reference = np.sort(rng.normal(size=5000))
    counts = gap_counts(reference, rng.normal(0.5, 1, size=300), np.ones(300, dtype=np.int64))
    assert two_sample_test(reference, counts).p_value < 1e-6


def test_within_a_margin_no_batch_is_large_enough(rng):
    reference = np.sort(rng.normal(size=20_000))
    counts = gap_counts(reference, rng.normal(0.1, 1, size=200_000), np.ones(200_000, dtype=np.int64))
    assert two_sample_test(reference, counts).p_value < 1e-3
    assert two_sample_test(reference, counts, margin=0.06).p_value == 1.0
