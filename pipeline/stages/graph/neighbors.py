"""Stage 3, neighbors: the k nearest nodes of every node, distances exact, ties to the lower source row.

In few dimensions trees and boxes find them all: a group's own points first, then the cells that its nodes' balls reach
into. Each node's k-th distance so far says how far it has to look; cells whose box is beyond are never read, so what is
in memory at once is a group and a portion of others about as large.

In many dimensions every node probes the same number of cells, the nearest to it by their centers, whatever group it is
searched with. `probes` decides how many on one sample of nodes and audits the choice on another: as the search within
the probed cells is exact, a neighbor is found if and only if its cell is among them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.directions import edge_lengths
from pipeline.numerics.landmarks.sampling import MOST_HELD_OUT, drawn
from pipeline.numerics.neighbors.exact import LabelledTree
from pipeline.numerics.neighbors.products import portions
from pipeline.numerics.neighbors.spatial import (
    FEW_DIMENSIONS,
    ROWS_PER_CELL,
    box_gaps,
    reaching,
    within_reach,
)
from pipeline.stages.exchange import gathered
from pipeline.stages.graph.graph import HELD_OUT, edges_out, group_bounds
from pipeline.stages.graph.partition import (
    GROUPS_IN_MEMORY,
    NODE_BITS,
    NODE_BITS_COUNT,
    OrderedNodes,
    empty_lists,
    node_keys,
)
from pipeline.stages.graph.takers import Takers
from pipeline.stages.stage import SEARCH, Cost, GroupStage, Outcome, Result, Shape, SingleStage, total, written
from pipeline.store.ledger import WHOLE_BYTES, StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

# Nodes of other groups searched at once, at least.
LEAST_PORTION = 1 << 16


def neighbors_by_trees(nodes: OrderedNodes, group: int, k: int) -> tuple[FloatArray, IntArray]:
    """Distances (n, k) and keys (n, k) of the k nearest of a group's nodes."""
    points, rows = nodes.group(group)
    keys = node_keys(rows, int(nodes.offsets[nodes.groups[group]]))
    distances, found = empty_lists(len(points), k)
    LabelledTree(points, keys).refine(points, keys, distances, found)
    home = slice(*nodes.groups[group : group + 2].tolist())
    sizes, homes = nodes.sizes[home], nodes.boxes[home]
    for cells in _portions(nodes, home, distances[:, -1], max(len(points), LEAST_PORTION)):
        open_rows = np.flatnonzero(reaching(points, distances[:, -1], sizes, homes, nodes.boxes[cells]))
        if len(open_rows):
            lists = distances[open_rows], found[open_rows]
            parts = [part[1:] for part in nodes.near_first(cells, group)]
            others = (np.concatenate(column) for column in zip(*parts, strict=True))
            LabelledTree(*others).refine(points[open_rows], keys[open_rows], *lists)
            distances[open_rows], found[open_rows] = lists
    return distances, found


def _portions(nodes: OrderedNodes, home: slice, limits: FloatArray, most_nodes: int) -> Iterator[IntArray]:
    """Cells of other groups, rising, that nodes may have to look into: the nearest first, so many nodes at a time."""
    sizes, holding = nodes.sizes[home], nodes.sizes[home] > 0
    starts = np.cumsum(sizes) - sizes
    farthest = np.maximum.reduceat(limits, starts[holding])
    others = np.setdiff1d(np.flatnonzero(nodes.sizes), np.arange(home.start, home.stop))
    gaps = box_gaps(nodes.boxes[home][holding], farthest, nodes.boxes[others])
    near = np.flatnonzero(np.isfinite(gaps))
    order = others[near[np.argsort(gaps[near], kind="stable")]]
    portion_of = np.cumsum(nodes.sizes[order]) // most_nodes
    for portion in np.unique(portion_of):
        yield np.sort(order[portion_of == portion])


# Probed cells with their distances, looked through at once for those within reach: 16 MB.
PROBE_ENTRIES = 1 << 20
# Of those within reach, so many are gathered before cells are read for them: 32 MB.
MOST_WAITING = 1 << 22
CHOOSING_NODES = 500
AUDITED_NODES = 1000
# Of the sampled nodes, those whose distances to all cells are held at once.
RANKED_POINTS = 128
# A group of nodes that are in no group.
NO_GROUP = -1
# Large cells hold nearly all neighbors of their own nodes; probing few others, the graph could break at their borders.
LEAST_PROBES = 4
# Cells that a plan counts on being probed.
PLANNED_PROBES = 12


@dataclass(frozen=True)
class Probes(SingleStage):
    """How many cells a node must probe, and the recall that gives."""

    cells: Outcome
    ordered: Outcome
    n_neighbors: int
    seed: int
    recall: float
    name = "probes"
    version = 2
    depends_on = ("n_neighbors", "seed", "recall")
    reads = ("ordered",)

    def result(self) -> Result:
        nodes = OrderedNodes(self.cells, self.ordered)
        require_several(nodes)
        if self.n_neighbors >= nodes.n_nodes:
            raise InvalidInputError(
                f"n_neighbors={self.n_neighbors} is out of range; use one from 1 to {nodes.n_nodes - 1} (the source "
                f"has {nodes.n_nodes} distinct rows)."
            )
        if self.ordered.figures["n_columns"] <= FEW_DIMENSIONS:
            return {"n_probes": 0, "recall": 1.0, "audited": 0}, {}
        n_sampled = CHOOSING_NODES + AUDITED_NODES
        # With too few nodes for two samples, searching everywhere costs little.
        if self.recall == 1 or nodes.n_nodes < n_sampled:
            return {"n_probes": nodes.n_cells, "recall": 1.0, "audited": min(nodes.n_nodes, AUDITED_NODES)}, {}
        drawn = np.random.default_rng(self.seed).choice(nodes.n_nodes, n_sampled, replace=False)
        order = np.argsort(drawn)
        ranks = np.empty((n_sampled, self.n_neighbors), dtype=np.int64)
        ranks[order] = self._cell_ranks(nodes, drawn[order])
        n_probes = self._enough_probes(nodes.n_cells, ranks[:CHOOSING_NODES])
        recall = float((ranks[CHOOSING_NODES:] < n_probes).mean())
        return {"n_probes": n_probes, "recall": recall, "audited": AUDITED_NODES}, {}

    def _enough_probes(self, n_cells: int, ranks: IntArray) -> int:
        """The fewest cells to probe for the recall that is aimed at, as seen on a sample."""
        shares = np.cumsum(np.bincount(ranks.ravel(), minlength=n_cells)) / ranks.size
        return min(n_cells, max(LEAST_PROBES, int(np.argmax(shares >= self.recall)) + 1))

    def _cell_ranks(self, nodes: OrderedNodes, sample: IntArray) -> IntArray:
        """For every true neighbor of every sampled node: how many cells are nearer to the node than the neighbor's."""
        points, rows = nodes.nodes(sample)
        keys, own_cells = (rows << NODE_BITS_COUNT) | sample, nodes.cell_of(sample)
        queries = Queries(points, keys, own_cells)
        _, found = neighbors_among(nodes, NO_GROUP, queries, nodes.n_cells, self.n_neighbors)
        neighbor_cells = nodes.cell_of(found & NODE_BITS)
        ranks = np.empty_like(neighbor_cells)
        for first in range(0, len(points), RANKED_POINTS):
            block = slice(first, first + RANKED_POINTS)
            _, order = nodes.center_search.query(points[block], nodes.n_cells)
            places = np.empty_like(order)
            np.put_along_axis(places, order, np.arange(order.shape[1])[None], axis=1)
            ranks[block] = np.take_along_axis(places, neighbor_cells[block], axis=1)
        return ranks

    @staticmethod
    def cost(shape: Shape) -> Cost:
        few, ranked = shape.n_axes <= FEW_DIMENSIONS, 32 * RANKED_POINTS * shape.n_cells
        return Cost(GROUPS_IN_MEMORY * shape.block + SEARCH + ranked, 0.02 if few else 0.2 + 6e-9 * shape.points)


@dataclass(frozen=True)
class Neighbors(GroupStage):
    """Distances and node numbers of the k nearest of every node, group by group, and which of them are of other groups;
    and those of some rows apart, which later stages take as if they were new. By a metric between directions, points
    are unit vectors, and that names them already."""

    cells: Outcome
    ordered: Outcome
    probes: Outcome
    n_neighbors: int
    seed: int
    metric: str = "euclidean"
    name = "neighbors"
    version = 4
    depends_on = ("n_neighbors", "seed")
    reads = ("ordered", "probes")

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = OrderedNodes(self.cells, self.ordered)
        few = self.ordered.figures["n_columns"] <= FEW_DIMENSIONS
        search = neighbors_by_trees if few else partial(neighbors_by_cells, self.probes.figures["n_probes"])
        apart, found = search(nodes, partition, self.n_neighbors)
        distances = edge_lengths(self.metric, apart)
        neighbors = (found & NODE_BITS).astype(np.int32)
        arrays: dict[str, AnyArray] = {"distances": distances, "neighbors": neighbors}
        arrays |= edges_out(group_bounds(self.ordered), partition, neighbors, distances)
        arrays |= self._held_out(partition, int(nodes.offsets[nodes.groups[partition]]), distances, neighbors)
        return {"n_nodes": len(distances)}, ledger.write_parts(partition, arrays, WHOLE_BYTES)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups = sorted(figures)
        arrays = {name: gathered(ledger, name, groups) for name in HELD_OUT}
        arrays["counts_out"] = np.stack([ledger.part("counts_out", group).read() for group in groups])
        probed = {name: self.probes.figures[name] for name in ("recall", "n_probes", "audited")}
        return written(ledger, {**probed, "n_nodes": total(figures, "n_nodes")}, arrays)

    def _held_out(self, group: int, first: int, distances: FloatArray, neighbors: AnyArray) -> dict[str, AnyArray]:
        """Neighbors of some rows of a group, the row itself left out. One that repeats has its like for a neighbor."""
        rows, node_of = (self.ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
        held = node_of[drawn(rows, self.ordered.figures["n_rows"], self.seed)]
        apart, others = distances[held], neighbors[held]
        repeated = np.bincount(node_of, minlength=len(distances))[held] > 1
        apart[repeated, 0], others[repeated, 0] = 0.0, held[repeated] + first
        return dict(zip(HELD_OUT, (apart, others), strict=True))

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, k = shape.n_rows, shape.n_neighbors
        few = shape.n_axes <= FEW_DIMENSIONS
        return Cost(
            memory=(GROUPS_IN_MEMORY + 3) * shape.block + SEARCH + 48 * shape.rows * k,
            seconds=4.5e-7 * n * (k + 1) if few else seconds_of_probing(shape),
            disk=11 * (n + 2 * min(n, MOST_HELD_OUT)) * k,
            tasks=shape.n_partitions,
        )


def require_several(nodes: OrderedNodes) -> None:
    """Refuse rows that are all one point; of rows that are not the same, those that are multiples of each other."""
    if nodes.n_nodes == 1:
        raise InvalidInputError("all rows have the same direction; there is nothing to embed.")


def neighbors_by_cells(n_probes: int, nodes: OrderedNodes, group: int, k: int) -> tuple[FloatArray, IntArray]:
    """Distances (n, k) and keys (n, k) of the k nearest of a group's nodes among the cells nearest to each."""
    points, rows = nodes.group(group)
    first = int(nodes.offsets[nodes.groups[group]])
    own_cells = nodes.cell_of(np.arange(first, first + len(rows)))
    return enough_neighbors_among(nodes, group, Queries(points, node_keys(rows, first), own_cells), n_probes, k)


class Queries(NamedTuple):
    """Points (p, D) that look for nodes, the key of each that is a node itself, -1 else, and the cells they are in."""

    points: AnyArray
    keys: IntArray
    own_cells: IntArray

    def of(self, chosen: IntArray) -> "Queries":
        return Queries(*(part[chosen] for part in self))


def new_points(points: AnyArray, own_cells: IntArray) -> Queries:
    """Queries that are no nodes."""
    return Queries(points, np.full(len(points), -1), own_cells)


def enough_neighbors_among(
    nodes: OrderedNodes, home: int, queries: Queries, n_probes: int, k: int, takers: Takers | None = None
) -> tuple[FloatArray, IntArray]:
    """`neighbors_among`; a point whose probed cells hold fewer than k others probes twice as many, until they do."""
    distances, found = neighbors_among(nodes, home, queries, n_probes, k, takers)
    lacking = np.flatnonzero(found[:, -1] < 0)
    while len(lacking) and n_probes < nodes.n_cells:
        n_probes = min(2 * n_probes, nodes.n_cells)
        lists = neighbors_among(nodes, home, queries.of(lacking), n_probes, k)
        distances[lacking], found[lacking] = lists
        lacking = lacking[lists[1][:, -1] < 0]
    return distances, found


def neighbors_among(
    nodes: OrderedNodes, home: int, queries: Queries, n_probes: int, k: int, takers: Takers | None = None
) -> tuple[FloatArray, IntArray]:
    """Distances (p, k) and keys (p, k) of the k nearest of some points among the `n_probes` cells nearest to each; and
    in the same cells the `takers` of the points, if asked for.

    Each point's own cell comes first, where most of its neighbors are; how far they are tells which others need not be
    looked into. A node with a point's own key is left out. Where a list stays short there is distance inf and key -1.
    """
    points, keys, own_cells = queries
    distances, found = empty_lists(len(points), k)
    lists = points, keys, distances, found
    look_into(nodes, home, own_cells, np.arange(len(points)), *lists, takers)
    of_cells = None if takers is None else takers.of_cells
    waiting: list[tuple[AnyArray, AnyArray]] = []
    step = max(1, PROBE_ENTRIES // n_probes)
    for first in range(0, len(points), step):
        block = slice(first, first + step)
        apart, probes = nodes.center_search.query(points[block], n_probes)
        limits = np.broadcast_to(distances[block, -1:], probes.shape)
        limits = limits if of_cells is None else np.maximum(limits, of_cells[probes])
        wanted = within_reach(nodes.center_search.points, probes, apart, limits)
        places, columns = np.nonzero(wanted & (probes != own_cells[block, None]))
        waiting.append((probes[places, columns].astype(np.int32), (places + first).astype(np.int32)))
        if first + step >= len(points) or sum(len(cells) for cells, _ in waiting) > MOST_WAITING:
            cells, members = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            look_into(nodes, home, cells, members, *lists, takers)
            waiting = []
    return distances, found


def look_into(
    nodes: OrderedNodes,
    home: int,
    cells: AnyArray,
    members: AnyArray,
    points: AnyArray,
    keys: IntArray,
    distances: FloatArray,
    found: IntArray,
    takers: Takers | None = None,
) -> None:
    """Look for some of the points, each into a cell; a cell is read once for all that look into it, near ones first."""
    order = np.argsort(cells, kind="stable")
    distinct, begins = np.unique(cells[order], return_index=True)
    looking = np.split(members[order], begins[1:])
    for i, cell_points, cell_keys in nodes.near_first(distinct, home):
        mine = looking[i].astype(np.int64)
        for portion in portions(cell_points, cell_keys):
            if takers is None:
                portion.refine(points, keys, distances, found, mine)
            else:
                takers.refine(nodes, int(distinct[i]), portion, points, keys, distances, found, mine)


def seconds_of_probing(shape: Shape) -> float:
    """What comparing all nodes with those of the cells they probe takes."""
    pairs = shape.n_rows * min(PLANNED_PROBES, shape.n_cells) * min(ROWS_PER_CELL, shape.n_rows)
    return pairs * (1e-9 + 2.8e-11 * shape.n_axes)
