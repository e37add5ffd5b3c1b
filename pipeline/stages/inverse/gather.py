"""The rows of the data that any query needs, copied next to each other by node.

Near points of an embedding may stand anywhere in the source. Every partition of it is read once, and of it only the
runs of rows that are needed; they are written in the order of the nodes, so that those of near queries are together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipeline.partitions import RowPartitions
from pipeline.sources import Source
from pipeline.sources.single_rows import take_rows
from pipeline.stages.inverse.search import MOST_ROWS_OF_NODE, ranks_within
from pipeline.stages.partition import EXCHANGE_BYTES
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import BoolArray, FloatArray, IntArray, Json


@dataclass(frozen=True)
class Gather(Stage):
    """Values, numbers and nodes of the rows of each partition of the source that are needed."""

    source: Source
    content: str
    partitions: RowPartitions
    searched: Outcome
    name = "gather"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        return [self.content, self.searched.ledger.digest]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        begin, end = self.searched.ledger.read("bounds").read(partition, partition + 2).tolist()
        rows, nodes = (self.searched.ledger.read(name).read(begin, end) for name in ("rows", "nodes"))
        order = np.argsort(nodes, kind="stable")
        arrays = {"rows": rows[order], "nodes": nodes[order], "values": take_rows(self.source, rows)[order]}
        return {"n_rows": len(rows)}, ledger.write_parts(partition, arrays, EXCHANGE_BYTES)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"n_rows": sum(entry["n_rows"] for entry in figures.values())}, []


class RowsOfNodes(NamedTuple):
    """Rows of some nodes: places (r,) of the nodes, numbers (r,) of the rows and values (r, D), by node and row; ranks
    (r,) of the rows within their nodes."""

    places: IntArray
    rows: IntArray
    values: FloatArray
    ranks: IntArray

    @property
    def counts(self) -> IntArray:
        """How many rows each node stands for in its mean."""
        return np.asarray(np.bincount(self.places[self.ranks < MOST_ROWS_OF_NODE]))

    def means(self) -> tuple[FloatArray, BoolArray]:
        """The mean row of each node, and whether it is one of rows that differ."""
        firsts = np.flatnonzero(self.ranks == 0)
        means, differ = self.values[firsts], np.zeros(len(firsts), dtype=np.bool_)
        others = np.flatnonzero((self.ranks > 0) & (self.ranks < MOST_ROWS_OF_NODE))
        places, values = self.places[others], self.values[others]
        np.logical_or.at(differ, places, (values != self.values[firsts[places]]).any(axis=1))
        # One row after the other: in any other order sums have other bytes.
        np.add.at(means, places, values)
        several = np.unique(places)
        means[several] /= self.counts[several, None]
        # The mean of rows alike is the row, to the last bit.
        alike = several[~differ[several]]
        means[alike] = self.values[firsts[alike]]
        return means, differ


class GatheredRows:
    """What a `Gather` stage wrote, by nodes."""

    def __init__(self, gathered: Outcome, n_partitions: int) -> None:
        self._ledger, self._partitions = gathered.ledger, range(n_partitions)

    def sizes(self, nodes: IntArray) -> IntArray:
        """How many rows of each of some nodes, rising, there are."""
        sizes = np.zeros(len(nodes), dtype=np.int64)
        for _, begins, ends in self._slices(nodes):
            sizes += ends - begins
        return sizes

    def of(self, nodes: IntArray) -> RowsOfNodes:
        """All rows of some nodes, rising, in double precision."""
        places, rows, values = [], [], []
        for partition, begins, ends in self._slices(nodes):
            wanted = _ranges(begins, ends)
            if len(wanted):
                places.append(np.repeat(np.arange(len(nodes)), ends - begins))
                rows.append(self._ledger.part("rows", partition).take(wanted))
                values.append(self._ledger.part("values", partition).take(wanted).astype(np.float64))
        order = np.argsort(np.concatenate(places), kind="stable")
        place = np.concatenate(places)[order]
        return RowsOfNodes(place, np.concatenate(rows)[order], np.concatenate(values)[order], ranks_within(place))

    def _slices(self, nodes: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Of each partition with rows, where those of each node begin and end."""
        for partition in self._partitions:
            known = self._nodes[partition]
            if len(known):
                yield partition, np.searchsorted(known, nodes), np.searchsorted(known, nodes, side="right")

    @cached_property
    def _nodes(self) -> list[IntArray]:
        return [self._ledger.part("nodes", partition).read() for partition in self._partitions]


def _ranges(begins: IntArray, ends: IntArray) -> IntArray:
    """All numbers from each begin up to each end."""
    sizes = ends - begins
    starts = np.cumsum(sizes) - sizes
    return np.asarray(np.repeat(begins - starts, sizes) + np.arange(int(sizes.sum())))
