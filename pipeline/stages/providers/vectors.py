"""Vectors: dissimilarities computed whenever they are read, by a metric or induced by a kernel.

Landmarks are drawn by rank among the usable rows, so for the same seed they are those of `LandmarkIsomap` where no row
repeats. Distances that choose them are Euclidean whatever the metric: the choice bears on quality, not on meaning.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.methods import DIRECTIONAL
from pipeline.numerics.directions import require_directions
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.landmarks.choices import chosen_points
from pipeline.numerics.landmarks.sampling import maxmin_candidates, random_landmarks
from pipeline.numerics.mds import Model
from pipeline.numerics.models.metrics import Kernel, automatic_gamma, distances, gamma_in_unit
from pipeline.numerics.models.spectral import NystromPlacer, nystrom_error
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.picking import n_usable, points_of_rows, rows_of_rank
from pipeline.stages.providers.provider import Candidates, RowProvider
from pipeline.stages.stage import Outcome
from pipeline.stages.validate import PreparedSource, usable_rows
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# How much larger the next sample is where one has too few distinct rows.
ENLARGED = 8


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as the user names it: gamma is in the data's own units, None to be found from the landmarks."""

    name: str
    gamma: float | None = None
    degree: int = 3
    constant: float = 1.0


@dataclass(frozen=True)
class VectorRows(RowProvider):
    """Dissimilarities between vectors."""

    data: PreparedSource
    landmarks: Outcome
    metric: str = "euclidean"
    kernel: KernelChoice | None = None

    @property
    def identity(self) -> list[str]:
        return [*self.data.identity, self.landmarks.ledger.digest, f"metric={self.metric}", f"kernel={self.kernel}"]

    @property
    def exponent(self) -> int:
        free = self.metric in DIRECTIONAL if self.kernel is None else self.kernel.name != "linear"
        return 0 if free else self.data.preprocessing.result_exponent

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        points = self.data.read(start, stop)
        usable = usable_rows(points)
        self._require_directions(points[usable], np.flatnonzero(usable) + start)
        return self.measured(points if usable.all() else points[usable]), usable

    def between(self) -> FloatArray:
        self._require_directions(self._points, self.landmark_rows)
        found = self.measured(self._points)
        return (found + found.T) / 2

    def measured(self, points: AnyArray) -> FloatArray:
        """Dissimilarities (p, m) of points (p, D) in the run's units to the landmarks."""
        return self._apart(points, self._points)

    def between_rows(self, rows: IntArray) -> FloatArray:
        points = self.data.read(int(rows[0]), int(rows[-1]) + 1)[rows - rows[0]]
        return self._apart(points, points)

    def points(self, numbers: IntArray, partitions: RowPartitions) -> AnyArray | None:
        return points_of_rows(self.data, partitions, numbers) if self.metric == "euclidean" else None

    @property
    def n_columns(self) -> int:
        return self.data.n_columns

    def apart(self, sources: IntArray, targets: IntArray, partitions: RowPartitions) -> FloatArray | None:
        points = (points_of_rows(self.data, partitions, numbers) for numbers in (sources, targets))
        return self._apart(*points)

    def nystrom(self, model: Model, numbers: IntArray, partitions: RowPartitions) -> Json:
        if not isinstance(model, NystromPlacer):
            return {}
        points = points_of_rows(self.data, partitions, numbers)
        lengths = self.between(), self.measured(points), self._apart(points, points)
        return {"nystrom_error": nystrom_error(*(np.exp(-model.gamma * apart**2) for apart in lengths))}

    def _apart(self, points: AnyArray, others: AnyArray) -> FloatArray:
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


class Sampled(NamedTuple):
    """Points (c, D), no two the same, and their rows (c,); `first` is where a search for far ones begins."""

    points: AnyArray
    rows: IntArray
    first: int


@dataclass(frozen=True)
class VectorCandidates(Candidates):
    """Keeps the points `points` (m, D) of the landmarks, in the run's units. Where rows repeat there may be fewer of
    them than are wanted, but no fewer than `least`."""

    data: PreparedSource
    partitions: RowPartitions
    least: int

    marks: ClassVar[Json] = {"direct": True}

    @property
    def identity(self) -> list[str]:
        return self.data.identity

    def chosen(self, n_landmarks: int, selection: str, seed: int) -> dict[str, AnyArray]:
        points, rows = self._chosen(n_landmarks, selection, seed)
        return {"points": points.astype(np.float64), "rows": rows}

    def _chosen(self, n_landmarks: int, selection: str, seed: int) -> tuple[AnyArray, IntArray]:
        n = n_usable(self.data)
        if selection == "random":
            points, rows = rows_of_rank(self.data, self.partitions, random_landmarks(n, n_landmarks, seed))
            if len(collapse_duplicates(points).first_rows) == n_landmarks:
                return points, rows
        points, rows, first = self._candidates(n, n_landmarks, seed)
        chosen = chosen_points(selection, points, first, min(n_landmarks, len(points)), seed)
        return points[chosen], rows[chosen]

    def _candidates(self, n: int, n_landmarks: int, seed: int) -> Sampled:
        """A sample with enough distinct rows; larger and larger ones, if rows repeat."""
        wanted = n_landmarks
        while True:
            ranks, first = maxmin_candidates(n, min(n, wanted), seed)
            points, rows = rows_of_rank(self.data, self.partitions, ranks)
            distinct = collapse_duplicates(points)
            leading = distinct.first_rows
            if len(ranks) == n:
                require_distinct(self.data.source.name, "rows", len(leading), n_landmarks, self.least)
            if len(ranks) == n or len(leading) >= n_landmarks:
                return Sampled(points[leading], rows[leading], int(distinct.node_of[first]))
            wanted *= ENLARGED


def require_distinct(name: str, what: str, n_distinct: int, n_landmarks: int, least: int) -> None:
    """Refuse landmarks where there are fewer distinct rows, or objects, than there must be."""
    if n_distinct < least:
        asked = f"n_landmarks={n_landmarks}" if least == n_landmarks else f"n_components={least - 1}"
        most = n_distinct if least == n_landmarks else n_distinct - 1
        raise InvalidInputError(
            f"{asked} is out of range; {name} has {n_distinct} distinct {what}: use at most {most}."
        )
