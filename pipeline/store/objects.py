"""Small JSON objects beside the arrays, through the same Zarr store, each written whole or not at all."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from pipeline.errors import StoreError
from pipeline.store.durable import PARTIAL_SUFFIX, DurableLocalStore
from pipeline.types import Json

SEAL = "seal"


class Objects:
    """Keys and JSON values. Keys are relative and stay below the store's root."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def read_bytes(self, key: str) -> bytes | None:
        if isinstance(self.store, DurableLocalStore):
            return self.store.read_now(checked_key(key))
        buffer = sync(self.store.get(checked_key(key), default_buffer_prototype()))
        return None if buffer is None else buffer.to_bytes()

    def read(self, key: str) -> Json | None:
        """The object at `key`, or None if there is none; damaged text is an error that names it."""
        return self._understood(key, _parsed)

    def write(self, key: str, value: Json) -> None:
        self.write_bytes(key, canonical(value))

    def write_bytes(self, key: str, data: bytes | memoryview) -> None:
        if isinstance(self.store, DurableLocalStore):
            self.store.write_now(checked_key(key), data)
        else:
            sync(self.store.set(checked_key(key), _buffer(bytes(data))))

    def declare(self, values: Mapping[str, Json]) -> None:
        """Write objects that vouch for others: all that was written before is made durable first, then they are.

        Each carries a digest of itself, which `declared` checks.
        """
        self.flush()
        for key, value in values.items():
            self.write(key, {**value, SEAL: digest_of(canonical(value))})
        self.flush()

    def declared(self, key: str) -> Json | None:
        """An object that was declared, or None; one that has changed since is an error that names it."""
        return self._understood(key, _unsealed)

    def _understood(self, key: str, meaning: Callable[[bytes], Json]) -> Json | None:
        data = self.read_bytes(key)
        if data is None:
            return None
        try:
            return meaning(data)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self.store}/{key} is damaged: {error}.") from error

    def create(self, key: str, value: Json) -> bool:
        """Write unless there is an object already; whether this call wrote it. `value` must be unlike any other's."""
        sync(self.store.set_if_not_exists(checked_key(key), _buffer(canonical(value))))
        self.flush()
        return self.read_bytes(key) == canonical(value)

    def exists(self, key: str) -> bool:
        return not self.missing([key])

    def missing(self, keys: list[str]) -> list[str]:
        """Those of some keys that there is nothing at, found together."""
        if isinstance(self.store, DurableLocalStore):
            return [key for key in keys if not self.store.exists_now(checked_key(key))]
        found = sync(_gathered([self.store.exists(checked_key(key)) for key in keys]))
        return [key for key, there in zip(keys, found, strict=True) if not there]

    def written_at(self, key: str) -> float | None:
        """When an object was written, in seconds since the epoch; None if it is not there or nobody knows."""
        return self.store.written_at_now(checked_key(key)) if isinstance(self.store, DurableLocalStore) else None

    def flush(self) -> None:
        """Make durable what was written so far."""
        if isinstance(self.store, DurableLocalStore):
            self.store.flush()

    def adopt(self, key: str) -> None:
        """Answer for an object that somebody else wrote, and perhaps never made durable."""
        if isinstance(self.store, DurableLocalStore):
            self.store.adopt(checked_key(key))

    def delete(self, key: str) -> None:
        sync(self.store.delete(checked_key(key)))

    def delete_below(self, prefix: str) -> None:
        sync(self.store.delete_dir(checked_key(prefix)))

    def names(self, prefix: str) -> list[str]:
        """The names directly below `prefix` ("" for the root), sorted; writes under way are not there yet."""
        below = checked_key(prefix) if prefix else ""
        if isinstance(self.store, DurableLocalStore):
            names = self.store.names_now(below)
        else:
            names = sync(_collected(self.store, below))
        return sorted(name for name in names if not name.endswith(PARTIAL_SUFFIX))


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


async def _gathered(questions: list[Any]) -> list[bool]:
    return list(await asyncio.gather(*questions))


async def _collected(store: Store, prefix: str) -> list[str]:
    return [name async for name in store.list_dir(prefix)]


def checked_key(key: str) -> str:
    """`key` if it stays below the root of a store."""
    if not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise StoreError(f"key {key!r} leaves the store's root or is malformed; keys are relative names joined by '/'.")
    return key


def canonical(value: Json) -> bytes:
    """JSON text that is the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _buffer(data: bytes) -> Any:
    return default_buffer_prototype().buffer.from_bytes(data)
