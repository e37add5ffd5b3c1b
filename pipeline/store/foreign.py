"""Zarr arrays that others wrote, open for reading only.

What they describe is not trusted: a codec could run code (numcodecs has one that unpickles), so only codecs known to
do nothing but compress or rearrange numbers and text are let through. By Zarr's rules a chunk that is not there stands
for the fill value; that one was lost cannot be told.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.storage import LocalStore

from pipeline.errors import InvalidInputError
from pipeline.types import AnyArray, IntArray, Json

NUMCODECS = (
    *("adler32", "astype", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset", "fletcher32"),
    *("gzip", "jenkins_lookup3", "lz4", "lzma", "packbits", "pcodec", "quantize", "shuffle", "zfpy", "zlib", "zstd"),
)
CODECS_V2 = frozenset({*NUMCODECS, "vlen-utf8"})
CODECS_V3 = frozenset(
    {"bytes", "endian", "transpose", "sharding_indexed", "blosc", "gzip", "zstd", "crc32c", "vlen-utf8"}
    | {f"numcodecs.{name}" for name in NUMCODECS}
)


class ForeignArray:
    """An array in a folder of Zarr format 2 or 3, read along its first axis."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder
        self._array = _opened(folder)
        self.shape: tuple[int, ...] = tuple(self._array.shape)
        self.dtype: np.dtype[Any] = np.dtype(self._array.dtype)

    def read(self, start: int, stop: int, columns: tuple[int, ...] | None = None) -> AnyArray:
        """Rows from `start` up to `stop`, all columns of them or the given ones."""
        rows = slice(start, stop) if self.shape else ...
        with self._reading(f"rows {start} to {stop}"):
            if columns is None:
                return np.asarray(self._array[rows])
            return np.asarray(self._array.oindex[rows, np.array(columns)])

    def pick(self, rows: slice | IntArray, columns: slice | IntArray) -> AnyArray:
        """The entries of a matrix where rows and columns cross; only chunks that hold some of them are read."""
        with self._reading(f"{_described('rows', rows)}, {_described('columns', columns)}"):
            return np.asarray(self._array.oindex[rows, columns])

    def fingerprint(self) -> Json:
        """Digest over name, size and time of change of every file of the array."""
        lines = "".join(sorted(_listed(self._folder))).encode(errors="surrogateescape")
        return {"kind": "zarr", "array": str(self._folder.resolve()), "files": hashlib.sha256(lines).hexdigest()}

    @contextmanager
    def _reading(self, place: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each codec has exceptions of its own
            raise InvalidInputError(f"{self.name} cannot be read in {place}; a chunk is damaged: {error}") from error


def is_array(folder: Path) -> bool:
    """Whether a folder is a Zarr array; a group, for one, is not."""
    return (folder / ".zarray").is_file() or _node_type(folder) == "array"


def array_folders(group: Path) -> dict[str, Path]:
    """The folders of all arrays in and below a group, by their keys."""
    found: dict[str, Path] = {}
    for folder in sorted(path for path in group.iterdir() if path.is_dir()):
        if is_array(folder):
            found[folder.name] = folder
        elif (folder / ".zgroup").is_file() or _node_type(folder) == "group":
            found |= {f"{folder.name}/{key}": array for key, array in array_folders(folder).items()}
    return found


def group_attributes(group: Path) -> Json:
    """What the writer of a group noted about it."""
    if (group / "zarr.json").is_file():
        noted = _description(group / "zarr.json").get("attributes")
        return noted if isinstance(noted, dict) else {}
    return _description(group / ".zattrs") if (group / ".zattrs").is_file() else {}


def _described(axis: str, chosen: slice | IntArray) -> str:
    if isinstance(chosen, slice):
        return f"{axis} {chosen.start} to {chosen.stop}"
    return f"{len(chosen)} {axis} from {chosen[0]} to {chosen[-1]}" if len(chosen) else f"no {axis}"


def _node_type(folder: Path) -> str | None:
    path = folder / "zarr.json"
    return _description(path).get("node_type") if path.is_file() else None


def _description(path: Path) -> Json:
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidInputError(f"{path} is damaged: it is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{path} is damaged: it holds {type(value).__name__}, not an object.")
    return value


def _opened(folder: Path) -> "zarr.Array[Any]":
    """The array, once its codecs are known to be harmless."""
    zarr_format: Literal[2, 3] = 3 if (folder / "zarr.json").is_file() else 2
    described = _description(folder / ("zarr.json" if zarr_format == 3 else ".zarray"))
    try:
        _refuse_unknown_codecs(folder, described, zarr_format)
        return zarr.open_array(LocalStore(folder, read_only=True), mode="r", zarr_format=zarr_format)
    except InvalidInputError:
        raise
    except Exception as error:  # a malformed description fails in as many ways as it can be malformed
        raise InvalidInputError(f"{folder} cannot be used: its description is not understood ({error}).") from error


def _refuse_unknown_codecs(folder: Path, described: Json, zarr_format: int) -> None:
    known = CODECS_V3 if zarr_format == 3 else CODECS_V2
    for codec in _codecs_v3(described["codecs"]) if zarr_format == 3 else _codecs_v2(described):
        if codec not in known:
            raise InvalidInputError(
                f"{folder} uses the codec {codec!r}, which is not known to be safe; save it again with one of "
                f"{', '.join(sorted(known))}."
            )
    if described.get("dtype") == "|O" and "vlen-utf8" not in _codecs_v2(described):
        raise InvalidInputError(f"{folder} has dtype object; objects are never loaded: save numbers or text instead.")


def _codecs_v2(described: Json) -> list[str]:
    codecs = [described.get("compressor"), *(described.get("filters") or [])]
    return [codec["id"] for codec in codecs if codec is not None]


def _codecs_v3(codecs: list[Any]) -> Iterator[str]:
    """The names of codecs, those inside of shards too."""
    for codec in codecs:
        yield codec if isinstance(codec, str) else codec["name"]
        configuration = {} if isinstance(codec, str) else codec.get("configuration") or {}
        for inner in ("codecs", "index_codecs"):
            yield from _codecs_v3(configuration.get(inner, []))


def _listed(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            status = path.stat()
            yield f"{path.relative_to(folder).as_posix()}\0{status.st_size}\0{status.st_mtime_ns}\n"
