"""Nodes that would take new points for their neighbors, found while the points look into cells for their own."""

from dataclasses import dataclass, field

import numpy as np

from pipeline.numerics.neighbors.products import Portion, Room
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, joined_pairs
from pipeline.numerics.neighbors.takers import (
    TakerSearch,
    nearest_takers,
    reaching_chords,
    reaching_pairs,
    with_takers,
    within_reach_of,
)
from pipeline.stages.graph.partition import NODE_BITS, OrderedNodes
from pipeline.stages.stage import Outcome
from pipeline.types import AnyArray, FloatArray, IntArray

# Pairs that wait until only the nearest of each point are kept: 200 MB.
MOST_WAITING = 1 << 23


@dataclass
class Takers:
    """The nodes that would take some points for their neighbors, found in the cells that the points look into.

    metric: what the reach is measured by, where points are compared by chords. k: how many neighbors points have.
    """

    reach: Outcome
    metric: str
    k: int
    pairs: list[Pairs] = field(default_factory=list)
    n_waiting: int = 0

    @property
    def of_cells(self) -> FloatArray:
        """How far a point may be from some node of each cell that takes it."""
        return reaching_chords(self.metric, self.reach.ledger.read("reach_of_cells").read())

    def refine(
        self,
        nodes: OrderedNodes,
        cell: int,
        portion: Portion,
        points: AnyArray,
        keys: IntArray,
        distances: FloatArray,
        found: IntArray,
        among: IntArray,
    ) -> None:
        """Insert a cell's nodes into lists of nearest ones, and list the pairs of those that take the points."""
        numbers = portion.rows & NODE_BITS
        reach = self.of_nodes(nodes, cell, numbers)
        chords = reaching_chords(self.metric, reach)

        def also(block: IntArray, room: Room) -> None:
            for pairs in reaching_pairs(portion, chords, points, block, room):
                self._take(within_reach_of(self.metric, pairs, reach), numbers)

        portion.refine(points, keys, distances, found, among, float(chords.max()), also)

    def look(
        self,
        nodes: OrderedNodes,
        cell: int,
        cell_points: AnyArray,
        numbers: IntArray,
        points: AnyArray,
        among: IntArray,
    ) -> None:
        """List the pairs of a cell's nodes, given by their numbers, and those points that they take."""
        pairs = TakerSearch(cell_points, self.of_nodes(nodes, cell, numbers), self.metric).pairs(points[among])
        self._take(pairs._replace(queries=among[pairs.queries]), numbers)

    def _take(self, pairs: Pairs, numbers: IntArray) -> None:
        """Keep pairs, whose points are places among nodes with these numbers."""
        self.pairs.append(pairs._replace(points=numbers[pairs.points]))
        self.n_waiting += len(pairs.queries)
        if self.n_waiting > MOST_WAITING:
            self.pairs, self.n_waiting = [nearest_takers(joined_pairs(self.pairs), self.k)], 0

    def of_nodes(self, nodes: OrderedNodes, cell: int, numbers: IntArray) -> FloatArray:
        """The reach of some nodes of a cell."""
        group = int(nodes.group_of(np.array([cell]))[0])
        begin, end = (int(bound - nodes.offsets[nodes.groups[group]]) for bound in nodes.offsets[cell : cell + 2])
        reach = self.reach.ledger.part("reach", group).read(begin, end)
        return np.asarray(reach[numbers - nodes.offsets[cell]])

    def beside(self, lengths: FloatArray, neighbors: IntArray) -> RadiusLists:
        """The lists of points with their nearest (p, k), by the metric, and all that take them."""
        return with_takers(lengths, neighbors, joined_pairs(self.pairs))
