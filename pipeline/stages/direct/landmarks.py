"""Stage 5 of a direct method, landmarks: rows chosen from a sample, no two the same, kept with their points.

They are drawn by rank among the usable rows, so for the same seed they are those of `LandmarkIsomap` where no row
repeats. Distances that choose them are Euclidean whatever the metric: the choice bears on quality, not on meaning.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.landmarks.choices import chosen_points
from pipeline.numerics.landmarks.sampling import maxmin_candidates, random_landmarks
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.preprocess import PreparedSource, n_usable, rows_of_rank
from pipeline.stages.stage import SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, IntArray, Json

# How much larger the next sample is where one has too few distinct rows.
ENLARGED = 8


class Candidates(NamedTuple):
    """Points (c, D), no two the same, and their rows (c,); `first` is where a search for far ones begins."""

    points: AnyArray
    rows: IntArray
    first: int


@dataclass(frozen=True)
class DirectLandmarks(SingleStage):
    """Rows `rows` (m,) and points `points` (m, D) of the landmarks, in the run's units. Where rows repeat there may be
    fewer of them than are wanted, but no fewer than `least`."""

    data: PreparedSource
    partitions: RowPartitions
    n_landmarks: int
    least: int
    selection: str
    seed: int
    name = "landmarks"

    def settings(self) -> Json:
        return {"n_landmarks": self.n_landmarks, "selection": self.selection, "seed": self.seed, "direct": True}

    def inputs(self) -> list[str]:
        return self.data.identity

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        points, rows = self._chosen()
        ledger.write("points", points.astype(np.float64))
        ledger.write("rows", rows)
        return {"n_landmarks": len(rows)}, ["points", "rows"]

    def _chosen(self) -> tuple[AnyArray, IntArray]:
        n = n_usable(self.data)
        if self.selection == "random":
            points, rows = rows_of_rank(self.data, self.partitions, random_landmarks(n, self.n_landmarks, self.seed))
            if len(collapse_duplicates(points).first_rows) == self.n_landmarks:
                return points, rows
        points, rows, first = self._candidates(n)
        chosen = chosen_points(self.selection, points, first, min(self.n_landmarks, len(points)), self.seed)
        return points[chosen], rows[chosen]

    def _candidates(self, n: int) -> Candidates:
        """A sample with enough distinct rows; larger and larger ones, if rows repeat."""
        wanted = self.n_landmarks
        while True:
            ranks, first = maxmin_candidates(n, min(n, wanted), self.seed)
            points, rows = rows_of_rank(self.data, self.partitions, ranks)
            distinct = collapse_duplicates(points)
            leading = distinct.first_rows
            if len(ranks) == n:
                require_distinct(self.data.source.name, "rows", len(leading), self.n_landmarks, self.least)
            if len(ranks) == n or len(leading) >= self.n_landmarks:
                return Candidates(points[leading], rows[leading], int(distinct.node_of[first]))
            wanted *= ENLARGED


def require_distinct(name: str, what: str, n_distinct: int, n_landmarks: int, least: int) -> None:
    """Refuse landmarks where there are fewer distinct rows, or objects, than there must be."""
    if n_distinct < least:
        asked = f"n_landmarks={n_landmarks}" if least == n_landmarks else f"n_components={least - 1}"
        most = n_distinct if least == n_landmarks else n_distinct - 1
        raise InvalidInputError(
            f"{asked} is out of range; {name} has {n_distinct} distinct {what}: use at most {most}."
        )
