"""A graph of the user's own in the place of the stages that make one, and nodes that are new to it.

Nodes are renumbered so that those joined by an edge are near each other in memory, which is what shortest paths need.
There are no points, so nothing is searched: a node's neighbors are those that its edges lead to. A new node's distance
to a landmark is that over one of its edges; edges between new nodes are not known.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.landmarks.sampling import drawn
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, joined_pairs, lists_of
from pipeline.sources.graphs import GraphSource, NewNodes, digest_of_graph
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.graph.graph import UNEVEN, UnevenGraph, as_new, nearest_in_lists, write_group, write_lists
from pipeline.stages.space import GraphSpace
from pipeline.stages.stage import LISTED_EDGE, SEARCH, Cost, Outcome, Result, RowStage, Shape, SingleStage
from pipeline.stages.validate import LISTED_ROWS, fingerprint_of
from pipeline.store.ledger import StageLedger
from pipeline.types import IntArray, Json, SparseArray


@dataclass(frozen=True)
class LoadGraph(SingleStage):
    """The graph with its nodes in the order of the run: `offsets` (n + 1,), `targets` and `lengths` (e,); which node of
    the user's each of them is, `node_at` (n,), and where each of those is, `place_of` (n,)."""

    source: GraphSource
    name = "validate"

    def settings(self) -> Json:
        return {"input": "graph"}

    def inputs(self) -> list[str]:
        return [fingerprint_of(self.source)]

    def result(self) -> Result:
        graph = self.source.load()
        largest = float(graph.data.max())
        if largest == 0:
            raise InvalidInputError(f"all edges of {self.source.name} have length 0; there is nothing to embed.")
        checks.require_squarable(f"the longest edge of {self.source.name}", np.array([largest]))
        node_at = near_order(graph)
        ordered = graph[node_at][:, node_at]
        ordered.sort_indices()
        offsets, targets = (numbers.astype(np.int64) for numbers in (ordered.indptr, ordered.indices))
        arrays = {"offsets": offsets, "targets": targets, "lengths": ordered.data}
        arrays |= {"node_at": node_at, "place_of": np.argsort(node_at)}
        report = {"content": digest_of_graph(graph), "largest": largest, "n_rows": graph.shape[0], "n_columns": 0}
        return {**report, "n_dropped_rows": 0, "n_edges": len(targets) // 2}, arrays

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, edges = shape.n_rows, shape.n_rows * shape.n_neighbors
        return Cost(LISTED_EDGE * edges, 0.1 + 6e-7 * edges, 16 * (edges + n))


def near_order(graph: SparseArray) -> IntArray:
    """The nodes (n,) with neighbors near each other; as they are, if scipy cannot order so many edges."""
    if graph.nnz > np.iinfo(np.int32).max:
        return np.arange(graph.shape[0])
    narrow = scipy.sparse.csr_array(
        (graph.data, graph.indices.astype(np.int32), graph.indptr.astype(np.int32)), shape=graph.shape
    )
    return np.asarray(scipy.sparse.csgraph.reverse_cuthill_mckee(narrow, symmetric_mode=True), dtype=np.int64)


def loaded_lists(loaded: Outcome, nodes: range, exponent: int) -> RadiusLists:
    """The edges of some of the loaded nodes, in units of 2^exponent of the user's."""
    read = loaded.ledger.read
    offsets = read("offsets").read(nodes.start, nodes.stop + 1)
    begin, end = int(offsets[0]), int(offsets[-1])
    lengths = np.ldexp(read("lengths").read(begin, end), -exponent)
    return RadiusLists(offsets - begin, read("targets").read(begin, end), lengths)


@dataclass(frozen=True)
class GivenGraph(UnevenGraph):
    """Groups of nodes, their edges in the run's units, and the rows of the user's that they are: what later stages read
    of `order`, `neighbors` and `graph` of a table."""

    loaded: Outcome
    partitions: RowPartitions
    seed: int
    name = "graph"

    def settings(self) -> Json:
        return {"input": "graph", "rows_each": self.partitions.rows_each, "seed": self.seed}

    def inputs(self) -> list[str]:
        return [str(self.loaded.figures["content"])]

    @property
    def nodes_each(self) -> list[int]:
        return [len(self.partitions.rows(group)) for group in range(self.partitions.count)]

    @property
    def exponent(self) -> int:
        """The power of two that takes the run's units to the user's."""
        return int(np.frexp(self.loaded.figures["largest"])[1])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = self.partitions.rows(partition)
        lists = loaded_lists(self.loaded, nodes, self.exponent)
        rows = self.loaded.ledger.read("node_at").read(nodes.start, nodes.stop)
        held = np.flatnonzero(drawn(rows, self.partitions.n_rows, self.seed))
        names = ledger.write_parts(partition, {"rows": rows, "node_of": np.arange(len(rows)), "first": rows})
        figures, written = write_group(
            ledger, partition, lists, nearest_in_lists(lists), as_new(lists, held, joined_pairs([]))
        )
        return figures, names + written

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report, arrays = super().finish(ledger, figures)
        return {**report, "n_rows": self.partitions.n_rows, "exponent": self.exponent}, arrays

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, k = shape.n_rows, shape.n_neighbors
        memory = max(SEARCH + LISTED_EDGE * shape.rows * k, 48 * n)
        return Cost(memory, 0.1 + 1.4e-7 * n * k, 9 * n * k, shape.n_partitions)


@dataclass(frozen=True)
class LoadNewNodes(SingleStage):
    """The edges of each new node, the shortest first: `offsets` (p + 1,), `targets` and `lengths` (e,) in the user's
    numbers and units. A node without edges is refused, or dropped."""

    source: NewNodes
    missing: str
    name = "validate"

    def settings(self) -> Json:
        return {"input": "graph", "missing": self.missing}

    def inputs(self) -> list[str]:
        return [fingerprint_of(self.source)]

    def result(self) -> Result:
        lists = lists_of(self.source.n_nodes, Pairs(*self.source.load()))
        without = np.flatnonzero(lists.sizes == 0)
        if len(without) == self.source.n_nodes or (len(without) and self.missing == "error"):
            raise InvalidInputError(
                f"{self.source.name} has {len(without)} new nodes without an edge, first in rows "
                f"{', '.join(map(str, without[:LISTED_ROWS]))}; give each an edge to a fitted node, or choose "
                "missing='drop' (those rows get NaN coordinates, the row count is kept)."
            )
        arrays = {"offsets": lists.offsets, "targets": lists.indices, "lengths": lists.distances}
        content = hashlib.sha256(b"".join(values.tobytes() for values in arrays.values())).hexdigest()
        report = {"content": content, "n_rows": self.source.n_nodes, "n_columns": 0, "n_edges": len(lists.indices)}
        return {**report, "n_dropped_rows": len(without)}, arrays

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(2 * LISTED_EDGE * shape.rows * shape.n_neighbors)


@dataclass(frozen=True)
class JoinNewNodes(RowStage):
    """The embedded nodes that each new one is joined to, in the run's numbers and units, and the component it belongs
    to: that of the nearest of them, or if it has none, of the nearest of all.

    Partitions are those of the rows, which a later stage takes for groups in the run's own order.
    """

    space: GraphSpace
    loaded: Outcome
    partitions: RowPartitions
    name = "search"

    def inputs(self) -> list[str]:
        return [str(self.loaded.figures["content"]), *self.space.identity]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        given = loaded_lists(self.loaded, rows, self.space.exponent)
        with_edges = np.flatnonzero(given.sizes)
        lists = given._replace(indices=self._place_of[given.indices]).of(with_edges)
        names = ledger.write_parts(partition, {"rows": with_edges + rows.start, "node_of": np.arange(len(with_edges))})
        embedded, component = self._embedded(lists)
        names += write_lists(ledger, partition, embedded, nearest_in_lists(lists), component)
        return {"n_points": len(with_edges)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        each = [figures[partition]["n_points"] for partition in sorted(figures)]
        return {"n_points": sum(each), "nodes_each": each, UNEVEN: True}, []

    @cached_property
    def _place_of(self) -> IntArray:
        return np.asarray(self.space.stages["validate"].ledger.read("place_of").read())

    def _embedded(self, lists: RadiusLists) -> tuple[RadiusLists, IntArray]:
        """Of lists that are not empty those neighbors that are embedded, and each node's component."""
        nearest, kept = lists.indices[lists.offsets[:-1]], self.space.kept
        if kept is None:
            return lists, self.space.component_of(nearest)
        queries, stay = np.repeat(np.arange(len(lists.sizes)), lists.sizes), kept[lists.indices]
        embedded = lists_of(len(lists.sizes), Pairs(queries[stay], lists.indices[stay], lists.distances[stay]))
        joined = embedded.sizes > 0
        nearest[joined] = embedded.indices[embedded.offsets[:-1][joined]]
        return embedded, self.space.component_of(nearest)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(60 * shape.rows * shape.n_neighbors + 9 * shape.n_nodes)
