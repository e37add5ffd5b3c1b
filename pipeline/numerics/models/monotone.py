"""Non-metric scaling: stress against the best monotone function of the dissimilarities [G eq. 20-21].

stress^2 = S / T with S = sum over pairs of (d_ij - f_ij)^2 and T = sum of d_ij^2, f the disparities: the isotonic
regression of d on the dissimilarities. This is Kruskal's stress-1; [G eq. 21] writes f around d_y and divides by d_x,
which stretching f to a constant would minimize.

Ties are treated the primary way: pairs with the same dissimilarity may have different disparities. Their fit is d
clipped to an interval [lower, upper]; the intervals rise with the dissimilarity and mostly have length 0. A
dissimilarity of 0 has the disparity 0, as it means "the same object".

As f is a projection of d onto a cone, S has the gradient 2 sum (d - f) grad d, as if f were constant; and where the
pools of the regression do not change, f changes by the mean change of d over each pool. `pools` (m, m) is FREE where f
= d within an interval, and the last pool where the dissimilarity is 0.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from pipeline.numerics.compiled import compiled
from pipeline.numerics.inverse.algebra import mirror
from pipeline.numerics.models.smacof import (
    EPSILON,
    Point,
    add_curvature,
    rounding_of,
    squared_lengths_from,
    stress_terms,
)
from pipeline.types import AnyArray, FloatArray, IntArray

FREE = -1
# Larger classes of ties are sorted by numpy, which is faster in spite of the call.
LARGE_CLASS = 256


class MonotoneMap(NamedTuple):
    """Dissimilarity -> interval of disparities, by knots (q,) rising from 0 with intervals [lower, upper] (q,). Linear
    between knots, from the upper end of one to the lower end of the next; beyond the last, proportional."""

    knots: FloatArray
    lower: FloatArray
    upper: FloatArray

    def intervals(self, dissimilarities: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, of the shape of `dissimilarities`."""
        before = np.searchsorted(self.knots, dissimilarities, side="right") - 1
        after = np.minimum(before + 1, len(self.knots) - 1)
        gap = self.knots[after] - self.knots[before]
        share = (dissimilarities - self.knots[before]) / np.where(gap > 0, gap, 1.0)
        between = self.upper[before] + share * (self.lower[after] - self.upper[before])
        beyond = dissimilarities * (self.upper[-1] / self.knots[-1])
        value = np.where(gap > 0, between, np.maximum(beyond, self.upper[-1]))
        at_knot = dissimilarities == self.knots[before]
        return np.where(at_knot, self.lower[before], value), np.where(at_knot, self.upper[before], value)


class Regression(NamedTuple):
    """Disparities (n,) of the pairs by rising dissimilarity, ties by distance, and where their pools begin (q + 1,)."""

    disparities: FloatArray
    bounds: IntArray


@dataclass(frozen=True, eq=False)
class MonotonePoint(Point):
    """Squared stress-1 at one configuration."""

    regression: Regression
    distances: FloatArray
    pools: AnyArray
    pulls: FloatArray

    def curvature(self, direction: FloatArray) -> FloatArray:
        """(S'' - value T'' - gradient T'^T - T' gradient^T) / T, applied to a direction."""
        m = len(self.distances)
        product = np.zeros_like(direction)
        add_curvature(self.columns, self.pulls, np.ones((1, m)), direction, product)
        # Pairs in each pool; the disparities of the last, that of dissimilarity 0, never change.
        sizes = np.append(np.diff(self.regression.bounds).astype(np.float64), np.inf)
        means = np.zeros_like(sizes)
        _add_rates(self.columns, direction, self.distances, self.pools, means)
        means /= sizes
        _subtract_following(self.columns, direction, self.distances, self.pools, means, product)
        product -= 2 * m * self.value * _centered(direction)
        mass_slope = 2 * m * _centered(self.columns)
        product -= self.gradient * np.vdot(mass_slope, direction) + mass_slope * np.vdot(self.gradient, direction)
        return np.asarray(product / _mass(self.columns))

    def preconditioned(self, gradient: FloatArray) -> FloatArray:
        m = len(self.distances)
        return np.asarray(gradient * (-0.5 * _mass(self.columns) / (m * (1 - self.value))))


class MonotoneStress:
    """Squared stress-1 against dissimilarities (m, m)."""

    def __init__(self, between: FloatArray) -> None:
        flat = np.flatnonzero(np.triu(between, 1))
        # (n,) flat places of the pairs i < j with positive dissimilarities, by rising dissimilarity.
        self._order = flat[np.argsort(between.ravel()[flat], kind="stable")]
        dissimilarities = between.ravel()[self._order]
        # (c + 1,) where the classes of equal dissimilarities begin.
        self._starts = np.append(np.flatnonzero(np.diff(dissimilarities, prepend=-1.0) > 0), len(dissimilarities))
        self._distinct = dissimilarities[self._starts[:-1]]
        sizes = np.diff(self._starts)
        classes = np.c_[self._starts[:-1], self._starts[1:]]
        self._small = classes[(sizes > 1) & (sizes <= LARGE_CLASS)]
        self._large = classes[sizes > LARGE_CLASS]

    def at(self, columns: FloatArray) -> MonotonePoint:
        m = columns.shape[1]
        distances = _distances(columns)
        regression, targets, pools = self._disparities(distances)
        misfit, gradient, pulls = stress_terms(columns, targets, np.ones((1, m)))
        mass = _mass(columns)
        value = misfit / mass
        gradient = (gradient - 2 * m * value * _centered(columns)) / mass
        rounding = rounding_of(misfit, mass) / mass + EPSILON * value
        return MonotonePoint(columns, value, rounding, gradient, regression, distances, pools, pulls)

    def map_of(self, point: MonotonePoint) -> MonotoneMap:
        """The fitted map, without the knots inside a run of one constant disparity, which change nothing."""
        disparities = point.regression.disparities
        knots = np.concatenate([[0.0], self._distinct])
        lower = np.concatenate([[0.0], disparities[self._starts[:-1]]])
        upper = np.concatenate([[0.0], disparities[self._starts[1:] - 1]])
        inner = np.zeros(len(knots), dtype=bool)
        inner[1:-1] = (lower[1:-1] == upper[:-2]) & (upper[1:-1] == lower[2:]) & (lower[1:-1] == upper[1:-1])
        return MonotoneMap(knots[~inner], lower[~inner], upper[~inner])

    def _disparities(self, distances: FloatArray) -> tuple[Regression, FloatArray, AnyArray]:
        """The regression, its disparities (m, m) and the pools (m, m)."""
        values = distances.ravel()[self._order]
        in_classes = values.copy()
        for start, stop in self._large:
            in_classes[start:stop].sort()
        _sort_slices(in_classes, self._small)
        found = scipy.optimize.isotonic_regression(in_classes)
        regression = Regression(np.asarray(found.x), np.asarray(found.blocks))
        pool = np.repeat(np.arange(len(regression.bounds) - 1, dtype=np.int32), np.diff(regression.bounds))
        order = self._order, self._starts
        return regression, *_scattered(len(distances), values, *order, regression.disparities, pool)


def _centered(columns: FloatArray) -> FloatArray:
    return np.asarray(columns - columns.mean(axis=1, keepdims=True))


def _mass(columns: FloatArray) -> float:
    """T, the sum over pairs of d_ij^2."""
    return float(columns.shape[1] * (_centered(columns) ** 2).sum())


@compiled
def _sort_slices(values: AnyArray, bounds: AnyArray) -> None:
    for start, stop in bounds:
        values[start:stop].sort()


@compiled
def _distances(columns: AnyArray) -> FloatArray:
    distances = np.empty((columns.shape[1], columns.shape[1]))
    for i in range(len(distances)):
        squared_lengths_from(columns, i, distances[i])
        for j in range(len(distances)):
            distances[i, j] = math.sqrt(distances[i, j])
    return distances


@compiled
def _scattered(
    m: int, values: AnyArray, order: AnyArray, starts: AnyArray, disparities: AnyArray, pool: AnyArray
) -> tuple[FloatArray, AnyArray]:
    """Distances (m, m) clipped to the intervals of their classes, and the pool of the end that they were clipped to."""
    targets, pools = np.zeros(m * m), np.full(m * m, pool[-1] + 1, dtype=np.int32)
    for which in range(len(starts) - 1):
        first, last = starts[which], starts[which + 1] - 1
        lower, upper = disparities[first], disparities[last]
        for place in range(first, last + 1):
            distance = values[place]
            targets[order[place]] = min(max(distance, lower), upper)
            if lower < distance < upper:
                pools[order[place]] = FREE
            else:
                pools[order[place]] = pool[first] if distance <= lower else pool[last]
    both = targets.reshape(m, m), pools.reshape(m, m)
    mirror(both[0], m)
    mirror(both[1], m)
    return both


@compiled
def _fill_rates(columns: AnyArray, direction: AnyArray, distances: AnyArray, i: int, rates: AnyArray) -> None:
    """rates[j]: how fast the distance from i to j grows along a direction; 0 where they coincide."""
    rates[:] = 0.0
    for k in range(len(columns)):
        for j in range(len(rates)):
            rates[j] += (columns[k, j] - columns[k, i]) * (direction[k, j] - direction[k, i])
    for j in range(len(rates)):
        rates[j] /= distances[i, j] if distances[i, j] > 0.0 else np.inf


@compiled
def _add_rates(columns: AnyArray, direction: AnyArray, distances: AnyArray, pools: AnyArray, sums: AnyArray) -> None:
    """Sums of the rates over each pool, in the order of the pairs."""
    m = len(distances)
    rates = np.empty(m)
    for i in range(m):
        _fill_rates(columns, direction, distances, i, rates)
        for j in range(i + 1, m):
            if pools[i, j] != FREE:
                sums[pools[i, j]] += rates[j]


@compiled
def _subtract_following(
    columns: AnyArray, direction: AnyArray, distances: AnyArray, pools: AnyArray, means: AnyArray, product: AnyArray
) -> None:
    """product_j -= 2 sum_i u (change of the disparity), u the unit vector from x_i to x_j."""
    d, m = columns.shape
    changes = np.empty(m)
    for i in range(m):
        _fill_rates(columns, direction, distances, i, changes)
        for j in range(m):
            if pools[i, j] != FREE:
                changes[j] = means[pools[i, j]]
            changes[j] *= 2.0 / (distances[i, j] if distances[i, j] > 0.0 else np.inf)
        for k in range(d):
            for j in range(m):
                product[k, j] -= changes[j] * (columns[k, j] - columns[k, i])
