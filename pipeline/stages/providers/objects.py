"""Objects, of which each is compared with landmarks by a function of the user's: once, counted and kept.

Where the function takes long, every row is compared with the members of a subset of the landmarks only, chosen greedily
for what it tells of the landmarks' own distances, which are all evaluated. Distances to the subset are exact, those to
the other landmarks are estimates by kernel semi-least squares [E].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.landmarks.sampling import random_landmarks
from pipeline.numerics.landmarks.subset import EvaluatedSubset, evaluated_places
from pipeline.numerics.models.metrics import dissimilarities_from_similarities
from pipeline.sources.objects import Comparison, ObjectSource, digest_of_objects
from pipeline.sources.partitions import GRAIN_ROWS, Comparisons, RowPartitions
from pipeline.sources.proximities import landmark_dissimilarities, landmark_similarities
from pipeline.stages.providers.kept_objects import landmark_objects, stored_objects
from pipeline.stages.providers.provider import BLOCK_BYTES, Candidates, RowProvider
from pipeline.stages.providers.vectors import ENLARGED, require_distinct
from pipeline.stages.stage import SECONDS_PER_CALL, Cost, Outcome, Shape, Stage, total, written
from pipeline.stages.validate import Scan
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json


@dataclass(frozen=True)
class ScanObjects(Scan):
    """Read every object once; `content` is their digest."""

    source: ObjectSource
    partitions: RowPartitions

    def settings(self) -> Json:
        return {**super().settings(), "objects": True}

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        grains = self.partitions.grains(partition)
        return {"digests": [digest_of_objects(self.source.read(grain.start, grain.stop)) for grain in grains]}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report = self.content(figures, self.source.n_rows, self.source.is_text)
        return {**report, "n_rows": self.source.n_rows, "n_dropped_rows": 0}, []


@dataclass(frozen=True)
class ObjectCandidates(Candidates):
    """Landmarks are drawn at random, no two objects the same, and kept as objects; where objects repeat there may be
    fewer than are wanted, but no fewer than `least`."""

    source: ObjectSource
    scanned: Outcome
    least: int
    version = 2

    marks: ClassVar[Json] = {"objects": True}

    @property
    def identity(self) -> list[str]:
        return [str(self.scanned.figures["content"])]

    def chosen(self, n_landmarks: int, selection: str, seed: int) -> dict[str, AnyArray]:
        rows = self._chosen(n_landmarks, seed)
        return {"rows": rows, **stored_objects(self.source.take(rows))}

    def figures(self) -> Json:
        return {"is_text": self.source.is_text}

    def _chosen(self, n_landmarks: int, seed: int) -> IntArray:
        size, n = n_landmarks, self.source.n_rows
        while True:
            rows = random_landmarks(n, min(n, size), seed)
            objects = self.source.take(rows)
            found = [digest_of_objects(objects[place : place + 1]) for place in range(len(rows))]
            distinct = np.sort(np.unique(found, return_index=True)[1])
            if len(rows) == n:
                require_distinct(self.source.name, "objects", len(distinct), n_landmarks, self.least)
            if len(rows) == n or len(distinct) >= n_landmarks:
                m = min(n_landmarks, len(distinct))
                return rows[distinct[random_landmarks(len(distinct), m, seed)]]
            size *= ENLARGED


@dataclass(frozen=True)
class Compare(Stage):
    """Values `values` (p, b) of some rows and each few landmarks, in double precision; of a kernel also those of rows
    to themselves, `own` (p,), beside the first landmarks'. With a `subset`, only landmarks in it count.

    `has_landmarks` says that landmarks are among the rows: then what they are to each other, `between` (m, m), and of a
    kernel to themselves, `landmarks_own` (m,), is also kept where it can be read at once.
    """

    source: ObjectSource
    scanned: Outcome
    landmarks: Outcome
    comparison: Comparison
    subset: Outcome | None = None
    has_landmarks: bool = True
    name = "rows"
    version = 2

    def settings(self) -> Json:
        comparison = self.comparison
        function = {"function": comparison.function, "source": comparison.source, "is_kernel": comparison.is_kernel}
        return {"provider": "function", **function, "has_landmarks": self.has_landmarks}

    def inputs(self) -> list[str]:
        subset = [] if self.subset is None else [self.subset.ledger.digest]
        return [str(self.scanned.figures["content"]), self.landmarks.ledger.digest, *subset]

    def n_partitions(self) -> int:
        return self._cut.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        blocks = list(self._compared(self._cut.rows(partition), self._cut.landmarks(partition)))
        arrays = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays.values())
        n_evaluations = sum(array.size for array in arrays.values())
        return {"largest": largest, "n_evaluations": n_evaluations}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        report = {
            "largest": max(entry["largest"] for entry in figures.values()),
            "n_evaluations": total(figures, "n_evaluations"),
            "n_batches": self._cut.n_batches,
            "rows_each": self._cut.rows_each,
            "source": self.comparison.source,
        }
        arrays = self._of_landmarks(ledger) if self.has_landmarks and self.subset is None else {}
        return written(ledger, report, arrays)

    def _compared(self, rows: range, some: slice) -> Iterator[dict[str, FloatArray]]:
        """What some landmarks are to rows, of which no more than a grain is in memory at once."""
        landmarks, landmark_rows = self._landmarks
        for block in (rows[first : first + GRAIN_ROWS] for first in range(0, len(rows), GRAIN_ROWS)):
            objects = self.source.read(block.start, block.stop)
            values = self.comparison.table(objects, landmarks[some], block, landmark_rows[some])
            own = {"own": self.comparison.own(objects, block)} if self.comparison.is_kernel and not some.start else {}
            yield {"values": values, **own}

    def _of_landmarks(self, ledger: StageLedger) -> dict[str, FloatArray]:
        rows, cut = np.asarray(self.landmarks.ledger.read("rows").read()), self._cut
        between = np.empty((len(rows), len(rows)))
        for block in np.unique(rows // cut.rows_each).tolist():
            here = np.flatnonzero(rows // cut.rows_each == block)
            for piece in range(block * cut.n_batches, (block + 1) * cut.n_batches):
                values = ledger.part("values", piece).read()
                between[here, cut.landmarks(piece)] = values[rows[here] - cut.rows(piece).start]
        own = {"landmarks_own": between.diagonal().copy()} if self.comparison.is_kernel else {}
        return {"between": between, **own}

    @cached_property
    def _cut(self) -> Comparisons:
        given = self.landmarks.figures["n_landmarks"] if self.subset is None else self.subset.figures["n_evaluated"]
        return Comparisons(self.source.n_rows, int(given))

    @cached_property
    def _landmarks(self) -> tuple[Any, list[int]]:
        """The landmarks that count, and their rows."""
        objects, rows = landmark_objects(self.landmarks), self.landmarks.ledger.read("rows").read()
        if self.subset is None:
            return objects, rows.tolist()
        places = self.subset.ledger.read("subset").read()
        return [objects[place] for place in places.tolist()], rows[places].tolist()

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m = shape.n_rows, shape.n_evaluated
        memory = 4 * BLOCK_BYTES + 8 * shape.n_landmarks * shape.n_axes
        return Cost(memory, SECONDS_PER_CALL * n * m, 8 * n * m, Comparisons(n, m).count)


class NewObjects(NamedTuple):
    """New objects, and the function that compares them."""

    source: ObjectSource
    comparison: Comparison


@dataclass(frozen=True)
class ComparedRows(RowProvider):
    """A provider of what `Compare` left; of a kernel, the dissimilarities that it induces.

    New rows are measured in units of 2^`fitted_exponent`, those of the fit, and their landmarks' own values are those
    that it kept, `fitted`. They are compared with each other when that is asked for, once for each pair.
    """

    compared: Outcome
    landmarks: Outcome
    is_kernel: bool
    name: str
    fitted_exponent: int | None = None
    fitted: Outcome | None = None
    new: NewObjects | None = None

    @property
    def identity(self) -> list[str]:
        return [self.compared.ledger.digest, f"exponent={self.fitted_exponent}"]

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
        own = np.concatenate([self._part("own", block, 0, start, stop) for block in self._blocks(start, stop)])
        return self._induced(values, own), everything

    def between_rows(self, rows: IntArray) -> FloatArray:
        if self.new is None:
            raise TypeError("fitted rows are not reconstructed together")
        values = self.new.comparison.between(self.new.source.take(rows), rows.tolist())
        if not self.is_kernel:
            return np.ldexp(values, -self.exponent)
        own = values.diagonal()
        return dissimilarities_from_similarities(values, own, own, self.exponent)

    def values(self, start: int, stop: int) -> FloatArray:
        """What the function gave (p, b) for the rows from `start` up to `stop`."""
        return np.concatenate([self._block(block, start, stop) for block in self._blocks(start, stop)])

    def between(self) -> FloatArray:
        found = self.compared.ledger.read("between").read()
        rows = self.landmark_rows
        if self.is_kernel:
            found = landmark_similarities(found, rows, rows, self.name)
            return self._induced(found, found.diagonal())
        return np.ldexp(landmark_dissimilarities(found, rows, rows, self.name), -self.exponent)

    def _induced(self, similarities: FloatArray, own: FloatArray) -> FloatArray:
        return dissimilarities_from_similarities(similarities, own, self._landmarks_own, self.exponent)

    @cached_property
    def _landmarks_own(self) -> FloatArray:
        """Values (m,) of the landmarks to themselves."""
        return np.asarray((self.fitted or self.compared).ledger.read("landmarks_own").read())

    def _block(self, block: int, start: int, stop: int) -> FloatArray:
        batches = range(int(self.compared.figures["n_batches"]))
        return np.concatenate([self._part("values", block, batch, start, stop) for batch in batches], axis=1)

    def _part(self, name: str, block: int, batch: int, start: int, stop: int) -> FloatArray:
        """Rows of one block, as far as they are among those from `start` up to `stop`."""
        part = self.compared.ledger.part(name, block * int(self.compared.figures["n_batches"]) + batch)
        base = block * self._rows_each
        return np.asarray(part.read(max(start - base, 0), min(stop - base, part.shape[0])))

    def _blocks(self, start: int, stop: int) -> range:
        return range(start // self._rows_each, -(-stop // self._rows_each))

    @property
    def _rows_each(self) -> int:
        return int(self.compared.figures["rows_each"])


@dataclass(frozen=True)
class Subset(Stage):
    """Distances `between` (m, m) of the landmarks, and the places `subset` (r,) among them of those that every row is
    compared with. The first of these, in their middle, is where the kernel has its origin."""

    landmarks: Outcome
    comparison: Comparison
    n_evaluated: int
    name = "subset"
    version = 2
    reads = ("landmarks",)

    def settings(self) -> Json:
        comparison = self.comparison
        return {"function": comparison.function, "source": comparison.source, "n_evaluated": self.n_evaluated}

    def n_partitions(self) -> int:
        return self._cut.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        mine, some = self._cut.rows(partition), self._cut.landmarks(partition)
        ones, rows = self._objects[mine.start : mine.stop], self._rows[mine.start : mine.stop].tolist()
        values = self.comparison.table(ones, self._objects[some], rows, self._rows[some].tolist())
        return {"n_evaluations": values.size}, ledger.write_parts(partition, {"values": values})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        between = landmark_dissimilarities(self._gathered(ledger), self._rows, self._rows, str(self.comparison))
        subset = evaluated_places(between, self.n_evaluated)
        report = {"n_evaluations": total(figures, "n_evaluations"), "n_evaluated": len(subset)}
        return written(ledger, report, {"between": between, "subset": subset})

    def _gathered(self, ledger: StageLedger) -> FloatArray:
        values = np.empty((self._cut.n_rows, self._cut.n_landmarks))
        for piece in range(self._cut.count):
            rows = self._cut.rows(piece)
            values[rows.start : rows.stop, self._cut.landmarks(piece)] = ledger.part("values", piece).read()
        return values

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
    def landmarks(self) -> Outcome:  # type: ignore[override]  # those of the values
        return self.evaluated.landmarks

    @property
    def exponent(self) -> int:
        if self.evaluated.fitted_exponent is not None:
            return self.evaluated.fitted_exponent
        return int(np.frexp(self._between.max())[1])

    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        evaluated = self.evaluated.values(start, stop)
        rows = self._subset.to_landmarks(evaluated)
        if self.has_landmarks:
            numbers = self.landmark_rows
            here = np.flatnonzero((numbers >= start) & (numbers < stop))
            rows[numbers[here] - start] = self._between[here]
        return np.ldexp(rows, -self.exponent), np.ones(stop - start, dtype=np.bool_)

    def between_rows(self, rows: IntArray) -> FloatArray:
        return self.evaluated.between_rows(rows)

    def between(self) -> FloatArray:
        return np.ldexp(self._between, -self.exponent)

    @cached_property
    def _between(self) -> FloatArray:
        return np.asarray(self.subset.ledger.read("between").read())

    @cached_property
    def _subset(self) -> EvaluatedSubset:
        return EvaluatedSubset(self._between, np.asarray(self.subset.ledger.read("subset").read()))
