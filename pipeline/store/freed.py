"""Arrays of published results that were freed, to make a run smaller: `freed.json` has their names, by stages' paths.

It is written before anything is deleted, so that nothing that is gone is taken for damage. A stage that is computed
again is *reopened*: its partitions' entries go and are made anew, one by one, while the object that declares the stage
complete stays, for its figures are published. With the last of them the stage leaves the list.
"""

import re
from collections.abc import Mapping, Sequence

from pipeline.store.backend import Backend, Objects
from pipeline.types import Json

FREED = "freed.json"
# How much is kept, from more to less: what new rows need besides the results, or these alone.
EXTENDABLE, RESULTS = "extendable", "results"
LEVELS = (EXTENDABLE, RESULTS)
PART = re.compile(r"-[0-9]{8}$")


def whole_name(name: str) -> str:
    """The array that a partition's share of it belongs to."""
    return PART.sub("", name)


def read_freed(store: Backend) -> dict[str, Json]:
    """By path: what was to be retained, the names of the arrays that were freed, and whether it was reopened."""
    value = Objects(store).declared(FREED)
    return {} if value is None else dict(value["stages"])


def freed_of(store: Backend, path: str) -> Json | None:
    """The same of one stage's results; None if they are whole."""
    return read_freed(store).get(path)


def declare_freed(store: Backend, level: str, arrays: Mapping[str, Sequence[str]]) -> None:
    """Say of stages' results, by path, that these arrays are about to be freed; what was freed before stays so."""
    known = read_freed(store)
    for path, names in arrays.items():
        before = known.get(path, {"retain": level, "arrays": []})
        least = max(level, before["retain"], key=LEVELS.index)
        known[path] = {"retain": least, "arrays": sorted({*before["arrays"], *names}), "reopened": False}
    Objects(store).declare({FREED: {"stages": known}})


def delete_freed(store: Backend) -> int:
    """Delete what is declared to be freed, but for what is being computed again; how many bytes that was."""
    paths = [
        f"{path}/{name}"
        for path, entry in read_freed(store).items()
        for name in array_names(store, path)
        if not entry["reopened"] and whole_name(name) in entry["arrays"]
    ]
    n_bytes = sum(map(store.size, paths))
    for path in paths:
        Objects(store).delete_below(path)
    return n_bytes


def array_names(store: Backend, path: str) -> list[str]:
    """The names of all arrays of a stage's results, and of partitions' shares."""
    return [name for name in Objects(store).names(path) if name not in ("ledger", "zarr.json")]


def declare_reopened(store: Backend, path: str) -> None:
    """Say that a stage's results are being computed again; nothing of them may be vouched for by then."""
    known = read_freed(store)
    Objects(store).declare({FREED: {"stages": {**known, path: {**known[path], "reopened": True}}}})


def declare_whole(store: Backend, path: str) -> None:
    """Say of a stage's results that they are complete again, or gone altogether."""
    known = read_freed(store)
    if known.pop(path, None) is None:
        return
    if known:
        Objects(store).declare({FREED: {"stages": known}})
    else:
        Objects(store).delete(FREED)
