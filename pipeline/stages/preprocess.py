"""Stage 1 of an extension: the new rows scanned, and read as the fit read its own: same scale, columns and axes.

Preprocessing: the validated source in the units and on the axes that a run computes in.

Standardizing needs only what `validate` found. Principal axes take a second scan, in blocks whose size is fixed, so
that their sums do not depend on the size of the partitions.

Single rows of a source, read partition by partition.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.mds import Preprocessing, principal_axes, scatter_matrix
from pipeline.sources import Source
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.stage import Cost, Outcome, Shape, Stage
from pipeline.stages.validate import Validate, usable_rows
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

GRAINS_PER_BLOCK = 64


@dataclass(frozen=True)
class PreparedSource:
    """A validated source with its preprocessing; rows that were dropped read as NaN."""

    source: Source
    validated: Outcome
    standardize: bool = False
    axes: Outcome | None = None

    @property
    def identity(self) -> list[str]:
        """What names its content, for the stages that read it."""
        axes = [] if self.axes is None else [self.axes.ledger.digest]
        return [str(self.validated.figures["content"]), f"standardize={self.standardize}", *axes]

    @property
    def n_columns(self) -> int:
        return self.source.shape[1] if self.axes is None else int(self.axes.figures["n_axes"])

    @cached_property
    def preprocessing(self) -> Preprocessing:
        if self.axes is None:
            return preprocessing_of(self.source, self.validated, self.standardize, centered=self.standardize)
        onto = self.axes.ledger.read("axes").read()
        return replace(preprocessing_of(self.source, self.validated, self.standardize, centered=True), axes=onto)

    def read(self, start: int, stop: int) -> AnyArray:
        return self.preprocessing.apply(self.source.read(start, stop))


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
        ledger.write("axes", axes)
        return {"n_axes": self.n_axes, "explained_variance": explained}, ["axes"]

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


def n_usable(data: PreparedSource) -> int:
    """How many rows take part."""
    figures = data.validated.figures
    return int(figures["n_rows"] - figures["n_dropped_rows"])


def rows_of_rank(data: PreparedSource, partitions: RowPartitions, ranks: IntArray) -> tuple[AnyArray, IntArray]:
    """Points (r, D) and numbers (r,) of the rows with these ranks, rising, among the usable ones."""
    points = np.empty((len(ranks), data.n_columns), dtype=data.preprocessing.dtype)
    rows, seen = np.empty(len(ranks), dtype=np.int64), 0
    for partition in range(partitions.count):
        n_here = int(data.validated.ledger.part("usable", partition).read().sum())
        first, last = np.searchsorted(ranks, [seen, seen + n_here])
        if first < last:
            part = partitions.rows(partition)
            block = data.read(part.start, part.stop)
            places = np.flatnonzero(usable_rows(block))[ranks[first:last] - seen]
            points[first:last], rows[first:last] = block[places], places + part.start
        seen += n_here
    return points, rows


def points_of_rows(data: PreparedSource, partitions: RowPartitions, rows: IntArray) -> AnyArray:
    """Points (r, D) of the rows with these numbers, rising."""
    points = np.empty((len(rows), data.n_columns), dtype=data.preprocessing.dtype)
    bounds = np.searchsorted(rows, np.arange(partitions.count + 1) * partitions.rows_each)
    for partition in np.flatnonzero(np.diff(bounds)).tolist():
        part, mine = partitions.rows(partition), slice(*bounds[partition : partition + 2])
        points[mine] = data.read(part.start, part.stop)[rows[mine] - part.start]
    return points


@dataclass(frozen=True)
class ValidateBatch(Validate):
    """Like the scan before a fit; but rows may all be the same, and must not be out of all proportion to the fit's."""

    exponent: int = 0

    def _refuse_content(self, ranges: FloatArray, largest: float, n_usable: int) -> None:
        if np.ldexp(largest, -self.exponent) > checks.LARGEST_SIZE:
            raise InvalidInputError(
                f"{self.source.name} reaches {largest:g} in absolute value, beyond {checks.LARGEST_SIZE:g} times the "
                "fitted data; squared distances would leave double precision: drop or rescale such rows."
            )


@dataclass(frozen=True)
class ReplayedSource(PreparedSource):
    """New rows with the preprocessing that `validated` and `axes` of the fit gave.

    They are kept in the precision that holds both their own values and those of the fit.
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
        return replace(found, dtype=np.result_type(found.dtype, self.fitted_dtype or found.dtype))
