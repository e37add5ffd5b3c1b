"""Nodes near others: fitted nodes nearest to new points, and all within a radius, exactly in any number of dimensions.

Search, stage 3 of an extension, looks among the stored cells only. New points come ordered by cell, so that those
searched together look into the same cells. In few dimensions the nearest cells tell how far to look, and boxes which
others to look into; in many, each point probes as many cells as the fit's own did. On the way it finds the nodes that
would take the new point for a neighbor of theirs.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.directions import edge_lengths, reach_of
from pipeline.numerics.geodesics.bridges import MARGIN
from pipeline.numerics.landmarks.sampling import along_the_data, widen
from pipeline.numerics.neighbors.radius import (
    Pairs,
    RadiusLists,
    Room,
    even_lists,
    joined_pairs,
    lists_of,
)
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS, reached_boxes
from pipeline.stages.graph.graph import (
    UNEVEN,
    nearest_in_lists,
    write_lists,
)
from pipeline.stages.graph.neighbors import (
    LEAST_PROBES,
    NO_GROUP,
    enough_neighbors_among,
    look_into,
    new_points,
)
from pipeline.stages.graph.partition import (
    NODE_BITS,
    OrderedNodes,
    empty_lists,
    ordered_points,
)
from pipeline.stages.graph.radius import counted, pairs_within, with_lengths
from pipeline.stages.graph.rows import row_batches
from pipeline.stages.graph.takers import Takers
from pipeline.stages.space import GraphSpace
from pipeline.stages.stage import (
    SEARCH,
    Cost,
    GroupStage,
    Outcome,
    Shape,
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
    kept, takers = space.kept, None if space.reach is None else Takers(space.reach, space.metric, space.n_neighbors)
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
        queries = new_points(points, own_cells)
        distances, found = enough_neighbors_among(nodes, NO_GROUP, queries, n_probes, k, takers)
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
