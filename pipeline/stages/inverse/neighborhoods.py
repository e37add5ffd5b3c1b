"""Which embedded points every query is interpolated between, and the rows of the data that belong to those.

The embedded points are indexed in cells, as a fit keeps its data; those in the same place are one node, which stands
for the mean of their rows. Near points may stand anywhere in the source. Every partition of it is read once, and of it
only the runs of rows that are needed; they are written in the order of the nodes, so that those of near queries are
together. Rows that no mean needs, but that are left out themselves, are kept apart: a million of them in one place are
read for that place alone, and not for every query near it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipeline.numerics.inverse.interpolant import MOST_ROWS_OF_NODE, mean_rows, ranks_within
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS
from pipeline.sources import Source
from pipeline.sources.partitions import RowPartitions
from pipeline.sources.source import take_rows
from pipeline.stages.exchange import EXCHANGE_BYTES, gathered, places_of_partitions
from pipeline.stages.graph.partition import Assign, Order, OrderedNodes, ordered_points
from pipeline.stages.graph.search import nearest_nodes
from pipeline.stages.stage import GroupStage, Outcome, RowStage, total, written
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Up to so many points all cells that may hold a near one are searched, whatever the dimension.
SEARCHED_EXACTLY = 200_000


@dataclass(frozen=True)
class AssignQueries(Assign):
    """The cell of every query."""

    name = "query_cells"


@dataclass(frozen=True)
class OrderQueries(Order):
    """Queries cell by cell; those in the same place are one."""

    name = "query_order"


@dataclass(frozen=True)
class Index:
    """The stages that ordered the embedded points; `probes` says how many cells to search, where not all are."""

    points: Outcome
    cells: Outcome
    ordered: Outcome
    probes: Outcome | None = None

    @property
    def identity(self) -> list[str]:
        return [self.ordered.ledger.digest, *([] if self.probes is None else [self.probes.ledger.digest])]

    @property
    def exponent(self) -> int:
        """The power of two that takes lengths to the user's units."""
        return int(np.frexp(self.points.figures["largest"])[1])

    @property
    def n_nodes(self) -> int:
        """How many embedded points there are, counting those in one place as one."""
        return int(self.ordered.figures["n_nodes"])

    def opened(self) -> OrderedNodes:
        """The nodes, to be read. Not to be kept: it reads ahead, and cannot be sent to workers."""
        return OrderedNodes(self.cells, self.ordered)


def needs_probes(ordered: Outcome) -> bool:
    """Whether searching exactly would take too long."""
    return bool(ordered.figures["n_columns"] > FEW_DIMENSIONS and ordered.figures["n_nodes"] > SEARCHED_EXACTLY)


@dataclass(frozen=True)
class SearchEmbedded(GroupStage):
    """Numbers of the nodes nearest to each query, nearest first; and the rows (r,) that they stand for, rising, with
    their nodes (r,).

    To leave queries out, one more is searched for: the first is the query itself. Their own rows are then listed too
    where they are `beyond` (r,) those that make the mean of their node.
    """

    index: Index
    ordered: Outcome
    source_partitions: RowPartitions
    n_neighbors: int
    leaves_out: bool = False
    name = "search"
    version = 2

    def settings(self) -> Json:
        left_out = {"leaves_out": True} if self.leaves_out else {}
        return {"n_neighbors": self.n_neighbors, "rows_each": self.source_partitions.rows_each, **left_out}

    def inputs(self) -> list[str]:
        return [*self.index.identity, self.ordered.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes, probes = self.index.opened(), self.index.probes
        n_probes = nodes.n_cells if probes is None else int(probes.figures["n_probes"])
        k = min(self.n_neighbors + self.leaves_out, nodes.n_nodes)
        points, own_cells = ordered_points(self.ordered, partition)
        _, found = nearest_nodes(nodes, points, own_cells, n_probes, k)
        arrays: dict[str, AnyArray] = {"neighbors": found.astype(np.int32), "needed": np.unique(found)}
        return {"n_queries": len(points)}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        needed = np.zeros(self.index.n_nodes, dtype=np.bool_)
        for partition in figures:
            needed[ledger.part("needed", partition).read()] = True
        rows, nodes, beyond = self._rows_of(needed)
        order = np.argsort(rows)
        arrays: dict[str, AnyArray] = {"rows": rows[order], "nodes": nodes[order], "beyond": beyond[order]}
        arrays["bounds"] = places_of_partitions(arrays["rows"], self.source_partitions)
        return written(ledger, {"n_nodes": int(np.count_nonzero(needed)), "n_rows": len(rows)}, arrays)

    def _rows_of(self, needed: BoolArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Rows that some nodes stand for, in any order: which node each, and whether it is beyond those of the mean."""
        own: AnyArray = np.empty(0)
        if self.leaves_out:
            own = gathered(self.ordered.ledger, "rows", list(range(self.n_partitions())))
        first, parts = 0, []
        for group, n_nodes in enumerate(self.index.ordered.figures["nodes_each"]):
            rows, nodes = (self.index.ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
            nodes, first = nodes + first, first + n_nodes
            wanted = np.flatnonzero(needed[nodes])
            wanted = wanted[np.lexsort((rows[wanted], nodes[wanted]))]
            beyond = ranks_within(nodes[wanted]) >= MOST_ROWS_OF_NODE
            kept = ~beyond | np.isin(rows[wanted], own)
            parts.append((rows[wanted][kept], nodes[wanted][kept], beyond[kept]))
        rows, nodes, beyond = (np.concatenate(column) for column in zip(*parts, strict=True))
        return rows, nodes, beyond


# Before the names of arrays.
BEYOND = "beyond_"


@dataclass(frozen=True)
class Gather(RowStage):
    """Values, numbers and nodes of the rows of each partition of the source that are needed; under names of their own,
    of those beyond the ones that make the mean of their node."""

    source: Source
    content: str
    partitions: RowPartitions
    searched: Outcome
    name = "gather"
    version = 2

    def inputs(self) -> list[str]:
        return [self.content, self.searched.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        begin, end = self.searched.ledger.read("bounds").read(partition, partition + 2).tolist()
        listed = {name: self.searched.ledger.read(name).read(begin, end) for name in ("rows", "nodes", "beyond")}
        beyond = listed.pop("beyond")
        columns = {**listed, "values": take_rows(self.source, listed["rows"])}
        names = []
        for prefix, chosen in (("", ~beyond), (BEYOND, beyond)):
            order = np.flatnonzero(chosen)
            order = order[np.argsort(listed["nodes"][order], kind="stable")]
            arrays = {prefix + name: column[order] for name, column in columns.items()}
            names += ledger.write_parts(partition, arrays, EXCHANGE_BYTES)
        return {"n_rows": len(beyond)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"n_rows": total(figures, "n_rows")}, []


class RowsOfNodes(NamedTuple):
    """Rows by node and row: places (r,) of nodes, numbers (r,) and values (r, D); the mean (m, D) of each node's rows,
    and whether (m,) these differ."""

    places: IntArray
    rows: IntArray
    values: FloatArray
    means: FloatArray
    differ: BoolArray


class GatheredRows:
    """What a `Gather` stage wrote, by nodes."""

    def __init__(self, gathered: Outcome, n_partitions: int) -> None:
        self._ledger, self._partitions = gathered.ledger, range(n_partitions)

    def sizes(self, nodes: IntArray) -> IntArray:
        """How many rows make the mean of each of some nodes, rising."""
        sizes = np.zeros(len(nodes), dtype=np.int64)
        for _, begins, ends in self._slices(nodes):
            sizes += ends - begins
        return sizes

    def of(self, nodes: IntArray) -> RowsOfNodes:
        """The rows that make the means of some nodes, rising, in double precision."""
        parts = []
        for partition, begins, ends in self._slices(nodes):
            sizes = ends - begins
            # All numbers from each begin up to each end.
            wanted = np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(int(sizes.sum()))
            if len(wanted):
                rows, values = (self._ledger.part(name, partition).take(wanted) for name in ("rows", "values"))
                parts.append((np.repeat(np.arange(len(nodes)), sizes), rows, values.astype(np.float64)))
        places, rows, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(places, kind="stable")
        places, rows, values = places[order], rows[order], values[order]
        return RowsOfNodes(places, rows, values, *mean_rows(values, places))

    def beyond(self, node: int, most_rows: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """Numbers (p,) and values (p, D) of a node's other rows that are left out, at most so many at a time."""
        for partition, nodes in enumerate(self._nodes_beyond):
            begin, end = np.searchsorted(nodes, [node, node + 1]).tolist()
            for first in range(begin, end, most_rows):
                last = min(first + most_rows, end)
                rows, values = (self._ledger.part(BEYOND + name, partition) for name in ("rows", "values"))
                yield rows.read(first, last), values.read(first, last).astype(np.float64)

    def _slices(self, nodes: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Of each partition, where the rows of each node begin and end."""
        for partition, known in enumerate(self._nodes):
            yield partition, np.searchsorted(known, nodes), np.searchsorted(known, nodes, side="right")

    @cached_property
    def _nodes(self) -> list[IntArray]:
        return [self._ledger.part("nodes", partition).read() for partition in self._partitions]

    @cached_property
    def _nodes_beyond(self) -> list[IntArray]:
        return [self._ledger.part(BEYOND + "nodes", partition).read() for partition in self._partitions]
