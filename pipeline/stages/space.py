"""A fitted run as new points see it: what extending needs of its stages, small enough to be sent to workers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError, StoreError
from pipeline.numerics.extension.placement import Answers, answers_of
from pipeline.numerics.mds import LandmarkModel
from pipeline.stages.embed import NEAREST
from pipeline.stages.graph.connected import kept_nodes
from pipeline.stages.model import load_any_model, load_model
from pipeline.stages.preprocess import point_dtype
from pipeline.stages.stage import Outcome
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

NEEDED = ("validate", "cells", "order", "neighbors", "graph", "components", "rows", "model", "calibrate")
OPTIONAL = ("axes", "register")
# What runs by a radius and runs on a graph of the user's do without: there the graph itself has what these have.
NOT_NEEDED = {"radius": ("neighbors",), "graph": ("cells", "order", "neighbors")}


@dataclass(frozen=True)
class FittedSpace:
    """The stages of a published run by name, and what it was told."""

    stages: dict[str, Outcome]
    settings: Json
    source: Json

    @property
    def identity(self) -> list[str]:
        """What names the space: results of extending to it depend on nothing else of the run."""
        return [f"{name}/{stage.ledger.digest}" for name, stage in sorted(self.stages.items())]

    @property
    def n_neighbors(self) -> int:
        """How many neighbors a point has: each of them, or where they have any number, in the mean."""
        figures = self.stages["graph"].figures
        mean = figures.get("mean_neighbors")
        return int(self.settings["n_neighbors"]) if mean is None else math.ceil(mean)

    @property
    def n_probes(self) -> int:
        """How many cells a point probes for its nearest neighbors."""
        return int(self.stages.get("neighbors", self.stages["graph"]).figures["n_probes"])

    @property
    def radius(self) -> float | None:
        """Within which points are joined, in the run's units; None where each has as many neighbors."""
        return self.stages["graph"].figures.get("radius")

    @property
    def is_given(self) -> bool:
        """Whether it is a graph of the user's, whose nodes are no points."""
        return "order" not in self.stages

    @property
    def n_nodes(self) -> int:
        return int(self.stages.get("order", self.stages["graph"]).figures["n_nodes"])

    @property
    def thinned(self) -> bool:
        """Whether its nodes are only some of those that were fitted, as in a model exported from a run."""
        return bool(self.stages["order"].figures.get("thinned", False))

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
        """Of a point's length in restricted reconstruction."""
        return float(self.stages["calibrate"].figures["weight"])

    @property
    def point_dtype(self) -> np.dtype[Any]:
        return point_dtype(np.dtype(self.stages["validate"].figures["dtype"]))

    @cached_property
    def model(self) -> LandmarkModel:
        """The classical model; an error where the run has another."""
        return load_model(self.stages["model"].ledger)

    @cached_property
    def answers(self) -> Answers:
        """The model, of whatever kind, to be asked about points."""
        return answers_of(load_any_model(self.stages["model"].ledger), self.weight)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the trust columns."""
        return (*self.answers.columns, NEAREST)

    @cached_property
    def kept(self) -> BoolArray | None:
        """Which nodes are embedded; None if all are."""
        if self.stages["components"].figures["n_kept"] == self.n_nodes:
            return None
        return kept_nodes(self.stages["graph"], self.stages["components"])

    @cached_property
    def calibration(self) -> dict[str, FloatArray]:
        """The trust columns of rows like the training rows, each rising."""
        return {name: self.stages["calibrate"].ledger.read(name).read() for name in self.columns}

    def component_of(self, nodes: AnyArray) -> IntArray:
        """The component of the neighbor graph that each of some nodes is in."""
        if self.stages["components"].figures["n_components"] == 1:
            return np.zeros(len(nodes), dtype=np.int64)
        return np.asarray(self.stages["graph"].ledger.read("components").read()[nodes])

    def in_users_frame(self, coordinates: FloatArray) -> FloatArray:
        """Answers (p, a d) in the user's units, turned to agree with the version before if the run was fitted again."""
        scaled = np.ldexp(coordinates, self.exponent)
        return registered(self.stages["register"].ledger, scaled) if "register" in self.stages else scaled


def registered(registration: StageLedger, coordinates: FloatArray) -> FloatArray:
    """Answers (p, a d), d columns each, turned and moved as a registration says, row by row in a fixed order."""
    turn, shift = (registration.read(name).read() for name in ("turn", "shift"))
    answers = np.split(coordinates, coordinates.shape[1] // len(shift), axis=1)
    return np.hstack([_moved(answer, turn, shift) for answer in answers])


def _moved(coordinates: FloatArray, turn: FloatArray, shift: FloatArray) -> FloatArray:
    moved = np.repeat(shift[None], len(coordinates), axis=0)
    for column, along in zip(coordinates.T, turn, strict=True):
        moved += column[:, None] * along
    return moved


def fitted_space(store: Backend, manifest: Json) -> FittedSpace:
    """The space of a published run in which every point has as many neighbors, or of a model of one."""
    if graph_kind(manifest["settings"]) is not None:
        raise InvalidInputError(
            f"{store} was fitted by a radius or on a graph; models to take along are made of runs with n_neighbors "
            "only: extend the run itself."
        )
    return any_fitted_space(store, manifest)


def any_fitted_space(store: Backend, manifest: Json) -> FittedSpace:
    """The space of a published run, whatever its graph came from."""
    left_out = NOT_NEEDED.get(graph_kind(manifest["settings"]) or "", ())
    needed = [name for name in NEEDED if name not in left_out]
    return FittedSpace(published_stages(store, manifest, needed, OPTIONAL), manifest["settings"], manifest["source"])


def graph_kind(settings: Json) -> str | None:
    """`graph` if a run was fitted on one of the user's, `radius` if points within one were joined."""
    if settings.get("input") == "graph":
        return "graph"
    return "radius" if settings.get("radius") is not None else None


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
    return stages
