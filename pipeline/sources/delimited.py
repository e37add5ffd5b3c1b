"""CSV and TSV files: where rows begin is found in one pass over the bytes, then they are parsed run by run."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.sources.dialect import MISSING, dialect_of
from pipeline.sources.gzipped import GZIPPED, Unpacked, table_suffix, unpacked
from pipeline.sources.source import Column, Columns, Labels, Source, Stamp, refuse_repeated_names, table_source
from pipeline.sources.text_rows import OpenQuoteError, RowIndex, content_end, content_start, row_ends
from pipeline.types import AnyArray, Json

# The dialect is told from so many rows, unless they are longer than this.
SAMPLED_ROWS, SAMPLED_BYTES = 100, 1 << 18
LARGEST_PARSER_BLOCK = 2**31 - 1
# What int64 holds and writes back as the same text; ids such as 007 stay text.
WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"


def open_delimited(
    path: Path,
    columns: Sequence[Column] | None,
    id_column: Column | None,
    exclude: Sequence[Column] | None = None,
) -> Source:
    """The source of a .csv, .tsv or .txt file."""
    try:
        source = table_source(DelimitedTable(path), columns, id_column, exclude=exclude)
        source.read(0, 1)  # text in a column that should hold numbers is best told at once
    except InvalidInputError as error:
        # A single line of text is no table without rows, as new data that has not come yet may be.
        if table_suffix(path) != ".txt":
            raise
        raise InvalidInputError(f"{error} If its lines are texts to compare, choose input='objects'.") from error
    return source


class DelimitedTable:
    """Rows of delimited text. What is no number is found where it is parsed, and named."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path, self._stamp = path, Stamp.of(path)
        text = self._text()
        with text.path.open("rb") as file:
            self._scan(file)
        self.n_rows = self._index.n_rows
        refuse_repeated_names(self.name, self.column_names)
        if not self.n_rows:
            raise EmptySourceError(f"{self.name} holds no rows of data; it is empty, and at least one is needed.")

    def dtype_of(self, columns: Columns) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def read(self, start: int, stop: int, columns: Columns) -> AnyArray:
        block = np.empty((stop - start, len(columns)))
        for first, part in self.parts(start, stop, columns, pa.float64()):
            for place, column in enumerate(part.columns):
                block[first - start : first - start + part.num_rows, place] = column.to_numpy()
        return block

    def labels(self, column: int) -> Labels:
        return DelimitedLabels(self, column)

    def require_texts(self, column: int) -> None:
        """Any field is text."""

    def texts(self, start: int, stop: int, column: int) -> list[str]:
        """A column as it stands: an empty field is the empty text."""
        return [text for _, part in self.parts(start, stop, (column,), pa.string()) for text in part[0].to_pylist()]

    def fingerprint(self) -> Json:
        return {"kind": "delimited text", **Stamp.of(self._path).described()}

    def parts(self, start: int, stop: int, columns: Columns, kind: Any) -> Iterator[tuple[int, Any]]:
        """Arrow tables that hold the rows, cut at the indexed runs, each with the number of its first row."""
        self._stamp.check()
        for run in self._index.runs(start, stop):
            rows = self._index.rows(run)
            first, last = max(start, rows.start), min(stop, rows.stop)
            yield first, self._parsed(run, columns, kind).slice(first - rows.start, last - first)

    def _parsed(self, run: int, columns: Columns, kind: Any) -> Any:
        """All rows of a run; they are as many as were indexed, or it is an error."""
        text, rows = self._text(), self._index.rows(run)
        data = self._index.read_run(text.path, run)
        try:
            table = self._arrow_table(data, columns, kind)
        except pa.ArrowException as error:
            raise InvalidInputError(self._fault(data, rows, columns, kind, str(error))) from error
        if len(table) != len(rows):
            raise InvalidInputError(self._fault(data, rows, columns, kind, f"{len(table)} rows are there"))
        return table

    def _arrow_table(self, data: bytes, columns: Columns, kind: Any) -> Any:
        # Numbers for names: those in the header may be empty.
        chosen = [str(column) for column in columns]
        return read_csv(
            pa.py_buffer(data),
            ReadOptions(
                use_threads=False,
                block_size=min(len(data) + 1, LARGEST_PARSER_BLOCK),
                column_names=[str(column) for column in range(len(self.column_names))],
            ),
            ParseOptions(delimiter=self._dialect.delimiter, newlines_in_values=True),
            ConvertOptions(
                column_types=dict.fromkeys(chosen, kind),
                include_columns=chosen,
                null_values=sorted(MISSING),
                decimal_point=self._dialect.decimal,
            ),
        )

    def _fault(self, data: bytes, rows: range, columns: Columns, kind: Any, otherwise: str) -> str:
        numbers = columns if pa.types.is_floating(kind) else ()
        fault = self._dialect.first_fault(data.decode(errors="replace"), self.column_names, numbers)
        if fault is None:
            return (
                f"{self.name} cannot be parsed in rows {rows.start} to {rows.stop}: {otherwise}. A quote or a carriage "
                "return inside of a field that is not quoted does this; quote the field."
            )
        return f"{self.name}: row {rows.start + fault[0]} (from 0, after any header) {fault[1]}"

    def _text(self) -> Stamp | Unpacked:
        """Where the text is. Keep this while reading it: a gzipped file is unpacked for as long."""
        return unpacked(self._stamp) if self.name.lower().endswith(GZIPPED) else self._stamp

    def _scan(self, file: IO[bytes]) -> None:
        """Learn the dialect from the first rows, the columns from the first line, and where the rows are."""
        start = content_start(file)
        stop = content_end(file, start)
        try:
            end, sampled = _first_rows(file, start, stop)
            file.seek(start)
            sample = file.read(sampled - start)
            self._dialect = dialect_of(sample.decode(errors="replace"), table_suffix(self._path))
            fields = self._first_fields(sample[: end - start])
            has_header = not self._dialect.is_row_of_numbers(fields)
            self._index = RowIndex.scanned(file, end + 1 if has_header else start, stop)
        except OpenQuoteError as error:
            raise InvalidInputError(f"{self.name} ends within quotes; a quote is missing or too many.") from error
        except EOFError as error:
            raise InvalidInputError(f"{self.name} became shorter while it was read; start again.") from error
        self.column_names = fields if has_header else [str(column) for column in range(len(fields))]

    def _first_fields(self, line: bytes) -> list[str]:
        try:
            fields = next(csv.reader([line.decode()], delimiter=self._dialect.delimiter), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInputError(f"{self.name} is not a table in UTF-8 text: {error}") from error
        if not fields:
            raise InvalidInputError(f"{self.name} is empty or begins with a blank line; a line of names is needed.")
        return [field.strip() for field in fields]


def _first_rows(file: IO[bytes], start: int, stop: int) -> tuple[int, int]:
    """Where the first row ends, and where the last of the first few."""
    ends = next((ends for ends in row_ends(file, start, stop) if len(ends)), None)
    if ends is None:
        return stop, stop
    first = int(ends[0])
    few = ends[: min(SAMPLED_ROWS, max(1, int(np.searchsorted(ends, start + SAMPLED_BYTES))))]
    # A short file is read to its end, where no line feed is.
    is_whole = len(few) == len(ends) < SAMPLED_ROWS and stop - start <= SAMPLED_BYTES
    return first, stop if is_whole else int(few[-1])


class DelimitedLabels:
    """Ids from one column: int64 if every one of them is a whole number, else text as it stands."""

    def __init__(self, table: DelimitedTable, column: int) -> None:
        self._table, self._column = table, column
        # Decided for all rows at once, so that blocks do not differ; the first text among them ends the search.
        parts = table.parts(0, table.n_rows, (column,), pa.string())
        self._integers = all(pc.all(pc.match_substring_regex(part[0], WHOLE_NUMBER)).as_py() for _, part in parts)

    def read(self, start: int, stop: int) -> AnyArray:
        parts = self._table.parts(start, stop, (self._column,), pa.string())
        texts = np.concatenate([np.empty(0, np.str_), *(self._texts(first, part[0]) for first, part in parts)])
        return texts.astype(np.int64) if self._integers else texts

    def fingerprint(self) -> Json:
        return {"column": self._column}

    def _texts(self, first_row: int, column: Any) -> AnyArray:
        empty = np.asarray(pc.equal(column, "").to_numpy())
        if empty.any():
            raise InvalidInputError(
                f"id_column: column {self._table.column_names[self._column]!r} of {self._table.name} is empty in row "
                f"{first_row + int(np.argmax(empty))}; give every row an id."
            )
        return np.asarray(column.to_numpy()).astype(np.str_)
