"""The last stage of an inversion: what is known of every query, in the order in which they were given."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipeline.numerics.inverse import DROPPED, ILL_CONDITIONED, MERGED, NOT_UNISOLVENT, REGULARIZED, UNDEFINED
from pipeline.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.exchange import gather_rows
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, Json

FLAGS = {
    "merged": MERGED,
    "not_unisolvent": NOT_UNISOLVENT,
    "ill_conditioned": ILL_CONDITIONED,
    "regularized": REGULARIZED,
    "dropped": DROPPED,
    "undefined": UNDEFINED,
}
ERRORS = ("error", "relative_error")


class Column(NamedTuple):
    """A published array: its type, and what a query has that was not answered."""

    dtype: Any
    unknown: float | bool


JUDGED = {
    "distance": Column(np.float64, np.nan),
    "remoteness": Column(np.float64, np.nan),
    "flags": Column(np.uint8, UNDEFINED),
}
OUTSIDE = "outside"


@dataclass(frozen=True)
class PublishInverted(Stage):
    """Arrays `values` with so many columns, or without any the errors of rows left out; those of `JUDGED`; and whether
    a query is outside: farther than so many fill distances from every embedded point.

    Queries that were not answered are undefined; rows that were not to be left out have no flag.
    """

    inverted: Outcome
    partitions: RowPartitions
    n_columns: int | None
    outside: float
    name = "publish"
    version = 2

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each, "outside": self.outside}

    def inputs(self) -> list[str]:
        return [self.inverted.ledger.digest]

    def n_partitions(self) -> int:
        return self.partitions.count

    def prepare(self, ledger: StageLedger) -> None:
        for name in self.columns:
            self._array(ledger, name)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        found: dict[str, AnyArray] = {
            name: np.full((len(rows), *self._width(name)), column.unknown, column.dtype)
            for name, column in self._gathered.items()
        }
        gather_rows(self.inverted, self.partitions, partition, found)
        found[OUTSIDE] = found["remoteness"] > self.outside
        for name, array in found.items():
            self._array(ledger, name).write(rows.start, array)
        figures: Json = {"n_outside": int(found[OUTSIDE].sum())}
        figures |= {name: int(np.count_nonzero(found["flags"] & flag)) for name, flag in FLAGS.items()}
        return figures | {name: _grain_sums(found[name]) for name in ERRORS if name in found}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        entries = [figures[partition] for partition in sorted(figures)]
        flags = {name: sum(entry[name] for entry in entries) for name in FLAGS}
        report: Json = {"n_rows": self.partitions.n_rows, "n_outside": sum(entry["n_outside"] for entry in entries)}
        for name in ERRORS:
            if name in self.columns:
                sums = np.array([grain for entry in entries for grain in entry[name]])
                report |= _mean(name, sums)
        return {**report, "flags": flags}, list(self.columns)

    @property
    def columns(self) -> dict[str, Column]:
        """The published arrays by their names."""
        return {**self._gathered, OUTSIDE: Column(np.bool_, False)}

    @property
    def _gathered(self) -> dict[str, Column]:
        if self.n_columns is not None:
            return {"values": Column(np.float64, np.nan), **JUDGED}
        errors = {name: Column(np.float64, np.nan) for name in ERRORS}
        return {**errors, **JUDGED, "flags": JUDGED["flags"]._replace(unknown=0)}

    def _width(self, name: str) -> tuple[int, ...]:
        return (self.n_columns or 0,) if name == "values" else ()

    def _array(self, ledger: StageLedger, name: str) -> RowArray:
        shape = (self.partitions.n_rows, *self._width(name))
        return ledger.create(name, shape, self.columns[name].dtype, self.partitions.rows_per_chunk)


def _grain_sums(values: FloatArray) -> list[list[float]]:
    """Sum and number of the finite ones among each grain of rows, so that means do not depend on the partitions."""
    grains = (values[start : start + GRAIN_ROWS] for start in range(0, len(values), GRAIN_ROWS))
    known = [grain[np.isfinite(grain)] for grain in grains]
    return [[float(grain.sum()), float(len(grain))] for grain in known]


def _mean(name: str, sums: FloatArray) -> Json:
    total, count = 0.0, 0
    for grain_sum, grain_count in sums.tolist():
        total, count = total + grain_sum, count + int(grain_count)
    return {f"mean_{name}": total / count if count else None, "n_left_out": count}
