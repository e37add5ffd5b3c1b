"""A run in a local folder whose commits survive a power cut: what they vouch for is on the disk before they appear.

Every object is a file, renamed into place once it is whole. Syncing each of them at once would cost milliseconds a
file; writes are remembered instead, and `flush` syncs them together when something is about to vouch for them.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from io import BufferedWriter
from pathlib import Path
from threading import Lock
from typing import Any

from pipeline.errors import InvalidInputError
from pipeline.store.backend import Backend, checked_key

PARTIAL_SUFFIX = ".partial"
SYNCED_AT_ONCE = 16


class LocalBackend(Backend):
    """Objects as files. A run has thousands of them, so paths are plain text here."""

    def __init__(self, url: str | Path) -> None:
        self._root = str(Path(str(url).removeprefix("file://")))
        super().__init__(self._root)
        if os.path.isfile(self._root):
            raise InvalidInputError(f"store={str(url)!r} is a file; name a folder that is empty or not there yet.")
        self._unsynced: set[str] = set()
        # Folders that have been synced since they were made: their own names are durable.
        self._named: set[str] = set()
        self._lock, self._flushing = Lock(), Lock()

    def __reduce__(self) -> Any:
        return type(self), (self._root,), {"read_only": self.read_only}

    @property
    def root(self) -> Path:
        return Path(self._root)

    def read(self, key: str) -> bytes | None:
        try:
            with open(self._path(key), "rb", buffering=0) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def write(self, key: str, data: bytes | memoryview) -> None:
        write_whole(self._path(key), data)
        self.adopt(key)

    def create(self, key: str, data: bytes) -> bool:
        try:
            write_whole(self._path(key), data, exclusive=True)
        except FileExistsError:
            return False
        self.adopt(key)
        return True

    def exists(self, key: str) -> bool:
        return os.path.isfile(self._path(key))

    def names(self, prefix: str) -> list[str]:
        """Names of files and folders; writes under way are not there yet."""
        try:
            return [name for name in os.listdir(self._folder(prefix)) if not name.endswith(PARTIAL_SUFFIX)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, key: str) -> None:
        _remove(self._path(key))

    def delete_below(self, prefix: str) -> None:
        self._named.clear()
        with suppress(FileNotFoundError):
            shutil.rmtree(self._folder(prefix))

    def size(self, prefix: str) -> int:
        """Some files may be deleted while they are counted."""
        total = 0
        for folder, _, names in os.walk(self._folder(prefix)):
            for name in names:
                with suppress(FileNotFoundError):
                    total += os.stat(os.path.join(folder, name)).st_size
        return total

    def written_at(self, key: str) -> float | None:
        try:
            return os.stat(self._path(key)).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def adopt(self, key: str) -> None:
        with self._lock:
            self._unsynced.add(self._path(key))

    def flush(self) -> None:
        """Sync every file written since the last time, and the folders that name them."""
        # One thread at a time: another's flush may still be syncing this thread's files.
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
        # In several threads: a file system syncs together what is asked for at once, in a fraction of the time.
        for _ in _syncing_threads().map(_sync, sorted(files | folders)):
            pass
        self._named |= {os.path.dirname(folder) for folder in folders}

    def _folders_to_sync(self, path: str) -> Iterator[str]:
        """The folder of a file, and those above it up to the first whose own name is known to be durable."""
        folder = os.path.dirname(path)
        yield folder
        while folder not in self._named and folder != os.path.dirname(self._root):
            folder = os.path.dirname(folder)
            yield folder

    def sweep_partials(self) -> int:
        leftovers = list(self.root.rglob(f"*{PARTIAL_SUFFIX}"))
        for path in leftovers:
            path.unlink(missing_ok=True)
        return len(leftovers)

    def free_bytes(self) -> int:
        root = self.root.absolute()
        there = next(path for path in (root, *root.parents) if path.exists())
        return shutil.disk_usage(there).free

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}"

    def _folder(self, prefix: str) -> str:
        return self._path(prefix) if prefix else self._root


@cache
def _syncing_threads() -> ThreadPoolExecutor:
    """Threads that wait for the disk; kept, since starting them takes longer than most syncs."""
    return ThreadPoolExecutor(SYNCED_AT_ONCE, "sync")


def write_whole(path: str, data: bytes | memoryview, exclusive: bool = False) -> None:
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
    """A new file; its folder is nearly always there, and made if not."""
    try:
        return open(path, "xb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _sync(path: str) -> None:
    """Make a file's bytes, or a folder's names, durable, unless it has been deleted in the meantime."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
