"""Objects that need not be vectors, for a distance function of the user's own: texts, or rows of numbers.

Nothing is ever unpickled: other objects are given as texts that the function understands, such as JSON.
"""

import hashlib
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.numerics import checks
from pipeline.partitions import GRAIN_ROWS
from pipeline.sources.matrices import STRIP_BYTES, Rows
from pipeline.sources.named_arrays import Url, place_of, readable
from pipeline.sources.opening import local_path, open_source, path_kind
from pipeline.sources.source import Source
from pipeline.sources.text_lines import TextLines
from pipeline.types import FloatArray, IntArray, Json

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
    from pipeline.sources.text_columns import open_text_column

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
