"""Stage 7 of a direct method, model: the landmarks embedded from the dissimilarities between them, on one node."""

from dataclasses import dataclass

from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.models.spectral import cluster_centers
from pipeline.stages.model import described_choice, write_model
from pipeline.stages.providers.vectors import Provider
from pipeline.stages.stage import SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

CENTERS = "centers"


@dataclass(frozen=True)
class DirectModel(SingleStage):
    """A model of the landmarks; with `n_clusters`, also the centers (c, d) of clusters among them."""

    provider: Provider
    choice: Choice
    n_clusters: int | None
    seed: int
    name = "model"

    def settings(self) -> Json:
        clusters = {} if self.n_clusters is None else {"n_clusters": self.n_clusters, "seed": self.seed}
        return {**described_choice(self.choice), **clusters, "direct": True}

    def inputs(self) -> list[str]:
        return self.provider.identity

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        model = fitted_model(self.choice, self.provider.between())
        figures, arrays = write_model(ledger, model)
        if self.n_clusters is not None:
            ledger.write(CENTERS, cluster_centers(model.coordinates, self.n_clusters, self.seed))
            arrays.append(CENTERS)
        return figures, arrays
