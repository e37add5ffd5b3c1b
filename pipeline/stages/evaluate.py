"""Stage 9, evaluate: how good the embedding is, on the sample of nodes that `embed` kept."""

from dataclasses import dataclass

from pipeline.numerics.statistics.quality import (
    Estimate,
    continuity,
    normalized_stress,
    residual_variance,
    trustworthiness,
)
from pipeline.stages.graph.ordered import OrderedNodes
from pipeline.stages.model import load_any_model, spectrum_figures
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

# What the sampled points may take in double precision: 128 MB.
SAMPLE_BYTES = 1 << 27


@dataclass(frozen=True)
class Evaluate(SingleStage):
    """Figures of quality; trustworthiness and continuity are those of the sample as a data set of its own. Without
    cells there are no points, and none of these."""

    cells: Outcome | None
    ordered: Outcome
    neighbors: Outcome
    model: Outcome
    embedded: Outcome
    n_neighbors: int
    seed: int
    name = "evaluate"

    def settings(self) -> Json:
        return {"n_neighbors": self.n_neighbors, "seed": self.seed}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest, self.embedded.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        model = load_any_model(self.model.ledger)
        read = self.embedded.ledger.read
        lengths, projection = read("to_landmarks").read(), read("projection").read()
        figures = {
            "sample_size": len(lengths),
            "residual_variance": residual_variance(lengths, projection, model.coordinates).tolist(),
            "normalized_stress": normalized_stress(lengths, projection, model.coordinates),
            **{name: value for name, value in self.neighbors.figures.items() if name == "recall"},
            **spectrum_figures(model),
        }
        return {**figures, **self._neighborhoods()}, []

    def _neighborhoods(self) -> Json:
        """Trustworthiness and continuity; None where there are no points, or too few to have neighborhoods."""
        if self.cells is None:
            return {"trustworthiness": None, "continuity": None}
        n_points = max(1, SAMPLE_BYTES // (8 * int(self.ordered.figures["n_columns"])))
        # Every so manieth: neighboring numbers are neighbors in space.
        every = slice(None, None, -(-int(self.embedded.figures["n_sampled"]) // n_points))
        numbers = self.embedded.ledger.read("nodes").read()[every]
        k = min(self.n_neighbors, (len(numbers) - 1) // 2)
        if k < 1:
            return {"trustworthiness": None, "continuity": None}
        points, _ = OrderedNodes(self.cells, self.ordered).nodes(numbers)
        coordinates = self.embedded.ledger.read("projection").read()[every]
        return {
            "trustworthiness": described(trustworthiness(points, coordinates, k, seed=self.seed)),
            "continuity": described(continuity(points, coordinates, k, seed=self.seed)),
        }


def described(estimate: Estimate) -> Json:
    """As figures."""
    return estimate._asdict()
