"""Stage 3, neighbors: the k nearest nodes of every node, searched in the cells nearest to it.

Every node probes the same number of cells, the nearest to it by their centers, whatever group it is searched with; so
the answer does not depend on the groups. Distances are exact, ties go to the lower source row. `probes` decides how
many cells on one sample of nodes and audits the choice on another: as the search within the probed cells is exact, a
neighbor is found if and only if its cell is among them, so the recall is that of cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.neighbors import NeighborSearch, refine_neighbors
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Groups of cells kept in memory: the one whose neighbors are searched, the one they are searched in, one to spare.
GROUPS_IN_MEMORY = 3
# Numbers of probed cells held at once: 32 MB.
PROBE_ENTRIES = 4_000_000
# A node's number in the low bits of its key, its source row above them: keys compare as the rows do.
NODE_BITS_COUNT = 31
NODE_BITS = (1 << NODE_BITS_COUNT) - 1
CHOOSING_NODES = 500
AUDITED_NODES = 1000
# Nodes of a group compared with the sample at once, and points of it whose distances to all cells are held.
NODES_COMPARED, RANKED_POINTS = 2048, 128
# Large cells hold nearly all neighbors of their own nodes; probing few others, the graph could break at their borders.
LEAST_PROBES = 4


class OrderedNodes:
    """The nodes as the order stage left them, cell by cell."""

    def __init__(self, cells: Outcome, ordered: Outcome) -> None:
        self.center_search = NeighborSearch(cells.ledger.read("centers").read())
        self.groups: IntArray = ordered.ledger.read("groups").read()
        self.offsets = np.concatenate([[0], np.cumsum(ordered.ledger.read("cell_sizes").read())])
        self._ledger = ordered.ledger
        # Not over a method of this object: the cycle would keep groups in memory until it is collected.
        self.group = lru_cache(GROUPS_IN_MEMORY)(partial(_read_group, ordered.ledger))

    @property
    def n_cells(self) -> int:
        return len(self.center_search.points)

    @property
    def n_groups(self) -> int:
        return len(self.groups) - 1

    @property
    def n_nodes(self) -> int:
        return int(self.offsets[-1])

    def group_of(self, cells: IntArray) -> IntArray:
        """The group that each cell is in."""
        return np.asarray(np.searchsorted(self.groups, cells, side="right") - 1)

    def cell(self, cell: int) -> tuple[AnyArray, IntArray]:
        """Points and source rows of one cell's nodes."""
        group = int(self.group_of(np.array([cell]))[0])
        points, rows = self.group(group)
        begin = self.offsets[self.groups[group]]
        place = slice(int(self.offsets[cell] - begin), int(self.offsets[cell + 1] - begin))
        return points[place], rows[place]

    def near_first(self, cells: IntArray, home: int) -> Iterator[tuple[int, AnyArray, IntArray]]:
        """Of cells (rising) that hold nodes: place in `cells`, points and keys; those of groups near `home` first.

        Only those cells are read, neighboring ones together.
        """
        holding = np.flatnonzero(self.offsets[cells + 1] > self.offsets[cells])
        starts = np.flatnonzero((np.diff(cells[holding], prepend=-2) > 1) | self._opens_group(cells[holding]))
        runs = [run for run in np.split(holding, starts) if len(run)]
        for run in sorted(runs, key=lambda run: abs(self.group_of(cells[run[:1]])[0] - home)):
            begin, end = int(self.offsets[cells[run[0]]]), int(self.offsets[cells[run[-1]] + 1])
            points, keys = self._read_nodes(int(self.group_of(cells[run[:1]])[0]), begin, end)
            for i in run.tolist():
                place = slice(int(self.offsets[cells[i]]) - begin, int(self.offsets[cells[i] + 1]) - begin)
                yield i, points[place], keys[place]

    def nodes(self, numbers: IntArray) -> tuple[AnyArray, IntArray]:
        """Points and source rows of single nodes, numbers rising."""
        bounds = self.offsets[self.groups]
        rows = np.empty(len(numbers), dtype=np.int64)
        points: AnyArray = np.empty((0, 0))
        for group in range(self.n_groups):
            first, last = np.searchsorted(numbers, bounds[group : group + 2])
            if first < last:
                group_points, group_rows = self.group(group)
                if not points.size:
                    points = np.empty((len(numbers), group_points.shape[1]), dtype=group_points.dtype)
                places = numbers[first:last] - bounds[group]
                points[first:last], rows[first:last] = group_points[places], group_rows[places]
        return points, rows

    def _opens_group(self, cells: IntArray) -> BoolArray:
        """Whether each of some cells, rising, is in another group than the one before it."""
        return np.asarray(np.diff(self.group_of(cells), prepend=-1) > 0)

    def _read_nodes(self, group: int, begin: int, end: int) -> tuple[AnyArray, IntArray]:
        """Points and keys of the nodes from `begin` up to `end`, all of one group."""
        base = int(self.offsets[self.groups[group]])
        points, rows = (self._ledger.part(name, group).read(begin - base, end - base) for name in ("points", "first"))
        return points, node_keys(rows, begin)


def _read_group(ledger: StageLedger, number: int) -> tuple[AnyArray, IntArray]:
    return ledger.part("points", number).read(), ledger.part("first", number).read()


def node_keys(rows: IntArray, first: int) -> IntArray:
    """Source row and node number of consecutive nodes in one number each, which compares as the row does."""
    return np.asarray((rows << NODE_BITS_COUNT) | np.arange(first, first + len(rows)))


@dataclass(frozen=True)
class Probes(SingleStage):
    """How many cells a node must probe, and the recall that gives."""

    cells: Outcome
    ordered: Outcome
    n_neighbors: int
    seed: int
    recall: float
    name = "probes"

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

    def settings(self) -> Json:
        return {"n_neighbors": self.n_neighbors}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest, self.probes.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.ordered.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = OrderedNodes(self.cells, self.ordered)
        points, rows = nodes.group(partition)
        keys = node_keys(rows, int(nodes.offsets[nodes.groups[partition]]))
        distances, found = empty_lists(len(points), self.n_neighbors)
        n_probes, lacking = int(self.probes.figures["n_probes"]), np.arange(len(points))
        # A node whose probed cells hold fewer than k others probes twice as many, until they do.
        while len(lacking):
            n_probes = min(n_probes, nodes.n_cells)
            lists = empty_lists(len(lacking), self.n_neighbors)
            search(nodes, partition, points[lacking], keys[lacking], n_probes, *lists)
            distances[lacking], found[lacking] = lists
            lacking = lacking[lists[1][:, -1] < 0]
            n_probes *= 2
        arrays = {"distances": distances, "neighbors": found & NODE_BITS}
        return {"n_nodes": len(distances)}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        probed = {name: self.probes.figures[name] for name in ("recall", "n_probes", "audited")}
        return {**probed, "n_nodes": sum(entry["n_nodes"] for entry in figures.values())}, []


def empty_lists(n_points: int, k: int) -> tuple[FloatArray, IntArray]:
    """Neighbor lists with nothing in them yet."""
    return np.full((n_points, k), np.inf), np.full((n_points, k), -1, dtype=np.int64)


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

    Each probed cell is read once; those at home first, where most neighbors are, so that lists fill early.
    """
    step = max(1, PROBE_ENTRIES // n_probes)
    for first in range(0, len(points), step):
        block = slice(first, first + step)
        _, probes = nodes.center_search.query(points[block], n_probes)
        cells, members = _by_cell(probes)
        for i, cell_points, cell_keys in nodes.near_first(cells, home):
            probing = members[i] + first
            kept = distances[probing], found[probing]
            refine_neighbors(cell_points, cell_keys, points[probing], keys[probing], *kept)
            distances[probing], found[probing] = kept


def _by_cell(probes: IntArray) -> tuple[IntArray, list[IntArray]]:
    """The cells that are probed, and for each the points that probe it."""
    order = np.argsort(probes.ravel(), kind="stable")
    cells, begins = np.unique(probes.ravel()[order], return_index=True)
    return cells, np.split(order // probes.shape[1], begins[1:])


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
