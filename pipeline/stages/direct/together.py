"""New rows of a direct method reconstructed together [T sec. 6], and the arcs of single rows [T sec. 5]."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.numerics.extension.joint import reconstruct_moments_jointly
from pipeline.numerics.extension.reconstruction import Moments, MomentSums, arc_of_moments
from pipeline.numerics.geodesics.rows import bound_between
from pipeline.numerics.mds import LandmarkModel
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.direct.asked import DirectAnswers
from pipeline.stages.direct.space import DirectSpace
from pipeline.stages.joint import blocks_of
from pipeline.stages.providers.vectors import VectorRows
from pipeline.stages.stage import SingleStage, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json


def classical_model(asked: DirectAnswers) -> LandmarkModel:
    """The model, which has two answers: whoever asks for these stages was refused otherwise."""
    model = asked.answers.model
    if not isinstance(model, LandmarkModel):
        raise TypeError(f"{type(model).__name__} has one answer only")
    return model


def moments_of(model: LandmarkModel, to_landmarks: AnyArray) -> Moments:
    sums = MomentSums(model, len(to_landmarks))
    sums.add(to_landmarks)
    return sums.moments()


@dataclass(frozen=True)
class DirectJoint(Stage):
    """Coordinates `joint` of blocks of rows that also fit the dissimilarities between them: between vectors by the
    fit's metric or kernel, otherwise upper bounds over the landmarks."""

    space: DirectSpace
    asked: DirectAnswers
    partitions: RowPartitions
    block_rows: int
    only_bounds: bool
    name = "joint"
    version = 2

    def settings(self) -> Json:
        return {"block_rows": self.block_rows, "bounds": self._bounds, "rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        return [*self.asked.provider.identity, *self.space.identity]

    def n_partitions(self) -> int:
        return self.partitions.count

    def prepare(self, ledger: StageLedger) -> None:
        self._array(ledger)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        joint, n_blocks = np.full((len(rows), self.asked.answers.n_components), np.nan), 0
        for grain in self.partitions.grains(partition):
            for block, coordinates in self._of_grain(grain):
                joint[block - rows.start] = coordinates
                n_blocks += 1
        self._array(ledger).write(rows.start, joint)
        return {"n_blocks": n_blocks}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        n_blocks = sum(entry["n_blocks"] for entry in figures.values())
        return {"n_blocks": n_blocks, "upper_bounds": self._bounds}, ["joint"]

    @property
    def _bounds(self) -> bool:
        return self.only_bounds or not isinstance(self.asked.provider, VectorRows)

    def _array(self, ledger: StageLedger) -> RowArray:
        shape = (self.partitions.n_rows, self.asked.answers.n_components)
        return ledger.create("joint", shape, np.float64, self.partitions.rows_per_chunk)

    def _of_grain(self, grain: range) -> Iterator[tuple[IntArray, FloatArray]]:
        """Each block of a grain: its rows, and their coordinates in the user's frame."""
        model = classical_model(self.asked)
        to_landmarks, usable = self.asked.provider.read(grain.start, grain.stop)
        kept, moments = np.flatnonzero(usable), moments_of(model, to_landmarks)
        for chosen in blocks_of(kept, self.block_rows):
            rows = kept[chosen] + grain.start
            mine = Moments(moments.inner[chosen], moments.beta[chosen])
            answer = reconstruct_moments_jointly(model, mine, self._between(rows, to_landmarks[chosen]) ** 2)
            scaled = np.ldexp(answer.coordinates, self.asked.coordinate_exponent)
            yield rows, self.space.turned(scaled)

    def _between(self, rows: IntArray, to_landmarks: AnyArray) -> FloatArray:
        provider = self.asked.provider
        if self._bounds or not isinstance(provider, VectorRows):
            return bound_between([to_landmarks])
        points = provider.data.read(int(rows[0]), int(rows[-1]) + 1)[rows - rows[0]]
        return provider.compared(points, points)


@dataclass(frozen=True)
class DirectArcs(SingleStage):
    """Positions `arcs` (r, steps, d) between the two answers for some rows."""

    space: DirectSpace
    asked: DirectAnswers
    rows: tuple[int, ...]
    n_steps: int
    name = "arcs"

    def settings(self) -> Json:
        return {"rows": list(self.rows), "n_steps": self.n_steps, "direct": True}

    def inputs(self) -> list[str]:
        return [*self.asked.provider.identity, *self.space.identity]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        ledger.write("arcs", np.stack([self._arc(row) for row in self.rows]))
        ledger.write("rows", np.array(self.rows))
        return {"n_rows": len(self.rows)}, ["arcs", "rows"]

    def _arc(self, row: int) -> FloatArray:
        model, answers = classical_model(self.asked), self.asked.answers
        to_landmarks, usable = self.asked.provider.read(row, row + 1)
        if not usable[0]:
            return np.full((self.n_steps, answers.n_components), np.nan)
        arc = arc_of_moments(model, moments_of(model, to_landmarks), self.n_steps, answers.weight)
        return self.space.turned(np.ldexp(arc, self.asked.coordinate_exponent))
