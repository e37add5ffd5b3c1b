"""What an inversion reads: the embedded points of a run, points that ask for their data, and the data, if unchanged."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.landmarks.sampling import row_hashes
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.sources import Source
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.stage import Outcome, Result, SingleStage, Stage, total
from pipeline.stages.validate import (
    ReplayedSource,
    Scan,
    Validate,
    digest_of_rows,
    fingerprint_of,
    usable_rows,
    write_ids,
)
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json


class StoredSource:
    """An array that a stage wrote, as a source: `limit` and `seed` make all rows NaN but those of low hashes."""

    has_ids = False

    def __init__(self, ledger: StageLedger, array: str, limit: int | None = None, seed: int = 0) -> None:
        rows = ledger.read(array)
        self.name = f"{ledger.store}/{rows.path}"
        self.shape, self.dtype = (rows.shape[0], rows.shape[1]), rows.dtype
        self.column_names = [str(column) for column in range(rows.shape[1])]
        self._ledger, self._array, self._limit, self._seed = ledger, array, limit, seed

    def read(self, start: int, stop: int) -> AnyArray:
        rows = self._ledger.read(self._array).read(start, stop)
        if self._limit is None:
            return rows
        drawn = row_hashes(np.arange(start, stop), self._seed) <= np.uint64(self._limit)
        return np.where(drawn[:, None], rows, np.nan)

    def drawn(self, limit: int, seed: int) -> "StoredSource":
        """The same without rows of higher hashes than the limit."""
        return StoredSource(self._ledger, self._array, limit, seed)

    def ids(self, start: int, stop: int) -> AnyArray:
        raise InvalidInputError(f"{self.name} has no ids; rows {start} to {stop} go by their numbers.")

    def fingerprint(self) -> Json:
        drawn = {} if self._limit is None else {"limit": self._limit, "seed": self._seed}
        return {"kind": "stored", "path": f"{self._ledger.path}/{self._array}", **drawn}


@dataclass(frozen=True)
class ScanPoints(Validate):
    """All embedded points; rows that take no part in the embedding are NaN."""

    name = "points"

    def _refuse_content(self, ranges: FloatArray, largest: float, n_usable: int) -> None:
        """Points may all be in one place: that is for whoever embedded them."""


@dataclass(frozen=True)
class PointStage(SingleStage):
    """A stage that draws some of the embedded points."""

    source: Source
    scanned: Outcome
    partitions: RowPartitions
    seed: int

    def inputs(self) -> list[str]:
        return [str(self.scanned.figures["content"])]

    def drawn(self, n_wanted: int) -> tuple[IntArray, AnyArray]:
        """Numbers (r,), rising, and coordinates (r, d) of the points with the lowest hashes, however they are cut."""
        rows, points = np.empty(0, np.int64), np.empty((0, self.source.shape[1]), self.source.dtype)
        for partition in range(self.partitions.count):
            part = self.partitions.rows(partition)
            block = self.source.read(part.start, part.stop)
            usable = np.flatnonzero(usable_rows(block))
            rows, points = np.concatenate([rows, usable + part.start]), np.concatenate([points, block[usable]])
            lowest = np.sort(np.argsort(row_hashes(rows, self.seed))[:n_wanted])
            rows, points = rows[lowest], points[lowest]
        return rows, points


@dataclass(frozen=True)
class DrawPoints(PointStage):
    """How high a hash may be for so many embedded points to have lower ones or the same: they are the sample."""

    n_wanted: int
    name = "sample"
    depends_on = ("n_wanted", "seed")

    def result(self) -> Result:
        rows, _ = self.drawn(self.n_wanted)
        return {"n_drawn": len(rows), "limit": int(row_hashes(rows, self.seed).max(initial=0))}, {}


@dataclass(frozen=True)
class ScanQueries(Scan):
    """Points that ask for their data: counted, their content named, their ids kept. Any may be missing or NaN."""

    source: Source
    partitions: RowPartitions

    def settings(self) -> Json:
        return {**super().settings(), "queries": True}

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        block = self.source.read(rows.start, rows.stop)
        digests = [digest_of_rows(block[start : start + GRAIN_ROWS]) for start in range(0, len(block), GRAIN_ROWS)]
        names = write_ids(ledger, partition, self.source, rows)
        return {"digests": digests, "n_usable": int(np.count_nonzero(usable_rows(block)))}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report = self.content(figures, self.source.shape, self.source.dtype.str)
        return {**report, "n_rows": self.source.shape[0], "n_usable": total(figures, "n_usable")}, []


@dataclass(frozen=True)
class ScaledQueries(ReplayedSource):
    """Queries in the units of the index; those whose distances cannot be squared read as NaN."""

    def read(self, start: int, stop: int) -> AnyArray:
        with np.errstate(over="ignore"):
            rows = super().read(start, stop)
        return np.where((np.abs(rows) <= checks.LARGEST_SIZE).all(axis=1, keepdims=True), rows, np.nan)


# Points that a way along the data may pass through, and how many neighbors each is joined to at first.
MOST_POINTS, FEWEST_NEIGHBORS = 4000, 10


@dataclass(frozen=True)
class Path(PointStage):
    """Positions (steps, d) from the point of one row to that of another, both embedded: in a straight line, or along
    the data, which is the shortest way between neighbors among some embedded points."""

    rows: tuple[int, int]
    steps: int
    along: str
    name = "path"
    depends_on = ("rows", "steps", "along", "seed")

    def result(self) -> Result:
        ends = np.concatenate([self.source.read(row, row + 1) for row in self.rows])
        corners = ends if self.along == "straight" else self._along_the_data(ends)
        figures = {"length": float(_lengths(corners).sum()), "n_corners": len(corners)}
        return figures, {"positions": resampled(corners, self.steps)}

    def _along_the_data(self, ends: FloatArray) -> FloatArray:
        _, points = self.drawn(MOST_POINTS)
        # Once each: points in one place would have nobody but each other for neighbors.
        distinct = np.unique(np.concatenate([ends, points]), axis=0)
        first, last = (int(np.flatnonzero((distinct == end).all(axis=1))[0]) for end in ends)
        return np.asarray(distinct[shortest_way(distinct, first, last)])


def shortest_way(points: FloatArray, first: int, last: int) -> IntArray:
    """The points that the shortest way between two passes, both included: each step to one of the nearest.

    Where those do not lead there, twice as many count as near, until they do.
    """
    k = FEWEST_NEIGHBORS
    while first != last:
        apart, near = neighbors_within(points, min(k, len(points) - 1))
        begins = np.repeat(np.arange(len(points)), near.shape[1])
        graph = scipy.sparse.coo_array((apart.ravel(), (begins, near.ravel())), shape=(len(points),) * 2).tocsr()
        lengths, before = scipy.sparse.csgraph.dijkstra(
            graph, directed=False, indices=[first], return_predecessors=True
        )
        if np.isfinite(lengths[0, last]):
            way = [last]
            while way[-1] != first:
                way.append(int(before[0, way[-1]]))
            return np.array(way[::-1])
        k *= 2
    return np.array([first])


def resampled(corners: FloatArray, steps: int) -> FloatArray:
    """Positions (steps, d) in equal steps along straight lines between corners (c, d), the ends exactly."""
    along = np.concatenate([[0.0], np.cumsum(_lengths(corners))])
    wanted = along[-1] * np.linspace(0.0, 1.0, steps)
    return np.column_stack([np.interp(wanted, along, column) for column in corners.T])


def _lengths(corners: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt((np.diff(corners, axis=0) ** 2).sum(axis=1)))


@dataclass(frozen=True)
class CheckUnchanged(Stage):
    """A scan that refuses rows which are not those that were fitted, grain by grain, as the fit cut them."""

    source: Source
    fitted: Outcome
    name = "check"

    def inputs(self) -> list[str]:
        return [fingerprint_of(self.source), self.fitted.ledger.digest]

    @cached_property
    def _fitted(self) -> dict[int, Json]:
        return self.fitted.ledger.committed()

    @property
    def _partitions(self) -> RowPartitions:
        return RowPartitions(self.source.shape[0], int(self.fitted.figures["rows_each"]) // GRAIN_ROWS)

    def n_partitions(self) -> int:
        return self._partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        for rows, digest in zip(self._partitions.grains(partition), self._fitted[partition]["digests"], strict=True):
            if digest_of_rows(self.source.read(rows.start, rows.stop)) != digest:
                raise InvalidInputError(
                    f"the data of the run has changed: rows {rows.start} to {rows.stop} of {self.source.name} are not "
                    "those that were fitted; put them back, or name the place they were moved to as source."
                )
        return {}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"n_rows": self.source.shape[0]}, []
