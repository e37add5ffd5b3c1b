"""Landmarks: chosen among what the provider has to choose from, then embedded on one node.

The model is a few megabytes of arrays and figures; nothing is pickled.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any, cast

import numpy as np

from pipeline.errors import StoreError
from pipeline.numerics.extension.placement import Answers, weighted_answers
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.mds import LandmarkModel
from pipeline.numerics.mds import Model as FittedModel
from pipeline.numerics.models.catalog import Choice, fitted_model, model_class
from pipeline.numerics.models.spectral import cluster_centers
from pipeline.stages.cost import Cost, Shape
from pipeline.stages.graph.ordered import GROUPS_IN_MEMORY
from pipeline.stages.providers.provider import Candidates, Provider
from pipeline.stages.stage import SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, Json


@dataclass(frozen=True)
class Landmarks(SingleStage):
    """Source rows `rows` (m,) of the landmarks, and whatever else the provider keeps of them."""

    candidates: Candidates
    n_landmarks: int
    selection: str
    seed: int
    name = "landmarks"

    @property
    def version(self) -> int:  # type: ignore[override]  # the candidates' own
        return self.candidates.version

    def settings(self) -> Json:
        choice = {"n_landmarks": self.n_landmarks, "selection": self.selection, "seed": self.seed}
        return {**choice, **self.candidates.marks}

    def inputs(self) -> list[str]:
        return self.candidates.identity

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        arrays = self.candidates.chosen(self.n_landmarks, self.selection, self.seed)
        for name, array in arrays.items():
            ledger.write(name, array)
        return {"n_landmarks": len(arrays["rows"]), **self.candidates.figures()}, list(arrays)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m, k = shape.n_rows, shape.n_landmarks, shape.n_neighbors
        point = shape.n_axes * shape.point_itemsize
        if shape.edges_from is None:
            among = 50 * 16 * m * shape.n_axes + 3 * shape.partition_bytes
            seconds = 0.1 + 4e-9 * shape.source + 3e-8 * m * m * max(1, shape.n_axes)
            return Cost(among, seconds, 8 * m * (shape.n_axes + 1))
        if shape.edges_from == "given":
            return Cost(shape.graph + 32 * n, 0.1 + 3e-7 * n * (k + 3))
        among = 32 * n + 2 * shape.landmark_candidates * point + GROUPS_IN_MEMORY * shape.block
        choosing = 4e-9 * shape.points + 6e-10 * shape.landmark_candidates * m * shape.n_axes
        return Cost(max(among, shape.graph + 32 * n), 0.1 + 3e-7 * n + 4e-8 * n * k + choosing)


# Of a classical model.
ARRAYS = ("coordinates", "eigenvalues", "row_means", "spectrum")
# Centers of clusters, beside a spectral model.
CENTERS = "centers"
# The figure that says of what kind a model is.
MODEL = "model"
# Settings of a model that earlier states of this version did not have, with what they took for granted.
DEFAULTS = asdict(Choice("", 0))
# Extensions that were made in another way by earlier states of this version.
REVISIONS = {"kernel-mapping": 2}
# What methods that iterate over all pairs of landmarks take for each pair.
SECONDS_PER_PAIR = {"metric-mds": 4e-5, "nonmetric-mds": 2e-4, "sammon": 4e-5}


@dataclass(frozen=True)
class Model(SingleStage):
    """The landmarks' coordinates and what extending to other points needs, in the run's units; with `n_clusters`, also
    the centers (c, d) of clusters among them."""

    provider: Provider
    choice: Choice
    n_clusters: int | None
    seed: int
    name = "model"

    def settings(self) -> Json:
        clusters = {} if self.n_clusters is None else {"n_clusters": self.n_clusters, "seed": self.seed}
        return {**described_choice(self.choice), **clusters, **self.provider.lineage(self.name).settings}

    def inputs(self) -> list[str]:
        return list(self.provider.lineage(self.name).inputs)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        model = fitted_model(self.choice, self.provider.between())
        figures, arrays = write_model(ledger, model)
        if self.n_clusters is not None:
            ledger.write(CENTERS, cluster_centers(model.coordinates, self.n_clusters, self.seed))
            arrays.append(CENTERS)
        return figures, arrays

    @staticmethod
    def cost(shape: Shape) -> Cost:
        m, d = shape.n_landmarks, shape.n_components
        copies, decomposing = (12, 2e-10) if shape.edges_from is None else (5, 1e-10)
        searching = SECONDS_PER_PAIR.get(shape.method, 0.0) * m * m
        kept = 4 * d if shape.extension in ("projection", "restricted") else m
        return Cost(8 * copies * m * m, 0.05 + decomposing * m**3 + searching, 8 * m * kept)


def described_choice(choice: Choice) -> Json:
    """What a model's digest depends on: the method, and whatever is not as it would be anyway."""
    always = ("method", "n_components")
    told = {name: value for name, value in asdict(choice).items() if name in always or value != DEFAULTS[name]}
    return told | ({"revision": REVISIONS[choice.extension]} if choice.extension in REVISIONS else {})


def write_model(ledger: StageLedger, model: FittedModel) -> tuple[Json, list[str]]:
    """Write every array of a model; its numbers and words are among the figures."""
    arrays: list[str] = []
    values: Json = {MODEL: type(model).__name__, "n_landmarks": len(model.coordinates)}
    for field in fields(model):  # type: ignore[arg-type]  # every model is a dataclass
        value = getattr(model, field.name)
        if isinstance(value, np.ndarray):
            ledger.write(field.name, value)
            arrays.append(field.name)
        else:
            values[field.name] = value
    return {**values, **spectrum_figures(model)}, arrays


def spectrum_figures(model: FittedModel) -> Json:
    """Of a classical model, how far its dissimilarities are from Euclidean."""
    if not isinstance(model, LandmarkModel):
        return {}
    return {name: getattr(model, name) for name in ("n_positive", "negative_mass", "explained_mass")}


def load_any_model(ledger: StageLedger) -> FittedModel:
    """The model that a finished stage left, of whatever kind."""
    figures = ledger.finished() or {}
    kind = model_class(figures.get(MODEL, LandmarkModel.__name__))
    if kind is None:
        raise StoreError(
            f"{ledger.path} holds a model of kind {figures[MODEL]}, which this version does not know; if it is a "
            "plugin's, name the plugin in plugins."
        )
    values = {name: value for name, value in _values(ledger, kind, figures) if value is not None}
    return cast(FittedModel, kind(**values))


def _values(ledger: StageLedger, kind: type, figures: Json) -> list[tuple[str, Any]]:
    arrays = ledger.vouched_for(0)
    names = [field.name for field in fields(kind)]
    return [(name, ledger.read(name).read() if name in arrays else figures.get(name)) for name in names]


def load_model(ledger: StageLedger) -> LandmarkModel:
    """The classical model that a finished stage left; other kinds have neither two answers nor a spectrum."""
    model = load_any_model(ledger)
    if not isinstance(model, LandmarkModel):
        raise StoreError(f"{ledger.path} holds a model of kind {type(model).__name__}, not a classical one.")
    return model


def load_answers(ledger: StageLedger, diagonal_weight: DiagonalWeight) -> Answers:
    """The model of a finished stage, ready to be asked about points."""
    return weighted_answers(load_any_model(ledger), diagonal_weight)


def landmark_coordinates(ledger: StageLedger) -> FloatArray:
    """Where the landmarks are (m, d)."""
    return np.asarray(load_any_model(ledger).coordinates)
