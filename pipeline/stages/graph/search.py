"""Nodes near others: fitted nodes nearest to new points, and all within a radius, exactly in any number of dimensions.

Search, stage 3 of an extension, looks among the stored cells only. New points come ordered by cell, so that those
searched together look into the same cells. In few dimensions the nearest cells tell how far to look, and boxes which
others to look into; in many, each point probes as many cells as the fit's own did. On the way it finds the nodes that
would take the new point for a neighbor of theirs.

With a radius, a node looks into the cells that may hold others within it. Which those are is told by planes midway
between centers, as in `numerics.reach`; for all nodes of a cell at once by their distance from its center: what is
within r of a node q of the cell around h lies in no cell around c with |c - h| > 2 (r + |q - h|).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.directions import edge_lengths, reach_of
from pipeline.numerics.landmarks.sampling import along_the_data, drawn, widen
from pipeline.numerics.neighbors.radius import (
    Pairs,
    RadiusLists,
    RadiusSearch,
    Room,
    even_lists,
    joined_pairs,
    lists_of,
)
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS, reached_boxes, within_reach
from pipeline.stages.graph.components import MARGIN, distances
from pipeline.stages.graph.graph import (
    UNEVEN,
    UnevenGraph,
    as_new,
    nearest_in_lists,
    rising_lists,
    write_group,
    write_lists,
)
from pipeline.stages.graph.neighbors import (
    LEAST_PROBES,
    NO_GROUP,
    Probes,
    enough_neighbors_among,
    look_into,
    require_several,
    seconds_of_probing,
)
from pipeline.stages.graph.partition import (
    GROUPS_IN_MEMORY,
    NODE_BITS,
    OrderedNodes,
    empty_lists,
    node_keys,
    ordered_points,
)
from pipeline.stages.graph.reach import Takers
from pipeline.stages.graph.rows import row_batches
from pipeline.stages.space import GraphSpace
from pipeline.stages.stage import (
    LISTED_EDGE,
    SEARCH,
    Cost,
    GroupStage,
    Outcome,
    Result,
    Shape,
    SingleStage,
    machine_memory,
    total,
)
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Boxes that points may reach, listed at once at most: 128 MB.
MOST_REACHED = 1 << 23


@dataclass(frozen=True)
class Search(GroupStage):
    """Distances and numbers of the k embedded nodes nearest to each new point, and of those that would take it for a
    neighbor if the run has their reach; and the component it belongs to.

    Where a node that is not embedded is nearer than all of them, the point belongs to that one's component.
    """

    space: GraphSpace
    ordered: Outcome
    name = "search"

    def settings(self) -> Json:
        return {"n_neighbors": self.space.n_neighbors}

    def inputs(self) -> list[str]:
        return [self.ordered.ledger.digest, *self.space.identity]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        points, own_cells = ordered_points(self.ordered, partition)
        lists, component = joined_embedded(self.space, points, own_cells)
        figures = {"n_points": len(points), "n_edges": len(lists.indices)}
        if self.space.reach is not None:
            return figures, write_lists(ledger, partition, lists, nearest_in_lists(lists), component)
        shape = len(points), self.space.n_neighbors
        arrays: dict[str, AnyArray] = {
            "distances": lists.distances.reshape(shape),
            "neighbors": lists.indices.astype(np.int32).reshape(shape),
            "component": component,
        }
        return figures, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        uneven = {} if self.space.reach is None else {UNEVEN: True}
        return {"n_points": total(figures, "n_points"), "n_edges": total(figures, "n_edges"), **uneven}, []

    @staticmethod
    def cost(shape: Shape) -> Cost:
        cells = 16 * shape.n_cells * shape.n_axes
        return Cost(4 * shape.block + SEARCH + 48 * shape.rows * shape.n_neighbors + cells)


@dataclass(frozen=True)
class SearchWithin(Search):
    """All embedded nodes within the radius of each new point; of one without any, the nearest."""

    def settings(self) -> Json:
        return {"radius": self.space.radius}

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        points, own_cells = ordered_points(self.ordered, partition)
        lists, component = embedded_within(self.space, points, own_cells)
        figures = {"n_points": len(points), "n_edges": len(lists.indices)}
        return figures, write_lists(ledger, partition, lists, nearest_in_lists(lists), component)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report, arrays = super().finish(ledger, figures)
        return {**report, UNEVEN: True}, arrays


def embedded_within(space: GraphSpace, points: AnyArray, own_cells: IntArray) -> tuple[RadiusLists, IntArray]:
    """Of points that come cell by cell: the embedded nodes that each is joined to, and the component it belongs to."""
    nodes = OrderedNodes(space.stages["cells"], space.stages["order"], space.kept)
    radius = float(space.radius or 0.0)
    room = Room(len(points), float(np.ldexp(radius, space.exponent)))
    near = pairs_within(nodes, NO_GROUP, points, own_cells, reach_of(space.metric, radius))
    found = with_lengths(space.metric, joined_pairs(list(counted(near, room))))
    alone = np.flatnonzero(np.bincount(found.queries, minlength=len(points)) == 0)
    if len(alone):
        apart, others = _nearest(space, points[alone], own_cells[alone], 1, space.kept)
        found = joined_pairs([found, Pairs(alone, others[:, 0], apart[:, 0])])
    lists = lists_of(len(points), found)
    nearest = lists.indices[lists.offsets[:-1]]
    if space.kept is not None:
        apart, dropped = _nearest(space, points, own_cells, 1, ~space.kept)
        nearest = np.where(apart[:, 0] < nearest_in_lists(lists), dropped[:, 0], nearest)
    return lists, space.component_of(nearest)


def joined_embedded(space: GraphSpace, points: AnyArray, own_cells: IntArray) -> tuple[RadiusLists, IntArray]:
    """Of points that come cell by cell: the embedded nodes that each is joined to, and the component it belongs to."""
    kept, takers = space.kept, None if space.reach is None else Takers(space.reach, space.metric)
    distances, found = _nearest(space, points, own_cells, space.n_neighbors, kept, takers)
    nearest = found[:, 0]
    if kept is not None:
        apart, dropped = _nearest(space, points, own_cells, 1, ~kept)
        nearest = np.where(apart[:, 0] < distances[:, 0], dropped[:, 0], nearest)
    lists = even_lists(distances, found) if takers is None else takers.beside(distances, found)
    if space.thinned:
        lists = along_the_data(lists, _apart_from_nearest(space, lists))
    return lists, space.component_of(nearest)


def _apart_from_nearest(space: GraphSpace, lists: RadiusLists) -> FloatArray:
    """How far at least each neighbor (e,) is from the nearest along the data, by distances to the landmarks."""
    nodes, places = np.unique(lists.indices, return_inverse=True)
    nearest, apart = np.repeat(places[lists.offsets[:-1]], lists.sizes), np.zeros(len(places))
    for batch in row_batches(space.stages["rows"]):
        widen(apart, nearest, places, batch.take(nodes))
    return apart


def _nearest(
    space: GraphSpace,
    points: AnyArray,
    own_cells: IntArray,
    k: int,
    chosen: BoolArray | None,
    takers: Takers | None = None,
) -> tuple[FloatArray, IntArray]:
    nodes = OrderedNodes(space.stages["cells"], space.stages["order"], chosen)
    apart, found = nearest_nodes(nodes, points, own_cells, space.n_probes, k, takers)
    return edge_lengths(space.metric, apart), found


def nearest_nodes(
    nodes: OrderedNodes, points: AnyArray, own_cells: IntArray, n_probes: int, k: int, takers: Takers | None = None
) -> tuple[FloatArray, IntArray]:
    """Distances (p, k) and numbers (p, k) of the nodes nearest to points, which come cell by cell; in many dimensions
    among the cells that each probes."""
    if points.shape[1] <= FEW_DIMENSIONS:
        distances, found = exact_neighbors(nodes, points, own_cells, k)
        if takers is not None:
            takers_by_boxes(nodes, points, own_cells, takers)
    else:
        nobody = np.full(len(points), -1)
        distances, found = enough_neighbors_among(nodes, NO_GROUP, points, nobody, own_cells, n_probes, k, takers)
    return distances, found & NODE_BITS


def takers_by_boxes(nodes: OrderedNodes, points: AnyArray, own_cells: IntArray, takers: Takers) -> None:
    """Find the takers of points in few dimensions, which come cell by cell, in all cells that may hold some."""
    reach = takers.of_cells * (1 + MARGIN)
    boxes = nodes.boxes + np.stack([-reach, reach], axis=1)[:, :, None]
    step = max(1, MOST_REACHED // nodes.n_cells)
    for first in range(0, len(points), step):
        block = points[first : first + step]
        sizes = np.diff(np.flatnonzero(np.diff(own_cells[first : first + step], prepend=-1, append=-1)))
        places, cells = reached_boxes(block, np.zeros(len(block)), sizes, boxes, np.full((len(block), 1), -1))
        order = np.argsort(cells, kind="stable")
        distinct, begins = np.unique(cells[order], return_index=True)
        looking = np.split(places[order] + first, begins[1:])
        for i, cell_points, cell_keys in nodes.near_first(distinct, NO_GROUP):
            takers.look(nodes, int(distinct[i]), cell_points, cell_keys & NODE_BITS, points, looking[i])


def exact_neighbors(nodes: OrderedNodes, points: AnyArray, own_cells: IntArray, k: int) -> tuple[FloatArray, IntArray]:
    """Distances (p, k) and keys (p, k) of the k nearest nodes of points in few dimensions, which come cell by cell."""
    distances, found = empty_lists(len(points), k)
    lists = points, np.full(len(points), -1), distances, found
    everyone = np.arange(len(points))
    look_into(nodes, NO_GROUP, own_cells, everyone, *lists)
    _, near = nodes.center_search.query(points, min(LEAST_PROBES, nodes.n_cells))
    others, columns = np.nonzero(near != own_cells[:, None])
    look_into(nodes, NO_GROUP, near[others, columns], others, *lists)
    known = np.column_stack([own_cells, near])
    step = max(1, MOST_REACHED // nodes.n_cells)
    for first in range(0, len(points), step):
        block = slice(first, first + step)
        sizes = np.diff(np.flatnonzero(np.diff(own_cells[block], prepend=-1, append=-1)))
        places, cells = reached_boxes(points[block], distances[block, -1], sizes, nodes.boxes, known[block])
        look_into(nodes, NO_GROUP, cells, places + first, *lists)
    return distances, found


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
        keys = node_keys(rows, first)[alone]
        apart, found = enough_neighbors_among(nodes, partition, points[alone], keys, own_cells[alone], nodes.n_cells, 1)
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
