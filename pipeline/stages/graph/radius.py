"""Points within a radius of each other: the graph that joins them, and the search for such nodes.

A node looks into the cells that may hold others within the radius. Which those are is told by planes midway between
centers, as in `numerics.neighbors.spatial`; for all nodes of a cell at once by their distance from its center: what is
within r of a node q of the cell around h lies in no cell around c with |c - h| > 2 (r + |q - h|).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.directions import edge_lengths, reach_of
from pipeline.numerics.geodesics.bridges import MARGIN, distances
from pipeline.numerics.landmarks.sampling import drawn
from pipeline.numerics.neighbors.radius import (
    Pairs,
    RadiusLists,
    RadiusSearch,
    Room,
    joined_pairs,
)
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS, within_reach
from pipeline.stages.graph.graph import (
    UnevenGraph,
    as_new,
    nearest_in_lists,
    rising_lists,
    write_group,
)
from pipeline.stages.graph.neighbors import (
    NO_GROUP,
    Probes,
    Queries,
    enough_neighbors_among,
    require_several,
    seconds_of_probing,
)
from pipeline.stages.graph.partition import (
    GROUPS_IN_MEMORY,
    NODE_BITS,
    OrderedNodes,
    node_keys,
)
from pipeline.stages.stage import (
    LISTED_EDGE,
    SEARCH,
    Cost,
    Outcome,
    Result,
    Shape,
    SingleStage,
    machine_memory,
)
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

SAMPLED_NODES = 1000
# Cells whose distances to all centers are held at once.
CELLS_AT_ONCE = 64
# Bytes of an edge in the graph, and of one while the lists of a group are made. Half of the memory is for other things.
GRAPH_BYTES, LIST_BYTES, SHARE = 8, 100, 0.5


@dataclass(frozen=True)
class RadiusProbes(SingleStage):
    """How many neighbors nodes have within the radius, in the mean of a sample; an error if a graph of so many edges
    would not fit into memory, or there are none.

    radius: in the user's units, which 2^exponent takes those of the run to.
    """

    cells: Outcome
    ordered: Outcome
    radius: float
    exponent: int
    seed: int
    metric: str = "euclidean"
    name = "probes"
    depends_on = ("radius", "exponent", "seed")
    reads = ("ordered",)

    def result(self) -> Result:
        nodes = OrderedNodes(self.cells, self.ordered)
        require_several(nodes)
        size = min(nodes.n_nodes, SAMPLED_NODES)
        sample = np.sort(np.random.default_rng(self.seed).choice(nodes.n_nodes, size, replace=False))
        points, own_cells = nodes.nodes(sample)[0], nodes.cell_of(sample)
        radius = reach_of(self.metric, in_run_units(self.radius, self.exponent))
        n_pairs = sum(len(pairs.queries) for pairs in pairs_within(nodes, NO_GROUP, points, own_cells, radius))
        # Each has itself in its list.
        mean = n_pairs / size - 1
        self._require_sensible(mean, size, nodes.n_nodes)
        return {"n_probes": nodes.n_cells, "recall": 1.0, "audited": 0, "mean_neighbors": mean}, {}

    def _require_sensible(self, mean: float, size: int, n_nodes: int) -> None:
        seen = f"seen on {size:,} of {n_nodes:,} distinct points"
        if mean == 0:
            raise InvalidInputError(
                f"radius={self.radius:g} is too small: no point has another within it ({seen}); choose a larger one, "
                "in the units of the data (of its spreads, if standardized; of the metric, if it measures angles), or "
                "n_neighbors instead."
            )
        needed, there = GRAPH_BYTES * mean * n_nodes, SHARE * machine_memory()
        if needed > there:
            raise InvalidInputError(
                f"radius={self.radius:g} is too large: it gives each point {mean:,.0f} neighbors in the mean ({seen}), "
                f"and a graph of so many edges takes {needed / 2**30:,.1f} GiB in every worker, where "
                f"{there / 2**30:,.1f} can be had; choose a smaller one, or n_neighbors instead."
            )

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Probes.cost(shape)


@dataclass(frozen=True)
class RadiusGraph(UnevenGraph):
    """Every node's edges to others within the radius. One without any has none, but as a new point the nearest."""

    cells: Outcome
    ordered: Outcome
    probes: Outcome
    radius: float
    exponent: int
    seed: int
    metric: str = "euclidean"
    name = "graph"
    depends_on = ("radius", "exponent", "seed")
    reads = ("ordered", "probes")

    @property
    def nodes_each(self) -> list[int]:
        return list(self.ordered.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        nodes = OrderedNodes(self.cells, self.ordered)
        points, rows = nodes.group(partition)
        first = int(nodes.offsets[nodes.groups[partition]])
        own_cells = nodes.cell_of(np.arange(first, first + len(rows)))
        lists = self._lists(nodes, partition, points, own_cells, first)
        nearest, others = nearest_in_lists(lists), np.full(len(rows), -1)
        # Those without any within the radius look for the nearest wherever it is.
        alone = np.flatnonzero(lists.sizes == 0)
        queries = Queries(points, node_keys(rows, first), own_cells).of(alone)
        apart, found = enough_neighbors_among(nodes, partition, queries, nodes.n_cells, 1)
        nearest[alone], others[alone] = edge_lengths(self.metric, apart[:, 0]), found[:, 0] & NODE_BITS
        return write_group(ledger, partition, lists, nearest, self._held_out(first, partition, lists, nearest, others))

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report, arrays = super().finish(ledger, figures)
        probed = {name: self.probes.figures[name] for name in ("recall", "n_probes", "audited")}
        return {**report, **probed, "radius": in_run_units(self.radius, self.exponent)}, arrays

    def _lists(self, nodes: OrderedNodes, group: int, points: AnyArray, own_cells: IntArray, first: int) -> RadiusLists:
        radius = reach_of(self.metric, in_run_units(self.radius, self.exponent))
        room = Room(len(points), self.radius, int(SHARE * machine_memory() / LIST_BYTES))
        parts = [
            pairs.where(pairs.points != pairs.queries + first)
            for pairs in counted(pairs_within(nodes, group, points, own_cells, radius), room)
        ]
        return rising_lists(len(points), with_lengths(self.metric, joined_pairs(parts)))

    def _held_out(
        self, first: int, group: int, lists: RadiusLists, nearest: FloatArray, others: IntArray
    ) -> RadiusLists:
        """Neighbors of some rows of a group, as if they were new. One that repeats has its like for a neighbor, one
        without any within the radius the nearest."""
        rows, node_of = (self.ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
        held = node_of[drawn(rows, self.ordered.figures["n_rows"], self.seed)]
        repeated = np.flatnonzero(np.bincount(node_of, minlength=len(nearest))[held] > 1)
        alone = np.flatnonzero(others[held] >= 0)
        itself = Pairs(repeated, held[repeated] + first, np.zeros(len(repeated)))
        return as_new(lists, held, joined_pairs([itself, Pairs(alone, others[held[alone]], nearest[held[alone]])]))

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, k = shape.n_rows, shape.n_neighbors
        few, lists = shape.n_axes <= FEW_DIMENSIONS, LISTED_EDGE * shape.rows * k
        return Cost(
            memory=max(GROUPS_IN_MEMORY * shape.block + SEARCH + lists, 48 * n),
            # Points reach into other cells as far as the radius, which is not known to be near or far.
            seconds=3e-7 * n * k if few else seconds_of_probing(shape) + 1.5e-7 * n * k,
            disk=9 * n * k,
            tasks=shape.n_partitions,
        )


def in_run_units(radius: float, exponent: int) -> float:
    """A radius of the user's; one beyond all reason is cut, for its square would overflow."""
    with np.errstate(over="ignore"):
        return min(float(np.ldexp(radius, -exponent)), checks.LARGEST_SIZE)


def with_lengths(metric: str, pairs: Pairs) -> Pairs:
    """The same pairs, as far apart as a metric says of points at such distances."""
    return pairs._replace(distances=edge_lengths(metric, pairs.distances))


def counted(parts: Iterator[Pairs], room: Room) -> Iterator[Pairs]:
    """The same pairs, as long as there is room for them."""
    for pairs in parts:
        room.take(len(pairs.queries))
        yield pairs


def pairs_within(
    nodes: OrderedNodes, home: int, points: AnyArray, own_cells: IntArray, radius: float
) -> Iterator[Pairs]:
    """Places of points, which come cell by cell, and numbers of all nodes within the radius of each; some at a time."""
    if not len(points):
        return
    centers = nodes.center_search.points
    cells, begins = np.unique(own_cells, return_index=True)
    runs = np.split(np.arange(len(points)), begins[1:])
    apart = np.concatenate([distances(points[run], centers[cell]) for run, cell in zip(runs, cells, strict=True)])
    reached = cells_in_reach(centers, cells, np.maximum.reduceat(apart, begins), radius)
    wanted = np.flatnonzero(reached.any(axis=0))
    for i, cell_points, cell_keys in nodes.near_first(wanted, home):
        cell = int(wanted[i])
        near = np.concatenate([runs[run] for run in np.flatnonzero(reached[:, cell])])
        near = near[_reaching(centers, points[near], own_cells[near], apart[near], cell, radius)]
        for pairs in RadiusSearch(cell_points).pairs(points[near], radius) if len(near) else ():
            yield Pairs(near[pairs.queries], cell_keys[pairs.points] & NODE_BITS, pairs.distances)


def cells_in_reach(centers: FloatArray, cells: IntArray, spans: FloatArray, radius: float) -> BoolArray:
    """Whether points of some cells (h,), none farther from its center than the cell's span (h,), may have points of
    each cell (h, c) within the radius."""
    reached = np.empty((len(cells), len(centers)), dtype=np.bool_)
    limits = 2.0 * (spans + radius) * (1.0 + MARGIN)
    for first in range(0, len(cells), CELLS_AT_ONCE):
        block = slice(first, first + CELLS_AT_ONCE)
        reached[block] = scipy.spatial.distance.cdist(centers[cells[block]], centers) <= limits[block, None]
    return reached


def _reaching(
    centers: FloatArray, points: AnyArray, own_cells: IntArray, apart: FloatArray, cell: int, radius: float
) -> BoolArray:
    """Whether each of some points may have points of a cell within the radius."""
    probes = np.column_stack([own_cells, np.full(len(points), cell)])
    lengths = np.column_stack([apart, distances(points, centers[cell])])
    return np.asarray(within_reach(centers, probes, lengths, np.full(probes.shape, radius))[:, 1])
