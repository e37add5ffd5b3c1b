"""From groups of cells back to the order of the source: what `embed` and `place` write, others gather and publish."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.numerics.neighbors.radius import RadiusLists, joined_lists
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.stage import Outcome, RowStage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, IntArray

# A stored chunk where others read slices of a partition: the least that a slice costs. Smaller ones cost files.
EXCHANGE_BYTES = 1 << 17
NO_EDGES = np.empty(0, np.int64), np.empty(0)
# Said by stages that never left the order of the source: their groups are its partitions.
IN_ROW_ORDER = "in_row_order"


def places_of_partitions(rows: IntArray, partitions: RowPartitions) -> IntArray:
    """Where the rows of each partition begin among some rows, rising, and the last end."""
    return np.searchsorted(rows, np.arange(partitions.count + 1) * partitions.rows_each)


def write_rows(
    ledger: StageLedger, group: int, rows: IntArray, partitions: RowPartitions, columns: dict[str, AnyArray]
) -> list[str]:
    """Write what is known of a group's rows, rows rising, and how many of them each partition of the source has."""
    order = np.argsort(rows)
    arrays = {"rows": rows[order], "counts": np.diff(places_of_partitions(rows[order], partitions))}
    arrays |= {name: column[order] for name, column in columns.items()}
    return ledger.write_parts(group, arrays, EXCHANGE_BYTES)


def write_in_row_order(
    ledger: StageLedger, group: int, ordered: Outcome, partitions: RowPartitions, nodes: dict[str, AnyArray]
) -> list[str]:
    """Like `write_rows`, of what is known of a group's nodes, for the source rows that they stand for."""
    rows, node_of = (ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
    names = write_rows(ledger, group, rows, partitions, {})
    return names + ledger.write_taken(group, nodes, node_of[np.argsort(rows)], EXCHANGE_BYTES)


# Edges of new rows: where those of each row begin, to which nodes they lead, how long they are.
LISTS = ("list_begins", "list_nodes", "list_lengths")


def write_lists_in_row_order(ledger: StageLedger, group: int, ordered: Outcome, lists: RadiusLists) -> list[str]:
    """The lists of a group's nodes, for the source rows that they stand for, rows rising."""
    rows, node_of = (ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
    of_rows = lists.of(node_of[np.argsort(rows)])
    arrays = of_rows.offsets, of_rows.indices.astype(np.int32), of_rows.distances
    return ledger.write_parts(group, dict(zip(LISTS, arrays, strict=True)), EXCHANGE_BYTES)


class Column(NamedTuple):
    """A published array: its type, what a row has that was not answered, and the shape of a row."""

    dtype: Any = np.float64
    unknown: float = np.nan
    shape: tuple[int, ...] = ()

    def unanswered(self, n_rows: int) -> AnyArray:
        return np.full((n_rows, *self.shape), self.unknown, self.dtype)


class PublishingStage(RowStage):
    """A stage that leaves arrays with a row for each row of the source."""

    @property
    @abstractmethod
    def published(self) -> dict[str, Column]:
        """The arrays by their names."""

    def prepare(self, ledger: StageLedger) -> None:
        for name in self.published:
            self._array(ledger, name)

    def publish(self, ledger: StageLedger, rows: range, arrays: dict[str, AnyArray]) -> None:
        """Write the rows of a partition."""
        for name, array in arrays.items():
            self._array(ledger, name).write(rows.start, array)

    def _array(self, ledger: StageLedger, name: str) -> RowArray:
        column, cut = self.published[name], self.partitions
        return ledger.create(name, (cut.n_rows, *column.shape), column.dtype, cut.rows_per_chunk)


def gather_rows(exchanged: Outcome, partitions: RowPartitions, partition: int, into: dict[str, AnyArray]) -> None:
    """Fill in the rows of one partition of the source, from each group that has some."""
    for group, begin, end in _slices(exchanged, partition):
        rows = exchanged.ledger.part("rows", group).read(begin, end) - partitions.rows(partition).start
        for name, array in into.items():
            array[rows] = exchanged.ledger.part(name, group).read(begin, end)


def rows_in_order(
    exchanged: Outcome, partitions: RowPartitions, wanted: range, names: Sequence[str]
) -> dict[str, AnyArray]:
    """Some rows of one partition of the source, of several arrays; what no group has is -1 or NaN."""
    found: dict[str, AnyArray] = {}
    for group, begin, end in _slices(exchanged, wanted.start // partitions.rows_each):
        rows = exchanged.ledger.part("rows", group).read(begin, end)
        first, last = (int(place) for place in np.searchsorted(rows, [wanted.start, wanted.stop]))
        for name in names:
            part = exchanged.ledger.part(name, group)
            if name not in found:
                missing = np.nan if part.dtype.kind == "f" else -1
                found[name] = np.full((len(wanted), *part.shape[1:]), missing, dtype=part.dtype)
            found[name][rows[first:last] - wanted.start] = part.read(begin + first, begin + last)
    return found


def lists_in_order(exchanged: Outcome, partitions: RowPartitions, wanted: range) -> RadiusLists:
    """The lists of some rows of one partition of the source; empty for rows that no group has."""
    numbers, parts = [np.arange(len(wanted))], [RadiusLists(np.zeros(len(wanted) + 1, np.int64), *NO_EDGES)]
    for group, begin, end in _slices(exchanged, wanted.start // partitions.rows_each):
        rows = exchanged.ledger.part("rows", group).read(begin, end)
        first, last = (int(place) for place in np.searchsorted(rows, [wanted.start, wanted.stop]))
        begins, nodes, lengths = (exchanged.ledger.part(name, group) for name in LISTS)
        offsets = begins.read(begin + first, begin + last + 1)
        place = int(offsets[0]), int(offsets[-1])
        numbers.append(rows[first:last] - wanted.start)
        parts.append(RadiusLists(offsets - place[0], nodes.read(*place), lengths.read(*place)))
    number_of, places = np.concatenate(numbers), np.empty(len(wanted), np.int64)
    # What a group has comes after the empty lists of all.
    places[number_of] = np.arange(len(number_of))
    return joined_lists(parts).of(places)


def _slices(exchanged: Outcome, partition: int) -> Iterator[tuple[int, int, int]]:
    """Each group with rows of a partition of the source, and where they begin and end in it."""
    if exchanged.figures.get(IN_ROW_ORDER):
        yield partition, 0, exchanged.ledger.part("rows", partition).shape[0]
        return
    counts = exchanged.ledger.read("counts").read()
    begins = counts[:, :partition].sum(axis=1)
    for group in np.flatnonzero(counts[:, partition]).tolist():
        yield group, int(begins[group]), int(begins[group] + counts[group, partition])


def gathered(ledger: StageLedger, name: str, groups: list[int]) -> AnyArray:
    """The parts that all groups have of an array, one after the other."""
    return np.concatenate([ledger.part(name, group).read() for group in groups])
