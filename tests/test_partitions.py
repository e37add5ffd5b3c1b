"""Every row exactly once, in order."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.partitions import (
    GRAIN_ROWS,
    LARGEST_BYTES,
    MANY_PARTITIONS,
    SMALLEST_BYTES,
    RowPartitions,
    automatic_bytes,
)

partitions = st.builds(RowPartitions, st.integers(1, 50 * GRAIN_ROWS), st.integers(1, 20))


@given(partitions)
def test_partitions_cover_every_row_once_in_order(cut):
    ranges = [cut.rows(i) for i in range(cut.count)]
    assert ranges[0].start == 0
    assert ranges[-1].stop == cut.n_rows
    assert all(a.stop == b.start for a, b in pairwise(ranges))
    assert all(len(r) == cut.rows_each for r in ranges[:-1])
    assert 0 < len(ranges[-1]) <= cut.rows_each


@given(partitions)
def test_grains_are_the_same_whatever_the_partitions(cut):
    grains = [grain for i in range(cut.count) for grain in cut.grains(i)]
    alone = RowPartitions(cut.n_rows, 1)
    assert grains == [alone.rows(i) for i in range(alone.count)]


@given(st.integers(1, 10**9), st.integers(0, 10**5), st.integers(1, 10**9))
def test_partitions_keep_to_their_bytes_or_are_one_grain(n_rows, row_bytes, partition_bytes):
    cut = RowPartitions.of_bytes(n_rows, row_bytes, partition_bytes)
    assert cut.grains_each == 1 or cut.rows_each * row_bytes <= partition_bytes


@given(st.integers(1, 10**13))
def test_partitions_are_many_unless_they_would_be_tiny(source_bytes):
    size = automatic_bytes(source_bytes)
    assert SMALLEST_BYTES <= size <= LARGEST_BYTES
    assert size == SMALLEST_BYTES or source_bytes >= MANY_PARTITIONS * size
    assert size == LARGEST_BYTES or source_bytes < MANY_PARTITIONS * (size + 1)
