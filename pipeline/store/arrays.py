"""Zarr arrays along rows, written in whole aligned chunks and read with every fault named.

Each chunk carries a checksum, because without one a flipped bit reads as a wrong number. A missing chunk is an error,
not the fill value that Zarr takes it for.

Chunks are little-endian bytes with a crc32c behind them, compressed where that pays: Blosc groups the bytes of all
numbers by significance and applies LZ4, which makes the numbers of a run smaller than zstd does in a fifth of the time.
Blosc works in one thread, as with zarr: its bytes depend on the number of threads.

zarr would write the same through an event loop and a pool of threads, at several times the cost, and those threads
would fight for cores where every worker has its own. Arrays stay plain Zarr: any reader of it reads them, and a test
holds these bytes against zarr's.
"""

import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numcodecs import Blosc, Zstd, blosc
from numcodecs.abc import Codec as Compressor
from numpy.typing import DTypeLike

from pipeline.errors import StoreError
from pipeline.store.backend import Backend, Objects, digest_of
from pipeline.types import AnyArray, Json

blosc.use_threads = False
# Only threads of Blosc need its lock. It is a named semaphore, which a worker that is killed could not remove.
blosc.get_mutex = lambda: None

LEVEL = 5
CHECKED = {"name": "crc32c"}
# As earlier runs have it.
FORMER, FORMER_COMPRESSOR = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}, Zstd(1)
CHECKSUM_BYTES = 4
# What a missing entry is, by kind of number, as a description has it.
FILL_VALUES: dict[str, Any] = {"f": "NaN", "i": 0, "u": 0, "b": False}
# Compression costs time, so it pays only if it leaves less than this share of the bytes; the first ones tell.
WORTHWHILE, TRIED_BYTES = 0.6, 1 << 16
# The checksum of anything with its own checksum behind it, also of nothing.
REMAINDER = google_crc32c.value(bytes(CHECKSUM_BYTES))


def codecs_of(dtype: np.dtype[Any], compressed: bool) -> list[Json]:
    """What chunks of numbers of this kind go through, as their description lists it."""
    plain = {"name": "bytes", **({"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {})}
    settings = {"typesize": dtype.itemsize, "cname": "lz4", "clevel": LEVEL, "shuffle": "shuffle", "blocksize": 0}
    return [plain, *([{"name": "blosc", "configuration": settings}] if compressed else []), CHECKED]


def compressor(dtype: np.dtype[Any]) -> Compressor:
    """The one that `codecs_of` lists."""
    return Blosc("lz4", LEVEL, Blosc.SHUFFLE, typesize=dtype.itemsize)


def compressor_of(codecs: Sequence[Json], dtype: np.dtype[Any]) -> Compressor | None:
    """What chunks with `codecs` are compressed by, if at all; a ValueError if the codecs are not those of a run."""
    plain, checked = codecs_of(dtype, compressed=False)
    known = [([plain, checked], None), (codecs_of(dtype, compressed=True), compressor(dtype))]
    for listed, found in [*known, ([plain, FORMER, checked], FORMER_COMPRESSOR)]:
        if list(codecs) == listed:
            return found
    raise ValueError(f"its codecs {[codec['name'] for codec in codecs]} are not those of a run")


def encoded(rows: AnyArray, chunk_rows: int, by: Compressor | None, dtype: np.dtype[Any] | None = None) -> memoryview:
    """The bytes of one chunk, of `dtype` if it is not that of the rows; the last of an array is filled up."""
    kind = (dtype or rows.dtype).newbyteorder("<")
    shape = (chunk_rows, *rows.shape[1:])
    buffer = np.empty(math.prod(shape) * kind.itemsize + CHECKSUM_BYTES, dtype=np.uint8)
    # Copied once, into the place where the checksum follows.
    whole = buffer[:-CHECKSUM_BYTES].view(kind).reshape(shape)
    whole[: len(rows)] = rows
    whole[len(rows) :] = float(FILL_VALUES[kind.kind])
    if by is not None:
        data = np.frombuffer(by.encode(buffer[:-CHECKSUM_BYTES]), dtype=np.uint8)
        buffer = np.concatenate([data, np.empty(CHECKSUM_BYTES, dtype=np.uint8)])
    checksum = int(google_crc32c.value(buffer[:-CHECKSUM_BYTES])).to_bytes(CHECKSUM_BYTES, "little")
    buffer[-CHECKSUM_BYTES:] = np.frombuffer(checksum, dtype=np.uint8)
    return buffer.data


def decoded(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any], by: Compressor | None) -> AnyArray:
    """A chunk of `shape`, read-only; a ValueError says what is wrong with the bytes."""
    if google_crc32c.value(data) != REMAINDER:
        raise ValueError("its checksum does not match its content")
    kind, size = dtype.newbyteorder("<"), len(data) - CHECKSUM_BYTES
    if by is None:
        return np.frombuffer(data, dtype=kind, count=size // kind.itemsize).reshape(shape)
    try:
        return np.frombuffer(by.decode(memoryview(data)[:size]), dtype=kind).reshape(shape)
    except RuntimeError as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error


def rows_in(n_bytes: int, rows: AnyArray) -> int:
    """How many such rows take about so many bytes; at least one."""
    return max(1, n_bytes // max(1, rows.itemsize * math.prod(rows.shape[1:])))


def even_rows_in(n_bytes: int, rows: AnyArray, n_rows: int) -> int:
    """How many of `n_rows` such rows make a chunk of at most about so many bytes, so that the last is nearly full."""
    return -(-n_rows // max(1, -(-n_rows // rows_in(n_bytes, rows)))) or 1


def compression_pays(rows: AnyArray) -> bool:
    """Whether rows become much smaller, by the first of them; digits without a pattern, as of distances, do not."""
    tried = np.ascontiguousarray(rows[: rows_in(TRIED_BYTES, rows)])
    return tried.nbytes == 0 or len(compressor(rows.dtype).encode(tried)) < WORTHWHILE * tried.nbytes


class RowArray:
    """A stored array whose first axis is cut into chunks of `chunk_rows`; the other axes are whole."""

    def __init__(self, store: Backend, path: str, described: "Described") -> None:
        self.path = path
        self._objects = Objects(store)
        self.shape, self.dtype, self.chunk_rows, self._separator, self._compressor = described

    def write(self, first_row: int, rows: AnyArray, rounded: bool = False) -> None:
        """Write whole chunks, from one's first row to one's last or the array's; only `rounded` changes precision."""
        stop = first_row + len(rows)
        if first_row % self.chunk_rows or (stop % self.chunk_rows and stop != self.shape[0]) or stop > self.shape[0]:
            raise StoreError(
                f"{self.path}: rows {first_row} to {stop} are not whole chunks of {self.chunk_rows} rows; two writers "
                "of one chunk would lose data."
            )
        if (rows.dtype != self.dtype and not rounded) or rows.shape[1:] != self.shape[1:]:
            raise StoreError(
                f"{self.path}: rows of {rows.dtype} {rows.shape[1:]} do not fit an array of {self.dtype} "
                f"{self.shape[1:]}."
            )
        for start in range(0, len(rows), self.chunk_rows):
            key = self._chunk_key((first_row + start) // self.chunk_rows)
            part = rows[start : start + self.chunk_rows]
            self._objects.write_bytes(key, encoded(part, self.chunk_rows, self._compressor, self.dtype))

    def read(self, start: int = 0, stop: int | None = None) -> AnyArray:
        """Rows from `start` up to `stop`, perhaps read-only; an error names the chunk that is missing or damaged."""
        end = self.shape[0] if stop is None else stop
        if not 0 <= start <= end <= self.shape[0]:
            raise StoreError(f"{self.path}: rows {start} to {end} are outside of its {self.shape[0]} rows.")
        if start < end and start // self.chunk_rows == (end - 1) // self.chunk_rows:
            base = start - start % self.chunk_rows
            return self._chunk(base // self.chunk_rows)[start - base : end - base]
        rows = np.empty((end - start, *self.shape[1:]), dtype=self.dtype)
        for chunk in range(start // self.chunk_rows, -(-end // self.chunk_rows) if end > start else 0):
            base = chunk * self.chunk_rows
            first, last = max(start, base), min(end, base + self.chunk_rows)
            rows[first - start : last - start] = self._chunk(chunk)[first - base : last - base]
        return rows

    def take(self, numbers: AnyArray) -> AnyArray:
        """Single rows, their numbers rising; each chunk that holds any is read once."""
        rows = np.empty((len(numbers), *self.shape[1:]), dtype=self.dtype)
        chunks, begins = np.unique(numbers // self.chunk_rows, return_index=True)
        for chunk, begin, end in zip(chunks.tolist(), begins, [*begins[1:], len(numbers)], strict=True):
            np.take(self._chunk(chunk), numbers[begin:end] - chunk * self.chunk_rows, axis=0, out=rows[begin:end])
        return rows

    def damaged(self) -> Iterator[str]:
        """What is wrong with each chunk that cannot be read."""
        for chunk in range(-(-self.shape[0] // self.chunk_rows)):
            try:
                self._chunk(chunk)
            except StoreError as error:
                yield str(error)

    def _chunk(self, chunk: int) -> AnyArray:
        key = self._chunk_key(chunk)
        data = _present(self._objects.store, key)
        try:
            return decoded(data, (self.chunk_rows, *self.shape[1:]), self.dtype, self._compressor)
        except ValueError as error:
            raise StoreError(f"{key} in {self._objects.store} is damaged: {error}.") from error

    def _chunk_key(self, chunk: int) -> str:
        return f"{self.path}/{self._separator.join(['c', str(chunk), *('0' * (len(self.shape) - 1))])}"


def create_array(
    store: Backend, path: str, shape: Sequence[int], dtype: DTypeLike, chunk_rows: int, compressed: bool = True
) -> RowArray:
    """An array ready to be written; one that is there already with the same description is taken over as it is."""
    chunks = (max(1, min(chunk_rows, shape[0])), *(max(1, size) for size in shape[1:]))
    description = _description(tuple(shape), np.dtype(dtype), chunks, compressed)
    objects, key = Objects(store), f"{path}/zarr.json"
    existing = store.read(key)
    if existing == description:
        store.adopt(key)
    else:
        # One that a power cut left empty or torn says nothing of the chunks beside it, which may be complete.
        if _is_json(existing):
            objects.delete_below(path)
        _ensure_groups(store, path)
        objects.write_bytes(key, description)
    return RowArray(store, path, _described(description))


def _is_json(data: bytes | None) -> bool:
    try:
        json.loads(data or b"")
    except ValueError:
        return False
    return True


def _description(shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...], compressed: bool) -> bytes:
    """The text that describes an array of numbers, as zarr writes it."""
    described = {
        "shape": shape,
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        # All chunks in one folder: folders cost as much as files.
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": FILL_VALUES[dtype.kind],
        "codecs": codecs_of(dtype, compressed),
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return json.dumps(described, indent=2).encode()


class Described(NamedTuple):
    """What the description of an array says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int
    separator: str
    compressor: Compressor | None


@lru_cache(256)
def _described(description: bytes) -> Described:
    """Parsed; partitions have arrays alike, and parsing takes longer than reading a chunk."""
    entries = json.loads(description)
    shape, chunks = (
        tuple(map(int, each)) for each in (entries["shape"], _configured(entries, "chunk_grid")["chunk_shape"])
    )
    dtype = np.dtype(entries["data_type"])
    if dtype.kind not in FILL_VALUES or chunks[1:] != tuple(max(1, size) for size in shape[1:]) or chunks[0] < 1:
        raise ValueError("it is not an array of numbers that is cut along its rows")
    separator = _configured(entries, "chunk_key_encoding").get("separator", "/")
    return Described(shape, dtype, chunks[0], separator, compressor_of(entries["codecs"], dtype))


def _configured(entries: Json, name: str) -> Json:
    return dict(entries[name].get("configuration", {}))


def _ensure_groups(store: Backend, path: str) -> None:
    """Describe every folder above an array as a group, so that any reader of Zarr finds its way."""
    objects = Objects(store)
    parts = path.split("/")[:-1]
    for key in ["zarr.json", *("/".join([*parts[: i + 1], "zarr.json"]) for i in range(len(parts)))]:
        if not store.exists(key):
            objects.write(key, {"zarr_format": 3, "node_type": "group", "attributes": {}})


def open_array(store: Backend, path: str, metadata_digest: str | None = None) -> RowArray:
    """An array to read; with `metadata_digest`, only if its description is still the one that was committed."""
    data = _present(store, f"{path}/zarr.json")
    if metadata_digest is not None and digest_of(data) != metadata_digest:
        raise StoreError(f"{path}/zarr.json in {store} is damaged: it is not the one that was committed.")
    try:
        return RowArray(store, path, _described(data))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}/zarr.json in {store} cannot be used: {error}") from error


def metadata_digest(store: Backend, path: str) -> str:
    """The digest of an array's description, for the commit object that vouches for it."""
    return digest_of(_present(store, f"{path}/zarr.json"))


def _present(store: Backend, key: str) -> bytes:
    data = store.read(key)
    if data is None:
        raise StoreError(f"{key} is missing from {store}.")
    return data
