"""Single fields of delimited text: slow, for the first line and for what the fast parser refused."""

import csv
import io
from collections.abc import Sequence

# The texts that the parser takes for a missing number.
MISSING = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL"}
    | {"NaN", "n/a", "nan", "null"}
)


def is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    # Python's digit separator is not one in data.
    return "_" not in field


def is_row_of_numbers(fields: Sequence[str]) -> bool:
    """Whether a first line is data and not names: nothing but numbers, some of which may be missing."""
    return all(is_number(field) or field in MISSING for field in fields) and any(map(is_number, fields))


def first_fault(data: bytes, delimiter: str, names: Sequence[str], numbers: Sequence[int]) -> tuple[int, str] | None:
    """The first row that is not one of the table's, and what is wrong with it; `numbers` are the columns of such."""
    reader = csv.reader(io.StringIO(data.decode(errors="replace"), newline=""), delimiter=delimiter)
    try:
        for row, fields in enumerate(reader):
            fault = _fault(fields, names, numbers)
            if fault is not None:
                return row, fault
    except csv.Error:
        return None
    return None


def _fault(fields: Sequence[str], names: Sequence[str], numbers: Sequence[int]) -> str | None:
    if not fields:
        return "is blank; remove the line."
    if len(fields) != len(names):
        return f"has {len(fields)} fields where the first line has {len(names)}; make them the same."
    for column in numbers:
        field = fields[column].strip()
        if not is_number(field) and field not in MISSING:
            return (
                f"holds {fields[column]!r} in column {names[column]!r}, which is not a number; leave the column out "
                "with columns, or make it the id_column."
            )
    return None
