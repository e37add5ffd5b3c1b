"""Stage 3, neighbors: the k nearest nodes of every node, distances exact, ties to the lower source row.

In few dimensions trees and boxes find them all. In many, every node probes the same number of cells, the nearest to it
by their centers, whatever group it is searched with; so the answer does not depend on the groups. `probes` decides how
many cells on one sample of nodes and audits the choice on another: as the search within the probed cells is exact, a
neighbor is found if and only if its cell is among them, so the recall is that of cells.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.neighbors import KD_TREE_MAX_DIMENSION, refine_neighbors
from pipeline.numerics.products import Portion
from pipeline.numerics.reach import within_reach
from pipeline.stages.ordered import NODE_BITS, NODE_BITS_COUNT, OrderedNodes, empty_lists, node_keys
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.stages.tree_search import neighbors_by_trees
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Numbers of probed cells held at once: 32 MB.
PROBE_ENTRIES = 4_000_000
CHOOSING_NODES = 500
AUDITED_NODES = 1000
# Nodes of a group compared with the sample at once, and points of it whose distances to all cells are held.
NODES_COMPARED, RANKED_POINTS = 2048, 128
# Large cells hold nearly all neighbors of their own nodes; probing few others, the graph could break at their borders.
LEAST_PROBES = 4


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

    def settings(self) -> Json:
        return {"n_neighbors": self.n_neighbors, "seed": self.seed, "recall": self.recall}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = OrderedNodes(self.cells, self.ordered)
        if self.n_neighbors >= nodes.n_nodes:
            raise InvalidInputError(
                f"n_neighbors={self.n_neighbors} is out of range; use one from 1 to {nodes.n_nodes - 1} (the source "
                f"has {nodes.n_nodes} distinct rows)."
            )
        if self.ordered.figures["n_columns"] <= KD_TREE_MAX_DIMENSION:
            return {"n_probes": 0, "recall": 1.0, "audited": 0}, []
        size = min(nodes.n_nodes, CHOOSING_NODES + AUDITED_NODES)
        drawn = np.random.default_rng(self.seed).choice(nodes.n_nodes, size, replace=False)
        choosing, audited = drawn[:-AUDITED_NODES], drawn[-AUDITED_NODES:]
        # With too few nodes for two samples, searching everywhere costs little.
        exactly = self.recall == 1 or len(choosing) < CHOOSING_NODES
        n_probes = nodes.n_cells if exactly else self._enough_probes(nodes, np.sort(choosing))
        recall = float((self._cell_ranks(nodes, np.sort(audited)) < n_probes).mean())
        return {"n_probes": n_probes, "recall": recall, "audited": len(audited)}, []

    def _enough_probes(self, nodes: OrderedNodes, sample: IntArray) -> int:
        """The fewest cells to probe for the recall that is aimed at, as seen on a sample."""
        ranks = self._cell_ranks(nodes, sample)
        shares = np.cumsum(np.bincount(ranks, minlength=nodes.n_cells)) / len(ranks)
        return min(nodes.n_cells, max(LEAST_PROBES, int(np.argmax(shares >= self.recall)) + 1))

    def _cell_ranks(self, nodes: OrderedNodes, sample: IntArray) -> IntArray:
        """For every true neighbor of every sampled node: how many cells are nearer to the node than the neighbor's."""
        points, rows = nodes.nodes(sample)
        neighbor_cells = exact_neighbor_cells(nodes, points, (rows << NODE_BITS_COUNT) | sample, self.n_neighbors)
        found = []
        for first in range(0, len(points), RANKED_POINTS):
            block = slice(first, first + RANKED_POINTS)
            _, order = nodes.center_search.query(points[block], nodes.n_cells)
            ranks = np.empty_like(order)
            np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], axis=1)
            found.append(np.take_along_axis(ranks, neighbor_cells[block], axis=1).ravel())
        return np.concatenate(found)


@dataclass(frozen=True)
class Neighbors(Stage):
    """Distances and node numbers of the k nearest of every node, group by group."""

    cells: Outcome
    ordered: Outcome
    probes: Outcome
    n_neighbors: int
    name = "neighbors"
    version = 2

    def settings(self) -> Json:
        return {"n_neighbors": self.n_neighbors}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest, self.probes.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.ordered.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = OrderedNodes(self.cells, self.ordered)
        few = self.ordered.figures["n_columns"] <= KD_TREE_MAX_DIMENSION
        search = neighbors_by_trees if few else partial(neighbors_by_cells, self.probes.figures["n_probes"])
        distances, found = search(nodes, partition, self.n_neighbors)
        names = ledger.write_parts(partition, {"distances": distances}, compressed=False)
        numbers = (found & NODE_BITS).astype(np.int32)
        return {"n_nodes": len(distances)}, names + ledger.write_parts(partition, {"neighbors": numbers})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        probed = {name: self.probes.figures[name] for name in ("recall", "n_probes", "audited")}
        return {**probed, "n_nodes": sum(entry["n_nodes"] for entry in figures.values())}, []


def neighbors_by_cells(n_probes: int, nodes: OrderedNodes, group: int, k: int) -> tuple[FloatArray, IntArray]:
    """Distances (n, k) and keys (n, k) of the k nearest of a group's nodes among the cells nearest to each."""
    points, rows = nodes.group(group)
    keys = node_keys(rows, int(nodes.offsets[nodes.groups[group]]))
    distances, found = empty_lists(len(points), k)
    lacking = np.arange(len(points))
    # A node whose probed cells hold fewer than k others probes twice as many, until they do.
    while len(lacking):
        n_probes = min(n_probes, nodes.n_cells)
        lists = empty_lists(len(lacking), k)
        search(nodes, group, points[lacking], keys[lacking], n_probes, *lists)
        distances[lacking], found[lacking] = lists
        lacking = lacking[lists[1][:, -1] < 0]
        n_probes *= 2
    return distances, found


def search(
    nodes: OrderedNodes,
    home: int,
    points: AnyArray,
    keys: IntArray,
    n_probes: int,
    distances: FloatArray,
    found: IntArray,
) -> None:
    """Fill the lists of points with the nearest among the `n_probes` cells nearest to each, by key.

    Each point's own cell comes first, where most of its neighbors are; the distances found there tell which of the
    others need not be looked at.
    """
    centers = nodes.center_search.points
    step = max(1, PROBE_ENTRIES // n_probes)
    for first in range(0, len(points), step):
        block = slice(first, first + step)
        lists = points[block], keys[block], distances[block], found[block]
        apart, probes = nodes.center_search.query(points[block], n_probes)
        wanted = np.zeros(probes.shape, dtype=np.bool_)
        wanted[:, 0] = True
        _search_cells(nodes, home, probes, wanted, *lists)
        wanted = within_reach(centers, probes, apart, distances[block, -1]) & ~wanted
        _search_cells(nodes, home, probes, wanted, *lists)


def _search_cells(
    nodes: OrderedNodes,
    home: int,
    probes: IntArray,
    wanted: BoolArray,
    points: AnyArray,
    keys: IntArray,
    distances: FloatArray,
    found: IntArray,
) -> None:
    """Look for each point into those of its probed cells that are wanted; each cell is read once, near ones first."""
    cells, members = _by_cell(probes, wanted)
    for i, cell_points, cell_keys in nodes.near_first(cells, home):
        Portion(cell_points, cell_keys).refine(points, keys, distances, found, members[i])


def _by_cell(probes: IntArray, wanted: BoolArray) -> tuple[IntArray, list[IntArray]]:
    """The cells that are wanted, rising, and for each the points that want it."""
    pairs = np.flatnonzero(wanted)
    chosen = probes.ravel()[pairs]
    order = np.argsort(chosen, kind="stable")
    cells, begins = np.unique(chosen[order], return_index=True)
    return cells, np.split(pairs[order] // probes.shape[1], begins[1:])


def exact_neighbor_cells(nodes: OrderedNodes, points: AnyArray, keys: IntArray, k: int) -> IntArray:
    """The cells (p, k) of the true k nearest of some nodes, found by looking at all of them."""
    distances, found = empty_lists(len(points), k)
    for group in range(nodes.n_groups):
        reference, rows = nodes.group(group)
        reference_keys = node_keys(rows, int(nodes.offsets[nodes.groups[group]]))
        for first in range(0, len(rows), NODES_COMPARED):
            place = slice(first, first + NODES_COMPARED)
            refine_neighbors(reference[place], reference_keys[place], points, keys, distances, found)
    return np.asarray(np.searchsorted(nodes.offsets, found & NODE_BITS, side="right") - 1)
