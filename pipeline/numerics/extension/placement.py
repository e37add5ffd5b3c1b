"""Placing points by a fitted model of any method: coordinates, and trust columns that say how reliable they are.

Classical models give two sets of coordinates, the projection and the restricted reconstruction; other methods one set
and a misfit, `residual`. The trust columns of classical models [T sec. 5, 6]:

residual: beta - y'y at the projection y, for Euclidean dissimilarities the squared part of the point outside the
landmarks' space; it can be negative for geodesics. multiplier: mu of the restricted reconstruction. gap: distance
between projection and reconstruction. spread, where it is asked for: how far the projection hangs on single landmarks
(`spread.py`). nearest: distance to the nearest fitted point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.numerics.extension.reconstruction import DiagonalWeight, reconstruct_moments, resolved_weight
from pipeline.numerics.extension.spread import SPREAD, spread_of
from pipeline.numerics.mds import LandmarkModel, Model, Moments, MomentSums, Placer, moments_of, project_moments
from pipeline.numerics.mds import Placement as Placement
from pipeline.plugins import TrustColumn
from pipeline.types import AnyArray, BoolArray, FloatArray

NEAREST = "nearest"
TRUST = ("residual", "multiplier", "gap", NEAREST)


class Placed(NamedTuple):
    """Both sets of coordinates (p, d) of p points, and their trust columns (p,)."""

    projection: FloatArray
    restricted: FloatArray
    residual: FloatArray
    multiplier: FloatArray
    gap: FloatArray
    ambiguous: BoolArray


def placed(model: LandmarkModel, to_landmarks: AnyArray, weight: float) -> Placed:
    """Place points by their (p, m) dissimilarities to the landmarks; a row's bytes depend on that row alone."""
    return placed_by_moments(model, moments_of(model, to_landmarks), weight)


def placed_by_moments(model: LandmarkModel, moments: Moments, weight: float) -> Placed:
    """Place points by their moments."""
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
    """Summed coordinate by coordinate: the order of a sum along rows would depend on their number."""
    total = np.zeros(len(rows))
    for column in rows.T:
        total += column * column
    return total


class Answer(NamedTuple):
    """Of p points: all coordinates (p, a d) side by side, trust columns (p, t), and whether each is ambiguous (p,)."""

    coordinates: FloatArray
    trust: FloatArray
    ambiguous: BoolArray


@dataclass(frozen=True, eq=False)
class Answers:
    """Places points by a model; `degrees` are the powers of a length that the trust columns are."""

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
    def has_spread(self) -> bool:
        return SPREAD in self.columns

    @property
    def takes_affinities(self) -> bool:
        """Whether points are given by affinities to the landmarks, which grow as points come nearer."""
        return bool(getattr(self.model, "affinity", False))

    @property
    def trust_names(self) -> tuple[str, ...]:
        """Names of the trust columns of points that are placed. Affinities do not say how far the nearest point is."""
        return self.columns if self.takes_affinities else (*self.columns, NEAREST)

    def begin(self, n_points: int) -> "_ClassicalSums | _WholeRows":
        """A collector of the points' dissimilarities to the landmarks, some landmarks at a time, in their order."""
        if isinstance(self.model, LandmarkModel):
            return _ClassicalSums(self.model, self.weight, n_points, self.has_spread)
        return _WholeRows(self.model)

    def of(self, to_landmarks: AnyArray) -> Answer:
        """Place points by their dissimilarities (p, m) to all landmarks."""
        sums = self.begin(len(to_landmarks))
        sums.add(to_landmarks)
        return sums.answer()

    def nothing(self, n_points: int) -> Answer:
        """NaN for points that are not embedded."""
        widths = len(self.coordinates) * self.n_components, len(self.columns)
        coordinates, trust = (np.full((n_points, width), np.nan) for width in widths)
        return Answer(coordinates, trust, np.zeros(n_points, dtype=np.bool_))

    def among_others(self, known: Answer, kept: BoolArray) -> Answer:
        """Answers for the `kept` points, put among all points."""
        if kept.all():
            return known
        everything = self.nothing(len(kept))
        for whole, part in zip(everything, known, strict=True):
            whole[kept] = part
        return everything

    def stacked(self, parts: list[Answer]) -> Answer:
        """Concatenated answers of consecutive points."""
        return Answer(*(np.concatenate(columns) for columns in zip(self.nothing(0), *parts, strict=True)))

    def trust_in_units(self, answer: Answer, exponent: int) -> FloatArray:
        """The trust columns (p, t) in the user's units, which are 2^exponent."""
        return np.asarray(np.ldexp(answer.trust, np.array(self.degrees) * exponent))

    def all_trust_in_units(
        self, answer: Answer, nearest: FloatArray, exponent: int, extra: Sequence[TrustColumn] = ()
    ) -> FloatArray:
        """All columns of `trust_names` and those that plugins add (p, t); `nearest` are distances to the nearest
        point."""
        columns = [self.trust_in_units(answer, exponent)]
        if not self.takes_affinities:
            columns.append(np.ldexp(nearest, exponent)[:, None])
        for column in extra:
            values = np.asarray(column.values(self.model, answer), dtype=np.float64)
            columns.append(np.ldexp(values, column.degree * exponent)[:, None])
        return np.hstack(columns)


def answers_of(model: Model, weight: float = 1.0, spread: bool = False) -> Answers:
    """Ready to place points by a model; `weight` is that of restricted reconstruction. Only classical models have a
    `spread`."""
    if isinstance(model, LandmarkModel):
        columns = {"residual": 2, "multiplier": 2, "gap": 1, **({SPREAD: 1} if spread else {})}
        return Answers(model, weight, ("projection", "restricted"), tuple(columns), tuple(columns.values()))
    return Answers(model, weight, ("projection",), ("residual",), (model.residual_degree,))


def weighted_answers(model: Model, diagonal_weight: DiagonalWeight, spread: bool = False) -> Answers:
    """Ask a model, with the weight of restricted reconstruction as the user gives it; other models have none."""
    weight = resolved_weight(model, diagonal_weight) if isinstance(model, LandmarkModel) else 1.0
    return answers_of(model, weight, spread)


class _ClassicalSums(MomentSums):
    """Keeps only the moments of each point."""

    def __init__(self, model: LandmarkModel, weight: float, n_points: int, with_spread: bool) -> None:
        super().__init__(model, n_points, with_spread)
        self._weight = weight

    def answer(self) -> Answer:
        moments = self.moments()
        placed = placed_by_moments(self._model, moments, self._weight)
        columns = [placed.residual, placed.multiplier, placed.gap]
        if moments.squares is not None:
            columns.append(spread_of(self._model, moments))
        return Answer(np.hstack([placed.projection, placed.restricted]), np.stack(columns, axis=1), placed.ambiguous)


class _WholeRows:
    """Keeps all dissimilarities until the rows are complete."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._parts: list[AnyArray] = []

    def add(self, to_landmarks: AnyArray) -> None:
        self._parts.append(to_landmarks)

    def answer(self) -> Answer:
        rows = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts, axis=1)
        placed = self._placer.place(rows)
        return Answer(placed.coordinates, placed.residual[:, None], np.zeros(len(rows), dtype=np.bool_))
