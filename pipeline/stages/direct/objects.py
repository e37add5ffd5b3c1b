"""Objects that are compared by a function of the user's: read once, and landmarks drawn among them."""

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.numerics.landmarks import random_landmarks
from pipeline.partitions import RowPartitions
from pipeline.sources.objects import Objects, ObjectSource, digest_of_objects
from pipeline.stages.direct.landmarks import ENLARGED, require_distinct
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, IntArray, Json


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
    """Rows `rows` (m,) drawn at random, no two objects the same, and the objects themselves; where objects repeat
    perhaps fewer than are wanted, but no fewer than `least`."""

    source: ObjectSource
    scanned: Outcome
    n_landmarks: int
    least: int
    seed: int
    name = "landmarks"
    version = 2

    def settings(self) -> Json:
        return {"n_landmarks": self.n_landmarks, "selection": "random", "seed": self.seed, "objects": True}

    def inputs(self) -> list[str]:
        return [str(self.scanned.figures["content"])]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self._chosen()
        objects = self.source.take(rows)
        arrays = {"rows": rows, **_stored(objects)}
        for name, array in arrays.items():
            ledger.write(name, array)
        return {"n_landmarks": len(rows), "is_text": self.source.is_text}, list(arrays)

    def _chosen(self) -> IntArray:
        size, n = self.n_landmarks, self.source.n_rows
        while True:
            rows = random_landmarks(n, min(n, size), self.seed)
            found = [digest_of_objects(one) for one in _each(self.source.take(rows))]
            distinct = np.sort(np.unique(found, return_index=True)[1])
            if len(rows) == n:
                require_distinct(self.source.name, "objects", len(distinct), self.n_landmarks, self.least)
            if len(rows) == n or len(distinct) >= self.n_landmarks:
                m = min(self.n_landmarks, len(distinct))
                return rows[distinct[random_landmarks(len(distinct), m, self.seed)]]
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
