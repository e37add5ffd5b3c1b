"""Stage 6, rows: geodesic distances of every node to the landmarks, a batch of landmarks at a time.

A partition is a batch; it writes its share (n, batch) of the (n, m) table, chunked along the nodes, so that a block of
nodes can be read alone. The graph, with its bridges and without its cuts, is loaded once per process. Beside the table
are the distances that some rows would have if they were new, over their neighbors, and again over one neighbor fewer,
which shows how much hangs on one.
"""

from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import RLock

import numpy as np

from pipeline.errors import StoreError
from pipeline.numerics.compiled import LANES
from pipeline.numerics.geodesics.rows import rows_with_and_without_last
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.landmarks.sampling import MOST_HELD_OUT
from pipeline.numerics.neighbors.radius import RadiusLists
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS
from pipeline.stages.graph.graph import CUT, group_bounds, held_out_lists
from pipeline.stages.stage import Cost, Outcome, Shape, Stage, total
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

Links = tuple[IntArray, IntArray, AnyArray]
NO_GRAPH = PathGraph(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
# More than a worker's share of a core, for a moment: others have nothing to do, or load the same.
LOADING_THREADS = 2


def connected_graph(ordered: Outcome, graph: Outcome, components: Outcome | None) -> PathGraph:
    """The whole graph with its bridges and without what was cut, 8 bytes an edge: weights are in single precision, as
    distances will be. Without `components` the graph as it was found."""
    bounds, links, cuts = group_bounds(ordered), both_ways(components), cut_both_ways(components)
    groups = range(len(bounds) - 1)
    n_more = np.diff(np.searchsorted(links[0], bounds)) - np.diff(np.searchsorted(cuts[0], bounds))
    figures = graph.ledger.committed()
    begins = np.concatenate([[0], np.cumsum([figures[group]["n_edges"] + n_more[group] for group in groups])])
    offsets, targets = np.zeros(int(bounds[-1]) + 1, np.int64), np.empty(int(begins[-1]), np.int32)
    weights = np.empty(len(targets), np.float32)

    def load(group: int) -> None:
        first, last = int(bounds[group]), int(bounds[group + 1])
        place = slice(int(begins[group]), int(begins[group + 1]))
        part = with_links(without(group_csr(graph, group), cuts, first, last), links, first, last)
        offsets[first + 1 : last + 1] = part[0][1:] + place.start
        targets[place], weights[place] = part[1:]

    with ThreadPoolExecutor(LOADING_THREADS) as pool:
        for _ in pool.map(load, groups):
            pass
    return PathGraph(offsets, targets, weights)


class LoadedGraph:
    """The one graph that this process holds, shared by its threads, and what they search it with."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._key, self._graph = "", NO_GRAPH
        self._free: list[PathSearch] = []

    def graph(self, ordered: Outcome, graph: Outcome, components: Outcome) -> PathGraph:
        """The graph of some stages, loaded unless it is that which is held."""
        key = f"{graph.ledger.store}/{components.ledger.path}"
        with self._lock:
            if self._key != key:
                self.drop()
                self._graph, self._key = connected_graph(ordered, graph, components), key
            return self._graph

    @contextmanager
    def search(self, ordered: Outcome, graph: Outcome, components: Outcome) -> Iterator[PathSearch]:
        """A search in that graph, which no other thread has at the same time."""
        with self._lock:
            loaded = self.graph(ordered, graph, components)
            search = self._free.pop() if self._free else PathSearch(loaded)
        try:
            yield search
        finally:
            with self._lock:
                if self._graph is loaded:
                    self._free.append(search)

    def drop(self) -> None:
        with self._lock:
            self._key, self._graph = "", NO_GRAPH
            self._free.clear()


LOADED = LoadedGraph()


def group_csr(graph: Outcome, group: int) -> Links:
    """Offsets, targets and weights of one group's nodes."""
    offsets, targets, weights = (graph.ledger.part(name, group).read() for name in ("offsets", "targets", "weights"))
    return offsets, targets, weights


def cut_both_ways(components: Outcome | None) -> tuple[IntArray, IntArray]:
    """Every edge that was cut from each of its ends, by rising start and end."""
    if components is None or not components.figures.get("n_cut"):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts, ends = (components.ledger.read(name).read() for name in CUT)
    sources, targets = np.concatenate([starts, ends]), np.concatenate([ends, starts])
    order = np.lexsort((targets, sources))
    return sources[order], targets[order]


def without(csr: Links, cuts: tuple[IntArray, IntArray], first: int, last: int) -> Links:
    """One group's CSR without some edges, each of which it has."""
    mine = slice(*np.searchsorted(cuts[0], [first, last]))
    if mine.start == mine.stop:
        return csr
    offsets, targets, weights = csr
    starts = cuts[0][mine] - first
    gone = [
        offsets[start] + int(np.flatnonzero(targets[offsets[start] : offsets[start + 1]] == end)[0])
        for start, end in zip(starts.tolist(), cuts[1][mine].tolist(), strict=True)
    ]
    left = offsets - np.searchsorted(starts, np.arange(last - first + 1))
    return left, np.delete(targets, gone), np.delete(weights, gone)


def both_ways(components: Outcome | None) -> Links:
    """Every bridge from each of its ends, by rising start."""
    if components is None or not components.figures["n_bridges"]:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    starts, ends, lengths = (components.ledger.read(name).read() for name in ("starts", "ends", "lengths"))
    sources, targets = np.concatenate([starts, ends]), np.concatenate([ends, starts])
    order = np.lexsort((targets, sources))
    return sources[order], targets[order], np.concatenate([lengths, lengths])[order]


def with_links(csr: Links, links: Links, first: int, last: int) -> Links:
    """One group's CSR with the links that start at its nodes, `first` up to `last`, put behind their own edges."""
    offsets, targets, weights = csr
    mine = slice(*np.searchsorted(links[0], [first, last]))
    starts = links[0][mine] - first
    if not len(starts):
        return csr
    places = offsets[starts + 1]
    added = np.searchsorted(starts, np.arange(last - first + 1))
    return offsets + added, np.insert(targets, places, links[1][mine]), np.insert(weights, places, links[2][mine])


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


class BatchedRows(Stage):
    """A stage that leaves nodes' distances to the landmarks, a batch of landmarks at a time."""

    name = "rows"

    @property
    @abstractmethod
    def nodes_per_chunk(self) -> int:
        """How many nodes' distances to a batch are stored together."""

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report = {"n_batches": len(figures), "nodes_per_chunk": self.nodes_per_chunk}
        return {**report, "n_landmarks": total(figures, "n_landmarks")}, []


@dataclass(frozen=True)
class Rows(BatchedRows):
    """Shortest paths from each landmark along the graph and its bridges, infinite where a node was dropped."""

    ordered: Outcome
    neighbors: Outcome
    graph: Outcome
    components: Outcome
    landmarks: Outcome
    version = 5
    reads = ("graph", "components", "landmarks")

    def settings(self) -> Json:
        return {"provider": "geodesic", "batch": self._batch, "nodes_per_chunk": self.nodes_per_chunk}

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
        names = ledger.write_rounded(partition, "rows", lengths, self.nodes_per_chunk)
        held_out = rows_with_and_without_last(self._held_out, lengths)
        return names + ledger.write_parts(partition, {"between": between, "held_out": held_out})

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
    def nodes_per_chunk(self) -> int:
        return nodes_per_chunk(self.landmarks.figures["n_landmarks"], max(self.ordered.figures["nodes_each"]))

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m = shape.n_rows, shape.n_landmarks
        return Cost(
            memory=shape.graph + SEARCHED_NODE * n,
            seconds=seconds_of_paths(shape, m),
            disk=4 * (n + 2 * min(n, MOST_HELD_OUT)) * m,
            tasks=-(-m // shape.landmarks_each),
        )


# Few sources are far apart, so that searching them together costs as much as so many more.
FAR_APART = 30


def seconds_of_paths(shape: Shape, n_sources: int) -> float:
    """What searching the graph from so many nodes takes."""
    n = shape.n_rows
    # A graph of the user's may have few edges, whose paths have many steps.
    k = shape.n_neighbors + 3 * (shape.edges_from == "given")
    # With many columns everything is near.
    spread = (1.0 if shape.n_axes <= FEW_DIMENSIONS else 4.0) * (n / 200_000) ** 0.2
    return float(3e-9 * (n_sources + FAR_APART) * n * k * spread)


def between_landmarks(rows: Outcome) -> AnyArray:
    """Distances (m, m) between the landmarks, in double precision."""
    batches = range(rows.figures["n_batches"])
    return np.concatenate([rows.ledger.part("between", batch).read() for batch in batches])


def row_batches(rows: Outcome) -> list[RowArray]:
    """The distances (n, batch) of all nodes to each batch of landmarks, to be read block by block."""
    return [rows.ledger.part("rows", batch) for batch in range(rows.figures["n_batches"])]
