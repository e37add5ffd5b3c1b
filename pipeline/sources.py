"""The user's data as blocks of rows, whatever holds it."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.types import AnyArray, Json


class Source(Protocol):
    """Rows of numbers that can be read block by block, in any order, as often as needed."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int) -> AnyArray:
        """Rows from `start` up to `stop`, in the source's own dtype."""
        ...

    def fingerprint(self) -> Json:
        """Something cheap that changes when the data may have changed."""
        ...


def open_source(data: object, key: str | None = None) -> Source:
    """The source for a path to a .npy or .npz file (with `key` if it holds several arrays), or for an array."""
    if not isinstance(data, str | Path):
        return ArraySource(np.asarray(data))
    path = Path(data)
    if path.suffix not in (".npy", ".npz"):
        raise InvalidInputError(f"source {path} is of no known kind; use a .npy or .npz file.")
    if not path.is_file():
        raise InvalidInputError(f"source {path} does not exist or is not a file; check the path.")
    if path.suffix == ".npy":
        if key is not None:
            raise InvalidInputError(f"key={key!r} names an array of a .npz file; {path} holds only one: leave it out.")
        return NumpyFileSource(path, None)
    return NumpyFileSource(path, _member(path, key))


class ArraySource:
    """An array in memory."""

    def __init__(self, array: AnyArray) -> None:
        self.name = "the array"
        self.shape, self.dtype = _checked(self.name, array.shape, array.dtype)
        self._array = array

    def read(self, start: int, stop: int) -> AnyArray:
        return self._array[start:stop]

    def fingerprint(self) -> Json:
        digest = hashlib.sha256(np.ascontiguousarray(self._array).data).hexdigest()
        return {"kind": "array", "shape": list(self.shape), "dtype": self.dtype.str, "sha256": digest}


class NumpyFileSource:
    """A .npy file, or a member of a .npz file, read by position: a mapped file would count as memory in use."""

    def __init__(self, path: Path, member: str | None) -> None:
        self.name = str(path) if member is None else f"{path}[{member.removesuffix('.npy')}]"
        self._path, self._member = path, member
        self.shape, self.dtype, self._offset = self._with_file(self._header)

    def read(self, start: int, stop: int) -> AnyArray:
        block: AnyArray = self._with_file(lambda file: self._block(file, start, stop))
        return block

    def fingerprint(self) -> Json:
        status = self._path.stat()
        return {
            "kind": "numpy",
            "member": self._member,
            "bytes": status.st_size,
            "changed": status.st_mtime_ns,
        }

    def _with_file(self, use: Callable[[IO[bytes]], Any]) -> Any:
        if self._member is None:
            with self._path.open("rb") as file:
                return use(file)
        with zipfile.ZipFile(self._path) as archive, archive.open(self._member) as file:
            return use(file)

    def _header(self, file: IO[bytes]) -> tuple[tuple[int, int], np.dtype[Any], int]:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, by_columns, dtype = read(file)
        except ValueError as error:
            raise InvalidInputError(f"{self.name} is not a numpy file: {error}") from error
        checked_shape, checked_dtype = _checked(self.name, shape, dtype)
        if by_columns and min(checked_shape) > 1:
            raise InvalidInputError(
                f"{self.name} is stored column by column and cannot be read by rows; save np.ascontiguousarray of it."
            )
        return checked_shape, checked_dtype, file.tell()

    def _block(self, file: IO[bytes], start: int, stop: int) -> AnyArray:
        row_bytes = self.shape[1] * self.dtype.itemsize
        file.seek(self._offset + start * row_bytes)
        data = file.read((stop - start) * row_bytes)
        if len(data) < (stop - start) * row_bytes:
            raise InvalidInputError(
                f"{self.name} is truncated: it ends within row {start + len(data) // row_bytes} of {self.shape[0]}."
            )
        return np.frombuffer(data, dtype=self.dtype).reshape(-1, self.shape[1])


def _member(path: Path, key: str | None) -> str:
    """The file inside a .npz that holds the array `key`, or its only array."""
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except zipfile.BadZipFile as error:
        raise InvalidInputError(f"source {path} is not a .npz file: {error}") from error
    listed = ", ".join(map(repr, keys))
    if key is None and len(keys) != 1:
        raise InvalidInputError(f"source {path} holds {len(keys)} arrays; choose one with key: {listed}.")
    if key is not None and key not in keys:
        raise InvalidInputError(f"key={key!r} is not in {path}; it holds {listed}.")
    return f"{key or keys[0]}.npy"


def _checked(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Shape and dtype of a table of real numbers."""
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"{name} has dtype {dtype}; it must hold real numbers.")
    if len(shape) != 2:
        raise InvalidInputError(f"{name} has shape {shape}; it must have 2 dimensions, rows and columns.")
    if 0 in shape:
        raise InvalidInputError(f"{name} has shape {shape}; it is empty, and at least one row and column are needed.")
    return (int(shape[0]), int(shape[1])), dtype
