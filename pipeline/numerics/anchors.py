"""Anchors: a few of a run's points that stand for all of them, and rows left to judge them by.

Every row has a hash. A point's key is the least hash of the rows that it stands for, and the points of the least keys
are the anchors. So a row is among the anchors' if and only if its hash is up to a threshold, and the rows beyond, in
any range of hashes, are to the anchors what new rows of the same kind are: equal ones come in the same share, too.

Anchors are farther apart than the points that they stand for, and those nearest to each other may be on different turns
of the data. Their distances to the landmarks tell: by the triangle inequality, no path between two points is shorter
than the difference of their distances to any landmark.
"""

from typing import NamedTuple

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.held_out import MOST_HELD_OUT
from pipeline.types import AnyArray, FloatArray, HashArray, IntArray

MOST_CHECKED = 4000
# Where few rows are left: the share of them that calibrates, the others check.
CALIBRATING_SHARE = 0.8
ALL = 2**64 - 1
# Neighbors that are by so much farther apart along the data than through a point are not on the same turn of it. On
# rolls any number from 1.25 to 3 does the same; on digits less than 2 leaves out too many.
ACROSS = 2.0


class HeldRanges(NamedTuple):
    """Rows whose hash is above `anchored` and up to `calibrating` calibrate; those up to `checking` check."""

    anchored: int
    calibrating: int
    checking: int


def least_keys(keys: HashArray, candidates: IntArray, count: int) -> tuple[IntArray, int]:
    """Those `count` of the candidates (numbers into `keys`) that have the least keys, rising; and the greatest of these
    keys."""
    if not count:
        return candidates[:0], 0
    chosen = candidates[np.argpartition(keys[candidates], count - 1)[:count]]
    return np.sort(chosen), int(keys[chosen].max())


def held_ranges(anchored: int, n_rows: int) -> HeldRanges:
    """Which hashes calibrate and which check, of `n_rows` rows: as many as are useful, or what is left."""
    left = ALL - anchored
    calibrating = min(_span(MOST_HELD_OUT, n_rows), int(left * CALIBRATING_SHARE))
    return HeldRanges(
        anchored, anchored + calibrating, anchored + calibrating + min(_span(MOST_CHECKED, n_rows), left - calibrating)
    )


def _span(wanted: int, n_rows: int) -> int:
    return min(ALL, int(wanted / n_rows * ALL))


def firsts_of_groups(keys: HashArray, labels: IntArray, n_groups: int) -> IntArray:
    """Of each of the groups labelled 1 to `n_groups`, the member of the least key."""
    members = np.flatnonzero((labels > 0) & (labels <= n_groups))
    members = members[np.lexsort((keys[members], labels[members]))]
    _, first = np.unique(labels[members], return_index=True)
    return np.asarray(members[first])


def widen(lengths: FloatArray, starts: IntArray, ends: IntArray, to_landmarks: AnyArray) -> None:
    """Raise lengths (e,), in place, to the greatest difference of the ends' distances (n, b) to some landmarks.

    Along edges that were widened by all landmarks no point is nearer to a landmark than it is along the data.
    """
    _widen(lengths, starts, ends, to_landmarks)


@compiled
def _widen(lengths: AnyArray, starts: AnyArray, ends: AnyArray, to_landmarks: AnyArray) -> None:
    for edge in range(len(lengths)):
        for landmark in range(to_landmarks.shape[1]):
            gap = abs(to_landmarks[starts[edge], landmark] - to_landmarks[ends[edge], landmark])
            # Of two ends that reach no landmark the difference is NaN, which says nothing.
            if gap > lengths[edge]:
                lengths[edge] = gap


def along_the_data(distances: FloatArray, neighbors: IntArray, apart: FloatArray) -> tuple[FloatArray, IntArray]:
    """Lists (p, k) of new points' neighbors with their distances along the data, if each point is beside its nearest.

    `apart` (p, k) bounds from below how far each neighbor is from the nearest; less the way to the nearest, it bounds
    how far it is from the point. In the place of one across a gap the nearest is listed again. Lists rise, as before.
    """
    nearest = distances[:, :1]
    across = apart > ACROSS * (nearest + distances)
    lengths = np.where(across, nearest, np.maximum(distances, apart - nearest))
    order = np.argsort(lengths, axis=1, kind="stable")
    listed = np.where(across, neighbors[:, :1], neighbors)
    return np.take_along_axis(lengths, order, axis=1), np.take_along_axis(listed, order, axis=1)
