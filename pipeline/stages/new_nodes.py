"""Nodes that are new to a graph of the user's, in the place of stages 1 to 3 of an extension: each brings its edges.

As for points, only what was fitted is on the way: a new node's distance to a landmark is that over one of its edges,
and edges between new nodes are not known.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.radius import Pairs, RadiusLists, lists_of
from pipeline.partitions import RowPartitions
from pipeline.sources.new_nodes import NewNodes
from pipeline.stages.space import FittedSpace
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.stages.uneven import UNEVEN, nearest_in_lists, write_lists
from pipeline.stages.validate import LISTED_ROWS
from pipeline.store.ledger import StageLedger
from pipeline.types import IntArray, Json


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
        return [repr(sorted(self.source.fingerprint().items()))]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        lists = lists_of(self.source.n_nodes, Pairs(*self.source.load()))
        without = np.flatnonzero(lists.sizes == 0)
        if len(without) == self.source.n_nodes or (len(without) and self.missing == "error"):
            raise InvalidInputError(
                f"{self.source.name} has {len(without)} new nodes without an edge, first in rows "
                f"{', '.join(map(str, without[:LISTED_ROWS]))}; give each an edge to a fitted node, or choose "
                "missing='drop' (those rows get NaN coordinates, the row count is kept)."
            )
        arrays = {"offsets": lists.offsets, "targets": lists.indices, "lengths": lists.distances}
        for name, values in arrays.items():
            ledger.write(name, values)
        content = hashlib.sha256(b"".join(values.tobytes() for values in arrays.values())).hexdigest()
        report = {"content": content, "n_rows": self.source.n_nodes, "n_columns": 0, "n_edges": len(lists.indices)}
        return {**report, "n_dropped_rows": len(without)}, list(arrays)


@dataclass(frozen=True)
class JoinNewNodes(Stage):
    """The embedded nodes that each new one is joined to, in the run's numbers and units, and the component it belongs
    to: that of the nearest of them, or if it has none, of the nearest of all.

    Partitions are those of the rows, which a later stage takes for groups in the run's own order.
    """

    space: FittedSpace
    loaded: Outcome
    partitions: RowPartitions
    name = "search"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        return [str(self.loaded.figures["content"]), *self.space.identity]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        given = self._lists(rows)
        with_edges = np.flatnonzero(given.sizes)
        lists = given.of(with_edges)
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

    def _lists(self, rows: range) -> RadiusLists:
        read = self.loaded.ledger.read
        offsets = read("offsets").read(rows.start, rows.stop + 1)
        begin, end = int(offsets[0]), int(offsets[-1])
        lengths = np.ldexp(read("lengths").read(begin, end), -self.space.exponent)
        return RadiusLists(offsets - begin, self._place_of[read("targets").read(begin, end)], lengths)

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
