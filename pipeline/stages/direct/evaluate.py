"""Stages 7 and 9 of a direct method: what new rows look like, and how good the embedding is."""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.extension.placement import Model, answers_of
from pipeline.numerics.models.kernels import nystrom_error
from pipeline.numerics.models.spectral import NystromPlacer
from pipeline.numerics.statistics.quality import continuity, normalized_stress, residual_variance, trustworthiness
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.calibrate import write_calibration
from pipeline.stages.evaluate import SAMPLE_BYTES, described
from pipeline.stages.model import load_any_model, spectrum_figures
from pipeline.stages.preprocess import PreparedSource, points_of_rows
from pipeline.stages.providers.vectors import VectorRows
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, Json

# Points of which a kernel is computed between all.
MOST_COMPARED = 500


@dataclass(frozen=True)
class DirectCalibrate(SingleStage):
    """Each trust column of rows that are no landmarks, rising: rows that were not fitted are as good as new."""

    embedded: Outcome
    name = "calibrate"

    def settings(self) -> Json:
        return {"direct": True}

    def inputs(self) -> list[str]:
        return [self.embedded.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        names = tuple(self.embedded.figures["columns"])
        columns = self.embedded.ledger.read("calibration").read()
        figures = write_calibration(ledger, names, columns, columns)
        kept = ("weight", "exponent", "coordinate_exponent")
        return {**figures, **{name: self.embedded.figures[name] for name in kept}}, list(names)


@dataclass(frozen=True)
class DirectEvaluate(SingleStage):
    """Figures of quality on the sample that `embed` kept; those of neighborhoods only where rows are vectors, those of
    distances only where there are any: affinities are none. `measured` are the vectors of a method by eigenvectors of
    a kernel."""

    model: Outcome
    embedded: Outcome
    data: PreparedSource | None
    measured: VectorRows | None
    partitions: RowPartitions
    n_neighbors: int
    seed: int
    name = "evaluate"
    version = 2

    def settings(self) -> Json:
        return {"n_neighbors": self.n_neighbors, "seed": self.seed, "direct": True}

    def inputs(self) -> list[str]:
        return [self.embedded.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        model, projection = load_any_model(self.model.ledger), self.embedded.ledger.read("projection").read()
        figures = {"sample_size": len(projection), **self._lengths(model, projection), **spectrum_figures(model)}
        return {**figures, **self._nystrom(model), **self._neighborhoods(projection)}, []

    def _lengths(self, model: Model, projection: AnyArray) -> Json:
        if answers_of(model).takes_affinities:
            return {"residual_variance": None, "normalized_stress": None}
        lengths = self.embedded.ledger.read("to_landmarks").read().astype(np.float64)
        unscaled = np.ldexp(projection, -int(self.embedded.figures["coordinate_exponent"]))
        return {
            "residual_variance": residual_variance(lengths, unscaled, model.coordinates).tolist(),
            "normalized_stress": normalized_stress(lengths, unscaled, model.coordinates),
        }

    def _nystrom(self, model: Model) -> Json:
        """How far the kernel between some of the sample is from what the landmarks say of it."""
        if self.measured is None or not isinstance(model, NystromPlacer):
            return {}
        every = slice(None, None, -(-int(self.embedded.figures["n_sampled"]) // MOST_COMPARED))
        points = points_of_rows(self.measured.data, self.partitions, self.embedded.ledger.read("rows").read()[every])
        lengths = (
            self.measured.between(),
            self.measured.measured(points),
            self.measured.compared(points, points),
        )
        return {"nystrom_error": nystrom_error(*(np.exp(-model.gamma * apart**2) for apart in lengths))}

    def _neighborhoods(self, projection: AnyArray) -> Json:
        every = slice(None, None, self._step())
        rows = self.embedded.ledger.read("rows").read()[every]
        k = min(self.n_neighbors, (len(rows) - 1) // 2)
        if k < 1 or self.data is None:
            return {"trustworthiness": None, "continuity": None}
        points = points_of_rows(self.data, self.partitions, rows)
        return {
            "trustworthiness": described(trustworthiness(points, projection[every], k, seed=self.seed)),
            "continuity": described(continuity(points, projection[every], k, seed=self.seed)),
        }

    def _step(self) -> int:
        """Every so manieth of the sample has points that fit into memory."""
        if self.data is None:
            return 1
        n_points = max(1, SAMPLE_BYTES // (8 * self.data.n_columns))
        return -(-int(self.embedded.figures["n_sampled"]) // n_points) or 1
