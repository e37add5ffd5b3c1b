"""What is kept of a published run that is made smaller, and what can no longer be done with it.

A level names the arrays that stay of each stage; all others go. Ledgers stay, with all figures. Levels are told apart
by who reads: `results` has what readers do (`pipeline.results.run`), refits and inversions too; `extendable` has what
places new rows besides, and makes a portable model of the run.
"""

from pipeline.errors import InvalidInputError
from pipeline.stages.publish import COORDINATES
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.store.freed import EXTENDABLE, LEVELS, RESULTS, array_names, read_freed, whole_name
from pipeline.types import Json

# By stage; None stands for all arrays, and of stages that are not named none stay.
Kept = dict[str, tuple[str, ...] | None]
OF_EVERY_ROW = ("ids", "moments", "ranges", "usable")
READ: Kept = {
    "validate": OF_EVERY_ROW,
    "landmarks": ("rows",),
    "embed": COORDINATES,
    **dict.fromkeys(("model", "register", "calibrate", "publish")),
}
EXTENDED: Kept = {
    **READ,
    "validate": (*OF_EVERY_ROW, "place_of"),
    "graph": ("rows", "node_of", "first", "offsets", "targets", "weights", "components"),
    "subset": ("between", "subset"),
    "rows": ("rows", "landmarks_own"),
    **dict.fromkeys(("axes", "cells", "order", "components", "reach", "landmarks")),
}
KEPT = {EXTENDABLE: EXTENDED, RESULTS: READ}
# Commands that need what a level does not keep.
STOPPED: dict[str, tuple[str, ...]] = {EXTENDABLE: (), RESULTS: ("extend", "export --model")}


def check_level(level: str) -> None:
    if level not in LEVELS:
        raise InvalidInputError(f"retain={level!r} is not known; use {' or '.join(LEVELS)}.")


def freeable(store: Backend, level: str) -> dict[str, list[str]]:
    """The names of the arrays that a level does not keep and that are still there, by paths of published stages."""
    found = {}
    for path in run.published_paths(store):
        kept = KEPT[level].get(path.partition("/")[0], ())
        if kept is not None:
            found[path] = sorted({whole_name(name) for name in array_names(store, path)}.difference(kept))
    return {path: names for path, names in found.items() if names}


def freeable_bytes(store: Backend, level: str) -> int:
    """What a level would free."""
    return sum(
        store.size(f"{path}/{name}")
        for path, names in freeable(store, level).items()
        for name in array_names(store, path)
        if whole_name(name) in names
    )


def require_extendable(store: Backend, manifest: Json) -> None:
    """Refuse a run that lacks what new rows are placed by."""
    freed = read_freed(store)
    entries = [freed[path] for path in run.paths_of(manifest) if path in freed]
    levels = [entry["retain"] for entry in entries if entry["retain"] == RESULTS or entry["reopened"]]
    if levels:
        raise InvalidInputError(
            f"{store} does not have all that new rows are placed by: some was freed by `trigpoint gc --retain "
            f"{max(levels, key=LEVELS.index)}`. Run the same fit again, to its end, which computes what is missing."
        )
