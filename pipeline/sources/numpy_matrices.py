"""Matrices in .npy and .npz files, read where rows and columns cross; stored row by row or column by column.

They are read by position, not mapped: a mapped file would count as memory in use. Of a compressed .npz file all that
comes before the last wanted entry is decompressed for every block; save large ones uncompressed.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.byte_ranges import ByteRanges, FileRange, archive_members, member_bytes
from pipeline.sources.checks import Stamp
from pipeline.sources.numpy_files import array_header
from pipeline.types import AnyArray, IntArray, Json

# To skip fewer bytes than this is not worth another read, and what is read at once is at most so long.
SKIPPED_BYTES, RUN_BYTES = 1 << 15, 1 << 24


class Matrix(Protocol):
    """A two-dimensional array of which any entries can be read."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def pick(self, rows: slice | IntArray, columns: slice | IntArray) -> AnyArray:
        """The entries where rows and columns cross; numbers of either rise, slices have a start and a stop."""
        ...

    def fingerprint(self) -> Json: ...


class Run(NamedTuple):
    """Entries of a line read at once: those from `first` up to `last`, and which of them are wanted, and where."""

    first: int
    last: int
    wanted: slice | IntArray
    places: slice


class NumpyMatrix:
    """A matrix in numpy's format: lines of entries one after the other, which are its rows or its columns."""

    def __init__(self, path: Path, key: str | None, data: ByteRanges) -> None:
        self.name = str(path) if key is None else f"{path}[{key}]"
        self._key, self._data, self._stamp = key, data, Stamp.of(path)
        self.shape, self._by_columns, self.dtype, self._offset = array_header(self.name, data)
        length = int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
        # Pickled objects have no length to go by, and are refused for what they are.
        if self._offset + length > data.size and not self.dtype.hasobject:
            raise InvalidInputError(
                f"{self.name} is truncated: it has {data.size - self._offset} of {length} bytes for shape {self.shape}."
            )

    def pick(self, rows: slice | IntArray, columns: slice | IntArray) -> AnyArray:
        n_rows, n_columns = self.shape
        if self._by_columns:
            return self._picked(_numbers(columns, n_columns), _numbers(rows, n_rows), n_rows).T
        return self._picked(_numbers(rows, n_rows), _numbers(columns, n_columns), n_columns)

    def fingerprint(self) -> Json:
        return {"kind": "numpy", "member": self._key, **Stamp.of(self._stamp.path).described()}

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


def file_matrix(path: Path) -> NumpyMatrix:
    """The matrix of a .npy file."""
    return NumpyMatrix(path, None, FileRange(path, 0, Stamp.of(path).size))


def member_matrix(path: Path, key: str) -> NumpyMatrix:
    """The matrix `key` of a .npz file."""
    return NumpyMatrix(path, key, member_bytes(path, archive_members(path)[key]))


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
