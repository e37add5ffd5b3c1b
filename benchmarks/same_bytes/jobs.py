"""The jobs of a case by name: each does one thing to the store of the case and records what it left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import load_npz

from benchmarks.same_bytes import trees
from benchmarks.same_bytes.cases import INVERSE_KERNELS, Case
from benchmarks.same_bytes.records import BYTES, DIGESTS, FIGURES, Json, digest_of_array, record_of_store

TOGETHER: Mapping[str, object] = {"joint": 20, "arc": 5, "arc_rows": (0, 3)}
N_NEIGHBORS = 30
# Two rows that every case embeds.
PATH = (3, 50)
N_FITTED = 300
# What an estimator has after a fit, if its method has it.
ATTRIBUTES = ("embedding_", "landmark_indices_", "eigenvalues_", "component_labels_", "labels_")


@dataclass(frozen=True)
class Place:
    """A case, the folder of data and the folder of its results."""

    case: Case
    data: Path
    work: Path

    def file(self, name: str) -> str:
        return str(self.data / name)

    def result(self, name: str) -> str:
        return str(self.work / name)

    @property
    def told(self) -> dict[str, object]:
        return {**self.case.told, "source": self.file(self.case.files.source), "store": self.result("run")}

    def recorded(self, name: str, version: str | None = None) -> Json:
        return record_of_store(self.work / name, self.work, version)

    def extended(self, store: str, output: str, source: str, **more: object) -> Json:
        """New rows in the space of a store."""
        given = {"store": self.result(store), "source": self.file(source), "output": self.result(output)}
        trees.extend({**self.case.batch, **given, **more})
        return self.recorded(output)

    def inverted(self, output: str, queries: object | None = None, **more: object) -> Json:
        told = {"store": self.result("run"), "output": self.result(output), "n_neighbors": N_NEIGHBORS, **more}
        trees.invert(told, queries)
        return self.recorded(output)

    def exported(self, model: str) -> Json:
        trees.export_model(self.result("run"), self.result(model), self.case.anchors)
        return self.recorded(model)


def _plan(place: Place) -> Json:
    return {BYTES: {}, FIGURES: trees.plan(place.told), DIGESTS: {}}


def _fit(place: Place) -> Json:
    trees.fit(place.told)
    return place.recorded("run")


def _fit_in_memory(place: Place) -> Json:
    trees.fit({**place.told, "source": "memory"}, np.load(place.file(place.case.files.source)))
    return place.recorded("run")


def _incoming(place: Place) -> Json:
    """Every batch of a folder; what is left of all in one record."""
    given = {"store": place.result("run"), "source": place.file("incoming"), "output": place.result("batches")}
    record: Json = {BYTES: {}, FIGURES: {}, DIGESTS: {}}
    for output in trees.extend_batches({**place.case.batch, **given, "incoming": True}):
        name = Path(output).name
        for group, values in record_of_store(Path(output), place.work).items():
            record[group] |= {f"{name} {what}": value for what, value in values.items()}
    return record


def _refit(place: Place, **new: object) -> Json:
    trees.refit({"store": place.result("run"), **new})
    return place.recorded("run")


def _midpoints(place: Place, in_memory: bool = False, kernel: str = "cubic") -> Json:
    """The data between embedded rows, at one of them and far away."""
    points = trees.open_run(place.result("run")).embedding("projection")
    queries = np.concatenate([(points[:400:20] + points[1:400:20]) / 2, points[5:6], 50 * points[6:7]])
    more = {"source": place.file(place.case.files.source)} if in_memory else {}
    return place.inverted(f"midpoints {kernel}", queries, coordinates="memory", kernel=kernel, **more)


JOBS: dict[str, Callable[[Place], Json]] = {
    "plan": _plan,
    "fit": _fit,
    "fit in memory": _fit_in_memory,
    "extend": lambda place: place.extended("run", "extended", place.case.files.new),
    "empty": lambda place: place.extended("run", "empty", place.case.files.empty),
    "together": lambda place: place.extended("run", "together", place.case.files.new, **TOGETHER),
    "bound": lambda place: place.extended(
        "run", "bound", place.case.files.new, joint=15, joint_distances="bound", level=0.05
    ),
    "incoming": _incoming,
    "model": lambda place: place.exported("model"),
    "model extend": lambda place: place.extended("model", "by model", place.case.files.new),
    "midpoints": _midpoints,
    "midpoints in memory": lambda place: _midpoints(place, in_memory=True),
    **{f"inverse {kernel}": partial(_midpoints, kernel=kernel) for kernel in INVERSE_KERNELS},
    "left out": lambda place: place.inverted("left out", leave_one_out=True, sample=60, seed=2),
    "path": lambda place: place.inverted("path", path=PATH, steps=5, along="data", kernel="gaussian", scale=2.0),
    "refit": lambda place: _refit(place, new=[place.file(place.case.files.more)]),
    "refit incoming": lambda place: _refit(place, incoming=place.file("incoming"), name="with-batches"),
    "version 1": lambda place: place.recorded("run", "1"),
    "refit extend": lambda place: place.extended("run", "extended again", place.case.files.new),
    "refit model": lambda place: place.exported("model again"),
    "refit model extend": lambda place: place.extended("model again", "by model again", place.case.files.new),
}


def estimated(data: Path, name: str, told: Mapping[str, object]) -> dict[str, Callable[[], Json]]:
    """The job of an estimator in memory."""

    def fit() -> Json:
        rows, new = _rows(data, name)
        model = trees.estimator(told).fit(rows)
        arrays = {what: getattr(model, what) for what in ATTRIBUTES if hasattr(model, what)}
        arrays |= {"model": model.model_.coordinates, "transform": model.transform(new)}
        if name == "roll":
            points = model.embedding_
            arrays["inverse_transform"] = model.inverse_transform((points[:200:10] + points[1:200:10]) / 2)
        return {BYTES: {what: digest_of_array(array) for what, array in arrays.items()}, FIGURES: {}, DIGESTS: {}}

    return {"fit": fit}


def _rows(data: Path, name: str) -> tuple[Any, Any]:
    """Training data and new data."""
    if name == "graph":
        return load_npz(data / "graph.npz"), load_npz(data / "graph_new.npz")
    rows: NDArray[Any] = np.load(data / f"{name}.npy")
    if name == "apart":
        return rows, np.ascontiguousarray(np.load(data / "apart_new.npy").T)
    return rows[:N_FITTED], np.load(data / "new.npy")


def studied(data: Path, source: str, told: Mapping[str, object]) -> dict[str, Callable[[], Json]]:
    """The job of a study."""

    def study() -> Json:
        found = trees.study({**told, "source": str(data / source)})
        return {BYTES: {}, FIGURES: {"study": found}, DIGESTS: {}}

    return {"study": study}
