"""Zarr arrays along rows, written in whole aligned chunks and read with every fault named.

Each chunk carries a checksum, because without one a flipped bit reads as a wrong number. A missing chunk would read as
the fill value, so reading first makes sure that the chunk is there.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from numpy.typing import DTypeLike
from zarr.abc.store import Store
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import MemoryStore, StorePath

from pipeline.errors import StoreError
from pipeline.store.objects import Objects, checked_key, digest_of
from pipeline.types import AnyArray

# A chunk of nothing but the fill value is written like any other: a missing one must always mean damage.
WRITE_ALL_CHUNKS: Any = {"write_empty_chunks": True}


class RowArray:
    """A stored array whose first axis is cut into chunks of `chunk_rows`; the other axes are whole."""

    def __init__(self, store: Store, path: str, array: "zarr.Array[Any]") -> None:
        self.path = path
        self._objects = Objects(store)
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._array.dtype)

    @property
    def chunk_rows(self) -> int:
        return int(self._array.chunks[0])

    def write(self, first_row: int, rows: AnyArray) -> None:
        """Write whole chunks: `first_row` starts one, and `rows` ends with one or with the array."""
        stop = first_row + len(rows)
        if first_row % self.chunk_rows or (stop % self.chunk_rows and stop != self.shape[0]) or stop > self.shape[0]:
            raise StoreError(
                f"{self.path}: rows {first_row} to {stop} are not whole chunks of {self.chunk_rows} rows; two writers "
                "of one chunk would lose data."
            )
        if rows.dtype != self.dtype or rows.shape[1:] != self.shape[1:]:
            raise StoreError(
                f"{self.path}: rows of {rows.dtype} {rows.shape[1:]} do not fit an array of {self.dtype} "
                f"{self.shape[1:]}."
            )
        self._array[first_row:stop] = rows

    def read(self, start: int = 0, stop: int | None = None) -> AnyArray:
        """Rows from `start` up to `stop`; an error names the chunk that is missing or damaged."""
        end = self.shape[0] if stop is None else stop
        if not 0 <= start <= end <= self.shape[0]:
            raise StoreError(f"{self.path}: rows {start} to {end} are outside of its {self.shape[0]} rows.")
        keys = [self._chunk_key(chunk) for chunk in range(start // self.chunk_rows, -(-end // self.chunk_rows))]
        if missing := self._objects.missing(keys):
            raise StoreError(f"{missing[0]} is missing from {self._objects.store}.")
        try:
            return np.asarray(self._array[start:end])
        except (ValueError, RuntimeError) as error:
            raise StoreError(self._damage(start, end, error)) from error

    def _damage(self, start: int, stop: int, error: Exception) -> str:
        """Which chunk of the rows cannot be read, found by reading them one by one."""
        for chunk in range(start // self.chunk_rows, -(-stop // self.chunk_rows)):
            try:
                self._array[chunk * self.chunk_rows : (chunk + 1) * self.chunk_rows]
            except (ValueError, RuntimeError) as cause:
                return f"{self._chunk_key(chunk)} in {self._objects.store} is damaged: {cause}"
        return f"{self.path} in {self._objects.store} cannot be read: {error}"

    def _chunk_key(self, chunk: int) -> str:
        place = (chunk, *(0 for _ in self.shape[1:]))
        return f"{self.path}/{self._array.metadata.encode_chunk_key(place)}"


def create_array(store: Store, path: str, shape: Sequence[int], dtype: DTypeLike, chunk_rows: int) -> RowArray:
    """An array ready to be written; one that is there already with the same description is taken over as it is."""
    chunks = (max(1, min(chunk_rows, shape[0])), *(max(1, size) for size in shape[1:]))
    description = _description(tuple(shape), np.dtype(dtype), chunks)
    objects, key = Objects(store), f"{path}/zarr.json"
    existing = objects.read_bytes(key)
    if existing != description:
        if existing is not None:
            objects.delete_below(path)
        _ensure_groups(store, path)
        objects.write_bytes(key, description)
    return RowArray(store, path, _parsed(store, path, description).with_config(WRITE_ALL_CHUNKS))


@lru_cache(256)
def _description(shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...]) -> bytes:
    """The text that describes an array, as zarr writes it; here in memory, for zarr would also write all around it."""
    memory = MemoryStore()
    zarr.create_array(
        memory,
        name="array",
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        fill_value=np.nan if dtype.kind == "f" else 0,
    )
    return Objects(memory).read_bytes("array/zarr.json") or b""


def _ensure_groups(store: Store, path: str) -> None:
    """Describe every folder above an array as a group, so that any reader of Zarr finds its way."""
    objects = Objects(store)
    parts = path.split("/")[:-1]
    for key in ["zarr.json", *("/".join([*parts[: i + 1], "zarr.json"]) for i in range(len(parts)))]:
        if not objects.exists(key):
            objects.write(key, {"zarr_format": 3, "node_type": "group", "attributes": {}})


def open_array(store: Store, path: str, metadata_digest: str | None = None) -> RowArray:
    """An array to read; with `metadata_digest`, only if its description is still the one that was committed."""
    data = Objects(store).read_bytes(f"{path}/zarr.json")
    if data is None:
        raise StoreError(f"{path}/zarr.json is missing from {store}.")
    if metadata_digest is not None and digest_of(data) != metadata_digest:
        raise StoreError(f"{path}/zarr.json in {store} is damaged: it is not the one that was committed.")
    try:
        return RowArray(store, path, _parsed(store, path, data))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}/zarr.json in {store} cannot be used: {error}") from error


def _parsed(store: Store, path: str, description: bytes) -> "zarr.Array[Any]":
    return zarr.Array.from_dict(StorePath(store, checked_key(path)), json.loads(description))


def metadata_digest(store: Store, path: str) -> str:
    """The digest of an array's description, for the commit object that vouches for it."""
    data = Objects(store).read_bytes(f"{path}/zarr.json")
    if data is None:
        raise StoreError(f"{path}/zarr.json is missing from {store}.")
    return digest_of(data)
