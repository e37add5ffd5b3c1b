"""Arrays in .npy and .npz files, read by rows or where rows and columns cross. Pickled objects are never loaded.

They are read by position, not mapped: a mapped file would count as memory in use. Of a compressed .npz file all that
comes before the last wanted entry is decompressed for every block; save large ones uncompressed. Of an array stored
column by column a block of rows is a piece of each column, read one after the other.
"""

import copy
import io
import lzma
import math
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.arrays import picked
from pipeline.sources.source import Columns, Stamp
from pipeline.types import AnyArray, IntArray, Json

LOCAL_HEADER = struct.Struct("<26xHH")
Span: TypeAlias = tuple[int, int]
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, NotImplementedError)
# Numpy itself refuses headers above 10,000 bytes.
HEADER_BYTES = 1 << 16
# To skip fewer bytes than this is not worth another read, and what is read at once is at most so long.
SKIPPED_BYTES, RUN_BYTES = 1 << 15, 1 << 24


class FileRange:
    """The `size` bytes of a file from `base` on."""

    def __init__(self, path: Path, base: int, size: int) -> None:
        self.size = size
        self._path, self._base = path, base

    def read(self, offset: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(self._base + offset)
            return file.read(length)

    def read_each(self, spans: Iterable[Span]) -> Iterator[bytes]:
        """Many ranges, each an offset and a length; it costs least in rising order."""
        with self._path.open("rb") as file:
            for offset, length in spans:
                file.seek(self._base + offset)
                yield file.read(length)


class CompressedMember:
    """A compressed member. It stays open between reads, since only reading forward does not start all over."""

    def __init__(self, path: Path, member: str, size: int) -> None:
        self.size = size
        self._path, self._member = path, member
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None

    def read(self, offset: int, length: int) -> bytes:
        with self._lock:
            try:
                if self._file is None:
                    with zipfile.ZipFile(self._path) as archive:
                        # The member keeps the archive's file open until it is closed itself.
                        self._file = archive.open(self._member)
                self._file.seek(offset)
                return self._file.read(length)
            except DAMAGE as error:
                self._file = None
                raise InvalidInputError(
                    f"{self._path} is damaged: its member {self._member} cannot be decompressed ({error})."
                ) from error

    def read_each(self, spans: Iterable[Span]) -> Iterator[bytes]:
        # With a place of its own: another thread that reads in turn would send it back to the start each time.
        twin = copy.copy(self)
        for offset, length in spans:
            yield twin.read(offset, length)

    def __reduce__(self) -> Any:
        return type(self), (self._path, self._member, self.size)


ByteRanges: TypeAlias = FileRange | CompressedMember


def archive_members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """The arrays of a .npz file by their keys."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
    except zipfile.BadZipFile as error:
        raise InvalidInputError(f"source {path} is not a .npz file: {error}") from error


def _bytes_of(path: Path, key: str | None) -> ByteRanges:
    """The bytes of a .npy file, or of a member of a .npz file: straight from the file if they are not compressed."""
    if key is None:
        return FileRange(path, 0, Stamp.of(path).size)
    member = archive_members(path)[key]
    if member.flag_bits & 1:
        raise InvalidInputError(f"{path} is encrypted in its member {member.filename}; save it without a password.")
    if member.compress_type != zipfile.ZIP_STORED:
        return CompressedMember(path, member.filename, member.file_size)
    header = FileRange(path, member.header_offset, member.file_size).read(0, LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size:
        raise InvalidInputError(f"{path} is damaged: its member {member.filename} lies beyond its end.")
    return FileRange(
        path, member.header_offset + LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack(header)), member.file_size
    )


class NumpyArray:
    """A .npy file, or the array `key` of a .npz file: lines of entries one after the other, which are its rows, or if
    it is stored column by column, its columns."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.name = str(path) if key is None else f"{path}[{key}]"
        self._key, self._data, self._stamp = key, _bytes_of(path, key), Stamp.of(path)
        file = io.BytesIO(self._data.read(0, HEADER_BYTES))
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, self._by_columns, self.dtype = read(file)
        except ValueError as error:
            raise InvalidInputError(f"{self.name} is not a numpy file: {error}") from error
        self._offset = file.tell()
        length = math.prod(self.shape) * self.dtype.itemsize
        # Pickled objects have no length to go by, and are refused for what they are.
        if self.shape and self._offset + length > self._data.size and not self.dtype.hasobject:
            raise InvalidInputError(f"{self.name} is truncated: {self._what_is_there(length)}.")

    def fingerprint(self) -> Json:
        """Something cheap that changes when the array may have changed."""
        return {"kind": "numpy", "member": self._key, **Stamp.of(self._stamp.path).described()}

    def _what_is_there(self, length: int) -> str:
        return f"it has {self._data.size - self._offset} of {length} bytes for shape {self.shape}"


class NumpyRows(NumpyArray):
    """An array in numpy's format, read along its first axis."""

    def __init__(self, path: Path, key: str | None = None) -> None:
        super().__init__(path, key)
        # With entries along one dimension only, both orders are the same.
        self.has_scattered_rows = self._by_columns and sum(size > 1 for size in self.shape) > 1
        self._row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        if columns is not None:
            return picked(self, start, stop, columns)
        self._stamp.check()
        length = (stop - start) * self._row_bytes
        data = self._data.read(self._offset + start * self._row_bytes, length)
        if len(data) < length:
            raise InvalidInputError(f"{self.name} is damaged: it ends before row {stop} of {self.shape[0]}.")
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])

    def __copy__(self) -> "NumpyRows":
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _data=copy.copy(self._data))
        return twin

    def _what_is_there(self, length: int) -> str:
        if self._by_columns:
            return super()._what_is_there(length)
        row = (self._data.size - self._offset) * self.shape[0] // length
        return f"it ends within row {row} of {self.shape[0]}"


class ColumnMajorRows(NumpyArray):
    """An array stored column by column (Fortran order), read along its first axis: of each column the entries of the
    wanted rows, in the order in which they are stored. Blocks are row-major, as those of other arrays are."""

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        self._stamp.check()
        each_row = self.shape[1:]
        chosen = np.arange(math.prod(each_row)) if columns is None else np.array(columns)
        stored = np.ravel_multi_index(np.unravel_index(chosen, each_row), each_row, order="F")
        block = np.empty((stop - start, len(chosen)), self.dtype)
        places = np.argsort(stored)
        for place, column in zip(places.tolist(), self._columns(stored[places], start, stop), strict=True):
            block[:, place] = column
        return block.reshape(-1, *each_row) if columns is None else block

    def _columns(self, numbers: IntArray, start: int, stop: int) -> Iterator[AnyArray]:
        """Some rows of columns, by the places of the columns in the file, rising."""
        size, length = self.dtype.itemsize, (stop - start) * self.dtype.itemsize
        spans = ((self._offset + (number * self.shape[0] + start) * size, length) for number in numbers.tolist())
        for data in self._data.read_each(spans):
            if len(data) < length:
                raise InvalidInputError(f"{self.name} is damaged: it ends before its last column.")
            yield np.frombuffer(data, self.dtype)


def numpy_rows(path: Path, key: str | None = None) -> NumpyRows | ColumnMajorRows:
    """A .npy file, or the array `key` of a .npz file, in whichever order it is stored."""
    rows = NumpyRows(path, key)
    return ColumnMajorRows(path, key) if rows.has_scattered_rows else rows


class Run(NamedTuple):
    """Entries of a line read at once: those from `first` up to `last`, and which of them are wanted, and where."""

    first: int
    last: int
    wanted: slice | IntArray
    places: slice


class NumpyMatrix(NumpyArray):
    """A matrix in numpy's format, of which any entries can be read."""

    def pick(self, rows: slice | IntArray, columns: slice | IntArray) -> AnyArray:
        """The entries where rows and columns cross; numbers of either rise, slices have a start and a stop."""
        n_rows, n_columns = self.shape
        if self._by_columns:
            return self._picked(_numbers(columns, n_columns), _numbers(rows, n_rows), n_rows).T
        return self._picked(_numbers(rows, n_rows), _numbers(columns, n_columns), n_columns)

    def _picked(self, lines: IntArray, entries: IntArray, line_length: int) -> AnyArray:
        self._stamp.check()
        if len(lines) and len(entries) == line_length and lines[-1] - lines[0] == len(lines) - 1:
            return self._consecutive(int(lines[0]), len(lines), line_length)
        size = self.dtype.itemsize
        runs = _runs(entries, size)
        spans = (
            (self._offset + (line * line_length + run.first) * size, (run.last - run.first) * size)
            for line in lines.tolist()
            for run in runs
        )
        found = self._data.read_each(spans)
        block = np.empty((len(lines), len(entries)), self.dtype)
        for values in block:
            for run in runs:
                values[run.places] = self._entries(next(found), run.last - run.first)[run.wanted]
        return block

    def _consecutive(self, first: int, n_lines: int, line_length: int) -> AnyArray:
        """Whole lines one after the other: they may be many and short, so they are not read one by one."""
        run_length = max(1, RUN_BYTES // self.dtype.itemsize)
        block = np.empty(n_lines * line_length, self.dtype)
        runs = [slice(begin, min(begin + run_length, len(block))) for begin in range(0, len(block), run_length)]
        start, size = self._offset + first * line_length * self.dtype.itemsize, self.dtype.itemsize
        found = self._data.read_each((start + run.start * size, (run.stop - run.start) * size) for run in runs)
        for run in runs:
            block[run] = self._entries(next(found), run.stop - run.start)
        return block.reshape(n_lines, line_length)

    def _entries(self, data: bytes, length: int) -> AnyArray:
        if len(data) < length * self.dtype.itemsize:
            raise InvalidInputError(f"{self.name} is damaged: it ends before its last entry.")
        return np.frombuffer(data, self.dtype)


def _numbers(chosen: slice | IntArray, size: int) -> IntArray:
    return np.arange(*chosen.indices(size)) if isinstance(chosen, slice) else chosen


def _runs(entries: IntArray, entry_bytes: int) -> list[Run]:
    """The entries of a line, rising, in as few runs as are worth reading."""
    if not len(entries):
        return []
    skips = (np.diff(entries) - 1) * entry_bytes > SKIPPED_BYTES
    # A long run is cut where its entries cross a multiple of the longest length.
    skips |= np.diff(entries * entry_bytes // RUN_BYTES) > 0
    bounds = [0, *(np.flatnonzero(skips) + 1).tolist(), len(entries)]
    return [_run(entries, begin, end) for begin, end in pairwise(bounds)]


def _run(entries: IntArray, begin: int, end: int) -> Run:
    first, last = int(entries[begin]), int(entries[end - 1]) + 1
    wanted = slice(None) if last - first == end - begin else entries[begin:end] - first
    return Run(first, last, wanted, slice(begin, end))
