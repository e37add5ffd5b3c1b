"""Stage 6, rows: geodesic distances of every node to the landmarks, a batch of landmarks at a time.

A partition is a batch; it writes its share (n, batch) of the (n, m) table, chunked along the nodes, so that a block of
nodes can be read alone. The graph is loaded once per process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np
from scipy.sparse import csr_array

from pipeline.errors import StoreError
from pipeline.numerics.geodesics import shortest_path_rows
from pipeline.stages.connected import connected_graph
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, Json

# A stored chunk, the block in which rows are read again: about 256 KB, and not too few nodes.
CHUNK_BYTES, LEAST_NODES_PER_CHUNK = 1 << 18, 4096
# What a batch of path lengths may take, in double precision and once more in single: 256 MB.
BATCH_BYTES = 1 << 28
# Batches to have at least, for workers to share evenly, and landmarks that are worth one.
MANY_BATCHES, SMALL_BATCH = 48, 4


def landmarks_per_batch(n_nodes: int, n_landmarks: int) -> int:
    """How many landmarks' rows are computed together."""
    return max(1, min(max(SMALL_BATCH, -(-n_landmarks // MANY_BATCHES)), BATCH_BYTES // (12 * n_nodes)))


def nodes_per_chunk(batch: int) -> int:
    """How many nodes' distances to a batch of landmarks are stored together."""
    return max(LEAST_NODES_PER_CHUNK, CHUNK_BYTES // (4 * batch))


@dataclass(frozen=True)
class Rows(Stage):
    """Shortest paths from each landmark along the graph and its bridges, infinite where a node was dropped."""

    ordered: Outcome
    graph: Outcome
    components: Outcome
    landmarks: Outcome
    name = "rows"
    version = 2

    def settings(self) -> Json:
        return {"provider": "geodesic", "batch": self._batch}

    def inputs(self) -> list[str]:
        return [self.graph.ledger.digest, self.components.ledger.digest, self.landmarks.ledger.digest]

    def n_partitions(self) -> int:
        return -(-int(self.landmarks.figures["n_landmarks"]) // self._batch)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = self.landmarks.ledger.read("nodes").read()
        sources = nodes[partition * self._batch : (partition + 1) * self._batch]
        graph = _LOADED.get(f"{self.graph.ledger.store}/{self.components.ledger.path}", self._connected_graph)
        lengths = shortest_path_rows(graph, sources)
        if not np.isfinite(lengths[:, nodes]).all():
            raise StoreError(f"{self.graph.ledger.path}: a landmark cannot be reached from another; verify the store.")
        arrays = {"rows": np.ascontiguousarray(lengths.T, dtype=np.float32), "between": lengths[:, nodes]}
        return {"n_landmarks": len(sources)}, ledger.write_parts(partition, arrays, self._chunk_bytes)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        n_landmarks = sum(entry["n_landmarks"] for entry in figures.values())
        chunk = nodes_per_chunk(self._batch)
        return {"n_landmarks": n_landmarks, "n_batches": len(figures), "nodes_per_chunk": chunk}, []

    def release(self) -> None:
        _LOADED.drop()

    @property
    def _chunk_bytes(self) -> int:
        return 4 * self._batch * nodes_per_chunk(self._batch)

    @property
    def _batch(self) -> int:
        return landmarks_per_batch(self.ordered.figures["n_nodes"], self.landmarks.figures["n_landmarks"])

    def _connected_graph(self) -> csr_array:
        return connected_graph(self.ordered, self.graph, self.components)


def between_landmarks(rows: Outcome) -> AnyArray:
    """Distances (m, m) between the landmarks, in double precision."""
    batches = range(rows.figures["n_batches"])
    return np.concatenate([rows.ledger.part("between", batch).read() for batch in batches])


def row_batches(rows: Outcome) -> list[RowArray]:
    """The distances (n, batch) of all nodes to each batch of landmarks, to be read block by block."""
    return [rows.ledger.part("rows", batch) for batch in range(rows.figures["n_batches"])]


class _LoadedGraph:
    """The one graph that this process holds, shared by its threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._key, self._graph = "", csr_array((0, 0))

    def get(self, key: str, load: Callable[[], csr_array]) -> csr_array:
        with self._lock:
            if self._key != key:
                self._key, self._graph = "", csr_array((0, 0))
                self._key, self._graph = key, load()
            return self._graph

    def drop(self) -> None:
        with self._lock:
            self._key, self._graph = "", csr_array((0, 0))


_LOADED = _LoadedGraph()
