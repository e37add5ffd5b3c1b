"""What new rows of the same kind as the training rows look like: the trust columns of some of them, each taken as if it
were new, its own point left out of its neighbors.

Columns of points that were fitted would not do: a fitted point is its own nearest neighbor.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.extension.moments import MomentSums
from pipeline.numerics.extension.restricted import DiagonalWeight, resolved_weight
from pipeline.numerics.trust import TRUST, placed_by_moments, trust_columns
from pipeline.stages.model import load_model
from pipeline.stages.neighbors import HELD_OUT
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
        model = load_model(self.model.ledger)
        nearest = self.neighbors.ledger.read(HELD_OUT[0]).read()[:, 0]
        batches = [self.rows.ledger.part("held_out", batch) for batch in range(self.rows.figures["n_batches"])]
        # Rows of components that are not embedded reach no landmark.
        kept = np.isfinite(batches[0].read()[:, 0])
        sums = MomentSums(model, int(kept.sum()))
        for batch in batches:
            sums.add(batch.read()[kept])
        weight = resolved_weight(model, self.diagonal_weight)
        columns = trust_columns(placed_by_moments(model, sums.moments(), weight), nearest[kept], self.exponent)
        for name, column in zip(TRUST, columns.T, strict=True):
            ledger.write(name, np.sort(column))
        quantiles = {name: _quantiles(column) for name, column in zip(TRUST, columns.T, strict=True)}
        figures = {"n_rows": len(columns), "quantiles": quantiles, "weight": weight, "exponent": self.exponent}
        return figures, list(TRUST)


def _quantiles(values: FloatArray) -> Json:
    return dict(zip(map(str, SHARES), np.quantile(values, SHARES).tolist(), strict=True))
