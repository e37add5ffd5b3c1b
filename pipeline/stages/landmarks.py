"""Landmarks: the points that all others are compared with, chosen among what the provider has to choose from."""

from dataclasses import dataclass

from pipeline.stages.cost import Cost, Shape
from pipeline.stages.graph.ordered import GROUPS_IN_MEMORY
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

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m, k = shape.n_rows, shape.n_landmarks, shape.n_neighbors
        point = shape.n_axes * shape.point_itemsize
        if shape.edges_from is None:
            among = 50 * 16 * m * shape.n_axes + 3 * shape.partition_bytes
            seconds = 0.1 + 4e-9 * shape.source + 3e-8 * m * m * max(1, shape.n_axes)
            return Cost(among, seconds, 8 * m * (shape.n_axes + 1))
        if shape.edges_from == "given":
            return Cost(shape.graph + 32 * n, 0.1 + 3e-7 * n * (k + 3))
        among = 32 * n + 2 * shape.landmark_candidates * point + GROUPS_IN_MEMORY * shape.block
        choosing = 4e-9 * shape.points + 6e-10 * shape.landmark_candidates * m * shape.n_axes
        return Cost(max(among, shape.graph + 32 * n), 0.1 + 3e-7 * n + 4e-8 * n * k + choosing)
