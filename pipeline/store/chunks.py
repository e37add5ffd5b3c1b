"""Chunks as Zarr stores them: little-endian bytes, compressed with zstd unless it does not pay, a crc32c behind them.

zarr would do the same through an event loop and a pool of threads, at several times the cost, and those threads would
fight for cores where every worker has its own. Arrays stay plain Zarr: any reader of it reads them, and a test holds
these bytes against zarr's.
"""

import math
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import Zstd
from zarr.abc.codec import Codec
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from pipeline.types import AnyArray

LEVEL = 1
CHECKED = (Crc32cCodec(),)
COMPRESSED = (ZstdCodec(level=LEVEL), *CHECKED)
CHECKSUM_BYTES = 4
# What is left of the bytes for compression to pay: it costs time, to write and to read.
WORTHWHILE = 0.6
# Enough to tell.
TRIED_BYTES = 1 << 16
# The checksum of anything with its own checksum behind it, also of nothing.
REMAINDER = google_crc32c.value(bytes(CHECKSUM_BYTES))


def is_compressed(codecs: Sequence[Codec]) -> bool:
    """Whether chunks written with `codecs` are compressed; a ValueError if they are not those of a run."""
    plain, others = codecs[0], tuple(codecs[1:])
    if plain in (BytesCodec(endian="little"), BytesCodec(endian=None)) and others in (CHECKED, COMPRESSED):
        return others == COMPRESSED
    raise ValueError(f"its codecs {tuple(codecs)} are not those of a run")


def fill_value(dtype: np.dtype[Any]) -> Any:
    return np.nan if dtype.kind == "f" else 0


def encoded(rows: AnyArray, chunk_rows: int, compressed: bool, dtype: np.dtype[Any] | None = None) -> memoryview:
    """The bytes of one chunk, of `dtype` if it is not that of the rows; the last of an array is filled up to the size
    of the others. Copied once, into the place where the checksum follows."""
    kind = (dtype or rows.dtype).newbyteorder("<")
    shape = (chunk_rows, *rows.shape[1:])
    buffer = np.empty(math.prod(shape) * kind.itemsize + CHECKSUM_BYTES, dtype=np.uint8)
    whole = buffer[:-CHECKSUM_BYTES].view(kind).reshape(shape)
    whole[: len(rows)] = rows
    whole[len(rows) :] = fill_value(kind)
    if compressed:
        data = np.frombuffer(Zstd(LEVEL).encode(buffer[:-CHECKSUM_BYTES]), dtype=np.uint8)
        buffer = np.concatenate([data, np.empty(CHECKSUM_BYTES, dtype=np.uint8)])
    buffer[-CHECKSUM_BYTES:] = np.frombuffer(_checksum(buffer[:-CHECKSUM_BYTES]), dtype=np.uint8)
    return buffer.data


def decoded(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any], compressed: bool) -> AnyArray:
    """A chunk of `shape`, read-only; a ValueError says what is wrong with the bytes."""
    if google_crc32c.value(data) != REMAINDER:
        raise ValueError("its checksum does not match its content")
    kind, size = dtype.newbyteorder("<"), len(data) - CHECKSUM_BYTES
    if not compressed:
        return np.frombuffer(data, dtype=kind, count=size // kind.itemsize).reshape(shape)
    try:
        return np.frombuffer(Zstd(LEVEL).decode(data[:size]), dtype=kind).reshape(shape)
    except RuntimeError as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error


def rows_in(n_bytes: int, rows: AnyArray) -> int:
    """How many such rows take about so many bytes; at least one."""
    return max(1, n_bytes // max(1, rows.itemsize * math.prod(rows.shape[1:])))


def compression_pays(rows: AnyArray) -> bool:
    """Whether rows become much smaller, by the first of them; digits without a pattern, as of distances, do not."""
    tried = rows[: rows_in(TRIED_BYTES, rows)]
    return tried.nbytes == 0 or len(Zstd(LEVEL).encode(np.ascontiguousarray(tried))) < WORTHWHILE * tried.nbytes


def _checksum(data: AnyArray) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(CHECKSUM_BYTES, "little")
