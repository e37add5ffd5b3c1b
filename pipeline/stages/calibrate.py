"""What new rows of the same kind as the training rows look like: the trust columns of some of them, each taken as if it
were new, its own point left out of its neighbors.

Columns of points that were fitted would not do: a fitted point is its own nearest neighbor. Nor is one that is left out
quite like a new one; perhaps because others have spent a neighbor on it that leads it nowhere. So the columns are also
found with one neighbor fewer; how far that moves their distributions is the margin within which a batch counts as like
the fit's rows.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.numerics.extension.placement import Answers
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.statistics.distributions import gap_counts, two_sample_test
from pipeline.stages.embed import NEAREST, with_nearest
from pipeline.stages.graph.ragged import held_out_lists
from pipeline.stages.model import load_answers
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, Json

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class Calibrate(SingleStage):
    """Each trust column of the rows taken as new, in the user's units, rising."""

    neighbors: Outcome
    rows: Outcome
    model: Outcome
    exponent: int
    diagonal_weight: DiagonalWeight
    name = "calibrate"

    def settings(self) -> Json:
        return {"exponent": self.exponent, "diagonal_weight": self.diagonal_weight}

    def inputs(self) -> list[str]:
        return [self.rows.ledger.digest, self.model.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        names = (*self._answers.columns, NEAREST)
        figures = write_calibration(ledger, names, *self._columns())
        return {**figures, "weight": self._answers.weight, "exponent": self.exponent}, list(names)

    def _columns(self) -> list[FloatArray]:
        """The trust columns (h, t) by all neighbors; and by one fewer."""
        batches = [self.rows.ledger.part("held_out", batch) for batch in range(self.rows.figures["n_batches"])]
        # Rows of components that are not embedded reach no landmark.
        kept = np.isfinite(batches[0].read()[:, 0, 0])
        both = [self._answers.begin(int(kept.sum())) for _ in range(2)]
        for batch in batches:
            lengths = batch.read()[kept]
            for way, sums in enumerate(both):
                sums.add(np.ascontiguousarray(lengths[:, way]))
        lists = held_out_lists(self.neighbors)
        nearest = lists.distances[lists.offsets[:-1][kept]]
        return [with_nearest(self._answers, sums.answer(), nearest, self.exponent) for sums in both]

    @cached_property
    def _answers(self) -> Answers:
        return load_answers(self.model.ledger, self.diagonal_weight)


def write_calibration(ledger: StageLedger, names: tuple[str, ...], columns: FloatArray, fewer: FloatArray) -> Json:
    """Write the trust columns (h, t) of rows taken as new, each rising; their quantiles and margins.

    `fewer` are the columns that the rows have over one neighbor fewer.
    """
    margins, quantiles = {}, {}
    for name, column, other in zip(names, np.sort(columns, axis=0).T, np.sort(fewer, axis=0).T, strict=True):
        ledger.write(name, np.ascontiguousarray(column))
        counts = gap_counts(column, other, np.ones(len(other), dtype=np.int64))
        margins[name] = two_sample_test(column, counts).statistic
        quantiles[name] = _quantiles(column)
    return {"n_rows": len(columns), "quantiles": quantiles, "margins": margins}


def _quantiles(values: FloatArray) -> Json:
    return dict(zip(map(str, SHARES), np.quantile(values, SHARES).tolist(), strict=True))
