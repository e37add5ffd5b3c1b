"""The rows of the data that any query needs, copied next to each other by node.

Near points of an embedding may stand anywhere in the source. Every partition of it is read once, and of it only the
runs of rows that are needed; they are written in the order of the nodes, so that those of near queries are together.
Rows that no mean needs, but that are left out themselves, are kept apart: a million of them in one place are read for
that place alone, and not for every query near it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipeline.numerics.inverse_places import mean_rows
from pipeline.partitions import RowPartitions
from pipeline.sources import Source
from pipeline.sources.single_rows import take_rows
from pipeline.stages.partition import EXCHANGE_BYTES
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import BoolArray, FloatArray, IntArray, Json

# Before the names of arrays.
BEYOND = "beyond_"


@dataclass(frozen=True)
class Gather(Stage):
    """Values, numbers and nodes of the rows of each partition of the source that are needed; under names of their own,
    of those beyond the ones that make the mean of their node."""

    source: Source
    content: str
    partitions: RowPartitions
    searched: Outcome
    name = "gather"
    version = 2

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        return [self.content, self.searched.ledger.digest]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        begin, end = self.searched.ledger.read("bounds").read(partition, partition + 2).tolist()
        listed = {name: self.searched.ledger.read(name).read(begin, end) for name in ("rows", "nodes", "beyond")}
        beyond = listed.pop("beyond")
        columns = {**listed, "values": take_rows(self.source, listed["rows"])}
        names = []
        for prefix, chosen in (("", ~beyond), (BEYOND, beyond)):
            order = np.flatnonzero(chosen)
            order = order[np.argsort(listed["nodes"][order], kind="stable")]
            arrays = {prefix + name: column[order] for name, column in columns.items()}
            names += ledger.write_parts(partition, arrays, EXCHANGE_BYTES)
        return {"n_rows": len(beyond)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"n_rows": sum(entry["n_rows"] for entry in figures.values())}, []


class RowsOfNodes(NamedTuple):
    """Rows that make the means of some nodes: places (r,) of the nodes, numbers (r,) of the rows and values (r, D), by
    node and row."""

    places: IntArray
    rows: IntArray
    values: FloatArray

    @property
    def counts(self) -> IntArray:
        """How many rows each node stands for in its mean."""
        return np.asarray(np.bincount(self.places))

    def find(self, numbers: IntArray) -> IntArray:
        """Where rows (p,) are by their numbers, -1 for those that are beyond the ones of a mean."""
        sorter = np.argsort(self.rows)
        found = sorter[np.minimum(np.searchsorted(self.rows, numbers, sorter=sorter), len(sorter) - 1)]
        return np.where(self.rows[found] == numbers, found, -1)

    def means(self) -> tuple[FloatArray, BoolArray]:
        """The mean row of each node, and whether it is one of rows that differ."""
        return mean_rows(self.values, self.places)


class GatheredRows:
    """What a `Gather` stage wrote, by nodes."""

    def __init__(self, gathered: Outcome, n_partitions: int) -> None:
        self._ledger, self._partitions = gathered.ledger, range(n_partitions)

    def sizes(self, nodes: IntArray) -> IntArray:
        """How many rows make the mean of each of some nodes, rising."""
        sizes = np.zeros(len(nodes), dtype=np.int64)
        for _, begins, ends in self._slices(nodes):
            sizes += ends - begins
        return sizes

    def of(self, nodes: IntArray) -> RowsOfNodes:
        """The rows that make the means of some nodes, rising, in double precision."""
        places, rows, values = [], [], []
        for partition, begins, ends in self._slices(nodes):
            wanted = _ranges(begins, ends)
            if len(wanted):
                places.append(np.repeat(np.arange(len(nodes)), ends - begins))
                rows.append(self._ledger.part("rows", partition).take(wanted))
                values.append(self._ledger.part("values", partition).take(wanted).astype(np.float64))
        order = np.argsort(np.concatenate(places), kind="stable")
        place = np.concatenate(places)[order]
        return RowsOfNodes(place, np.concatenate(rows)[order], np.concatenate(values)[order])

    def beyond(self, node: int, most_rows: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """Numbers (p,) and values (p, D) of a node's other rows that are left out, at most so many at a time."""
        for partition in self._partitions:
            begin, end = np.searchsorted(self._nodes_beyond[partition], [node, node + 1]).tolist()
            for first in range(begin, end, most_rows):
                last = min(first + most_rows, end)
                rows, values = (self._ledger.part(BEYOND + name, partition) for name in ("rows", "values"))
                yield rows.read(first, last), values.read(first, last).astype(np.float64)

    def _slices(self, nodes: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Of each partition with rows, where those of each node begin and end."""
        for partition in self._partitions:
            known = self._nodes[partition]
            if len(known):
                yield partition, np.searchsorted(known, nodes), np.searchsorted(known, nodes, side="right")

    @cached_property
    def _nodes(self) -> list[IntArray]:
        return [self._ledger.part("nodes", partition).read() for partition in self._partitions]

    @cached_property
    def _nodes_beyond(self) -> list[IntArray]:
        return [self._ledger.part(BEYOND + "nodes", partition).read() for partition in self._partitions]


def _ranges(begins: IntArray, ends: IntArray) -> IntArray:
    """All numbers from each begin up to each end."""
    sizes = ends - begins
    starts = np.cumsum(sizes) - sizes
    return np.asarray(np.repeat(begins - starts, sizes) + np.arange(int(sizes.sum())))
