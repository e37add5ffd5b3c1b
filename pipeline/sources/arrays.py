"""Arrays in memory, and arrays that are computed or loaded only where they are sliced."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.columns import Column
from pipeline.sources.matrices import Rows, open_matrix, picked
from pipeline.sources.source import Columns, Source
from pipeline.types import AnyArray, Json

DIGEST_BYTES = 16 << 20


def open_array(data: object, columns: Sequence[Column] | None, id_column: Column | None) -> Source:
    """The source for an array, anything that can be sliced like one, or nested lists."""
    return open_matrix(_rows(data), columns, id_column)


class ArrayRows:
    """An array in memory."""

    def __init__(self, array: AnyArray) -> None:
        self.name = "the array"
        self.shape, self.dtype = array.shape, array.dtype
        self._array = array

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        rows = self._array[start:stop]
        return rows if columns is None else rows[:, columns]

    def fingerprint(self) -> Json:
        return {"kind": "array", "shape": list(self.shape), "dtype": self.dtype.str, "sha256": content_digest(self)}


class LazyRows:
    """Anything with shape, dtype and slices, such as a dask array or an HDF5 dataset."""

    def __init__(self, array: Any) -> None:
        self.name = f"the {type(array).__module__.partition('.')[0]} array"
        self.shape, self.dtype = _lazy_shape(self.name, array), _lazy_dtype(self.name, array)
        self._array = array
        self._dask = type(array).__module__.startswith("dask.array")

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        if columns is None:
            return self._block(self._array[start:stop], (stop - start, *self.shape[1:]))
        if self._dask:
            return self._block(self._array[start:stop][:, list(columns)], (stop - start, len(columns)))
        return picked(self, start, stop, columns)

    def fingerprint(self) -> Json:
        described: Json = {"kind": "lazy array", "shape": list(self.shape), "dtype": self.dtype.str}
        if self._dask:
            # The name of a dask array is a token of the data and of all that is done to it.
            return {**described, "name": self._array.name}
        return {**described, "sha256": content_digest(self)}

    def _block(self, part: Any, shape: tuple[int, ...]) -> AnyArray:
        block = np.asarray(part)
        if (block.shape, block.dtype) != (shape, self.dtype):
            raise InvalidInputError(
                f"{self.name} gives a block of {block.dtype} {block.shape} where its shape and dtype announce "
                f"{self.dtype} {shape}; convert it to a dense array of one dtype."
            )
        return block


def content_digest(rows: Rows) -> str:
    """SHA-256 over the rows, read by blocks."""
    digest = hashlib.sha256()
    block_rows = max(1, DIGEST_BYTES // max(1, rows.shape[1] * rows.dtype.itemsize))
    for start in range(0, rows.shape[0], block_rows):
        block = rows.read(start, min(start + block_rows, rows.shape[0]))
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def _rows(data: object) -> Rows:
    if isinstance(data, np.ma.MaskedArray):
        raise InvalidInputError("the array is masked; fill it first, for example with .filled(np.nan).")
    lazy = all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__"))
    if lazy and not isinstance(data, np.ndarray | np.generic):
        return LazyRows(data)
    try:
        return ArrayRows(np.asarray(data))
    except ValueError as error:
        raise InvalidInputError(f"the data of type {type(data).__name__} is no table of numbers: {error}") from error


def _lazy_shape(name: str, array: Any) -> tuple[int, ...]:
    if any(math.isnan(size) for size in array.shape):
        raise InvalidInputError(f"{name} has the unknown shape {array.shape}; call its compute_chunk_sizes() first.")
    return tuple(int(size) for size in array.shape)


def _lazy_dtype(name: str, array: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(array.dtype)
    except TypeError as error:
        raise InvalidInputError(f"{name} has dtype {array.dtype}, which numpy does not know; convert it.") from error
    return dtype
