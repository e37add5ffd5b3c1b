"""How rows, and comparisons of rows with landmarks, are cut into pieces of work: integers only.

A grain is the unit in which anything is accumulated over rows (sums, digests). Partitions are whole numbers of grains,
so a figure added up grain by grain in row order has the same bytes whatever the size of the partitions.

A comparison by the user's function may take microseconds or minutes. So even few of them make pieces enough for a
cluster to share and a crash to lose little; of many the pieces are larger, or keeping track of them would take longer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pipeline.types import AnyArray, IntArray

GRAIN_ROWS = 4096
# Grains of results stored together, if partitions have so many.
GRAINS_PER_CHUNK = 16
# Partitions are not larger than this many bytes, and there are at least so many, for workers to share evenly; unless
# they would be so small that each costs more to keep track of than to compute.
LARGEST_BYTES, SMALLEST_BYTES = 32 << 20, 1 << 19
MANY_PARTITIONS = 16
LANDMARKS_EACH = 16
FEWEST_ROWS, USUAL_ROWS, MOST_ROWS = 8, 256, 65_536
# Pieces that there are at least and at most, as far as the rows of each may go down and up for it.
ENOUGH_PIECES, MOST_PIECES = 64, 10_000


def automatic_bytes(source_bytes: int) -> int:
    """The size of partitions unless one is asked for. It does not depend on the workers: other workers, same work."""
    return max(SMALLEST_BYTES, min(LARGEST_BYTES, source_bytes // MANY_PARTITIONS))


@dataclass(frozen=True)
class RowPartitions:
    """Rows 0 to n_rows in partitions of `grains_each` grains, in row order; the last may be shorter."""

    n_rows: int
    grains_each: int

    @classmethod
    def of_bytes(cls, n_rows: int, bytes_per_row: int, partition_bytes: int) -> "RowPartitions":
        """Partitions of about `partition_bytes`, at least one grain each."""
        n_grains = max(1, partition_bytes // (max(1, bytes_per_row) * GRAIN_ROWS))
        return cls(n_rows, n_grains if n_grains < GRAINS_PER_CHUNK else n_grains - n_grains % GRAINS_PER_CHUNK)

    @property
    def rows_each(self) -> int:
        return self.grains_each * GRAIN_ROWS

    @property
    def rows_per_chunk(self) -> int:
        """How many rows of a result are stored together: a partition writes whole chunks."""
        whole = self.grains_each % GRAINS_PER_CHUNK == 0
        few = self.grains_each < GRAINS_PER_CHUNK
        return GRAIN_ROWS * (GRAINS_PER_CHUNK if whole else self.grains_each if few else 1)

    @property
    def count(self) -> int:
        return -(-self.n_rows // self.rows_each)

    def rows(self, partition: int) -> range:
        """The rows of one partition."""
        return range(partition * self.rows_each, min((partition + 1) * self.rows_each, self.n_rows))

    def grains(self, partition: int) -> Iterator[range]:
        """The rows of each grain of one partition."""
        rows = self.rows(partition)
        return (range(start, min(start + GRAIN_ROWS, rows.stop)) for start in range(rows.start, rows.stop, GRAIN_ROWS))


@dataclass(frozen=True)
class Comparisons:
    """Every row with every landmark, in pieces of `rows_each` rows and a batch of landmarks; the last of either may be
    smaller. Pieces of the same rows follow each other."""

    n_rows: int
    n_landmarks: int

    @property
    def n_batches(self) -> int:
        return -(-self.n_landmarks // LANDMARKS_EACH)

    @cached_property
    def rows_each(self) -> int:
        rows = USUAL_ROWS
        while rows > FEWEST_ROWS and self._pieces(rows) < ENOUGH_PIECES:
            rows //= 2
        while rows < MOST_ROWS and self._pieces(rows) > MOST_PIECES:
            rows *= 2
        return rows

    @property
    def count(self) -> int:
        return self._pieces(self.rows_each)

    def rows(self, piece: int) -> range:
        """The rows of one piece."""
        first = piece // self.n_batches * self.rows_each
        return range(first, min(first + self.rows_each, self.n_rows))

    def landmarks(self, piece: int) -> slice:
        """The places of its landmarks among all of them."""
        first = piece % self.n_batches * LANDMARKS_EACH
        return slice(first, min(first + LANDMARKS_EACH, self.n_landmarks))

    def _pieces(self, rows_each: int) -> int:
        return self.n_batches * -(-self.n_rows // rows_each)


class Readable(Protocol):
    """Rows that are read in blocks."""

    def read(self, start: int, stop: int) -> AnyArray: ...


def read_rows(source: Readable, rows: IntArray, block_rows: int) -> AnyArray:
    """Rows with these numbers, rising, read in pieces of no more than so many."""
    pieces = np.split(rows, np.flatnonzero(np.diff(rows // block_rows)) + 1)
    return np.concatenate([source.read(int(piece[0]), int(piece[-1]) + 1)[piece - piece[0]] for piece in pieces])
