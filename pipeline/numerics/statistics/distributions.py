"""Distributions of many numbers in little memory, and whether a batch of rows is like the training rows.

Distributions of many numbers in little room: counts in bins 1/128 of a power of two wide.

A bin is the leading bits of a number, so counts from any portions of the data add up to exactly the same sketch, in
whatever order; a quantile read from it is within 0.4% of one of the numbers around it.

Whether a batch of rows looks like the training rows: the two-sample test of Kolmogorov and Smirnov, in portions.

A trust column of the batch is counted into the gaps between the reference values and onto the values themselves. Counts
of portions add up, and the greatest difference between the two distributions can be read from them exactly: between two
reference values only the batch's distribution rises, so the extremes are at reference values or just before them.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pipeline.types import AnyArray, FloatArray, IntArray

# Of the 52 bits of a double's fraction, those left out of a bin's number.
DROPPED_BITS = 45
MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)


class Sketch(NamedTuple):
    """Bins (b,), rising, and how many numbers (b,) fell into each."""

    bins: IntArray
    counts: IntArray


def sketch(values: FloatArray, weights: IntArray) -> Sketch:
    """The sketch of finite numbers, each counted `weights` times."""
    return _added(_ordered_bits(values) >> DROPPED_BITS, weights)


def merged(sketches: list[Sketch]) -> Sketch:
    """The sketch of all the numbers together."""
    return _added(np.concatenate([s.bins for s in sketches]), np.concatenate([s.counts for s in sketches]))


def quantiles(of: Sketch, shares: FloatArray) -> FloatArray:
    """For each share, the number that this share of all numbers does not exceed."""
    reached = np.cumsum(of.counts)
    places = np.searchsorted(reached, np.asarray(shares) * reached[-1])
    return _middle(of.bins[np.minimum(places, len(of.bins) - 1)])


def _added(bins: IntArray, counts: IntArray) -> Sketch:
    # There are at most 2^19 bins, so that none needs to be looked for.
    low = int(bins.min(initial=0))
    total = np.zeros(int(bins.max(initial=0)) - low + 1, dtype=np.int64)
    np.add.at(total, bins - low, counts)
    hit = np.flatnonzero(total)
    return Sketch(hit + low, total[hit])


def _ordered_bits(values: FloatArray) -> IntArray:
    """Whole numbers in the same order as the doubles; adding 0 makes -0 and +0 the same."""
    return _flipped((np.asarray(values, dtype=np.float64) + 0.0).view(np.int64))


def _flipped(bits: AnyArray) -> IntArray:
    """A negative double's bits grow with its size: turn them around. Doing so twice changes nothing."""
    return np.asarray(np.where(bits < 0, bits ^ MAGNITUDE, bits))


def _middle(bins: IntArray) -> FloatArray:
    bits = (bins << DROPPED_BITS) + (1 << (DROPPED_BITS - 1))
    middle = _flipped(bits).view(np.float64)
    # The bin that holds 0 reaches up to the least normal double.
    return np.asarray(np.where(bins == 0, 0.0, middle))


FAR_SHARE = 0.99
# Beyond so many values in both samples the least probability is below anything that matters.
FEW = 20


class TwoSampleTest(NamedTuple):
    """The greatest difference between two distributions, and how often as much comes by chance."""

    statistic: float
    p_value: float


def gap_counts(reference: FloatArray, values: FloatArray, weights: IntArray) -> IntArray:
    """How many values, each counted `weights` times, are below, at and between the reference values.

    reference: (s,) rising, perhaps with repetitions, which have counts of 0. Returns (2 s + 1,): below the first, at
    it, between it and the second, and so on.
    """
    left = np.searchsorted(reference, values, side="left")
    at = (left < len(reference)) & (reference[np.minimum(left, len(reference) - 1)] == values)
    return np.bincount(2 * left + at, weights=weights, minlength=2 * len(reference) + 1).astype(np.int64)


def two_sample_test(reference: FloatArray, counts: IntArray, margin: float = 0.0) -> TwoSampleTest:
    """Test a batch, given by its `gap_counts`, against the reference values (s,), rising.

    Distributions that differ by up to `margin` count as the same; without one, a batch only has to be large enough for
    differences that mean nothing to be significant.
    """
    n_batch, n_reference = int(counts.sum()), len(reference)
    if not n_batch:
        return TwoSampleTest(0.0, 1.0)
    reached = np.cumsum(counts) / n_batch
    # Equal reference values have the batch's counts at the first of them.
    first = np.unique(reference, return_index=True)[1]
    at, before = reached[2 * first + 1], reached[2 * first]
    up_to = np.append(first[1:], n_reference) / n_reference
    statistic = float(max(np.abs(at - up_to).max(), np.abs(before - first / n_reference).max()))
    effective = max(1, round(n_batch * n_reference / (n_batch + n_reference)))
    from scipy.stats import kstwo  # takes a second to import, and only extensions need it

    p_value = max(float(kstwo.sf(max(0.0, statistic - margin), effective)), _least_p_value(n_batch, n_reference))
    return TwoSampleTest(statistic, min(1.0, p_value))


def _least_p_value(n_batch: int, n_reference: int) -> float:
    """How often all values of the one sample lie beyond all of the other by chance: of a few, not seldom."""
    fewer = min(n_batch, n_reference)
    return 2.0 / math.comb(n_batch + n_reference, fewer) if fewer <= FEW else 0.0


def compared(
    references: Mapping[str, FloatArray], counts: Mapping[str, IntArray], margins: Mapping[str, float], level: float
) -> dict[str, Any]:
    """A batch, given by the `gap_counts` of some columns, against their reference values: every column's test, and
    whether any says that the batch is of another kind; together they say so of one that is not as often as the level.
    """
    columns = {}
    for name, found in counts.items():
        reference = references[name]
        test = two_sample_test(reference, found, margins[name])
        far = int(np.searchsorted(reference, np.quantile(reference, FAR_SHARE), side="right"))
        beyond = float(found[2 * far :].sum() / max(1, found.sum()))
        drifts = bool(test.p_value < level / len(counts))
        columns[name] = {**test._asdict(), "margin": margins[name], "share_beyond_99": beyond, "drifts": drifts}
    return {"level": level, "columns": columns, "drifts": any(entry["drifts"] for entry in columns.values())}
