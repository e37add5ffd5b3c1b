"""Reach: how far the k-th neighbor of every node is. New points no farther than that are joined to the node too.

With it, a new point has the edges that it would have if the graph were made of all points together [B sec. 2], except
that edges between fitted points stay as they are. Where edges were cut as short circuits, new points are not to be
joined across the same gap: a node reaches less far than its edges that were cut.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.geodesics.shortcuts import shorten
from pipeline.stages.exchange import gathered
from pipeline.stages.graph.graph import group_bounds
from pipeline.stages.graph.rows import cut_both_ways, group_csr
from pipeline.stages.stage import Cost, GroupStage, Outcome, Shape, written
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, IntArray, Json


@dataclass(frozen=True)
class Reach(GroupStage):
    """The length of every node's edge to its k-th neighbor, and the greatest of each cell."""

    ordered: Outcome
    neighbors: Outcome
    graph: Outcome
    components: Outcome
    name = "reach"
    reads = ("neighbors", "components")

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        reach = np.ascontiguousarray(self.neighbors.ledger.part("distances", partition).read()[:, -1])
        shorten(reach, *self._cut_edges(partition))
        sizes = self.ordered.ledger.part("sizes", partition).read()
        return {}, ledger.write_parts(partition, {"reach": reach, "of_cells": greatest_of_cells(reach, sizes)})

    def _cut_edges(self, partition: int) -> tuple[IntArray, FloatArray]:
        """The edges that were cut at nodes of a group: their places in it, and how long the edges were."""
        first, last = (int(bound) for bound in group_bounds(self.ordered)[partition : partition + 2])
        starts, ends = cut_both_ways(self.components)
        mine = slice(*np.searchsorted(starts, [first, last]))
        places = starts[mine] - first
        if not len(places):
            return places, np.empty(0)
        offsets, targets, weights = group_csr(self.graph, partition)
        rows = [slice(*offsets[place : place + 2].tolist()) for place in places]
        lengths = [weights[row][targets[row] == end].min() for row, end in zip(rows, ends[mine], strict=True)]
        return places, np.array(lengths, dtype=np.float64)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return written(ledger, {}, {"reach_of_cells": gathered(ledger, "of_cells", sorted(figures))})

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, k = shape.n_rows, shape.n_neighbors
        return Cost(24 * shape.rows * k, 2e-9 * n * k, 8 * n, shape.n_partitions)


def greatest_of_cells(reach: FloatArray, sizes: IntArray) -> FloatArray:
    """The greatest reach of consecutive cells of so many nodes; 0 where a cell has none."""
    greatest, holding = np.zeros(len(sizes)), sizes > 0
    if len(reach):
        greatest[holding] = np.maximum.reduceat(reach, (np.cumsum(sizes) - sizes)[holding])
    return greatest
