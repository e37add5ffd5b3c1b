"""A fitted run as new points see it: what extending needs of its stages, small enough to be sent to workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.errors import InvalidInputError, StoreError
from pipeline.numerics.extension.placement import Answers, answers_of
from pipeline.plugins import LOADED, TrustColumn
from pipeline.stages.landmarks import load_any_model
from pipeline.stages.stage import Outcome
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, Json

NEAREST = "nearest"
NEEDED = ("validate", "landmarks", "model", "calibrate")
OPTIONAL = ("axes", "subset", "rows", "register")


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
        return answers_of(load_any_model(self.stages["model"].ledger), self.weight)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the trust columns, those of plugins last."""
        return (*trust_columns(self.answers), *self.extra_columns)

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """Names of the trust columns that plugins added to the fit."""
        known = trust_columns(self.answers)
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


def trust_columns(answers: Answers) -> tuple[str, ...]:
    """Names of the trust columns. Affinities do not say how far the nearest landmark is."""
    return answers.columns if answers.takes_affinities else (*answers.columns, NEAREST)


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
    return Space(published_stages(store, manifest, NEEDED, OPTIONAL), manifest["settings"], manifest["source"])


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
