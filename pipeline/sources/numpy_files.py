"""Arrays in .npy and .npz files, read by position. Pickled objects are never loaded."""

import copy
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.byte_ranges import ByteRanges, FileRange, archive_members, member_bytes
from pipeline.sources.checks import Stamp
from pipeline.sources.columns import Column
from pipeline.sources.matrices import open_matrix, open_one_of, picked
from pipeline.sources.source import Columns, Source
from pipeline.types import AnyArray, Json

# Numpy itself refuses headers above 10,000 bytes.
HEADER_BYTES = 1 << 16


def open_npy(path: Path, columns: Sequence[Column] | None, id_column: Column | None) -> Source:
    """The source of a .npy file."""
    return open_matrix(file_rows(path), columns, id_column)


def open_npz(path: Path, key: str | None, columns: Sequence[Column] | None, id_column: Column | None) -> Source:
    """The source of an array in a .npz file, whose ids may be another array of it."""
    arrays = {name: partial(member_rows, path, name) for name in archive_members(path)}
    return open_one_of(path, arrays, key, columns, id_column)


class NumpyRows:
    """An array in numpy's format along its first axis."""

    def __init__(self, path: Path, key: str | None, data: ByteRanges) -> None:
        self.name = str(path) if key is None else f"{path}[{key}]"
        self._key, self._data, self._stamp = key, data, Stamp.of(path)
        self.shape, self.dtype, self._offset = self._header()
        self._row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        self._check_length()

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        if columns is not None:
            return picked(self, start, stop, columns)
        self._stamp.check()
        length = (stop - start) * self._row_bytes
        data = self._data.read(self._offset + start * self._row_bytes, length)
        if len(data) < length:
            raise InvalidInputError(f"{self.name} is damaged: it ends before row {stop} of {self.shape[0]}.")
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])

    def fingerprint(self) -> Json:
        return {"kind": "numpy", "member": self._key, **Stamp.of(self._stamp.path).described()}

    def __copy__(self) -> "NumpyRows":
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _data=copy.copy(self._data))
        return twin

    def _header(self) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        shape, by_columns, dtype, offset = array_header(self.name, self._data)
        if by_columns and sum(size > 1 for size in shape) > 1:
            raise InvalidInputError(
                f"{self.name} is stored column by column and cannot be read by rows; save np.ascontiguousarray of it."
            )
        return shape, dtype, offset

    def _check_length(self) -> None:
        missing = self.shape and self._offset + self.shape[0] * self._row_bytes > self._data.size
        # Pickled objects have no length to go by, and are refused for what they are.
        if missing and not self.dtype.hasobject:
            row = (self._data.size - self._offset) // self._row_bytes
            raise InvalidInputError(f"{self.name} is truncated: it ends within row {row} of {self.shape[0]}.")


def array_header(name: str, data: ByteRanges) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether it is stored column by column, dtype, and the byte at which the entries begin."""
    file = io.BytesIO(data.read(0, HEADER_BYTES))
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
    except ValueError as error:
        raise InvalidInputError(f"{name} is not a numpy file: {error}") from error
    return shape, by_columns, dtype, file.tell()


def file_rows(path: Path) -> NumpyRows:
    """The array of a .npy file."""
    return NumpyRows(path, None, FileRange(path, 0, Stamp.of(path).size))


def member_rows(path: Path, key: str) -> NumpyRows:
    """The array `key` of a .npz file."""
    return NumpyRows(path, key, member_bytes(path, archive_members(path)[key]))
