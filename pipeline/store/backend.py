"""Where a run's objects are kept: the interface of every store backend, and the one that keeps them in memory.

Keys are relative names joined by "/"; values are bytes, written whole or not at all. Arrays, ledger, lease and manifest
use nothing else, so a plugin that implements `Backend` for its URL scheme can hold a run. tests/store/backend_suite.py
has the tests that a backend must pass.
"""

import sys
import time
from abc import ABC, abstractmethod
from typing import ClassVar, NoReturn

from pipeline.errors import InvalidInputError, StoreError


class Backend(ABC):
    """The objects below one root. Any number of threads may use it at once.

    A backend is sent to workers by pickling; pickle the URL rather than open connections.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        # Checked by `Objects`, so that implementations need not.
        self.read_only = False

    def __str__(self) -> str:
        return self.url

    @abstractmethod
    def read(self, key: str) -> bytes | None:
        """The object at `key`, or None if there is none."""

    @abstractmethod
    def write(self, key: str, data: bytes | memoryview) -> None:
        """Write or replace an object; readers see the old bytes or the new ones, never a part."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one already; of several callers at most one gets True.

        False may also mean that the answer was lost: callers read the object back.
        """

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """Names directly below `prefix` ("" for the root), in any order; empty if there is nothing."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""

    @abstractmethod
    def delete_below(self, prefix: str) -> None:
        """Delete every object below `prefix`."""

    @abstractmethod
    def size(self, prefix: str) -> int:
        """Bytes of all objects below `prefix` ("" for the root)."""

    @abstractmethod
    def written_at(self, key: str) -> float | None:
        """When an object was written, in seconds since the epoch; None if there is none."""

    def exists(self, key: str) -> bool:
        return self.read(key) is not None

    def flush(self) -> None:  # noqa: B027  most backends are durable by then
        """Make everything written so far durable; override it if `write` returns earlier than that."""

    def adopt(self, key: str) -> None:  # noqa: B027  like flush
        """Include in the next `flush` an object that somebody else may have written without flushing."""

    def sweep_partials(self) -> int:
        """Remove what interrupted writes left behind, and count it. Only the holder of the lease may call this."""
        return 0

    def free_bytes(self) -> int:
        """Bytes that can still be written, as far as is known."""
        return sys.maxsize


def checked_key(key: str) -> str:
    """`key` if it stays below the root of a store."""
    if not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise StoreError(f"key {key!r} leaves the store's root or is malformed; keys are relative names joined by '/'.")
    return key


def below(prefix: str) -> str:
    """What the keys below `prefix` begin with."""
    return f"{checked_key(prefix)}/" if prefix else ""


class MemoryBackend(Backend):
    """Objects in this process, shared by all who open the same URL; for tests and for runs that nobody keeps."""

    _contents: ClassVar[dict[str, dict[str, tuple[bytes, float]]]] = {}

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._objects = self._contents.setdefault(url, {})

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            f"{self.url} is in the memory of one process and cannot be sent to workers; use cluster kind 'serial' or a "
            "store on disk."
        )

    def read(self, key: str) -> bytes | None:
        found = self._objects.get(checked_key(key))
        return None if found is None else found[0]

    def write(self, key: str, data: bytes | memoryview) -> None:
        self._objects[checked_key(key)] = (bytes(data), time.time())

    def create(self, key: str, data: bytes) -> bool:
        mine = (data, time.time())
        # Atomic: `setdefault` of a dictionary with text keys is one operation of the interpreter.
        return self._objects.setdefault(checked_key(key), mine) is mine

    def names(self, prefix: str) -> list[str]:
        return [*{key.partition("/")[0] for key in self._below(prefix)}]

    def delete(self, key: str) -> None:
        self._objects.pop(checked_key(key), None)

    def delete_below(self, prefix: str) -> None:
        for key in self._below(prefix):
            self._objects.pop(below(prefix) + key, None)

    def size(self, prefix: str) -> int:
        return sum(len(self.read(below(prefix) + key) or b"") for key in self._below(prefix))

    def written_at(self, key: str) -> float | None:
        found = self._objects.get(checked_key(key))
        return None if found is None else found[1]

    def free_bytes(self) -> int:
        import psutil

        return int(psutil.virtual_memory().available)

    def _below(self, prefix: str) -> tuple[str, ...]:
        start = below(prefix)
        return tuple(key.removeprefix(start) for key in tuple(self._objects) if key.startswith(start))
