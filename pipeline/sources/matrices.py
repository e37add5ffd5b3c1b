"""Tables of one dtype whose columns have numbers but no names: arrays, wherever they are kept."""

import copy
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.checks import as_ids, checked_labels, checked_table
from pipeline.sources.columns import Column
from pipeline.sources.source import Columns, Labels, Source, table_source
from pipeline.types import AnyArray, Json

STRIP_BYTES = 16 << 20


class Rows(Protocol):
    """An array read along its first axis. A copy of it (copy.copy) is a reader with a place of its own."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int, columns: Columns | None = None) -> AnyArray:
        """Rows from `start` up to `stop`, all columns of them or the given ones."""
        ...

    def fingerprint(self) -> Json: ...


class MatrixTable:
    """A two-dimensional array as a table."""

    def __init__(self, rows: Rows) -> None:
        self.n_rows, width = checked_table(rows.name, rows.shape, rows.dtype)
        self.name = rows.name
        self.column_names = [str(column) for column in range(width)]
        self._rows = rows

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


def open_matrix(rows: Rows, columns: Sequence[Column] | None, id_column: Column | None) -> Source:
    """The source of a single array."""
    return table_source(MatrixTable(rows), columns, id_column)


def open_one_of(
    path: object,
    arrays: Mapping[str, Callable[[], Rows]],
    key: str | None,
    columns: Sequence[Column] | None,
    id_column: Column | None,
) -> Source:
    """The source of the array `key` among several, whose ids may be another of them."""
    key = _chosen_key(path, list(arrays), key, id_column)
    table = MatrixTable(arrays[key]())
    other = _sibling(list(arrays), key, id_column)
    if other is None:
        _refuse_unknown_name(path, [name for name in arrays if name != key], id_column)
        return table_source(table, columns, id_column)
    rows = arrays[other]()
    checked_labels(rows.name, rows.shape, rows.dtype, table.n_rows)
    return table_source(table, columns, id_column, RowLabels(rows))


def picked(rows: Rows, start: int, stop: int, columns: Columns) -> AnyArray:
    """Columns of rows that are read whole, by strips: a few columns of wide rows must not cost all of them."""
    strip_rows = max(1, STRIP_BYTES // (rows.shape[1] * rows.dtype.itemsize))
    block = np.empty((stop - start, len(columns)), rows.dtype)
    for first in range(start, stop, strip_rows):
        last = min(first + strip_rows, stop)
        block[first - start : last - start] = rows.read(first, last)[:, columns]
    return block


def _chosen_key(path: object, keys: list[str], key: str | None, id_column: Column | None) -> str:
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
