"""Metrics for which only the direction of a row counts: rows as unit vectors, and what lies between two of them.

The distance between unit vectors u and v, the chord c = ||u - v||, orders pairs as each of these metrics does, so
neighbors are found by chords, and only what an edge weighs depends on the metric:

| metric      | u                  | length                               | chord of a length r |
|-------------|--------------------|--------------------------------------|---------------------|
| cosine      | x / ||x||          | 1 - u.v = c^2 / 2                    | sqrt(2 r)           |
| angular     | x / ||x||          | the angle arccos(u.v) = 2 asin(c/2)  | 2 sin(r/2)          |
| correlation | x less its mean,   | 1 - Pearson's correlation            | sqrt(2 r)           |
|             | by its length      | of the rows = c^2 / 2                |                     |

From chords all are exact for near points, where 1 - u.v cancels. Any other metric's lengths are its distances.

Rows that are multiples of each other have the same direction but for rounding. So that they become the same point,
unit vectors of double precision are rounded to multiples of 2^-32, whose errors of 1e-10 are far below what separates
points and a million times the rounding that tells multiples apart; in single precision the format itself rounds.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pipeline.errors import InvalidInputError
from pipeline.methods import DIRECTIONAL
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Entries of unit vectors in double precision are multiples of 2^-FRACTION_BITS.
FRACTION_BITS = 32
# Entries of rows normalized at once: what that takes beside its result is a few times 8 MB.
ENTRIES_AT_ONCE = 1 << 20
LISTED_ROWS = 5


def unit_points(rows: AnyArray, metric: str, dtype: DTypeLike) -> AnyArray:
    """The directions (p, D) of rows by a metric of DIRECTIONAL, in `dtype`: zeros for a row without a direction, NaN
    for one that is not finite."""
    units = np.empty(rows.shape, dtype=dtype)
    n_together = max(1, ENTRIES_AT_ONCE // max(1, rows.shape[1]))
    for first in range(0, len(rows), n_together):
        part = slice(first, first + n_together)
        values = rows[part].astype(np.float64)
        finite = np.isfinite(values).all(axis=1, keepdims=True)
        found, _ = unit_rows(centered_for(metric, np.where(finite, values, 0.0)))
        units[part] = np.where(finite, _rounded(found) if units.dtype == np.float64 else found, np.nan)
    return units


def _rounded(units: FloatArray) -> FloatArray:
    return np.asarray(np.ldexp(np.rint(np.ldexp(units, FRACTION_BITS)), -FRACTION_BITS))


def edge_lengths(metric: str, chords: FloatArray) -> FloatArray:
    """What lies between points that are so far apart: the distances themselves, or by DIRECTIONAL what chords mean. An
    infinite chord, to nobody, is infinitely long."""
    if metric not in DIRECTIONAL:
        return chords
    return np.where(np.isinf(chords), chords, from_squared_chords(metric, chords * chords))


def from_squared_chords(metric: str, squares: FloatArray) -> FloatArray:
    """Lengths by a metric of DIRECTIONAL in the place of squared chords."""
    if metric == "angular":
        halves = np.sqrt(squares, out=squares)
        halves *= 0.5
        # Rounding may take the chord of opposite points beyond 2.
        np.arcsin(np.minimum(halves, 1.0, out=halves), out=halves)
        halves *= 2.0
        return halves
    squares *= 0.5
    return squares


def chords_of(metric: str, lengths: FloatArray) -> FloatArray:
    """How far apart points are with so much between them: the inverse of `edge_lengths`. Beyond half a turn, where
    there is nothing, some distance above 2."""
    if metric not in DIRECTIONAL:
        return lengths
    if metric != "angular":
        return np.sqrt(2.0 * lengths)
    return np.where(lengths < math.pi, 2.0 * np.sin(0.5 * np.minimum(lengths, math.pi)), lengths)


def reach_of(metric: str, radius: float) -> float:
    """How far apart points may be that are within a radius by a metric."""
    return float(chords_of(metric, np.array([radius]))[0])


def require_directions(name: str, rows: AnyArray, metric: str, numbers: IntArray | None = None) -> None:
    """Refuse rows without a direction if `metric` needs one; the error calls them by their `numbers`."""
    if metric not in DIRECTIONAL:
        return
    bad = np.flatnonzero(~have_directions(rows, metric))
    refuse_undirected(name, len(bad), (bad if numbers is None else numbers[bad])[:LISTED_ROWS], metric)


def have_directions(rows: AnyArray, metric: str) -> BoolArray:
    """Whether each row has a direction by a metric of DIRECTIONAL: not all zeros, or for correlation not all equal."""
    found = (rows != rows[:, :1]).any(axis=1) if metric == "correlation" else rows.any(axis=1)
    return np.asarray(found, dtype=np.bool_)


def refuse_undirected(name: str, n_rows: int, first: ArrayLike, metric: str) -> None:
    """Refuse so many rows without a direction, if there are any; `first` (r,) are the numbers of some."""
    if n_rows:
        what = "rows of equal entries" if metric == "correlation" else "rows of zeros"
        raise InvalidInputError(
            f"{name} has {n_rows} {what}, first in row{'s' * (n_rows > 1)} {', '.join(map(str, np.ravel(first)))}; "
            f"{metric!r} is not defined for them: drop those rows or use another metric."
        )


def centered_for(metric: str, rows: AnyArray) -> AnyArray:
    """Rows whose angles `metric` measures: less their means for correlation, or as they are."""
    return _centered(rows) if metric == "correlation" else rows


@compiled
def unit_rows(rows: AnyArray) -> tuple[FloatArray, BoolArray]:
    """Rows (p, D) divided by their lengths, and whether each has one (p,); rows of zeros stay zeros. Rows are first
    divided by their largest entry, so that no square overflows or vanishes."""
    units, has_length = np.zeros(rows.shape), np.empty(len(rows), dtype=np.bool_)
    for i in range(len(rows)):
        largest, total = 0.0, 0.0
        for k in range(rows.shape[1]):
            largest = max(largest, abs(np.float64(rows[i, k])))
        has_length[i] = largest > 0.0
        if largest > 0.0:
            for k in range(rows.shape[1]):
                units[i, k] = np.float64(rows[i, k]) / largest
                total += units[i, k] * units[i, k]
            length = math.sqrt(total)
            for k in range(rows.shape[1]):
                units[i, k] = units[i, k] / length
    return units, has_length


@compiled
def _centered(rows: AnyArray) -> FloatArray:
    """Rows less their means, computed relative to the first entry so that equal entries give exactly zeros."""
    centered = np.empty(rows.shape)
    for i in range(len(rows)):
        origin, total = np.float64(rows[i, 0]), 0.0
        for k in range(rows.shape[1]):
            centered[i, k] = np.float64(rows[i, k]) - origin
            total += centered[i, k]
        mean = total / rows.shape[1]
        for k in range(rows.shape[1]):
            centered[i, k] = centered[i, k] - mean
    return centered
