"""Distributions of many numbers in little room: counts in bins 1/128 of a power of two wide.

A bin is the leading bits of a number, so counts from any portions of the data add up to exactly the same sketch, in
whatever order; a quantile read from it is within 0.4% of one of the numbers around it.
"""

from typing import NamedTuple

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
