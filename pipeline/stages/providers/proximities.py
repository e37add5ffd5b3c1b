"""Proximities that are given: a matrix of landmarks x points, of which a block of points is read at a time.

A square matrix of all points has any of its rows for landmarks. Once they are chosen only those are read, and of
similarities the diagonal. Of any other every row is a landmark, and an array beside it says which points they are.
"""

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from pipeline.errors import DiagonalWarning, InvalidInputError
from pipeline.methods import RANGES
from pipeline.numerics.landmarks.choices import chosen_by_dissimilarities
from pipeline.numerics.models.metrics import dissimilarities_from_similarities, impossible_in_words
from pipeline.sources.arrays import Rows
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.sources.proximities import (
    ProximitySource,
    check_dissimilarity_block,
    check_similarity_block,
    digest_of_vector,
    landmark_dissimilarities,
    landmark_points,
    landmark_similarities,
    new_dissimilarities,
    new_similarities,
    no_own_similarities,
    own_similarities,
)
from pipeline.stages.providers.provider import Candidates, Lineage, RowProvider, rows_per_block
from pipeline.stages.stage import Cost, Outcome, Shape
from pipeline.stages.validate import Scan, digest_of_rows, fingerprint_of
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Points whose similarities to themselves are read together off the diagonal.
DIAGONAL_ROWS = 256


@dataclass(frozen=True)
class MatrixCandidates(Candidates):
    """Keeps the landmarks' rows `matrix_rows` (m,) of the matrix, and for similarities those of the landmarks to
    themselves, `own` (m,)."""

    source: ProximitySource
    landmarks_key: str | None
    similarities: bool

    @property
    def marks(self) -> Json:
        return {"landmarks_key": self.landmarks_key, "similarities": self.similarities}

    @property
    def identity(self) -> list[str]:
        if self.landmarks_key is None:
            return [fingerprint_of(self.source)]
        return [fingerprint_of(self.source), digest_of_vector("landmarks_key", self.source, self.landmarks_key)]

    def chosen(self, n_landmarks: int, selection: str, seed: int) -> dict[str, AnyArray]:
        matrix_rows, rows = self._chosen(n_landmarks, selection, seed)
        checked = landmark_similarities if self.similarities else landmark_dissimilarities
        between = checked(self.source.entries(matrix_rows, rows), matrix_rows, rows, self.source.name)
        arrays: dict[str, AnyArray] = {"matrix_rows": matrix_rows, "rows": rows}
        return arrays | ({"own": between.diagonal().copy()} if self.similarities else {})

    def figures(self) -> Json:
        return {"n_matrix_rows": self.source.n_landmarks}

    def _chosen(self, n_landmarks: int, selection: str, seed: int) -> tuple[IntArray, IntArray]:
        if self.landmarks_key is not None:
            rows = landmark_points(self.source, self.landmarks_key)
            return np.arange(len(rows)), rows
        chosen = chosen_by_dissimilarities(selection, self.source.n_points, self._between, n_landmarks, seed)
        return chosen, chosen

    def _between(self, rows: IntArray) -> FloatArray:
        return landmark_dissimilarities(self.source.entries(rows, rows), rows, rows, self.source.name)


def warn_of_diagonal(source: ProximitySource, landmarks: Outcome) -> None:
    """Warn of similarities between the landmarks that no distances go with."""
    rows, matrix_rows = (landmarks.ledger.read(name).read() for name in ("rows", "matrix_rows"))
    said = impossible_in_words(source.entries(matrix_rows, rows))
    if said:
        warnings.warn(said, DiagonalWarning, stacklevel=3)


@dataclass(frozen=True)
class ScanProximities(Scan):
    """Look at every proximity that will be used, before anything expensive. `content` is their digest. Similarities may
    be negative, unless they are taken for affinities."""

    source: ProximitySource
    landmarks: Outcome
    partitions: RowPartitions
    similarities: bool
    affinity: bool = False
    depends_on = ("similarities",)

    def settings(self) -> Json:
        return {**super().settings(), **({"affinity": True} if self.affinity else {})}

    def inputs(self) -> list[str]:
        return [*super().inputs(), self.landmarks.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        check = check_dissimilarity_block
        if self.similarities:
            check = partial(check_similarity_block, are_affinities=self.affinity)
        largest, digests = 0.0, []
        for grain in self.partitions.grains(partition):
            digest = hashlib.sha256()
            for start, block in self._blocks(grain):
                check(block, start, self.source.name, self._matrix_rows)
                digest.update(digest_of_rows(block).encode())
                largest = max(largest, float(np.abs(block).max(initial=0.0)))
            digests.append(digest.hexdigest())
        return {"largest": largest, "digests": digests}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        largest = max(entry["largest"] for entry in figures.values())
        if largest == 0:
            raise InvalidInputError(f"{self.source.name} is 0 everywhere; there is nothing to embed.")
        report = self.content(figures, self.source.shape)
        return {**report, "largest": largest, "n_rows": self.source.n_points, "n_dropped_rows": 0}, []

    def _blocks(self, grain: range) -> Iterator[tuple[int, FloatArray]]:
        """The grain's points in blocks of a size that depends on nothing else than the landmarks."""
        step = min(GRAIN_ROWS, rows_per_block(int(self.landmarks.figures["n_landmarks"])))
        for start in grain[::step]:
            yield start, self.source.columns(start, min(start + step, grain.stop), self._matrix_rows)

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
class ScanBetween(Scan):
    """Look at the proximities between new points that are reconstructed together, blocks of `block_rows` of a grain;
    their similarities to themselves are in `own`."""

    source: ProximitySource
    partitions: RowPartitions
    block_rows: int
    own: Rows | None
    name = "between"
    depends_on = ("block_rows",)

    def settings(self) -> Json:
        return {**super().settings(), "similarities": self.own is not None}

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        digests = []
        for grain in self.partitions.grains(partition):
            digest = hashlib.sha256()
            for start in grain[:: self.block_rows]:
                rows = np.arange(start, min(start + self.block_rows, grain.stop))
                digest.update(digest_of_rows(self._checked(rows)).encode())
            digests.append(digest.hexdigest())
        return {"digests": digests}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return self.content(figures, self.source.shape, self.block_rows), []

    def _checked(self, rows: IntArray) -> FloatArray:
        if self.own is None:
            return new_dissimilarities(self.source, rows)
        own = self.own.read(int(rows[0]), int(rows[-1]) + 1).astype(np.float64)
        return new_similarities(self.source, rows, own)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        # A block, and what its symmetry is checked by.
        return Cost(8 * 8 * int(RANGES["joint"].high or 0) ** 2)


class NewProximities(NamedTuple):
    """The proximities between new points, and the scan of those that are used."""

    source: ProximitySource
    scanned: Outcome


@dataclass(frozen=True)
class PrecomputedRows(RowProvider):
    """A provider of proximities as they are given; similarities as the dissimilarities that they induce, unless
    `affinity` takes them as they are. `own_key` names those of each point to itself, else on the diagonal.

    With `nearest_own` nothing is nearer to a landmark than it is to itself, as methods need it that let landmarks
    return to themselves: on a diagonal of dissimilarities there may be rounding, and on one of affinities any value.

    New points are measured in units of 2^`fitted_exponent`, those of the fit. A matrix of them has no diagonal, and
    what they are to each other is in another, if it is needed.
    """

    source: ProximitySource
    scanned: Outcome
    landmarks: Outcome
    similarities: bool = False
    affinity: bool = False
    own_key: str | None = None
    fitted_exponent: int | None = None
    nearest_own: bool = False
    new: NewProximities | None = None

    @property
    def identity(self) -> list[str]:
        content = [str(self.scanned.figures["content"]), self.landmarks.ledger.digest]
        # The name that existing stores have for it.
        zero = " zero_own" if self.nearest_own else ""
        if self.affinity:
            return [*content, f"affinities{zero}"]
        return [*content, f"similarities={self.similarities} affinity=False own={self._own_digest}{zero}"]

    def lineage(self, stage: str) -> Lineage:
        general = super().lineage(stage)
        if stage != "joint" or self.new is None:
            return general
        return general._replace(inputs=(*general.inputs, str(self.new.scanned.figures["content"])))

    @property
    def exponent(self) -> int:
        if self.fitted_exponent is not None:
            return self.fitted_exponent
        exponent = int(np.frexp(self.scanned.figures["largest"])[1])
        return 0 if self.affinity else exponent // 2 if self.similarities else exponent

    def apart(self, sources: IntArray, targets: IntArray, partitions: RowPartitions) -> FloatArray | None:
        is_square = self.source.n_landmarks == self.source.n_points
        if self.similarities or self.affinity or not is_square:
            return None
        return np.ldexp(self.source.entries(sources, targets), -self.exponent)

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        return self._measured(start, stop), np.ones(stop - start, dtype=np.bool_)

    def between_rows(self, rows: IntArray) -> FloatArray:
        if self.new is None:
            raise TypeError("proximities between these points are not known")
        if not self.similarities:
            return np.ldexp(new_dissimilarities(self.new.source, rows), -self.exponent)
        own = self._own(int(rows[0]), int(rows[-1]) + 1)[rows - rows[0]]
        found = new_similarities(self.new.source, rows, own)
        return dissimilarities_from_similarities(found, own, own, self.exponent)

    def between(self) -> FloatArray:
        rows = self.landmark_rows
        found = self.source.entries(self._matrix_rows, rows)
        if not self.similarities:
            return np.ldexp(landmark_dissimilarities(found, self._matrix_rows, rows, self.source.name), -self.exponent)
        found = landmark_similarities(found, self._matrix_rows, rows, self.source.name)
        if not self.affinity:
            return self._induced(found, found.diagonal())
        return found

    def _measured(self, start: int, stop: int) -> FloatArray:
        block = self.source.columns(start, stop, self._matrix_rows)
        if self.similarities and not self.affinity:
            return self._induced(block, self._own(start, stop))
        if self.nearest_own:
            points = self.landmark_rows
            here = np.flatnonzero((start <= points) & (points < stop))
            rows = points[here] - start
            block[rows, here] = block[rows].max(axis=1) if self.affinity else 0.0
        return block if self.affinity else np.ldexp(block, -self.exponent)

    def _induced(self, similarities: FloatArray, own: FloatArray) -> FloatArray:
        """Signed roots of squared dissimilarities [T eq. 2-5]."""
        return dissimilarities_from_similarities(similarities, own, self._own_of_landmarks, self.exponent)

    def _own(self, start: int, stop: int) -> FloatArray:
        if self.own_key is not None:
            return self._own_rows.read(start, stop).astype(np.float64)
        if self.fitted_exponent is not None or not self.source.is_square:
            raise no_own_similarities(self.source)
        if self.n_landmarks == self.source.n_points:
            # Rows of the matrix may be in another order than its columns then.
            return self._own_of_landmarks[np.argsort(self.landmark_rows)[start:stop]]
        parts = []
        for first in range(start, stop, DIAGONAL_ROWS):
            rows = np.arange(first, min(first + DIAGONAL_ROWS, stop))
            parts.append(self.source.columns(first, int(rows[-1]) + 1, rows).diagonal())
        return np.concatenate(parts)

    @cached_property
    def _own_digest(self) -> str | None:
        return None if self.own_key is None else digest_of_vector("own_key", self.source, self.own_key)

    @cached_property
    def _own_rows(self) -> Rows:
        return own_similarities(self.source, self.own_key or "")

    @cached_property
    def _own_of_landmarks(self) -> FloatArray:
        return np.asarray(self.landmarks.ledger.read("own").read())

    @cached_property
    def _matrix_rows(self) -> IntArray:
        return rows_of_landmarks(self.source, self.landmarks)
