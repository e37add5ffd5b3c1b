"""The nodes in the order that the order stage gave them, and lists of neighbors among them."""

from collections.abc import Iterator
from functools import cached_property, lru_cache, partial

import numpy as np

from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.stages.stage import Outcome
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

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
    def n_groups(self) -> int:
        return len(self.groups) - 1

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
        starts = np.flatnonzero((np.diff(cells[holding], prepend=-2) > 1) | self._opens_group(cells[holding]))
        runs = [run for run in np.split(holding, starts) if len(run)]
        for run in sorted(runs, key=lambda run: abs(self.group_of(cells[run[:1]])[0] - home)):
            begin, end = int(self.offsets[cells[run[0]]]), int(self.offsets[cells[run[-1]] + 1])
            points, keys = self._read_nodes(int(self.group_of(cells[run[:1]])[0]), begin, end, home)
            for i in run.tolist():
                place = slice(int(self.offsets[cells[i]]) - begin, int(self.offsets[cells[i] + 1]) - begin)
                yield from self._those_chosen(i, points[place], keys[place])

    def _those_chosen(self, i: int, points: AnyArray, keys: IntArray) -> Iterator[tuple[int, AnyArray, IntArray]]:
        if self._chosen is None:
            yield i, points, keys
        elif len(mine := np.flatnonzero(self._chosen[keys & NODE_BITS])):
            yield i, points[mine], keys[mine]

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


def _read_group(ledger: StageLedger, number: int) -> tuple[AnyArray, IntArray]:
    return ledger.part("points", number).read(), ledger.part("first", number).read()


def node_keys(rows: IntArray, first: int) -> IntArray:
    """Source row and node number of consecutive nodes in one number each, which compares as the row does."""
    return np.asarray((rows << NODE_BITS_COUNT) | np.arange(first, first + len(rows)))


def empty_lists(n_points: int, k: int) -> tuple[FloatArray, IntArray]:
    """Neighbor lists with nothing in them yet."""
    return np.full((n_points, k), np.inf), np.full((n_points, k), -1, dtype=np.int64)
