"""Single rows of a source, in the fewest reads that do not read much else."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pipeline.sources.source import Source
from pipeline.types import AnyArray, IntArray

# Rows between two that are wanted are read along with them up to so many bytes: compressed kinds decode as much anyway.
GAP_BYTES = 1 << 20


def take_rows(source: Source, numbers: IntArray) -> AnyArray:
    """Rows (r, D) of the source by their numbers, rising."""
    rows = np.empty((len(numbers), source.shape[1]), dtype=source.dtype)
    for first, last in _runs(source, numbers):
        start = int(numbers[first])
        rows[first:last] = source.read(start, int(numbers[last - 1]) + 1)[numbers[first:last] - start]
    return rows


def _runs(source: Source, numbers: IntArray) -> Iterator[tuple[int, int]]:
    """Places of numbers that are read together, from each first up to each last."""
    widest = GAP_BYTES // max(1, source.shape[1] * source.dtype.itemsize)
    bounds = np.flatnonzero(np.diff(numbers) > 1 + widest) + 1
    ends = [0, *bounds.tolist(), len(numbers)]
    return ((first, last) for first, last in pairwise(ends) if first < last)
