"""Between stages 4 and 5, where a graph in pieces is to be joined: the links between its components.

pieces      the nodes of each cell that are in one component, as balls; and which pairs of them to compare
links       the shortest links of near pieces, a tree of them, and which other pairs may make it shorter
far_links   the shortest links of those
connecting  how many neighbors would do without links

Each is done group by group, on all workers; what is decided between them takes the balls alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from pipeline.numerics.geodesics.bridges import (
    FAR_PAIRS_PER_POINT,
    N_NEAR,
    Links,
    LinkSearch,
    Members,
    Pairs,
    Pieces,
    balls,
    far_pairs,
    joined_links,
    near_pairs,
    spanning_tree,
)
from pipeline.numerics.geodesics.components import MOST_COUNTED
from pipeline.numerics.neighbors.closest import NearerCounts, enough_neighbors_of
from pipeline.numerics.neighbors.products import portions
from pipeline.numerics.neighbors.spatial import ROWS_PER_CELL
from pipeline.stages.exchange import gathered
from pipeline.stages.graph.graph import group_bounds
from pipeline.stages.graph.partition import GROUPS_IN_MEMORY, NODE_BITS, NODE_BITS_COUNT, OrderedNodes
from pipeline.stages.stage import SEARCH, Cost, GroupStage, Outcome, Shape, total, written
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, IntArray, Json

# What a pair of points takes besides one multiplication a column, in such multiplications.
PAIR_WORK = 50
SECONDS_PER_WORK = 2e-11


@dataclass(frozen=True)
class PieceStage(GroupStage):
    """A stage that works on the nodes of a graph in several components."""

    cells: Outcome
    ordered: Outcome
    graph: Outcome

    @cached_property
    def labels(self) -> IntArray:
        """The component of every node."""
        return np.asarray(self.graph.ledger.read("components").read())

    def nodes(self) -> OrderedNodes:
        return OrderedNodes(self.cells, self.ordered)


@dataclass(frozen=True)
class PiecesOfCells(PieceStage):
    """Balls around the nodes of each cell that are in one component, and the pairs of near ones."""

    name = "pieces"
    reads = ("graph",)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = self.nodes()
        first, last = group_bounds(self.ordered)[partition : partition + 2].tolist()
        points, _ = nodes.group(partition)
        cells, labels = nodes.cell_of(np.arange(first, last)), self.labels[first:last]
        order = np.lexsort((labels, cells))
        pieces, sizes = np.unique(np.stack([cells, labels]), axis=1, return_counts=True)
        centers, radii = balls(points[order], np.repeat(np.arange(len(sizes)), sizes))
        found = {"centers": centers, "radii": radii, "of_cells": pieces[0], "of_components": pieces[1], "sizes": sizes}
        return {"n_pieces": len(sizes)}, ledger.write_parts(partition, found)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        names = ("centers", "radii", "of_components", "sizes", "of_cells")
        *balls_of, cells = (gathered(ledger, name, sorted(figures)) for name in names)
        pieces = Pieces(*balls_of)
        arrays = {**dict(zip(names, (*pieces, cells), strict=True)), **_pair_arrays(near_pairs(pieces))}
        return written(ledger, {"n_pieces": len(cells), "n_pairs": len(arrays["first"])}, arrays)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        centers = 8 * shape.n_cells * shape.n_axes
        return Cost(
            memory=2 * shape.block + 8 * shape.n_rows + 4 * centers,
            seconds=4e-9 * shape.n_rows * shape.n_axes + 1e-9 * N_NEAR * shape.n_cells * shape.n_axes,
            disk=2 * centers,
            tasks=shape.n_partitions,
        )


def _pair_arrays(pairs: Pairs) -> dict[str, AnyArray]:
    return dict(zip(Pairs._fields, pairs, strict=True))


def pairs_of(outcome: Outcome) -> Pairs:
    return Pairs(*(outcome.ledger.read(name).read() for name in Pairs._fields))


LINK_PARTS = tuple(f"link_{name}" for name in Links._fields)
TREE_PARTS = tuple(f"tree_{name}" for name in Links._fields)


def tree_of(links: Outcome) -> Links:
    """The links that join all components, the shortest first."""
    return Links(*(links.ledger.read(name).read() for name in TREE_PARTS))


@dataclass(frozen=True)
class NearLinks(PieceStage):
    """The shortest links between pieces near each other; the tree of them, and the pairs that may make it shorter."""

    pieces: Outcome
    name = "links"
    reads: ClassVar[tuple[str, ...]] = ("ordered", "graph", "pieces")

    @property
    def asked(self) -> Outcome:
        """The stage that says which pairs to compare."""
        return self.pieces

    @cached_property
    def balls(self) -> Pieces:
        names = ("centers", "radii", "of_components", "sizes")
        return Pieces(*(self.pieces.ledger.read(name).read() for name in names))

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        links = self._compared(partition)
        return {"n_links": len(links.lengths)}, ledger.write_parts(partition, dict(zip(LINK_PARTS, links, strict=True)))

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        tree = spanning_tree(self._found(ledger, figures))
        far = far_pairs(self.balls, tree, pairs_of(self.pieces))
        arrays: dict[str, AnyArray] = dict(zip(TREE_PARTS, tree, strict=True))
        if far is not None:
            arrays |= _pair_arrays(far)
        report = {"n_links": total(figures, "n_links"), "exact": far is not None}
        return written(ledger, {**report, "n_pairs": 0 if far is None else len(far.first)}, arrays)

    def _found(self, ledger: StageLedger, figures: dict[int, Json]) -> Links:
        """What all groups found."""
        parts = [[ledger.part(name, group).read() for name in LINK_PARTS] for group in sorted(figures)]
        return joined_links([Links(*part) for part in parts])

    def _compared(self, group: int) -> Links:
        """The shortest links of pairs whose first piece is in a group; each cell of second ones is read once."""
        nodes, pairs = self.nodes(), pairs_of(self.asked)
        cells = self.pieces.ledger.read("of_cells").read()
        mine = np.flatnonzero(nodes.group_of(cells[pairs.first]) == group)
        mine = mine[np.lexsort((pairs.first[mine], pairs.second[mine]))]
        search, homes = LinkSearch(self.balls), dict[int, Members]()
        seconds = pairs.second[mine]
        for second, members in self._members(nodes, group, np.unique(seconds), cells):
            for place in mine[slice(*np.searchsorted(seconds, [second, second + 1]))].tolist():
                first = int(pairs.first[place])
                if first not in homes:
                    homes[first] = self._home(nodes, group, first, int(cells[first]))
                search.compare((first, homes[first]), (second, members), float(pairs.limits[place]))
        return search.links()

    def _home(self, nodes: OrderedNodes, group: int, piece: int, cell: int) -> Members:
        """A piece of the group itself."""
        points, rows = nodes.group(group)
        begin, end = nodes.offsets[cell : cell + 2].tolist()
        numbers = np.arange(begin, end)
        numbers = numbers[self.labels[begin:end] == self.balls.components[piece]]
        places = numbers - int(nodes.offsets[nodes.groups[group]])
        return Members(points[places], rows[places], numbers)

    def _members(
        self, nodes: OrderedNodes, group: int, pieces: IntArray, cells: IntArray
    ) -> Iterator[tuple[int, Members]]:
        """Some pieces, rising, with their nodes."""
        distinct = np.unique(cells[pieces])
        for i, points, keys in nodes.near_first(distinct, group):
            numbers = keys & NODE_BITS
            for piece in pieces[cells[pieces] == distinct[i]].tolist():
                chosen = np.flatnonzero(self.labels[numbers] == self.balls.components[piece])
                yield piece, Members(points[chosen], keys[chosen] >> NODE_BITS_COUNT, numbers[chosen])

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return _comparing(shape, N_NEAR * ROWS_PER_CELL)


@dataclass(frozen=True)
class FarLinks(NearLinks):
    """The shortest links between all other pieces that may matter; the tree of all links is the shortest there is."""

    near: Outcome
    name = "far_links"
    reads = (*NearLinks.reads, "near")

    @property
    def asked(self) -> Outcome:
        return self.near

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        tree = spanning_tree(joined_links([tree_of(self.near), self._found(ledger, figures)]))
        report = {"n_links": total(figures, "n_links"), "exact": True}
        return written(ledger, report, dict(zip(TREE_PARTS, tree, strict=True)))

    @staticmethod
    def cost(shape: Shape) -> Cost:
        # At most; most pairs have few points near enough to be compared.
        return _comparing(shape, FAR_PAIRS_PER_POINT // 4)


def _comparing(shape: Shape, pairs_per_point: int) -> Cost:
    n_pairs = shape.n_rows * min(pairs_per_point, shape.n_rows // 2)
    centers = 8 * shape.n_cells * shape.n_axes
    return Cost(
        memory=2 * GROUPS_IN_MEMORY * shape.block + SEARCH + 8 * shape.n_rows + 2 * centers,
        seconds=SECONDS_PER_WORK * n_pairs * (shape.n_axes + PAIR_WORK),
        disk=64 * shape.n_cells,
        tasks=shape.n_partitions,
    )


@dataclass(frozen=True)
class Connecting(GroupStage):
    """How many neighbors would be enough for the graph to have all links itself."""

    cells: Outcome
    ordered: Outcome
    links: Outcome
    name = "connecting"
    reads = ("ordered", "links")

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = OrderedNodes(self.cells, self.ordered)
        ends = tree_of(self.links).ends
        numbers, places = np.unique(ends[:, 2:].ravel(), return_inverse=True)
        points = nodes.nodes(numbers)[0][places].reshape(*ends[:, 2:].shape, -1)
        counts = NearerCounts((points[:, 0], ends[:, 0]), (points[:, 1], ends[:, 1]))
        for portion in portions(*nodes.group(partition)):
            counts.add(portion)
        return {}, ledger.write_parts(partition, {"nearer": counts.counts})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        counts = np.sum([ledger.part("nearer", group).read() for group in sorted(figures)], axis=0)
        return {"enough": enough_neighbors_of(counts)}, []

    @staticmethod
    def cost(shape: Shape) -> Cost:
        most = min(MOST_COUNTED, shape.n_rows)
        seconds = SECONDS_PER_WORK * 2 * most * shape.n_rows * (shape.n_axes + PAIR_WORK)
        return Cost(2 * shape.block + SEARCH + 2 * most * shape.n_axes * 8, seconds, tasks=shape.n_partitions)


# The stages that join a graph in pieces, in order.
JOINING = (PiecesOfCells, NearLinks, FarLinks, Connecting)


def are_countable(links: Outcome) -> bool:
    """Whether there are few enough links to tell how many neighbors would do without."""
    return len(tree_of(links).lengths) <= MOST_COUNTED
