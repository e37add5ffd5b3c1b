"""Objects, of which each is compared with every landmark by a function of the user's: once, counted and kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.landmarks.sampling import random_landmarks
from pipeline.numerics.models.metrics import dissimilarities_from_similarities
from pipeline.sources.comparison import Comparison, Comparisons
from pipeline.sources.objects import Objects, ObjectSource, digest_of_objects
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.sources.proximities import landmark_dissimilarities, landmark_similarities
from pipeline.stages.providers.provider import BLOCK_BYTES, Candidates, RowProvider
from pipeline.stages.providers.vectors import ENLARGED, require_distinct
from pipeline.stages.stage import SECONDS_PER_CALL, Cost, Outcome, Shape, Stage
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

    @property
    def marks(self) -> Json:
        return {"objects": True}

    @property
    def identity(self) -> list[str]:
        return [str(self.scanned.figures["content"])]

    def chosen(self, n_landmarks: int, selection: str, seed: int) -> dict[str, AnyArray]:
        rows = self._chosen(n_landmarks, seed)
        return {"rows": rows, **_stored(self.source.take(rows))}

    def figures(self) -> Json:
        return {"is_text": self.source.is_text}

    def _chosen(self, n_landmarks: int, seed: int) -> IntArray:
        size, n = n_landmarks, self.source.n_rows
        while True:
            rows = random_landmarks(n, min(n, size), seed)
            found = [digest_of_objects(one) for one in _each(self.source.take(rows))]
            distinct = np.sort(np.unique(found, return_index=True)[1])
            if len(rows) == n:
                require_distinct(self.source.name, "objects", len(distinct), n_landmarks, self.least)
            if len(rows) == n or len(distinct) >= n_landmarks:
                m = min(n_landmarks, len(distinct))
                return rows[distinct[random_landmarks(len(distinct), m, seed)]]
            size *= ENLARGED


def _each(objects: Any) -> list[Any]:
    """Every object as a block of its own."""
    return [[one] for one in objects] if isinstance(objects, list) else list(objects[:, None])


def _stored(objects: Objects) -> dict[str, AnyArray]:
    """Rows of numbers as they are; of texts the bytes one after the other, and where each begins and the last ends.

    Texts of one width would all take as much as the longest, and lose the NULs that they end with.
    """
    if not isinstance(objects, list):
        return {"objects": objects}
    encoded = [text.encode(errors="surrogatepass") for text in objects]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return {"objects": np.frombuffer(b"".join(encoded), dtype=np.uint8), "offsets": offsets}


def landmark_objects(landmarks: Outcome) -> Any:
    """The landmarks as the user's function takes them."""
    stored = landmarks.ledger.read("objects").read()
    if not landmarks.figures["is_text"]:
        return stored
    bounds = pairwise(landmarks.ledger.read("offsets").read().tolist())
    return [stored[start:stop].tobytes().decode(errors="surrogatepass") for start, stop in bounds]


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
            "n_evaluations": sum(entry["n_evaluations"] for entry in figures.values()),
            "n_batches": self._cut.n_batches,
            "rows_each": self._cut.rows_each,
            "source": self.comparison.source,
        }
        arrays = self._of_landmarks(ledger) if self.has_landmarks and self.subset is None else {}
        for name, array in arrays.items():
            ledger.write(name, array)
        return report, list(arrays)

    def _compared(self, rows: range, some: slice) -> Iterator[dict[str, FloatArray]]:
        """What some landmarks are to rows, of which no more than a grain is in memory at once."""
        for block in (rows[first : first + GRAIN_ROWS] for first in range(0, len(rows), GRAIN_ROWS)):
            objects = self.source.read(block.start, block.stop)
            values = self.comparison.table(objects, self._objects[some], block, self._object_rows[some])
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
    def _objects(self) -> Any:
        objects = landmark_objects(self.landmarks)
        return objects if self._places is None else [objects[place] for place in self._places]

    @cached_property
    def _object_rows(self) -> list[int]:
        rows = self.landmarks.ledger.read("rows").read()
        found: list[int] = (rows if self._places is None else rows[self._places]).tolist()
        return found

    @cached_property
    def _places(self) -> Sequence[int] | None:
        """Which of the landmarks count; None for all."""
        return None if self.subset is None else self.subset.ledger.read("subset").read().tolist()

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m = shape.n_rows, shape.n_evaluated
        memory = 4 * BLOCK_BYTES + 8 * shape.n_landmarks * shape.n_axes
        return Cost(memory, SECONDS_PER_CALL * n * m, 8 * n * m, Comparisons(n, m).count)


@dataclass(frozen=True)
class ComparedRows(RowProvider):
    """A provider of what `Compare` left; of a kernel, the dissimilarities that it induces.

    New rows are measured in units of 2^`fitted_exponent`, those of the fit, and their landmarks' own values are those
    that it kept, `fitted`.
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
        scaled = (np.ldexp(part, -2 * self.exponent) for part in (similarities, own, self._landmarks_own))
        return dissimilarities_from_similarities(*scaled)

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
