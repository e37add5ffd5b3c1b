"""Chunks as Zarr stores them: little-endian bytes, compressed with zstd, then a crc32c behind them.

zarr would do the same through an event loop and a pool of threads, at several times the cost, and those threads would
fight for cores where every worker has its own. Arrays stay plain Zarr: any reader of it reads them, and a test holds
these bytes against zarr's.
"""

from typing import Any

import google_crc32c
import numpy as np
from numcodecs import Zstd
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from pipeline.types import AnyArray

LEVEL = 1
COMPRESSORS = (ZstdCodec(level=LEVEL), Crc32cCodec())
CODECS = (BytesCodec(endian="little"), *COMPRESSORS)
CODECS_OF_BYTES = (BytesCodec(endian=None), *COMPRESSORS)
CHECKSUM_BYTES = 4


def fill_value(dtype: np.dtype[Any]) -> Any:
    return np.nan if dtype.kind == "f" else 0


def encoded(rows: AnyArray, chunk_rows: int) -> bytes:
    """The bytes of one chunk; the last of an array is filled up to the size of the others."""
    whole = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<"))
    if len(whole) < chunk_rows:
        padding = np.full((chunk_rows - len(whole), *rows.shape[1:]), fill_value(rows.dtype), dtype=whole.dtype)
        whole = np.concatenate([whole, padding])
    data: bytes = Zstd(LEVEL).encode(whole)
    return data + _checksum(data)


def decoded(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """A chunk of `shape`, read-only; a ValueError says what is wrong with the bytes."""
    content = data[:-CHECKSUM_BYTES]
    if _checksum(content) != data[-CHECKSUM_BYTES:]:
        raise ValueError("its checksum does not match its content")
    try:
        values = np.frombuffer(Zstd(LEVEL).decode(content), dtype=dtype.newbyteorder("<"))
    except RuntimeError as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    return values.reshape(shape)


def _checksum(data: bytes) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(CHECKSUM_BYTES, "little")
