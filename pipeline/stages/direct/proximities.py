"""Proximities that are given: a matrix of landmarks x points, of which a block of points is read at a time.

A square matrix of all points has any of its rows for landmarks, and only those are ever read. Of any other every row is
a landmark, and an array beside it says which points they are.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.kernels import dissimilarities_from_similarities
from pipeline.numerics.landmark_choice import choose_by_dissimilarities
from pipeline.numerics.landmarks import random_landmarks
from pipeline.partitions import GRAIN_ROWS, RowPartitions
from pipeline.sources.proximities import (
    ProximitySource,
    check_dissimilarity_block,
    check_similarity_block,
    landmark_dissimilarities,
    landmark_similarities,
    open_vector,
)
from pipeline.stages.direct.providers import rows_per_block
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.stages.validate import digest_of_rows
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Of a square matrix, points that landmarks are chosen among: their own matrix takes 128 MB.
MOST_CANDIDATES = 4096
# Points whose similarities to themselves are read together off the diagonal.
DIAGONAL_ROWS = 256


def fingerprint_of(source: ProximitySource) -> str:
    return repr(sorted(source.fingerprint().items()))


@dataclass(frozen=True)
class GivenLandmarks(SingleStage):
    """Points `rows` (m,) that the landmarks are, and their rows `matrix_rows` (m,) of the matrix; of similarities also
    those of the landmarks to themselves, `own` (m,)."""

    source: ProximitySource
    landmarks_key: str | None
    n_landmarks: int
    selection: str
    similarities: bool
    seed: int
    name = "landmarks"

    def settings(self) -> Json:
        choice = {"n_landmarks": self.n_landmarks, "selection": self.selection, "seed": self.seed}
        return {**choice, "landmarks_key": self.landmarks_key, "similarities": self.similarities}

    def inputs(self) -> list[str]:
        return [fingerprint_of(self.source)]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        matrix_rows, rows = self._chosen()
        checked = landmark_similarities if self.similarities else landmark_dissimilarities
        between = checked(self.source.entries(matrix_rows, rows), matrix_rows, rows, self.source.name)
        arrays: dict[str, AnyArray] = {"matrix_rows": matrix_rows, "rows": rows}
        arrays |= {"own": between.diagonal().copy()} if self.similarities else {}
        for name, array in arrays.items():
            ledger.write(name, array)
        return {"n_landmarks": len(rows), "n_matrix_rows": self.source.n_landmarks}, list(arrays)

    def _chosen(self) -> tuple[IntArray, IntArray]:
        if self.landmarks_key is not None:
            rows = landmark_points(self.source, self.landmarks_key)
            return np.arange(len(rows)), rows
        chosen = self._chosen_points()
        return chosen, chosen

    def _chosen_points(self) -> IntArray:
        n, m = self.source.n_points, self.n_landmarks
        if m == n:
            return np.arange(n)
        if self.selection == "random":
            return random_landmarks(n, m, self.seed)
        candidates = random_landmarks(n, max(m, min(n, MOST_CANDIDATES)), self.seed)
        between = landmark_dissimilarities(
            self.source.entries(candidates, candidates), candidates, candidates, self.source.name
        )
        return np.sort(candidates[choose_by_dissimilarities(self.selection, between, m, self.seed)])


def landmark_points(source: ProximitySource, key: str) -> IntArray:
    """The point that each landmark is: an array beside the matrix, or a file of its own."""
    found = _vector(source, key)
    rows = checks.row_indices("landmarks_key", found, source.n_points)
    if len(rows) != source.n_landmarks or len(np.unique(rows)) != len(rows):
        raise InvalidInputError(
            f"landmarks_key={key!r} names {len(rows)} points, {len(np.unique(rows))} of them different; {source.name} "
            f"has {source.n_landmarks} rows, and each must be another point."
        )
    return rows


def _vector(source: ProximitySource, key: str) -> AnyArray:
    if Path(key).suffix == ".npy":
        rows = open_vector(key)
        return rows.read(0, rows.shape[0])
    return source.companion(key)


@dataclass(frozen=True)
class ScanProximities(Stage):
    """Look at every proximity that will be used, before anything expensive. `content` is their digest."""

    source: ProximitySource
    landmarks: Outcome
    partitions: RowPartitions
    similarities: bool
    name = "validate"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each, "similarities": self.similarities}

    def inputs(self) -> list[str]:
        return [fingerprint_of(self.source), self.landmarks.ledger.digest]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        largest, digests = 0.0, []
        for grain in self.partitions.grains(partition):
            digest = hashlib.sha256()
            for start, block in self._blocks(grain):
                self._check(block, start)
                digest.update(digest_of_rows(block).encode())
                largest = max(largest, float(np.abs(block).max(initial=0.0)))
            digests.append(digest.hexdigest())
        return {"largest": largest, "digests": digests}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        largest = max(entry["largest"] for entry in figures.values())
        if largest == 0:
            raise InvalidInputError(f"{self.source.name} is 0 everywhere; there is nothing to embed.")
        digests = [digest for partition in sorted(figures) for digest in figures[partition]["digests"]]
        content = hashlib.sha256(repr((self.source.shape, digests)).encode()).hexdigest()
        report = {"content": content, "largest": largest, "n_rows": self.source.n_points, "n_dropped_rows": 0}
        return {**report, "rows_each": self.partitions.rows_each}, []

    def _blocks(self, grain: range) -> Iterator[tuple[int, FloatArray]]:
        """The grain's points in blocks of a size that depends on nothing else than the landmarks."""
        step = min(GRAIN_ROWS, rows_per_block(int(self.landmarks.figures["n_landmarks"])))
        for start in grain[::step]:
            yield start, self.source.columns(start, min(start + step, grain.stop), self._matrix_rows)

    def _check(self, block: FloatArray, first: int) -> None:
        checked = check_similarity_block if self.similarities else check_dissimilarity_block
        checked(block, first, self.source.name, self._matrix_rows)

    @cached_property
    def _matrix_rows(self) -> IntArray:
        return rows_of_landmarks(self.source, self.landmarks)


def rows_of_landmarks(source: ProximitySource, landmarks: Outcome) -> IntArray:
    """The rows (m,) of a matrix that the landmarks have: one like that of the fit, or one of landmarks alone."""
    n_landmarks, n_rows = (int(landmarks.figures[name]) for name in ("n_landmarks", "n_matrix_rows"))
    if source.n_landmarks == n_rows:
        return np.asarray(landmarks.ledger.read("matrix_rows").read())
    if source.n_landmarks == n_landmarks:
        return np.arange(n_landmarks)
    either = f"{n_rows} rows, like the fitted one, or " if n_rows != n_landmarks else ""
    raise InvalidInputError(
        f"{source.name} has shape {source.shape}; it must have {either}{n_landmarks} rows, one for each landmark in "
        "order, and a column for each point: transpose it if it is the other way round."
    )


@dataclass(frozen=True)
class GivenRows:
    """A provider of proximities as they are given; similarities as the dissimilarities that they induce, unless
    `affinity` takes them as they are. `own_key` names those of each point to itself, else on the diagonal. New points
    are measured in units of 2^`fitted_exponent`, those of the fit.
    """

    source: ProximitySource
    scanned: Outcome
    landmarks: Outcome
    similarities: bool = False
    affinity: bool = False
    own_key: str | None = None
    fitted_exponent: int | None = None

    @property
    def identity(self) -> list[str]:
        kind = f"similarities={self.similarities} affinity={self.affinity} own={self.own_key}"
        return [str(self.scanned.figures["content"]), self.landmarks.ledger.digest, kind]

    @property
    def n_landmarks(self) -> int:
        return int(self.landmarks.figures["n_landmarks"])

    @property
    def exponent(self) -> int:
        if self.fitted_exponent is not None:
            return self.fitted_exponent
        exponent = int(np.frexp(self.scanned.figures["largest"])[1])
        return 0 if self.affinity else exponent // 2 if self.similarities else exponent

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        block = self.source.columns(start, stop, self._matrix_rows)
        everything = np.ones(stop - start, dtype=np.bool_)
        if self.affinity:
            return block, everything
        if not self.similarities:
            return np.ldexp(block, -self.exponent), everything
        return self._induced(block, self._own(start, stop)), everything

    def between(self) -> FloatArray:
        rows = self._landmark_points
        found = self.source.entries(self._matrix_rows, rows)
        if not self.similarities:
            return np.ldexp(landmark_dissimilarities(found, self._matrix_rows, rows, self.source.name), -self.exponent)
        found = landmark_similarities(found, self._matrix_rows, rows, self.source.name)
        return found if self.affinity else self._induced(found, found.diagonal())

    def _induced(self, similarities: FloatArray, own: FloatArray) -> FloatArray:
        """Signed roots of squared dissimilarities [T eq. 2-5]."""
        of_landmarks = self.landmarks.ledger.read("own").read()
        scaled = (np.ldexp(part, -2 * self.exponent) for part in (similarities, own, of_landmarks))
        return dissimilarities_from_similarities(*scaled)

    def _own(self, start: int, stop: int) -> FloatArray:
        if self.own_key is not None:
            return self._own_values[start:stop]
        if not self.source.is_square:
            raise InvalidInputError(
                f"{self.source.name} does not have the similarities of points to themselves; name an array of them "
                "with own_key."
            )
        parts = []
        for first in range(start, stop, DIAGONAL_ROWS):
            rows = np.arange(first, min(first + DIAGONAL_ROWS, stop))
            parts.append(self.source.columns(first, int(rows[-1]) + 1, rows).diagonal())
        return np.concatenate(parts)

    @cached_property
    def _own_values(self) -> FloatArray:
        values = _vector(self.source, self.own_key or "").astype(np.float64)
        if len(values) != self.source.n_points:
            raise InvalidInputError(
                f"own_key={self.own_key!r} has {len(values)} entries; {self.source.name} has {self.source.n_points} "
                "points: one is needed for each."
            )
        checks.require_finite("own_key", values)
        return values

    @cached_property
    def _landmark_points(self) -> IntArray:
        return np.asarray(self.landmarks.ledger.read("rows").read())

    @cached_property
    def _matrix_rows(self) -> IntArray:
        return rows_of_landmarks(self.source, self.landmarks)
