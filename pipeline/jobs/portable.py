"""A portable model: what extending needs of a run, over a stated number of anchors, in a folder of its own.

It has the layout of a run, so extending works on it as on the run itself, which may then be gone. The manifest is
written last: before that there is no model to read. It states the size of the model and its accuracy. Where rows are
compared with the landmarks directly, those are all that a model needs.
"""

from dataclasses import dataclass
from typing import ClassVar, Unpack

from pipeline.errors import InvalidInputError
from pipeline.jobs.extend import published_space
from pipeline.jobs.job import Done, Job, Runner, Way, opened_run, require_apart
from pipeline.stages.graph.anchors import (
    AnchorCells,
    AnchorComponents,
    AnchorGraph,
    AnchorLandmarks,
    AnchorOrder,
    AnchorProbes,
    AnchorReach,
    AnchorRows,
    Anchors,
    Copied,
)
from pipeline.stages.graph.judge import Accuracy, AnchorCalibrate
from pipeline.stages.space import MODEL_ARRAYS, GraphSpace, Space, exportable_space
from pipeline.stages.stage import Outcome, Stage, Watch
from pipeline.store import run
from pipeline.store.backend import Backend, canonical, digest_of
from pipeline.types import Json

DEFAULT_ANCHORS = 20_000
ANCHORS_PER_NEIGHBOR = 10
# Rows that must be left to judge a model by, unless all are anchors.
LEAST_LEFT = 500
# Up to this many anchors new points are searched in all cells: that costs little, and no neighbor is missed.
MOST_SEARCHED = 50_000
# Every stage that a model may have, in order.
STAGES = (
    *("anchors", "validate", "axes", "cells", "order", "neighbors", "reach", "rows", "landmarks"),
    *("graph", "components"),
    *("subset", "model", "register", "calibrate", "accuracy"),
)
# Stages whose results place new rows, where these are compared with the landmarks directly.
COPIED = ("validate", "axes", "landmarks", "subset", "rows", "model", "register", "calibrate")
# Stages that are in the model of a run along a graph as they are in the run, with their arrays.
ANCHORED = {
    "validate": ("moments", "ranges"),
    "axes": ("axes",),
    "model": MODEL_ARRAYS,
    "register": ("turn", "shift"),
}
# Arrays that are only about the fitted rows.
LEFT_OUT = {"rows": ("between",)}


@dataclass(frozen=True)
class ExportJob(Job):
    """A model to make of a published run, into the folder `output`; `landmarks` are those of a run along a graph."""

    space: Space
    anchors: int | None
    landmarks: Outcome | None = None
    kind: ClassVar[str] = run.MODEL

    @property
    def settings(self) -> Json:
        """The settings of the run, but for how it was cut."""
        return {name: value for name, value in self.space.settings.items() if name != "partition_mib"}

    def identity(self, **more: object) -> str:
        """What names the results of the run, however it was cut into partitions."""
        content = self.space.stages["validate"].figures["content"]
        return digest_of(canonical({"content": content, "settings": self.settings, **more}))

    def stages(self, done: Runner) -> None:
        if isinstance(self.space, GraphSpace) and self.landmarks is not None:
            _anchored(self, self.space, self.landmarks, self.anchors or 0, done)
        else:
            _copied(self, done)

    def manifest(self, outcomes: dict[str, Outcome]) -> Json:
        """What a model says of itself beside this: its anchors or landmarks, its bytes, its accuracy."""
        n_bytes = sum(outcome.ledger.store.size(outcome.ledger.path) for outcome in outcomes.values())
        stated: Json = {"n_landmarks": outcomes["landmarks"].figures["n_landmarks"], "bytes": n_bytes, "exact": True}
        if "accuracy" in outcomes:
            n_anchors, accuracy = outcomes["order"].figures["n_nodes"], outcomes["accuracy"].figures
            stated = {"n_anchors": n_anchors, "bytes": n_bytes, "accuracy": accuracy}
        return {"settings": self.settings, "source": self.space.source, "arrays": [], "portable": stated}

    def tidy(self, store: Backend) -> None:
        """The stated size is that of the folder: what an earlier export left goes."""
        for path in run.superseded(store, STAGES):
            run.remove(store, path)


def export_model(
    store: str, model: str, anchors: int | None = None, watch: Watch | None = None, **way: Unpack[Way]
) -> Done:
    """Write a model of the run in `store` into the folder `model`; `anchors` is how many of its points it keeps."""
    return prepare_export(store, model, anchors).run(watch, **way)


def prepare_export(url: str, model: str, anchors: int | None = None) -> ExportJob:
    """Open and check the published run in a folder."""
    store, manifest = opened_run(url, run.FIT)
    space, landmarks = published_space(store, manifest), None
    if isinstance(space, GraphSpace):
        space = exportable_space(store, manifest)
        if not space.answers.is_classical:
            raise InvalidInputError(
                f"store={url!r} places points by another extension; models are of projections only."
            )
        ledger = run.published_ledger(store, manifest, "landmarks")
        landmarks = Outcome(ledger, ledger.finished() or {}, 0)
        anchors = checked_anchors(space, anchors)
    elif anchors is not None:
        raise InvalidInputError(
            f"anchors={anchors} means nothing here: method={space.settings['method']!r} places rows by the landmarks "
            "alone, which the model keeps; leave it out."
        )
    require_apart("model", model, url)
    return ExportJob(model, space, anchors, landmarks)


def _copied(job: ExportJob, done: Runner) -> None:
    """The stages that place new rows, as they are in the run."""
    stages = job.space.stages
    function = {"function": stages["rows"].figures.get("source")} if "rows" in stages else {}
    identity = job.identity(**function)
    for name in COPIED:
        if name in stages:
            arrays = tuple(array for array in stages[name].ledger.vouched() if array not in LEFT_OUT.get(name, ()))
            done(Copied(name, stages[name], arrays, identity))


def checked_anchors(space: GraphSpace, anchors: int | None) -> int:
    """How many anchors, if so many can be had and still be judged."""
    n_nodes, k = space.n_nodes, space.n_neighbors
    m = space.model.n_landmarks
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


def _anchored(job: ExportJob, space: GraphSpace, run_landmarks: Outcome, n_anchors: int, ran: Runner) -> None:
    """The run thinned out to its anchors, every stage after the other."""
    outcomes: dict[str, Outcome] = {}

    def done(stage: Stage) -> Outcome:
        outcomes[stage.name] = ran(stage)
        return outcomes[stage.name]

    kept = {
        name: tuple(array for array in arrays if array in space.stages[name].ledger.vouched())
        for name, arrays in ANCHORED.items()
        if name in space.stages
    }
    digests = {
        name: [digest_of(space.stages[name].ledger.read(array).read().tobytes()) for array in kept[name]]
        for name in ("model", "register")
        if name in kept
    }
    identity = job.identity(**digests)
    anchors = done(Anchors(space, run_landmarks, n_anchors, identity))
    for name, arrays in kept.items():
        done(Copied(name, space.stages[name], arrays, identity))
    cells = done(AnchorCells(space, anchors))
    ordered = done(AnchorOrder(space, anchors, cells))
    recall = 1.0 if n_anchors <= MOST_SEARCHED else float(space.settings["recall"])
    probes = done(AnchorProbes(cells, ordered, space.n_neighbors, int(space.settings["seed"]), recall))
    if space.reach is not None:
        done(AnchorReach(space, cells, ordered, probes))
    rows = done(AnchorRows(space, ordered))
    landmarks = done(AnchorLandmarks(run_landmarks, ordered))
    graph = done(AnchorGraph(space, cells, ordered, probes, landmarks, rows))
    done(AnchorComponents(space, graph))
    model_space = GraphSpace(dict(outcomes), job.settings, space.source)
    done(AnchorCalibrate(space, model_space, anchors))
    done(Accuracy(space, model_space, anchors))
