"""A portable model: what extending needs of a run, over a stated number of anchors, in a folder of its own.

It has the layout of a run, so extending works on it as on the run itself, which may then be gone. The manifest is
written last: before that there is no model to read. It states the size of the model and its accuracy.

A portable model of a run that was measured straight from its landmarks: those are all that it needs.
"""

from dataclasses import dataclass

from pipeline.errors import InvalidInputError
from pipeline.jobs.direct_extend import direct_space, is_direct
from pipeline.jobs.fit import Runner, publish, require_apart, run_stages
from pipeline.stages import model as model_stage
from pipeline.stages.direct.space import DirectSpace
from pipeline.stages.graph.anchors import (
    AnchorCells,
    AnchorComponents,
    AnchorGraph,
    AnchorLandmarks,
    AnchorOrder,
    AnchorProbes,
    AnchorRows,
    Anchors,
    Copied,
)
from pipeline.stages.graph.judge import Accuracy, AnchorCalibrate
from pipeline.stages.space import FittedSpace, fitted_space
from pipeline.stages.stage import Outcome, Stage, Watch
from pipeline.store import lease, run
from pipeline.store.backend import Backend
from pipeline.store.objects import canonical, digest_of
from pipeline.types import Json

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


DEFAULT_ANCHORS = 20_000
ANCHORS_PER_NEIGHBOR = 10
# Rows that must be left to judge a model by, unless all are anchors.
LEAST_LEFT = 500
# Up to so many anchors new points are searched in all cells: that costs little, and no neighbor is missed.
MOST_SEARCHED = 50_000
# Every stage that a model may have, in order.
STAGES = (
    *("anchors", "validate", "axes", "cells", "order", "neighbors", "rows", "landmarks", "graph", "components"),
    *("subset", "model", "register", "calibrate", "accuracy"),
)


@dataclass(frozen=True)
class Exported:
    """A model that was written: the outcomes of its stages by name, and what its manifest says of it."""

    outcomes: dict[str, Outcome]
    stated: Json

    @property
    def n_computed(self) -> int:
        """Partitions that this call had to compute."""
        return sum(outcome.n_computed for outcome in self.outcomes.values())


@dataclass(frozen=True)
class FittedRun:
    """A run to make a model of: its space, and where its landmarks are."""

    space: FittedSpace
    landmarks: Outcome

    @property
    def identity(self) -> str:
        """What names the run's results, however it was cut into partitions."""
        found = {"content": self.space.stages["validate"].figures["content"], "settings": self.settings}
        for name, arrays in (("model", model_stage.ARRAYS), ("register", ("turn", "shift"))):
            if name in self.space.stages:
                ledger = self.space.stages[name].ledger
                found[name] = [digest_of(ledger.read(array).read().tobytes()) for array in arrays]
        return digest_of(canonical(found))

    @property
    def settings(self) -> Json:
        """What the run was told, but for how it was to be cut."""
        return {name: value for name, value in self.space.settings.items() if name != "partition_mib"}


def export_model(
    store: str, model: str, anchors: int | None = None, watch: Watch | None = None, take_over: bool = False
) -> Exported:
    """Write a model of the run in `store` into the folder `model`; `anchors` is how many of its points it keeps."""
    fitted = opened_run(store)
    n_anchors = checked_anchors(fitted, anchors) if isinstance(fitted, FittedRun) else anchors
    require_apart("model", model, store)
    target = run.create_run(model, run.MODEL)

    def stages(run_one: Runner) -> dict[str, Outcome]:
        if isinstance(fitted, FittedRun):
            return chain(fitted, n_anchors or 0, run_one)
        return copied_stages(fitted.space, n_anchors, fitted.settings, run_one)

    with lease.acquire(target, take_over) as held:
        outcomes = run_stages(target, held, stages, watch)
        stated = _stated(target, outcomes)
        manifest = {"settings": fitted.settings, "source": fitted.space.source, "arrays": [], "portable": stated}
        publish(held, manifest, outcomes)
        # The size that is stated is that of the folder: what an earlier export left goes.
        for path in run.superseded(target, STAGES):
            run.remove(target, path)
    return Exported(outcomes, stated)


@dataclass(frozen=True)
class DirectRun:
    """A run to make a model of that was measured straight from its landmarks."""

    space: DirectSpace

    @property
    def settings(self) -> Json:
        """What the run was told, but for how it was to be cut."""
        return {name: value for name, value in self.space.settings.items() if name != "partition_mib"}


def opened_run(url: str) -> FittedRun | DirectRun:
    """The published run in a folder."""
    store = run.open_store(url)
    if run.kind_of(store) != run.FIT:
        raise InvalidInputError(f"store={url!r} holds {run.KINDS[run.kind_of(store)]}; name the run itself.")
    manifest = run.published_manifest(store)
    if is_direct(manifest):
        return DirectRun(direct_space(store, manifest))
    space = fitted_space(store, manifest)
    if not space.answers.is_classical:
        raise InvalidInputError(f"store={url!r} places points by another extension; models are of projections only.")
    ledger = run.published_ledger(store, manifest, "landmarks")
    return FittedRun(space, Outcome(ledger, ledger.finished() or {}, 0))


def checked_anchors(fitted: FittedRun, anchors: int | None) -> int:
    """How many anchors, if so many can be had and still be judged."""
    n_nodes, k = fitted.space.n_nodes, fitted.space.n_neighbors
    m = fitted.space.model.n_landmarks
    least, most = min(n_nodes, max(m, ANCHORS_PER_NEIGHBOR * k)), n_nodes - LEAST_LEFT
    if anchors is None:
        wanted = max(DEFAULT_ANCHORS, least)
        return wanted if wanted <= most else n_nodes
    if anchors == n_nodes or least <= anchors <= most:
        return anchors
    between = f"from {least} to {most}, or all {n_nodes}" if least <= most else f"{n_nodes}, which is all"
    raise InvalidInputError(
        f"anchors={anchors} is out of range; use {between} (the run has {n_nodes} distinct points and {m} landmarks, "
        f"which are all kept; at least {ANCHORS_PER_NEIGHBOR} x n_neighbors = {ANCHORS_PER_NEIGHBOR * k} are needed, "
        f"and {LEAST_LEFT} points must be left to judge the model by, unless all are kept)."
    )


def chain(fitted: FittedRun, n_anchors: int, run_one: Runner) -> dict[str, Outcome]:
    """Every stage of a model after the other; the outcomes by the stages' names."""
    outcomes: dict[str, Outcome] = {}

    def done(stage: Stage) -> Outcome:
        outcomes[stage.name] = run_one(stage)
        return outcomes[stage.name]

    space, identity = fitted.space, fitted.identity
    anchors = done(Anchors(space, fitted.landmarks, n_anchors, identity))
    for copied in _copies(space, identity):
        done(copied)
    cells = done(AnchorCells(space, anchors))
    ordered = done(AnchorOrder(space, anchors, cells))
    recall = 1.0 if n_anchors <= MOST_SEARCHED else float(space.settings["recall"])
    probes = done(AnchorProbes(cells, ordered, space.n_neighbors, int(space.settings["seed"]), recall))
    rows = done(AnchorRows(space, ordered))
    landmarks = done(AnchorLandmarks(fitted.landmarks, ordered))
    graph = done(AnchorGraph(space, cells, ordered, probes, landmarks, rows))
    done(AnchorComponents(space, graph))
    model_space = FittedSpace(dict(outcomes), fitted.settings, space.source)
    done(AnchorCalibrate(space, model_space, anchors))
    done(Accuracy(space, model_space, anchors))
    return outcomes


def _copies(space: FittedSpace, identity: str) -> list[Copied]:
    """Stages that are in the model as they are in the run."""
    arrays = {"validate": ("moments", "ranges"), "axes": ("axes",), "model": model_stage.ARRAYS}
    arrays["register"] = ("turn", "shift")
    return [
        Copied(name, space.stages[name], names, identity, ("rows_each",))
        for name, names in arrays.items()
        if name in space.stages
    ]


def _stated(store: Backend, outcomes: dict[str, Outcome]) -> Json:
    """What a model says of itself: its anchors, its bytes, its accuracy."""
    n_bytes = sum(store.size(outcome.ledger.path) for outcome in outcomes.values())
    if "accuracy" not in outcomes:
        return stated_of(outcomes, n_bytes)
    accuracy = outcomes["accuracy"].figures
    return {"n_anchors": outcomes["order"].figures["n_nodes"], "bytes": n_bytes, "accuracy": accuracy}
