"""Bytes by position out of a file, or out of a member of a zip archive."""

import copy
import lzma
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

from pipeline.errors import InvalidInputError

LOCAL_HEADER = struct.Struct("<26xHH")
Span: TypeAlias = tuple[int, int]
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, NotImplementedError)


class ByteRanges(Protocol):
    """`size` bytes, any range of which can be read."""

    size: int

    def read(self, offset: int, length: int) -> bytes: ...

    def read_each(self, spans: Iterable[Span]) -> Iterator[bytes]:
        """Many ranges, each an offset and a length; it costs least in rising order."""
        ...


class FileRange:
    """The `size` bytes of a file from `base` on. They are not mapped: a mapped file would count as memory in use."""

    def __init__(self, path: Path, base: int, size: int) -> None:
        self.size = size
        self._path, self._base = path, base

    def read(self, offset: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(self._base + offset)
            return file.read(length)

    def read_each(self, spans: Iterable[Span]) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            for offset, length in spans:
                file.seek(self._base + offset)
                yield file.read(length)


class CompressedMember:
    """A compressed member. It stays open between reads, since only reading forward does not start all over."""

    def __init__(self, path: Path, member: zipfile.ZipInfo) -> None:
        self.size = member.file_size
        self._path, self._member = path, member.filename
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None

    def read(self, offset: int, length: int) -> bytes:
        with self._lock:
            try:
                return self._read(offset, length)
            except DAMAGE as error:
                self._file = None
                raise InvalidInputError(
                    f"{self._path} is damaged: its member {self._member} cannot be decompressed ({error})."
                ) from error

    def read_each(self, spans: Iterable[Span]) -> Iterator[bytes]:
        # With a place of its own: another thread that reads in turn would send it back to the start each time.
        twin = copy.copy(self)
        for offset, length in spans:
            yield twin.read(offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        if self._file is None:
            with zipfile.ZipFile(self._path) as archive:
                # The member keeps the archive's file open until it is closed itself.
                self._file = archive.open(self._member)
        self._file.seek(offset)
        return self._file.read(length)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def archive_members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """The arrays of a .npz file by their keys."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
    except zipfile.BadZipFile as error:
        raise InvalidInputError(f"source {path} is not a .npz file: {error}") from error


def member_bytes(path: Path, member: zipfile.ZipInfo) -> ByteRanges:
    """The bytes of a member: straight out of the file where they are stored as they are."""
    if member.flag_bits & 1:
        raise InvalidInputError(f"{path} is encrypted in its member {member.filename}; save it without a password.")
    if member.compress_type != zipfile.ZIP_STORED:
        return CompressedMember(path, member)
    header = FileRange(path, member.header_offset, member.file_size).read(0, LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size:
        raise InvalidInputError(f"{path} is damaged: its member {member.filename} lies beyond its end.")
    return FileRange(
        path, member.header_offset + LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack(header)), member.file_size
    )
