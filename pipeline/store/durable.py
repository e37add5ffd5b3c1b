"""A local Zarr store whose writes survive a power cut: file and folders are synced before a write is reported done.

zarr's own LocalStore is atomic but does not sync, so a commit object could reach the disk before the data it vouches
for.
"""

import asyncio
import os
import uuid
from pathlib import Path

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

PARTIAL_SUFFIX = ".partial"


class DurableLocalStore(LocalStore):
    """LocalStore with synced writes."""

    async def _set(self, key: str, value: Buffer, exclusive: bool = False) -> None:
        self._check_writable()
        await asyncio.to_thread(write_durably, self.root / key, value.as_buffer_like(), exclusive)

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()
        write_durably(self.root / key, value.as_buffer_like(), exclusive=False)

    def sweep_partials(self) -> int:
        """Remove what interrupted writes left behind; only the holder of the lease may."""
        leftovers = list(self.root.rglob(f"*{PARTIAL_SUFFIX}"))
        for path in leftovers:
            path.unlink(missing_ok=True)
        return len(leftovers)


def write_durably(path: Path, data: bytes | bytearray | memoryview, exclusive: bool) -> None:
    """Write a file whole or not at all; with `exclusive`, raise FileExistsError if there is one already."""
    _make_folder(path.parent)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL_SUFFIX}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if exclusive:
            os.link(partial, path)
        else:
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents, each synced into the one above."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
