"""The source as a run reads it: validated by one scan, before anything expensive, then in the run's units and axes.

The scan finds whether entries are finite, the largest, the digest of each grain of rows, and the mean, spread and range
of each column, which is all that standardizing needs. The id column, if there is one, is copied into the run, so that
results can be exported with it when the source is gone. Principal axes take a second scan. Sums are kept by blocks of a
fixed size, so that none depends on the size of the partitions.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.methods import DIRECTIONAL
from pipeline.numerics import checks
from pipeline.numerics.directions import have_directions, refuse_undirected, require_directions
from pipeline.numerics.preprocessing import (
    Preprocessing,
    column_moments,
    column_ranges,
    merged_moments,
    principal_axes,
    scatter_matrix,
)
from pipeline.sources import Source
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.stage import Cost, Outcome, RowStage, Shape, Stage, written
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, Json

LISTED_ROWS = 5
# Whole numbers up to here are doubles to the last digit.
LARGEST_EXACT = 2**53

Missing = Literal["error", "drop"]


class Fingerprinted(Protocol):
    """What a scan needs of any source."""

    def fingerprint(self) -> Json: ...


def fingerprint_of(source: Fingerprinted) -> str:
    """What names a source before all of it is read."""
    return repr(sorted(source.fingerprint().items()))


class Scan(RowStage):
    """A scan of a source, named by its fingerprint, which is cheap; what follows is named by the content's digest."""

    source: Fingerprinted
    name = "validate"

    def inputs(self) -> list[str]:
        return [self._fingerprint]

    @cached_property
    def _fingerprint(self) -> str:
        # Once: of an array it takes a pass over the data.
        return fingerprint_of(self.source)

    def content(self, figures: dict[int, Json], *about: object) -> Json:
        """The digest of the content, by those of all grains and what is known `about` it, and how it was cut."""
        digests = [digest for partition in sorted(figures) for digest in figures[partition]["digests"]]
        digest = hashlib.sha256(repr((*about, digests)).encode()).hexdigest()
        return {"content": digest, "rows_each": self.partitions.rows_each}

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(
            memory=3 * shape.partition_bytes + 24 * GRAIN_ROWS * shape.n_columns,
            seconds=0.1 + 6e-9 * shape.source,
            disk=32 * shape.n_columns * (shape.n_rows // GRAIN_ROWS + 1),
            tasks=shape.n_partitions,
        )


@dataclass(frozen=True)
class Validate(Scan):
    """With `missing` "drop", rows with NaN or infinite entries stay in the row count but take no part in anything.

    metric: what all other rows must be defined for, where they are measured as they are.
    """

    source: Source
    partitions: RowPartitions
    missing: Missing = "error"
    metric: str = "euclidean"
    depends_on = ("missing",)

    def settings(self) -> Json:
        return {**super().settings(), **named_if_directional(self.metric)}

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        block = self.source.read(rows.start, rows.stop)
        usable, grains = usable_rows(block), _grains(len(block))
        sizes = (np.abs(block[grain][usable[grain]].astype(np.float64)) for grain in grains)
        figures = {
            "digests": [digest_of_rows(block[grain]) for grain in grains],
            "largest": max(float(size.max(initial=0.0)) for size in sizes),
            "bad_entries": 0 if usable.all() else int(np.count_nonzero(~np.isfinite(block))),
            "n_bad_rows": int(np.count_nonzero(~usable)),
            "bad_rows": (np.flatnonzero(~usable)[:LISTED_ROWS] + rows.start).tolist(),
            **self._undirected(block, usable, rows),
        }
        arrays = write_ids(ledger, partition, self.source, rows)
        if (self.missing == "error" and figures["bad_entries"]) or figures["largest"] > checks.LARGEST_SIZE:
            return figures, arrays  # the stage will fail, and moments would overflow
        return figures, arrays + ledger.write_parts(partition, _summaries(block, usable))

    def _undirected(self, block: AnyArray, usable: BoolArray, rows: range) -> Json:
        """How many rows of a partition have no direction, and the first, if the metric needs one."""
        if self.metric not in DIRECTIONAL:
            return {}
        found = np.flatnonzero(usable & ~have_directions(block, self.metric))
        return {"n_undirected": len(found), "undirected": (found[:LISTED_ROWS] + rows.start).tolist()}

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        entries = list(figures.values())
        n_bad = sum(entry["n_bad_rows"] for entry in entries)
        self._refuse_bad_entries(entries, n_bad)
        self._refuse_undirected(entries)
        largest = max(entry["largest"] for entry in entries)
        checks.require_squarable(self.source.name, np.array([largest]))
        if self.source.dtype.kind in "iu" and largest > LARGEST_EXACT:
            raise InvalidInputError(
                f"{self.source.name} holds whole numbers up to {largest:.0f}, beyond 2^53 = {LARGEST_EXACT}, where "
                "double precision rounds them and distinct rows become the same; subtract an offset or rescale."
            )
        ranges = _spanned(np.stack([ledger.part("ranges", part).read() for part in range(self.partitions.count)]))
        n_rows, n_columns = self.source.shape
        self._refuse_content(ranges, largest, n_rows - n_bad)
        report = self.content(figures, self.source.shape, self.source.dtype.str)
        report |= {"largest": largest, "n_rows": n_rows, "n_columns": n_columns, "n_dropped_rows": n_bad}
        arrays = {"moments": self._merged_moments(ledger), "ranges": ranges}
        return written(ledger, {**report, "dtype": self.source.dtype.str}, arrays)

    def _refuse_content(self, ranges: FloatArray, largest: float, n_usable: int) -> None:
        if (ranges[0] == ranges[1]).all():
            raise InvalidInputError(
                f"all {n_usable} rows of {self.source.name} are identical; there is nothing to embed."
            )

    def _refuse_bad_entries(self, figures: list[Json], n_bad_rows: int) -> None:
        if n_bad_rows == self.source.shape[0]:
            raise InvalidInputError(
                f"every row of {self.source.name} has NaN or infinite entries; choose other columns or fill them."
            )
        if n_bad_rows and self.missing == "error":
            n_bad = sum(entry["bad_entries"] for entry in figures)
            rows = [row for entry in figures for row in entry["bad_rows"]][:LISTED_ROWS]
            raise InvalidInputError(
                f"{self.source.name} has {n_bad} NaN or infinite entries in {n_bad_rows} rows, first in rows "
                f"{', '.join(map(str, rows))} (partition {rows[0] // self.partitions.rows_each}); fill them, or choose "
                "missing='drop' (those rows get NaN coordinates, the row count is kept)."
            )

    def _refuse_undirected(self, figures: list[Json]) -> None:
        first = [row for entry in figures for row in entry.get("undirected", ())][:LISTED_ROWS]
        n_rows = sum(entry.get("n_undirected", 0) for entry in figures)
        refuse_undirected(self.source.name, n_rows, first, self.metric)

    def _merged_moments(self, ledger: StageLedger) -> FloatArray:
        """Mean and sum of squared deviations (2, D) over all usable rows, merged grain by grain in row order."""
        total, n_seen = np.zeros((2, self.source.shape[1])), 0
        for partition in range(self.partitions.count):
            counts = ledger.part("usable", partition).read()
            for part, count in zip(ledger.part("moments", partition).read(), counts.tolist(), strict=True):
                if count:
                    total = merged_moments(total, n_seen, part, count)
                    n_seen += count
        return total


def named_if_directional(metric: str) -> Json:
    """A metric as settings name it: results by others stay named as they were before there were any."""
    return {"metric": metric} if metric in DIRECTIONAL else {}


def usable_rows(block: AnyArray) -> BoolArray:
    """Which rows have finite entries only."""
    if block.dtype.kind != "f":
        return np.ones(len(block), dtype=np.bool_)
    return np.asarray(np.isfinite(block).all(axis=1))


def _summaries(block: AnyArray, usable: BoolArray) -> dict[str, AnyArray]:
    """For each grain its usable rows and moments; for the whole block the range of each column."""
    counts, moments, ranges = [], [], []
    for grain in _grains(len(block)):
        rows = block[grain][usable[grain]]
        counts.append(len(rows))
        moments.append(column_moments(rows))
        ranges.append(column_ranges(rows))
    return {"usable": np.array(counts), "moments": np.stack(moments), "ranges": _spanned(np.stack(ranges))}


def _grains(n_rows: int) -> list[slice]:
    return [slice(start, start + GRAIN_ROWS) for start in range(0, n_rows, GRAIN_ROWS)]


def _spanned(ranges: FloatArray) -> FloatArray:
    """The range (2, D) that spans several (r, 2, D)."""
    return np.stack([ranges[:, 0].min(axis=0), ranges[:, 1].max(axis=0)])


def write_ids(ledger: StageLedger, partition: int, source: Source, rows: range) -> list[str]:
    """Keep the ids of a partition's rows, if there are any."""
    if not source.has_ids:
        return []
    return ledger.write_parts(partition, {"ids": as_numbers(source.ids(rows.start, rows.stop))})


def as_numbers(ids: AnyArray) -> AnyArray:
    """Ids as they are stored: whole numbers as they are, text as UTF-8 bytes (n, longest), padded with zeros."""
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)
    encoded = np.char.encode(ids.astype(str), "utf-8")
    width = max(1, encoded.dtype.itemsize)
    return np.frombuffer(encoded.astype(f"S{width}").tobytes(), dtype=np.uint8).reshape(len(ids), width)


def as_ids(stored: AnyArray) -> AnyArray:
    """The ids that `as_numbers` stored."""
    if stored.ndim == 1:
        return stored
    return np.char.decode(np.ascontiguousarray(stored).view(f"S{stored.shape[1]}").ravel(), "utf-8")


def digest_of_rows(rows: AnyArray) -> str:
    """What names the content of rows, in their dtype."""
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()


GRAINS_PER_BLOCK = 64


@dataclass(frozen=True)
class PreparedSource:
    """A validated source with its preprocessing, for a metric that may need directions; rows that were dropped read as
    NaN."""

    source: Source
    validated: Outcome
    standardize: bool = False
    axes: Outcome | None = None
    metric: str = "euclidean"

    @property
    def identity(self) -> list[str]:
        """What names its content, for the stages that read it."""
        axes = [] if self.axes is None else [self.axes.ledger.digest]
        measured = [f"metric={metric}" for metric in named_if_directional(self.metric).values()]
        return [str(self.validated.figures["content"]), f"standardize={self.standardize}", *axes, *measured]

    @property
    def n_columns(self) -> int:
        return self.source.shape[1] if self.axes is None else int(self.axes.figures["n_axes"])

    @cached_property
    def preprocessing(self) -> Preprocessing:
        centered = self.standardize or self.axes is not None
        found = preprocessing_of(self.source, self.validated, self.standardize, centered)
        axes = None if self.axes is None else self.axes.ledger.read("axes").read()
        return replace(found, axes=axes, metric=self.metric)

    def read(self, start: int, stop: int) -> AnyArray:
        points = self.preprocessing.apply(self.source.read(start, stop))
        # Rows that are standardized may have lost their direction: the mean has none.
        require_directions(self.source.name, points, self.metric, np.arange(start, stop))
        return points


def point_dtype(source: np.dtype[Any]) -> np.dtype[Any]:
    """Single precision where it holds every value of the source exactly."""
    return np.dtype(np.float32 if np.can_cast(source, np.float32) else np.float64)


def preprocessing_of(source: Source, validated: Outcome, standardize: bool, centered: bool) -> Preprocessing:
    """Scaling, and if asked for centering and standardizing, from what `validate` found."""
    exponent = int(np.frexp(validated.figures["largest"])[1])
    dtype = point_dtype(source.dtype)
    if not centered:
        return Preprocessing(exponent, dtype)
    mean, deviation = validated.ledger.read("moments").read()
    low, high = validated.ledger.read("ranges").read()
    n_usable = validated.figures["n_rows"] - validated.figures["n_dropped_rows"]
    # A constant column is left at 0: its computed spread is rounding error.
    center = np.ldexp(np.where(low == high, low, mean), -exponent)
    spread = np.where(low == high, 1.0, np.ldexp(np.sqrt(deviation / n_usable), -exponent))
    return Preprocessing(exponent, dtype, center, spread if standardize else None)


@dataclass(frozen=True)
class Axes(Stage):
    """Principal axes of the data."""

    source: Source
    validated: Outcome
    standardize: bool
    n_axes: int
    name = "axes"
    depends_on = ("n_axes", "standardize")

    def inputs(self) -> list[str]:
        return [str(self.validated.figures["content"])]

    def n_partitions(self) -> int:
        return self._blocks.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        total = np.zeros((self.source.shape[1],) * 2)
        for rows in self._blocks.grains(partition):
            points = self._centered.apply(self.source.read(rows.start, rows.stop)).astype(np.float64)
            total += scatter_matrix(points[usable_rows(points)])
        return {}, ledger.write_parts(partition, {"scatter": total})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        total = np.zeros((self.source.shape[1],) * 2)
        for partition in sorted(figures):
            total += ledger.part("scatter", partition).read()
        axes, explained = principal_axes(total, self.n_axes)
        return written(ledger, {"n_axes": self.n_axes, "explained_variance": explained}, {"axes": axes})

    @property
    def _blocks(self) -> RowPartitions:
        return RowPartitions(self.source.shape[0], GRAINS_PER_BLOCK)

    @cached_property
    def _centered(self) -> Preprocessing:
        return preprocessing_of(self.source, self.validated, self.standardize, centered=True)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        rows, columns = GRAINS_PER_BLOCK * GRAIN_ROWS, shape.n_columns
        return Cost(
            memory=3 * 8 * columns**2 + 24 * GRAIN_ROWS * columns,
            seconds=4e-9 * shape.source + 1e-10 * shape.n_rows * columns**2,
            disk=8 * columns**2 * (shape.n_rows // rows + 2),
            tasks=-(-shape.n_rows // rows),
        )


@dataclass(frozen=True)
class ValidateBatch(Validate):
    """Like the scan before a fit; but rows may all be the same, and must not be out of all proportion to the fit's,
    unless only their directions count."""

    exponent: int = 0

    def _refuse_content(self, ranges: FloatArray, largest: float, n_usable: int) -> None:
        if self.metric not in DIRECTIONAL and np.ldexp(largest, -self.exponent) > checks.LARGEST_SIZE:
            raise InvalidInputError(
                f"{self.source.name} reaches {largest:g} in absolute value, beyond {checks.LARGEST_SIZE:g} times the "
                "fitted data; squared distances would leave double precision: drop or rescale such rows."
            )


@dataclass(frozen=True)
class ReplayedSource(PreparedSource):
    """New rows with the preprocessing that `validated` and `axes` of the fit gave.

    They are kept in the precision that holds both their own values and those of the fit, but directions in that of the
    fit: a fitted row must have its own direction as a new one.
    """

    batch: Outcome | None = None
    fitted_dtype: np.dtype[Any] | None = None

    @property
    def identity(self) -> list[str]:
        content = [] if self.batch is None else [str(self.batch.figures["content"])]
        return [*content, *super().identity, f"points={self.preprocessing.dtype}"]

    @cached_property
    def preprocessing(self) -> Preprocessing:
        found = super().preprocessing
        fitted = self.fitted_dtype or found.dtype
        return replace(found, dtype=fitted if self.metric in DIRECTIONAL else np.result_type(found.dtype, fitted))
