"""One column of a CSV, TSV or Parquet file as text, as it stands: numbers in delimited text are not taken for such."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline.errors import InvalidInputError
from pipeline.sources import row_index
from pipeline.sources.columns import column_number
from pipeline.sources.delimited import DelimitedTable
from pipeline.sources.parquet import ParquetTable
from pipeline.types import Json

TextColumn: TypeAlias = "DelimitedTexts | ParquetTexts"
TEXT_TYPES = ("string", "large_string", "string_view")


def open_text_column(path: Path, kind: str, key: str) -> TextColumn:
    """The column named `key`, or with that number, of a file, or of a folder of .parquet files."""
    return ParquetTexts(path, key) if kind == ".parquet" else DelimitedTexts(path, key)


class DelimitedTexts:
    """A column of delimited text; an empty field is the empty text."""

    def __init__(self, path: Path, key: str) -> None:
        self._table = DelimitedTable(path)
        self._column = column_number("key", key, str(path), self._table.column_names)
        self.name, self.n_rows = _name(path, self._table.column_names[self._column]), self._table.n_rows
        self.rows_at_once = row_index.INDEXED_ROWS

    def read(self, start: int, stop: int) -> list[str]:
        parts = self._table.parts(start, stop, (self._column,), pa.string())
        return [text for _, part in parts for text in part.column(0).to_pylist()]

    def fingerprint(self) -> Json:
        return {**self._table.fingerprint(), "column": self._column}


class ParquetTexts:
    """A column of text, also one of categories that are texts."""

    def __init__(self, path: Path, key: str) -> None:
        self._table = ParquetTable(path, _parquet_files(path))
        self._column = column_number("key", key, str(path), self._table.column_names)
        self.name, self.n_rows = _name(path, self._table.column_names[self._column]), self._table.n_rows
        self.rows_at_once = row_index.INDEXED_ROWS
        self._refuse_other_types()

    def read(self, start: int, stop: int) -> list[str]:
        texts: list[str] = []
        for first, part in self._table.parts(start, stop, (self._column,)):
            column = part.column(0)
            if column.null_count:
                row = first + int(np.argmax(column.is_null().to_numpy()))
                raise InvalidInputError(f"{self.name} is null in row {row}; give every row a text, or drop those rows.")
            texts += column.to_pylist()
        return texts

    def fingerprint(self) -> Json:
        return {**self._table.fingerprint(), "column": self._column}

    def _refuse_other_types(self) -> None:
        _, part = next(self._table.parts(0, 1, (self._column,)))
        kind: Any = part.column(0).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        if str(plain) not in TEXT_TYPES:
            raise InvalidInputError(
                f"{self.name} has type {kind}, not text; choose another with key, or leave key out to take rows of "
                "numbers for the objects."
            )


def _name(path: Path, column: str) -> str:
    return f"column {column!r} of {path}"


def _parquet_files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if path.is_dir() and len(files) < sum(1 for _ in path.rglob("*.parquet")):
        raise InvalidInputError(f"source {path} has .parquet files in folders below it; only a flat one is read.")
    return files
