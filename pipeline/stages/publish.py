"""Stage 10, publish: the results in the user's row order, every row of the source, by the inverse of the exchange.

Each partition of the source gathers from every group the slice that is its own. Rows that take no part in the embedding
are NaN: `component` is -1 where the source had missing entries, above 0 where the component policy dropped the row.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.trust import TRUST
from pipeline.partitions import RowPartitions
from pipeline.stages.exchange import gather_rows
from pipeline.stages.space import registered
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, Json

COORDINATES = ("projection", "restricted")
DTYPES = {"ambiguous": np.bool_, "component": np.int64, "labels": np.int64}
# What a row has that takes no part in the embedding.
UNKNOWN = {"ambiguous": False, "component": -1, "labels": -1}
FLAGS = ("ambiguous", "component")
PUBLISHED = (*COORDINATES, *TRUST, *FLAGS)


@dataclass(frozen=True)
class Publish(Stage):
    """Arrays named in `coordinates`, `columns` and `flags`, a row for each row of the source.

    `embedded` has the coordinates and columns side by side in `values`; a registration turns the coordinates.
    """

    embedded: Outcome
    partitions: RowPartitions
    n_components: int
    columns: tuple[str, ...] = TRUST
    registration: Outcome | None = None
    coordinates: tuple[str, ...] = COORDINATES
    flags: tuple[str, ...] = FLAGS
    name = "publish"
    version = 3

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        registration = [] if self.registration is None else [self.registration.ledger.digest]
        return [self.embedded.ledger.digest, *registration]

    def n_partitions(self) -> int:
        return self.partitions.count

    def prepare(self, ledger: StageLedger) -> None:
        for name in self._names:
            self._array(ledger, name)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        width = len(self.coordinates) * self.n_components
        values = np.full((len(rows), width + len(self.columns)), np.nan)
        flags: dict[str, AnyArray] = {name: np.full(len(rows), UNKNOWN[name], DTYPES[name]) for name in self.flags}
        gather_rows(self.embedded, self.partitions, partition, {"values": values, **flags})
        answers = np.split(self._turned(values[:, :width]), len(self.coordinates), axis=1)
        results = dict(zip(self.coordinates, answers, strict=True))
        results |= {name: values[:, width + i] for i, name in enumerate(self.columns)}
        for name, array in {**results, **flags}.items():
            self._array(ledger, name).write(rows.start, array)
        return {"n_embedded": int(np.isfinite(values[:, 0]).sum())}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        n_embedded = sum(entry["n_embedded"] for entry in figures.values())
        return {"n_rows": self.partitions.n_rows, "n_embedded": n_embedded}, list(self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.coordinates, *self.columns, *self.flags)

    def _turned(self, coordinates: FloatArray) -> FloatArray:
        return coordinates if self.registration is None else registered(self.registration.ledger, coordinates)

    def _array(self, ledger: StageLedger, name: str) -> RowArray:
        shape = (self.partitions.n_rows, *((self.n_components,) if name in self.coordinates else ()))
        return ledger.create(name, shape, DTYPES.get(name, np.float64), self.partitions.rows_per_chunk)
