"""Between `embed` and `evaluate`: distances along the graph between points of the sample, a few of them to all.

Distances to the landmarks would flatter an embedding, which was made of them. It takes at most a tenth of what `rows`
took, or what one batch of sources takes.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.agreement import n_sources_along_paths
from pipeline.numerics.compiled import LANES
from pipeline.stages.embed import MOST_SAMPLED
from pipeline.stages.graph.rows import LOADED, SEARCHED_NODE, seconds_of_paths
from pipeline.stages.stage import Cost, Outcome, Shape, Stage, total
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, IntArray, Json


@dataclass(frozen=True)
class Pairs(Stage):
    """Shortest paths from some sampled nodes to all sampled nodes, in the run's unit."""

    ordered: Outcome
    graph: Outcome
    components: Outcome
    embedded: Outcome
    n_landmarks: int
    seed: int
    name = "pairs"
    depends_on = ("seed",)
    reads = ("graph", "components", "embedded")

    def n_partitions(self) -> int:
        return -(-len(self._sources) // LANES)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = self._nodes
        sources = nodes[self._sources[partition * LANES : (partition + 1) * LANES]]
        with LOADED.search(self.ordered, self.graph, self.components) as search:
            lengths = search.lengths(sources)[:, : len(sources)][nodes].T.copy()
        return {"n_sources": len(sources)}, ledger.write_parts(partition, {"lengths": lengths})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        ledger.write("sources", self._sources)
        return {"n_sources": total(figures, "n_sources"), "n_points": self._n_points}, ["sources"]

    def release(self) -> None:
        LOADED.drop()

    @property
    def _n_points(self) -> int:
        return int(self.components.figures["n_kept"])

    @property
    def _nodes(self) -> IntArray:
        return np.asarray(self.embedded.ledger.read("nodes").read())

    @property
    def _sources(self) -> IntArray:
        """Places of the sources in the sample, drawn by the seed."""
        n_sampled = int(self.embedded.figures["n_sampled"])
        wanted = min(n_sampled, n_sources_along_paths(self.n_landmarks))
        return np.sort(np.random.default_rng(self.seed).choice(n_sampled, wanted, replace=False))

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n_sources = n_sources_along_paths(shape.n_landmarks)
        return Cost(
            memory=shape.graph + SEARCHED_NODE * shape.n_rows,
            seconds=seconds_of_paths(shape, n_sources),
            disk=4 * n_sources * min(shape.n_rows, MOST_SAMPLED),
            tasks=n_sources // LANES,
        )


def lengths_of(pairs: Outcome) -> tuple[IntArray, FloatArray]:
    """Places (s,) of sources in the sample, and lengths (s, p) to all of it."""
    batches = range(-(-int(pairs.figures["n_sources"]) // LANES))
    lengths = np.concatenate([pairs.ledger.part("lengths", batch).read() for batch in batches])
    return pairs.ledger.read("sources").read(), lengths.astype(np.float64)
