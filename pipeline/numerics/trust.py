"""How far to trust a point's coordinates [T sec. 5, 6].

residual    beta - y'y at the projection y: the squared part of the point outside the landmarks' space for Euclidean
            dissimilarities; for geodesics it can be negative
multiplier  mu of the restricted reconstruction
gap         distance between the projection and the restricted reconstruction
nearest     distance to the nearest point that was fitted
"""

from typing import NamedTuple

import numpy as np

from pipeline.numerics.extension.moments import Moments, MomentSums
from pipeline.numerics.extension.projection import project_moments
from pipeline.numerics.extension.restricted import reconstruct_moments
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


def stacked(parts: list[Placed], model: LandmarkModel) -> Placed:
    """Results of consecutive points as one."""
    return Placed(*(np.concatenate(columns) for columns in zip(nowhere(0, model), *parts, strict=True)))


def nowhere(n_points: int, model: LandmarkModel) -> Placed:
    """What is known of points that are not embedded: nothing."""
    projection, restricted = (np.full((n_points, model.n_components), np.nan) for _ in range(2))
    residual, multiplier, gap = (np.full(n_points, np.nan) for _ in range(3))
    return Placed(projection, restricted, residual, multiplier, gap, np.zeros(n_points, dtype=np.bool_))


def among_others(known: Placed, kept: BoolArray, model: LandmarkModel) -> Placed:
    """Results of those points that are kept, among all of them."""
    if kept.all():
        return known
    everything = nowhere(len(kept), model)
    for whole, part in zip(everything, known, strict=True):
        whole[kept] = part
    return everything


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
