"""Distances to all landmarks from evaluations for a few of them, by kernel semi-least squares [E].

Where a function of the user's takes long, every row is compared with the members of a subset of the landmarks only.
The subset is chosen greedily for what it tells of the landmarks' own distances, which are all evaluated. Distances to
members of the subset are exact, those to the other landmarks are estimates.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.numerics.landmarks.sampling import (
    SubsetDistances,
    gram_matrix,
    kernel_of_objects,
    semi_least_squares,
    trace_greedy,
)
from pipeline.sources.comparison import Comparison, Comparisons
from pipeline.sources.proximities import landmark_dissimilarities
from pipeline.stages.cost import SECONDS_PER_CALL, Cost, Shape
from pipeline.stages.providers.objects import ComparedRows, landmark_objects
from pipeline.stages.providers.provider import RowProvider
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json


@dataclass(frozen=True)
class Subset(Stage):
    """Distances `between` (m, m) of the landmarks, and the places `subset` (r,) among them of those that every row is
    compared with. The first of these, in their middle, is where the kernel has its origin."""

    landmarks: Outcome
    comparison: Comparison
    n_evaluated: int
    name = "subset"
    version = 2

    def settings(self) -> Json:
        comparison = self.comparison
        return {"function": comparison.function, "source": comparison.source, "n_evaluated": self.n_evaluated}

    def inputs(self) -> list[str]:
        return [self.landmarks.ledger.digest]

    def n_partitions(self) -> int:
        return self._cut.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        mine, some = self._cut.rows(partition), self._cut.landmarks(partition)
        ones, rows = self._objects[mine.start : mine.stop], self._rows[mine.start : mine.stop].tolist()
        values = self.comparison.table(ones, self._objects[some], rows, self._rows[some].tolist())
        return {"n_evaluations": values.size}, ledger.write_parts(partition, {"values": values})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        between = landmark_dissimilarities(self._gathered(ledger), self._rows, self._rows, str(self.comparison))
        subset = self._chosen(between)
        ledger.write("between", between)
        ledger.write("subset", subset)
        n_evaluations = sum(entry["n_evaluations"] for entry in figures.values())
        return {"n_evaluations": n_evaluations, "n_evaluated": len(subset)}, ["between", "subset"]

    def _gathered(self, ledger: StageLedger) -> FloatArray:
        values = np.empty((self._cut.n_rows, self._cut.n_landmarks))
        for piece in range(self._cut.count):
            rows = self._cut.rows(piece)
            values[rows.start : rows.stop, self._cut.landmarks(piece)] = ledger.part("values", piece).read()
        return values

    def _chosen(self, between: FloatArray) -> IntArray:
        origin = int(np.argmin((between**2).mean(axis=0)))
        # One thread, for how many cut a sum decides its last bits, and these may decide the choice.
        with threadpool_limits(1):
            others = trace_greedy(gram_matrix(between, origin), self.n_evaluated - 1)
        return np.concatenate([[origin], others[others != origin]]).astype(np.int64)

    @cached_property
    def _cut(self) -> Comparisons:
        m = int(self.landmarks.figures["n_landmarks"])
        return Comparisons(m, m)

    @cached_property
    def _objects(self) -> Any:
        return landmark_objects(self.landmarks)

    @cached_property
    def _rows(self) -> IntArray:
        return np.asarray(self.landmarks.ledger.read("rows").read())

    @staticmethod
    def cost(shape: Shape) -> Cost:
        m = shape.n_landmarks
        return Cost(8 * 8 * m * m, SECONDS_PER_CALL * m * m, 8 * m * m, Comparisons(m, m).count)


@dataclass(frozen=True)
class EstimatedRows(RowProvider):
    """A provider of what `Compare` left for a subset of the landmarks, and estimates for the others.

    `has_landmarks` says that landmarks are among the rows: theirs are known exactly.
    """

    evaluated: ComparedRows
    subset: Outcome
    has_landmarks: bool = True

    @property
    def identity(self) -> list[str]:
        return [*self.evaluated.identity, self.subset.ledger.digest]

    @property
    def n_landmarks(self) -> int:
        return self.evaluated.n_landmarks

    @property
    def exponent(self) -> int:
        if self.evaluated.fitted_exponent is not None:
            return self.evaluated.fitted_exponent
        return int(np.frexp(self._between.max())[1])

    @property
    def landmark_rows(self) -> IntArray:
        return self.evaluated.landmark_rows

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        evaluated = self.evaluated.values(start, stop)
        rows = np.sqrt(self._estimator.squared_distances(*kernel_of_objects(evaluated, self._from_origin, 0)))
        rows[:, self._places] = evaluated
        if self.has_landmarks:
            numbers = self.landmark_rows
            here = np.flatnonzero((numbers >= start) & (numbers < stop))
            rows[numbers[here] - start] = self._between[here]
        return np.ldexp(rows, -self.exponent), np.ones(stop - start, dtype=np.bool_)

    def between(self) -> FloatArray:
        return np.ldexp(self._between, -self.exponent)

    @cached_property
    def _between(self) -> FloatArray:
        return np.asarray(self.subset.ledger.read("between").read())

    @cached_property
    def _places(self) -> IntArray:
        return np.asarray(self.subset.ledger.read("subset").read())

    @cached_property
    def _from_origin(self) -> FloatArray:
        return np.asarray(self._between[self._places[0], self._places])

    @cached_property
    def _estimator(self) -> SubsetDistances:
        return semi_least_squares(gram_matrix(self._between, int(self._places[0])), self._places)
