"""A local Zarr store whose commits survive a power cut: what they vouch for is on the disk before they appear.

zarr's own LocalStore is atomic but never syncs, so a commit object could reach the disk before its data. Syncing every
chunk by itself would cost milliseconds each; here writes are remembered and synced together, by `flush`, when
something is about to vouch for them.
"""

import asyncio
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from io import BufferedWriter
from pathlib import Path
from threading import Lock
from typing import Any

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

PARTIAL_SUFFIX = ".partial"
SYNCED_AT_ONCE = 16


class DurableLocalStore(LocalStore):
    """LocalStore with writes that `flush` makes durable. A run has thousands of files, so that paths are plain text."""

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self._root = str(self.root)
        self._unsynced: set[str] = set()
        # Folders that are synced since they were made: their own names are durable.
        self._named: set[str] = set()
        self._lock, self._flushing = Lock(), Lock()

    def __reduce__(self) -> Any:
        return _reopened, (str(self.root), self.read_only)

    async def _set(self, key: str, value: Buffer, exclusive: bool = False) -> None:
        await asyncio.to_thread(self.write_now, key, value.to_bytes(), exclusive)

    def set_sync(self, key: str, value: Buffer) -> None:
        self.write_now(key, value.to_bytes())

    def write_now(self, key: str, data: bytes | memoryview, exclusive: bool = False) -> None:
        """Write a file without a turn through the event loop; with `exclusive`, raise if there is one."""
        self._check_writable()
        write_whole(f"{self._root}/{key}", data, exclusive)
        self.adopt(key)

    def adopt(self, key: str) -> None:
        """Have the next `flush` sync a file, whoever wrote it."""
        with self._lock:
            self._unsynced.add(f"{self._root}/{key}")

    def read_now(self, key: str) -> bytes | None:
        """A small file's bytes without a turn through the event loop, which takes longer than the reading."""
        try:
            with open(f"{self._root}/{key}", "rb", buffering=0) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def exists_now(self, key: str) -> bool:
        return os.path.isfile(f"{self._root}/{key}")

    def written_at_now(self, key: str) -> float | None:
        try:
            return (self.root / key).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names_now(self, prefix: str) -> list[str]:
        folder = self.root / prefix
        return os.listdir(folder) if folder.is_dir() else []

    def flush(self) -> None:
        """Sync every file written since the last time, and the folders that name them.

        One thread at a time: another's flush may be syncing this thread's files still.
        """
        with self._flushing:
            with self._lock:
                files, self._unsynced = self._unsynced, set()
            try:
                self._sync_all(files)
            except BaseException:
                with self._lock:
                    self._unsynced |= files
                raise

    def _sync_all(self, files: set[str]) -> None:
        folders = {folder for path in files for folder in self._folders_to_sync(path)}
        # Together: what several threads ask for at once a file system does at once, in a fraction of the time.
        for _ in _syncing_threads().map(_sync, sorted(files | folders)):
            pass
        self._named |= {os.path.dirname(folder) for folder in folders}

    def _folders_to_sync(self, path: str) -> Iterator[str]:
        """The folder that names a file; and those above it, as long as they are not known to name what is in them."""
        folder = os.path.dirname(path)
        yield folder
        while folder not in self._named and folder != os.path.dirname(self._root):
            folder = os.path.dirname(folder)
            yield folder

    async def delete_dir(self, prefix: str) -> None:
        self._named.clear()
        await super().delete_dir(prefix)

    def sweep_partials(self) -> int:
        """Remove what interrupted writes left behind; only the holder of the lease may."""
        leftovers = list(self.root.rglob(f"*{PARTIAL_SUFFIX}"))
        for path in leftovers:
            path.unlink(missing_ok=True)
        return len(leftovers)


@cache
def _syncing_threads() -> ThreadPoolExecutor:
    """Threads that wait for the disk; kept, for starting them takes longer than most of what they do."""
    return ThreadPoolExecutor(SYNCED_AT_ONCE, "sync")


def _reopened(root: str, read_only: bool) -> DurableLocalStore:
    return DurableLocalStore(root, read_only=read_only)


def write_whole(path: str, data: bytes | memoryview, exclusive: bool) -> None:
    """Write a file whole or not at all; with `exclusive`, raise FileExistsError if there is one already."""
    folder, name = os.path.split(path)
    partial = f"{folder}/.{name}.{uuid.uuid4().hex}{PARTIAL_SUFFIX}"
    try:
        with _created(partial) as file:
            file.write(data)
        if exclusive:
            os.link(partial, path)
        else:
            os.replace(partial, path)
    except BaseException:
        _remove(partial)
        raise
    if exclusive:
        _remove(partial)


def _created(path: str) -> BufferedWriter:
    """A new file; its folder is made if it is not there, which it nearly always is."""
    try:
        return open(path, "xb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _sync(path: str) -> None:
    """Make a file's bytes, or a folder's names, durable; one that has been deleted since needs no more."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
