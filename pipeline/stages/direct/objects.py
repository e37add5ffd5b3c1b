"""Objects that are compared by a function of the user's: every landmark with every row, once, counted and kept.

A partition is a grain of rows against a few landmarks, so that a slow function still makes small pieces of work.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.kernels import dissimilarities_from_similarities
from pipeline.numerics.landmarks import random_landmarks
from pipeline.partitions import GRAIN_ROWS, RowPartitions
from pipeline.sources.objects import ObjectSource, digest_of_objects
from pipeline.sources.proximities import landmark_dissimilarities, landmark_similarities
from pipeline.stages.direct.functions import Comparison
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.stages.validate import as_ids, as_numbers
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

LANDMARKS_PER_TASK = 16
# How much larger the next sample is where one has too few different objects.
ENLARGED = 8


@dataclass(frozen=True)
class ScanObjects(Stage):
    """Read every object once; `content` is their digest."""

    source: ObjectSource
    partitions: RowPartitions
    name = "validate"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each, "objects": True}

    def inputs(self) -> list[str]:
        return [repr(sorted(self.source.fingerprint().items()))]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        grains = self.partitions.grains(partition)
        return {"digests": [digest_of_objects(self.source.read(grain.start, grain.stop)) for grain in grains]}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        digests = [digest for partition in sorted(figures) for digest in figures[partition]["digests"]]
        content = hashlib.sha256(repr((self.source.n_rows, self.source.is_text, digests)).encode()).hexdigest()
        report = {"content": content, "n_rows": self.source.n_rows, "n_dropped_rows": 0}
        return {**report, "rows_each": self.partitions.rows_each}, []


@dataclass(frozen=True)
class ObjectLandmarks(SingleStage):
    """Rows `rows` (m,) drawn at random, no two objects the same, and the objects themselves."""

    source: ObjectSource
    scanned: Outcome
    n_landmarks: int
    seed: int
    name = "landmarks"

    def settings(self) -> Json:
        return {"n_landmarks": self.n_landmarks, "selection": "random", "seed": self.seed, "objects": True}

    def inputs(self) -> list[str]:
        return [str(self.scanned.figures["content"])]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self._chosen()
        objects = self.source.take(rows)
        ledger.write("rows", rows)
        ledger.write("objects", as_numbers(np.array(objects)) if self.source.is_text else np.asarray(objects))
        return {"n_landmarks": len(rows), "is_text": self.source.is_text}, ["rows", "objects"]

    def _chosen(self) -> IntArray:
        size, n = self.n_landmarks, self.source.n_rows
        while True:
            rows = random_landmarks(n, min(n, size), self.seed)
            found = [digest_of_objects(one) for one in _each(self.source.take(rows))]
            distinct = np.sort(np.unique(found, return_index=True)[1])
            if len(distinct) >= self.n_landmarks:
                return rows[distinct[random_landmarks(len(distinct), self.n_landmarks, self.seed)]]
            if len(rows) == n:
                raise InvalidInputError(
                    f"n_landmarks={self.n_landmarks} is out of range; {self.source.name} has {len(distinct)} different "
                    "objects: use at most so many."
                )
            size *= ENLARGED


def _each(objects: Any) -> list[Any]:
    """Every object as a block of its own."""
    return [[one] for one in objects] if isinstance(objects, list) else list(objects[:, None])


def landmark_objects(landmarks: Outcome) -> Any:
    """The landmarks as the user's function takes them."""
    stored = landmarks.ledger.read("objects").read()
    return [str(one) for one in as_ids(stored)] if landmarks.figures["is_text"] else stored


@dataclass(frozen=True)
class Compare(Stage):
    """Values `values` (p, b) of each grain of rows and each few landmarks, in double precision; of a kernel also those
    of rows to themselves, `own` (p,), beside the first landmarks'. With a `subset`, only landmarks in it count."""

    source: ObjectSource
    scanned: Outcome
    landmarks: Outcome
    comparison: Comparison
    subset: Outcome | None = None
    name = "rows"

    def settings(self) -> Json:
        return {"provider": "function", "function": self.comparison.function, "is_kernel": self.comparison.is_kernel}

    def inputs(self) -> list[str]:
        subset = [] if self.subset is None else [self.subset.ledger.digest]
        return [str(self.scanned.figures["content"]), self.landmarks.ledger.digest, *subset]

    def n_partitions(self) -> int:
        return self._n_batches * -(-self.source.n_rows // GRAIN_ROWS)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        grain, batch = divmod(partition, self._n_batches)
        first = grain * GRAIN_ROWS
        objects = self.source.read(first, min(first + GRAIN_ROWS, self.source.n_rows))
        some = self._objects[batch * LANDMARKS_PER_TASK : (batch + 1) * LANDMARKS_PER_TASK]
        arrays = {"values": self.comparison.table(objects, some, first)}
        if self.comparison.is_kernel and batch == 0:
            arrays["own"] = self.comparison.own(objects, first)
        largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays.values())
        n_evaluations = sum(array.size for array in arrays.values())
        return {"largest": largest, "n_evaluations": n_evaluations}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        largest = max(entry["largest"] for entry in figures.values())
        n_evaluations = sum(entry["n_evaluations"] for entry in figures.values())
        return {"largest": largest, "n_evaluations": n_evaluations, "n_batches": self._n_batches}, []

    @cached_property
    def _objects(self) -> Any:
        objects = landmark_objects(self.landmarks)
        if self.subset is None:
            return objects
        return [objects[place] for place in self.subset.ledger.read("subset").read().tolist()]

    @property
    def _n_batches(self) -> int:
        n_compared = (
            self.landmarks.figures["n_landmarks"] if self.subset is None else self.subset.figures["n_evaluated"]
        )
        return -(-int(n_compared) // LANDMARKS_PER_TASK)


@dataclass(frozen=True)
class ComparedRows:
    """A provider of what `Compare` left; of a kernel, the dissimilarities that it induces.

    New rows are measured in units of 2^`fitted_exponent`, those of the fit, and their landmarks `own` values are kept.
    """

    compared: Outcome
    landmarks: Outcome
    is_kernel: bool
    name: str
    fitted_exponent: int | None = None
    fitted: Outcome | None = None

    @property
    def identity(self) -> list[str]:
        return [self.compared.ledger.digest, f"exponent={self.fitted_exponent}"]

    @property
    def n_landmarks(self) -> int:
        return int(self.landmarks.figures["n_landmarks"])

    @property
    def exponent(self) -> int:
        if self.fitted_exponent is not None:
            return self.fitted_exponent
        largest = self.compared.figures["largest"]
        if largest == 0:
            raise InvalidInputError(f"the {'kernel' if self.is_kernel else 'metric'} of {self.name} is 0 everywhere.")
        exponent = int(np.frexp(largest)[1])
        return exponent // 2 if self.is_kernel else exponent

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        values, everything = self.values(start, stop), np.ones(stop - start, dtype=np.bool_)
        if not self.is_kernel:
            return np.ldexp(values, -self.exponent), everything
        own = np.concatenate([self._part("own", grain, 0, start, stop) for grain in _grains(start, stop)])
        return self._induced(values, own), everything

    def values(self, start: int, stop: int) -> FloatArray:
        """What the function gave (p, b) for the rows from `start` up to `stop`."""
        return np.concatenate([self._grain(grain, start, stop) for grain in _grains(start, stop)])

    def between(self) -> FloatArray:
        found = np.concatenate([self._row(row) for row in self._landmark_rows.tolist()])
        rows = self._landmark_rows
        if self.is_kernel:
            found = landmark_similarities(found, rows, rows, self.name)
            return self._induced(found, found.diagonal())
        return np.ldexp(landmark_dissimilarities(found, rows, rows, self.name), -self.exponent)

    def of_landmarks(self) -> FloatArray:
        """Values (m,) of the landmarks to themselves."""
        rows = self._landmark_rows.tolist()
        return np.array([self._row(row)[0, i] for i, row in enumerate(rows)])

    def _induced(self, similarities: FloatArray, own: FloatArray) -> FloatArray:
        source = self if self.fitted is None else ComparedRows(self.fitted, self.landmarks, True, self.name)
        scaled = (np.ldexp(part, -2 * self.exponent) for part in (similarities, own, source.of_landmarks()))
        return dissimilarities_from_similarities(*scaled)

    def _row(self, row: int) -> FloatArray:
        return self._grain(row // GRAIN_ROWS, row, row + 1)

    def _grain(self, grain: int, start: int, stop: int) -> FloatArray:
        batches = range(int(self.compared.figures["n_batches"]))
        return np.concatenate([self._part("values", grain, batch, start, stop) for batch in batches], axis=1)

    def _part(self, name: str, grain: int, batch: int, start: int, stop: int) -> FloatArray:
        """Rows of one grain, as far as they are among those from `start` up to `stop`."""
        part = self.compared.ledger.part(name, grain * int(self.compared.figures["n_batches"]) + batch)
        base = grain * GRAIN_ROWS
        return np.asarray(part.read(max(start - base, 0), min(stop - base, part.shape[0])))

    @cached_property
    def _landmark_rows(self) -> IntArray:
        return np.asarray(self.landmarks.ledger.read("rows").read())


def _grains(start: int, stop: int) -> range:
    return range(start // GRAIN_ROWS, -(-stop // GRAIN_ROWS))
