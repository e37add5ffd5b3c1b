"""A run's store: backends, checked arrays, JSON objects, the ledger of what is complete. Nothing else sees zarr."""

from collections.abc import Callable
from pathlib import Path

from pipeline.errors import InvalidInputError
from pipeline.plugins import LOADED
from pipeline.store.backend import Backend, MemoryBackend
from pipeline.store.local import LocalBackend

BACKENDS: dict[str, Callable[[str], Backend]] = {"file": LocalBackend, "memory": MemoryBackend}


def open_backend(url: str | Path, read_only: bool = False) -> Backend:
    """The backend for a path or URL, by its scheme; nothing is created before the first write."""
    text = str(url)
    scheme = text.partition("://")[0] if "://" in text else "file"
    known = {**LOADED.backends, **BACKENDS}
    if scheme not in known:
        listed = ", ".join(f"{name}://" for name in sorted(known))
        raise InvalidInputError(f"store={text!r} has a scheme that is not known; use a local path or one of {listed}.")
    backend = known[scheme](text)
    backend.read_only = read_only
    return backend


def is_within(url: str | Path, outer: str | Path) -> bool:
    """Whether what `url` names is the same as `outer` or, on a local disk, inside it."""
    folder, around = local_folder(url), local_folder(outer)
    if folder is None or around is None:
        return str(url) == str(outer)
    return folder.resolve().is_relative_to(around.resolve())


def local_folder(url: str | Path) -> Path | None:
    """The folder that a path or URL names; None if it is not on a local disk."""
    text = str(url)
    return Path(text.removeprefix("file://")) if "://" not in text or text.startswith("file://") else None
