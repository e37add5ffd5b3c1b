"""Chunks as Zarr stores them: little-endian bytes, compressed unless it does not pay, a crc32c behind them.

Compressed by Blosc: the bytes of like worth of all numbers together, then LZ4. That makes the numbers of a run smaller
than zstd does, in a fifth of the time. zarr has Blosc work in one thread, without which its bytes would not be the same
every time.

zarr would do the same through an event loop and a pool of threads, at several times the cost, and those threads would
fight for cores where every worker has its own. Arrays stay plain Zarr: any reader of it reads them, and a test holds
these bytes against zarr's.
"""

import math
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import Blosc, Zstd
from numcodecs.abc import Codec as Compressor
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ZstdCodec

from pipeline.types import AnyArray

LEVEL = 5
CHECKED = (Crc32cCodec(),)
# As earlier runs have it.
FORMER, FORMER_COMPRESSOR = (ZstdCodec(level=1), *CHECKED), Zstd(1)
CHECKSUM_BYTES = 4
# What is left of the bytes for compression to pay: it costs time, to write and to read.
WORTHWHILE = 0.6
# Enough to tell.
TRIED_BYTES = 1 << 16
# The checksum of anything with its own checksum behind it, also of nothing.
REMAINDER = google_crc32c.value(bytes(CHECKSUM_BYTES))


def compressed_codecs(dtype: np.dtype[Any]) -> tuple[BytesBytesCodec, ...]:
    """What compressed chunks of numbers of this kind go through, past their bytes."""
    return (BloscCodec(typesize=dtype.itemsize, cname="lz4", clevel=LEVEL, shuffle="shuffle"), *CHECKED)


def compressor(dtype: np.dtype[Any]) -> Compressor:
    """The one that `compressed_codecs` says."""
    return Blosc("lz4", LEVEL, Blosc.SHUFFLE, typesize=dtype.itemsize)


def compressor_of(codecs: Sequence[Codec], dtype: np.dtype[Any]) -> Compressor | None:
    """What chunks with `codecs` are compressed by, if at all; a ValueError if the codecs are not those of a run."""
    plain, others = codecs[0], tuple(codecs[1:])
    if plain in (BytesCodec(endian="little"), BytesCodec(endian=None)):
        if others == CHECKED:
            return None
        if others == compressed_codecs(dtype):
            return compressor(dtype)
        if others == FORMER:
            return FORMER_COMPRESSOR
    raise ValueError(f"its codecs {tuple(codecs)} are not those of a run")


def fill_value(dtype: np.dtype[Any]) -> Any:
    return np.nan if dtype.kind == "f" else 0


def encoded(rows: AnyArray, chunk_rows: int, by: Compressor | None, dtype: np.dtype[Any] | None = None) -> memoryview:
    """The bytes of one chunk, of `dtype` if it is not that of the rows; the last of an array is filled up to the size
    of the others. Copied once, into the place where the checksum follows."""
    kind = (dtype or rows.dtype).newbyteorder("<")
    shape = (chunk_rows, *rows.shape[1:])
    buffer = np.empty(math.prod(shape) * kind.itemsize + CHECKSUM_BYTES, dtype=np.uint8)
    whole = buffer[:-CHECKSUM_BYTES].view(kind).reshape(shape)
    whole[: len(rows)] = rows
    whole[len(rows) :] = fill_value(kind)
    if by is not None:
        data = np.frombuffer(by.encode(buffer[:-CHECKSUM_BYTES]), dtype=np.uint8)
        buffer = np.concatenate([data, np.empty(CHECKSUM_BYTES, dtype=np.uint8)])
    buffer[-CHECKSUM_BYTES:] = np.frombuffer(_checksum(buffer[:-CHECKSUM_BYTES]), dtype=np.uint8)
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
    """How many of `n_rows` such rows make a chunk of at most about so many bytes: all chunks have as many, or the last
    one hardly fewer, for what it has fewer would be filled up."""
    return -(-n_rows // max(1, -(-n_rows // rows_in(n_bytes, rows)))) or 1


def compression_pays(rows: AnyArray) -> bool:
    """Whether rows become much smaller, by the first of them; digits without a pattern, as of distances, do not."""
    tried = np.ascontiguousarray(rows[: rows_in(TRIED_BYTES, rows)])
    return tried.nbytes == 0 or len(compressor(rows.dtype).encode(tried)) < WORTHWHILE * tried.nbytes


def _checksum(data: AnyArray) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(CHECKSUM_BYTES, "little")
