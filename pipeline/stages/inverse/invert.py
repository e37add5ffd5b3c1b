"""The data at every query, from the rows of its neighborhood; how far rows are from what others make of them; and what
is known of every query, published in the order in which they were given.

Weights are found from coordinates alone, for all queries of a group; rows are then read for as many consecutive queries
at once as need no more than a block of them. Queries come cell by cell, so those have most of their rows in common.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pipeline.numerics.inverse.interpolant import Stencils, stencils
from pipeline.numerics.inverse.neighborhood import NOBODY, Kernel
from pipeline.numerics.inverse.systems import (
    DROPPED,
    ILL_CONDITIONED,
    MERGED,
    NOT_UNISOLVENT,
    REGULARIZED,
    UNDEFINED,
)
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.exchange import (
    Column,
    PublishingStage,
    gather_rows,
    write_in_row_order,
    write_rows,
)
from pipeline.stages.inverse.neighborhoods import GatheredRows, Index, RowsOfNodes
from pipeline.stages.stage import Outcome, Stage, total
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
    version = 3
    reads = ("gathered",)

    def settings(self) -> Json:
        kernel = {"kind": self.kernel.kind, "power": self.kernel.exponent, "scale": self.kernel.scale}
        return {"kernel": kernel, "rows_each": self.partitions.rows_each}

    def n_partitions(self) -> int:
        return len(self.queries.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        hoods = self._neighborhoods(partition)
        found = stencils(hoods.queries, hoods.coordinates, hoods.places, self.kernel)
        values = np.empty((len(hoods.queries), self.n_columns))
        merged = np.zeros(len(hoods.queries), dtype=np.bool_)
        for block, rows, local in self._blocks(hoods, GatheredRows(self.gathered, self.n_source_partitions)):
            means, differ = rows.means()
            values[block] = replace(found, neighborhoods=local, weights=found.weights[block]).combine(means)
            merged[block] = differ[local].any(axis=1)
        nodes = {"values": values, **self._judged(found, merged)}
        names = write_in_row_order(ledger, partition, self.queries, self.partitions, nodes)
        return {"n_queries": len(values)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        ledger.write("counts", np.stack([ledger.part("counts", group).read() for group in sorted(figures)]))
        return {"n_queries": total(figures, "n_queries")}, ["counts"]

    def _neighborhoods(self, partition: int) -> Neighborhoods:
        near = self.searched.ledger.part("neighbors", partition).read().astype(np.int64)
        points = self.queries.ledger.part("points", partition).read()
        nodes, places = np.unique(near, return_inverse=True)
        if not len(nodes):
            return Neighborhoods(points, nodes, np.zeros((1, points.shape[1])), near)
        return Neighborhoods(points, nodes, self.index.opened().nodes(nodes)[0], places.reshape(near.shape))

    @property
    def _most_rows(self) -> int:
        """Rows of the data that are in memory at once."""
        return max(1, BLOCK_BYTES // (8 * self.n_columns))

    def _blocks(self, hoods: Neighborhoods, gathered: GatheredRows) -> Iterator[tuple[slice, RowsOfNodes, IntArray]]:
        """Consecutive queries, the rows of the nodes that they need, and the places (b, k) of those of each."""
        for block in blocks_of(hoods.places, gathered.sizes(hoods.nodes), self._most_rows):
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
        hoods, gathered = self._neighborhoods(partition), GatheredRows(self.gathered, self.n_source_partitions)
        # A query's own node comes first, and stays where other rows are there too.
        near = hoods.places.copy()
        alone = gathered.sizes(hoods.nodes)[near[:, 0]] == 1
        near[alone, 0] = NOBODY
        found = stencils(hoods.queries, hoods.coordinates, near, self.kernel)
        own = _OwnRows(*(self.queries.ledger.part(name, partition).read() for name in ("rows", "node_of")))
        own_weights = np.where(alone, 0.0, found.weights[:, 0])
        merged = np.zeros(len(hoods.queries), dtype=np.bool_)
        for block, known, local in self._blocks(hoods, gathered):
            means, differ = known.means()
            listed = np.where(near[block] == NOBODY, NOBODY, local)
            predicted = replace(found, neighborhoods=listed, weights=found.weights[block]).combine(means)
            merged[block] = (differ[local] & (listed != NOBODY)).any(axis=1)
            late = own.measure(block, known, means, local[:, 0], own_weights[block], predicted)
            for query in late.tolist():
                node = int(hoods.nodes[hoods.places[query, 0]])
                for numbers, values in gathered.beyond(node, self._most_rows):
                    own.measure_beyond(numbers, values, predicted[query - block.start])
        columns = {"error": own.errors, "relative_error": own.errors / np.where(own.sizes > 0, own.sizes, 1.0)}
        columns |= {name: column[own.query_of] for name, column in self._judged(found, merged).items()}
        return {"n_queries": len(own.rows)}, write_rows(ledger, partition, own.rows, self.partitions, columns)


class _OwnRows:
    """Numbers (r,) of rows that are left out, and the queries (r,) that they are at; of each its size, and how far it
    is from what the others predict."""

    def __init__(self, rows: IntArray, query_of: IntArray) -> None:
        self.rows, self.query_of = rows, query_of
        self.errors, self.sizes = np.full((2, len(rows)), np.nan)
        self._sorter = np.argsort(rows)

    def measure(
        self,
        block: slice,
        known: RowsOfNodes,
        means: FloatArray,
        own_places: IntArray,
        weights: FloatArray,
        predicted: FloatArray,
    ) -> IntArray:
        """Of the queries of a block measure the rows that are known; the queries, rising, that have others beside.

        own_places (b,) are those of the queries' own nodes, weights (b,) what these have in the predictions (b, D).
        """
        mine = np.flatnonzero((self.query_of >= block.start) & (self.query_of < block.stop))
        found = known.find(self.rows[mine])
        late, mine, found = mine[found < 0], mine[found >= 0], found[found >= 0]
        queries = self.query_of[mine] - block.start
        places, rows = own_places[queries], known.values[found]
        # With m in the mean, it is off by 1 / (m - 1) of what the row is off it.
        factors = weights[queries] / np.maximum(known.counts[places] - 1, 1)
        shifts = np.where(known.counts[places] > 1, factors, 0.0)[:, None] * (means[places] - rows)
        self._keep(mine, rows, predicted[queries] + shifts)
        return np.unique(self.query_of[late])

    def measure_beyond(self, numbers: IntArray, values: FloatArray, predicted: FloatArray) -> None:
        """Rows (p, D) by their numbers (p,), which are in no mean and so change nothing of the prediction (D,)."""
        self._keep(self._sorter[np.searchsorted(self.rows, numbers, sorter=self._sorter)], values, predicted)

    def _keep(self, which: IntArray, rows: FloatArray, predicted: FloatArray) -> None:
        self.errors[which] = np.sqrt(((rows - predicted) ** 2).sum(axis=1))
        self.sizes[which] = np.sqrt((rows**2).sum(axis=1))


def blocks_of(places: IntArray, sizes: IntArray, most_rows: int) -> Iterator[slice]:
    """Consecutive queries, whose nodes of `sizes` (m,) at `places` (q, k) have at most so many rows; or one query."""
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


FLAGS = {
    "merged": MERGED,
    "not_unisolvent": NOT_UNISOLVENT,
    "ill_conditioned": ILL_CONDITIONED,
    "regularized": REGULARIZED,
    "dropped": DROPPED,
    "undefined": UNDEFINED,
}
ERRORS = ("error", "relative_error")


JUDGED = {"distance": Column(), "remoteness": Column(), "flags": Column(np.uint8, UNDEFINED)}
OUTSIDE = "outside"


@dataclass(frozen=True)
class PublishInverted(PublishingStage):
    """Arrays `values` with so many columns, or without any the errors of rows left out; those of `JUDGED`; and whether
    a query is outside: farther than so many fill distances from every embedded point.

    Queries that were not answered are undefined; rows that were not to be left out have no flag.
    """

    inverted: Outcome
    partitions: RowPartitions
    n_columns: int | None
    outside: float
    name = "publish"
    version = 2
    depends_on = ("outside",)
    reads = ("inverted",)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        found = {name: column.unanswered(len(rows)) for name, column in self._gathered.items()}
        gather_rows(self.inverted, self.partitions, partition, found)
        found[OUTSIDE] = found["remoteness"] > self.outside
        self.publish(ledger, rows, found)
        figures: Json = {"n_outside": int(found[OUTSIDE].sum())}
        figures |= {name: int(np.count_nonzero(found["flags"] & flag)) for name, flag in FLAGS.items()}
        return figures | {name: _grain_sums(found[name]) for name in ERRORS if name in found}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        entries = [figures[partition] for partition in sorted(figures)]
        flags = {name: total(figures, name) for name in FLAGS}
        report: Json = {"n_rows": self.partitions.n_rows, "n_outside": total(figures, "n_outside")}
        for name in ERRORS:
            if name in self._gathered:
                sums = np.array([grain for entry in entries for grain in entry[name]])
                report |= _mean(name, sums)
        return {**report, "flags": flags}, list(self.published)

    @property
    def published(self) -> dict[str, Column]:
        return {**self._gathered, OUTSIDE: Column(np.bool_, 0)}

    @property
    def _gathered(self) -> dict[str, Column]:
        if self.n_columns is not None:
            return {"values": Column(shape=(self.n_columns,)), **JUDGED}
        return {**dict.fromkeys(ERRORS, Column()), **JUDGED, "flags": Column(np.uint8, 0)}


def _grain_sums(values: FloatArray) -> list[list[float]]:
    """Sum and number of the finite ones among each grain of rows, so that means do not depend on the partitions."""
    grains = (values[start : start + GRAIN_ROWS] for start in range(0, len(values), GRAIN_ROWS))
    known = [grain[np.isfinite(grain)] for grain in grains]
    return [[float(grain.sum()), float(len(grain))] for grain in known]


def _mean(name: str, sums: FloatArray) -> Json:
    total, count = 0.0, 0
    for grain_sum, grain_count in sums.tolist():
        total, count = total + grain_sum, count + int(grain_count)
    return {f"mean_{name}": total / count if count else None, "n_left_out": count}
