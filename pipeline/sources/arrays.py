"""Arrays as sources: in memory, computed on demand, or read from files; and several sources joined row after row.

Arrays of more than two dimensions are tables too: see `FlatRows`.
"""

import copy
import difflib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.source import Column, Columns, Labels, Source, as_ids, checked_table, require_range, table_source
from pipeline.types import AnyArray, Json

STRIP_BYTES = DIGEST_BYTES = 16 << 20
LISTED_COLUMNS = 5
# Whole numbers up to here are doubles to the last digit.
LARGEST_EXACT = 2**53


class Rows(Protocol):
    """An array read along its first axis. A copy of it (copy.copy) is a reader with a place of its own."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        """Rows from `start` up to `stop`, all columns of them or the given ones."""
        ...

    def fingerprint(self) -> Json: ...


class FlatRows:
    """An array of three dimensions or more as one of two: all that is not the first is a row, in C order."""

    def __init__(self, rows: Rows) -> None:
        self.name, self.dtype = rows.name, rows.dtype
        self.shape: tuple[int, ...] = (rows.shape[0], math.prod(rows.shape[1:]))
        self._rows = rows

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        if columns is not None:
            return picked(self, start, stop, columns)
        return self._rows.read(start, stop).reshape(stop - start, self.shape[1])

    def fingerprint(self) -> Json:
        return self._rows.fingerprint()

    def __copy__(self) -> "FlatRows":
        return FlatRows(copy.copy(self._rows))


class MatrixTable:
    """An array of rows as a table; rows that are arrays themselves, such as images, are flattened."""

    def __init__(self, rows: Rows) -> None:
        flat = FlatRows(rows) if len(rows.shape) > 2 else rows
        self.n_rows, width = checked_table(rows.name, flat.shape, rows.dtype)
        self.name = rows.name
        self.column_names = [str(column) for column in range(width)]
        self.flattened_from = rows.shape if flat is not rows else None
        self._rows = flat

    def dtype_of(self, columns: Columns) -> np.dtype[Any]:
        return self._rows.dtype

    def read(self, start: int, stop: int, columns: Columns) -> AnyArray:
        all_columns = columns == tuple(range(len(self.column_names)))
        return self._rows.read(start, stop, None if all_columns else columns)

    def labels(self, column: int) -> Labels:
        # Ids read in turn with the rows would send a compressed file back to its start each time.
        return RowLabels(copy.copy(self._rows), column)

    def fingerprint(self) -> Json:
        return self._rows.fingerprint()


class RowLabels:
    """Ids from a column of an array, or from an array of one dimension."""

    def __init__(self, rows: Rows, column: int | None = None) -> None:
        self._rows, self._column = rows, column
        if rows.dtype.kind == "b":
            raise InvalidInputError(f"id_column: {rows.name} has dtype bool; ids must be integers or text.")

    def read(self, start: int, stop: int) -> AnyArray:
        if self._column is None:
            return as_ids(self._rows.read(start, stop), self._rows.name, start)
        return as_ids(self._rows.read(start, stop, (self._column,))[:, 0], self._rows.name, start)

    def fingerprint(self) -> Json:
        return self._rows.fingerprint() if self._column is None else {"column": self._column}


def open_one_of(
    path: object,
    arrays: Mapping[str, Callable[[], Rows]],
    key: str | None,
    columns: Sequence[Column] | None,
    id_column: Column | None,
    exclude: Sequence[Column] | None = None,
) -> Source:
    """The source of the array `key` among several, whose ids may be another of them."""
    key = chosen_key(path, list(arrays), key, id_column)
    table = MatrixTable(arrays[key]())
    other = _sibling(list(arrays), key, id_column)
    if other is None:
        _refuse_unknown_name(path, [name for name in arrays if name != key], id_column)
        return table_source(table, columns, id_column, exclude=exclude)
    rows = arrays[other]()
    if rows.dtype.kind not in "iuUST":
        raise InvalidInputError(f"id_column: {rows.name} has dtype {rows.dtype}; ids must be integers or text.")
    if rows.shape != (table.n_rows,):
        raise InvalidInputError(
            f"id_column: {rows.name} has shape {rows.shape}; ids must have shape ({table.n_rows},), one a row."
        )
    return table_source(table, columns, id_column, RowLabels(rows), exclude)


def picked(rows: Rows, start: int, stop: int, columns: Columns) -> AnyArray:
    """Columns of rows that are read whole, by strips: a few columns of wide rows must not cost all of them."""
    strip_rows = max(1, STRIP_BYTES // (rows.shape[1] * rows.dtype.itemsize))
    block = np.empty((stop - start, len(columns)), rows.dtype)
    for first in range(start, stop, strip_rows):
        last = min(first + strip_rows, stop)
        block[first - start : last - start] = rows.read(first, last)[:, columns]
    return block


def chosen_key(path: object, keys: list[str], key: str | None, id_column: Column | None = None) -> str:
    """The array named by `key`; it may be left out where only one array does not hold the ids."""
    listed = ", ".join(map(repr, keys)) or "none"
    if key is not None:
        if key not in keys:
            raise InvalidInputError(f"key={key!r} is not in {path}; it holds {listed}.")
        return key
    candidates = [name for name in keys if name != id_column]
    if len(candidates) != 1:
        raise InvalidInputError(f"source {path} holds {len(keys)} arrays; choose one with key: {listed}.")
    return candidates[0]


def _sibling(keys: list[str], key: str, id_column: Column | None) -> str | None:
    """The array that holds the ids: named in full, or as it is called beside `key`."""
    beside = f"{key.rpartition('/')[0]}/{id_column}"
    names = [name for name in (id_column, beside) if isinstance(name, str) and name in keys and name != key]
    return names[0] if names else None


def _refuse_unknown_name(path: object, others: list[str], id_column: Column | None) -> None:
    if not isinstance(id_column, str) or id_column.isdigit():
        return
    near = difflib.get_close_matches(id_column, others, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"other arrays: {', '.join(map(repr, others)) or 'none'}."
    raise InvalidInputError(
        f"id_column={id_column!r} is neither another array of {path} nor the number of a column; {hint}"
    )


def open_array(
    data: object,
    columns: Sequence[Column] | None,
    id_column: Column | None,
    exclude: Sequence[Column] | None = None,
) -> Source:
    """The source for an array, anything that can be sliced like one, or nested lists."""
    return table_source(MatrixTable(_rows(data)), columns, id_column, exclude=exclude)


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
    block_rows = max(1, DIGEST_BYTES // max(1, math.prod(rows.shape[1:]) * rows.dtype.itemsize))
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


class JoinedSource:
    """Rows come in the dtype that holds those of all parts; there are ids if all parts have them, of one kind."""

    def __init__(self, sources: Sequence[Source]) -> None:
        first, *others = sources
        for other in others:
            _require_same_columns(first, other)
        self.name = first.name if not others else f"{first.name} and {len(others)} more"
        self.shape = (sum(source.shape[0] for source in sources), first.shape[1])
        self.dtype: np.dtype[Any] = np.result_type(*(source.dtype for source in sources))
        self.column_names = first.column_names
        kinds = {source.ids(0, 0).dtype.kind if source.has_ids else None for source in sources}
        self.has_ids = len(kinds) == 1 and None not in kinds
        self._sources = list(sources)
        self._starts = [0, *accumulate(source.shape[0] for source in sources)]

    def read(self, start: int, stop: int) -> AnyArray:
        require_range("rows", start, stop, self.shape[0], self.name)
        parts = [self._converted(source, *rows) for source, rows in self._parts(start, stop)]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])

    def ids(self, start: int, stop: int) -> AnyArray:
        if not self.has_ids:
            raise InvalidInputError(f"{self.name} have no ids, or ids of different kinds; name them with id_column.")
        require_range("rows", start, stop, self.shape[0], self.name)
        parts = [source.ids(*rows) for source, rows in self._parts(start, stop)]
        return np.concatenate(parts) if parts else self._sources[0].ids(0, 0)

    def fingerprint(self) -> Json:
        return {"kind": "joined", "parts": [sorted(source.fingerprint().items()) for source in self._sources]}

    def _converted(self, source: Source, start: int, stop: int) -> AnyArray:
        block = source.read(start, stop)
        if self.dtype.kind == "f" and block.dtype.kind in "iu" and block.dtype.itemsize == 8:
            beyond = (block > LARGEST_EXACT) | (block < -LARGEST_EXACT)
            if beyond.any():
                row, column = np.argwhere(beyond)[0]
                raise InvalidInputError(
                    f"{source.name} holds {block[row, column]} in row {start + row}, which {self.dtype} would round, "
                    "and other data to be joined with it has fractions; subtract an offset or rescale."
                )
        return block.astype(self.dtype, copy=False)

    def _parts(self, start: int, stop: int) -> Iterator[tuple[Source, tuple[int, int]]]:
        """The sources that hold some of the rows, each with their numbers in it."""
        for source, base in zip(self._sources, self._starts, strict=False):
            first, last = max(start - base, 0), min(stop - base, source.shape[0])
            if first < last:
                yield source, (first, last)


def joined(sources: Sequence[Source]) -> Source:
    """Several sources as one; a single one as it is."""
    return sources[0] if len(sources) == 1 else JoinedSource(sources)


def _require_same_columns(first: Source, other: Source) -> None:
    """Columns go by their names; where either side only counts them, by their number."""
    some, others = first.column_names, other.column_names
    counted = len(some) == len(others) and (_are_numbers(some) or _are_numbers(others))
    if some != others and not counted:
        raise InvalidInputError(
            f"{other.name} has {len(others)} columns ({_listed(others)}), {first.name} has {len(some)} "
            f"({_listed(some)}); give the same columns in the same order."
        )


def _are_numbers(names: list[str]) -> bool:
    return all(name.isdigit() for name in names)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:LISTED_COLUMNS]) + (", ..." if len(names) > LISTED_COLUMNS else "")
