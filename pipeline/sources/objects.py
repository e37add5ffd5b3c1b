"""Objects that need not be vectors, for a distance function of the user's own: texts, or rows of numbers.

Nothing is ever unpickled: other objects are given as texts that the function understands, such as JSON.

A text file with one object on each line: indexed in one pass over its bytes, then read by runs of lines.

A line ends with a line feed, or a carriage return and a line feed; an empty line is the empty text, but those at the
end of the file do not count, as in files of delimited text.

One column of a CSV, TSV or Parquet file as text, as it stands: numbers in delimited text are not taken for such.
"""

import codecs
import hashlib
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.numerics import checks
from pipeline.sources import delimited as row_index
from pipeline.sources.arrays import STRIP_BYTES, Rows
from pipeline.sources.delimited import DelimitedTable, RowIndex, content_end
from pipeline.sources.opening import Url, local_path, open_source, path_kind, place_of, readable
from pipeline.sources.parquet import ParquetTable
from pipeline.sources.partitions import GRAIN_ROWS
from pipeline.sources.source import Source, Stamp, column_number
from pipeline.types import FloatArray, IntArray, Json


class TextLines:
    """Lines of UTF-8 text. Of the file only where each run of lines begins is held."""

    def __init__(self, path: Path) -> None:
        self.name, self._path, self._stamp = str(path), path, Stamp.of(path)
        try:
            with path.open("rb") as file:
                self._index = line_index(file)
        except EOFError as error:
            raise InvalidInputError(f"{self.name} became shorter while it was read; start again.") from error
        self.n_rows = self._index.n_rows
        self.rows_at_once = row_index.INDEXED_ROWS
        if not self.n_rows:
            raise EmptySourceError(f"{self.name} holds no lines of text; it is empty, and at least one is needed.")

    def read(self, start: int, stop: int) -> list[str]:
        self._stamp.check()
        lines: list[str] = []
        for run in self._index.runs(start, stop):
            first = self._index.rows(run).start
            lines += self._lines(run)[max(start - first, 0) : stop - first]
        return lines

    def fingerprint(self) -> Json:
        return {"kind": "lines of text", **Stamp.of(self._path).described()}

    def _lines(self, run: int) -> list[str]:
        """All lines of a run."""
        start, stop = self._index.offsets[run : run + 2].tolist()
        with self._path.open("rb") as file:
            file.seek(start)
            data = file.read(stop - start)
        if len(data) < stop - start:
            raise InvalidInputError(f"{self.name} became shorter while it was read; start again.")
        rows = self._index.rows(run)
        try:
            lines = data.decode().split("\n")[: len(rows)]
        except UnicodeDecodeError as error:
            row = rows.start + data.count(b"\n", 0, error.start)
            raise InvalidInputError(f"{self.name} is no UTF-8 text in line {row} (from 0): {error}") from error
        return [line.removesuffix("\r") for line in lines]


def line_index(file: IO[bytes]) -> RowIndex:
    """Where each run of lines begins, and where the last line ends."""
    start = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
    stop = content_end(file, start)
    if start == stop:
        return RowIndex(0, np.array([stop]))
    begins, n_lines = [np.array([start])], 1
    for feeds in _line_feeds(file, start, stop):
        # The first feed in this block begins line `n_lines`.
        begins.append(feeds[-n_lines % row_index.INDEXED_ROWS :: row_index.INDEXED_ROWS] + 1)
        n_lines += len(feeds)
    return RowIndex(n_lines, np.concatenate([*begins, np.array([stop])]))


def _line_feeds(file: IO[bytes], start: int, stop: int) -> Iterator[IntArray]:
    """The positions of line feeds, block by block."""
    file.seek(start)
    while start < stop:
        data = np.frombuffer(file.read(min(row_index.BLOCK_BYTES, stop - start)), np.uint8)
        if not len(data):
            raise EOFError
        yield start + np.flatnonzero(data == row_index.LINE_FEED)
        start += len(data)


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


Objects: TypeAlias = list[str] | FloatArray
TABLE_KINDS = (".csv", ".tsv", ".parquet")
LENGTH_BYTES = 8


def open_objects(url: Url, key: str | None = None) -> "ObjectSource":
    """The objects of a file or folder.

    url: texts in a .npy or .npz file, a Zarr array or group (arrays of one dimension), a .txt file (UTF-8, one on each
        line), or a column of a .csv, .tsv or .parquet file; or rows of numbers from anything that `open_source` reads.
    key: which array of a .npz file or a Zarr group; which column of a table holds texts (all rows of numbers without).
    """
    path = local_path(os.fspath(url))
    with readable(path):
        if path.suffix.lower() == ".txt" and path.is_file():
            return _of_lines(path, key)
        kind = path_kind(path)
        return _of_table(path, kind, key) if kind in TABLE_KINDS else _of_array(path, key)


class ObjectRows(Protocol):
    """Objects that can be read by blocks; `rows_at_once` of them together cost little more than one."""

    name: str
    n_rows: int
    rows_at_once: int

    def read(self, start: int, stop: int) -> Objects: ...

    def fingerprint(self) -> Json: ...


class ObjectSource:
    """Objects on disk: texts, or with `n_columns` rows of so many numbers in double precision."""

    def __init__(self, rows: ObjectRows, n_columns: int | None = None) -> None:
        self.name, self.n_rows, self.n_columns = rows.name, rows.n_rows, n_columns
        self.is_text = n_columns is None
        self._rows = rows

    def read(self, start: int, stop: int) -> Objects:
        """The objects from `start` up to `stop`: a list of texts, or an array (stop - start, n_columns)."""
        if not 0 <= start <= stop <= self.n_rows:
            raise InvalidInputError(f"rows {start} to {stop} are outside of the {self.n_rows} rows of {self.name}.")
        return self._rows.read(start, stop)

    def take(self, rows: Sequence[int] | IntArray) -> Objects:
        """The objects in any rows, in the order and as often as they are asked for."""
        numbers, places = np.unique(checks.row_indices("rows", rows, self.n_rows), return_inverse=True)
        # Rows that lie close to each other are read together: many kinds of files decode that many anyway.
        groups = np.split(numbers, np.flatnonzero(np.diff(numbers // self._rows.rows_at_once)) + 1)
        found = [self._among(group) for group in groups]
        if self.is_text:
            texts = list(chain.from_iterable(found))
            return [texts[place] for place in places.tolist()]
        return np.concatenate(found)[places]

    def fingerprint(self) -> Json:
        """Something cheap that changes when the objects may have changed."""
        return {**self._rows.fingerprint(), "objects": "text" if self.is_text else "vectors"}

    def _among(self, numbers: IntArray) -> Objects:
        first = int(numbers[0])
        block = self._rows.read(first, int(numbers[-1]) + 1)
        if isinstance(block, list):
            return [block[number] for number in (numbers - first).tolist()]
        return block[numbers - first]


class VectorRows:
    """Rows of numbers. In double precision, since differences of small integers would wrap around."""

    def __init__(self, source: Source) -> None:
        self.name, (self.n_rows, n_columns), self._source = source.name, source.shape, source
        self.rows_at_once = _rows_at_once(n_columns * source.dtype.itemsize)

    def read(self, start: int, stop: int) -> FloatArray:
        return self._source.read(start, stop).astype(np.float64)

    def fingerprint(self) -> Json:
        return self._source.fingerprint()


class TextArray:
    """An array of text: numpy's own of fixed length, bytes that are UTF-8, or Zarr's of any length."""

    def __init__(self, rows: Rows) -> None:
        if len(rows.shape) != 1:
            raise InvalidInputError(
                f"{rows.name} has shape {rows.shape}; texts must have 1 dimension, one for each row."
            )
        if not rows.shape[0]:
            raise EmptySourceError(f"{rows.name} holds no texts; it is empty, and at least one is needed.")
        self.name, (self.n_rows,), self._rows = rows.name, rows.shape, rows
        self.rows_at_once = _rows_at_once(rows.dtype.itemsize)

    def read(self, start: int, stop: int) -> list[str]:
        values = self._rows.read(start, stop)
        if values.dtype.kind == "S":
            return [self._decoded(start + place, text) for place, text in enumerate(values.tolist())]
        return [str(text) for text in values.tolist()]

    def fingerprint(self) -> Json:
        return self._rows.fingerprint()

    def _decoded(self, row: int, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{self.name} holds bytes that are no UTF-8 text in row {row}: {error}") from error


def digest_of_objects(objects: Objects) -> str:
    """What names the content of a block of objects."""
    if not isinstance(objects, list):
        return hashlib.sha256(np.ascontiguousarray(objects).data).hexdigest()
    digest = hashlib.sha256()
    for text in objects:
        encoded = text.encode(errors="surrogatepass")
        # The length tells ["ab", "c"] from ["a", "bc"].
        digest.update(len(encoded).to_bytes(LENGTH_BYTES, "little") + encoded)
    return digest.hexdigest()


def _of_lines(path: Path, key: str | None) -> ObjectSource:
    if key is not None:
        raise InvalidInputError(f"key={key!r} names an array or a column; {path} has lines only: leave it out.")
    return ObjectSource(TextLines(path))


def _of_table(path: Path, kind: str, key: str | None) -> ObjectSource:
    if key is None:
        try:
            return _of_vectors(open_source(path))
        except EmptySourceError:
            raise
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{error} To take the texts of one column for objects, name it with key."
            ) from error
    return ObjectSource(open_text_column(path, kind, key))


def _of_array(path: Path, key: str | None) -> ObjectSource:
    rows = place_of(path, key).rows()
    if rows.dtype.kind in "UST":
        return ObjectSource(TextArray(rows))
    if rows.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{rows.name} has dtype {rows.dtype}; objects must be text or real numbers, and pickled ones are never "
            "loaded: save them as text."
        )
    return _of_vectors(open_source(path, key))


def _of_vectors(source: Source) -> ObjectSource:
    return ObjectSource(VectorRows(source), source.shape[1])


def _rows_at_once(row_bytes: int) -> int:
    return max(1, min(GRAIN_ROWS, STRIP_BYTES // max(1, row_bytes)))
