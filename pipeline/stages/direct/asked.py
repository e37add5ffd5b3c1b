"""A model asked about a block of rows after the other, whether they were fitted or are new."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipeline.numerics.extension.placement import Answer, Answers
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.models.spectral import cluster_labels
from pipeline.stages.direct.model import CENTERS
from pipeline.stages.embed import NEAREST, with_nearest
from pipeline.stages.model import load_answers
from pipeline.stages.providers.vectors import Provider, rows_per_block
from pipeline.stages.stage import Outcome
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray


class Asked(NamedTuple):
    """Of the usable rows (u,) of a partition: answers (u, a d) and columns of trust (u, t) in the user's units, flags
    by name (u,), and the dissimilarities (s, m) to the landmarks of those that were to be kept."""

    rows: IntArray
    coordinates: FloatArray
    trust: FloatArray
    flags: dict[str, AnyArray]
    to_landmarks: AnyArray


def trust_columns(answers: Answers) -> tuple[str, ...]:
    """The names of the columns of trust. Affinities do not say how far the nearest landmark is."""
    return answers.columns if answers.takes_affinities else (*answers.columns, NEAREST)


@dataclass(frozen=True)
class DirectAnswers:
    """All that the stages need to ask a model about rows. Where coordinates are lengths, they scale with the data."""

    provider: Provider
    model: Outcome
    diagonal_weight: DiagonalWeight
    coordinates_are_lengths: bool

    @cached_property
    def answers(self) -> Answers:
        return load_answers(self.model.ledger, self.diagonal_weight)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of trust."""
        return trust_columns(self.answers)

    @property
    def flags(self) -> tuple[str, ...]:
        own = ("ambiguous",) if self.answers.is_classical else ()
        return (*own, "component", *(("labels",) if self._centers is not None else ()))

    @property
    def coordinate_exponent(self) -> int:
        """The power of two that takes coordinates to the user's units."""
        return self.provider.exponent if self.coordinates_are_lengths else 0

    def ask(self, rows: range, keep: BoolArray) -> Asked:
        """What the model says of some rows; of the usable ones that `keep` (p,) marks the dissimilarities are kept."""
        step = rows_per_block(self.provider.n_landmarks)
        blocks = [self._block(range(first, min(first + step, rows.stop)), rows, keep) for first in rows[::step]]
        numbers, coordinates, trust, flags, kept = zip(*blocks, strict=True)
        named = {name: np.concatenate([part[name] for part in flags]) for name in self.flags}
        return Asked(
            np.concatenate(numbers), np.concatenate(coordinates), np.concatenate(trust), named, np.concatenate(kept)
        )

    def _block(self, block: range, rows: range, keep: BoolArray) -> Asked:
        to_landmarks, usable = self.provider.read(block.start, block.stop)
        numbers = np.flatnonzero(usable) + block.start
        answer = self.answers.of(to_landmarks)
        trust = self._trust(answer, to_landmarks)
        flags: dict[str, AnyArray] = {"ambiguous": answer.ambiguous, "component": np.zeros(len(numbers), np.int64)}
        if self._centers is not None:
            flags["labels"] = cluster_labels(answer.coordinates, self._centers)
        coordinates = np.ldexp(answer.coordinates, self.coordinate_exponent)
        return Asked(numbers, coordinates, trust, flags, to_landmarks[keep[numbers - rows.start]])

    def _trust(self, answer: Answer, to_landmarks: AnyArray) -> FloatArray:
        if self.answers.takes_affinities:
            return self.answers.trust_in_units(answer, self.provider.exponent)
        nearest = to_landmarks.min(axis=1).astype(np.float64)
        return with_nearest(self.answers, answer, nearest, self.provider.exponent)

    @cached_property
    def _centers(self) -> FloatArray | None:
        if CENTERS not in self.model.ledger.vouched_for(0):
            return None
        return np.asarray(self.model.ledger.read(CENTERS).read())
