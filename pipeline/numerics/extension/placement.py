"""What a fitted model says of a point, whatever the method: coordinates, and columns that tell how far to trust them.

Classical models have two answers, the projection and the restricted reconstruction, and say how they differ. Every
other way of placing points has one answer and one misfit.

How far to trust a point's coordinates [T sec. 5, 6].

residual    beta - y'y at the projection y: the squared part of the point outside the landmarks' space for Euclidean
            dissimilarities; for geodesics it can be negative
multiplier  mu of the restricted reconstruction
gap         distance between the projection and the restricted reconstruction
nearest     distance to the nearest point that was fitted
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from pipeline.numerics.extension.reconstruction import (
    DiagonalWeight,
    Moments,
    MomentSums,
    project_moments,
    reconstruct_moments,
    resolved_weight,
)
from pipeline.numerics.mds import LandmarkModel
from pipeline.types import AnyArray, BoolArray, FloatArray

TRUST = ("residual", "multiplier", "gap", "nearest")


class Placed(NamedTuple):
    """Both answers for p points, and how far to trust them."""

    projection: FloatArray
    restricted: FloatArray
    residual: FloatArray
    multiplier: FloatArray
    gap: FloatArray
    ambiguous: BoolArray


def placed(model: LandmarkModel, to_landmarks: AnyArray, weight: float) -> Placed:
    """Place points by their (p, m) dissimilarities to the landmarks; a row's bytes depend on that row alone."""
    sums = MomentSums(model, len(to_landmarks))
    sums.add(to_landmarks)
    return placed_by_moments(model, sums.moments(), weight)


def placed_by_moments(model: LandmarkModel, moments: Moments, weight: float) -> Placed:
    """The same, of moments that are known."""
    projection = project_moments(model, moments)
    answer = reconstruct_moments(model, moments, weight)
    return Placed(
        projection,
        answer.coordinates,
        moments.beta - _squared_lengths(projection),
        answer.multipliers,
        np.sqrt(_squared_lengths(projection - answer.coordinates)),
        answer.ambiguous,
    )


def _squared_lengths(rows: FloatArray) -> FloatArray:
    """Summed coordinate by coordinate: the order of a sum along rows depends on their number."""
    total = np.zeros(len(rows))
    for column in rows.T:
        total += column * column
    return total


def trust_columns(result: Placed, nearest: FloatArray, exponent: int) -> FloatArray:
    """The columns of TRUST (p, 4), taken to the user's units by a power of two.

    A residual and a multiplier are squares of lengths, and scale as such.
    """
    squares = [np.ldexp(part, 2 * exponent) for part in (result.residual, result.multiplier)]
    return np.stack([*squares, *(np.ldexp(part, exponent) for part in (result.gap, nearest))], axis=1)


class Placement(NamedTuple):
    """Coordinates (p, d) of points, and a number (p,) for each that grows as it fits the landmarks less well."""

    coordinates: FloatArray
    residual: FloatArray


class Placer(Protocol):
    """Landmarks with coordinates (m, d), and a way to place other points among them."""

    @property
    def coordinates(self) -> FloatArray: ...

    @property
    def residual_degree(self) -> int:
        """The power of a length that the residual is: it scales so with the dissimilarities."""
        ...

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m), not squared, to the landmarks."""
        ...


Model: TypeAlias = LandmarkModel | Placer


class Answer(NamedTuple):
    """Of p points: the answers (p, a d) side by side, the columns of trust (p, t), and whether a point has two equally
    good answers (p,)."""

    coordinates: FloatArray
    trust: FloatArray
    ambiguous: BoolArray


class Sums(Protocol):
    """Takes the dissimilarities of p points to the landmarks, some landmarks at a time, in their order."""

    def add(self, to_landmarks: AnyArray) -> None: ...

    def answer(self) -> Answer: ...


@dataclass(frozen=True, eq=False)
class Answers:
    """A model that is asked about points. `degrees` are the powers of a length that the columns of trust are."""

    model: Model
    weight: float
    coordinates: tuple[str, ...]
    columns: tuple[str, ...]
    degrees: tuple[int, ...]

    @property
    def n_components(self) -> int:
        return int(self.model.coordinates.shape[1])

    @property
    def n_landmarks(self) -> int:
        return len(self.model.coordinates)

    @property
    def is_classical(self) -> bool:
        return isinstance(self.model, LandmarkModel)

    @property
    def takes_affinities(self) -> bool:
        """Whether it is asked by affinities to the landmarks, which grow as points come nearer."""
        return bool(getattr(self.model, "affinity", False))

    def begin(self, n_points: int) -> Sums:
        """Something to bring the points' dissimilarities into."""
        if isinstance(self.model, LandmarkModel):
            return _ClassicalSums(self.model, self.weight, n_points)
        return _WholeRows(self.model)

    def of(self, to_landmarks: AnyArray) -> Answer:
        """What is said of points, from their dissimilarities (p, m) to all landmarks."""
        sums = self.begin(len(to_landmarks))
        sums.add(to_landmarks)
        return sums.answer()

    def nothing(self, n_points: int) -> Answer:
        """What is known of points that are not embedded."""
        widths = len(self.coordinates) * self.n_components, len(self.columns)
        coordinates, trust = (np.full((n_points, width), np.nan) for width in widths)
        return Answer(coordinates, trust, np.zeros(n_points, dtype=np.bool_))

    def among_others(self, known: Answer, kept: BoolArray) -> Answer:
        """Answers for those points that are kept, among all of them."""
        if kept.all():
            return known
        everything = self.nothing(len(kept))
        for whole, part in zip(everything, known, strict=True):
            whole[kept] = part
        return everything

    def stacked(self, parts: list[Answer]) -> Answer:
        """Answers for consecutive points as one."""
        return Answer(*(np.concatenate(columns) for columns in zip(self.nothing(0), *parts, strict=True)))

    def trust_in_units(self, answer: Answer, exponent: int) -> FloatArray:
        """The columns of trust (p, t), taken to the user's units by a power of two."""
        return np.asarray(np.ldexp(answer.trust, np.array(self.degrees) * exponent))


def answers_of(model: Model, weight: float = 1.0) -> Answers:
    """Ask a model; `weight` is that of restricted reconstruction."""
    if isinstance(model, LandmarkModel):
        return Answers(model, weight, ("projection", "restricted"), ("residual", "multiplier", "gap"), (2, 2, 1))
    return Answers(model, weight, ("projection",), ("residual",), (model.residual_degree,))


def weighted_answers(model: Model, diagonal_weight: DiagonalWeight) -> Answers:
    """Ask a model, with the weight of restricted reconstruction as the user gives it; other models have none."""
    return answers_of(model, resolved_weight(model, diagonal_weight) if isinstance(model, LandmarkModel) else 1.0)


class _ClassicalSums:
    """Only the moments of each point are kept."""

    def __init__(self, model: LandmarkModel, weight: float, n_points: int) -> None:
        self._model, self._weight, self._sums = model, weight, MomentSums(model, n_points)

    def add(self, to_landmarks: AnyArray) -> None:
        self._sums.add(to_landmarks)

    def answer(self) -> Answer:
        placed = placed_by_moments(self._model, self._sums.moments(), self._weight)
        trust = np.stack([placed.residual, placed.multiplier, placed.gap], axis=1)
        return Answer(np.hstack([placed.projection, placed.restricted]), trust, placed.ambiguous)


class _WholeRows:
    """Every dissimilarity is kept until all are there."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._parts: list[AnyArray] = []

    def add(self, to_landmarks: AnyArray) -> None:
        self._parts.append(to_landmarks)

    def answer(self) -> Answer:
        rows = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts, axis=1)
        placed = self._placer.place(rows)
        return Answer(placed.coordinates, placed.residual[:, None], np.zeros(len(rows), dtype=np.bool_))
