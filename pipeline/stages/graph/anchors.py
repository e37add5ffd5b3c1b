"""A run thinned out to its anchors, in the layout of the run: what a portable model consists of.

Stages here have the names of those of a fit and leave what extending reads of them, over the anchors instead of all
nodes, and as one group. Their digests name the data and settings of the run, not the digests of its stages: those also
tell how the run was cut, which changes nothing here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.directions import edge_lengths
from pipeline.numerics.geodesics.graph import symmetric_csr
from pipeline.numerics.landmarks.sampling import firsts_of_groups, held_ranges, least_keys, row_hashes, widen
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.numerics.neighbors.spatial import (
    FEW_DIMENSIONS,
    cell_boxes,
    cell_centers,
    cell_count,
    curve_places,
    sample_size,
)
from pipeline.stages.graph.graph import LISTED_COMPONENTS, group_bounds
from pipeline.stages.graph.neighbors import Probes, neighbors_by_cells, neighbors_by_trees
from pipeline.stages.graph.partition import NODE_BITS, OrderedNodes
from pipeline.stages.graph.reach import greatest_of_cells
from pipeline.stages.graph.rows import BatchedRows, nodes_per_chunk, row_batches
from pipeline.stages.space import GraphSpace
from pipeline.stages.stage import Outcome, Result, SingleStage, written
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, HashArray, IntArray, Json

# Of the anchors, at most one in so many stands for a component that is not embedded and would else have none.
DROPPED_SHARE = 10


@dataclass(frozen=True)
class Copied(SingleStage):
    """Arrays and figures of a stage as they are, but for how its rows were cut."""

    name: str
    original: Outcome
    arrays: tuple[str, ...]
    identity: str

    def inputs(self) -> list[str]:
        return [self.identity]

    def result(self) -> Result:
        figures = {name: value for name, value in self.original.figures.items() if name != "rows_each"}
        return figures, {name: self.original.ledger.read(name).read() for name in self.arrays}


@dataclass(frozen=True)
class Anchors(SingleStage):
    """Which nodes of a run are anchors: the landmarks, one of each component that is not embedded as far as there is
    room, and those drawn by the hashes of their rows. Besides, the nodes of rows left to calibrate and to check by."""

    space: GraphSpace
    landmarks: Outcome
    n_anchors: int
    identity: str
    name = "anchors"
    depends_on = ("n_anchors",)

    def inputs(self) -> list[str]:
        return [self.identity]

    def result(self) -> Result:
        nothing = np.empty(0, dtype=np.int64)
        arrays = {"nodes": np.arange(self.n_anchors), "calibrating": nothing, "checking": nothing}
        if self.n_anchors < self.space.n_nodes:
            arrays = self._drawn()
        return {f"n_{name}": len(nodes) for name, nodes in arrays.items()}, arrays

    def _drawn(self) -> dict[str, IntArray]:
        # The least hash of each node's rows.
        keys: HashArray = np.full(self.space.n_nodes, np.iinfo(np.uint64).max, dtype=np.uint64)
        for nodes, hashes in self._rows():
            np.minimum.at(keys, nodes, hashes)
        forced = np.zeros(len(keys), dtype=np.bool_)
        forced[self.landmarks.ledger.read("nodes").read()] = True
        if self.space.kept is not None:
            room = min(self.n_anchors - int(forced.sum()), self.n_anchors // DROPPED_SHARE)
            labels = self.space.component_of(np.arange(len(keys)))
            forced[firsts_of_groups(keys, labels, room)] = True
        drawn, anchored = least_keys(keys, np.flatnonzero(~forced), self.n_anchors - int(forced.sum()))
        nodes = np.sort(np.concatenate([np.flatnonzero(forced), drawn]))
        # Rows of those anchors that were not drawn are not like new ones.
        eligible = ~forced if self.space.kept is None else self.space.kept & ~forced
        self._require_embedded(nodes)
        return {"nodes": nodes, **self._left(anchored, eligible)}

    def _require_embedded(self, nodes: IntArray) -> None:
        n_kept = len(nodes) if self.space.kept is None else int(self.space.kept[nodes].sum())
        if n_kept <= self.space.n_neighbors:
            raise InvalidInputError(
                f"anchors={self.n_anchors}: only {n_kept} of them would be embedded, for the component policy drops "
                f"most of the data; use more, so that there are more than n_neighbors={self.space.n_neighbors}."
            )

    def _left(self, anchored: int, eligible: BoolArray) -> dict[str, IntArray]:
        """The nodes of rows that calibrate and of those that check, rising, once for each row."""
        ranges = held_ranges(anchored, int(self.space.stages["order"].figures["n_rows"]))
        bounds = np.array(ranges, dtype=np.uint64)
        found: dict[str, list[IntArray]] = {"calibrating": [], "checking": []}
        for nodes, hashes in self._rows():
            for name, low, high in zip(found, bounds, bounds[1:], strict=False):
                found[name].append(nodes[(hashes > low) & (hashes <= high) & eligible[nodes]])
        return {name: np.sort(np.concatenate(parts)) for name, parts in found.items()}

    def _rows(self) -> Iterator[tuple[IntArray, HashArray]]:
        """Node and hash of every row, group by group."""
        ordered, seed = self.space.stages["order"], int(self.space.settings["seed"])
        for group, first in enumerate(group_bounds(ordered)[:-1]):
            rows, node_of = (ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
            yield node_of + first, row_hashes(rows, seed)


@dataclass(frozen=True)
class AnchorCells(SingleStage):
    """Centers of cells over the anchors, about one for a thousand."""

    space: GraphSpace
    anchors: Outcome
    name = "cells"
    reads = ("anchors",)

    def settings(self) -> Json:
        return {"seed": self.space.settings["seed"]}

    def result(self) -> Result:
        nodes, seed = self.anchors.ledger.read("nodes").read(), int(self.space.settings["seed"])
        size = sample_size(len(nodes), int(self.space.stages["order"].figures["n_columns"]))
        sampled = np.sort(np.random.default_rng(seed).choice(len(nodes), size, replace=False))
        points, _ = run_nodes(self.space).nodes(nodes[sampled])
        centers = cell_centers(points, cell_count(len(nodes)), seed)
        return {"n_cells": len(centers)}, {"centers": centers}


class OneGroup(SingleStage):
    """A stage that leaves some of its arrays as those of the only group there is."""

    of_group: ClassVar[tuple[str, ...]]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        figures, arrays = self.result()
        parts = {name: arrays[name] for name in self.of_group}
        figures, names = written(ledger, figures, {name: arrays[name] for name in arrays if name not in parts})
        return figures, [*names, *ledger.write_parts(partition, parts)]


@dataclass(frozen=True)
class AnchorOrder(OneGroup):
    """The anchors ordered by cell, as one group: what `OrderedNodes` reads, and the number that each had in the run."""

    space: GraphSpace
    anchors: Outcome
    cells: Outcome
    name = "order"
    reads = ("cells",)
    of_group = ("points", "first")

    def result(self) -> Result:
        nodes = self.anchors.ledger.read("nodes").read()
        points, first = run_nodes(self.space).nodes(nodes)
        centers = self.cells.ledger.read("centers").read()
        cells = NeighborSearch(centers).query(points, 1)[1][:, 0]
        order = np.lexsort((first, curve_places(points, cells, len(centers)), cells))
        points, sizes = points[order], np.bincount(cells, minlength=len(centers))
        arrays = {"cell_sizes": sizes, "groups": np.array([0, len(centers)]), "nodes": nodes[order]}
        arrays |= {"points": points, "first": first[order]}
        if points.shape[1] <= FEW_DIMENSIONS:
            arrays["cell_boxes"] = cell_boxes(points, sizes)
        figures = {"n_rows": len(nodes), "n_nodes": len(nodes), "nodes_each": [len(nodes)]}
        figures |= {"n_columns": points.shape[1], "thinned": len(nodes) < self.space.n_nodes}
        return figures, arrays


@dataclass(frozen=True)
class AnchorProbes(Probes):
    """How many cells a new point probes, under the name that extending looks for."""

    name = "neighbors"


@dataclass(frozen=True)
class AnchorRows(BatchedRows):
    """The anchors' distances to the landmarks, in the batches of the run: sums over them have the same bytes."""

    space: GraphSpace
    ordered: Outcome
    reads = ("ordered",)

    def n_partitions(self) -> int:
        return int(self.space.stages["rows"].figures["n_batches"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        lengths = taken(row_batches(self.space.stages["rows"])[partition], self.ordered.ledger.read("nodes").read())
        names = ledger.write_rounded(partition, "rows", lengths, self.nodes_per_chunk)
        return {"n_landmarks": lengths.shape[1]}, names

    @property
    def nodes_per_chunk(self) -> int:
        return nodes_per_chunk(self.space.stages["rows"].figures["n_landmarks"], self.ordered.figures["n_nodes"])


def run_nodes(space: GraphSpace) -> OrderedNodes:
    """The nodes of a space, to be read."""
    return OrderedNodes(space.stages["cells"], space.stages["order"])


def nearest_anchors(
    space: GraphSpace, cells: Outcome, ordered: Outcome, probes: Outcome
) -> tuple[FloatArray, IntArray]:
    """Distances (n, k) by the metric and keys (n, k) of the anchors nearest to every anchor."""
    few = ordered.figures["n_columns"] <= FEW_DIMENSIONS
    search = neighbors_by_trees if few else partial(neighbors_by_cells, probes.figures["n_probes"])
    apart, found = search(OrderedNodes(cells, ordered), 0, space.n_neighbors)
    return edge_lengths(space.metric, apart), found


def taken(array: RowArray, numbers: IntArray) -> AnyArray:
    """Single rows of an array, in any order."""
    order = np.argsort(numbers)
    rows = np.empty((len(numbers), *array.shape[1:]), dtype=array.dtype)
    rows[order] = array.take(numbers[order])
    return rows


@dataclass(frozen=True)
class AnchorReach(OneGroup):
    """How far the k-th nearest other anchor of every anchor is."""

    space: GraphSpace
    cells: Outcome
    ordered: Outcome
    probes: Outcome
    name = "reach"
    of_group = ("reach",)
    reads = ("probes",)

    def settings(self) -> Json:
        return {"n_neighbors": self.space.n_neighbors}

    def result(self) -> Result:
        apart, _ = nearest_anchors(self.space, self.cells, self.ordered, self.probes)
        reach = apart[:, -1].copy()
        sizes = self.ordered.ledger.read("cell_sizes").read()
        return {}, {"reach": reach, "reach_of_cells": greatest_of_cells(reach, sizes)}


EdgeList = tuple[IntArray, IntArray, FloatArray]


@dataclass(frozen=True)
class AnchorLandmarks(SingleStage):
    """Numbers of the landmarks among the anchors, and their source rows."""

    landmarks: Outcome
    ordered: Outcome
    name = "landmarks"
    reads = ("ordered",)

    def result(self) -> Result:
        nodes = self.ordered.ledger.read("nodes").read()
        order = np.argsort(nodes)
        places = order[np.searchsorted(nodes[order], self.landmarks.ledger.read("nodes").read())]
        return {"n_landmarks": len(places)}, {"nodes": places, "rows": self.landmarks.ledger.read("rows").read()}


@dataclass(frozen=True)
class AnchorGraph(OneGroup):
    """Symmetric CSR over the anchors, with paths about as long as in the run, and their components in the run.

    An edge leads from each anchor to its k nearest. It is as long as its ends are apart, or as the greatest difference
    of their distances to a landmark, whichever is more; both bound the run's own distance from below (the first unless
    the metric is cosine or correlation), and the second closes shortcuts between turns of the data. Further edges,
    as long as in the run, lead from each anchor to the landmark nearest to it, and from each landmark to the first:
    they join what the k nearest leave apart.
    """

    space: GraphSpace
    cells: Outcome
    ordered: Outcome
    probes: Outcome
    landmarks: Outcome
    rows: Outcome
    name = "graph"
    of_group = ("offsets", "targets", "weights")
    reads = ("probes", "rows")

    def settings(self) -> Json:
        return {"n_neighbors": self.space.n_neighbors}

    def result(self) -> Result:
        n_nodes = int(self.ordered.figures["n_nodes"])
        labels = self.space.component_of(self.ordered.ledger.read("nodes").read())
        pieces = zip(self._near(labels), self._to_landmarks(), strict=True)
        starts, ends, lengths = (np.concatenate(parts) for parts in pieces)
        edges = starts.astype(np.int32), ends.astype(np.int32), lengths.astype(np.float32)
        arrays = dict(zip(self.of_group, symmetric_csr(0, n_nodes, *edges), strict=True))
        sizes = np.bincount(labels)
        largest = np.sort(sizes)[::-1][:LISTED_COMPONENTS].tolist()
        figures = {"n_components": int(np.count_nonzero(sizes)), "largest_components": largest}
        return {**figures, "n_edges": len(arrays["targets"])}, {**arrays, "components": labels}

    def _near(self, labels: IntArray) -> EdgeList:
        """Edges to the k nearest; none between what the run kept apart."""
        apart, found = nearest_anchors(self.space, self.cells, self.ordered, self.probes)
        weights = apart.ravel().copy()
        starts, ends = np.repeat(np.arange(len(found)), found.shape[1]), (found & NODE_BITS).ravel()
        if self.space.kept is not None:
            together = labels[starts] == labels[ends]
            starts, ends, weights = starts[together], ends[together], weights[together]
        for batch in row_batches(self.rows):
            widen(weights, starts, ends, batch.read())
        return starts, ends, weights

    def _to_landmarks(self) -> EdgeList:
        """An edge from each anchor that reaches the landmarks to the nearest, and from each of these to the first."""
        landmarks = self.landmarks.ledger.read("nodes").read()
        nearest = np.zeros(int(self.ordered.figures["n_nodes"]), dtype=np.int64)
        lengths = np.full(len(nearest), np.inf)
        first, seen = lengths, 0
        for batch in row_batches(self.rows):
            block = batch.read()
            first = first if seen else block[landmarks, 0].astype(np.float64)
            best = block.argmin(axis=1)
            closer = np.flatnonzero(np.take_along_axis(block, best[:, None], axis=1)[:, 0] < lengths)
            nearest[closer], lengths[closer] = best[closer] + seen, block[closer, best[closer]]
            seen += block.shape[1]
        starts = np.flatnonzero(np.isfinite(lengths) & (landmarks[nearest] != np.arange(len(nearest))))
        to_first = np.full(len(landmarks) - 1, landmarks[0])
        return (
            np.concatenate([starts, landmarks[1:]]),
            np.concatenate([landmarks[nearest[starts]], to_first]),
            np.concatenate([lengths[starts], first[1:]]),
        )


@dataclass(frozen=True)
class AnchorComponents(SingleStage):
    """What the run did with components, counted in anchors; nothing is left to be bridged."""

    space: GraphSpace
    graph: Outcome
    name = "components"
    reads = ("graph",)

    def result(self) -> Result:
        labels: AnyArray = self.graph.ledger.read("components").read()
        found = {name: self.graph.figures[name] for name in ("n_components", "largest_components")}
        n_kept = len(labels) if self.space.kept is None else int((labels < 1).sum())
        return {**found, "n_kept": n_kept, "n_bridges": 0, "exact": True}, {}
