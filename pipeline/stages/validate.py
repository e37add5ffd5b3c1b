"""Stage 1, validate: one scan of the source, before anything expensive.

Every entry is looked at once: finite or not, its size, the digest of each grain of rows, and the mean and spread of
each column, which standardizing needs. All are kept by grain, so that none depends on the size of the partitions.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.partitions import RowPartitions
from pipeline.sources import Source
from pipeline.stages.stage import Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, Json

LISTED_ROWS = 5


@dataclass(frozen=True)
class Validate(Stage):
    """Scan a source. Its results are named by the source's cheap fingerprint; what follows, by the content's digest."""

    source: Source
    partitions: RowPartitions
    name = "validate"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        return [repr(sorted(self.source.fingerprint().items()))]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        block = self.source.read(rows.start, rows.stop)
        grains = [block[g.start - rows.start : g.stop - rows.start] for g in self.partitions.grains(partition)]
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1)) if block.dtype.kind == "f" else np.empty(0, np.int64)
        largest = 0.0 if len(bad) else float(np.abs(block.astype(np.float64)).max())
        figures = {
            "digests": [_digest(grain) for grain in grains],
            "largest": largest,
            "bad_entries": int(np.count_nonzero(~np.isfinite(block))) if len(bad) else 0,
            "bad_rows": [int(row) + rows.start for row in bad[:LISTED_ROWS]],
        }
        if len(bad) or largest > checks.LARGEST_SIZE:
            return figures, []  # the stage will be refused, and such moments would overflow
        moments = np.stack([column_moments(grain) for grain in grains])
        return figures, ledger.write_parts(partition, {"moments": moments}, len(moments))

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        self._refuse_bad_entries(list(figures.values()))
        largest = max(entry["largest"] for entry in figures.values())
        checks.require_squarable(self.source.name, np.array([largest]))
        moments = self._merged_moments(ledger)
        ledger.write("moments", moments, 2)
        digests = [digest for partition in sorted(figures) for digest in figures[partition]["digests"]]
        content = hashlib.sha256(repr((self.source.shape, self.source.dtype.str, digests)).encode()).hexdigest()
        n_rows, n_columns = self.source.shape
        report = {"content": content, "largest": largest, "n_rows": n_rows, "n_columns": n_columns}
        return {**report, "dtype": self.source.dtype.str}, ["moments"]

    def _refuse_bad_entries(self, figures: list[Json]) -> None:
        n_bad = sum(entry["bad_entries"] for entry in figures)
        if n_bad:
            rows = [row for entry in figures for row in entry["bad_rows"]][:LISTED_ROWS]
            raise InvalidInputError(
                f"{self.source.name} has {n_bad} NaN or infinite entries, first in rows {', '.join(map(str, rows))} "
                f"(partition {rows[0] // self.partitions.rows_each}); drop or fill those rows."
            )

    def _merged_moments(self, ledger: StageLedger) -> FloatArray:
        """Mean and sum of squared deviations (2, D) over all rows, merged grain by grain in row order."""
        total = np.zeros((2, self.source.shape[1]))
        n_seen = 0
        for partition in range(self.partitions.count):
            parts: Any = ledger.part("moments", partition).read()
            for part, grain in zip(parts, self.partitions.grains(partition), strict=True):
                total = merged_moments(total, n_seen, part, len(grain))
                n_seen += len(grain)
        return total


def column_moments(rows: AnyArray) -> FloatArray:
    """Mean and sum of squared deviations (2, D) of each column."""
    values = rows.astype(np.float64)
    mean = values.mean(axis=0)
    return np.stack([mean, ((values - mean) ** 2).sum(axis=0)])


def merged_moments(first: FloatArray, n_first: int, second: FloatArray, n_second: int) -> FloatArray:
    """The moments of two sets of rows together, without the cancellation of sums of squares."""
    n = n_first + n_second
    shift = second[0] - first[0]
    mean = first[0] + shift * (n_second / n)
    return np.stack([mean, first[1] + second[1] + shift**2 * (n_first * n_second / n)])


def _digest(rows: AnyArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()
