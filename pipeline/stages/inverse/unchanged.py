"""Whether the data of a run is still what was fitted, where its files alone do not say so."""

from dataclasses import dataclass
from functools import cached_property

from pipeline.errors import InvalidInputError
from pipeline.partitions import GRAIN_ROWS, RowPartitions
from pipeline.sources import Source
from pipeline.stages.stage import Outcome, Stage
from pipeline.stages.validate import digest_of_rows
from pipeline.store.ledger import StageLedger
from pipeline.types import Json


@dataclass(frozen=True)
class CheckUnchanged(Stage):
    """A scan that refuses rows which are not those that were fitted, grain by grain, as the fit cut them."""

    source: Source
    fitted: Outcome
    name = "check"

    def settings(self) -> Json:
        return {}

    def inputs(self) -> list[str]:
        return [self._fingerprint, self.fitted.ledger.digest]

    @cached_property
    def _fingerprint(self) -> str:
        return repr(sorted(self.source.fingerprint().items()))

    @cached_property
    def _digests(self) -> dict[int, Json]:
        return self.fitted.ledger.committed()

    @property
    def _partitions(self) -> RowPartitions:
        return RowPartitions(self.source.shape[0], int(self.fitted.figures["rows_each"]) // GRAIN_ROWS)

    def n_partitions(self) -> int:
        return self._partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        expected = self._digests[partition]["digests"]
        for rows, digest in zip(self._partitions.grains(partition), expected, strict=True):
            if digest_of_rows(self.source.read(rows.start, rows.stop)) != digest:
                raise InvalidInputError(
                    f"the data of the run has changed: rows {rows.start} to {rows.stop} of {self.source.name} are not "
                    "those that were fitted; put them back, or name the place they were moved to as source."
                )
        return {}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"n_rows": self.source.shape[0]}, []
