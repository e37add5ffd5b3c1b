"""Distances to all landmarks from evaluations for a few of them, by kernel semi-least squares [E].

Where a function of the user's takes long, every row is compared with the members of a subset of the landmarks only.
The subset is chosen greedily for what it tells of the landmarks' own distances, which are all evaluated. Distances to
members of the subset are exact, those to the other landmarks are estimates.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.numerics.semi_least_squares import (
    SubsetDistances,
    gram_matrix,
    kernel_of_objects,
    semi_least_squares,
    trace_greedy,
)
from pipeline.sources.proximities import landmark_dissimilarities
from pipeline.stages.direct.functions import Comparison
from pipeline.stages.direct.objects import ComparedRows, landmark_objects
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json


@dataclass(frozen=True)
class Subset(SingleStage):
    """Distances `between` (m, m) of the landmarks, and the places `subset` (r,) among them of those that every row is
    compared with. The first of these, in their middle, is where the kernel has its origin."""

    landmarks: Outcome
    comparison: Comparison
    n_evaluated: int
    name = "subset"

    def settings(self) -> Json:
        return {"function": self.comparison.function, "n_evaluated": self.n_evaluated}

    def inputs(self) -> list[str]:
        return [self.landmarks.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        objects, rows = landmark_objects(self.landmarks), self.landmarks.ledger.read("rows").read()
        values = self.comparison.table(objects, objects, 0)
        between = landmark_dissimilarities(values, rows, rows, f"metric={self.comparison.function!r}")
        origin = int(np.argmin((between**2).mean(axis=0)))
        others = trace_greedy(gram_matrix(between, origin), self.n_evaluated - 1)
        subset = np.concatenate([[origin], others[others != origin]]).astype(np.int64)
        ledger.write("between", between)
        ledger.write("subset", subset)
        return {"n_evaluations": values.size, "n_evaluated": len(subset)}, ["between", "subset"]


@dataclass(frozen=True)
class EstimatedRows:
    """A provider of what `Compare` left for a subset of the landmarks, and estimates for the others.

    `has_landmarks` says that landmarks are among the rows: theirs are known exactly.
    """

    compared: ComparedRows
    subset: Outcome
    has_landmarks: bool = True

    @property
    def identity(self) -> list[str]:
        return [*self.compared.identity, self.subset.ledger.digest]

    @property
    def n_landmarks(self) -> int:
        return self.compared.n_landmarks

    @property
    def exponent(self) -> int:
        if self.compared.fitted_exponent is not None:
            return self.compared.fitted_exponent
        return int(np.frexp(self._between.max())[1])

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        evaluated = self.compared.values(start, stop)
        rows = np.sqrt(self._estimator.squared_distances(*kernel_of_objects(evaluated, self._from_origin, 0)))
        rows[:, self._places] = evaluated
        if self.has_landmarks:
            numbers = self.compared.landmarks.ledger.read("rows").read()
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
