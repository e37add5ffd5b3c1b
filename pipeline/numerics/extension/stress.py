"""Place one point among fixed landmarks by the stress of that point alone [T sec. 4, sigma_out].

minimize over y:  sum_i w_i [(d_i - c_i)^2 - s d_i^2],  d_i = |y - x_i|,  c_i = d_i clipped to [lower_i, upper_i]

For metric and Sammon scaling the interval is the dissimilarity itself and s (`slack`) = 0. For non-metric scaling it
holds the disparities fitted to the dissimilarity, which differ only where dissimilarities tie, and s is the squared
stress, the multiplier of its denominator, so a landmark's own row is stationary at its own place. Newton steps, damped
until they lower the sum, converge quadratically; several descents are tried, as there can be several minima.

Every sum runs over the landmarks in LANES interleaved parts, in an order that depends only on their number.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors.products import insert
from pipeline.types import AnyArray, FloatArray

# Interleaved sums: enough to keep a processor's vector units busy.
LANES = 64
MAX_STEPS = 200
# Relative to the configuration's size: the step that ends a descent, and the distance from an earlier descent's end at
# which it is taken to lead there too.
FINE_STEP, SAME_PLACE = 1e-12, 1e-3
OFFSET = 1e-3
# A later descent wins only if it ends lower by more than rounding.
MARGIN = 1e-9
# Starts beside the two nearest landmarks and at the projection; if these lead to different places, or if only some
# landmarks count, which makes for more minima, further starts beside the next nearest.
FIRST_STARTS, FURTHER_STARTS = 3, 6
EPSILON, LARGE = float(np.finfo(np.float64).eps), 1e100


class Frame(NamedTuple):
    """Fixed landmarks; arrays are padded with zeros to a whole number of lanes.

    columns (d, m): X'. inverse (d, m): -1/2 (X'X)^+ X', which projects. squares (m,): |x_i|^2. size: root mean square
    distance from the center.
    """

    columns: FloatArray
    inverse: FloatArray
    squares: FloatArray
    size: float


# lower, upper and weights (m,) of one point's landmarks, and the slack.
Given: TypeAlias = tuple[AnyArray, AnyArray, AnyArray, float]


class Room(NamedTuple):
    """Workspace for one point: differences (d, m), y - x_i; terms (4, m), w (1 - s - c/d), w (c/d) / d^2 (both with c/d
    = 0 where d = 0) and two spare; matrices (2, d, d), lower triangles of the second derivative and its factor; vectors
    (4, d), y, gradient, step, trial."""

    differences: AnyArray
    terms: AnyArray
    lanes: AnyArray
    matrices: AnyArray
    vectors: AnyArray


def frame_of(coordinates: FloatArray) -> Frame:
    """Landmarks with coordinates (m, d) centered and along their principal axes, so that X'X is diagonal."""
    spread = (coordinates**2).sum(axis=0)
    inverse = np.where(spread > 1e-20 * spread.max(), -0.5 / np.maximum(spread, 1e-300), 0.0)[:, None] * coordinates.T
    squares = (coordinates**2).sum(axis=1)
    return Frame(padded(coordinates.T), padded(inverse), padded(squares), math.sqrt(squares.mean()))


def padded(per_landmark: FloatArray) -> FloatArray:
    """Zeros appended along the last axis up to a whole number of lanes; landmarks of weight 0 add nothing."""
    widths = [(0, 0)] * (per_landmark.ndim - 1) + [(0, -per_landmark.shape[-1] % LANES)]
    return np.ascontiguousarray(np.pad(per_landmark, widths))


def settle(
    frame: Frame, rows: FloatArray, intervals: tuple[FloatArray, FloatArray], weights: FloatArray, slack: float
) -> tuple[FloatArray, FloatArray]:
    """Coordinates (p, d) and residuals (p,), the root mean squares of d - c, of points by their dissimilarities (p, m),
    these as intervals, and weights (p, m). The descent that starts beside the nearest landmark wins ties."""
    return _settled(frame, rows, padded(np.stack([*intervals, weights], axis=1)), slack)


@compiled
def _settled(frame: Frame, rows: AnyArray, targets: AnyArray, slack: float) -> tuple[FloatArray, FloatArray]:
    coordinates, residual, room = np.empty((len(rows), len(frame.columns))), np.empty(len(rows)), _room(frame)
    projection, ends = np.empty(len(frame.columns)), np.empty((FIRST_STARTS + FURTHER_STARTS, len(frame.columns)))
    nearest = np.empty(FIRST_STARTS + FURTHER_STARTS - 1, dtype=np.int64)
    for row in range(len(rows)):
        given = (targets[row, 0], targets[row, 1], targets[row, 2], slack)
        n_nearest, n_ends, lowest = _list_nearest(rows[row], nearest), 0, np.inf
        if n_nearest > 1 and rows[row, nearest[1]] == 0.0:
            _put_best_first(frame, rows[row], given, room, nearest[:n_nearest])
        _project(frame, given, room, projection)
        all_count = given[2][: rows.shape[1]].min() > 0.0
        few, counting, work = (frame, given, room) if all_count else _counting(frame, given)
        for start in range(n_nearest + 1):
            if start == FIRST_STARTS and n_ends == 1 and all_count:
                break
            _set_start(frame, given, projection, nearest[:n_nearest], start, work.vectors[0])
            value, misfit = _descend(few, counting, ends[:n_ends], work)
            if n_ends == 0 or value < lowest - MARGIN * abs(lowest):
                coordinates[row], residual[row], lowest = work.vectors[0], misfit, value
            if value < np.inf:
                ends[n_ends] = work.vectors[0]
                n_ends += 1
        residual[row] = math.sqrt(residual[row] / _sum(counting[2], work.lanes))
    return coordinates, residual


@compiled
def _room(frame: Frame) -> Room:
    d, m = frame.columns.shape
    return Room(np.empty((d, m)), np.empty((4, m)), np.empty(LANES), np.empty((2, d, d)), np.empty((4, d)))


@compiled
def _counting(frame: Frame, given: Given) -> tuple[Frame, Given, Room]:
    """The same with only the landmarks that have weight, and a workspace for them; `inverse` is not needed there."""
    which = np.flatnonzero(given[2])
    m = -(-len(which) // LANES) * LANES
    columns, kept = np.zeros((len(frame.columns), m)), np.zeros((3, m))
    for place, i in enumerate(which):
        columns[:, place] = frame.columns[:, i]
        kept[0, place], kept[1, place], kept[2, place] = given[0][i], given[1][i], given[2][i]
    few = Frame(columns, frame.inverse, frame.squares, frame.size)
    return few, (kept[0], kept[1], kept[2], given[3]), _room(few)


@compiled
def _list_nearest(row: AnyArray, nearest: AnyArray) -> int:
    """Fill in the landmarks with the least dissimilarities, rising, ties by number; return how many."""
    distances = np.full(len(nearest), np.inf)
    for i in range(len(row)):
        if row[i] < distances[-1]:
            insert(distances, nearest, row[i], i)
    return min(len(row), len(nearest))


@compiled
def _put_best_first(frame: Frame, row: AnyArray, given: Given, room: Room, nearest: AnyArray) -> None:
    """Of several landmarks at dissimilarity 0, which need not coincide, put the one with the lowest value first."""
    best, lowest = nearest[0], np.inf
    for i in range(len(row)):
        if row[i] == 0.0:
            room.vectors[0] = frame.columns[:, i]
            value = _evaluate(room.vectors[0], frame.columns, given, room)[0]
            if value < lowest:
                best, lowest = i, value
    place = 0
    while place < len(nearest) - 1 and nearest[place] != best:
        place += 1
    nearest[1 : place + 1] = nearest[:place].copy()
    nearest[0] = best


@compiled
def _project(frame: Frame, given: Given, room: Room, projection: AnyArray) -> None:
    """y = -1/2 (X'X)^+ X'(t^2 - |x|^2), exact for distances to the landmarks [T eq. 8], moved a little off their plane:
    if they do not fill the space, derivatives within it say nothing about leaving it."""
    lower, upper, excess = given[0], given[1], room.terms[2]
    for i in range(len(excess)):
        length = 0.5 * (lower[i] + upper[i])
        excess[i] = length * length - frame.squares[i]
    for k in range(len(projection)):
        projection[k] = _dot(frame.inverse[k], excess, room.lanes)
    projection[-1] += OFFSET * frame.size


@compiled
def _set_start(frame: Frame, given: Given, projection: AnyArray, nearest: AnyArray, start: int, y: AnyArray) -> None:
    """The projection, or the position at the right distance from one of the nearest landmarks, in the projection's
    direction: the landmark itself is a peak that no derivative shows, unless the distance is 0."""
    y[:] = projection
    if start == min(FIRST_STARTS - 1, len(nearest)):
        return
    i = nearest[start if start < FIRST_STARTS else start - 1]
    for k in range(len(y)):
        y[k] -= frame.columns[k, i]
    length = math.sqrt(_short_dot(y, y, len(y)))
    if length == 0.0:
        y[-1], length = 1.0, 1.0
    stretch = 0.5 * (given[0][i] + given[1][i]) / length
    for k in range(len(y)):
        y[k] = frame.columns[k, i] + stretch * y[k]


@compiled
def _descend(frame: Frame, given: Given, ends: AnyArray, room: Room) -> tuple[float, float]:
    """Damped Newton steps from room.vectors[0], in place; the value, infinite where an earlier descent ended, and the
    squared misfit. No second derivative exceeds 2 sum w, so damping of that size makes any step a descent."""
    y, step, trial = room.vectors[0], room.vectors[2], room.vectors[3]
    bound, damping = 2.0 * _sum(given[2], room.lanes), 0.0
    value, misfit, rounding = _evaluate(y, frame.columns, given, room)
    for _ in range(MAX_STEPS):
        damping = _solve(room, bound, damping)
        for k in range(len(y)):
            trial[k] = y[k] - step[k]
        following, its_misfit, its_rounding = _evaluate(trial, frame.columns, given, room)
        if following <= value + rounding:
            y[:] = trial
            value, misfit, rounding = following, its_misfit, its_rounding
            damping = 0.1 * damping if damping > 0.01 * bound else 0.0
        else:
            _evaluate(y, frame.columns, given, room)
            damping = max(10.0 * damping, 1e-3 * bound)
        if _is_near(y, ends, SAME_PLACE * frame.size):
            return np.inf, misfit
        if _short_dot(step, step, len(step)) <= (FINE_STEP * frame.size) ** 2:
            break
    return value, misfit


@compiled
def _is_near(y: AnyArray, ends: AnyArray, radius: float) -> bool:
    for end in ends:
        square = 0.0
        for k in range(len(y)):
            square += (y[k] - end[k]) ** 2
        if square <= radius * radius:
            return True
    return False


@compiled
def _evaluate(y: AnyArray, columns: AnyArray, given: Given, room: Room) -> tuple[float, float, float]:
    """The value at y, its squared misfit and its rounding error; leaves in `room` what derivatives need."""
    lower, upper, weights, slack = given
    coefficients, bends, misfits, squares = room.terms
    squares[:] = 0.0
    for k in range(len(columns)):
        difference, column = room.differences[k], columns[k]
        for i in range(len(squares)):
            difference[i] = y[k] - column[i]
            squares[i] += difference[i] * difference[i]
    for i in range(len(squares)):
        square, w = squares[i], weights[i]
        distance = math.sqrt(square)
        closest = min(max(distance, lower[i]), upper[i])
        pull = w * closest / (distance if distance > 0.0 else np.inf)
        follows = (lower[i] < distance) & (distance < upper[i])
        coefficients[i] = w * (1.0 - slack) - pull
        bends[i] = 0.0 if follows else pull / (square if square > 0.0 else np.inf)
        misfits[i] = w * (distance - closest) ** 2
        squares[i] = w * square
    for k in range(len(columns)):
        room.vectors[1, k] = 2.0 * _dot(coefficients, room.differences[k], room.lanes)
    misfit, mass = _sum(misfits, room.lanes), _sum(squares, room.lanes)
    rounding = 8.0 * EPSILON * (math.sqrt(misfit) * math.sqrt(mass) + (slack + EPSILON) * mass)
    return misfit - slack * mass, misfit, rounding


@compiled
def _solve(room: Room, bound: float, damping: float) -> float:
    """step = (second derivative + damping)^-1 gradient; the damping is raised until that is definite, and returned."""
    gradient, step, second, factor = room.vectors[1], room.vectors[2], room.matrices[0], room.matrices[1]
    _fill_second_derivative(room)
    while not _factor(second, damping, 1e-12 * bound, factor) and damping < LARGE * bound:
        damping = max(10.0 * damping, 1e-3 * bound)
    for k in range(len(step)):
        step[k] = (gradient[k] - _short_dot(factor[k], step, k)) / factor[k, k]
    for k in range(len(step) - 1, -1, -1):
        for later in range(k + 1, len(step)):
            step[k] -= factor[later, k] * step[later]
        step[k] /= factor[k, k]
    return damping


@compiled
def _fill_second_derivative(room: Room) -> None:
    """2 sum_i w (1 - s - c/d) I + w (c/d) u u', u the unit vector from x_i to y."""
    bends, scaled, second = room.terms[1], room.terms[2], room.matrices[0]
    isotropic = 2.0 * _sum(room.terms[0], room.lanes)
    for k in range(len(second)):
        difference = room.differences[k]
        for i in range(len(scaled)):
            scaled[i] = 2.0 * bends[i] * difference[i]
        for other in range(k + 1):
            second[k, other] = _dot(scaled, room.differences[other], room.lanes)
        second[k, k] += isotropic


@compiled
def _factor(second: AnyArray, damping: float, least: float, factor: AnyArray) -> bool:
    """Cholesky factor of the second derivative plus damping; False if a pivot is not above `least`."""
    for k in range(len(second)):
        for other in range(k):
            factor[k, other] = second[k, other] - _short_dot(factor[k], factor[other], other)
            factor[k, other] /= factor[other, other]
        pivot = second[k, k] + damping - _short_dot(factor[k], factor[k], k)
        if not pivot > least:
            return False
        factor[k, k] = math.sqrt(pivot)
    return True


@compiled
def _short_dot(a: AnyArray, b: AnyArray, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += a[k] * b[k]
    return total


@compiled
def _dot(a: AnyArray, b: AnyArray, lanes: AnyArray) -> float:
    """a.b of padded arrays."""
    lanes[:] = 0.0
    for first in range(0, len(a), LANES):
        x, y = a[first : first + LANES], b[first : first + LANES]
        for lane in range(LANES):
            lanes[lane] += x[lane] * y[lane]
    return _total(lanes)


@compiled
def _sum(a: AnyArray, lanes: AnyArray) -> float:
    """The sum of a padded array."""
    lanes[:] = 0.0
    for first in range(0, len(a), LANES):
        x = a[first : first + LANES]
        for lane in range(LANES):
            lanes[lane] += x[lane]
    return _total(lanes)


@compiled
def _total(lanes: AnyArray) -> float:
    total = 0.0
    for lane in range(LANES):
        total += lanes[lane]
    return total
