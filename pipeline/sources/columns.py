"""Columns chosen by name or number."""

import difflib
import operator
import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from pipeline.errors import InvalidInputError

Column: TypeAlias = str | int

# Pandas writes an index without a name so, to CSV and to Parquet; taken for a coordinate it would rule the distances.
PANDAS_INDEX = re.compile(r"(__index_level_\d+__)?")


def chosen_columns(
    columns: Sequence[Column] | None, id_number: int | None, table: str, names: list[str]
) -> tuple[int, ...]:
    """The numbers of the chosen columns in the order of the choice; None chooses all but the ids."""
    if columns is None:
        return _all_columns(id_number, table, names)
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        raise InvalidInputError(f"columns={columns!r} must be a list of column names or numbers.")
    chosen = tuple(column_number("columns", column, table, names) for column in columns)
    if not chosen:
        raise InvalidInputError("columns=[] chooses nothing; name at least one column, or leave it out for all.")
    for place, number in enumerate(chosen):
        if number in chosen[:place]:
            raise InvalidInputError(f"columns names column {names[number]!r} of {table} twice; name each once.")
    if id_number in chosen:
        raise InvalidInputError(
            f"columns names the id_column {names[id_number or 0]!r} of {table}, which is no coordinate; take it out."
        )
    return chosen


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


def _all_columns(id_number: int | None, table: str, names: list[str]) -> tuple[int, ...]:
    chosen = tuple(number for number in range(len(names)) if number != id_number)
    if not chosen:
        raise InvalidInputError(
            f"id_column takes the only column of {table}; at least one column of numbers is needed."
        )
    for number in chosen:
        if PANDAS_INDEX.fullmatch(names[number]):
            raise InvalidInputError(
                f"column {number} of {table} is named {names[number]!r}, as pandas names an index; make it the "
                "id_column, or choose with columns."
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
