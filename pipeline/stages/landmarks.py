"""Landmarks: the points that all others are compared with, chosen among what the provider has to choose from."""

from dataclasses import dataclass

from pipeline.stages.providers.provider import Candidates
from pipeline.stages.stage import SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import Json


@dataclass(frozen=True)
class Landmarks(SingleStage):
    """Source rows `rows` (m,) of the landmarks, and whatever else the provider keeps of them."""

    candidates: Candidates
    n_landmarks: int
    selection: str
    seed: int
    name = "landmarks"

    @property
    def version(self) -> int:  # type: ignore[override]  # the candidates' own
        return self.candidates.version

    def settings(self) -> Json:
        choice = {"n_landmarks": self.n_landmarks, "selection": self.selection, "seed": self.seed}
        return {**choice, **self.candidates.marks}

    def inputs(self) -> list[str]:
        return self.candidates.identity

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        arrays = self.candidates.chosen(self.n_landmarks, self.selection, self.seed)
        for name, array in arrays.items():
            ledger.write(name, array)
        return {"n_landmarks": len(arrays["rows"]), **self.candidates.figures()}, list(arrays)
