"""Zarr arrays that others wrote, through the store's reader for them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pipeline.errors import InvalidInputError
from pipeline.sources.columns import Column
from pipeline.sources.matrices import open_matrix, open_one_of
from pipeline.sources.source import Source
from pipeline.store.foreign import ForeignArray, array_folders, is_array


def open_zarr(path: Path, key: str | None, columns: Sequence[Column] | None, id_column: Column | None) -> Source:
    """The source of a Zarr array, or of the array `key` of a group, whose ids may be another array of it."""
    if is_array(path):
        if key is not None:
            raise InvalidInputError(f"key={key!r} names an array of a Zarr group; {path} is one array: leave it out.")
        return open_matrix(ForeignArray(path), columns, id_column)
    arrays = {name: partial(ForeignArray, folder) for name, folder in array_folders(path).items()}
    return open_one_of(path, arrays, key, columns, id_column)
