"""Where a run's objects are kept: the interface of every store backend, the one in memory, and JSON objects in any.

Keys are relative names joined by "/"; values are bytes, written whole or not at all. Arrays, ledger, lease and manifest
use nothing else, so a plugin that implements `Backend` for its URL scheme can hold a run. tests/store/backend_suite.py
has the tests that a backend must pass.
"""

import hashlib
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import ClassVar, NoReturn

from pipeline.errors import InvalidInputError, StoreError
from pipeline.types import Json

SEAL = "seal"


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


class Objects:
    """Small JSON objects in a backend; refuses to change one that was opened for reading."""

    def __init__(self, store: Backend) -> None:
        self.store = store

    def read(self, key: str) -> Json | None:
        """The object at `key`, or None if there is none; damaged text is an error that names it."""
        return self._understood(key, _parsed)

    def write(self, key: str, value: Json) -> None:
        self.write_bytes(key, canonical(value))

    def write_bytes(self, key: str, data: bytes | memoryview) -> None:
        self._require_writable()
        self.store.write(key, data)

    def declare(self, values: Mapping[str, Json]) -> None:
        """Write objects, each with its own digest, that vouch for all written before, which is made durable first."""
        self.store.flush()
        for key, value in values.items():
            self.write(key, {**value, SEAL: digest_of(canonical(value))})
        self.store.flush()

    def declared(self, key: str) -> Json | None:
        """An object that was declared, or None; one that has changed since is an error that names it."""
        return self._understood(key, _unsealed)

    def _understood(self, key: str, meaning: Callable[[bytes], Json]) -> Json | None:
        data = self.store.read(key)
        if data is None:
            return None
        try:
            return meaning(data)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self.store}/{key} is damaged: {error}.") from error

    def create(self, key: str, value: Json) -> bool:
        """Write unless there is an object already, and say whether this call did. Every caller's value must differ.

        The answer to a write can be lost on the way, so the object is read back and compared.
        """
        self._require_writable()
        self.store.create(key, canonical(value))
        self.store.flush()
        return self.store.read(key) == canonical(value)

    def delete(self, key: str) -> None:
        self._require_writable()
        self.store.delete(key)

    def delete_below(self, prefix: str) -> None:
        self._require_writable()
        self.store.delete_below(prefix)

    def names(self, prefix: str) -> list[str]:
        """The names directly below `prefix` ("" for the root), sorted."""
        return sorted(self.store.names(prefix))

    def _require_writable(self) -> None:
        if self.store.read_only:
            raise ValueError(f"{self.store} was opened for reading only.")


def _parsed(data: bytes) -> Json:
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"it holds {type(value).__name__}, not an object")  # noqa: TRY004  damage, not a wrong call
    return value


@lru_cache(4096)
def _unsealed(data: bytes) -> Json:
    """What a declared object says, for nobody to change: entries of a ledger are read again for each of its arrays."""
    value = _parsed(data)
    if value.pop(SEAL, None) != digest_of(canonical(value)):
        raise ValueError("it is not as it was written")
    return value


def _refuse_constant(name: str) -> None:
    """Python reads NaN and infinities, which no JSON has; nothing here writes them."""
    raise ValueError(f"it holds {name}")


def canonical(value: Json) -> bytes:
    """JSON text that is the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
