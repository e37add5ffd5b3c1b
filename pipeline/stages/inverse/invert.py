"""The data at every query, from the rows of its neighborhood; and how far rows are from what others make of them.

Weights are found from coordinates alone, for all queries of a group; rows are then read for as many consecutive queries
at once as need no more than a block of them. Queries come cell by cell, so those have most of their rows in common.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pipeline.numerics.inverse import MERGED, NOBODY, Kernel, Stencils, stencils
from pipeline.partitions import RowPartitions
from pipeline.stages.exchange import write_in_row_order
from pipeline.stages.inverse.gather import GatheredRows, RowsOfNodes
from pipeline.stages.inverse.index import Index
from pipeline.stages.inverse.search import MOST_ROWS_OF_NODE
from pipeline.stages.partition import EXCHANGE_BYTES
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Rows in double precision that are in memory at once, a few times over.
BLOCK_BYTES = 32 << 20


class Neighborhoods(NamedTuple):
    """Queries (q, d), the nodes (m,), rising, that any of them needs, with their coordinates (m, d), and the places
    (q, k) of those of each query."""

    queries: FloatArray
    nodes: IntArray
    coordinates: FloatArray
    places: IntArray


@dataclass(frozen=True)
class Invert(Stage):
    """Values of queries in the units of the data, with their distance to the nearest node, in the user's units and in
    fill distances, and flags."""

    index: Index
    queries: Outcome
    searched: Outcome
    gathered: Outcome
    n_source_partitions: int
    partitions: RowPartitions
    n_columns: int
    kernel: Kernel
    name = "invert"

    def settings(self) -> Json:
        kernel = {"kind": self.kernel.kind, "power": self.kernel.exponent, "scale": self.kernel.scale}
        return {"kernel": kernel, "rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        return [self.gathered.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.queries.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        hoods = self._neighborhoods(partition)
        found = stencils(hoods.queries, hoods.coordinates, hoods.places, self.kernel)
        values = np.empty((len(hoods.queries), self.n_columns))
        merged = np.zeros(len(hoods.queries), dtype=np.bool_)
        for block, rows, local in self._blocks(hoods):
            means, differ = rows.means()
            values[block] = replace(found, neighborhoods=local, weights=found.weights[block]).combine(means)
            merged[block] = differ[local].any(axis=1)
        nodes = {"values": values, **self._judged(found, merged)}
        names = write_in_row_order(ledger, partition, self.queries, self.partitions, nodes)
        return {"n_queries": len(values)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        ledger.write("counts", np.stack([ledger.part("counts", group).read() for group in sorted(figures)]))
        return {"n_queries": sum(entry["n_queries"] for entry in figures.values())}, ["counts"]

    def _neighborhoods(self, partition: int) -> Neighborhoods:
        near = self.searched.ledger.part("neighbors", partition).read().astype(np.int64)
        points = self.queries.ledger.part("points", partition).read()
        nodes, places = np.unique(near, return_inverse=True)
        if not len(nodes):
            return Neighborhoods(points, nodes, np.zeros((1, points.shape[1])), near)
        return Neighborhoods(points, nodes, self.index.opened().nodes(nodes)[0], places.reshape(near.shape))

    def _blocks(self, hoods: Neighborhoods) -> Iterator[tuple[slice, RowsOfNodes, IntArray]]:
        """Consecutive queries, all rows of the nodes that they need, and the places (b, k) of those of each."""
        gathered = GatheredRows(self.gathered, self.n_source_partitions)
        most_rows = BLOCK_BYTES // (8 * self.n_columns)
        for block in blocks_of(hoods.places, gathered.sizes(hoods.nodes), most_rows):
            needed, local = np.unique(hoods.places[block], return_inverse=True)
            yield block, gathered.of(hoods.nodes[needed]), local.reshape(hoods.places[block].shape)

    def _judged(self, found: Stencils, merged: BoolArray) -> dict[str, AnyArray]:
        return {
            "distance": np.ldexp(found.distance, self.index.exponent),
            "remoteness": found.remoteness,
            "flags": found.flags | np.where(merged, MERGED, 0).astype(np.uint8),
        }


@dataclass(frozen=True)
class LeaveOut(Invert):
    """How far each query's own row is from what the others make of it [M eq. 16], and as a share of the row's size.

    Of several rows in the same place, each is left out of their mean; one that is alone leaves its place.
    """

    name = "leave_out"

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        hoods = self._neighborhoods(partition)
        near, alone = self._others(hoods)
        found = stencils(hoods.queries, hoods.coordinates, near, self.kernel)
        rows, query_of = (self.queries.ledger.part(name, partition).read() for name in ("rows", "node_of"))
        errors, sizes = np.full((2, len(rows)), np.nan)
        merged = np.zeros(len(hoods.queries), dtype=np.bool_)
        for block, known, local in self._blocks(hoods):
            means, differ = known.means()
            listed = np.where(near[block] == NOBODY, NOBODY, local)
            predicted = replace(found, neighborhoods=listed, weights=found.weights[block]).combine(means)
            merged[block] = (differ[local] & (listed != NOBODY)).any(axis=1)
            mine = np.flatnonzero((query_of >= block.start) & (query_of < block.stop))
            own_weights = np.where(alone, 0.0, found.weights[:, 0])[query_of[mine]]
            places = query_of[mine] - block.start
            left_out = _without(known, means, rows[mine], local[places, 0], own_weights)
            errors[mine], sizes[mine] = left_out.measured(predicted[places])
        columns = {"error": errors, "relative_error": errors / np.where(sizes > 0, sizes, 1.0)}
        columns |= {name: column[query_of] for name, column in self._judged(found, merged).items()}
        return {"n_queries": len(rows)}, _write_rows(ledger, partition, rows, self.partitions, columns)

    def _others(self, hoods: Neighborhoods) -> tuple[IntArray, BoolArray]:
        """The places (q, k) of each query's neighbors without itself, and whether no other row is in its place.

        Its own node comes first, and stays where others are there too.
        """
        sizes = GatheredRows(self.gathered, self.n_source_partitions).sizes(hoods.nodes)
        near = hoods.places.copy()
        alone = sizes[near[:, 0]] == 1
        near[alone, 0] = NOBODY
        return near, alone


class _LeftOut(NamedTuple):
    """Rows (r, D), and what leaving them out of their node's mean adds to a prediction (r, D)."""

    rows: FloatArray
    shifts: FloatArray

    def measured(self, predicted: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Distances (r,) from what is predicted, and sizes (r,) of the rows."""
        missed = self.rows - (predicted + self.shifts)
        return np.sqrt((missed**2).sum(axis=1)), np.sqrt((self.rows**2).sum(axis=1))


def _without(
    known: RowsOfNodes, means: FloatArray, numbers: IntArray, places: IntArray, weights: FloatArray
) -> _LeftOut:
    """Rows by their numbers (r,), with the places (r,) of their nodes and the weights (r,) that those have."""
    sorter = np.argsort(known.rows)
    found = sorter[np.searchsorted(known.rows, numbers, sorter=sorter)]
    rows, counts = known.values[found], known.counts[places]
    # With m in the mean, it is off by 1 / (m - 1) of what the row is off it; rows beyond the first are in no mean.
    counted = (known.ranks[found] < MOST_ROWS_OF_NODE) & (counts > 1)
    factors = np.where(counted, weights / np.maximum(counts - 1, 1), 0.0)
    return _LeftOut(rows, factors[:, None] * (means[places] - rows))


def _write_rows(
    ledger: StageLedger, group: int, rows: IntArray, partitions: RowPartitions, columns: dict[str, AnyArray]
) -> list[str]:
    """Like `write_in_row_order`, of what differs between rows in the same place."""
    order = np.argsort(rows)
    bounds = np.arange(partitions.count + 1) * partitions.rows_each
    arrays = {"rows": rows[order], "counts": np.diff(np.searchsorted(rows[order], bounds))}
    arrays |= {name: column[order] for name, column in columns.items()}
    return ledger.write_parts(group, arrays, EXCHANGE_BYTES)


def blocks_of(places: IntArray, sizes: IntArray, most_rows: int) -> Iterator[slice]:
    """Consecutive queries, each with places (q, k) of nodes, whose nodes of `sizes` (m,) have at most so many rows
    together; or a single query."""
    n_queries, k = places.shape
    order = np.argsort(places, axis=None, kind="stable")
    nodes, queries = places.ravel()[order], order // k
    # The query before that needs the same node: if it is in the block, the node costs nothing more.
    before = np.full(places.shape, -1)
    before.ravel()[order[1:]] = np.where(nodes[1:] == nodes[:-1], queries[:-1], -1)
    first, n_rows = 0, 0
    for query in range(n_queries):
        n_more = int(sizes[places[query, before[query] < first]].sum())
        if query > first and n_rows + n_more > most_rows:
            yield slice(first, query)
            first, n_rows, n_more = query, 0, int(sizes[places[query]].sum())
        n_rows += n_more
    if n_queries:
        yield slice(first, n_queries)
