"""Dissimilarities or similarities given instead of points: of all points to all, or of all points to the landmarks."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import DiagonalWarning, InvalidInputError
from pipeline.estimator.base import Fitted, counts_of, require_square
from pipeline.estimator.direct import Measure, Measured, require_dissimilarities, require_nonnegative
from pipeline.estimator.settings import Settings
from pipeline.methods import METHODS, SIMILARITIES
from pipeline.numerics import checks
from pipeline.numerics.checks import Entries
from pipeline.numerics.extension.spread import require_spare_landmark
from pipeline.numerics.landmarks.choices import chosen_by_dissimilarities
from pipeline.numerics.models.metrics import dissimilarities_from_similarities, impossible_in_words
from pipeline.types import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Similarities (p, c) of points to others, and if distances are made of them, of each point to itself (p,)."""

    values: AnyArray
    own: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __getitem__(self, some: slice) -> "GivenRows":
        return GivenRows(self.values[some], self.own[some])


@dataclass(frozen=True, eq=False)
class GivenColumns(Measure):
    """Rows are dissimilarities to training points, of which those in some columns (m,) are the landmarks."""

    columns: IntArray
    exponent: int

    def check(self, rows: AnyArray) -> None:
        require_nonnegative("X", rows)

    def to_landmarks(self, rows: AnyArray) -> FloatArray:
        return np.asarray(np.ldexp(taken(rows, self.columns), -self.exponent))

    @property
    def instead(self) -> str:
        """What else can be done where it is not known how far new points are from each other."""
        return ", or use between='bound', the shortest way over a landmark"

    def between(self, rows: Any) -> FloatArray:
        raise InvalidInputError(
            "between=None: what the new points are to each other is not known where proximities were fitted; give it "
            f"as an array, a row and a column for each{self.instead}."
        )


@dataclass(frozen=True, eq=False)
class GivenAffinities(GivenColumns):
    """Rows are similarities that are taken as they are."""

    def check(self, rows: AnyArray) -> None:
        require_nonnegative("X", rows, "affinities")


@dataclass(frozen=True, eq=False)
class GivenSimilarities(GivenColumns):
    """Rows are similarities, from which dissimilarities are induced [T eq. 2-5]; `own` (m,) are those of the landmarks
    to themselves."""

    own: FloatArray
    instead = ""

    def check(self, rows: Any) -> None:
        """They may be negative."""

    def to_landmarks(self, rows: Any) -> FloatArray:
        similarities = taken(rows.values, self.columns)
        return dissimilarities_from_similarities(similarities, rows.own, self.own, self.exponent)

    def between_as_given(self, given: FloatArray, rows: Any) -> FloatArray:
        checks.require_symmetric(Entries("between", given))
        found = dissimilarities_from_similarities(given, rows.own, rows.own, self.exponent)
        return checks.symmetrized(found, zero_diagonal=True)


def taken(rows: AnyArray, columns: IntArray) -> FloatArray:
    """Some columns in double precision. Rows stay contiguous, as compiled loops take them."""
    return np.asarray(np.take(rows, columns, axis=1).astype(np.float64, copy=False))


def fit_given(settings: Settings, X: AnyArray, own: ArrayLike | None, seed: int) -> Fitted:
    """Fit proximities (n, n) between all points, or (n, m) of all points to the landmarks."""
    if settings.landmark_indices is None:
        require_square(X)
    if settings.input != SIMILARITIES:
        require_nonnegative("X", X)
        checks.require_not_too_small("X", X)
    if not X.any():
        raise InvalidInputError("X is 0 everywhere; there is nothing to embed.")
    chosen, columns = _landmarks(settings, X, seed)
    measured = _measured(settings, X, own, chosen, columns)
    numbers, once = np.arange(len(X)), np.ones(len(X), np.int64)
    weights = counts_of(settings, measured.of_points, chosen, numbers, once)
    return replace(measured.space(settings, X.shape, len(X), weights), landmarks=chosen)


def _landmarks(settings: Settings, X: AnyArray, seed: int) -> tuple[IntArray, IntArray]:
    """The points that are landmarks (m,), and their columns (m,)."""
    if settings.landmark_indices is not None:
        return _landmarks_named(settings, X)
    m = settings.landmark_count(len(X), f"X has {len(X)} rows")

    def between(rows: IntArray) -> FloatArray:
        return checks.symmetrized(X[np.ix_(rows, rows)], zero_diagonal=True)

    chosen = chosen_by_dissimilarities(settings.selection, len(X), between, m, seed)
    return chosen, chosen


def _landmarks_named(settings: Settings, X: AnyArray) -> tuple[IntArray, IntArray]:
    chosen = checks.row_indices("landmark_indices", np.asarray(settings.landmark_indices), len(X))
    n_different = len(np.unique(chosen))
    if len(chosen) != X.shape[1] or n_different != len(chosen):
        raise InvalidInputError(
            f"landmark_indices has {len(chosen)} rows of X, {n_different} of them different, and X has shape "
            f"{X.shape}; X must have a row for each point and a column for each landmark, in the order of "
            "landmark_indices: transpose it if it is the other way round."
        )
    checks.integer_in_range("n_components", settings.components, 1, len(chosen) - 1, "fewer than landmarks")
    if settings.n_landmarks not in ("auto", len(chosen)):
        raise InvalidInputError(
            f"n_landmarks={settings.n_landmarks} does not go with landmark_indices, which names {len(chosen)}; leave "
            "it at 'auto'."
        )
    if settings.spread:
        require_spare_landmark(len(chosen), settings.components)
    return chosen, np.arange(len(chosen))


def _measured(settings: Settings, X: AnyArray, own: ArrayLike | None, chosen: IntArray, columns: IntArray) -> Measured:
    between = Entries("X", X[np.ix_(chosen, columns)], chosen, chosen)
    checked = Entries("X", X) if settings.landmark_indices is None else between
    if settings.input != SIMILARITIES:
        require_dissimilarities(checked)
        return _by_dissimilarities(X, checks.symmetrized(between.matrix, zero_diagonal=True), chosen, columns)
    checks.require_symmetric(checked)
    exact = checks.symmetrized(between.matrix, zero_diagonal=False)
    if settings.takes_affinities:
        return _by_affinities(settings, X, exact, chosen, columns)
    has_diagonal = own is None and settings.landmark_indices is None
    rows = GivenRows(X, X.diagonal().astype(np.float64) if has_diagonal else own_similarities_of(own, X))
    largest = float(np.abs(taken(X, columns)).max())
    own_of_landmarks = exact.diagonal().copy()
    measure = GivenSimilarities(columns, int(np.frexp(largest)[1]) // 2, own_of_landmarks)
    if said := impossible_in_words(exact):
        warnings.warn(said, DiagonalWarning, stacklevel=5)
    scaled = dissimilarities_from_similarities(exact, own_of_landmarks, own_of_landmarks, measure.exponent)
    return Measured(measure, scaled, lambda chunk: measure.to_landmarks(rows[chunk]), signed=True)


def _by_dissimilarities(X: AnyArray, between: FloatArray, chosen: IntArray, columns: IntArray) -> Measured:
    measure = GivenColumns(columns, int(np.frexp(X.max())[1]))
    # X may have rounding there, and a point beside a landmark is not always placed beside it.
    of_points = _with_own(lambda chunk: measure.to_landmarks(X[chunk]), chosen, lambda rows: np.zeros(len(rows)))
    return Measured(measure, np.ldexp(between, -measure.exponent), of_points)


def _by_affinities(
    settings: Settings, X: AnyArray, between: FloatArray, chosen: IntArray, columns: IntArray
) -> Measured:
    measure = GivenAffinities(columns, 0)
    measure.check(X)
    of_points: Callable[[slice], FloatArray] = lambda chunk: measure.to_landmarks(X[chunk])  # noqa: E731
    if METHODS[settings.method].returns_by_itself:
        # Nothing is nearer to a landmark than it is to itself, whatever stands on the diagonal.
        of_points = _with_own(of_points, chosen, partial(np.max, axis=1))
    return Measured(measure, between, of_points)


def _with_own(
    of_points: Callable[[slice], FloatArray], landmarks: IntArray, own: Callable[[FloatArray], FloatArray]
) -> Callable[[slice], FloatArray]:
    """Proximities (p, m) of consecutive points, with those of landmarks to themselves replaced."""

    def replaced(chunk: slice) -> FloatArray:
        found = of_points(chunk)
        here = np.flatnonzero((chunk.start <= landmarks) & (landmarks < chunk.stop))
        rows = landmarks[here] - chunk.start
        found[rows, here] = own(found[rows]) if len(rows) else 0.0
        return found

    return replaced


def own_similarities_of(own: ArrayLike | None, X: AnyArray) -> FloatArray:
    """Similarities (p,) of points to themselves, as a user gives them for the rows of X."""
    if own is None:
        raise InvalidInputError(
            "X does not have the similarities of its points to themselves, which distances between them need; give "
            "them as own_similarities, one for each row."
        )
    values = checks.finite_array("own_similarities", own, 1).astype(np.float64)
    checks.require_not_too_large("own_similarities", values)
    if len(values) != X.shape[0]:
        raise InvalidInputError(
            f"own_similarities has {len(values)} entries; X has {X.shape[0]} rows: one is needed for each."
        )
    return values
