"""Minimizing stress: majorization to come near, Newton steps to converge [G eq. 16-29].

sigma(X) = sum over pairs of w_ij (d_ij - t_ij)^2, d_ij = |x_i - x_j|. The derivative for one point sums over the other
points only ([G eq. 26] and [G eq. 28] have a sum over i too many):

    d sigma / d x_i = 2 sum_j w_ij (1 - t_ij / d_ij) (x_i - x_j)

SMACOF's step, the Guttman transform, is -1/2 V^+ times that, V the Laplacian of the weights. It never raises the
stress, but its steps shrink by a few percent only, so small steps say little about the remaining distance. After some
of them, Newton steps by conjugate gradients in a trust region, preconditioned with V, converge quadratically and can
leave saddle points; the size of a Newton step is the remaining distance.

`columns` (d, m) is X', so that loops over points run along memory; `weights` is (m, m), or (1, m) if the same for every
row; `pulls` (m, m) is w t/d, 0 where d = 0.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import scipy

from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray

EPSILON, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
# Relative to the configuration's size: the Guttman step at which Newton's method takes over, the Newton step that ends
# the descent, and the Guttman step that is only rounding.
COARSE_STEP, FINE_STEP, FINEST_STEP = 1e-5, 1e-10, 1e-12
# Curvature, relative to V, that is only rounding: rigid motions have none and lead to no minimum.
FLAT = 1e-10
MAX_NEWTON_STEPS, MAX_CONJUGATE_STEPS = 1000, 200
# Least and most Guttman steps; between, as many as visit MAJORIZED_PAIRS pairs. Convergence does not need them, but
# where they cost little they are followed nearly to the end of their valley.
MAJORIZATIONS, MAJORIZED_PAIRS = (40, 1000), 40_000_000
# Least and most products with the second derivative in one descent; between, as many as visit PRODUCT_PAIRS pairs. The
# least is several times what well-determined configurations need; Sammon's mapping with hardly more neighbors than
# coordinates needs more.
PRODUCTS, PRODUCT_PAIRS = (4000, 40_000), 5_000_000_000


@dataclass(frozen=True, eq=False)
class Point(ABC):
    """An objective at one configuration: its value, the value's rounding error and its derivatives."""

    columns: FloatArray
    value: float
    rounding: float
    gradient: FloatArray

    @abstractmethod
    def curvature(self, direction: FloatArray) -> FloatArray:
        """The second derivative applied to a direction (d, m)."""

    @abstractmethod
    def preconditioned(self, gradient: FloatArray) -> FloatArray:
        """The step against a gradient (d, m); for the point's own gradient, its Guttman step."""


class Objective(Protocol):
    def at(self, columns: FloatArray) -> Point: ...


class Minimum(NamedTuple):
    """Where a descent ended; `converged` if its last Newton step was below FINE_STEP of the configuration's size."""

    point: Point
    n_iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class StressPoint(Point):
    """Raw stress at one configuration; `factor` is that of V, or None if V is m I on all gradients."""

    pulls: FloatArray
    weights: FloatArray
    factor: FloatArray | None

    def curvature(self, direction: FloatArray) -> FloatArray:
        product = np.zeros_like(direction)
        add_curvature(self.columns, self.pulls, self.weights, direction, product)
        return product

    def preconditioned(self, gradient: FloatArray) -> FloatArray:
        if self.factor is None:
            return np.asarray(gradient * (-0.5 / gradient.shape[1]))
        return np.ascontiguousarray(
            scipy.linalg.cho_solve((self.factor, True), -0.5 * gradient.T, check_finite=False).T
        )


class WeightedStress:
    """sigma for targets (m, m) and weights (m, m), or (1, m) for weights that are all 1."""

    def __init__(self, targets: FloatArray, weights: FloatArray) -> None:
        self._targets, self._weights = targets, weights
        self._mass = float((weights * targets**2).sum()) / 2
        self._factor = _factor(weights) if len(weights) == len(targets) else None

    def at(self, columns: FloatArray) -> StressPoint:
        value, gradient, pulls = stress_terms(columns, self._targets, self._weights)
        rounding = rounding_of(value, self._mass)
        return StressPoint(columns, value, rounding, gradient, pulls, self._weights, self._factor)


def rounding_of(misfit: float, mass: float) -> float:
    """Rounding of a sum of squared misfits among distances whose squares sum up to `mass`."""
    return 8 * EPSILON * (math.sqrt(misfit * mass) + EPSILON * mass)


def _factor(weights: FloatArray) -> FloatArray:
    """Cholesky factor of V made regular. The null space of V holds the constants on every connected part; gradients
    have no component there, so any regular value serves, and parts do not move relative to each other."""
    n_parts, part = scipy.sparse.csgraph.connected_components(weights, directed=False)
    weights = weights - np.diag(weights.diagonal())
    indicators = np.equal.outer(np.arange(n_parts), part).astype(np.float64)
    degrees = weights.sum(axis=1)
    regular = np.diag(degrees) - weights
    regular += (indicators.T * (degrees.mean() / indicators.sum(axis=1))) @ indicators
    factor, _ = scipy.linalg.cho_factor(regular, lower=True, overwrite_a=True, check_finite=False)
    return np.asarray(factor)


def minimize(objective: Objective, columns: FloatArray) -> Minimum:
    """Descend from a configuration (d, m); the end is not above the start, except for rounding."""
    point, n_majorizations = majorize(objective, columns)
    radius, n_products = 10 * math.sqrt(_slope(point)), 0
    most = int(np.clip(PRODUCT_PAIRS // columns.shape[1] ** 2, *PRODUCTS))
    for n_steps in range(1, MAX_NEWTON_STEPS + 1):
        step = _newton_step(point, radius)
        trial = objective.at(point.columns + step.move)
        taken, radius = _judged(point, trial, step, radius)
        point = trial if taken else point
        left = _relative(point.preconditioned(point.gradient), point)
        is_last = _relative(step.move, point) <= FINE_STEP and not (taken and step.at_boundary)
        n_products += step.n_products
        if is_last or left <= FINEST_STEP or n_products > most:
            return Minimum(point, n_majorizations + n_steps, left <= FINE_STEP)
    return Minimum(point, n_majorizations + MAX_NEWTON_STEPS, False)


def _relative(step: FloatArray, point: Point) -> float:
    return float(np.linalg.norm(step) / np.linalg.norm(point.columns))


def majorize(objective: Objective, columns: FloatArray) -> tuple[Point, int]:
    """Guttman transforms until their steps are small, and their number; from any distance they find the valley."""
    point = objective.at(columns)
    most = int(np.clip(MAJORIZED_PAIRS // columns.shape[1] ** 2, *MAJORIZATIONS))
    for n_steps in range(most):
        step = point.preconditioned(point.gradient)
        if _relative(step, point) <= COARSE_STEP:
            return point, n_steps
        point = objective.at(point.columns + step)
    return point, most


class Step(NamedTuple):
    """A Newton step, the decrease its model predicts, its length in the norm of V, whether the radius cut it."""

    move: FloatArray
    predicted: float
    length: float
    at_boundary: bool
    n_products: int


def _judged(point: Point, trial: Point, step: Step, radius: float) -> tuple[bool, float]:
    """Whether to take a step, and the next radius."""
    if step.predicted <= 10 * point.rounding:
        # Values no longer resolve the difference, but gradients do.
        taken = _slope(trial) < 0.95 * _slope(point)
        return taken, (2 * radius if taken else 0.1 * step.length)
    agreement = (point.value - trial.value) / step.predicted
    if agreement < 0.25:
        radius = 0.25 * step.length
    elif agreement > 0.75 and step.at_boundary:
        radius = 2 * radius
    return agreement > 1e-4, radius


def _slope(point: Point) -> float:
    """Squared length of the Guttman step, in the norm of V."""
    return max(0.0, -float(np.vdot(point.gradient, point.preconditioned(point.gradient))))


def _newton_step(point: Point, radius: float) -> Step:
    """Steihaug's conjugate gradients: towards the model's minimum, up to the radius or along negative curvature. s
    step, r residual, p direction, z preconditioned residual; ss, sp and pp are products in the norm of V."""
    s, r = np.zeros_like(point.gradient), point.gradient
    p = point.preconditioned(r)
    rz = -float(np.vdot(r, p))
    ss, sp, pp = 0.0, 0.0, rz
    # Steps are solved more exactly nearer to the minimum, which makes convergence superlinear.
    tolerance = rz * min(0.01, max(1e-6, math.sqrt(rz / max(point.value, TINY))))
    for n_products in range(MAX_CONJUGATE_STEPS):
        if rz <= tolerance:
            break
        product = point.curvature(p)
        bending = float(np.vdot(p, product))
        if abs(bending) <= FLAT * pp:
            break
        a = rz / bending if bending > 0 else math.inf
        if ss + a * (2 * sp + a * pp) >= radius**2:
            a = (math.sqrt(sp**2 + pp * (radius**2 - ss)) - sp) / pp
            return _step(point, s + a * p, r + a * product, (radius, True, n_products + 1))
        s, r = s + a * p, r + a * product
        ss += a * (2 * sp + a * pp)
        z = point.preconditioned(r)
        rz, b = -float(np.vdot(r, z)), -float(np.vdot(r, z)) / rz
        p = z + b * p
        sp, pp = b * (sp + a * pp), rz + b**2 * pp
    return _step(point, s, r, (math.sqrt(ss), False, n_products + 1))


def _step(point: Point, s: FloatArray, r: FloatArray, rest: tuple[float, bool, int]) -> Step:
    """As r = g + H s, the model falls by -(g.s + s.H s / 2) = -(g + r).s / 2."""
    return Step(s, -0.5 * float(np.vdot(point.gradient + r, s)), *rest)


def stress_terms(columns: FloatArray, targets: FloatArray, weights: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Raw stress, its gradient (d, m) and the pulls (m, m)."""
    pulls, gradient, misfits = np.empty_like(targets), np.zeros_like(columns), np.zeros(len(targets))
    _add_stress(columns, targets, weights, pulls, gradient, misfits)
    return float(misfits.sum()) / 2, gradient, pulls


@compiled
def squared_lengths_from(columns: AnyArray, i: int, squares: AnyArray) -> None:
    """squares[j] = |x_i - x_j|^2."""
    squares[:] = 0.0
    for k in range(len(columns)):
        for j in range(len(squares)):
            difference = columns[k, j] - columns[k, i]
            squares[j] += difference * difference


@compiled
def _add_stress(
    columns: AnyArray, targets: AnyArray, weights: AnyArray, pulls: AnyArray, gradient: AnyArray, misfits: AnyArray
) -> None:
    """Pairs are visited from both ends, which keeps loops along memory, so `misfits` count each twice."""
    d, m = columns.shape
    squares = np.empty(m)
    for i in range(m):
        t, w, pull = targets[i], weights[min(i, len(weights) - 1)], pulls[i]
        squared_lengths_from(columns, i, squares)
        for j in range(m):
            distance = math.sqrt(squares[j])
            pull[j] = w[j] * t[j] / (distance if distance > 0.0 else np.inf)
            misfits[j] += w[j] * (distance - t[j]) ** 2
        for k in range(d):
            for j in range(m):
                gradient[k, j] += 2.0 * (w[j] - pull[j]) * (columns[k, j] - columns[k, i])


@compiled
def add_curvature(
    columns: AnyArray, pulls: AnyArray, weights: AnyArray, direction: AnyArray, product: AnyArray
) -> None:
    """product_j += 2 sum_i (w - w t/d) v + (w t/d) u (u.v), v = v_j - v_i and u the unit vector from x_i to x_j."""
    d, m = columns.shape
    squares, along = np.empty(m), np.empty(m)
    for i in range(m):
        w, pull = weights[min(i, len(weights) - 1)], pulls[i]
        squares[:] = 0.0
        along[:] = 0.0
        for k in range(d):
            for j in range(m):
                difference = columns[k, j] - columns[k, i]
                squares[j] += difference * difference
                along[j] += difference * (direction[k, j] - direction[k, i])
        for j in range(m):
            along[j] *= pull[j] / (squares[j] if squares[j] > 0.0 else np.inf)
        for k in range(d):
            for j in range(m):
                change = (w[j] - pull[j]) * (direction[k, j] - direction[k, i])
                product[k, j] += 2.0 * (change + along[j] * (columns[k, j] - columns[k, i]))
