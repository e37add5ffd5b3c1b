"""Small JSON objects beside the arrays, in the same backend, each written whole or not at all."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache

from pipeline.errors import StoreError
from pipeline.store.backend import Backend
from pipeline.types import Json

SEAL = "seal"


class Objects:
    """JSON values by key in a backend; refuses to change one that was opened for reading."""

    def __init__(self, store: Backend) -> None:
        self.store = store

    def read_bytes(self, key: str) -> bytes | None:
        return self.store.read(key)

    def read(self, key: str) -> Json | None:
        """The object at `key`, or None if there is none; damaged text is an error that names it."""
        return self._understood(key, _parsed)

    def write(self, key: str, value: Json) -> None:
        self.write_bytes(key, canonical(value))

    def write_bytes(self, key: str, data: bytes | memoryview) -> None:
        self._require_writable()
        self.store.write(key, data)

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
        """Write unless there is an object already, and say whether this call did. Every caller's value must differ.

        The answer to a write can be lost on the way, so the object is read back and compared.
        """
        self._require_writable()
        self.store.create(key, canonical(value))
        self.flush()
        return self.read_bytes(key) == canonical(value)

    def exists(self, key: str) -> bool:
        return self.store.exists(key)

    def written_at(self, key: str) -> float | None:
        """When an object was written, in seconds since the epoch; None if there is none."""
        return self.store.written_at(key)

    def flush(self) -> None:
        """Make everything written so far durable."""
        self.store.flush()

    def adopt(self, key: str) -> None:
        """Have the next flush cover an object that somebody else wrote, and perhaps never made durable."""
        self.store.adopt(key)

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
