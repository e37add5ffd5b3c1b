"""Which points become landmarks."""

import math

import numpy as np
from numpy.typing import ArrayLike

from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, IntArray

# Farthest-point selection scans its candidates once per landmark. On a sample this large the covering radius is
# within a few percent of that on all points.
MAXMIN_CANDIDATES_PER_LANDMARK = 50
# Of digits and words in ten components, errors were within a few percent of their limit from about so many on.
LANDMARKS_PER_COMPONENT = 40
# Up to so many columns distances are summed column by column, for many points at once.
FEW_COLUMNS = 16
BLOCK_ROWS = 512


def random_landmarks(n_points: int, n_landmarks: int, seed: int) -> IntArray:
    """Distinct rows chosen uniformly, in rising order."""
    checks.integer_in_range("n_points", n_points, 1, None, "points to choose from")
    m = _checked_count(n_points, n_landmarks)
    checks.integer_in_range("seed", seed, 0, None, "a seed of numpy's generator")
    return np.sort(np.random.default_rng(seed).choice(n_points, m, replace=False)).astype(np.int64)


def maxmin_landmarks(points: ArrayLike, n_landmarks: int, seed: int) -> IntArray:
    """Rows chosen one after the other, each the farthest from those before it, in the order of choice.

    Candidates are a seeded sample of at most 50 per landmark; the first landmark is random among them, ties go to
    the lower row.
    """
    array = checks.real_array("points", points, 2)
    checks.require_finite("points", array)
    checks.require_squarable("points", array)
    candidates, first = maxmin_candidates(len(array), n_landmarks, seed)
    return np.asarray(candidates[farthest_points(array[candidates], first, n_landmarks)])


def maxmin_candidates(n_points: int, n_landmarks: int, seed: int) -> tuple[IntArray, int]:
    """The rows, rising, among which farthest points are chosen, and the place in them of the first."""
    m = _checked_count(n_points, n_landmarks)
    checks.integer_in_range("seed", seed, 0, None, "a seed of numpy's generator")
    size = min(n_points, MAXMIN_CANDIDATES_PER_LANDMARK * m)
    rng = np.random.default_rng(seed)
    candidates = np.sort(rng.choice(n_points, size, replace=False)).astype(np.int64)
    return candidates, int(rng.integers(size))


def farthest_points(points: AnyArray, first: int, n_landmarks: int) -> IntArray:
    """Rows of `points` from `first` on, each the farthest from those before it."""
    chosen = np.empty(n_landmarks, dtype=np.int64)
    if points.shape[1] <= FEW_COLUMNS:
        _farthest_by_columns(np.ascontiguousarray(points.T), first, chosen)
    else:
        _farthest_points(np.ascontiguousarray(points), first, chosen)
    return chosen


def automatic_count(n_points: int, n_components: int) -> int:
    """How many landmarks to take where none are asked for: slowly more with the points, and some per component.

    So many that a study would call them enough: their error is within a few percent of what more would reach
    (docs/studies.md has the measurements).
    """
    return min(n_points, max(LANDMARKS_PER_COMPONENT * (n_components + 1), round(100 + 2 * math.sqrt(n_points))))


def _checked_count(n_points: int, n_landmarks: int) -> int:
    return checks.integer_in_range("n_landmarks", n_landmarks, 1, n_points, f"there are {n_points} points")


@compiled
def _farthest_by_columns(columns: AnyArray, first: int, chosen: AnyArray) -> None:
    """The same as `_farthest_points` to the bit, for so few columns that no sum is worth stopping early."""
    n_points = columns.shape[1]
    nearest, sums = np.full(n_points, np.inf), np.empty(BLOCK_ROWS)
    latest = first
    for i in range(len(chosen)):
        chosen[i] = latest
        nearest[latest] = -1.0
        farthest, following = -1.0, 0
        for begin in range(0, n_points, BLOCK_ROWS):
            size = min(BLOCK_ROWS, n_points - begin)
            sums[:size] = 0.0
            for column in columns:
                origin = np.float64(column[latest])
                for j in range(size):
                    difference = np.float64(column[begin + j]) - origin
                    sums[j] += difference * difference
            for j in range(size):
                shortest = min(nearest[begin + j], sums[j])
                nearest[begin + j] = shortest
                if shortest > farthest:
                    farthest, following = shortest, begin + j
        latest = following


@compiled
def _farthest_points(points: AnyArray, first: int, chosen: AnyArray) -> None:
    nearest = np.full(len(points), np.inf)
    latest = first
    for i in range(len(chosen)):
        chosen[i] = latest
        # -1 rather than 0: when only duplicates of chosen points are left, one not chosen yet must still win.
        nearest[latest] = -1.0
        farthest = -1.0
        following = 0
        for row in range(len(points)):
            if nearest[row] >= 0.0:
                nearest[row] = _shortened(points[row], points[latest], nearest[row])
                if nearest[row] > farthest:
                    farthest, following = nearest[row], row
        latest = following


@compiled
def _shortened(a: AnyArray, b: AnyArray, limit: float) -> float:
    """The smaller of ||a - b||^2 and `limit`; most landmarks are far from a point, so most sums stop early."""
    total = 0.0
    for start in range(0, len(a), 16):
        for k in range(start, min(start + 16, len(a))):
            difference = np.float64(a[k]) - np.float64(b[k])
            total += difference * difference
        if total >= limit:
            return limit
    return total
