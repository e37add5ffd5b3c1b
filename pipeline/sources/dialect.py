"""How a table in text is written: what separates its fields, and how its numbers look. Told from its first rows."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# The texts that the parser takes for a missing number.
MISSING = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL"}
    | {"NaN", "n/a", "nan", "null"}
)
# Separators that are looked for, the one that the suffix stands for first; lines of a .txt file may have spaces.
USUAL = {".csv": ",", ".tsv": "\t", ".txt": ","}
SEPARATORS = (",", ";", "\t", "|")
SPACE = " "
WITH_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
# What may as well be a whole number with a separator of thousands.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


@dataclass(frozen=True)
class Dialect:
    """What separates the fields of a row, and what stands before the fraction of a number."""

    delimiter: str
    decimal: str = "."

    def is_number(self, field: str) -> bool:
        try:
            float(field if self.decimal == "." else field.replace(self.decimal, "."))
        except ValueError:
            return False
        # Python's digit separator is not one in data.
        return "_" not in field and (self.decimal == "." or "." not in field)

    def is_row_of_numbers(self, fields: Sequence[str]) -> bool:
        """Whether a first line is data and not names: nothing but numbers, some of which may be missing."""
        return all(self.is_number(field) or field in MISSING for field in fields) and any(map(self.is_number, fields))

    def rows(self, text: str) -> Iterator[list[str]]:
        return csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)

    def first_fault(self, text: str, names: Sequence[str], numbers: Sequence[int]) -> tuple[int, str] | None:
        """The first row that is not one of the table's, and what is wrong with it; `numbers` are columns of such."""
        try:
            for row, fields in enumerate(self.rows(text)):
                fault = self._fault(fields, names, numbers)
                if fault is not None:
                    return row, fault
        except csv.Error:
            return None
        return None

    def _fault(self, fields: Sequence[str], names: Sequence[str], numbers: Sequence[int]) -> str | None:
        if not fields:
            return "is blank; remove the line."
        if len(fields) != len(names):
            return f"has {len(fields)} fields where the first line has {len(names)}; make them the same."
        for column in numbers:
            field = fields[column].strip()
            if not self.is_number(field) and field not in MISSING:
                return f"holds {fields[column]!r} in column {names[column]!r}, {_remedy(field)}"
        return None


def dialect_of(text: str, suffix: str) -> Dialect:
    """The dialect of the first rows of a file.

    Of the separators by which all rows have the same number of fields, at least two, it is the one that leaves most of
    them numbers; if two leave as many, the one that the suffix stands for. If there is none, faults are to be found
    by the first two rows alone.
    """
    usual = USUAL[suffix]
    order = dict.fromkeys((usual, *SEPARATORS, *(SPACE * (suffix == ".txt"))))
    tables = {separator: _rows(text, separator) for separator in order}
    for n_rows in (None, 2):
        shares = {separator: _share(rows[:n_rows], separator) for separator, rows in tables.items()}
        # A text with a separator in it is not taken apart: only where that gives numbers.
        likely = [separator for separator, share in shares.items() if share > 0]
        if likely:
            best = max(likely, key=lambda separator: shares[separator])
            return _written(tables[best], best)
    return Dialect(usual)


def _rows(text: str, separator: str) -> list[list[str]]:
    try:
        rows = [[field.strip() for field in fields] for fields in Dialect(separator).rows(text)]
    except csv.Error:
        return []
    return [fields for fields in rows if fields]


def _share(rows: list[list[str]], separator: str) -> float:
    """The share of numbers among the fields; 0 if these rows are not a table of several columns."""
    widths = {len(fields) for fields in rows}
    fields = [field for row in rows for field in row]
    if len(widths) != 1 or widths == {1} or (separator == SPACE and "" in fields):
        return 0.0
    ways = [Dialect(separator), *([Dialect(separator, ",")] * (separator == ";"))]
    return sum(any(way.is_number(field) for way in ways) for field in fields) / len(fields)


def _written(rows: list[list[str]], separator: str) -> Dialect:
    """The dialect with this separator: with semicolons, numbers may have decimal commas.

    Only if it is certain: no number has a point, and not all could be whole numbers with separators of thousands.
    """
    if separator != ";":
        return Dialect(separator)
    fields = [field for row in rows for field in row]
    commas = [field for field in fields if WITH_COMMA.fullmatch(field)]
    points = any("." in field and Dialect(separator).is_number(field) for field in fields)
    certain = not points and not all(map(THOUSANDS.fullmatch, commas))
    return Dialect(separator, "," if certain else ".")


def _remedy(field: str) -> str:
    if WITH_COMMA.fullmatch(field):
        return (
            "which is not a number; write decimal points. Decimal commas are read only where semicolons separate the "
            "fields and the first rows have some that are not separators of thousands, and no decimal point."
        )
    return "which is not a number; leave the column out with columns, or make it the id_column."
