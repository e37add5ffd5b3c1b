"""What a model says of rows like those of its run, and how well: rows that are not its anchors, taken as new.

Some calibrate the trust columns, as in the run. Others check the coordinates: where the model places them against where
the run has them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.numerics.mds import project_moments
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.numerics.neighbors.radius import RadiusLists, without_last
from pipeline.stages.embed import moments_of
from pipeline.stages.evaluate import calibrated
from pipeline.stages.graph.anchors import run_nodes
from pipeline.stages.graph.rows import row_batches
from pipeline.stages.graph.search import joined_embedded
from pipeline.stages.providers.geodesic import ways_to_landmarks
from pipeline.stages.space import GraphSpace
from pipeline.stages.stage import Outcome, Result, SingleStage
from pipeline.types import AnyArray, FloatArray, IntArray, Json


class Joined(NamedTuple):
    """Of nodes of a run (p,), those that a model takes for embedded, and their edges to anchors."""

    nodes: IntArray
    lists: RadiusLists


@dataclass(frozen=True)
class Judged(SingleStage):
    """What rows of the run that are not anchors tell of the model."""

    space: GraphSpace
    model_space: GraphSpace
    anchors: Outcome

    def inputs(self) -> list[str]:
        return [self.anchors.ledger.digest, *self.model_space.identity]

    def lengths(self, lists: RadiusLists) -> Iterator[AnyArray]:
        """Distances (p, b) to one batch of landmarks after the other that rows with these edges have as new points of
        the model."""
        return ways_to_landmarks(self.model_space, lists)


@dataclass(frozen=True)
class AnchorCalibrate(Judged):
    """The trust columns that rows of the run have as new rows of the model, each rising.

    Where every node is an anchor there are none, and the model is as the run: what the run knows of itself holds.
    """

    name = "calibrate"

    def settings(self) -> Json:
        return {"weight": self.space.weight, "exponent": self.space.exponent}

    def result(self) -> Result:
        nodes, names = self.anchors.ledger.read("calibrating").read(), self.space.answers.trust_names
        if not len(nodes):
            return self.space.stages["calibrate"].figures, {name: self.space.calibration[name] for name in names}
        lists = as_new(self.space, self.model_space, nodes).lists
        columns = self._columns(lists)
        figures, arrays = calibrated(names, columns, columns, self._columns(without_last(lists)))
        return {**figures, **self.settings()}, arrays

    def _columns(self, lists: RadiusLists) -> FloatArray:
        answers, exponent = self.space.answers, self.space.exponent
        sums = answers.begin(len(lists.sizes))
        for lengths in self.lengths(lists):
            sums.add(lengths)
        return answers.all_trust_in_units(sums.answer(), lists.distances[lists.offsets[:-1]], exponent)


@dataclass(frozen=True)
class Accuracy(Judged):
    """How far from where the run has them the model places rows, in units of the embedding's spread (the root mean
    square distance from its center): root mean square, and what 99% do not exceed."""

    name = "accuracy"

    def result(self) -> Result:
        nodes = self.anchors.ledger.read("checking").read()
        if not len(nodes):
            return {"n_checked": 0, "rms": 0.0, "q99": 0.0}, {}
        joined, model = as_new(self.space, self.model_space, nodes), self.space.model
        placed = project_moments(model, moments_of(model, len(joined.nodes), self.lengths(joined.lists)))
        batches = (batch.take(joined.nodes) for batch in row_batches(self.space.stages["rows"]))
        known = project_moments(model, moments_of(model, len(joined.nodes), batches))
        spread = np.sqrt(np.sum((known - known.mean(axis=0)) ** 2, axis=1).mean())
        errors = np.sqrt(np.sum((placed - known) ** 2, axis=1)) / spread
        rms, far = float(np.sqrt((errors**2).mean())), float(np.quantile(errors, 0.99))
        return {"n_checked": len(errors), "rms": rms, "q99": far}, {}


def as_new(space: GraphSpace, model_space: GraphSpace, nodes: IntArray) -> Joined:
    """Nodes of a run, rising, taken as new rows by a model of it; those left out that it takes for not embedded."""
    points, _ = run_nodes(space).nodes(nodes)
    centers = model_space.stages["cells"].ledger.read("centers").read()
    cells = NeighborSearch(centers).query(points, 1)[1][:, 0]
    order = np.argsort(cells, kind="stable")
    lists, component = joined_embedded(model_space, points[order], cells[order])
    kept = component < 1 if model_space.kept is not None else np.ones(len(nodes), dtype=np.bool_)
    places = np.argsort(order)
    places = places[kept[places]]
    return Joined(nodes[order[places]], lists.of(places))
