"""One coordinator at a time: a lease taken by create-if-absent, numbered by epochs.

Epoch e is the object `lease/<e>.json`; creating it is atomic, so of several contenders exactly one gets an epoch. A
holder that ends well marks its epoch released. A holder that died is recognized on its own machine by process and boot
identity; elsewhere taking over must be asked for. Whoever holds a later epoch has fenced off all earlier ones.
"""

import os
import re
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pipeline.errors import LeaseHeldError
from pipeline.store.backend import Backend, Objects
from pipeline.types import Json

NAME = re.compile(r"[0-9]{8}\.json")


@dataclass(frozen=True)
class Lease:
    """The right to write to a run's store, for as long as no later epoch exists."""

    store: Backend
    epoch: int
    holder: Json

    def ensure_held(self) -> None:
        """Raise if another run has taken the store over in the meantime."""
        latest, holder = _latest(Objects(self.store))
        if latest != self.epoch:
            raise LeaseHeldError(f"this run lost {self.store}: {_described(holder)} took it over; stop this one.")

    def release(self) -> None:
        """Give the store back, unless it has been taken over."""
        if _latest(Objects(self.store))[0] == self.epoch:
            Objects(self.store).write(_key(self.epoch), {**self.holder, "released": True})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire(store: Backend, take_over: bool = False) -> Lease:
    """Take the lease, or raise with the holder's name. A released or dead holder's is taken without asking."""
    objects = Objects(store)
    epoch, holder = _latest(objects)
    if holder is not None and not (holder.get("released") or take_over or _is_dead(holder)):
        raise LeaseHeldError(
            f"{store} is held by {_described(holder)}. Wait for it to end; if it is gone, run again with --take-over."
        )
    # A process is named on a machine since its boot: a number alone is used again.
    mine: Json = {
        "host": socket.gethostname(),
        "boot": _boot_id(),
        "processes": _process_space(),
        "pid": os.getpid(),
        "started": _start_time(os.getpid()),
        "token": uuid.uuid4().hex,
    }
    if not objects.create(_key(epoch + 1), mine):
        _, winner = _latest(objects)
        raise LeaseHeldError(f"{store} was taken at this moment by {_described(winner)}; wait for it to end.")
    for earlier in _epochs(objects):
        if earlier < epoch:
            objects.delete(_key(earlier))
    return Lease(store, epoch + 1, mine)


def held_since(store: Backend) -> float | None:
    """Since when a run that may still be alive holds the store; None if none does."""
    epoch, holder = _latest(Objects(store))
    if holder is None or holder.get("released") or _is_dead(holder):
        return None
    return store.written_at(_key(epoch))


def _latest(objects: Objects) -> tuple[int, Json | None]:
    latest = max(_epochs(objects), default=0)
    return latest, objects.read(_key(latest)) if latest else None


def _epochs(objects: Objects) -> list[int]:
    return [int(name.removesuffix(".json")) for name in objects.names("lease") if NAME.fullmatch(name)]


def _key(epoch: int) -> str:
    return f"lease/{epoch:08d}.json"


def _is_dead(holder: Json) -> bool:
    """Whether the holder can be known to be gone: same machine and boot, and its process is not there any more."""
    if holder.get("host") != socket.gethostname() or not _boot_id():
        return False
    if holder.get("boot") == _boot_id() and holder.get("processes") != _process_space():
        return False  # a container on the same machine: its processes cannot be seen from here
    return holder.get("boot") != _boot_id() or _start_time(int(holder["pid"])) != holder.get("started")


def _process_space() -> str:
    """Which processes have their numbers in common with this one."""
    path = Path("/proc/self/ns/pid")
    return os.readlink(path) if path.exists() else ""


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _start_time(pid: int) -> str:
    """The kernel's start time of a process, in ticks since boot; empty if it has ended."""
    try:
        # The name in parentheses may hold anything, so count fields from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # A killed process that its parent has not collected yet is listed still, as a zombie.
    return "" if fields[0] in "ZX" else fields[19]


def _described(holder: Json | None) -> str:
    if holder is None:
        return "an unknown run"
    return f"process {holder.get('pid')} on {holder.get('host')}"
