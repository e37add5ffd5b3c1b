"""Stage 2, partition: the points ordered by cell, so that neighbors in space are neighbors on disk.

Three steps, each a stage of its own in the ledger. `cells` finds centers on a sample. `assign` gives every row its cell
and writes each partition of the source sorted by cell. `order` then gathers each group of consecutive cells from all
of those, reading only its own slices: no step reads chunks x chunks. Identical rows share a cell and become one node:
`assign` keeps one point for those of a partition, `order` for all.

In few dimensions a curve winds through each cell. Rows are sorted by (cell, place on the curve, source row) and nodes
numbered in that order, so nothing depends on the partitions' sizes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.numerics.neighbors.spatial import (
    FEW_DIMENSIONS,
    cell_boxes,
    cell_centers,
    cell_count,
    curve_places,
    sample_size,
)
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.exchange import EXCHANGE_BYTES, gathered
from pipeline.stages.picking import n_usable, rows_of_rank
from pipeline.stages.stage import SEARCH, Cost, Outcome, Result, RowStage, Shape, SingleStage, Stage, total, written
from pipeline.stages.validate import PreparedSource, usable_rows
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json


@dataclass(frozen=True)
class Cells(SingleStage):
    """Centers of cells, from a sample of rows."""

    data: PreparedSource
    partitions: RowPartitions
    seed: int
    name = "cells"
    depends_on = ("seed",)

    def inputs(self) -> list[str]:
        return self.data.identity

    def result(self) -> Result:
        n = n_usable(self.data)
        chosen = np.random.default_rng(self.seed).choice(n, sample_size(n, self.data.n_columns), replace=False)
        # By rank among the usable rows, so that the sample does not depend on how they are cut.
        sample, _ = rows_of_rank(self.data, self.partitions, np.sort(chosen))
        centers = cell_centers(sample, cell_count(n), self.seed)
        return {"n_cells": len(centers)}, {"centers": centers}

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(
            memory=shape.cell_sample * shape.n_axes * (shape.point_itemsize + 4) + shape.reading,
            seconds=0.2 + 2e-9 * shape.source + 5e-10 * shape.cell_sample * shape.n_cells * shape.n_axes,
            disk=8 * shape.n_cells * shape.n_axes,
        )


@dataclass(frozen=True)
class Assign(RowStage):
    """Every row's cell; each partition's rows written in the order of their cells."""

    data: PreparedSource
    partitions: RowPartitions
    cells: Outcome
    name = "assign"
    version = 2

    def inputs(self) -> list[str]:
        return [*self.data.identity, self.cells.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        points = self.data.read(rows.start, rows.stop)
        usable = usable_rows(points)
        points, numbers = points[usable], np.flatnonzero(usable) + rows.start
        centers = self.cells.ledger.read("centers").read()
        _, nearest = NeighborSearch(centers).query(points, 1)
        order = np.argsort(nearest[:, 0], kind="stable")
        points, cells = points[order], nearest[order, 0]
        nodes = collapse_duplicates(points)
        sizes = [np.bincount(which, minlength=len(centers)) for which in (cells, cells[nodes.first_rows])]
        arrays = {"points": points[nodes.first_rows], "rows": numbers[order], "node_of": nodes.node_of}
        names = ledger.write_parts(partition, arrays, EXCHANGE_BYTES)
        return {"n_rows": len(points)}, names + ledger.write_parts(partition, {"counts": np.stack(sizes)})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        """How many rows, and distinct ones, every partition has in every cell (partitions, 2, cells)."""
        counts = np.stack([ledger.part("counts", p).read() for p in range(self.partitions.count)])
        return written(ledger, {"n_rows": total(figures, "n_rows")}, {"counts": counts})

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, compared = shape.n_rows, shape.n_rows * shape.n_cells * shape.n_axes
        few = shape.n_axes <= FEW_DIMENSIONS
        return Cost(
            memory=shape.reading + 2 * shape.block + SEARCH + 16 * shape.n_cells * shape.n_axes,
            seconds=1.5e-6 * n if few else 2e-6 * n + 3e-11 * compared + 6e-9 * shape.points,
            disk=shape.points + 4 * n,
            tasks=shape.n_partitions,
        )


@dataclass(frozen=True)
class Order(Stage):
    """Groups of consecutive cells with all their rows, identical rows collapsed to nodes."""

    assigned: Outcome
    n_source_partitions: int
    rows_each: int
    name = "order"
    version = 2
    depends_on = ("rows_each",)
    reads = ("assigned",)

    def n_partitions(self) -> int:
        return len(_groups(self._counts(), self.rows_each)) - 1

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        counts = self._counts()
        first, last = (int(bound) for bound in _groups(counts, self.rows_each)[partition : partition + 2])
        points, place_of, rows, cells = self._gathered(counts, first, last)
        distinct = collapse_duplicates(points)
        order = np.lexsort((rows, curve_places(points, *_cells_of(place_of, cells, first, last))[place_of], cells))
        rows, cells, found = rows[order], cells[order], distinct.node_of[place_of[order]]
        # Nodes are numbered by their first row in this order, not in that of the gathering.
        _, first_places = np.unique(found, return_index=True)
        in_order = np.argsort(first_places)
        number = np.empty_like(in_order)
        number[in_order] = np.arange(len(in_order))
        leading = first_places[in_order]
        arrays = {
            "points": points[distinct.first_rows[in_order]],
            "rows": rows,
            "node_of": number[found],
            "first": rows[leading],
            "sizes": np.bincount(cells[leading] - first, minlength=last - first),
        }
        if points.shape[1] <= FEW_DIMENSIONS:
            arrays["boxes"] = cell_boxes(arrays["points"], arrays["sizes"])
        figures = {"n_rows": len(rows), "n_nodes": len(leading), "n_columns": points.shape[1]}
        return figures, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        """How many nodes each cell has, and which cells each group: enough to find any node."""
        groups, n_columns = sorted(figures), figures[0]["n_columns"]
        arrays = {"cell_sizes": gathered(ledger, "sizes", groups), "groups": _groups(self._counts(), self.rows_each)}
        if n_columns <= FEW_DIMENSIONS:
            arrays["cell_boxes"] = gathered(ledger, "boxes", groups)
        report: Json = {name: total(figures, name) for name in ("n_rows", "n_nodes")}
        report |= {"n_columns": n_columns, "nodes_each": [figures[group]["n_nodes"] for group in groups]}
        return written(ledger, report, arrays)

    def _counts(self) -> IntArray:
        return np.asarray(self.assigned.ledger.read("counts").read())

    def _gathered(self, counts: IntArray, first: int, last: int) -> tuple[AnyArray, IntArray, IntArray, IntArray]:
        """What every partition of the source has in the cells from `first` up to `last`: distinct points, and for each
        row the place of its point among them, its number and its cell."""
        begins = counts[:, :, :first].sum(axis=2)
        ends = begins + counts[:, :, first:last].sum(axis=2)
        points, places, rows, cells, n_points = [], [], [], [], 0
        for p in range(self.n_source_partitions):
            (row, point), (row_end, point_end) = begins[p].tolist(), ends[p].tolist()
            points.append(self.assigned.ledger.part("points", p).read(point, point_end))
            places.append(self.assigned.ledger.part("node_of", p).read(row, row_end) - point + n_points)
            rows.append(self.assigned.ledger.part("rows", p).read(row, row_end))
            cells.append(np.repeat(np.arange(first, last), counts[p, 0, first:last]))
            n_points += point_end - point
        return np.concatenate(points), np.concatenate(places), np.concatenate(rows), np.concatenate(cells)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, points = shape.n_rows, shape.points
        return Cost(9 * shape.block, 1.2e-6 * n + 8e-9 * points, points + 6 * n, shape.n_partitions)


def _cells_of(place_of: IntArray, cells: IntArray, first: int, last: int) -> tuple[IntArray, int]:
    """The cell of each distinct point, counted from the first, and how many cells there are."""
    of_points = np.empty(int(place_of.max(initial=-1)) + 1, dtype=np.int64)
    of_points[place_of] = cells - first
    return of_points, last - first


def _groups(counts: IntArray, rows_each: int) -> IntArray:
    """Bounds of the groups of cells: consecutive cells of at most `rows_each` rows together, or one cell."""
    sizes = counts[:, 0].sum(axis=0).tolist()
    bounds, filled = [0], 0
    for cell, size in enumerate(sizes):
        if filled and filled + size > rows_each:
            bounds.append(cell)
            filled = 0
        filled += size
    return np.array([*bounds, len(sizes)], dtype=np.int64)


# Groups of cells kept in memory: the one whose neighbors are searched, the one they are searched in, one to spare.
GROUPS_IN_MEMORY = 3
# A node's number in the low bits of its key, its source row above them: keys compare as the rows do.
NODE_BITS_COUNT = 31
NODE_BITS = (1 << NODE_BITS_COUNT) - 1


class OrderedNodes:
    """The nodes as the order stage left them, cell by cell. With `chosen` (n,), `near_first` gives only those."""

    def __init__(self, cells: Outcome, ordered: Outcome, chosen: BoolArray | None = None) -> None:
        self._chosen = chosen
        self.center_search = NeighborSearch(cells.ledger.read("centers").read())
        self.groups: IntArray = ordered.ledger.read("groups").read()
        self.offsets = np.concatenate([[0], np.cumsum(ordered.ledger.read("cell_sizes").read())])
        self._ledger = ordered.ledger
        # Not over a method of this object: the cycle would keep groups in memory until it is collected.
        self.group = lru_cache(GROUPS_IN_MEMORY)(partial(_read_group, ordered.ledger))

    @property
    def sizes(self) -> IntArray:
        """How many nodes each cell has."""
        return np.diff(self.offsets)

    @cached_property
    def boxes(self) -> FloatArray:
        """The box (2, D) around each cell's nodes, where dimensions are few."""
        return np.asarray(self._ledger.read("cell_boxes").read())

    @property
    def n_cells(self) -> int:
        return len(self.center_search.points)

    @property
    def n_nodes(self) -> int:
        return int(self.offsets[-1])

    def group_of(self, cells: IntArray) -> IntArray:
        """The group that each cell is in."""
        return np.asarray(np.searchsorted(self.groups, cells, side="right") - 1)

    def cell_of(self, numbers: IntArray) -> IntArray:
        """The cell that each of some nodes is in."""
        return np.asarray(np.searchsorted(self.offsets, numbers, side="right") - 1)

    def cell(self, cell: int) -> tuple[AnyArray, IntArray]:
        """Points and source rows of one cell's nodes."""
        group = int(self.group_of(np.array([cell]))[0])
        points, rows = self.group(group)
        begin = self.offsets[self.groups[group]]
        place = slice(int(self.offsets[cell] - begin), int(self.offsets[cell + 1] - begin))
        return points[place], rows[place]

    def near_first(self, cells: IntArray, home: int) -> Iterator[tuple[int, AnyArray, IntArray]]:
        """Of cells (rising) that hold nodes: place in `cells`, points and keys; those of groups near `home` first.

        Only those cells are read, neighboring ones together. The group at home is in memory, if it is a group.
        """
        holding = np.flatnonzero(self.offsets[cells + 1] > self.offsets[cells])
        opens_group = np.diff(self.group_of(cells[holding]), prepend=-1) > 0
        starts = np.flatnonzero((np.diff(cells[holding], prepend=-2) > 1) | opens_group)
        runs = [run for run in np.split(holding, starts) if len(run)]
        for run in sorted(runs, key=lambda run: abs(self.group_of(cells[run[:1]])[0] - home)):
            begin, end = int(self.offsets[cells[run[0]]]), int(self.offsets[cells[run[-1]] + 1])
            points, keys = self._read_nodes(int(self.group_of(cells[run[:1]])[0]), begin, end, home)
            for i in run.tolist():
                place = slice(int(self.offsets[cells[i]]) - begin, int(self.offsets[cells[i] + 1]) - begin)
                if self._chosen is None:
                    yield i, points[place], keys[place]
                elif len(mine := np.flatnonzero(self._chosen[keys[place] & NODE_BITS])):
                    yield i, points[place][mine], keys[place][mine]

    def nodes(self, numbers: IntArray) -> tuple[AnyArray, IntArray]:
        """Points and source rows of single nodes, numbers rising."""
        bounds = self.offsets[self.groups]
        rows = np.empty(len(numbers), dtype=np.int64)
        points: AnyArray = np.empty((0, 0))
        for group in range(len(self.groups) - 1):
            first, last = np.searchsorted(numbers, bounds[group : group + 2])
            if first < last:
                group_points, group_rows = self.group(group)
                if not points.size:
                    points = np.empty((len(numbers), group_points.shape[1]), dtype=group_points.dtype)
                places = numbers[first:last] - bounds[group]
                points[first:last], rows[first:last] = group_points[places], group_rows[places]
        return points, rows

    def _read_nodes(self, group: int, begin: int, end: int, home: int) -> tuple[AnyArray, IntArray]:
        """Points and keys of the nodes from `begin` up to `end`, all of one group; that at home is in memory."""
        place = slice(begin - int(self.offsets[self.groups[group]]), end - int(self.offsets[self.groups[group]]))
        if group == home:
            points, rows = (part[place] for part in self.group(home))
        else:
            points, rows = (
                self._ledger.part(name, group).read(place.start, place.stop) for name in ("points", "first")
            )
        return points, node_keys(rows, begin)


def ordered_points(ordered: Outcome, group: int) -> tuple[AnyArray, IntArray]:
    """The points of a group, cell by cell, and the cells that they are in."""
    cells = np.arange(*ordered.ledger.read("groups").read()[group : group + 2])
    return ordered.ledger.part("points", group).read(), np.repeat(cells, ordered.ledger.part("sizes", group).read())


def _read_group(ledger: StageLedger, number: int) -> tuple[AnyArray, IntArray]:
    return ledger.part("points", number).read(), ledger.part("first", number).read()


def node_keys(rows: IntArray, first: int) -> IntArray:
    """Source row and node number of consecutive nodes in one number each, which compares as the row does."""
    return np.asarray((rows << NODE_BITS_COUNT) | np.arange(first, first + len(rows)))


def empty_lists(n_points: int, k: int) -> tuple[FloatArray, IntArray]:
    """Neighbor lists with nothing in them yet."""
    return np.full((n_points, k), np.inf), np.full((n_points, k), -1, dtype=np.int64)
