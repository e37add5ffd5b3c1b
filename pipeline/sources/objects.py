"""Objects that need not be vectors: texts, or rows of numbers; and the user's function that compares two of them.

Nothing is ever unpickled: other objects are given as texts that the function understands, such as JSON.

A text file has one object on each line. A line ends with a line feed, or a carriage return and a line feed; an empty
line is the empty text, but those at the end of the file do not count, as in files of delimited text.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from pipeline.errors import EmptySourceError, InvalidInputError, described
from pipeline.numerics import checks
from pipeline.sources import text_rows
from pipeline.sources.arrays import STRIP_BYTES, Rows
from pipeline.sources.opening import Url, local_path, open_source, path_kind, place_of, readable
from pipeline.sources.partitions import GRAIN_ROWS
from pipeline.sources.source import Source, Stamp, column_number, require_range
from pipeline.sources.text_rows import RowIndex, content_end, content_start
from pipeline.types import FloatArray, IntArray, Json

if TYPE_CHECKING:
    from pipeline.sources.delimited import DelimitedTable
    from pipeline.sources.parquet import ParquetTable

Objects: TypeAlias = list[str] | FloatArray
TABLE_KINDS = (".csv", ".tsv", ".parquet")
LENGTH_BYTES = 8
Comparing: TypeAlias = Callable[[Any, Any], Any]


class TextLines:
    """Lines of UTF-8 text. Of the file only where each run of lines begins is held."""

    def __init__(self, path: Path) -> None:
        self.name, self._path, self._stamp = str(path), path, Stamp.of(path)
        try:
            with path.open("rb") as file:
                start = content_start(file)
                self._index = RowIndex.scanned(file, start, content_end(file, start), with_quotes=False)
        except EOFError as error:
            raise InvalidInputError(f"{self.name} became shorter while it was read; start again.") from error
        self.n_rows = self._index.n_rows
        self.rows_at_once = text_rows.INDEXED_ROWS
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
        data, rows = self._index.read_run(self._path, run), self._index.rows(run)
        try:
            lines = data.decode().split("\n")[: len(rows)]
        except UnicodeDecodeError as error:
            row = rows.start + data.count(b"\n", 0, error.start)
            raise InvalidInputError(f"{self.name} is no UTF-8 text in line {row} (from 0): {error}") from error
        return [line.removesuffix("\r") for line in lines]


class TextColumn:
    """The column of a table that is named `key`, or has that number, as text: numbers in delimited text too."""

    def __init__(self, table: "DelimitedTable | ParquetTable", key: str) -> None:
        self._table = table
        self._column = column_number("key", key, table.name, table.column_names)
        self.name = f"column {table.column_names[self._column]!r} of {table.name}"
        self.n_rows, self.rows_at_once = table.n_rows, text_rows.INDEXED_ROWS
        table.require_texts(self._column)

    def read(self, start: int, stop: int) -> list[str]:
        return self._table.texts(start, stop, self._column)

    def fingerprint(self) -> Json:
        return {**self._table.fingerprint(), "column": self._column}


def open_objects(url: Url, key: str | None = None) -> "ObjectSource":
    """The objects of a file or folder.

    url: texts in a .npy or .npz file, a Zarr array or group (arrays of one dimension), a .txt file (UTF-8, one on each
        line), or a column of a .csv, .tsv or .parquet file; or rows of numbers from anything that `open_source` reads.
    key: which array of a .npz file or a Zarr group; which column of a table holds texts (all rows of numbers without).
    """
    path = local_path(url)
    with readable(path):
        if path.suffix.lower() == ".txt" and path.is_file():
            if key is not None:
                raise InvalidInputError(f"key={key!r} names an array or a column; {path} has lines only: leave it out.")
            return ObjectSource(TextLines(path))
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
        require_range("rows", start, stop, self.n_rows, self.name)
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
    return ObjectSource(TextColumn(_table(path, kind), key))


def _table(path: Path, kind: str) -> "DelimitedTable | ParquetTable":
    if kind == ".parquet":
        from pipeline.sources.parquet import ParquetTable

        return ParquetTable(path)
    from pipeline.sources.delimited import DelimitedTable

    return DelimitedTable(path)


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


@dataclass(frozen=True)
class Comparison:
    """A user's function `package.module:function` of two objects: a distance, or with `is_kernel` an inner product,
    which may be negative. `source` is the digest of its source where the command was started."""

    function: str
    is_kernel: bool = False
    source: str = ""

    @classmethod
    def named(cls, function: str, is_kernel: bool = False) -> "Comparison":
        """The function as it is here and now; refused if it cannot be had, before anything runs."""
        comparison = cls(function, is_kernel)
        return cls(function, is_kernel, source_of(comparison.imported(), function))

    def __str__(self) -> str:
        """The setting that names it."""
        return f"{'kernel' if self.is_kernel else 'metric'}={self.function!r}"

    def table(self, objects: Any, landmarks: Any, rows: Sequence[int], landmark_rows: Sequence[int]) -> FloatArray:
        """Values (p, b) of objects to landmarks, one call for each; `rows` and `landmark_rows` are where they stand."""
        values = np.empty((len(objects), len(landmarks)))
        for i, one in enumerate(objects):
            for j, other in enumerate(landmarks):
                values[i, j] = self._value(one, other, rows[i], f"the landmark in row {landmark_rows[j]}")
        return values

    def between(self, objects: Any, rows: Sequence[int]) -> FloatArray:
        """Symmetric values (p, p) between some objects, one call for each pair, which for inner products includes
        objects with themselves."""
        values = np.zeros((len(objects), len(objects)))
        for i, one in enumerate(objects):
            for j in range(i + self.is_kernel):
                values[i, j] = values[j, i] = self._value(one, objects[j], rows[i], f"row {rows[j]}")
        return values

    def own(self, objects: Any, rows: Sequence[int]) -> FloatArray:
        """Values (p,) of objects to themselves."""
        found = [self._value(one, one, row, "itself") for one, row in zip(objects, rows, strict=True)]
        return np.array(found, dtype=np.float64)

    def imported(self) -> Comparing:
        """The function as this process has it."""
        module, _, name = self.function.partition(":")
        here = os.getcwd()
        added = here not in sys.path
        # As with `python -m`: what stands in the folder of the command can be named.
        sys.path[:0] = [here] * added
        try:
            found: Comparing = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise InvalidInputError(
                f"{self} cannot be imported: {error}; it must be installed, or a module in the folder of the command, "
                "wherever it is evaluated."
            ) from error
        except Exception as error:
            raise InvalidInputError(f"{self} cannot be imported: {described(error)}; mend the module.") from error
        finally:
            if added:
                sys.path.remove(here)
        if not callable(found):
            raise InvalidInputError(
                f"{self} is not a function but {type(found).__name__}; name one as package.module:function."
            )
        return found

    @cached_property
    def _call(self) -> Comparing:
        call = self.imported()
        here = source_of(call, self.function)
        if "" not in (here, self.source) and here != self.source:
            raise InvalidInputError(
                f"{self} has another source here than where the command was started, or was edited since: install the "
                "same everywhere and run the command again."
            )
        return call

    def _value(self, one: Any, other: Any, row: int, other_is: str) -> float:
        call = self._call
        try:
            value = call(one, other)
        except Exception as error:
            raise _in_words(error, f"{self} fails for row {row} and {other_is}: {described(error)}") from error
        return checks.compared_number(
            value, self.is_kernel, lambda given: f"{self} gives {given} for row {row} and {other_is}"
        )


def source_of(call: Comparing, function: str) -> str:
    """The digest of the files of the modules that name and define a function; empty where they cannot be read.

    What a process has loaded it keeps, whatever becomes of the files: they are read once for it.
    """
    if id(call) not in _SOURCES:
        _SOURCES[id(call)] = call, _digest_of_files(call, function)
    return _SOURCES[id(call)][1]


# By the identity of a function, which stays its own as long as the function is kept with it.
_SOURCES: dict[int, tuple[Comparing, str]] = {}


def _digest_of_files(call: Comparing, function: str) -> str:
    defined_in = getattr(inspect.unwrap(call), "__module__", None)
    digest = hashlib.sha256()
    for module in dict.fromkeys((function.partition(":")[0], defined_in)):
        path = getattr(sys.modules.get(module or ""), "__file__", None)
        try:
            digest.update(hashlib.sha256(Path(path or "").read_bytes()).digest())
        except OSError:
            return ""
    return digest.hexdigest()


def _in_words(error: Exception, words: str) -> Exception:
    """An error of the user's function in our words; faults that may pass keep their kind, or none would try again."""
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, words)
    kinds = (kind for kind in (TimeoutError, ConnectionError) if isinstance(error, kind))
    return next(kinds, InvalidInputError)(words)
