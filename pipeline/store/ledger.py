"""What is complete: one commit object for each partition of a stage, written after its data is durable.

A stage's arrays live under `<stage>/<digest>/`, the digest being of its settings, its inputs' digests and the format
version. So changed settings write elsewhere, and a late writer can only write the same bytes again. The listing of
chunks says nothing: only what the ledger holds is read.
"""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pipeline.errors import StoreError
from pipeline.store.arrays import RowArray, compression_pays, create_array, even_rows_in, metadata_digest, open_array
from pipeline.store.backend import Backend, Objects, canonical, digest_of
from pipeline.store.freed import declare_reopened, declare_whole, freed_of, whole_name
from pipeline.types import AnyArray, Json

FORMAT_VERSION = 1
RECORDED = ("trigpoint", "numpy", "scipy", "numba", "faiss-cpu", "zarr")
# Large enough to be written and read in one go, small enough that a slice costs little more than itself.
CHUNK_BYTES = 1 << 18
# Of arrays that are read whole: a system takes about as long for a file of a quarter of a megabyte as for one of two.
WHOLE_BYTES = 1 << 21
# Arrays that a ledger keeps open: a few hundred bytes each.
ARRAYS_KEPT = 4096
# Chunks written at once where rows are taken from an array: many repeat, and all at once could be far more than it.
CHUNKS_TAKEN = 32


def stage_digest(stage: str, version: int, settings: Json, inputs: Sequence[str]) -> str:
    """The name under which a stage's results are kept: the same for the same work by the same version of its code."""
    identity = {"stage": f"{stage} {version}", "settings": settings, "inputs": list(inputs), "format": FORMAT_VERSION}
    return digest_of(canonical(identity))[:20]


@dataclass(frozen=True)
class StageLedger:
    """The results of one stage under one digest: its arrays, its partitions' commits, its end."""

    store: Backend
    stage: str
    digest: str

    def __reduce__(self) -> Any:
        return StageLedger, (self.store, self.stage, self.digest)

    @property
    def path(self) -> str:
        return f"{self.stage}/{self.digest}"

    def create(
        self, name: str, shape: Sequence[int], dtype: DTypeLike, chunk_rows: int, compressed: bool = True
    ) -> RowArray:
        """An array ready to be written; several partitions may write it, each its own whole chunks."""
        return create_array(self.store, f"{self.path}/{name}", shape, dtype, chunk_rows, compressed)

    def write(self, name: str, rows: AnyArray, chunk_bytes: int = CHUNK_BYTES) -> None:
        """An array that one partition writes whole, in chunks of about so many bytes, compressed if that pays."""
        chunk_rows = even_rows_in(chunk_bytes, rows, len(rows))
        array = self.create(name, rows.shape, rows.dtype, chunk_rows, compression_pays(rows))
        if len(rows):
            array.write(0, rows)

    def write_parts(self, partition: int, arrays: dict[str, AnyArray], chunk_bytes: int = CHUNK_BYTES) -> list[str]:
        """One partition's share of several arrays, to be read with `part`; the names for its commit."""
        for name, rows in arrays.items():
            self.write(_part_name(name, partition), rows, chunk_bytes)
        return [_part_name(name, partition) for name in arrays]

    def write_rounded(self, partition: int, name: str, rows: AnyArray, chunk_rows: int) -> list[str]:
        """Like `write_parts`, of one array in single precision, not compressed: digits of lengths have no pattern."""
        part = _part_name(name, partition)
        self.create(part, rows.shape, np.float32, chunk_rows, compressed=False).write(0, rows, rounded=True)
        return [part]

    def write_taken(self, partition: int, arrays: dict[str, AnyArray], index: AnyArray, chunk_bytes: int) -> list[str]:
        """Like `write_parts` of every array's rows at `index`, which are taken a few chunks at a time."""
        for name, rows in arrays.items():
            shape, chunk_rows = (len(index), *rows.shape[1:]), even_rows_in(chunk_bytes, rows, len(index))
            pays = compression_pays(rows[index[:chunk_rows]])
            array = self.create(_part_name(name, partition), shape, rows.dtype, chunk_rows, pays)
            step = CHUNKS_TAKEN * array.chunk_rows
            for first in range(0, len(index), step):
                array.write(first, rows[index[first : first + step]])
        return [_part_name(name, partition) for name in arrays]

    def part(self, name: str, partition: int) -> RowArray:
        """A complete partition's share of an array."""
        return self.read(_part_name(name, partition), partition)

    def commit(self, done: Mapping[int, tuple[Json, Sequence[str]]]) -> None:
        """Declare partitions complete: each with its figures and the digests of the arrays that only it has written."""
        self._objects.declare(
            {
                self._key(partition): {"figures": figures, "arrays": self._digests(arrays)}
                for partition, (figures, arrays) in done.items()
            }
        )

    def written_at(self, partition: int | None = None) -> float | None:
        """When a partition, or the stage, was declared complete, in seconds since the epoch; None if it was not."""
        return self.store.written_at(self._key(partition))

    def flush(self) -> None:
        """Make durable what was written so far, for others to build on."""
        self.store.flush()

    def is_complete(self, partition: int) -> bool:
        return self.store.exists(self._key(partition))

    def committed(self) -> dict[int, Json]:
        """The figures of every complete partition."""
        return {partition: _declared(self.store, self._key(partition))["figures"] for partition in self.complete()}

    def complete(self) -> list[int]:
        """Which partitions are complete, rising."""
        names = (name for name in self._objects.names(f"{self.path}/ledger") if name.startswith("partition-"))
        return sorted(int(name.removeprefix("partition-").removesuffix(".json")) for name in names)

    def vouched_for(self, partition: int) -> list[str]:
        """The names of the arrays that a complete partition alone has written, sorted."""
        return sorted(_declared(self.store, self._key(partition))["arrays"])

    def vouched(self) -> list[str]:
        """The names of the arrays that the complete stage vouches for, sorted."""
        return sorted(_declared(self.store, self._key())["arrays"])

    def finish(self, n_partitions: int, figures: Json, arrays: Sequence[str] = ()) -> None:
        """Declare the stage complete; refused, with their numbers, while partitions are missing."""
        missing = sorted(set(range(n_partitions)) - set(self.complete()))
        if missing:
            listed = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            raise StoreError(f"stage {self.stage} cannot be finished: partitions {listed} are not complete.")
        value = {
            "figures": figures,
            "n_partitions": n_partitions,
            "arrays": self._digests(arrays),
            "commits": self._commits_digest(n_partitions),
            "made_with": made_with(),
        }
        self._objects.declare({self._key(): value})
        declare_whole(self.store, self.path)

    def reopen(self) -> bool:
        """Whether the complete stage has to be computed again, because arrays of it were freed. Nothing vouches for its
        partitions from the first time on; what it says of itself stays."""
        freed = freed_of(self.store, self.path)
        if freed is not None and not freed["reopened"]:
            for partition in self.complete():
                self._objects.delete(self._key(partition))
                self.store.adopt(self._key(partition))  # that it is gone must be durable first
            declare_reopened(self.store, self.path)
        return freed is not None

    def finished(self) -> Json | None:
        """The stage's figures if it is complete."""
        value = self._objects.declared(self._key())
        return None if value is None else dict(value["figures"])

    def seal(self) -> str:
        """The digest of the object that declares the stage complete; it covers all that the ledger holds."""
        data = self.store.read(self._key())
        if data is None:
            raise StoreError(f"{self._key()} is not in {self.store}: stage {self.stage} is not complete.")
        return digest_of(data)

    def read(self, name: str, partition: int | None = None) -> RowArray:
        """An array of a complete partition, or of the complete stage; anything else is an error."""
        return self._opened(self._key(partition), name)

    @cached_property
    def _opened(self) -> Callable[[str, str], RowArray]:
        """`_opened_array` that keeps what it gave, for to find an array complete takes longer than to read a slice."""
        return lru_cache(ARRAYS_KEPT)(partial(_opened_array, self.store, self.path))

    def damaged(self, seal: str | None = None) -> list[str]:
        """Every object, array and chunk that this stage's ledger vouches for and that is not as it was written, but for
        what was freed."""
        try:
            freed = freed_of(self.store, self.path)
            arrays = [] if freed is None else freed["arrays"]
            return [*self._damaged_ledger(seal, whole=freed is None), *self._damaged_arrays(arrays)]
        except StoreError as error:
            return [str(error)]

    def _damaged_ledger(self, seal: str | None, whole: bool) -> list[str]:
        finished = self._objects.declared(self._key())
        if seal is not None and (finished is None or self.seal() != seal):
            return [f"{self._key()} in {self.store} is missing or not the one that was published."]
        # Entries of partitions go before a stage is said to be reopened.
        if whole and finished is not None and self._commits_digest(finished["n_partitions"]) != finished["commits"]:
            return [f"{self.path}/ledger in {self.store} is damaged: a partition's entry is missing or has changed."]
        return []

    def _damaged_arrays(self, freed: Sequence[str]) -> Iterator[str]:
        for entry in self._objects.names(f"{self.path}/ledger"):
            for name, digest in _declared(self.store, f"{self.path}/ledger/{entry}")["arrays"].items():
                if whole_name(name) in freed:
                    continue
                try:
                    yield from open_array(self.store, f"{self.path}/{name}", digest).damaged()
                except StoreError as error:
                    yield str(error)

    def _commits_digest(self, n_partitions: int) -> str:
        """One digest over every partition's entry."""
        entries = (self.store.read(self._key(partition)) for partition in range(n_partitions))
        return digest_of(b"".join(digest_of(entry or b"").encode() for entry in entries))

    def _digests(self, arrays: Sequence[str]) -> dict[str, str]:
        return {name: metadata_digest(self.store, f"{self.path}/{name}") for name in arrays}

    def _key(self, partition: int | None = None) -> str:
        """Of the object that declares a partition complete, or the stage."""
        return f"{self.path}/ledger/" + ("finished.json" if partition is None else f"partition-{partition:08d}.json")

    @property
    def _objects(self) -> Objects:
        return Objects(self.store)


def _declared(store: Backend, key: str) -> Json:
    """An entry of a ledger."""
    value = Objects(store).declared(key)
    if value is None:
        raise StoreError(f"{key} is not in {store}: this part of stage {key.split('/')[0]} is not complete.")
    return value


def _opened_array(store: Backend, path: str, key: str, name: str) -> RowArray:
    """An array of the stage at a path, which the ledger's entry at a key vouches for."""
    vouched = _declared(store, key)["arrays"]
    if name not in vouched:
        raise StoreError(f"{key} in {store} does not vouch for array {name}; it is not complete.")
    try:
        return open_array(store, f"{path}/{name}", vouched[name])
    except StoreError:
        freed = freed_of(store, path)
        if freed is None or whole_name(name) not in freed["arrays"]:
            raise
    raise StoreError(
        f"{path}/{name} of {store} was freed by `trigpoint gc --retain {freed['retain']}`; run the same fit again, "
        "which computes what is missing."
    )


@cache
def made_with() -> Json:
    """Libraries and processor that results may depend on in their last bits."""
    return {**{name: version(name) for name in RECORDED}, "machine": f"{platform.machine()} {_cpu()}".strip()}


def _cpu() -> str:
    """The processor's name: compiled code chooses its instructions by it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _part_name(name: str, partition: int) -> str:
    return f"{name}-{partition:08d}"
