"""Arrays by the path and the key of what holds them, whatever they are for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pipeline.errors import InvalidInputError
from pipeline.sources.byte_ranges import archive_members
from pipeline.sources.matrices import Rows
from pipeline.sources.numpy_files import file_rows, member_rows
from pipeline.sources.numpy_matrices import Matrix, file_matrix, member_matrix
from pipeline.sources.opening import local_path, path_kind

Url: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class ArrayPlace:
    """Where an array is: a .npy file, the member `key` of a .npz file, or the folder of a Zarr array."""

    path: Path
    key: str | None = None
    is_zarr: bool = False

    def rows(self) -> Rows:
        """The array, to be read along its first axis."""
        if self.is_zarr:
            from pipeline.store.foreign import ForeignArray

            return ForeignArray(self.path)
        return file_rows(self.path) if self.key is None else member_rows(self.path, self.key)

    def matrix(self) -> Matrix:
        """The array, to be read where rows and columns cross."""
        if self.is_zarr:
            from pipeline.store.foreign import ForeignArray

            return ForeignArray(self.path)
        return file_matrix(self.path) if self.key is None else member_matrix(self.path, self.key)


def place_of(url: Url, key: str | None = None) -> ArrayPlace:
    """Where the array is that a path and a key name; the key may be left out where there is only one."""
    path = local_path(os.fspath(url))
    with readable(path):
        if holds_several(path):
            places = places_in(path)
            return places[chosen_key(path, list(places), key)]
        kind = path_kind(path)
        if kind not in (".npy", "zarr"):
            raise InvalidInputError(f"source {path} holds no array; use a .npy or .npz file, or a Zarr array or group.")
        if key is not None:
            raise InvalidInputError(
                f"key={key!r} names an array of a .npz file or a Zarr group; {path} is one array: leave it out."
            )
        return ArrayPlace(path, is_zarr=kind == "zarr")


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

        return {key: ArrayPlace(folder, is_zarr=True) for key, folder in array_folders(path).items()}
    return {key: ArrayPlace(path, key) for key in archive_members(path)}


def chosen_key(path: Path, keys: list[str], key: str | None) -> str:
    listed = ", ".join(map(repr, keys)) or "none"
    if key is None and len(keys) != 1:
        raise InvalidInputError(f"source {path} holds {len(keys)} arrays; choose one with key: {listed}.")
    if key is not None and key not in keys:
        raise InvalidInputError(f"key={key!r} is not in {path}; it holds {listed}.")
    return keys[0] if key is None else key


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the file system refuses is bad input."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(f"source {path} cannot be read: {error}") from error
