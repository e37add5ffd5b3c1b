"""What all fits in memory share: a model that is asked about points, a space that new rows are placed in, and what is
left of a fit."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.estimator.settings import Settings
from pipeline.methods import METHODS, resolved_extension
from pipeline.numerics import checks
from pipeline.numerics.directions import require_directions, unit_points
from pipeline.numerics.extension.placement import Answer, Answers, weighted_answers
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.geodesics.shortcuts import Listed
from pipeline.numerics.landmarks.weights import NearestLandmarks, landmark_counts
from pipeline.numerics.mds import LandmarkModel, Model
from pipeline.numerics.models.catalog import fitted_model
from pipeline.numerics.models.lle import LlePlacer
from pipeline.numerics.models.spectral import NystromPlacer
from pipeline.plugins import LOADED, TrustColumn
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json, SparseArray

# Rows whose dissimilarities to the landmarks are looked at together: what an embedding needs beside its result.
ROWS_PER_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model, which of its answers are the coordinates, the power of two that takes dissimilarities to the user's
    units and that which takes coordinates there, and the trust columns that plugins add."""

    answers: Answers
    wanted: str
    exponent: int
    coordinate_exponent: int
    extra_columns: dict[str, TrustColumn]

    def coordinates(self, answer: Answer) -> FloatArray:
        """Coordinates (p, d) of points in the user's units."""
        d = self.answers.n_components
        first = d * self.answers.coordinates.index(self.wanted)
        return np.asarray(np.ldexp(answer.coordinates[:, first : first + d], self.coordinate_exponent))

    def answered(self, n_points: int, to_landmarks: Callable[[slice], AnyArray]) -> Answer:
        """What the model says of all points, whose dissimilarities are had for some of them at a time."""
        return self.answers.stacked([self.answers.of(to_landmarks(chunk)) for chunk in chunks(n_points)])

    def columns(self, answer: Answer, nearest: FloatArray) -> dict[str, AnyArray]:
        """All coordinates (p, d) and trust columns (p,) in the user's units, by name; `nearest` are distances (p,) to
        the nearest point."""
        names = self.answers.coordinates
        parts = np.split(np.ldexp(answer.coordinates, self.coordinate_exponent), len(names), axis=1)
        trust = self.answers.all_trust_in_units(answer, nearest, self.exponent, tuple(self.extra_columns.values()))
        return {**dict(zip(names, parts, strict=True)), **dict(zip(self.trust_names, trust.T, strict=True))}

    @property
    def trust_names(self) -> tuple[str, ...]:
        return (*self.answers.trust_names, *self.extra_columns)

    @property
    def eigenvalues(self) -> FloatArray | None:
        """Those (d,) that belong to the coordinates, in the user's units, if the model has any."""
        model = self.answers.model
        if isinstance(model, LandmarkModel):
            return np.asarray(np.ldexp(model.eigenvalues, 2 * self.exponent))
        return model.eigenvalues if isinstance(model, NystromPlacer | LlePlacer) else None


class Reached(NamedTuple):
    """Which of some new rows (p,) have a place; of those (u,) the dissimilarities (u, m) to the landmarks and to the
    nearest point (u,), None if that is the nearest landmark; and the component (p,) that each row belongs to."""

    kept: BoolArray
    to_landmarks: AnyArray
    component: IntArray
    to_nearest: FloatArray | None = None

    @property
    def nearest(self) -> FloatArray:
        return np.asarray(self.to_landmarks.min(axis=1) if self.to_nearest is None else self.to_nearest)


@dataclass(frozen=True, eq=False)
class Space(ABC):
    """A fitted space and the way into it. Dissimilarities are in units of 2^exponent of the user's."""

    embedder: Embedder

    @property
    def takes_edges(self) -> bool:
        """Whether new rows are edges to the training points, in a sparse matrix."""
        return False

    def check(self, rows: Any) -> None:  # noqa: B027  some take any row
        """Refuse new rows that cannot be placed."""

    @abstractmethod
    def reached(self, rows: Any, n_threads: int) -> Reached:
        """What a chunk of new rows is to the landmarks; each row's bytes depend on that row alone."""

    @abstractmethod
    def between(self, rows: Any, only_bounds: bool, n_threads: int) -> FloatArray:
        """Dissimilarities (u, u) between those of the new rows that have a place, or the shortest over a landmark."""

    @abstractmethod
    def between_as_given(self, given: FloatArray, rows: Any) -> FloatArray:
        """The same from what a user gives for them (p, p); signed roots where squares may be negative."""

    @abstractmethod
    def nearest_of_points(self, n_threads: int) -> FloatArray:
        """How far the nearest other point is from each embedded one (u,)."""

    @abstractmethod
    def trust_as_new(self, fitted: "Fitted", seed: int, n_threads: int) -> FloatArray:
        """The trust columns (h, t) of fitted rows taken as if they were new, in any order."""

    def placed(self, rows: Any, n_threads: int) -> FloatArray:
        """Coordinates (p, d) of new rows, in the user's units; NaN for those without a place."""
        self.check(rows)
        out = np.full((rows.shape[0], self.embedder.answers.n_components), np.nan)
        for chunk in chunks(len(out)):
            found = self.reached(rows[chunk], n_threads)
            out[chunk][found.kept] = self.embedder.coordinates(self.embedder.answers.of(found.to_landmarks))
        return out


@dataclass(frozen=True, eq=False)
class Fitted:
    """A space and what its model says of the embedded points (u,). Of the rows (n,): the place of each among these
    points, -1 for one that is not embedded, its component, and which (m,) are landmarks. Of a graph its likely short
    circuits and, if it is in pieces, what became of them."""

    space: Space
    answer: Answer
    place_of: IntArray
    landmarks: IntArray
    components: IntArray | None = None
    short_circuits: list[Listed] | None = None
    in_pieces: Json | None = None

    @property
    def model(self) -> Model:
        return self.space.embedder.answers.model

    @property
    def embedding(self) -> FloatArray:
        """Coordinates (n, d) of all rows."""
        return np.asarray(self.of_rows(self.space.embedder.coordinates(self.answer)))

    def of_rows(self, of_points: AnyArray) -> AnyArray:
        """What is known of points (u, ...) for the rows (n, ...) that they are; NaN or False for other rows."""
        rows = of_points[self.place_of]
        rows[self.place_of < 0] = False if of_points.dtype == np.bool_ else np.nan
        return rows


def counts_of(
    settings: Settings,
    to_landmarks: Callable[[slice], AnyArray],
    landmarks: IntArray,
    rows: IntArray,
    n_rows: IntArray,
) -> IntArray | None:
    """How many rows each landmark (m,), by its place among the points, stands for, if that is wanted: of points (u,)
    with their first `rows`, each of which is `n_rows` rows, and whose dissimilarities are had for some at a time."""
    if settings.landmark_weights == "none":
        return None
    found = []
    for chunk in chunks(len(rows)):
        lengths = to_landmarks(chunk)
        nearest = NearestLandmarks(rows[landmarks], len(lengths))
        nearest.add(lengths)
        found.append(nearest.places)
    return landmark_counts(np.concatenate(found), np.arange(len(rows)), landmarks, n_rows)


def embedder_of(
    settings: Settings,
    between: FloatArray,
    shape: tuple[int, int],
    exponent: int,
    signed: bool = False,
    weights: IntArray | None = None,
) -> Embedder:
    """The landmarks embedded by their dissimilarities (m, m), in units of 2^exponent, of data of some shape."""
    try:
        model = fitted_model(settings.choice(exponent, signed), between, weights)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} (n_samples={shape[0]}, n_features={shape[1]})") from error
    lengths = METHODS[settings.method].coordinates_are_lengths
    is_restricted = resolved_extension(settings.method, settings.extension) == "restricted"
    wanted = "restricted" if is_restricted else "projection"
    answers = weighted_answers(model, settings.diagonal_weight, settings.spread)
    return Embedder(answers, wanted, exponent, exponent if lengths else 0, dict(LOADED.trust_columns))


class Distinct(NamedTuple):
    """Distinct rows as points (u, D) in units of 2^exponent; the first row (u,) of each, and each row's point (n,)."""

    points: AnyArray
    first_rows: IntArray
    node_of: IntArray
    exponent: int


def distinct_points(X: AnyArray) -> Distinct:
    """The rows of X, each counted once, scaled so that every square stays within range."""
    checks.require_not_too_small("X", X)
    exponent = int(np.frexp(np.abs(X).max())[1])
    return _distinct(np.ldexp(X, -exponent), exponent, "are identical")


def distinct_directions(X: AnyArray, metric: str) -> Distinct:
    """The directions of the rows of X by a metric, each counted once; an error by number for those that have none."""
    require_directions("X", X, metric)
    return _distinct(unit_points(X, metric, X.dtype), 0, "have the same direction")


def _distinct(points: AnyArray, exponent: int, alike: str) -> Distinct:
    first_rows, node_of, _ = collapse_duplicates(points)
    if len(first_rows) == 1:
        raise InvalidInputError(f"all {len(points)} rows of X {alike}; there is nothing to embed.")
    return Distinct(points[first_rows], first_rows, node_of, exponent)


def in_unit(rows: AnyArray, exponent: int) -> FloatArray:
    """New rows (p, D) in units of 2^exponent, those of the training data, as far as that can be squared."""
    points = np.ldexp(rows.astype(np.float64), -exponent)
    if np.abs(points).max() > checks.LARGEST_SIZE:
        raise InvalidInputError(
            f"X reaches {np.abs(rows).max():g} in absolute value, beyond {checks.LARGEST_SIZE:g} times the "
            "training data; its squared distances would leave double precision: drop or rescale such rows."
        )
    return np.asarray(points)


def chunks(n_rows: int) -> Iterator[slice]:
    return (slice(first, first + ROWS_PER_CHUNK) for first in range(0, n_rows, ROWS_PER_CHUNK))


def require_square(X: "AnyArray | SparseArray") -> None:
    if X.shape[0] != X.shape[1]:
        raise InvalidInputError(
            f"X has shape {X.shape}; with metric='precomputed' it must be square, a row and a column for each point."
        )
