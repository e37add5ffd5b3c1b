"""Whether a batch of rows looks like the training rows: the two-sample test of Kolmogorov and Smirnov, in portions.

A trust column of the batch is counted into the gaps between the reference values and onto the values themselves. Counts
of portions add up, and the greatest difference between the two distributions can be read from them exactly: between two
reference values only the batch's distribution rises, so the extremes are at reference values or just before them.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import kstwo

from pipeline.types import FloatArray, IntArray

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
