"""Stage 5, landmarks: which nodes the others are measured from, in an order that suits searching from them.

They are drawn by source row, not by place in the run's order, so for the same seed they are those of `LandmarkIsomap`.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.geodesics.rows import farthest_nodes, nearby_order
from pipeline.numerics.geodesics.shortest_paths import PathGraph
from pipeline.numerics.landmarks.choices import chosen_points
from pipeline.numerics.landmarks.sampling import maxmin_candidates, random_landmarks
from pipeline.stages.graph.connected import LOADED, kept_nodes
from pipeline.stages.graph.ordered import OrderedNodes
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import IntArray, Json


@dataclass(frozen=True)
class Landmarks(SingleStage):
    """Node numbers and source rows of the landmarks, those near each other along the graph together.

    Without cells there are no points, and farthest ones are those that are along the graph.
    """

    cells: Outcome | None
    ordered: Outcome
    graph: Outcome
    components: Outcome
    n_landmarks: int
    selection: str
    seed: int
    name = "landmarks"
    version = 3

    def settings(self) -> Json:
        return {"n_landmarks": self.n_landmarks, "selection": self.selection, "seed": self.seed}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest, self.components.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        groups = range(len(self.ordered.figures["nodes_each"]))
        rows = np.concatenate([self.ordered.ledger.part("first", group).read() for group in groups])
        kept = np.flatnonzero(kept_nodes(self.graph, self.components))
        chosen = self._chosen(_by_row(kept, rows[kept]))
        chosen = chosen[nearby_order(self._connected, chosen)]
        ledger.write("nodes", chosen)
        ledger.write("rows", rows[chosen])
        return {"n_landmarks": len(chosen)}, ["nodes", "rows"]

    @property
    def _connected(self) -> PathGraph:
        """Held on to: `rows`, which follows, needs it next and lets go of it."""
        return LOADED.graph(self.ordered, self.graph, self.components)

    def _chosen(self, nodes: IntArray) -> IntArray:
        """Landmarks among nodes given in the order of their source rows; all but random ones from a sample."""
        if self.selection == "random":
            return nodes[random_landmarks(len(nodes), self.n_landmarks, self.seed)]
        places, first = maxmin_candidates(len(nodes), self.n_landmarks, self.seed)
        candidates = nodes[places]
        if self.cells is None:
            return candidates[farthest_nodes(self._connected, candidates, first, self.n_landmarks)]
        order = np.argsort(candidates)
        points, _ = OrderedNodes(self.cells, self.ordered).nodes(candidates[order])
        in_row_order = np.empty_like(order)
        in_row_order[order] = np.arange(len(order))
        chosen = chosen_points(self.selection, points[in_row_order], first, self.n_landmarks, self.seed)
        return candidates[chosen]


def _by_row(nodes: IntArray, rows: IntArray) -> IntArray:
    """Nodes in the order of their source rows, each of which is there once; a place for each is faster than sorting."""
    places = np.full(int(rows.max(initial=-1)) + 1, -1)
    places[rows] = nodes
    return places[places >= 0]
