"""Stage 3, neighbors: the k nearest nodes of every node, searched in the cells nearest to it.

Every node probes the same number of cells, the nearest to it by their centers, whatever group it is searched with; so
the answer does not depend on the groups. Distances are exact, ties go to the lower source row. `probes` decides how
many cells on one sample of nodes and audits the choice on another: as the search within the probed cells is exact, a
neighbor is found if and only if its cell is among them, so the recall is that of cells.
"""

import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipeline.errors import InvalidInputError, RecallWarning
from pipeline.numerics.neighbors import NeighborSearch, refine_neighbors
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

# Groups of cells kept in memory while their neighbors are searched.
GROUPS_IN_MEMORY = 6
CHOOSING_NODES = 500
AUDITED_NODES = 1000
# What the choice aims at, a little above what is promised.
DEFAULT_RECALL = 0.995
PROMISED_RECALL = 0.99


class OrderedNodes:
    """The nodes as the order stage left them, cell by cell."""

    def __init__(self, cells: Outcome, ordered: Outcome) -> None:
        self.center_search = NeighborSearch(cells.ledger.read("centers").read())
        self.groups: IntArray = ordered.ledger.read("groups").read()
        self.offsets = np.concatenate([[0], np.cumsum(ordered.ledger.read("cell_sizes").read())])
        self._ledger = ordered.ledger
        self.group = lru_cache(GROUPS_IN_MEMORY)(self._read_group)

    @property
    def n_cells(self) -> int:
        return len(self.center_search.points)

    @property
    def n_groups(self) -> int:
        return len(self.groups) - 1

    @property
    def n_nodes(self) -> int:
        return int(self.offsets[-1])

    def cell(self, cell: int) -> tuple[AnyArray, IntArray]:
        """Points and source rows of one cell's nodes."""
        number = int(np.searchsorted(self.groups, cell, side="right")) - 1
        points, rows = self.group(number)
        begin = self.offsets[self.groups[number]]
        place = slice(self.offsets[cell] - begin, self.offsets[cell + 1] - begin)
        return points[place], rows[place]

    def nodes(self, numbers: IntArray) -> tuple[AnyArray, IntArray]:
        """Points and source rows of single nodes, numbers rising."""
        bounds = self.offsets[self.groups]
        pieces = []
        for group in range(self.n_groups):
            mine = numbers[np.searchsorted(numbers, bounds[group]) : np.searchsorted(numbers, bounds[group + 1])]
            if len(mine):
                points, rows = self.group(group)
                pieces.append((points[mine - bounds[group]], rows[mine - bounds[group]]))
        return np.concatenate([p for p, _ in pieces]), np.concatenate([r for _, r in pieces])

    def _read_group(self, number: int) -> tuple[AnyArray, IntArray]:
        return self._ledger.part("points", number).read(), self._ledger.part("first", number).read()


@dataclass(frozen=True)
class Probes(Stage):
    """How many cells a node must probe, and the recall that gives."""

    cells: Outcome
    ordered: Outcome
    n_neighbors: int
    seed: int
    recall: float = DEFAULT_RECALL
    name = "probes"

    def settings(self) -> Json:
        return {"n_neighbors": self.n_neighbors, "seed": self.seed, "recall": self.recall}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest]

    def n_partitions(self) -> int:
        return 1

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = OrderedNodes(self.cells, self.ordered)
        if self.n_neighbors >= nodes.n_nodes:
            raise InvalidInputError(
                f"n_neighbors={self.n_neighbors} is out of range; use one from 1 to {nodes.n_nodes - 1} (the source "
                f"has {nodes.n_nodes} distinct rows)."
            )
        size = min(nodes.n_nodes, CHOOSING_NODES + AUDITED_NODES)
        drawn = np.random.default_rng(self.seed).choice(nodes.n_nodes, size, replace=False)
        choosing, audited = drawn[: max(1, size - AUDITED_NODES)], drawn[-AUDITED_NODES:]
        n_probes = nodes.n_cells if self.recall == 1 else self._enough_probes(nodes, np.sort(choosing))
        recall = float((self._cell_ranks(nodes, np.sort(audited)) < n_probes).mean())
        return {"n_probes": n_probes, "recall": recall, "audited": len(audited)}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return figures[0], []

    def _enough_probes(self, nodes: OrderedNodes, sample: IntArray) -> int:
        """The fewest cells to probe for the recall that is aimed at, as seen on a sample."""
        ranks = self._cell_ranks(nodes, sample)
        shares = np.cumsum(np.bincount(ranks, minlength=nodes.n_cells)) / len(ranks)
        return int(np.argmax(shares >= self.recall)) + 1

    def _cell_ranks(self, nodes: OrderedNodes, sample: IntArray) -> IntArray:
        """For every true neighbor of every sampled node: how many cells are nearer to the node than the neighbor's."""
        points, rows = nodes.nodes(sample)
        neighbor_cells = exact_neighbor_cells(nodes, points, rows, self.n_neighbors)
        _, order = nodes.center_search.query(points, nodes.n_cells)
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], axis=1)
        return np.take_along_axis(ranks, neighbor_cells, axis=1).ravel()


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
        first, last = nodes.groups[partition : partition + 2]
        found = [self._of_cell(nodes, cell) for cell in range(int(first), int(last))]
        distances, neighbors = (np.concatenate(parts) for parts in zip(*found, strict=True))
        arrays = {"distances": distances, "neighbors": neighbors}
        return {"n_nodes": len(distances)}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        probed = {name: self.probes.figures[name] for name in ("recall", "n_probes", "audited")}
        if probed["recall"] < PROMISED_RECALL:
            warnings.warn(_recall_warning(probed), RecallWarning, stacklevel=2)
        return {**probed, "n_nodes": sum(entry["n_nodes"] for entry in figures.values())}, []

    def _of_cell(self, nodes: OrderedNodes, cell: int) -> tuple[FloatArray, IntArray]:
        points, rows = nodes.cell(cell)
        distances = np.full((len(points), self.n_neighbors), np.inf)
        neighbors = np.full((len(points), self.n_neighbors), -1, dtype=np.int64)
        n_probes = int(self.probes.figures["n_probes"])
        # A node whose probed cells hold fewer than k others probes twice as many, until they do.
        while len(lacking := np.flatnonzero(neighbors[:, -1] < 0)):
            n_probes = min(n_probes, nodes.n_cells)
            found = _searched(nodes, points[lacking], rows[lacking], n_probes, self.n_neighbors)
            distances[lacking], neighbors[lacking] = found
            n_probes *= 2
        return distances, neighbors


def _recall_warning(figures: Json) -> str:
    return (
        f"The neighbor search finds {figures['recall']:.1%} of the true neighbors, audited on {figures['audited']} "
        f"points; below {PROMISED_RECALL:.0%} the graph may lack edges that matter. Raise recall; 1 searches exactly."
    )


def _searched(
    nodes: OrderedNodes, points: AnyArray, rows: IntArray, n_probes: int, k: int
) -> tuple[FloatArray, IntArray]:
    """Distances and node numbers of the k nearest among the `n_probes` cells nearest to each point; -1 for none."""
    distances, found = np.full((len(points), k), np.inf), np.full((len(points), k), -1, dtype=np.int64)
    candidates, numbers = [], []
    _, probes = nodes.center_search.query(points, n_probes)
    for cell in _nearest_first(probes):
        probing = np.flatnonzero((probes == cell).any(axis=1))
        cell_points, cell_rows = nodes.cell(cell)
        if len(cell_rows):
            kept = distances[probing], found[probing]
            refine_neighbors(cell_points, cell_rows, points[probing], rows[probing], *kept)
            distances[probing], found[probing] = kept
        candidates.append(cell_rows)
        numbers.append(np.arange(nodes.offsets[cell], nodes.offsets[cell + 1]))
    return distances, _node_numbers(found, np.concatenate(candidates), np.concatenate(numbers))


def _nearest_first(probes: IntArray) -> list[int]:
    """The probed cells, those that are near to many points first: lists then fill with near points early."""
    ranks = np.broadcast_to(np.arange(probes.shape[1]), probes.shape)
    cells, inverse = np.unique(probes, return_inverse=True)
    mean_ranks = np.bincount(inverse.ravel(), weights=ranks.ravel()) / np.bincount(inverse.ravel())
    return [int(cell) for cell in cells[np.argsort(mean_ranks, kind="stable")]]


def _node_numbers(rows: IntArray, candidates: IntArray, numbers: IntArray) -> IntArray:
    """The node numbers of source rows, given those of all candidates; -1 stays -1."""
    order = np.argsort(candidates)
    places = np.minimum(np.searchsorted(candidates[order], rows), len(order) - 1)
    return np.where(rows < 0, -1, numbers[order][places])


def exact_neighbor_cells(nodes: OrderedNodes, points: AnyArray, rows: IntArray, k: int) -> IntArray:
    """The cells (p, k) of the true k nearest of some nodes, found by looking at all of them."""
    best: list[AnyArray] = [np.empty((len(points), 0), dtype) for dtype in (np.float64, np.int64, np.int64)]
    for group in range(nodes.n_groups):
        reference, sources = nodes.group(group)
        distances, places = NeighborSearch(reference).query(points, min(k + 1, len(reference)))
        begin = nodes.offsets[nodes.groups[group]]
        cells = np.searchsorted(nodes.offsets, places + begin, side="right") - 1
        distances = np.where(sources[places] == rows[:, None], np.inf, distances)
        joined = [np.concatenate(pair, axis=1) for pair in zip(best, (distances, sources[places], cells), strict=True)]
        order = np.lexsort((joined[1], joined[0]), axis=1)[:, :k]
        best = [np.take_along_axis(part, order, axis=1) for part in joined]
    return best[2]
