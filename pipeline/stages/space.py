"""A fitted run as new points see it: its model, and what else extending needs of its stages, to be sent to workers.

A model is a few megabytes of arrays and figures; nothing is pickled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np

from pipeline.errors import InvalidInputError, StoreError
from pipeline.methods import fewer_neighbors
from pipeline.numerics.extension.placement import Answers, answers_of
from pipeline.numerics.extension.spread import SPREAD
from pipeline.numerics.mds import LandmarkModel, Model
from pipeline.numerics.models.catalog import model_class
from pipeline.numerics.neighbors.radius import RadiusLists
from pipeline.numerics.statistics import ranks_of
from pipeline.plugins import LOADED, TrustColumn
from pipeline.stages.graph.graph import kept_nodes
from pipeline.stages.stage import Outcome
from pipeline.stages.validate import point_dtype
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Of a classical model; the last only where landmarks have weights.
MODEL_ARRAYS = ("coordinates", "eigenvalues", "row_means", "spectrum", "weights")
# The figure that says of what kind a model is.
MODEL = "model"
# Methods that earlier states of this version embedded or placed points by in another way.
METHOD_REVISIONS = {"laplacian": 2, "kernel-isomap": 2, "nonmetric-mds": 2}
# Of these, those whose earlier models place new points as they placed the fitted ones.
STILL_EXTENDED = ("nonmetric-mds",)
# Centers of clusters, beside a spectral model.
CENTERS = "centers"
# The stages of a space, and those that some have: where rows are compared with landmarks directly, and along a graph.
DIRECT = ("validate", "landmarks", "model", "calibrate"), ("axes", "subset", "rows", "register")
ALONG_A_GRAPH = (
    ("validate", "cells", "order", "neighbors", "graph", "components", "rows", "model", "calibrate"),
    ("axes", "register", "reach"),
)
# Stages that runs by a radius and runs on a precomputed graph do without: the graph itself has what these have.
NOT_NEEDED = {"radius": ("neighbors",), "graph": ("cells", "order", "neighbors")}


def described_model(model: Model) -> tuple[Json, dict[str, AnyArray]]:
    """The numbers and words of a model, and its arrays."""
    values = {field.name: getattr(model, field.name) for field in fields(model)}  # type: ignore[arg-type]  # a dataclass
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    # A classical model without weights is described as it was before there were any.
    unsaid = ("weights",) if isinstance(model, LandmarkModel) else ()
    words = {name: value for name, value in values.items() if name not in arrays and name not in unsaid}
    described = {MODEL: type(model).__name__, "n_landmarks": len(model.coordinates), **words}
    return {**described, **spectrum_figures(model)}, arrays


def method_revision(method: str) -> Json:
    """What the settings and figures of a model say of its method, if it placed points in another way before."""
    return {"method_revision": METHOD_REVISIONS[method]} if method in METHOD_REVISIONS else {}


def spectrum_figures(model: Model) -> Json:
    """Of a classical model, how far its dissimilarities are from Euclidean."""
    if not isinstance(model, LandmarkModel):
        return {}
    return {name: getattr(model, name) for name in ("n_positive", "negative_mass", "explained_mass")}


def load_any_model(ledger: StageLedger) -> Model:
    """The model that a finished stage left, of whatever kind."""
    figures, arrays = ledger.finished() or {}, ledger.vouched_for(0)
    kind = model_class(figures.get(MODEL, LandmarkModel.__name__))
    if kind is None:
        raise StoreError(
            f"{ledger.path} holds a model of kind {figures[MODEL]}, which this version does not know; if it is a "
            "plugin's, name the plugin in plugins."
        )
    names = [field.name for field in fields(kind)]
    values = {name: ledger.read(name).read() if name in arrays else figures.get(name) for name in names}
    return cast(Model, kind(**{name: value for name, value in values.items() if value is not None}))


@dataclass(frozen=True)
class Space:
    """The stages of a published run by name, the settings of its fit, and what its data was."""

    stages: dict[str, Outcome]
    settings: Json
    source: Json

    @property
    def identity(self) -> list[str]:
        """What names the space: results of extending to it depend on nothing else of the run."""
        return [f"{name}/{stage.ledger.digest}" for name, stage in sorted(self.stages.items())]

    @property
    def exponent(self) -> int:
        """The power of two that takes lengths to the user's units."""
        return int(self.stages["calibrate"].figures["exponent"])

    @property
    def exponent_of_source(self) -> int:
        """The power of two that the data itself was scaled by."""
        return int(np.frexp(self.stages["validate"].figures["largest"])[1])

    @property
    def weight(self) -> float:
        """The weight of a point's length in restricted reconstruction."""
        return float(self.stages["calibrate"].figures["weight"])

    @cached_property
    def answers(self) -> Answers:
        """The model, ready to place points."""
        spread = SPREAD in self.stages["calibrate"].figures["quantiles"]
        return answers_of(load_any_model(self.stages["model"].ledger), self.weight, spread)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the trust columns, those of plugins last."""
        return (*self.answers.trust_names, *self.extra_columns)

    @property
    def published_columns(self) -> tuple[str, ...]:
        """Names of the trust columns of new rows, and of their ranks."""
        return (*self.columns, *ranks_of(self.columns))

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """Names of the trust columns that plugins added to the fit."""
        known = self.answers.trust_names
        return tuple(name for name in self.stages["calibrate"].figures["quantiles"] if name not in known)

    @cached_property
    def calibration(self) -> dict[str, FloatArray]:
        """The trust columns of rows like the training rows, each in ascending order."""
        return {name: self.stages["calibrate"].ledger.read(name).read() for name in self.columns}

    def in_users_frame(self, coordinates: FloatArray) -> FloatArray:
        """Coordinates (p, a d) in the user's units, aligned with the version before if the run was refitted."""
        figures = self.stages["calibrate"].figures
        scaled = np.ldexp(coordinates, int(figures.get("coordinate_exponent", self.exponent)))
        return registered(self.stages["register"].ledger, scaled) if "register" in self.stages else scaled


@dataclass(frozen=True)
class GraphSpace(Space):
    """A fitted run with its neighbor graph."""

    @property
    def n_neighbors(self) -> int:
        """How many neighbors a point has: n_neighbors, or the mean where lists are ragged."""
        figures = self.stages["graph"].figures
        mean = figures.get("mean_neighbors")
        return fewer_neighbors(int(self.settings["n_neighbors"]), self.n_nodes) if mean is None else math.ceil(mean)

    @property
    def n_probes(self) -> int:
        """How many cells a point probes for its nearest neighbors."""
        return int(self.stages.get("neighbors", self.stages["graph"]).figures["n_probes"])

    @property
    def reach(self) -> Outcome | None:
        """How far new points may be from nodes that take them; None where new points have their own edges only."""
        return self.stages.get("reach")

    def reach_of_new(self, lists: RadiusLists) -> FloatArray:
        """How far another new point may be from each with these edges and be joined to it: as its k-th own neighbor,
        which come first in a list, or the radius."""
        if self.radius is not None:
            return np.full(len(lists.sizes), self.radius)
        return np.asarray(lists.distances[lists.offsets[:-1] + self.n_neighbors - 1])

    @property
    def edges_each(self) -> int:
        """About how many edges a new point has."""
        return self.n_neighbors if self.reach is None else 2 * self.n_neighbors

    @property
    def radius(self) -> float | None:
        """Within which points are joined, in the run's units; None where each has n_neighbors."""
        return self.stages["graph"].figures.get("radius")

    @property
    def metric(self) -> str:
        """What the lengths of edges are measured by."""
        return str(self.settings.get("metric", "euclidean"))

    @property
    def is_precomputed(self) -> bool:
        """Whether the graph is the user's own, whose nodes are no points."""
        return "order" not in self.stages

    @property
    def n_nodes(self) -> int:
        return int(self.stages.get("order", self.stages["graph"]).figures["n_nodes"])

    @property
    def thinned(self) -> bool:
        """Whether its nodes are only some of the fitted ones, as in a model exported from a run."""
        return not self.is_precomputed and bool(self.stages["order"].figures.get("thinned", False))

    @property
    def point_dtype(self) -> np.dtype[Any]:
        return point_dtype(np.dtype(self.stages["validate"].figures["dtype"]))

    @cached_property
    def model(self) -> LandmarkModel:
        """The classical model; an error where the run has another."""
        ledger = self.stages["model"].ledger
        model = load_any_model(ledger)
        if not isinstance(model, LandmarkModel):
            raise StoreError(f"{ledger.path} holds a model of kind {type(model).__name__}, not a classical one.")
        return model

    @cached_property
    def kept(self) -> BoolArray | None:
        """Which nodes are embedded; None if all are."""
        if self.stages["components"].figures["n_kept"] == self.n_nodes:
            return None
        return kept_nodes(self.stages["graph"], self.stages["components"])

    def component_of(self, nodes: AnyArray) -> IntArray:
        """The component of the neighbor graph that each of some nodes is in."""
        if self.stages["components"].figures["n_components"] == 1:
            return np.zeros(len(nodes), dtype=np.int64)
        return np.asarray(self.stages["graph"].ledger.read("components").read()[nodes])


def plugin_column(name: str) -> TrustColumn:
    """A trust column that a plugin added."""
    if name not in LOADED.trust_columns:
        raise InvalidInputError(
            f"trust column {name!r} is not known; name in plugins the module that adds it, as the fit did."
        )
    return LOADED.trust_columns[name]


def registered(registration: StageLedger, coordinates: FloatArray) -> FloatArray:
    """Coordinates (p, a d), d columns each, turned and moved as a registration says, row by row in a fixed order."""
    turn, shift = (registration.read(name).read() for name in ("turn", "shift"))
    answers = np.split(coordinates, coordinates.shape[1] // len(shift), axis=1)
    return np.hstack([_moved(answer, turn, shift) for answer in answers])


def _moved(coordinates: FloatArray, turn: FloatArray, shift: FloatArray) -> FloatArray:
    moved = np.repeat(shift[None], len(coordinates), axis=0)
    for column, along in zip(coordinates.T, turn, strict=True):
        moved += column[:, None] * along
    return moved


def row_space(store: Backend, manifest: Json) -> Space:
    """The space of a published run whose rows were compared with the landmarks directly."""
    return Space(published_stages(store, manifest, *DIRECT), manifest["settings"], manifest["source"])


def published_stages(
    store: Backend, manifest: Json, needed: Sequence[str], optional: Sequence[str]
) -> dict[str, Outcome]:
    """Stages of a published run by name: all that are needed, and those of the optional ones that are there."""
    stages = {}
    for name in (*needed, *optional):
        if name in manifest["stages"]:
            ledger = run.published_ledger(store, manifest, name)
            figures = ledger.finished()
            if figures is None:
                raise StoreError(f"stage {name} of {store} is published but not complete: verify the store.")
            stages[name] = Outcome(ledger, figures, 0)
    absent = [name for name in needed if name not in stages]
    if absent:
        raise StoreError(
            f"{store} was fitted by a version that did not have {', '.join(absent)}; run the fit again, which computes "
            "what is missing."
        )
    if "model" in stages:
        _require_current(store, manifest["settings"].get("method", "isomap"), stages["model"].figures)
    return stages


def _require_current(store: Backend, method: str, figures: Json) -> None:
    """Refuse a model that placed the fitted rows in another way than new ones would be."""
    revision = method_revision(method)
    if method not in STILL_EXTENDED and not revision.items() <= figures.items():
        raise StoreError(
            f"{store} was fitted by a version that placed points in another way with method={method!r}; run the fit "
            "again, which computes the model and what follows, and export a model of it again."
        )


def graph_space(store: Backend, manifest: Json) -> GraphSpace:
    """The space of a published run, whatever its graph came from."""
    left_out = NOT_NEEDED.get(graph_kind(manifest["settings"]) or "", ())
    needed, optional = ALONG_A_GRAPH
    stages = published_stages(store, manifest, [name for name in needed if name not in left_out], optional)
    return GraphSpace(stages, manifest["settings"], manifest["source"])


def exportable_space(store: Backend, manifest: Json) -> GraphSpace:
    """The space of a published run that a portable model can be made of."""
    if graph_kind(manifest["settings"]) is not None:
        raise InvalidInputError(
            f"{store} was fitted by a radius or on a graph; portable models are made of runs with n_neighbors only: "
            "extend the run itself."
        )
    return graph_space(store, manifest)


def graph_kind(settings: Json) -> str | None:
    """`graph` if a run was fitted on a precomputed one, `radius` if points within one were joined."""
    if settings.get("input") == "graph":
        return "graph"
    return "radius" if settings.get("radius") is not None else None
