"""What the rest of the pipeline sees of the user's data, and how a choice of columns makes it out of a table."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.columns import Column, chosen_columns, column_number
from pipeline.types import AnyArray, Json

Columns: TypeAlias = tuple[int, ...]


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
        self._table, self._columns, self._labels = table, columns, labels

    def read(self, start: int, stop: int) -> AnyArray:
        self._check_rows(start, stop)
        return self._table.read(start, stop, self._columns)

    def ids(self, start: int, stop: int) -> AnyArray:
        if self._labels is None:
            raise InvalidInputError(f"{self.name} was opened without ids; name them with id_column.")
        self._check_rows(start, stop)
        return self._labels.read(start, stop)

    def fingerprint(self) -> Json:
        ids = None if self._labels is None else self._labels.fingerprint()
        return {**self._table.fingerprint(), "columns": list(self._columns), "id_column": ids}

    def _check_rows(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.shape[0]:
            raise InvalidInputError(f"rows {start} to {stop} are outside of the {self.shape[0]} rows of {self.name}.")


def table_source(
    table: Table, columns: Sequence[Column] | None, id_column: Column | None, labels: Labels | None = None
) -> Source:
    """The source that a table gives; `labels` are those that `id_column` names outside of the table, if it does."""
    id_number = None
    if id_column is not None and labels is None:
        id_number = column_number("id_column", id_column, table.name, table.column_names)
        labels = table.labels(id_number)
    return TableSource(table, chosen_columns(columns, id_number, table.name, table.column_names), labels)
