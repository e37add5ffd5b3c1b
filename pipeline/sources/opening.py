"""Which kind of source a path or an object is. Modules that import heavy libraries are imported when wanted."""

import os
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import InvalidInputError
from pipeline.sources.arrays import open_array
from pipeline.sources.columns import Column
from pipeline.sources.numpy_files import open_npy, open_npz
from pipeline.sources.source import Source

FILE_KINDS = (".npy", ".npz", ".parquet", ".csv", ".tsv")
KNOWN_KINDS = f"a file of {', '.join(FILE_KINDS)}, a folder of .parquet files, or a Zarr folder"
ZARR_DESCRIPTIONS = ("zarr.json", ".zarray", ".zgroup")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def open_source(
    data: object,
    key: str | None = None,
    columns: Sequence[Column] | None = None,
    id_column: Column | None = None,
) -> Source:
    """The source for a path or an array.

    data: a .npy, .npz, .parquet, .csv or .tsv file, a folder of .parquet files, a Zarr array or group, an array in
        memory, or anything that has a shape and a dtype and can be sliced, such as a dask array.
    key: which array of a .npz file or a Zarr group, if it holds several.
    columns: the names or numbers of the columns to read, in this order; all but the ids by default.
    id_column: the column with the rows' names; in a .npz file or a Zarr group also another array, of one dimension.
    """
    if not isinstance(data, str | os.PathLike):
        _refuse_key(key, "an array")
        return open_array(data, columns, id_column)
    path = local_path(os.fspath(data))
    try:
        return _open_path(path, key, columns, id_column)
    except OSError as error:
        raise InvalidInputError(f"source {path} cannot be read: {error}") from error


def _open_path(path: Path, key: str | None, columns: Sequence[Column] | None, id_column: Column | None) -> Source:
    kind = path_kind(path)
    if kind == ".npz":
        return open_npz(path, key, columns, id_column)
    if kind == "zarr":
        from pipeline.sources.zarr_folders import open_zarr

        return open_zarr(path, key, columns, id_column)
    _refuse_key(key, str(path))
    if kind == ".npy":
        return open_npy(path, columns, id_column)
    if kind == ".parquet":
        from pipeline.sources.parquet import open_parquet

        return open_parquet(path, columns, id_column)
    from pipeline.sources.delimited import open_delimited

    return open_delimited(path, columns, id_column)


def local_path(data: str | bytes) -> Path:
    """A path that is there."""
    text = os.fsdecode(data)
    if "://" in text:
        raise InvalidInputError(f"source {text} is a URL; only local paths are read: copy the data here first.")
    path = Path(text)
    if not path.exists():
        raise InvalidInputError(f"source {path} does not exist; check the path.")
    return path


def path_kind(path: Path) -> str:
    """The suffix of a file, or what a folder is of: "zarr" or ".parquet"."""
    if path.is_dir():
        return _folder_kind(path)
    suffix = path.suffix.lower()
    if suffix in COMPRESSED:
        raise InvalidInputError(f"source {path} is compressed as a whole; decompress it first.")
    if suffix not in FILE_KINDS or not path.is_file():
        raise InvalidInputError(f"source {path} is of no known kind; use {KNOWN_KINDS}.")
    return suffix


def _folder_kind(path: Path) -> str:
    if any((path / name).is_file() for name in ZARR_DESCRIPTIONS):
        return "zarr"
    if any(path.rglob("*.parquet")):
        return ".parquet"
    raise InvalidInputError(
        f"source {path} is a folder that holds neither .parquet files nor a Zarr description; use {KNOWN_KINDS}."
    )


def _refuse_key(key: str | None, name: str) -> None:
    if key is not None:
        raise InvalidInputError(
            f"key={key!r} names an array of a .npz file or a Zarr group; {name} holds only one table: leave it out."
        )
