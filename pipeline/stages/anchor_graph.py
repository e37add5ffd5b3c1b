"""The graph of a model's anchors: along it, paths between any two of them are about as long as in the run.

An edge leads from each anchor to its k nearest. It is as long as its ends are apart, or as the greatest difference of
their distances to a landmark, whichever is more; both bound the run's own distance from below, and the second closes
shortcuts between turns of the data. Further edges, as long as in the run, lead from each anchor to the landmark nearest
to it, and from each landmark to the first: they join everything, whatever the k nearest leave apart.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from pipeline.numerics.anchors import widen
from pipeline.numerics.graph import symmetric_csr
from pipeline.numerics.trees import FEW_DIMENSIONS
from pipeline.stages.graph import LISTED_COMPONENTS
from pipeline.stages.neighbors import neighbors_by_cells
from pipeline.stages.ordered import NODE_BITS, OrderedNodes
from pipeline.stages.rows import row_batches
from pipeline.stages.space import FittedSpace
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.stages.tree_search import neighbors_by_trees
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

EdgeList = tuple[IntArray, IntArray, FloatArray]


@dataclass(frozen=True)
class AnchorLandmarks(SingleStage):
    """Numbers of the landmarks among the anchors, and their source rows."""

    landmarks: Outcome
    ordered: Outcome
    name = "landmarks"

    def settings(self) -> Json:
        return {}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = self.ordered.ledger.read("nodes").read()
        order = np.argsort(nodes)
        places = order[np.searchsorted(nodes[order], self.landmarks.ledger.read("nodes").read())]
        ledger.write("nodes", places)
        ledger.write("rows", self.landmarks.ledger.read("rows").read())
        return {"n_landmarks": len(places)}, ["nodes", "rows"]


@dataclass(frozen=True)
class AnchorGraph(SingleStage):
    """Symmetric CSR over the anchors, and the component of the run that each is in."""

    space: FittedSpace
    cells: Outcome
    ordered: Outcome
    probes: Outcome
    landmarks: Outcome
    rows: Outcome
    name = "graph"

    def settings(self) -> Json:
        return {"n_neighbors": self.space.n_neighbors}

    def inputs(self) -> list[str]:
        return [self.probes.ledger.digest, self.rows.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        n_nodes = int(self.ordered.figures["n_nodes"])
        labels = self.space.component_of(self.ordered.ledger.read("nodes").read())
        pieces = zip(self._near(labels), self._to_landmarks(), strict=True)
        starts, ends, lengths = (np.concatenate(parts) for parts in pieces)
        offsets, targets, weights = symmetric_csr(
            0, n_nodes, starts.astype(np.int32), ends.astype(np.int32), lengths.astype(np.float32)
        )
        names = ledger.write_parts(0, {"offsets": offsets, "targets": targets, "weights": weights})
        ledger.write("components", labels)
        sizes = np.bincount(labels)
        largest = np.sort(sizes)[::-1][:LISTED_COMPONENTS].tolist()
        figures = {"n_components": int(np.count_nonzero(sizes)), "largest_components": largest, "n_edges": len(targets)}
        return figures, [*names, "components"]

    def _near(self, labels: IntArray) -> EdgeList:
        """Edges to the k nearest; none between what the run kept apart."""
        few = self.ordered.figures["n_columns"] <= FEW_DIMENSIONS
        search = neighbors_by_trees if few else partial(neighbors_by_cells, self.probes.figures["n_probes"])
        lengths, found = search(OrderedNodes(self.cells, self.ordered), 0, self.space.n_neighbors)
        starts, ends = np.repeat(np.arange(len(found)), found.shape[1]), (found & NODE_BITS).ravel()
        if self.space.kept is not None:
            together = labels[starts] == labels[ends]
            starts, ends, lengths = starts[together], ends[together], lengths.ravel()[together]
        weights = lengths.ravel().copy()
        for batch in row_batches(self.rows):
            widen(weights, starts, ends, batch.read())
        return starts, ends, weights

    def _to_landmarks(self) -> EdgeList:
        """An edge from each anchor that reaches the landmarks to the nearest, and from each of these to the first."""
        landmarks = self.landmarks.ledger.read("nodes").read()
        nearest = np.zeros(int(self.ordered.figures["n_nodes"]), dtype=np.int64)
        lengths = np.full(len(nearest), np.inf)
        first, seen = lengths, 0
        for batch in row_batches(self.rows):
            block = batch.read()
            first = first if seen else block[landmarks, 0].astype(np.float64)
            best = block.argmin(axis=1)
            closer = np.flatnonzero(np.take_along_axis(block, best[:, None], axis=1)[:, 0] < lengths)
            nearest[closer], lengths[closer] = best[closer] + seen, block[closer, best[closer]]
            seen += block.shape[1]
        starts = np.flatnonzero(np.isfinite(lengths) & (landmarks[nearest] != np.arange(len(nearest))))
        to_first = np.full(len(landmarks) - 1, landmarks[0])
        return (
            np.concatenate([starts, landmarks[1:]]),
            np.concatenate([landmarks[nearest[starts]], to_first]),
            np.concatenate([lengths[starts], first[1:]]),
        )


@dataclass(frozen=True)
class AnchorComponents(SingleStage):
    """What the run did with components, counted in anchors; nothing is left to be bridged."""

    space: FittedSpace
    graph: Outcome
    name = "components"

    def settings(self) -> Json:
        return {}

    def inputs(self) -> list[str]:
        return [self.graph.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        labels: AnyArray = self.graph.ledger.read("components").read()
        found = {name: self.graph.figures[name] for name in ("n_components", "largest_components")}
        n_kept = len(labels) if self.space.kept is None else int((labels < 1).sum())
        return {**found, "n_kept": n_kept, "n_bridges": 0, "exact": True}, []
