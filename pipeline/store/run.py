"""A run's store as a whole: its format, the journal of the stages under way, the manifest of what is published.

`trigpoint.json` says that a folder is a run and of which format. `journal.json` lists the stages of the latest command,
complete or not. `manifest.json` names the stages whose results are published, each with the seal of its ledger; it is
replaced in one write, so a reader sees one published state or the other. `plan.json` has the times that were expected.

A published state is a version, named in its manifest; that of a first fit is "1" without saying so. `versions/` keeps
the manifest of each that was published before, as `<name>.json`, written before the manifest is replaced. `freed.json`
lists what was freed to make a run smaller.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from pipeline.errors import InvalidInputError, StoreError
from pipeline.store import open_backend
from pipeline.store.backend import Backend, Objects
from pipeline.store.freed import LEVELS, declare_whole, read_freed
from pipeline.store.ledger import FORMAT_VERSION, StageLedger
from pipeline.types import Json

MARKER, JOURNAL, MANIFEST, PLAN = "trigpoint.json", "journal.json", "manifest.json", "plan.json"
VERSIONS, FIRST = "versions", "1"
VERSION_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DIGEST = re.compile("[0-9a-f]{20}")
FIT, EXTENSION, MODEL, INVERSION = "fit", "extension", "model", "inversion"
KINDS = {
    FIT: "a fitted run",
    EXTENSION: "new points in the space of a run",
    MODEL: "a model exported from a run",
    INVERSION: "data at coordinates in the space of a run",
}


def create_run(url: str | Path, kind: str = FIT) -> Backend:
    """The store of a new or earlier run of a kind, ready to be written; refused if anything else is there."""
    store = open_backend(url)
    if store.names(""):
        check_format(store)
        if kind_of(store) != kind:
            raise InvalidInputError(
                f"{str(url)!r} holds {KINDS[kind_of(store)]}, not {KINDS[kind]}; name another folder."
            )
        return store
    marker = {"format_version": FORMAT_VERSION} | ({} if kind == FIT else {"kind": kind})
    try:
        Objects(store).write(MARKER, marker)
    except OSError as error:
        raise StoreError(f"{store} cannot be written: {error.strerror or error}; choose another place.") from error
    return store


def open_store(url: str | Path, writable: bool = False) -> Backend:
    """The store of an existing run."""
    store = open_backend(url, read_only=not writable)
    if not store.names(""):
        raise InvalidInputError(f"store={str(url)!r} does not exist or is empty; run `trigpoint fit` to make one.")
    check_format(store)
    return store


def kind_of(store: Backend) -> str:
    """What a store holds, one of KINDS."""
    return str((Objects(store).read(MARKER) or {}).get("kind", FIT))


def check_format(store: Backend) -> None:
    """Refuse what is not a run, or a run of a format that this version does not know."""
    marker = Objects(store).read(MARKER)
    if marker is None:
        raise InvalidInputError(f"{store} is not a run: it has no {MARKER}; name a folder that is empty or a run.")
    version = marker.get("format_version")
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        remedy = "install a newer trigpoint" if newer else "fit again into a new store"
        raise StoreError(
            f"{store} has format version {version}; this version of trigpoint reads {FORMAT_VERSION}: {remedy}."
        )


def write_journal(store: Backend, entries: list[Json]) -> None:
    """Remember the stages of the command under way."""
    Objects(store).declare({JOURNAL: {"stages": entries}})


def read_journal(store: Backend) -> list[Json]:
    value = Objects(store).declared(JOURNAL)
    return [] if value is None else list(value["stages"])


def journaled_paths(store: Backend, beside_published: bool = False) -> list[str]:
    """Paths of the results of the latest command's stages, or only of those that are not published."""
    try:
        entries = _journaled(store)
        published = _published_results(store) if beside_published else {}
    except StoreError:
        return []
    return [f"{stage}/{digest}" for stage, digest in entries if (stage, digest) not in published]


def _journaled(store: Backend) -> list[tuple[str, str]]:
    """Stage and digest of the latest command's results."""
    return [(entry["stage"], entry["digest"]) for entry in read_journal(store)]


def write_plan(store: Backend, seconds: Mapping[str, float]) -> None:
    """Remember how long each stage of the command under way is thought to take."""
    if dict(seconds) != read_plan(store):
        Objects(store).declare({PLAN: {"seconds": dict(seconds)}})


def read_plan(store: Backend) -> dict[str, float]:
    """Seconds of each stage, as planned; empty if nothing is known."""
    with suppress(StoreError):  # damaged: only an estimate is lost
        return dict((Objects(store).declared(PLAN) or {"seconds": {}})["seconds"])
    return {}


def publish(store: Backend, manifest: Json, ledgers: list[StageLedger], version: str | None = None) -> Json:
    """Make these stages the published ones, in one write; none if they are. The manifest as it is published.

    From the first that has a version's name on, what was published before stays a version.
    """
    stages = {ledger.stage: {"digest": ledger.digest, "seal": ledger.seal()} for ledger in ledgers}
    try:
        current = read_manifest(store)
    except StoreError:
        current = None  # damaged: what is complete is known from the ledgers, and written anew
    kept = _kept_versions(store)
    value = _as_version({**manifest, "stages": stages}, version, current, kept)
    if current == value:
        return value
    objects = Objects(store)
    if current is not None and "number" in value and version_name(current) not in kept:
        named = {**current, "version": version_name(current), "number": version_number(current)}
        objects.declare({f"{VERSIONS}/{version_name(current)}.json": named})
    objects.declare({MANIFEST: value})
    return value


def _as_version(value: Json, name: str | None, current: Json | None, kept: Mapping[str, Json]) -> Json:
    """A state with its name and number, those it was published with before; a run that is only fitted has none."""
    known = [*([] if current is None else [current]), *kept.values()]
    for state in known:
        if {key: entry for key, entry in state.items() if key not in ("version", "number")} == value:
            return state
    if name is None and not kept and (current is None or "number" not in current):
        return value
    number = 1 + max((version_number(state) for state in known), default=0)
    return {**value, "version": name or free_name(number, map(version_name, known)), "number": number}


def free_name(number: int, taken: Iterable[str]) -> str:
    """The number itself, or the next one that is no version's name yet."""
    names = set(taken)
    return next(str(n) for n in count(number) if str(n) not in names)


def version_name(manifest: Json) -> str:
    return str(manifest.get("version", FIRST))


def version_number(manifest: Json) -> int:
    """Which of the versions of a run it is, in the order of their making."""
    return int(manifest.get("number", 1))


def read_manifest(store: Backend) -> Json | None:
    """What is published, if anything is; a manifest that was changed is an error."""
    return Objects(store).declared(MANIFEST)


def published_manifest(store: Backend, version: str | None = None) -> Json:
    """What is published, under a version's name if one is given; an error if there is no such thing."""
    manifest = read_manifest(store) if version is None else _read_version(store, version)
    if manifest is not None:
        return manifest
    if version is None:
        raise StoreError(
            f"{store} has nothing published yet; run the fit to its end (`trigpoint status` tells how far it is)."
        )
    listed = ", ".join(versions(store)) or "there are none"
    raise InvalidInputError(f"version={version!r} is not in {store}; versions: {listed}.")


def versions(store: Backend) -> list[str]:
    """The names of the versions that can be read, in the order of their making."""
    return [version_name(state) for state in states(store)]


def states(store: Backend) -> list[Json]:
    """The manifests of all versions, in the order of their making; none where only one state can ever be."""
    if kind_of(store) != FIT:
        return []
    # The published one first: what replaces it meanwhile has made it a version before.
    current = read_manifest(store)
    known = {**({} if current is None else {version_name(current): current}), **_kept_versions(store)}
    return sorted(known.values(), key=version_number)


def _read_version(store: Backend, name: str) -> Json | None:
    if not VERSION_NAME.fullmatch(name):
        return None
    with suppress(StoreError):  # a damaged manifest does not hide the versions before it
        current = read_manifest(store)
        if current is not None and version_name(current) == name:
            return current
    return Objects(store).declared(f"{VERSIONS}/{name}.json")


def drop_versions(store: Backend, n_kept: int) -> list[str]:
    """Forget all but the newest versions and the published one; the names of those. Their results become superseded."""
    published = read_manifest(store)
    names = versions(store)
    old = [name for name in names[: max(0, len(names) - n_kept)] if published and name != version_name(published)]
    for name in old:
        Objects(store).delete(f"{VERSIONS}/{name}.json")
    return old


def _kept_versions(store: Backend) -> dict[str, Json]:
    names = [name.removesuffix(".json") for name in Objects(store).names(VERSIONS) if name.endswith(".json")]
    found = ((name, Objects(store).declared(f"{VERSIONS}/{name}.json")) for name in names)
    return {name: state for name, state in found if state is not None}


def published_ledger(store: Backend, manifest: Json, stage: str) -> StageLedger:
    """The published results of one stage."""
    return StageLedger(store, stage, manifest["stages"][stage]["digest"])


def damaged(store: Backend) -> list[str]:
    """Everything in the published state, in a version or in what is under way that is not as it was written."""
    seals: dict[tuple[str, str], str | None] = {**_published_results(store)}
    for stage_and_digest in _journaled(store):
        seals.setdefault(stage_and_digest, None)
    return [problem for result, seal in seals.items() for problem in StageLedger(store, *result).damaged(seal)]


def superseded(store: Backend, stages: Sequence[str]) -> list[str]:
    """Paths of these stages' results that no published state, no version and no command under way uses."""
    used = {*_published_results(store), *_journaled(store)}
    objects = Objects(store)
    found = ((stage, name) for stage in stages for name in objects.names(stage) if DIGEST.fullmatch(name))
    return [f"{stage}/{digest}" for stage, digest in found if (stage, digest) not in used]


def _published_results(store: Backend) -> dict[tuple[str, str], str]:
    """Stage and digest of all that is published, now or as a version, with the seals of their ledgers."""
    manifest = read_manifest(store)
    published = [*([] if manifest is None else [manifest]), *states(store)]
    return {(stage, entry["digest"]): entry["seal"] for state in published for stage, entry in state["stages"].items()}


def published_paths(store: Backend) -> list[str]:
    """Paths of the results of all that is published, now or as a version."""
    return [f"{stage}/{digest}" for stage, digest in _published_results(store)]


def paths_of(manifest: Json) -> list[str]:
    """Paths of the results of one published state."""
    return [f"{stage}/{entry['digest']}" for stage, entry in manifest["stages"].items()]


def retained(store: Backend, manifest: Json) -> str | None:
    """The level that a published state was slimmed to, or None if it is whole."""
    freed = read_freed(store)
    levels = [freed[path]["retain"] for path in paths_of(manifest) if path in freed]
    return max(levels, key=LEVELS.index, default=None)


def remove(store: Backend, path: str) -> None:
    """Delete one stage's results. What vouches for data goes before it, or an interruption would leave a gap."""
    objects = Objects(store)
    objects.delete(f"{path}/ledger/finished.json")
    objects.delete_below(f"{path}/ledger")
    objects.delete_below(path)
    declare_whole(store, path)
