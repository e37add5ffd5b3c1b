"""What the rest of the pipeline sees of the user's data, and how a choice of columns makes it out of a table."""

import difflib
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.types import AnyArray, BoolArray, IntArray, Json

Column: TypeAlias = str | int
Columns: TypeAlias = tuple[int, ...]

# Pandas writes an index without a name so, to CSV and to Parquet; taken for a coordinate it would rule the distances.
PANDAS_INDEX = re.compile(r"(__index_level_\d+__)?")
# Numbers of columns, the first and the last.
COLUMN_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)
# Rows between two that are wanted are read along with them up to so many bytes: compressed kinds decode as much anyway.
GAP_BYTES = 1 << 20


def chosen_columns(
    columns: Sequence[Column] | None,
    id_number: int | None,
    table: str,
    names: list[str],
    exclude: Sequence[Column] | None = None,
) -> tuple[int, ...]:
    """The numbers of the chosen columns in the order of the choice; None chooses all but the ids."""
    left_out = set(_listed_columns("exclude", exclude or (), table, names))
    if columns is None:
        return _all_columns(id_number, left_out, table, names)
    chosen = tuple(n for n in _listed_columns("columns", columns, table, names) if n not in left_out)
    if not chosen:
        what = "exclude leaves none of these columns" if left_out else "columns=[] chooses nothing"
        raise InvalidInputError(f"{what}; name at least one column, or leave columns out for all.")
    for place, number in enumerate(chosen):
        if number in chosen[:place]:
            raise InvalidInputError(f"columns names column {names[number]!r} of {table} twice; name each once.")
    if id_number in chosen:
        raise InvalidInputError(
            f"columns names the id_column {names[id_number or 0]!r} of {table}, which is no coordinate; take it out."
        )
    return chosen


def _listed_columns(argument: str, columns: Sequence[Column], table: str, names: list[str]) -> list[int]:
    """The numbers of columns given by names, numbers and ranges of numbers."""
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        raise InvalidInputError(f"{argument}={columns!r} must be a list of column names or numbers.")
    return [number for column in columns for number in _one_or_range(argument, column, table, names)]


def _one_or_range(argument: str, column: Column, table: str, names: list[str]) -> Sequence[int]:
    found = COLUMN_RANGE.fullmatch(column) if isinstance(column, str) and column not in names else None
    if found is None:
        return [column_number(argument, column, table, names)]
    first, last = map(int, found.groups())
    if first > last:
        raise InvalidInputError(f"{argument}: {column!r} has no columns; write the smaller number first.")
    if last >= len(names):
        raise InvalidInputError(f"{argument}: {column!r} goes beyond the columns of {table}; {_numbers(names)}.")
    return range(first, last + 1)


def column_number(argument: str, column: Column, table: str, names: list[str]) -> int:
    """The number of a column given by name, or by number as an int or in digits."""
    if isinstance(column, str):
        if column in names:
            return names.index(column)
        if not (column.isascii() and column.isdigit()):
            raise InvalidInputError(f"{argument}: {column!r} is not a column of {table}; {_nearest(column, names)}.")
    number = _whole_number(argument, column)
    if not 0 <= number < len(names):
        raise InvalidInputError(f"{argument}: {column!r} is not a column of {table}; {_numbers(names)}.")
    return number


def refuse_repeated_names(table: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(f"{table} has two columns named {name!r}; rename one of them.")
        seen.add(name)


def _all_columns(id_number: int | None, left_out: set[int], table: str, names: list[str]) -> tuple[int, ...]:
    chosen = tuple(number for number in range(len(names)) if number != id_number and number not in left_out)
    if not chosen and left_out:
        raise InvalidInputError(f"exclude leaves no column of {table}; at least one column of numbers is needed.")
    if not chosen:
        raise InvalidInputError(
            f"id_column takes the only column of {table}; at least one column of numbers is needed."
        )
    for number in chosen:
        if PANDAS_INDEX.fullmatch(names[number]):
            raise InvalidInputError(
                f"column {number} of {table} is named {names[number]!r}, as pandas names an index; make it the "
                "id_column, leave it out with exclude, or choose with columns."
            )
    return chosen


def _whole_number(argument: str, column: Column) -> int:
    if isinstance(column, str):
        return int(column)
    if isinstance(column, bool | np.bool) or not hasattr(column, "__index__"):
        raise InvalidInputError(f"{argument}: {column!r} is neither the name nor the number of a column.")
    return operator.index(column)


def _nearest(column: str, names: list[str]) -> str:
    near = difflib.get_close_matches(column, names, n=1)
    return f"did you mean {near[0]!r}?" if near else _numbers(names)


def _numbers(names: list[str]) -> str:
    if names == [str(number) for number in range(len(names))]:
        return f"columns are numbered 0 to {len(names) - 1}"
    listed = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
    return f"it has {listed} (numbers 0 to {len(names) - 1})"


def checked_table(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int]:
    """The shape of a table of real numbers."""
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"{name} has dtype {dtype}; it must hold real numbers.")
    if len(shape) != 2:
        raise InvalidInputError(f"{name} has shape {shape}; it must have 2 dimensions or more, rows and columns.")
    if 0 in shape:
        kind = EmptySourceError if shape[1] else InvalidInputError
        raise kind(f"{name} has shape {shape}; it is empty, and at least one row and column are needed.")
    return int(shape[0]), int(shape[1])


def require_range(what: str, start: int, stop: int, size: int, name: str) -> None:
    """Refuse rows or columns outside of those that something has."""
    if not 0 <= start <= stop <= size:
        raise InvalidInputError(f"{what} {start} to {stop} are outside of the {size} {what} of {name}.")


def as_ids(values: AnyArray, name: str, first_row: int) -> AnyArray:
    """Ids as int64 or numpy text; `first_row` is the row of the first, for the error."""
    kind = values.dtype.kind
    if kind == "U":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    if kind == "S":
        return _decoded(values, name)
    if kind in "TO":
        return values.astype(object).astype(str)
    fits = _fits_int64(values)
    if not fits.all():
        row = int(np.argmin(fits))
        raise InvalidInputError(
            f"id_column: {name} holds {values[row]} in row {first_row + row}; ids must be whole numbers that its dtype "
            f"{values.dtype} and int64 hold exactly, or text."
        )
    return values.astype(np.int64)


def _decoded(values: AnyArray, name: str) -> AnyArray:
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"id_column: {name} holds bytes that are no UTF-8 text: {error}") from error


def _fits_int64(values: AnyArray) -> BoolArray:
    if values.dtype.kind != "f":
        return np.asarray(values <= np.iinfo(np.int64).max)
    exact_below = 2.0 ** min(np.finfo(values.dtype).nmant + 1, 53)
    return np.asarray((values == np.rint(values)) & (np.abs(values.astype(np.float64)) <= exact_below))


@dataclass(frozen=True)
class Stamp:
    """What tells a file from another, and from itself later: what was learned on opening it holds only as long."""

    path: Path
    size: int
    changed: int
    number: int
    # This time also changes when only the file's rights do: another fingerprint, but no error.
    entered: int = field(compare=False)

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        try:
            status = path.stat()
        except OSError as error:
            raise InvalidInputError(f"source {path} cannot be read: {error}") from error
        return cls(path, status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)

    def check(self) -> None:
        if Stamp.of(self.path) != self:
            raise InvalidInputError(
                f"source {self.path} has changed since it was opened; start again with the new data."
            )

    def described(self) -> Json:
        place = [str(self.path.resolve()), self.number, self.entered]
        return {"bytes": self.size, "changed": self.changed, "file": place}


class Source(Protocol):
    """Rows of numbers that can be read block by block, in any order, as often as needed."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    column_names: list[str]
    has_ids: bool

    def read(self, start: int, stop: int) -> AnyArray:
        """Rows from `start` up to `stop`, in the source's own dtype; they may be read-only."""
        ...

    def ids(self, start: int, stop: int) -> AnyArray:
        """The user's names of those rows, int64 or text; only where `has_ids`."""
        ...

    def fingerprint(self) -> Json:
        """Something cheap that changes when the data or the choice of columns may have changed."""
        ...


class Labels(Protocol):
    """One name a row: int64 for every block, or text for every block."""

    def read(self, start: int, stop: int) -> AnyArray: ...

    def fingerprint(self) -> Json: ...


class Table(Protocol):
    """Rows and columns as they are stored, before any column is chosen."""

    name: str
    n_rows: int
    column_names: list[str]

    def dtype_of(self, columns: Columns) -> np.dtype[Any]:
        """The dtype in which these columns are read; an error if one of them holds no numbers."""
        ...

    def read(self, start: int, stop: int, columns: Columns) -> AnyArray: ...

    def labels(self, column: int) -> Labels: ...

    def fingerprint(self) -> Json: ...


class TableSource:
    """The chosen columns of a table, and its rows' names if there are any."""

    def __init__(self, table: Table, columns: Columns, labels: Labels | None) -> None:
        self.name = table.name
        self.shape = (table.n_rows, len(columns))
        self.dtype = table.dtype_of(columns)
        self.column_names = [table.column_names[column] for column in columns]
        self.has_ids = labels is not None
        # The shape of an array of more dimensions, for people to see.
        self.flattened_from: tuple[int, ...] | None = getattr(table, "flattened_from", None)
        self._table, self._columns, self._labels = table, columns, labels

    def read(self, start: int, stop: int) -> AnyArray:
        require_range("rows", start, stop, self.shape[0], self.name)
        return self._table.read(start, stop, self._columns)

    def ids(self, start: int, stop: int) -> AnyArray:
        if self._labels is None:
            raise InvalidInputError(f"{self.name} was opened without ids; name them with id_column.")
        require_range("rows", start, stop, self.shape[0], self.name)
        return self._labels.read(start, stop)

    def fingerprint(self) -> Json:
        ids = None if self._labels is None else self._labels.fingerprint()
        return {**self._table.fingerprint(), "columns": list(self._columns), "id_column": ids}


def table_source(
    table: Table,
    columns: Sequence[Column] | None,
    id_column: Column | None,
    labels: Labels | None = None,
    exclude: Sequence[Column] | None = None,
) -> Source:
    """The source that a table gives; `labels` are those that `id_column` names outside of the table, if it does."""
    id_number = None
    if id_column is not None and labels is None:
        id_number = column_number("id_column", id_column, table.name, table.column_names)
        labels = table.labels(id_number)
    return TableSource(table, chosen_columns(columns, id_number, table.name, table.column_names, exclude), labels)


def take_rows(source: Source, numbers: IntArray) -> AnyArray:
    """Rows (r, D) of the source by their numbers, rising."""
    rows = np.empty((len(numbers), source.shape[1]), dtype=source.dtype)
    widest = GAP_BYTES // max(1, source.shape[1] * source.dtype.itemsize)
    bounds = np.flatnonzero(np.diff(numbers) > 1 + widest) + 1
    for first, last in pairwise([0, *bounds.tolist(), len(numbers)]):
        if first < last:
            start = int(numbers[first])
            rows[first:last] = source.read(start, int(numbers[last - 1]) + 1)[numbers[first:last] - start]
    return rows
