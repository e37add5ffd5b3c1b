"""A few points that stand for all: random and farthest-point landmarks; rows held out to calibrate trust; and anchors.

Held-out rows are training rows treated as new: their distances to the landmarks go through their nearest other points.
Rows are drawn by a hash of their number, whatever the order and the batches in which they come. A point's key is the
least hash of its rows, and the points with the least keys are the anchors. So the rows of anchors are those with hashes
up to a threshold, and rows in any range beyond relate to the anchors like new rows, duplicates included. Near anchors
may be on different turns of the data. Their distances to the landmarks tell: by the triangle inequality, no path
between two points is shorter than the difference of their distances to any landmark.
"""

import math
from typing import NamedTuple

import numpy as np

from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors.radius import RadiusLists
from pipeline.types import AnyArray, BoolArray, FloatArray, HashArray, IntArray

# With this many candidates the covering radius is within a few percent of that on all points.
MAXMIN_CANDIDATES_PER_LANDMARK = 50
# With this many, errors on digits and words in ten components were within a few percent of their limit.
LANDMARKS_PER_COMPONENT = 40
# Up to this many columns distances are summed column by column, for many points at once.
FEW_COLUMNS = 16
BLOCK_ROWS = 512


def random_landmarks(n_points: int, n_landmarks: int, seed: int) -> IntArray:
    """Distinct rows chosen uniformly, in rising order."""
    checks.integer_in_range("n_points", n_points, 1, None, "points to choose from")
    m = checked_count(n_points, n_landmarks)
    return np.sort(checks.generator(seed).choice(n_points, m, replace=False)).astype(np.int64)


def maxmin_candidates(n_points: int, n_landmarks: int, seed: int) -> tuple[IntArray, int]:
    """The rows, rising, among which farthest points are chosen, and the place in them of the first: both at random."""
    m = checked_count(n_points, n_landmarks)
    rng, size = checks.generator(seed), min(n_points, MAXMIN_CANDIDATES_PER_LANDMARK * m)
    candidates = np.sort(rng.choice(n_points, size, replace=False)).astype(np.int64)
    return candidates, int(rng.integers(size))


def farthest_points(points: AnyArray, first: int, n_landmarks: int) -> IntArray:
    """Rows of `points`, beginning with `first`, each the farthest from those before; ties go to the lower row."""
    if points.shape[1] <= FEW_COLUMNS:
        return _farthest_by_columns(np.ascontiguousarray(points.T), first, n_landmarks)
    return _farthest_points(np.ascontiguousarray(points), first, n_landmarks)


def automatic_count(n_points: int, n_components: int) -> int:
    """Default number of landmarks: grows slowly with the points, and with the components. Its error is within a few
    percent of what more landmarks would reach (measurements in docs/studies.md)."""
    return min(n_points, max(LANDMARKS_PER_COMPONENT * (n_components + 1), round(100 + 2 * math.sqrt(n_points))))


def checked_count(n_points: int, n_landmarks: int) -> int:
    return checks.integer_in_range("n_landmarks", n_landmarks, 1, n_points, f"there are {n_points} points")


@compiled
def _farthest_by_columns(columns: AnyArray, first: int, n_landmarks: int) -> IntArray:
    """`_farthest_points` to the bit, for so few columns that stopping sums early does not pay."""
    n_points, chosen = columns.shape[1], np.empty(n_landmarks, dtype=np.int64)
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
    return chosen


@compiled
def _farthest_points(points: AnyArray, first: int, n_landmarks: int) -> IntArray:
    nearest, chosen = np.full(len(points), np.inf), np.empty(n_landmarks, dtype=np.int64)
    latest = first
    for i in range(len(chosen)):
        chosen[i] = latest
        # -1 rather than 0: if only duplicates of chosen points are left, one not chosen yet must still win.
        nearest[latest] = -1.0
        farthest, following = -1.0, 0
        for row in range(len(points)):
            if nearest[row] >= 0.0:
                nearest[row] = _shortened(points[row], points[latest], nearest[row])
                if nearest[row] > farthest:
                    farthest, following = nearest[row], row
        latest = following
    return chosen


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


# Enough to resolve a share of one in a thousand.
MOST_HELD_OUT = 20_000


def drawn(rows: IntArray, n_rows: int, seed: int, wanted: int = MOST_HELD_OUT) -> BoolArray:
    """Whether each of these rows out of `n_rows` is drawn: all if there are few, else about as many as `wanted`."""
    if n_rows <= wanted:
        return np.ones(len(rows), dtype=np.bool_)
    return np.asarray(row_hashes(rows, seed) < np.uint64(int(wanted / n_rows * 2**64)))


# Added to the seed of a quality sample, so that rows to calibrate by are another draw.
CALIBRATION_SEED = 1


def calibrating(rows: IntArray, n_rows: int, seed: int, landmarks: IntArray) -> tuple[BoolArray, BoolArray]:
    """Which of these rows out of `n_rows` calibrate trust where rows are compared with landmarks directly: those drawn
    that are no landmarks, which are as good as new; and drawn landmarks, for where every row is one."""
    chosen, own = drawn(rows, n_rows, seed + CALIBRATION_SEED), np.isin(rows, landmarks)
    return chosen & ~own, chosen & own


def row_hashes(rows: IntArray, seed: int) -> HashArray:
    """A 64-bit number for each row that depends only on row and seed, evenly distributed and different for all rows."""
    return _mixed(rows.astype(np.uint64) + _mixed(np.array([seed], dtype=np.uint64)))


def _mixed(numbers: HashArray) -> HashArray:
    """The finalizer of splitmix64: every output bit depends on every input bit."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


MOST_CHECKED = 4000
# If few rows are left: the share of them that calibrates; the others check.
CALIBRATING_SHARE = 0.8
ALL = 2**64 - 1
# Neighbors that are farther apart along the data than through a point by this factor are on different turns of it. On
# rolls anything from 1.25 to 3 works the same; on digits less than 2 leaves out too many.
ACROSS = 2.0


class HeldRanges(NamedTuple):
    """Rows with hashes above `anchored` and up to `calibrating` calibrate; those up to `checking` check."""

    anchored: int
    calibrating: int
    checking: int


def least_keys(keys: HashArray, candidates: IntArray, count: int) -> tuple[IntArray, int]:
    """The `count` candidates (numbers into `keys`) with the least keys, rising, and the greatest of these keys."""
    if not count:
        return candidates[:0], 0
    chosen = candidates[np.argpartition(keys[candidates], count - 1)[:count]]
    return np.sort(chosen), int(keys[chosen].max())


def held_ranges(anchored: int, n_rows: int) -> HeldRanges:
    """Which hashes calibrate and which check, of `n_rows` rows: as many as are useful, or what is left."""
    left = ALL - anchored
    calibrating = min(_span(MOST_HELD_OUT, n_rows), int(left * CALIBRATING_SHARE))
    checking = min(_span(MOST_CHECKED, n_rows), left - calibrating)
    return HeldRanges(anchored, anchored + calibrating, anchored + calibrating + checking)


def _span(wanted: int, n_rows: int) -> int:
    return min(ALL, int(wanted / n_rows * ALL))


def firsts_of_groups(keys: HashArray, labels: IntArray, n_groups: int) -> IntArray:
    """The member with the least key of each of the groups labelled 1 to `n_groups`."""
    members = np.flatnonzero((labels > 0) & (labels <= n_groups))
    members = members[np.lexsort((keys[members], labels[members]))]
    _, first = np.unique(labels[members], return_index=True)
    return np.asarray(members[first])


@compiled
def widen(lengths: AnyArray, starts: AnyArray, ends: AnyArray, to_landmarks: AnyArray) -> None:
    """Raise lengths (e,), in place, to the greatest difference of the ends' distances (n, b) to some landmarks. Along
    edges widened by all landmarks no point is nearer to a landmark than it is along the data."""
    for edge in range(len(lengths)):
        for landmark in range(to_landmarks.shape[1]):
            gap = abs(to_landmarks[starts[edge], landmark] - to_landmarks[ends[edge], landmark])
            # NaN, the difference of two infinite distances, is ignored.
            if gap > lengths[edge]:
                lengths[edge] = gap


def along_the_data(lists: RadiusLists, apart: FloatArray) -> RadiusLists:
    """The edges of new points with lengths along the data, assuming each point is beside its nearest neighbor. `apart`
    (e,) bounds from below how far each neighbor is from the nearest; less the distance to the nearest, it bounds the
    neighbor's distance. A neighbor across a gap is replaced by the nearest. Lists stay sorted."""
    firsts = np.repeat(lists.offsets[:-1], lists.sizes)
    nearest = lists.distances[firsts]
    across = apart > ACROSS * (nearest + lists.distances)
    lengths = np.where(across, nearest, np.maximum(lists.distances, apart - nearest))
    # Stable: edges that tie stay in their order.
    order = np.lexsort((lengths, firsts))
    listed = np.where(across, lists.indices[firsts], lists.indices)
    return RadiusLists(lists.offsets, listed[order], lengths[order])
