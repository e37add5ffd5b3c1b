"""A .parquet file, or a folder of them in the order of their names, decoded one row group at a time."""

import copy
import hashlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.sources.source import Column, Columns, Labels, Source, Stamp, as_ids, refuse_repeated_names, table_source
from pipeline.types import AnyArray, BoolArray, Json

Field: TypeAlias = tuple[str, Any]
ARROW_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
UNREADABLE = (pa.ArrowException, OSError)


def open_parquet(
    path: Path,
    columns: Sequence[Column] | None,
    id_column: Column | None,
    exclude: Sequence[Column] | None = None,
) -> Source:
    """The source of a .parquet file or a folder of .parquet files."""
    return table_source(ParquetTable(path), columns, id_column, exclude=exclude)


class ParquetTable:
    """Files of one schema, one after the other. At most one row group is held decoded, the last one read."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._stamps = [Stamp.of(file) for file in _files(path)]
        self._groups: list[tuple[int, int]] = []  # (file, row group) of those that have rows
        self._fields = self._scanned()
        self.n_rows = int(self._starts[-1])
        self.column_names = [name for name, _ in self._fields]
        self._lock = threading.Lock()
        self._open: tuple[int, Any] | None = None
        self._last: tuple[int, Columns, Any] | None = None
        refuse_repeated_names(self.name, self.column_names)
        if not self.n_rows or not self._fields:
            kind = EmptySourceError if self._fields else InvalidInputError
            raise kind(
                f"{self.name} has {self.n_rows} rows and {len(self._fields)} columns; it is empty, and at least one "
                "row and column are needed."
            )

    def dtype_of(self, columns: Columns) -> np.dtype[Any]:
        """float32 if it holds every type exactly, else float64."""
        kinds = [self._numpy_dtype(column) for column in columns]
        return np.dtype(np.float32 if all(np.can_cast(kind, np.float32) for kind in kinds) else np.float64)

    def read(self, start: int, stop: int, columns: Columns) -> AnyArray:
        block = np.empty((stop - start, len(columns)), self.dtype_of(columns))
        for first, part in self.parts(start, stop, columns):
            for place in range(len(columns)):
                values = self._numbers(part.column(place), first, part.column_names[place])
                block[first - start : first - start + part.num_rows, place] = values
        return block

    def labels(self, column: int) -> Labels:
        return ParquetLabels(copy.copy(self), column)

    def type_of(self, column: int) -> Any:
        """The type of a column's values, also of one of categories."""
        kind = self._fields[column][1]
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    def require_texts(self, column: int) -> None:
        if not _is_text(self.type_of(column)):
            raise InvalidInputError(
                f"column {self.column_names[column]!r} of {self.name} has type {self._fields[column][1]}, not text; "
                "choose another with key, or leave key out to take rows of numbers for the objects."
            )

    def texts(self, start: int, stop: int, column: int) -> list[str]:
        """A column of text, also of categories that are texts."""
        chunks = self.without_nulls(start, stop, column, "key", "a text, or drop those rows")
        return [text for _, chunk in chunks for text in chunk.to_pylist()]

    def without_nulls(
        self, start: int, stop: int, column: int, argument: str, wanted: str
    ) -> Iterator[tuple[int, Any]]:
        """The values of the column that an argument names, cut like `parts`; every row must have one."""
        for first, part in self.parts(start, stop, (column,)):
            values = part.column(0)
            if values.null_count:
                row = first + int(np.argmax(values.is_null().to_numpy()))
                raise InvalidInputError(
                    f"{argument}: column {self.column_names[column]!r} of {self.name} is null in row {row}; give every "
                    f"row {wanted}."
                )
            yield first, values

    def fingerprint(self) -> Json:
        digest = hashlib.sha256()
        for stamp in self._stamps:
            now = Stamp.of(stamp.path)
            digest.update(repr(sorted(now.described().items())).encode(errors="surrogateescape"))
        return {"kind": "parquet", "files": digest.hexdigest()}

    def parts(self, start: int, stop: int, columns: Columns) -> Iterator[tuple[int, Any]]:
        """Arrow tables that hold the rows, cut at row groups, each with the number of its first row."""
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            first, last = int(self._starts[group]), min(stop, int(self._starts[group + 1]))
            yield start, self._decoded(group, columns).slice(start - first, last - start)
            start, group = last, group + 1

    def _scanned(self) -> list[Field]:
        """Read the footers: the row groups of all files, and the fields that they must have in common."""
        fields: list[Field] = []
        sizes = []
        for number, stamp in enumerate(self._stamps):
            file = _opened(stamp.path)
            own = [(field.name, field.type) for field in file.schema_arrow]
            fields = fields or own
            _refuse_other_fields(self._stamps[0].path, fields, stamp.path, own)
            rows = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
            self._groups += [(number, group) for group, size in enumerate(rows) if size]
            sizes += [size for size in rows if size]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        return fields

    def _numpy_dtype(self, column: int) -> np.dtype[Any]:
        name, kind = self._fields[column]
        if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InvalidInputError(
                f"column {name!r} of {self.name} has type {kind}, not a number; choose others with columns, or make it "
                "the id_column."
            )
        return np.dtype(ARROW_FLOATS.get(str(kind), str(kind)))

    def _decoded(self, group: int, columns: Columns) -> Any:
        with self._lock:
            if self._last is None or self._last[:2] != (group, columns):
                self._last = None  # so that two groups are never held at once
                self._last = (group, columns, self._decode(group, columns))
            return self._last[2]

    def _decode(self, group: int, columns: Columns) -> Any:
        number, part = self._groups[group]
        stamp = self._stamps[number]
        stamp.check()
        names = [self._fields[column][0] for column in columns]
        try:
            if self._open is None or self._open[0] != number:
                self._open = (number, _opened(stamp.path))
            table = self._open[1].read_row_group(part, columns=names, use_threads=False)
        except UNREADABLE as error:
            raise InvalidInputError(f"{stamp.path} is damaged in row group {part}: {error}") from error
        # A name with a dot in it also brings the columns whose names continue it.
        return table.select(names)

    def _numbers(self, column: Any, first_row: int, name: str) -> AnyArray:
        """The numbers of one column, nulls as NaN; an integer that floats would round is an error."""
        nulls = np.asarray(column.is_null().to_numpy())
        values = np.asarray(column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy())
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
            rounded = _rounded(values)
            if rounded.any():
                row = int(np.argmax(rounded))
                raise InvalidInputError(
                    f"column {name!r} of {self.name} holds {values[row]} in row {first_row + row}, which float64 would "
                    "round; leave the column out with columns, make it the id_column, or store smaller numbers."
                )
        return np.where(nulls, np.nan, values) if nulls.any() else values

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_open": None, "_last": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


class ParquetLabels:
    """Ids from a column of integers or text."""

    def __init__(self, table: ParquetTable, column: int) -> None:
        self._table, self._column, self._kind = table, column, table.type_of(column)
        self._name = f"column {table.column_names[column]!r} of {table.name}"
        if not (pa.types.is_integer(self._kind) or _is_text(self._kind)):
            raise InvalidInputError(f"id_column: {self._name} has type {self._kind}; ids must be integers or text.")

    def read(self, start: int, stop: int) -> AnyArray:
        chunks = self._table.without_nulls(start, stop, self._column, "id_column", "an id")
        # Categories become what they stand for.
        values = ((first, np.asarray(chunk.cast(self._kind).to_numpy())) for first, chunk in chunks)
        parts = [as_ids(ids, self._name, first) for first, ids in values]
        return np.concatenate(parts) if parts else np.empty(0, np.int64 if pa.types.is_integer(self._kind) else np.str_)

    def fingerprint(self) -> Json:
        return {"column": self._column}


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.parquet"))
    for file in files:
        if file.parent != path:
            raise InvalidInputError(
                f"source {path} has .parquet files in folders, such as {file}, which must not be in folders below it; "
                "only a flat one is read."
            )
    return files


def _opened(path: Path) -> Any:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except UNREADABLE as error:
        raise InvalidInputError(f"{path} is not a Parquet file that can be read: {error}") from error


def _refuse_other_fields(first: Path, fields: list[Field], path: Path, own: list[Field]) -> None:
    for (name, kind), (own_name, own_kind) in zip(fields, own, strict=False):
        if (name, kind) != (own_name, own_kind):
            raise InvalidInputError(
                f"{path} has column {own_name!r} of type {own_kind} where {first} has {name!r} of type {kind}; all "
                "files must have the same columns."
            )
    if len(fields) != len(own):
        odd = max(fields, own, key=len)[min(len(fields), len(own))][0]
        raise InvalidInputError(f"{path} and {first} do not both have column {odd!r}; all files must have the same.")


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _rounded(integers: AnyArray) -> BoolArray:
    """Which 64-bit integers no float64 equals."""
    floats = integers.astype(np.float64)
    beyond = floats >= float(np.iinfo(integers.dtype).max)  # this float is the power of two above the last integer
    return np.asarray(beyond | (np.where(beyond, 0, floats).astype(integers.dtype) != integers))
