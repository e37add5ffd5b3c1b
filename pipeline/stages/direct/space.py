"""The space of a run that was measured straight from its landmarks: all that extending to new rows needs."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.numerics.extension.placement import Answers, answers_of
from pipeline.stages.direct.asked import trust_columns
from pipeline.stages.model import load_any_model
from pipeline.stages.space import registered
from pipeline.stages.stage import Outcome
from pipeline.types import FloatArray, Json

NEEDED = ("validate", "landmarks", "model", "calibrate")
OPTIONAL = ("axes", "subset", "rows", "register")


@dataclass(frozen=True)
class DirectSpace:
    """The stages of a published run by name, and what it was told."""

    stages: dict[str, Outcome]
    settings: Json
    source: Json

    @property
    def identity(self) -> list[str]:
        """What names the space: results of extending to it depend on nothing else of the run."""
        return [f"{name}/{stage.ledger.digest}" for name, stage in sorted(self.stages.items())]

    @cached_property
    def answers(self) -> Answers:
        weight = float(self.stages["calibrate"].figures["weight"])
        return answers_of(load_any_model(self.stages["model"].ledger), weight)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the trust columns."""
        return trust_columns(self.answers)

    @property
    def exponent(self) -> int:
        """The power of two that takes lengths to the user's units."""
        return int(self.stages["calibrate"].figures["exponent"])

    @property
    def exponent_of_source(self) -> int:
        """The power of two that the data itself was scaled by."""
        return int(np.frexp(self.stages["validate"].figures["largest"])[1])

    @cached_property
    def calibration(self) -> dict[str, FloatArray]:
        """The trust columns of rows like the training rows, each rising."""
        return {name: self.stages["calibrate"].ledger.read(name).read() for name in self.columns}

    def turned(self, coordinates: FloatArray) -> FloatArray:
        """Answers (p, a d) in the user's units, turned to agree with the version before if the run was fitted again."""
        return registered(self.stages["register"].ledger, coordinates) if "register" in self.stages else coordinates
