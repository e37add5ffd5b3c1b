"""The data at every query, from the rows of its neighborhood; how far rows are from what others make of them; and what
is known of every query, published in the order in which they were given.

Weights are found from coordinates alone, for all queries of a group; rows are then read for as many consecutive queries
at once as need no more than a block of them. Queries come cell by cell, so those have most of their rows in common.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.numerics.inverse.interpolant import Inverted, Stencils, stencils
from pipeline.numerics.inverse.neighborhood import NOBODY, Kernel
from pipeline.numerics.inverse.systems import FLAGS, UNDEFINED
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.exchange import (
    Column,
    PublishingStage,
    gather_rows,
    write_in_row_order,
    write_rows,
)
from pipeline.stages.inverse.neighborhoods import GatheredRows, Index, RowsOfNodes
from pipeline.stages.stage import GroupStage, Outcome, total
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

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
class Invert(GroupStage):
    """Values of queries in the units of the data, with their distance to the nearest node, in the user's units and in
    fill distances, and flags."""

    index: Index
    ordered: Outcome
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

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        hoods, gathered = self._opened(partition)
        found = stencils(hoods.queries, hoods.coordinates, hoods.places, self.kernel)
        values = np.empty((len(hoods.queries), self.n_columns))
        for block, _, made in self._inverted(hoods, found, gathered):
            values[block], found.flags[block] = made.values, made.stencils.flags
        nodes = {"values": values, **self._judged(found)}
        names = write_in_row_order(ledger, partition, self.ordered, self.partitions, nodes)
        return {"n_queries": len(values)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        ledger.write("counts", np.stack([ledger.part("counts", group).read() for group in sorted(figures)]))
        return {"n_queries": total(figures, "n_queries")}, ["counts"]

    def _opened(self, partition: int) -> tuple[Neighborhoods, GatheredRows]:
        gathered = GatheredRows(self.gathered, self.n_source_partitions)
        near = self.searched.ledger.part("neighbors", partition).read().astype(np.int64)
        points = self.ordered.ledger.part("points", partition).read()
        nodes, places = np.unique(near, return_inverse=True)
        coordinates = self.index.opened().nodes(nodes)[0] if len(nodes) else np.zeros((1, points.shape[1]))
        return Neighborhoods(points, nodes, coordinates, places.reshape(near.shape)), gathered

    @property
    def _most_rows(self) -> int:
        """Rows of the data that are in memory at once."""
        return max(1, BLOCK_BYTES // (8 * self.n_columns))

    def _inverted(
        self, hoods: Neighborhoods, found: Stencils, gathered: GatheredRows
    ) -> Iterator[tuple[slice, RowsOfNodes, Inverted]]:
        """Consecutive queries, the rows that their nodes stand for, and what is made of them."""
        for block in blocks_of(hoods.places, gathered.sizes(hoods.nodes), self._most_rows):
            needed = np.unique(hoods.places[block])
            rows, near = gathered.of(hoods.nodes[needed]), found.neighborhoods[block]
            local = np.where(near == NOBODY, NOBODY, np.searchsorted(needed, near))
            yield block, rows, found.of_some(block, local).of_means(rows.means, rows.differ)

    def _judged(self, found: Stencils) -> dict[str, AnyArray]:
        distance = np.ldexp(found.distance, self.index.exponent)
        return {"distance": distance, "remoteness": found.remoteness, "flags": found.flags}


@dataclass(frozen=True)
class LeaveOut(Invert):
    """How far each query's own row is from what the others make of it [M eq. 16], and as a share of the row's size.

    Of several rows in the same place, each is left out of their mean; one that is alone leaves its place.
    """

    name = "leave_out"

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        hoods, gathered = self._opened(partition)
        # A query's own node comes first, and stays where other rows are there too.
        near, sizes = hoods.places.copy(), gathered.sizes(hoods.nodes)[hoods.places[:, 0]]
        near[sizes == 1, 0] = NOBODY
        found = stencils(hoods.queries, hoods.coordinates, near, self.kernel)
        own = _OwnRows(*(self.ordered.ledger.part(name, partition).read() for name in ("rows", "node_of")))
        # With m in the mean, it is off by 1 / (m - 1) of what the row is off it.
        weights = found.weights[:, 0] / np.maximum(sizes - 1, 1)
        for block, known, made in self._inverted(hoods, found, gathered):
            found.flags[block] = made.stencils.flags
            for query in own.measure(block, known, made.values, weights).tolist():
                node = int(hoods.nodes[hoods.places[query, 0]])
                for rows, values in gathered.beyond(node, self._most_rows):
                    own.measure_beyond(rows, values, made.values[query - block.start])
        columns = {"error": own.errors, "relative_error": own.errors / np.where(own.sizes > 0, own.sizes, 1.0)}
        columns |= {name: column[own.query_of] for name, column in self._judged(found).items()}
        return {"n_queries": len(own.rows)}, write_rows(ledger, partition, own.rows, self.partitions, columns)


class _OwnRows:
    """Numbers (r,) of rows that are left out, and the queries (r,) that they are at; of each its size, and how far it
    is from what the others predict."""

    def __init__(self, rows: IntArray, query_of: IntArray) -> None:
        self.rows, self.query_of = rows, query_of
        self.errors, self.sizes = np.full((2, len(rows)), np.nan)

    def measure(self, block: slice, known: RowsOfNodes, predicted: FloatArray, weights: FloatArray) -> IntArray:
        """Of the queries of a block measure the rows that are known; the queries, rising, that have others beside.

        weights (q,) say how far a prediction (b, D) moves if a row is left out of its mean.
        """
        mine = np.flatnonzero((self.query_of >= block.start) & (self.query_of < block.stop))
        _, places, found = np.intersect1d(known.rows, self.rows[mine], assume_unique=True, return_indices=True)
        queries, rows = self.query_of[mine[found]], known.values[places]
        means = known.means[known.places[places]]
        self._keep(mine[found], rows, predicted[queries - block.start] + weights[queries, None] * (means - rows))
        return np.unique(self.query_of[np.delete(mine, found)])

    def measure_beyond(self, numbers: IntArray, values: FloatArray, predicted: FloatArray) -> None:
        """Rows (p, D) by their numbers (p,), which are in no mean and so change nothing of the prediction (D,)."""
        _, places, found = np.intersect1d(numbers, self.rows, assume_unique=True, return_indices=True)
        self._keep(found, values[places], predicted)

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
