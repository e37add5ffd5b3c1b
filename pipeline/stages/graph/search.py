"""Stage 3 of an extension, search: the fitted nodes nearest to new points, among the stored cells only.

New points come ordered by cell, so that those searched together look into the same cells. In few dimensions the
nearest cells tell how far to look, and boxes which others to look into; in many, each point probes as many cells as the
fit's own did.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.landmarks.sampling import along_the_data, widen
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, Room, joined_pairs, lists_of
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS, reached_boxes
from pipeline.stages.graph.graph import UNEVEN, nearest_in_lists, write_lists
from pipeline.stages.graph.neighbors import LEAST_PROBES, NO_GROUP, enough_neighbors_among, look_into
from pipeline.stages.graph.partition import NODE_BITS, OrderedNodes, empty_lists
from pipeline.stages.graph.radius import counted, pairs_within
from pipeline.stages.graph.rows import row_batches
from pipeline.stages.space import GraphSpace
from pipeline.stages.stage import SEARCH, Cost, GroupStage, Outcome, Shape
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Boxes that points may reach, listed at once at most: 128 MB.
MOST_REACHED = 1 << 23


@dataclass(frozen=True)
class Search(GroupStage):
    """Distances and numbers of the k embedded nodes nearest to each new point, and the component it belongs to.

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
        points, own_cells = self._points(partition)
        distances, found, component = nearest_embedded(self.space, points, own_cells)
        arrays: dict[str, AnyArray] = {
            "distances": distances,
            "neighbors": found.astype(np.int32),
            "component": component,
        }
        return {"n_points": len(points)}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"n_points": sum(entry["n_points"] for entry in figures.values())}, []

    def _points(self, partition: int) -> tuple[AnyArray, IntArray]:
        """New points, cell by cell, and the cells that they are in."""
        groups = self.ordered.ledger.read("groups").read()[partition : partition + 2]
        own_cells = np.repeat(np.arange(*groups), self.ordered.ledger.part("sizes", partition).read())
        return self.ordered.ledger.part("points", partition).read(), own_cells

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
        points, own_cells = self._points(partition)
        lists, component = embedded_within(self.space, points, own_cells)
        return {"n_points": len(points)}, write_lists(ledger, partition, lists, nearest_in_lists(lists), component)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report, arrays = super().finish(ledger, figures)
        return {**report, UNEVEN: True}, arrays


def embedded_within(space: GraphSpace, points: AnyArray, own_cells: IntArray) -> tuple[RadiusLists, IntArray]:
    """Of points that come cell by cell: the embedded nodes that a new point is joined to, and the component that each
    point belongs to."""
    nodes = OrderedNodes(space.stages["cells"], space.stages["order"], space.kept)
    radius = float(space.radius or 0.0)
    room = Room(len(points), float(np.ldexp(radius, space.exponent)))
    found = joined_pairs(list(counted(pairs_within(nodes, NO_GROUP, points, own_cells, radius), room)))
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


def nearest_embedded(space: GraphSpace, points: AnyArray, own_cells: IntArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Of points that come cell by cell: distances (p, k) and numbers (p, k) of the nearest embedded nodes, and the
    component that each point belongs to."""
    kept = space.kept
    distances, found = _nearest(space, points, own_cells, space.n_neighbors, kept)
    nearest = found[:, 0]
    if kept is not None:
        apart, dropped = _nearest(space, points, own_cells, 1, ~kept)
        nearest = np.where(apart[:, 0] < distances[:, 0], dropped[:, 0], nearest)
    if space.thinned:
        distances, found = along_the_data(distances, found, _apart_from_nearest(space, found))
    return distances, found, space.component_of(nearest)


def _apart_from_nearest(space: GraphSpace, neighbors: IntArray) -> FloatArray:
    """How far at least each of a point's neighbors (p, k) is from the nearest of them along the data, by its distances
    to the landmarks."""
    nodes, places = np.unique(neighbors, return_inverse=True)
    places = places.reshape(neighbors.shape)
    nearest, apart = np.repeat(places[:, 0], neighbors.shape[1]), np.zeros(places.size)
    for batch in row_batches(space.stages["rows"]):
        widen(apart, nearest, places.ravel(), batch.take(nodes))
    return apart.reshape(neighbors.shape)


def _nearest(
    space: GraphSpace, points: AnyArray, own_cells: IntArray, k: int, chosen: BoolArray | None
) -> tuple[FloatArray, IntArray]:
    nodes = OrderedNodes(space.stages["cells"], space.stages["order"], chosen)
    if points.shape[1] <= FEW_DIMENSIONS:
        distances, found = exact_neighbors(nodes, points, own_cells, k)
    else:
        nobody = np.full(len(points), -1)
        distances, found = enough_neighbors_among(nodes, NO_GROUP, points, nobody, own_cells, space.n_probes, k)
    return distances, found & NODE_BITS


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
