"""The space of a run that was measured along a graph: what searching for neighbors and paths needs besides."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.mds import LandmarkModel
from pipeline.stages.graph.rows import kept_nodes
from pipeline.stages.landmarks import load_model
from pipeline.stages.preprocess import point_dtype
from pipeline.stages.space import Space, published_stages
from pipeline.store.backend import Backend
from pipeline.types import AnyArray, BoolArray, IntArray, Json

NEEDED = ("validate", "cells", "order", "neighbors", "graph", "components", "rows", "model", "calibrate")
OPTIONAL = ("axes", "register")
# Stages that runs by a radius and runs on a precomputed graph do without: the graph itself has what these have.
NOT_NEEDED = {"radius": ("neighbors",), "graph": ("cells", "order", "neighbors")}


@dataclass(frozen=True)
class GraphSpace(Space):
    """A fitted run with its neighbor graph."""

    @property
    def n_neighbors(self) -> int:
        """How many neighbors a point has: n_neighbors, or the mean where lists are ragged."""
        figures = self.stages["graph"].figures
        mean = figures.get("mean_neighbors")
        return int(self.settings["n_neighbors"]) if mean is None else math.ceil(mean)

    @property
    def n_probes(self) -> int:
        """How many cells a point probes for its nearest neighbors."""
        return int(self.stages.get("neighbors", self.stages["graph"]).figures["n_probes"])

    @property
    def radius(self) -> float | None:
        """Within which points are joined, in the run's units; None where each has n_neighbors."""
        return self.stages["graph"].figures.get("radius")

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
        return bool(self.stages["order"].figures.get("thinned", False))

    @property
    def point_dtype(self) -> np.dtype[Any]:
        return point_dtype(np.dtype(self.stages["validate"].figures["dtype"]))

    @cached_property
    def model(self) -> LandmarkModel:
        """The classical model; an error where the run has another."""
        return load_model(self.stages["model"].ledger)

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


def graph_space(store: Backend, manifest: Json) -> GraphSpace:
    """The space of a published run, whatever its graph came from."""
    left_out = NOT_NEEDED.get(graph_kind(manifest["settings"]) or "", ())
    needed = [name for name in NEEDED if name not in left_out]
    return GraphSpace(published_stages(store, manifest, needed, OPTIONAL), manifest["settings"], manifest["source"])


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
