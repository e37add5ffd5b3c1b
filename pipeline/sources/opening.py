"""Which kind of source a path or an object is. Modules that import heavy libraries are imported when wanted."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pipeline.errors import InvalidInputError
from pipeline.plugins import LOADED
from pipeline.sources.arrays import MatrixTable, Rows, chosen_key, open_array, open_one_of
from pipeline.sources.gzipped import GZIPPED, table_suffix
from pipeline.sources.numpy_files import NumpyMatrix, archive_members, numpy_rows
from pipeline.sources.source import Column, Source, table_source

if TYPE_CHECKING:
    from pipeline.store.foreign import ForeignArray

FILE_KINDS = (".npy", ".npz", ".parquet", ".csv", ".tsv", ".txt")
KNOWN_KINDS = f"a file of {', '.join((*FILE_KINDS, *GZIPPED))}, a folder of .parquet files, or a Zarr folder"
ZARR_DESCRIPTIONS = ("zarr.json", ".zarray", ".zgroup")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
Url: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class ArrayPlace:
    """Where an array is: a .npy file, the member `key` of a .npz file, or the folder of a Zarr array."""

    path: Path
    key: str | None = None

    def rows(self) -> Rows:
        """The array, to be read along its first axis."""
        return self._in_zarr() or numpy_rows(self.path, self.key)

    def matrix(self) -> "NumpyMatrix | ForeignArray":
        """The array, to be read where rows and columns cross."""
        return self._in_zarr() or NumpyMatrix(self.path, self.key)

    def numbers(self) -> Rows:
        """The array, of one dimension and of real numbers."""
        with readable(self.path):
            rows = self.rows()
        if rows.dtype.kind not in "fiub":
            raise InvalidInputError(f"{rows.name} has dtype {rows.dtype}; it must hold real numbers.")
        if len(rows.shape) != 1:
            raise InvalidInputError(f"{rows.name} has shape {rows.shape}; it must have 1 dimension.")
        return rows

    def _in_zarr(self) -> "ForeignArray | None":
        if not self.path.is_dir():
            return None
        from pipeline.store.foreign import ForeignArray

        return ForeignArray(self.path)


def place_of(url: Url, key: str | None = None) -> ArrayPlace:
    """Where the array is that a path and a key name; the key may be left out where there is only one."""
    path = local_path(url)
    with readable(path):
        if holds_several(path):
            places = places_in(path)
            return places[chosen_key(path, list(places), key)]
        kind = path_kind(path)
    if kind not in (".npy", "zarr"):
        raise InvalidInputError(f"source {path} holds no array; use a .npy or .npz file, or a Zarr array or group.")
    if key is not None:
        several = "a Zarr group" if kind == "zarr" else "a .npz file"
        raise InvalidInputError(f"key={key!r} names an array of {several}; {path} is one array: leave it out.")
    return ArrayPlace(path)


def holds_several(path: Path) -> bool:
    """Whether a path is a .npz file or a Zarr group."""
    kind = path_kind(path)
    if kind != "zarr":
        return kind == ".npz"
    from pipeline.store.foreign import is_array

    return not is_array(path)


def places_in(path: Path) -> dict[str, ArrayPlace]:
    """Where the arrays of a .npz file or a Zarr group are, by their keys."""
    if path.is_dir():
        from pipeline.store.foreign import array_folders

        return {key: ArrayPlace(folder) for key, folder in array_folders(path).items()}
    return {key: ArrayPlace(path, key) for key in archive_members(path)}


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the file system refuses is bad input."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(f"source {path} cannot be read: {error}") from error


def open_source(
    data: object,
    key: str | None = None,
    columns: Sequence[Column] | None = None,
    id_column: Column | None = None,
    exclude: Sequence[Column] | None = None,
) -> Source:
    """The source for a path or an array.

    data: a .npy, .npz, .parquet, .csv, .tsv or .txt file (.csv and .tsv also gzipped), a folder of .parquet files, a
        Zarr array or group, an array in memory, or anything that has a shape and a dtype and can be sliced, such as
        a dask array. Rows that are arrays themselves are flattened.
    key: which array of a .npz file or a Zarr group, if it holds several.
    columns: the names or numbers of the columns to read, in this order, or ranges of numbers such as "0-9"; all but the
        ids by default.
    id_column: the column with the rows' names; in a .npz file or a Zarr group also another array, of one dimension.
    exclude: columns to leave out of those, in the same ways.
    """
    if not isinstance(data, str | os.PathLike):
        _refuse_key(key, "an array")
        return open_array(data, columns, id_column, exclude)
    path = local_path(data)
    with readable(path):
        return _open_path(path, key, columns, id_column, exclude)


def _open_path(
    path: Path,
    key: str | None,
    columns: Sequence[Column] | None,
    id_column: Column | None,
    exclude: Sequence[Column] | None,
) -> Source:
    if path.suffix in LOADED.source_formats:
        if exclude:
            raise InvalidInputError(
                f"exclude={list(exclude)} does not go with {path}, of a plugin's format; name the others in columns."
            )
        opened: Source = LOADED.source_formats[path.suffix](path, key, columns, id_column)
        return opened
    if holds_several(path):
        arrays = {name: place.rows for name, place in places_in(path).items()}
        return open_one_of(path, arrays, key, columns, id_column, exclude)
    kind = path_kind(path)
    if kind != "zarr":
        _refuse_key(key, str(path))
    if kind in (".npy", "zarr"):
        return table_source(MatrixTable(place_of(path, key).rows()), columns, id_column, exclude=exclude)
    if kind == ".parquet":
        from pipeline.sources.parquet import open_parquet

        return open_parquet(path, columns, id_column, exclude)
    from pipeline.sources.delimited import open_delimited

    return open_delimited(path, columns, id_column, exclude)


def local_path(url: Url | bytes) -> Path:
    """A path that is there."""
    text = os.fsdecode(url)
    if "://" in text:
        raise InvalidInputError(f"source {text} is a URL; only local paths are read: copy the data here first.")
    path = Path(text)
    if not path.exists():
        raise InvalidInputError(f"source {path} does not exist; check the path.")
    return path


def path_kind(path: Path) -> str:
    """The suffix of a file, that of the table if it is gzipped, or what a folder is of: "zarr" or ".parquet"."""
    suffix = table_suffix(path)
    if path.is_dir():
        if any((path / name).is_file() for name in ZARR_DESCRIPTIONS):
            return "zarr"
        if any(path.rglob("*.parquet")):
            return ".parquet"
        raise InvalidInputError(
            f"source {path} is a folder that holds neither .parquet files nor a Zarr description; use {KNOWN_KINDS}."
        )
    if suffix in COMPRESSED:
        raise InvalidInputError(f"source {path} is compressed as a whole; decompress it first.")
    if suffix not in FILE_KINDS or not path.is_file():
        raise InvalidInputError(f"source {path} is of no known kind; use {KNOWN_KINDS}.")
    return suffix


def _refuse_key(key: str | None, name: str) -> None:
    if key is not None:
        raise InvalidInputError(
            f"key={key!r} names an array of a .npz file or a Zarr group; {name} holds only one table: leave it out."
        )
