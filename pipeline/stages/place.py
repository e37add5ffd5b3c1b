"""New rows placed: coordinates, trust columns, and whether the rows are like those of the fit.

Rows may also be reconstructed together, block by block [T sec. 6], and the arcs of single rows computed [T sec. 5]. A
block is consecutive rows of the source, and a new one starts with every grain of 4,096 rows: blocks do not depend on
how the source was cut. Rows that are not embedded are left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.numerics.extension.joint import reconstruct_moments_jointly
from pipeline.numerics.extension.reconstruction import Reconstruction, arc_of_moments
from pipeline.numerics.extension.spread import SPREAD
from pipeline.numerics.mds import Moments
from pipeline.numerics.statistics import compared, gap_counts, ranks_among
from pipeline.stages.embed import Placing, PlacingStage, moments_of, placing_memory
from pipeline.stages.exchange import IN_ROW_ORDER
from pipeline.stages.providers.provider import BLOCK_BYTES
from pipeline.stages.space import Space
from pipeline.stages.stage import Cost, Outcome, Result, Shape, SingleStage, total
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, IntArray, Json

# Not tested for drift: the multiplier says the same as the gap, and few runs have the spread.
NOT_WATCHED = ("multiplier", SPREAD)


# Of a batch, the share of rows that are the same as fitted ones, in all and beyond what is usual, for it to be no batch
# of new ones.
MOSTLY_FITTED, BEYOND_USUAL = 0.5, 0.25


class NewRows(PlacingStage):
    """A stage of new rows. Where their provider has not read the space that they are placed in, the stage does."""

    space: Space

    def inputs(self) -> list[str]:
        direct = self.placing.provider.in_row_order
        return [*self.lineage.inputs, *self.space.identity] if direct else super().inputs()


@dataclass(frozen=True)
class Place(NewRows):
    """Columns of `values` are the coordinates (d each), the trust columns and their ranks."""

    space: Space
    placing: Placing
    level: float
    name = "place"
    depends_on = ("level",)

    def settings(self) -> Json:
        return {"rows_each": self.placing.partitions.rows_each, **super().settings()}

    def n_partitions(self) -> int:
        return self.placing.provider.n_groups(self.placing.partitions)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        provider, placed = self.placing.provider, self.placing.group(partition)
        ranks = ranks_among(self.space.calibration, placed.trust)
        arrays = {"values": np.hstack([placed.coordinates, placed.trust, ranks]), **placed.flags}
        names = provider.write(ledger, partition, self.placing.partitions, placed.numbers, arrays)
        trust, counts = placed.trust[placed.kept], placed.counts[placed.kept]
        names += write_watched(ledger, partition, self.space.calibration, trust, counts)
        return {"n_placed": int(counts.sum()), "n_fitted": self._n_fitted(trust, counts)}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups, margins = sorted(figures), self.space.stages["calibrate"].figures["margins"]
        drift = drift_of(ledger, groups, self.space.calibration, margins, self.level)
        n_placed, n_fitted = total(figures, "n_placed"), total(figures, "n_fitted")
        if were_fitted(n_fitted, n_placed, self.space.calibration.get("nearest")):
            # What was fitted says nothing of what is new.
            drift |= {"were_fitted": True, "drifts": False}
        report = {"n_placed": n_placed, "n_fitted": n_fitted, "drift": drift}
        if self.placing.provider.in_row_order:
            return {**report, IN_ROW_ORDER: True}, []
        ledger.write("counts", np.stack([ledger.part("counts", group).read() for group in groups]))
        return report, ["counts"]

    def _n_fitted(self, trust: FloatArray, counts: IntArray) -> int:
        """How many rows are the same as a fitted one, as far as that is known."""
        if self.placing.provider.in_row_order or "nearest" not in self.placing.columns:
            return 0
        return int(counts[trust[:, self.placing.columns.index("nearest")] == 0].sum())

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(placing_memory(shape))


def were_fitted(n_fitted: int, n_placed: int, nearest: FloatArray | None) -> bool:
    """Whether rows, so many of them the same as a fitted one, are no new ones; `nearest` are the distances of rows
    like the fitted ones to others, of which some are 0 where rows repeat."""
    if not n_placed or nearest is None:
        return False
    share = n_fitted / n_placed
    return share > MOSTLY_FITTED and share > BEYOND_USUAL + float((nearest == 0).mean())


def write_watched(
    ledger: StageLedger, partition: int, calibration: Mapping[str, FloatArray], trust: FloatArray, weights: IntArray
) -> list[str]:
    """Count where the watched columns of some rows fall among those of rows like the training rows."""
    counts = {
        f"counts_{name}": gap_counts(reference, trust[:, i], weights)
        for i, (name, reference) in enumerate(calibration.items())
        if name not in NOT_WATCHED
    }
    return ledger.write_parts(partition, counts)


def drift_of(
    ledger: StageLedger,
    groups: list[int],
    calibration: Mapping[str, FloatArray],
    margins: Mapping[str, float],
    level: float,
) -> Json:
    """How all rows that were counted compare with rows like the training rows."""
    totals = {
        name: np.sum([ledger.part(f"counts_{name}", group).read() for group in groups], axis=0)
        for name in calibration
        if name not in NOT_WATCHED
    }
    return compared(calibration, totals, margins, level)


JointDistances = Literal["paths", "bound"]
# What `Joint` publishes.
JOINT = ("joint", "certified")


@dataclass(frozen=True)
class Joint(NewRows):
    """Coordinates `joint` of blocks of rows that also fit dissimilarities between them, or upper bounds of those, and
    whether they are proved to be the best ones, `certified`."""

    space: Space
    placing: Placing
    placed: Outcome
    block_rows: int
    between: JointDistances
    name = "joint"
    depends_on = ("block_rows",)
    reads = ("placed",)

    def settings(self) -> Json:
        return {"rows_each": self.placing.partitions.rows_each, "between": self.between, **super().settings()}

    def n_partitions(self) -> int:
        return self.placing.partitions.count

    def prepare(self, ledger: StageLedger) -> None:
        self._arrays(ledger)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.placing.partitions.rows(partition)
        joint = np.full((len(rows), self.placing.answers.n_components), np.nan)
        certified, n_blocks, n_certified = np.zeros(len(rows), np.bool_), 0, 0
        for grain in self.placing.partitions.grains(partition):
            for block, answer in self._of_grain(grain):
                joint[block - rows.start] = self.space.in_users_frame(answer.coordinates)
                certified[block - rows.start] = answer.certified
                n_blocks, n_certified = n_blocks + 1, n_certified + int(answer.certified.all())
        for array, values in zip(self._arrays(ledger), (joint, certified), strict=True):
            array.write(rows.start, values)
        return {"n_blocks": n_blocks, "n_certified": n_certified}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        counts = {name: total(figures, name) for name in ("n_blocks", "n_certified")}
        return {**counts, "upper_bounds": self._only_bounds}, list(JOINT)

    def release(self) -> None:
        self.placing.provider.release()

    @property
    def _only_bounds(self) -> bool:
        return self.between == "bound"

    def _arrays(self, ledger: StageLedger) -> tuple[RowArray, RowArray]:
        n, chunk = self.placing.partitions.n_rows, self.placing.partitions.rows_per_chunk
        coordinates, certified = JOINT
        return (
            ledger.create(coordinates, (n, self.placing.answers.n_components), np.float64, chunk),
            ledger.create(certified, (n,), np.bool_, chunk),
        )

    def _of_grain(self, grain: range) -> Iterator[tuple[IntArray, Reconstruction]]:
        """Each block of a grain: its rows, and their places."""
        placing = self.placing
        near = placing.provider.neighborhood(self.placed, placing.partitions, grain, self._only_bounds)
        moments = moments_of(placing.classical, len(near.kept), near.batches())
        for chosen in blocks_of(near.kept, self.block_rows):
            mine = Moments(moments.inner[chosen], moments.beta[chosen])
            apart = near.between(chosen)
            # Of indefinite similarities, squares keep the sign.
            squared = apart * np.abs(apart)
            answer = reconstruct_moments_jointly(placing.classical, mine, squared, placing.answers.weight)
            yield near.kept[chosen] + grain.start, answer

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(4 * shape.partition_bytes + 4 * BLOCK_BYTES + 8 * shape.n_landmarks * shape.n_axes)


def blocks_of(kept: IntArray, size: int) -> list[IntArray]:
    """Places of rows that are kept, those of each block of `size` rows of a grain together."""
    blocks = kept // size
    return [np.flatnonzero(blocks == block) for block in np.unique(blocks)]


@dataclass(frozen=True)
class Arcs(NewRows, SingleStage):
    """Positions `arcs` (r, steps, d) from the projection to the restricted reconstruction, for some rows."""

    space: Space
    placing: Placing
    placed: Outcome
    rows: tuple[int, ...]
    n_steps: int
    name = "arcs"
    depends_on = ("rows", "n_steps")
    reads = ("placed",)

    def result(self) -> Result:
        arcs = np.stack([self._arc(row) for row in self.rows])
        return {"n_rows": len(self.rows)}, {"arcs": arcs, "rows": np.array(self.rows)}

    def _arc(self, row: int) -> FloatArray:
        placing = self.placing
        near = placing.provider.neighborhood(self.placed, placing.partitions, range(row, row + 1), only_bounds=True)
        if not len(near.kept):
            return np.full((self.n_steps, placing.answers.n_components), np.nan)
        moments = moments_of(placing.classical, len(near.kept), near.batches())
        arc = arc_of_moments(placing.classical, moments, self.n_steps, placing.answers.weight)
        return self.space.in_users_frame(arc)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(4 * BLOCK_BYTES + 8 * shape.n_landmarks * shape.n_axes)
