"""Stage 6, rows: geodesic distances of every node to the landmarks, a batch of landmarks at a time.

A partition is a batch; it writes its share (n, batch) of the (n, m) table, chunked along the nodes, so that a block of
nodes can be read alone. The graph is loaded once per process. Beside it are the distances that some rows would have if
they were new, over their neighbors; and again over one neighbor fewer, to see how much hangs on one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.errors import StoreError
from pipeline.numerics.compiled import LANES
from pipeline.numerics.landmarks.sampling import MOST_HELD_OUT
from pipeline.numerics.neighbors.radius import RadiusLists, rows_with_and_without_last
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS
from pipeline.stages.cost import Cost, Shape
from pipeline.stages.graph.connected import LOADED
from pipeline.stages.graph.ragged import held_out_lists
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

# What a block of nodes with all their distances may take, which is how they are read again: 64 MB.
BLOCK_BYTES = 1 << 26
# What a search for shortest paths holds for each node: eight lengths, and where it waits.
SEARCHED_NODE = 96
LEAST_NODES, MOST_NODES = 4096, 1 << 16


def landmarks_per_batch(n_landmarks: int) -> int:
    """How many landmarks' rows are computed together."""
    return min(LANES, n_landmarks)


def nodes_per_chunk(n_landmarks: int, nodes_each: int) -> int:
    """How many nodes' distances to a batch of landmarks are stored together, where groups have so many nodes."""
    return max(LEAST_NODES, min(MOST_NODES, BLOCK_BYTES // (4 * n_landmarks), nodes_each))


@dataclass(frozen=True)
class Rows(Stage):
    """Shortest paths from each landmark along the graph and its bridges, infinite where a node was dropped."""

    ordered: Outcome
    neighbors: Outcome
    graph: Outcome
    components: Outcome
    landmarks: Outcome
    name = "rows"
    version = 5

    def settings(self) -> Json:
        return {"provider": "geodesic", "batch": self._batch, "nodes_per_chunk": self._nodes_per_chunk}

    def inputs(self) -> list[str]:
        return [self.graph.ledger.digest, self.components.ledger.digest, self.landmarks.ledger.digest]

    def n_partitions(self) -> int:
        return -(-int(self.landmarks.figures["n_landmarks"]) // self._batch)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = self.landmarks.ledger.read("nodes").read()
        sources = nodes[partition * self._batch : (partition + 1) * self._batch]
        with LOADED.search(self.ordered, self.graph, self.components) as search:
            lengths = search.lengths(sources)[:, : len(sources)]
            return {"n_landmarks": len(sources)}, self._written(ledger, partition, lengths, nodes)

    def _written(self, ledger: StageLedger, partition: int, lengths: FloatArray, nodes: IntArray) -> list[str]:
        between = lengths[nodes].T.copy()
        if not np.isfinite(between).all():
            raise StoreError(f"{self.graph.ledger.path}: a landmark cannot be reached from another; verify the store.")
        names = ledger.write_rounded(partition, "rows", lengths, self._nodes_per_chunk)
        held_out = rows_with_and_without_last(self._held_out, lengths)
        return names + ledger.write_parts(partition, {"between": between, "held_out": held_out})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        n_landmarks = sum(entry["n_landmarks"] for entry in figures.values())
        return {"n_landmarks": n_landmarks, "n_batches": len(figures), "nodes_per_chunk": self._nodes_per_chunk}, []

    def release(self) -> None:
        LOADED.drop()

    @cached_property
    def _held_out(self) -> RadiusLists:
        """The neighbors of rows that are taken as if they were new."""
        return held_out_lists(self.neighbors)

    @property
    def _batch(self) -> int:
        return landmarks_per_batch(self.landmarks.figures["n_landmarks"])

    @property
    def _nodes_per_chunk(self) -> int:
        return nodes_per_chunk(self.landmarks.figures["n_landmarks"], max(self.ordered.figures["nodes_each"]))

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m = shape.n_rows, shape.n_landmarks
        # A graph of the user's may have few edges, whose paths have many steps.
        k = shape.n_neighbors + 3 * (shape.edges_from == "given")
        # Few landmarks that are searched together are far apart; with many columns everything is near.
        spread = (1 + 30 / m) * (1.0 if shape.n_axes <= FEW_DIMENSIONS else 4.0) * (n / 200_000) ** 0.2
        return Cost(
            memory=shape.graph + SEARCHED_NODE * n,
            seconds=3e-9 * m * n * k * spread,
            disk=4 * (n + 2 * min(n, MOST_HELD_OUT)) * m,
            tasks=-(-m // shape.landmarks_each),
        )


def between_landmarks(rows: Outcome) -> AnyArray:
    """Distances (m, m) between the landmarks, in double precision."""
    batches = range(rows.figures["n_batches"])
    return np.concatenate([rows.ledger.part("between", batch).read() for batch in batches])


def row_batches(rows: Outcome) -> list[RowArray]:
    """The distances (n, batch) of all nodes to each batch of landmarks, to be read block by block."""
    return [rows.ledger.part("rows", batch) for batch in range(rows.figures["n_batches"])]
