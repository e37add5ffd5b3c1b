"""Stage 7, model: classical scaling of the landmarks on one node; a few megabytes, no pickle."""

from dataclasses import dataclass

from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.stages.rows import between_landmarks
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

ARRAYS = ("coordinates", "eigenvalues", "row_means", "spectrum")


@dataclass(frozen=True)
class Model(SingleStage):
    """The landmarks' coordinates and what extending to other points needs, in the run's units."""

    rows: Outcome
    n_components: int
    name = "model"

    def settings(self) -> Json:
        return {"method": "isomap", "n_components": self.n_components}

    def inputs(self) -> list[str]:
        return [self.rows.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        model = classical_mds(between_landmarks(self.rows) ** 2, self.n_components)
        for name in ARRAYS:
            ledger.write(name, getattr(model, name))
        figures = {name: getattr(model, name) for name in ("n_positive", "negative_mass", "explained_mass")}
        return {**figures, "grand_mean": model.grand_mean, "n_landmarks": model.n_landmarks}, list(ARRAYS)


def load_model(ledger: StageLedger) -> LandmarkModel:
    """The model that a finished stage left."""
    figures = ledger.finished() or {}
    arrays = {name: ledger.read(name).read() for name in ARRAYS}
    return LandmarkModel(**arrays, grand_mean=figures["grand_mean"])
