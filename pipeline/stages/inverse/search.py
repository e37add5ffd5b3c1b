"""Which embedded points every query is interpolated between, and which rows of the data belong to those.

Points in the same place are one node of the index, and stand for one with the mean of their rows.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.inverse_places import MOST_ROWS_OF_NODE, ranks_within
from pipeline.partitions import RowPartitions
from pipeline.stages.inverse.index import Index
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, IntArray, Json


@dataclass(frozen=True)
class SearchEmbedded(Stage):
    """Numbers of the nodes nearest to each query, nearest first; and the rows (r,) that they stand for, rising, with
    their nodes (r,).

    To leave queries out, one more is searched for: the first is the query itself. Their own rows are then listed too
    where they are `beyond` (r,) those that make the mean of their node.
    """

    index: Index
    queries: Outcome
    source_partitions: RowPartitions
    n_neighbors: int
    leaves_out: bool = False
    name = "search"
    version = 2

    def settings(self) -> Json:
        left_out = {"leaves_out": True} if self.leaves_out else {}
        return {"n_neighbors": self.n_neighbors, "rows_each": self.source_partitions.rows_each, **left_out}

    def inputs(self) -> list[str]:
        return [*self.index.identity, self.queries.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.queries.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        groups = self.queries.ledger.read("groups").read()[partition : partition + 2]
        own_cells = np.repeat(np.arange(*groups), self.queries.ledger.part("sizes", partition).read())
        points = self.queries.ledger.part("points", partition).read()
        k = min(self.n_neighbors + self.leaves_out, self.index.n_nodes)
        _, found = self.index.nearest(points, own_cells, k)
        arrays: dict[str, AnyArray] = {"neighbors": found.astype(np.int32), "needed": np.unique(found)}
        return {"n_queries": len(points)}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        needed = np.zeros(self.index.n_nodes, dtype=np.bool_)
        for partition in figures:
            needed[ledger.part("needed", partition).read()] = True
        rows, nodes, beyond = self._rows_of(needed)
        order = np.argsort(rows)
        bounds = np.arange(self.source_partitions.count + 1) * self.source_partitions.rows_each
        arrays: dict[str, AnyArray] = {"rows": rows[order], "nodes": nodes[order], "beyond": beyond[order]}
        arrays["bounds"] = np.searchsorted(arrays["rows"], bounds)
        for name, array in arrays.items():
            ledger.write(name, array)
        return {"n_nodes": int(np.count_nonzero(needed)), "n_rows": len(rows)}, list(arrays)

    def _rows_of(self, needed: BoolArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Rows that some nodes stand for, which node each, and whether it is beyond those of the mean: group by group,
        in no order of the rows."""
        ordered = self.index.ordered.ledger
        offsets = np.cumsum([0, *self.index.ordered.figures["nodes_each"]])
        own = self._own_rows()
        rows, nodes = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        beyond = [np.empty(0, dtype=np.bool_)]
        for group in range(len(offsets) - 1):
            of_group = ordered.part("rows", group).read()
            node_of = ordered.part("node_of", group).read() + int(offsets[group])
            wanted = needed[node_of]
            of_group, node_of = of_group[wanted], node_of[wanted]
            order = np.lexsort((of_group, node_of))
            of_group, node_of = of_group[order], node_of[order]
            late = ranks_within(node_of) >= MOST_ROWS_OF_NODE
            kept = ~late | np.isin(of_group, own)
            rows.append(of_group[kept])
            nodes.append(node_of[kept])
            beyond.append(late[kept])
        return np.concatenate(rows), np.concatenate(nodes), np.concatenate(beyond)

    def _own_rows(self) -> IntArray:
        """The queries' own rows, if they are left out."""
        groups = range(self.n_partitions() if self.leaves_out else 0)
        own = [self.queries.ledger.part("rows", group).read() for group in groups]
        return np.concatenate([np.empty(0, dtype=np.int64), *own])
