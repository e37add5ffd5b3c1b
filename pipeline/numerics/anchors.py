"""Anchors: a few of a run's points that stand for all of them, and rows left to judge them by.

Every row has a hash. A point's key is the least hash of the rows that it stands for, and the points of the least keys are
the anchors. So a row is among the anchors' if and only if its hash is up to a threshold, and the rows beyond, in any range
of hashes, are to the anchors what new rows of the same kind are: equal ones come in the same share, too.
"""

from typing import NamedTuple

import numpy as np

from pipeline.numerics.held_out import MOST_HELD_OUT
from pipeline.types import AnyArray, HashArray, IntArray

MOST_CHECKED = 4000
# Where few rows are left: the share of them that calibrates, the others check.
CALIBRATING_SHARE = 0.8
ALL = 2**64 - 1


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


def widened(lengths: AnyArray, starts: IntArray, ends: IntArray, to_landmarks: AnyArray) -> None:
    """Raise the lengths (e,) of edges, in place, to the difference of their ends' distances (n, b) to some landmarks.

    By the triangle inequality no path between the ends is shorter than any of the differences. So along edges that were
    widened by all landmarks no point is nearer to a landmark than it was: shortcuts through empty space are closed.
    """
    for column in to_landmarks.T:
        with np.errstate(invalid="ignore"):  # both ends may reach no landmark; that says nothing
            np.fmax(lengths, np.abs(column[starts] - column[ends]), out=lengths)
