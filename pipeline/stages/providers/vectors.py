"""Where the dissimilarities to the landmarks come from, block of rows by block of rows.

A provider is small enough to be sent to workers. What it gives for a row does not depend on the rows beside it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pipeline.numerics.models.kernels import Kernel, automatic_gamma, gamma_in_unit
from pipeline.numerics.models.metrics import SCALE_FREE, distances, require_directions
from pipeline.stages.preprocess import PreparedSource
from pipeline.stages.stage import Outcome
from pipeline.stages.validate import usable_rows
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# What a block of dissimilarities may take: 64 MB.
BLOCK_BYTES = 1 << 26


class Provider(Protocol):
    """Dissimilarities to m landmarks. Lengths are in units of 2^exponent of the user's."""

    @property
    def identity(self) -> list[str]:
        """What names all that it gives, for the stages that read it."""
        ...

    @property
    def n_landmarks(self) -> int: ...

    @property
    def exponent(self) -> int: ...

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        """Dissimilarities (u, m) of the usable rows among those from `start` up to `stop`, and which are (p,)."""
        ...

    def between(self) -> FloatArray:
        """Dissimilarities (m, m) between the landmarks: symmetric, the diagonal 0."""
        ...


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as the user names it: gamma is in the data's own units, None to be found from the landmarks."""

    name: str
    gamma: float | None = None
    degree: int = 3
    constant: float = 1.0


@dataclass(frozen=True)
class VectorRows:
    """Dissimilarities between vectors, computed whenever they are read: by a metric, or induced by a kernel."""

    data: PreparedSource
    landmarks: Outcome
    metric: str = "euclidean"
    kernel: KernelChoice | None = None

    @property
    def identity(self) -> list[str]:
        return [*self.data.identity, self.landmarks.ledger.digest, f"metric={self.metric}", f"kernel={self.kernel}"]

    @property
    def n_landmarks(self) -> int:
        return int(self.landmarks.figures["n_landmarks"])

    @property
    def exponent(self) -> int:
        free = self.metric in SCALE_FREE if self.kernel is None else self.kernel.name != "linear"
        return 0 if free else self.data.preprocessing.result_exponent

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        points = self.data.read(start, stop)
        usable = usable_rows(points)
        self._require_directions(points[usable], np.flatnonzero(usable) + start)
        return self.measured(points if usable.all() else points[usable]), usable

    def between(self) -> FloatArray:
        self._require_directions(self._points, self.landmarks.ledger.read("rows").read())
        found = self.measured(self._points)
        return (found + found.T) / 2

    def measured(self, points: AnyArray) -> FloatArray:
        """Dissimilarities (p, m) of points (p, D) in the run's units to the landmarks."""
        return self.compared(points, self._points)

    def compared(self, points: AnyArray, others: AnyArray) -> FloatArray:
        """Dissimilarities (p, q) between points (p, D) and others (q, D) in the run's units."""
        if self.kernel is not None:
            return self._kernel.dissimilarities(points, others)
        return distances(self.metric, points, others)

    def _require_directions(self, points: AnyArray, rows: IntArray) -> None:
        """Refuse points, of those rows of the source, whose angles to others are not defined."""
        metric = self.metric if self.kernel is None else self.kernel.name
        require_directions(self.data.source.name, points, metric, rows)

    @cached_property
    def _points(self) -> FloatArray:
        return np.asarray(self.landmarks.ledger.read("points").read())

    @cached_property
    def _kernel(self) -> Kernel:
        given = self.kernel or KernelChoice("linear")
        told = gamma_in_unit(given.gamma, self.data.preprocessing.result_exponent)
        gamma = automatic_gamma(self._points) if told is None else told
        return Kernel(given.name, gamma, given.degree, given.constant)


def rows_per_block(n_landmarks: int) -> int:
    """How many rows' dissimilarities are in memory at once."""
    return max(1, BLOCK_BYTES // (8 * n_landmarks))
