"""New rows reconstructed together, block by block [T sec. 6], and the arcs of single rows [T sec. 5].

A block is consecutive rows of the source, and a new one starts with every grain of 4,096 rows: blocks do not depend on
how the source was cut. Rows that are not embedded are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.numerics.extension.joint import reconstruct_moments_jointly
from pipeline.numerics.extension.reconstruction import Moments, arc_of_moments
from pipeline.stages.cost import Cost, Shape
from pipeline.stages.place import inputs_of_new_rows
from pipeline.stages.placing import Placing
from pipeline.stages.providers.provider import BLOCK_BYTES
from pipeline.stages.space import Space
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, IntArray, Json

JointDistances = Literal["paths", "bound"]


@dataclass(frozen=True)
class Joint(Stage):
    """Coordinates `joint` of blocks of rows that also fit the dissimilarities between them, or upper bounds of those
    over the landmarks."""

    space: Space
    placing: Placing
    placed: Outcome
    block_rows: int
    between: JointDistances
    name = "joint"
    version = 2

    def settings(self) -> Json:
        own = {"block_rows": self.block_rows, "rows_each": self.placing.partitions.rows_each}
        return {**own, **({"bounds": self._only_bounds} if self._compares else {"between": self.between})}

    def inputs(self) -> list[str]:
        return inputs_after(self.placing, self.space, self.placed, self.name)

    def n_partitions(self) -> int:
        return self.placing.partitions.count

    def prepare(self, ledger: StageLedger) -> None:
        self._array(ledger)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.placing.partitions.rows(partition)
        joint, n_blocks = np.full((len(rows), self.placing.answers.n_components), np.nan), 0
        for grain in self.placing.partitions.grains(partition):
            for block, coordinates in self._of_grain(grain):
                joint[block - rows.start] = coordinates
                n_blocks += 1
        self._array(ledger).write(rows.start, joint)
        return {"n_blocks": n_blocks}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        n_blocks = sum(entry["n_blocks"] for entry in figures.values())
        return {"n_blocks": n_blocks, "upper_bounds": self._only_bounds}, ["joint"]

    def release(self) -> None:
        self.placing.provider.release()

    @property
    def _compares(self) -> bool:
        """Whether new rows are compared with each other directly."""
        return self.placing.provider.in_row_order

    @property
    def _only_bounds(self) -> bool:
        return self.placing.provider.only_bounds(self.between)

    def _array(self, ledger: StageLedger) -> RowArray:
        cut = self.placing.partitions
        shape = (cut.n_rows, self.placing.answers.n_components)
        return ledger.create("joint", shape, np.float64, cut.rows_per_chunk)

    def _of_grain(self, grain: range) -> Iterator[tuple[IntArray, FloatArray]]:
        """Each block of a grain: its rows, and their coordinates in the user's frame."""
        near = self.placing.provider.neighborhood(self.placing, self.placed, grain, self._only_bounds)
        for chosen in blocks_of(near.kept, self.block_rows):
            mine = Moments(near.moments.inner[chosen], near.moments.beta[chosen])
            answer = reconstruct_moments_jointly(self.placing.classical, mine, near.between(chosen) ** 2)
            yield near.kept[chosen] + grain.start, self.space.in_users_frame(answer.coordinates)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(4 * shape.partition_bytes + 4 * BLOCK_BYTES + 8 * shape.n_landmarks * shape.n_axes)


def blocks_of(kept: IntArray, size: int) -> list[IntArray]:
    """Places of rows that are kept, those of each block of `size` rows of a grain together."""
    blocks = kept // size
    return [np.flatnonzero(blocks == block) for block in np.unique(blocks)]


def inputs_after(placing: Placing, space: Space, placed: Outcome, stage: str) -> list[str]:
    """What a stage after `place` reads: what `place` kept, or the new rows again."""
    return inputs_of_new_rows(placing, space, stage) if placing.provider.in_row_order else [placed.ledger.digest]


@dataclass(frozen=True)
class Arcs(SingleStage):
    """Positions `arcs` (r, steps, d) from the projection to the restricted reconstruction, for some rows."""

    space: Space
    placing: Placing
    placed: Outcome
    rows: tuple[int, ...]
    n_steps: int
    name = "arcs"

    def settings(self) -> Json:
        own = {"rows": list(self.rows), "n_steps": self.n_steps}
        return {**own, **self.placing.provider.lineage(self.name).settings}

    def inputs(self) -> list[str]:
        return inputs_after(self.placing, self.space, self.placed, self.name)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        ledger.write("arcs", np.stack([self._arc(row) for row in self.rows]))
        ledger.write("rows", np.array(self.rows))
        return {"n_rows": len(self.rows)}, ["arcs", "rows"]

    def _arc(self, row: int) -> FloatArray:
        placing = self.placing
        near = placing.provider.neighborhood(placing, self.placed, range(row, row + 1), only_bounds=True)
        if not len(near.kept):
            return np.full((self.n_steps, placing.answers.n_components), np.nan)
        arc = arc_of_moments(placing.classical, near.moments, self.n_steps, placing.answers.weight)
        return self.space.in_users_frame(arc)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(4 * BLOCK_BYTES + 8 * shape.n_landmarks * shape.n_axes)
