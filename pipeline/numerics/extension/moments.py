"""What a new point's dissimilarities say about it: c = X'b and beta, d + 1 numbers [T eq. 6, 9].

| symbol | variable               | shape  |
|--------|------------------------|--------|
| a_2    | squared_to_landmarks   | (p, m) |
| X      | model.coordinates      | (m, d) |
| mean_i | model.row_means        | (m,)   |
| g      | model.grand_mean       | ()     |
| c      | inner                  | (p, d) |
| beta   | beta                   | (p,)   |

X is centered, so c = X'b = -1/2 X'(a_2 - mean_i): the constants of b drop out. And the mean of mean_i is g, so
beta = mean(a_2) - g/2 = mean(a_2 - mean_i) + g/2.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.mds import LandmarkModel
from pipeline.types import AnyArray, FloatArray

# Points per pass: their accumulators and differences stay in the first-level cache. Each point's sum runs over the
# landmarks in order, whatever block it falls into, so this number does not touch the bytes of a result.
POINTS_PER_BLOCK = 128
LANDMARKS_PER_PASS = 4


class Moments(NamedTuple):
    """c = X'b (p, d) and beta (p,) of p points."""

    inner: FloatArray
    beta: FloatArray


def landmark_moments(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> Moments:
    """The moments of points given by their (p, m) squared dissimilarities to the landmarks."""
    squared = _checked(model, squared_to_landmarks)
    inner = np.empty((len(squared), model.n_components))
    mean_excess = np.empty(len(squared))
    coordinates, row_means = _padded(model.coordinates), _padded(model.row_means)
    _accumulate(squared, coordinates, row_means, inner, mean_excess)
    beta = mean_excess + model.grand_mean / 2
    # Checked on the d + 1 sums, not on m entries a row: a NaN or infinity among the entries always reaches them.
    if not (np.isfinite(inner).all() and (np.abs(beta) <= checks.LARGEST_SIZE).all()):
        checks.require_finite("squared_to_landmarks", squared)
        checks.require_not_too_large("squared_to_landmarks", squared)
    return Moments(inner, beta)


class MomentSums:
    """The moments of p points whose dissimilarities to the landmarks come a few landmarks at a time, in their order.

    To the bit those that `landmark_moments` has of their squares: every point's sum runs over the landmarks in order.
    """

    def __init__(self, model: LandmarkModel, n_points: int) -> None:
        self._model, self._n_added = model, 0
        self._sums = np.zeros((model.n_components + 1, n_points))

    def add(self, to_landmarks: AnyArray) -> None:
        """Bring in the dissimilarities (p, b), not squared, to the next b landmarks; of signed ones the signed root."""
        landmarks = slice(self._n_added, self._n_added + to_landmarks.shape[1])
        model = self._model
        _add_squares(to_landmarks, model.constant, model.coordinates[landmarks], model.row_means[landmarks], self._sums)
        self._n_added = landmarks.stop

    def moments(self) -> Moments:
        """What the sums come to, once all landmarks are in; an error if they are not finite."""
        if self._n_added != self._model.n_landmarks:
            raise InvalidInputError(
                f"dissimilarities to {self._n_added} landmarks were given, of {self._model.n_landmarks}; give all."
            )
        inner = np.ascontiguousarray(-0.5 * self._sums[:-1].T)
        beta = self._sums[-1] / self._n_added + self._model.grand_mean / 2
        if not (np.isfinite(inner).all() and (np.abs(beta) <= checks.LARGEST_SIZE).all()):
            raise InvalidInputError("dissimilarities to landmarks are NaN, infinite or too large to be squared.")
        return Moments(inner, beta)


def _checked(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> AnyArray:
    squared = checks.real_array("squared_to_landmarks", squared_to_landmarks, 2, allow_empty=True)
    if squared.shape[1] != model.n_landmarks:
        raise InvalidInputError(
            f"squared_to_landmarks has shape {squared.shape}; it must be (n_points, {model.n_landmarks}), a row for "
            "each point and a column for each landmark of the model."
        )
    if len(squared) and not model.signed:
        checks.require_nonnegative("squared_to_landmarks", squared)
    return squared


def _padded(per_landmark: FloatArray) -> FloatArray:
    """Zeros appended up to a whole number of passes; a zero coordinate adds exactly nothing to a sum."""
    extra = -len(per_landmark) % LANDMARKS_PER_PASS
    return np.concatenate([per_landmark, np.zeros((extra, *per_landmark.shape[1:]))])


@compiled
def _accumulate(
    squared: AnyArray, coordinates: AnyArray, row_means: AnyArray, inner: AnyArray, mean_excess: AnyArray
) -> None:
    """inner = -1/2 (squared - row_means) @ coordinates, and the row means of (squared - row_means)."""
    n_points, m = squared.shape
    d = coordinates.shape[1]
    sums = np.empty((d + 1, POINTS_PER_BLOCK))
    terms = np.zeros((LANDMARKS_PER_PASS, POINTS_PER_BLOCK))
    for first in range(0, n_points, POINTS_PER_BLOCK):
        size = min(POINTS_PER_BLOCK, n_points - first)
        sums[:] = 0.0
        for i in range(0, len(row_means), LANDMARKS_PER_PASS):
            _load_terms(terms, squared, row_means, first, size, i)
            for k in range(d):
                x = coordinates[i : i + LANDMARKS_PER_PASS, k]
                _add_terms(sums[k], terms, size, x[0], x[1], x[2], x[3])
            _add_terms(sums[d], terms, size, 1.0, 1.0, 1.0, 1.0)
        for j in range(size):
            for k in range(d):
                inner[first + j, k] = -0.5 * sums[k, j]
            mean_excess[first + j] = sums[d, j] / m


@compiled
def _load_terms(terms: AnyArray, squared: AnyArray, row_means: AnyArray, first: int, size: int, landmark: int) -> None:
    """terms[s, j] = squared - row_means for a pass of landmarks and a block of points; 0 past the last landmark."""
    for s in range(LANDMARKS_PER_PASS):
        if landmark + s < squared.shape[1]:
            for j in range(size):
                terms[s, j] = squared[first + j, landmark + s] - row_means[landmark + s]
        else:
            terms[s, :] = 0.0


@compiled
def _add_terms(sums: AnyArray, terms: AnyArray, size: int, x0: float, x1: float, x2: float, x3: float) -> None:
    """sums[j] += x . terms[:, j], one landmark after the other: vectorized across points, never across landmarks."""
    for j in range(size):
        total = sums[j] + x0 * terms[0, j]
        total = total + x1 * terms[1, j]
        total = total + x2 * terms[2, j]
        sums[j] = total + x3 * terms[3, j]


@compiled
def _add_squares(
    to_landmarks: AnyArray, constant: float, coordinates: AnyArray, row_means: AnyArray, sums: AnyArray
) -> None:
    """sums[k] += (to_landmarks^2 - row_means) @ coordinates[:, k], and the last of them with 1 for the coordinates.

    The constant is added to all but the distance of an object to itself. Squares keep the sign of what is squared."""
    n_points, n_landmarks = to_landmarks.shape
    d = coordinates.shape[1]
    terms = np.empty(POINTS_PER_BLOCK)
    for first in range(0, n_points, POINTS_PER_BLOCK):
        size = min(POINTS_PER_BLOCK, n_points - first)
        for i in range(n_landmarks):
            for j in range(size):
                length = np.float64(to_landmarks[first + j, i])
                length += constant if length > 0.0 else 0.0
                terms[j] = length * abs(length) - row_means[i]
            for k in range(d):
                _add_term(sums[k, first : first + size], terms, coordinates[i, k])
            _add_term(sums[d, first : first + size], terms, 1.0)


@compiled
def _add_term(sums: AnyArray, terms: AnyArray, x: float) -> None:
    for j in range(len(sums)):
        sums[j] += x * terms[j]
