"""What a kill at any moment would leave of a store, kept to be started again from."""

import json
import os
import shutil
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.store import BACKENDS
from pipeline.store.local import LocalBackend


class SnapshotStore(LocalBackend):
    """Before every write and deletion, keeps what a kill at that moment would leave: all before it, half of it.

    The first is that of a key which begins with `since`.
    """

    taken: ClassVar[list[str]] = []
    folder: ClassVar[Path]
    since: ClassVar[str] = ""

    @classmethod
    def start(cls, folder, since=""):
        cls.folder, cls.taken, cls.since = folder, [], since
        return cls

    def _snapshot(self, key):
        if not (self.taken or key.startswith(self.since)):
            return
        number = len(self.taken)
        self.taken.append(key)
        copy = self.folder / str(number)
        if self.root.exists():
            # Files are replaced, never changed in place, so that links keep what they were.
            shutil.copytree(self.root, copy, copy_function=os.link)
        half = copy / key
        half.parent.mkdir(parents=True, exist_ok=True)
        half.with_name(f".{half.name}.0.partial").write_bytes(b"half")

    def write(self, key, data):
        self._snapshot(key)
        super().write(key, data)

    def create(self, key, data):
        self._snapshot(key)
        return super().create(key, data)

    def delete(self, key):
        self._snapshot(key)
        super().delete(key)

    def delete_below(self, prefix):
        self._snapshot(f"{prefix}/all")
        super().delete_below(prefix)


def bury_the_holder(root):
    """Make the lease that of a process which is no more, as it is after a kill."""
    for path in (root / "lease").glob("*.json"):
        holder = json.loads(path.read_text())
        path.unlink()
        path.write_text(json.dumps({**holder, "started": "0"}))


def committed(root):
    return {
        (str(path.parent.parent.relative_to(root)), int(path.stem.removeprefix("partition-")))
        for path in root.glob("*/*/ledger/partition-*.json")
    }


def snapshots_of(folder, work):
    """Do some work, with a snapshot of its store below `folder` for every operation; the keys of the operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "file", SnapshotStore.start(folder))
        work()
    return SnapshotStore.taken
