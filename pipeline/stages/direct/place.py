"""Stage 8 of an extension of a direct method, place: new rows by their own dissimilarities to the landmarks."""

from dataclasses import dataclass

import numpy as np

from pipeline.sources.partitions import RowPartitions
from pipeline.stages.direct.asked import DirectAnswers
from pipeline.stages.direct.embed import write_answers
from pipeline.stages.direct.space import DirectSpace
from pipeline.stages.exchange import IN_ROW_ORDER
from pipeline.stages.place import drift_of, ranks_among, write_watched
from pipeline.stages.stage import Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import Json


@dataclass(frozen=True)
class DirectPlace(Stage):
    """What the model says of new rows, where the trust columns rank, and how the batch compares with the fit's rows."""

    space: DirectSpace
    asked: DirectAnswers
    partitions: RowPartitions
    level: float
    name = "place"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each, "level": self.level, "direct": True}

    def inputs(self) -> list[str]:
        return [*self.asked.provider.identity, *self.space.identity]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        found = self.asked.ask(rows, np.zeros(len(rows), dtype=np.bool_))
        ranks = ranks_among(self.space.calibration, found.trust)
        turned = found._replace(coordinates=self.space.turned(found.coordinates), trust=np.hstack([found.trust, ranks]))
        names = write_answers(ledger, partition, turned)
        ones = np.ones(len(found.rows), dtype=np.int64)
        names += write_watched(ledger, partition, self.space.calibration, found.trust, ones)
        return {"n_placed": len(found.rows)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        n_placed = sum(entry["n_placed"] for entry in figures.values())
        margins = self.space.stages["calibrate"].figures["margins"]
        drift = drift_of(ledger, sorted(figures), self.space.calibration, margins, self.level)
        return {"n_placed": n_placed, "drift": drift, IN_ROW_ORDER: True}, []
