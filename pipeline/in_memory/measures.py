"""What points are to the landmarks, measured straight: by a metric or a kernel, by a function, or as it is given."""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from pipeline.in_memory.given import require_nonnegative
from pipeline.in_memory.settings import Comparing, named
from pipeline.in_memory.spaces import in_unit
from pipeline.numerics.checks import compared_number
from pipeline.numerics.kernels import Kernel, dissimilarities_from_similarities
from pipeline.numerics.metrics import SCALE_FREE, distances, require_directions
from pipeline.types import AnyArray, FloatArray, IntArray


class Measure(Protocol):
    """Dissimilarities of rows, which are in the user's units, to the landmarks: in units of 2^exponent of these."""

    @property
    def exponent(self) -> int: ...

    def check(self, rows: AnyArray) -> None:
        """Refuse rows that cannot be measured."""

    def to_landmarks(self, rows: AnyArray) -> AnyArray:
        """Dissimilarities (p, m), of which each row depends on that row alone."""
        ...


@dataclass(frozen=True, eq=False)
class VectorMeasure:
    """Between vectors: by a metric, or induced by a kernel. landmarks (m, D) are in units of 2^data_exponent."""

    landmarks: FloatArray
    data_exponent: int
    metric: str
    kernel: Kernel | None = None

    @property
    def exponent(self) -> int:
        free = self.metric in SCALE_FREE if self.kernel is None else self.kernel.name != "linear"
        return 0 if free else self.data_exponent

    def check(self, rows: AnyArray) -> None:
        require_directions("X", rows, self.metric if self.kernel is None else self.kernel.name)

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return self.measured(in_unit(rows, self.data_exponent))

    def measured(self, points: AnyArray) -> FloatArray:
        """Dissimilarities (p, m) of points that are in the same units as the landmarks."""
        if self.kernel is not None:
            return self.kernel.dissimilarities(points, self.landmarks)
        return distances(self.metric, points, self.landmarks)


@dataclass(frozen=True, eq=False)
class FunctionMetric:
    """By a function of the user's, called once for every row and every landmark (m, D)."""

    function: Comparing
    landmarks: AnyArray
    exponent: int = 0

    def check(self, rows: AnyArray) -> None:
        """Any row may be compared; what the function says is looked at."""

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return np.asarray(np.ldexp(self.values(rows), -self.exponent))

    def values(self, rows: AnyArray) -> FloatArray:
        """What it says of rows and landmarks (p, m)."""
        return _table("metric", self.function, rows, self.landmarks)


@dataclass(frozen=True, eq=False)
class FunctionKernel:
    """By the dissimilarities that a function of the user's, an inner product, induces; `own` (m,) are the landmarks'
    with themselves."""

    function: Comparing
    landmarks: AnyArray
    own: FloatArray
    exponent: int = 0

    def check(self, rows: AnyArray) -> None:
        """Any row may be compared; what the function says is looked at."""

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return self.induced(self.values(rows), self.of_themselves(rows))

    def values(self, rows: AnyArray) -> FloatArray:
        """What it says of rows and landmarks (p, m)."""
        return _table("kernel", self.function, rows, self.landmarks)

    def of_themselves(self, rows: AnyArray) -> FloatArray:
        """What it says of every row and itself (p,)."""
        return np.array([_table("kernel", self.function, row[None], row[None])[0, 0] for row in rows])

    def induced(self, values: FloatArray, own: FloatArray) -> FloatArray:
        scaled = (np.ldexp(part, -2 * self.exponent) for part in (values, own, self.own))
        return dissimilarities_from_similarities(*scaled)


@dataclass(frozen=True, eq=False)
class GivenColumns:
    """Rows are dissimilarities to all training points, some of which (m,) are the landmarks."""

    landmarks: IntArray
    exponent: int

    def check(self, rows: AnyArray) -> None:
        require_nonnegative(rows)

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        # Rows stay contiguous, as compiled loops take them.
        return np.asarray(np.ldexp(np.take(rows, self.landmarks, axis=1).astype(np.float64), -self.exponent))


def _table(argument: str, function: Comparing, rows: AnyArray, others: AnyArray) -> FloatArray:
    values = np.empty((len(rows), len(others)))
    for i, one in enumerate(rows):
        for j, other in enumerate(others):
            words = partial(_words, argument, function, one, other)
            values[i, j] = compared_number(function(one, other), argument == "kernel", words)
    return values


def _words(argument: str, function: Comparing, one: AnyArray, other: AnyArray, given: str) -> str:
    return f"{argument}={named(function)} gives {given} for the rows {_shown(one)} and {_shown(other)} of X"


def _shown(row: AnyArray) -> str:
    return np.array2string(row, precision=4, threshold=6, edgeitems=2)
