"""Metric, non-metric and Sammon scaling of the landmarks; other points are placed by their own stress alone.

| method        | minimized over the pairs i < j                                          | paper          |
|---------------|-------------------------------------------------------------------------|----------------|
| metric_mds    | sqrt(sum (d_x - d_y)^2 / sum d_x^2)                                     | [G eq. 16]     |
| nonmetric_mds | sqrt(sum (f(d_x) - d_y)^2 / sum d_y^2), f monotone: stress-1            | [G eq. 21]     |
| sammon        | sum (d_x - d_y)^2 / d_x / sum d_x, over all pairs or those of neighbors | [G eq. 25, 29] |
| place         | the same sum for one point, the landmarks fixed                         | [T sec. 4]     |

Each starts from classical scaling and converges until Newton steps are below 1e-10 of the configuration's size. Single
landmarks then move wherever their own stress is lower, and all converge again, until none moves: so a landmark's own
row is placed on the landmark. The result is centered and rotated to its principal axes. Further starts (`n_init`) are
random, each with a seed of its own: the first k of them are the same for any larger number.

Non-metric scaling depends on the order of the dissimilarities alone, to the bit: it starts from classical scaling of
their ranks, and its size, which stress-1 does not determine, is 1.

Two landmarks are neighbors if one is among the k nearest of the other by positive dissimilarity, ties with the k-th
included; [G eq. 29] counts mutual neighbors twice, here every pair counts once. Points and landmarks are neighbors by
the same rule. Sammon's weight 1 / d_x has a floor for landmarks at dissimilarity 0: d_x is at least a thousandth of the
smallest positive one, and a millionth of the largest.
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.extension.stress import SAME_PLACE, frame_of, settle
from pipeline.numerics.mds import Placement, classical_mds, with_fixed_signs
from pipeline.numerics.models.monotone import MonotoneMap, MonotonePoint, MonotoneStress
from pipeline.numerics.models.smacof import Point, WeightedStress, minimize
from pipeline.types import AnyArray, FloatArray, IntArray

METRIC, NONMETRIC, SAMMON = "metric-mds", "nonmetric-mds", "sammon"
# Relative to the size of the start: noise that separates coinciding landmarks, and noise for components that have no
# positive eigenvalue.
JIGGLE, FILLING = 1e-6, 1e-2
SEED = 20251113
MAX_ROUNDS = 30
# Relative tolerance for ties with the k-th nearest: two shortest-path runs differ by as much.
NEIGHBOR_TOLERANCE = 1e-6
FLOOR_OF_SMALLEST, FLOOR_OF_LARGEST = 1e-3, 1e-6
ROWS_PER_PASS = 256
# Relative difference in stress below which two starts have come to the same minimum; the earlier start is kept.
SAME_STRESS = 1e-9


@dataclass(frozen=True, eq=False)
class StressPlacer:
    """Landmarks scaled by stress, and what placing other points needs.

    coordinates (m, d). stress: normalized as the method does; raw_stress: its numerator; start_stress: of the first
    start, which is classical. converged: whether the last steps were below 1e-10 of the configuration's size.
    weight_floor: the least dissimilarity in Sammon's weights, 0 if all weights are 1. n_neighbors: 0 if all pairs
    count; otherwise neighbor_radii (m,) are the dissimilarities of each landmark's k-th nearest. knots, lower, upper
    (q,): the map of non-metric scaling.
    """

    kind: str
    coordinates: FloatArray
    stress: float
    raw_stress: float
    start_stress: float
    n_iterations: int
    converged: bool
    weight_floor: float
    n_neighbors: int
    neighbor_radii: FloatArray
    knots: FloatArray
    lower: FloatArray
    upper: FloatArray
    residual_degree: ClassVar[int] = 1

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m) to the landmarks; a row's bytes do not depend on other rows. The
        residual is the root mean square, with the method's weights, of distances less dissimilarities (disparities for
        non-metric scaling). With n_neighbors <= d a point's place may not be unique."""
        rows, unit = checks.rows_to_landmarks(to_landmarks, len(self.coordinates)), _unit(self.coordinates)
        if len(rows):
            in_units = np.array([rows.max() / np.float64(self._unit_of_rows)])
            checks.require_not_too_large("to_landmarks, in units of the landmarks' coordinates,", in_units)
        frame = frame_of(self.coordinates / unit)
        slack = self.stress**2 if self.kind == NONMETRIC else 0.0
        fitted = MonotoneMap(self.knots, self.lower, self.upper)
        coordinates, residual = np.empty((len(rows), self.coordinates.shape[1])), np.empty(len(rows))
        for first in range(0, len(rows), ROWS_PER_PASS):
            part = slice(first, first + ROWS_PER_PASS)
            some = np.ascontiguousarray(rows[part], dtype=np.float64)
            lower, upper = fitted.intervals(some) if self.kind == NONMETRIC else (some, some)
            weights = self._weights(some, unit)
            coordinates[part], residual[part] = settle(frame, some, (lower / unit, upper / unit), weights, slack)
        return Placement(coordinates * unit, residual * unit)

    @property
    def _unit_of_rows(self) -> float:
        return _unit(self.coordinates)

    def _weights(self, rows: FloatArray, unit: float) -> FloatArray:
        if self.kind != SAMMON:
            return np.ones_like(rows)
        weights = unit / np.maximum(rows, self.weight_floor)
        if not self.n_neighbors:
            return np.asarray(weights)
        return np.asarray(np.where(_are_near(rows, self.neighbor_radii, self.n_neighbors), weights, 0.0))


@dataclass(frozen=True, eq=False)
class OrdinalPlacer(StressPlacer):
    """Landmarks scaled by the order of their dissimilarities, in a unit of their own: coordinates, disparities and
    residuals do not grow with the dissimilarities, which only `knots` are in."""

    residual_degree: ClassVar[int] = 0

    @property
    def _unit_of_rows(self) -> float:
        return _unit(self.knots)


def metric_mds(between: ArrayLike, n_components: int, n_init: int = 1, seed: int = 0) -> StressPlacer:
    """Scale m landmarks so that distances come as near as possible to their dissimilarities (m, m), not squared; the
    best of `n_init` starts."""
    further, (delta, unit) = _starts(n_init, seed), _checked(between, n_components)
    problem = _Problem(METRIC, delta, WeightedStress(delta, np.ones((1, len(delta)))))
    return _in_units(_fitted(problem, delta, n_components, further), unit)


def nonmetric_mds(between: ArrayLike, n_components: int, n_init: int = 1, seed: int = 0) -> OrdinalPlacer:
    """Scale m landmarks by the order of their dissimilarities (m, m), the best of `n_init` starts; the root mean square
    distance from the center is 1."""
    further, (delta, unit) = _starts(n_init, seed), _checked(between, n_components)
    problem = _Problem(NONMETRIC, delta, MonotoneStress(delta))
    placer = _fitted(problem, _ranks(delta), n_components, further)
    fields = {**vars(placer), "knots": placer.knots * unit}
    return OrdinalPlacer(**fields)


def sammon(
    between: ArrayLike, n_components: int, n_neighbors: int | None = None, n_init: int = 1, seed: int = 0
) -> StressPlacer:
    """Sammon's mapping of m landmarks by their dissimilarities (m, m), not squared: relative errors count; the best of
    `n_init` starts. With `n_neighbors` only pairs of neighbors count; parts that no pair connects have their centers
    where classical scaling has them."""
    further, (delta, unit) = _starts(n_init, seed), _checked(between, n_components)
    floor = max(FLOOR_OF_SMALLEST * float(delta[delta > 0].min()), FLOOR_OF_LARGEST * float(delta.max()))
    weights, radii, k = 1 / np.maximum(delta, floor), np.empty(0), 0
    if n_neighbors is not None:
        why = f"there are {len(delta)} landmarks"
        k = checks.integer_in_range("n_neighbors", n_neighbors, 1, len(delta) - 1, why)
        radii = _radii(delta, k)
        weights *= _are_near(delta, radii, k)
    with threadpool_limits(1, "blas"):
        objective = WeightedStress(delta, weights)
    problem = _Problem(SAMMON, delta, objective, weights, floor, k, radii)
    return _in_units(_fitted(problem, delta, n_components, further), unit)


def _starts(n_init: int, seed: int) -> list[np.random.Generator]:
    """What the random starts after the first draw from."""
    most = checks.integer_in_range("n_init", n_init, 1, None, "the number of starts")
    return [np.random.default_rng([seed, number]) for number in range(1, most)]


def _ranks(delta: FloatArray) -> FloatArray:
    """Mean ranks (m, m) of the positive dissimilarities, as shares of their number; 0 stays 0."""
    pairs = np.triu_indices(len(delta), 1)
    values = delta[pairs]
    positive = values > 0
    values[positive] = scipy.stats.rankdata(values[positive]) / np.count_nonzero(positive)
    ranks = np.zeros_like(delta)
    ranks[pairs] = values
    return ranks + ranks.T


def _checked(between: ArrayLike, n_components: int) -> tuple[FloatArray, float]:
    """The dissimilarities in units of a power of two near the largest, so that nothing overflows, and that unit."""
    delta = checks.squared_dissimilarity_matrix("between", between)
    if not delta.any():
        raise InvalidInputError(
            "between is all zero: every landmark is the same, so there is nothing to scale; use landmarks that differ."
        )
    why = f"fewer than the {len(delta)} landmarks"
    checks.integer_in_range("n_components", n_components, 1, len(delta) - 1, why)
    unit = _unit(delta)
    return delta / unit, unit


def _unit(values: FloatArray) -> float:
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max()))[1])


def _radii(rows: FloatArray, n_neighbors: int) -> FloatArray:
    """The k-th smallest positive entry of each row, infinite where there are fewer."""
    positive = np.where(rows > 0, rows, np.inf)
    return np.partition(positive, n_neighbors - 1, axis=1)[:, n_neighbors - 1]


def _are_near(rows: FloatArray, radii: FloatArray, n_neighbors: int) -> AnyArray:
    """Whether row and column are neighbors: within the row's k-th nearest, or within the column's, `radii`."""
    reach = np.maximum(_radii(rows, n_neighbors)[:, None], radii)
    return np.asarray(rows <= (1 + NEIGHBOR_TOLERANCE) * reach)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Dissimilarities (m, m), the objective, and what `StressPlacer` needs to repeat it for one point."""

    kind: str
    between: FloatArray
    objective: WeightedStress | MonotoneStress
    weights: FloatArray | None = None
    weight_floor: float = 0.0
    n_neighbors: int = 0
    neighbor_radii: FloatArray = field(default_factory=lambda: np.empty(0))

    def at(self, coordinates: FloatArray) -> Point:
        return self.objective.at(np.ascontiguousarray(coordinates.T))

    def parts(self) -> IntArray:
        """The part (m,) of each landmark, numbered from 0; parts have no pair that counts between them."""
        if self.weights is None:
            return np.zeros(len(self.between), dtype=np.int64)
        return scipy.sparse.csgraph.connected_components(self.weights, directed=False)[1].astype(np.int64)

    def sized(self, coordinates: FloatArray) -> FloatArray:
        """Coordinates (m, d) in a unit of their own where the objective does not say how large they are."""
        if self.kind != NONMETRIC:
            return coordinates
        return np.asarray(coordinates * (math.sqrt(len(coordinates)) / np.linalg.norm(coordinates)))

    def placer(self, coordinates: FloatArray) -> StressPlacer:
        """A placer with landmarks at these coordinates, as if they were final."""
        point = self.at(coordinates)
        stress, raw_stress = self._figures(point)
        empty = np.empty(0)
        fitted = MonotoneMap(empty, empty, empty)
        if isinstance(self.objective, MonotoneStress) and isinstance(point, MonotonePoint):
            fitted = self.objective.map_of(point)
        rule = self.weight_floor, self.n_neighbors, self.neighbor_radii, *fitted
        return StressPlacer(self.kind, coordinates, stress, raw_stress, stress, 0, False, *rule)

    def _figures(self, point: Point) -> tuple[float, float]:
        """Normalized and raw stress."""
        if self.kind == NONMETRIC:
            m, X = len(self.between), point.columns
            return math.sqrt(point.value), point.value * m * float((X**2).sum())
        if self.weights is None:
            return math.sqrt(point.value / (float((self.between**2).sum()) / 2)), point.value
        return point.value / (float(self.between[self.weights > 0].sum()) / 2), point.value


def _fitted(
    problem: _Problem, between: FloatArray, n_components: int, further: list[np.random.Generator]
) -> StressPlacer:
    """The best minimum from classical scaling of `between` and from a random start for each of `further`."""
    # The bytes of sums in BLAS depend on the number of threads.
    with threadpool_limits(1, "blas"):
        start = _classical_start(between, n_components)
        first, best = problem.placer(problem.sized(start)), _minimum(problem, _jiggled(start))
        # Descents only rise by rounding, so a start that is lower fits exactly.
        if first.stress < best.stress:
            best = replace(first, n_iterations=best.n_iterations, converged=True)
        for rng in further:
            found = _minimum(problem, _random_start(problem, start, rng))
            best = found if found.stress < best.stress * (1 - SAME_STRESS) else best
    return replace(best, start_stress=first.stress)


def _minimum(problem: _Problem, start: FloatArray) -> StressPlacer:
    columns, n_iterations, converged = _descended(problem, start)
    placer = problem.placer(problem.sized(_turned(columns.T)))
    return replace(placer, n_iterations=n_iterations, converged=converged)


def _in_units(placer: StressPlacer, unit: float) -> StressPlacer:
    lengths = ("coordinates", "weight_floor", "neighbor_radii", "knots", "lower", "upper")
    scaled = {name: getattr(placer, name) * unit for name in lengths}
    raw = placer.raw_stress * (unit if placer.kind == SAMMON else unit**2)
    return replace(placer, raw_stress=raw, **scaled)


def _classical_start(delta: FloatArray, n_components: int) -> FloatArray:
    """Classical scaling (m, d), with zeros for components that have no positive eigenvalue."""
    try:
        return classical_mds(delta**2, n_components).coordinates
    except InvalidInputError:
        n_positive = classical_mds(delta**2, 1).n_positive
        start = np.zeros((len(delta), n_components))
        start[:, :n_positive] = classical_mds(delta**2, n_positive).coordinates
        return start


def _jiggled(start: FloatArray) -> FloatArray:
    """A start without coincidences, peaks of stress that no derivative shows, and without empty components."""
    rng = np.random.default_rng(SEED)
    size = math.sqrt(float((start**2).sum()) / len(start))
    scale = np.where(start.any(axis=0), JIGGLE, FILLING) * size
    jiggled = start + scale * rng.standard_normal(start.shape)
    return np.asarray(jiggled - jiggled.mean(axis=0))


def _random_start(problem: _Problem, start: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Normally distributed and as wide as another start (m, d); parts that no pair connects have their centers where
    they are there, since no descent moves these."""
    drawn = rng.standard_normal(start.shape) * math.sqrt(float((start**2).mean()))
    parts = problem.parts()
    for part in range(int(parts.max()) + 1):
        own = parts == part
        drawn[own] += start[own].mean(axis=0) - drawn[own].mean(axis=0)
    return np.asarray(drawn)


def _descended(problem: _Problem, start: FloatArray) -> tuple[FloatArray, int, bool]:
    """Alternate descents of all landmarks and moves of single ones until neither lowers the stress."""
    columns, n_iterations = np.ascontiguousarray(start.T), 0
    for _ in range(MAX_ROUNDS):
        minimum = minimize(problem.objective, columns)
        n_iterations += minimum.n_iterations
        moved = _with_moves(problem, minimum.point) if minimum.converged else minimum.point
        if moved is minimum.point:
            break
        columns = moved.columns
    return minimum.point.columns, n_iterations, minimum.converged


def _with_moves(problem: _Problem, point: Point) -> Point:
    """The configuration after moving single landmarks to where their own stress is clearly lower."""
    coordinates = _turned(point.columns.T)
    placed = problem.placer(coordinates).place(problem.between).coordinates
    size = math.sqrt(float((coordinates**2).sum()) / len(coordinates))
    best = point
    for i in np.flatnonzero(np.linalg.norm(placed - coordinates, axis=1) > SAME_PLACE * size):
        moved = coordinates.copy()
        moved[i] = placed[i]
        trial = problem.at(moved)
        if trial.value < best.value - best.rounding:
            best, coordinates = trial, moved
    return best


def _turned(coordinates: FloatArray) -> FloatArray:
    """Centered, along the principal axes, with fixed signs: a unique representative of all rigid motions."""
    centered = coordinates - coordinates.mean(axis=0)
    _, axes = np.linalg.eigh(centered.T @ centered)
    return np.ascontiguousarray(with_fixed_signs(centered @ axes[:, ::-1]))
