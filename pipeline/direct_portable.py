"""A portable model of a run that was measured straight from its landmarks: those are all that it needs."""

from collections.abc import Callable

from pipeline.errors import InvalidInputError
from pipeline.stages.anchors import Copied
from pipeline.stages.direct.space import DirectSpace
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.objects import canonical, digest_of
from pipeline.types import Json

Runner = Callable[[Stage], Outcome]
# Whose results place new rows.
COPIED = ("validate", "axes", "landmarks", "subset", "rows", "model", "register", "calibrate")
# Arrays that only say something of the fitted rows.
LEFT_OUT = {"rows": ("between",)}


def copied_stages(space: DirectSpace, anchors: int | None, settings: Json, run_one: Runner) -> dict[str, Outcome]:
    """The stages that place new rows, as they are in the run."""
    if anchors is not None:
        raise InvalidInputError(
            f"anchors={anchors} means nothing here: method={space.settings['method']!r} places rows by the landmarks "
            "alone, which the model keeps; leave it out."
        )
    found = {"content": space.stages["validate"].figures["content"], "settings": settings}
    if "rows" in space.stages:
        found["function"] = space.stages["rows"].figures.get("source")
    identity = digest_of(canonical(found))
    return {name: run_one(_copy(space, name, identity)) for name in COPIED if name in space.stages}


def _copy(space: DirectSpace, name: str, identity: str) -> Copied:
    original = space.stages[name]
    arrays = tuple(array for array in original.ledger.vouched() if array not in LEFT_OUT.get(name, ()))
    return Copied(name, original, arrays, identity, ("rows_each",))


def stated_of(outcomes: dict[str, Outcome], n_bytes: int) -> Json:
    """What such a model says of itself."""
    return {"n_landmarks": outcomes["landmarks"].figures["n_landmarks"], "bytes": n_bytes, "exact": True}
