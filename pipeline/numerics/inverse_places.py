"""Rows of data whose embedded points are in the same place: they stand for one node, with their mean."""

import numpy as np

from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Rows in the same place whose mean is taken: the first, if there are more. Rows that repeat by the million are alike.
MOST_ROWS_OF_NODE = 64


def ranks_within(labels: IntArray) -> IntArray:
    """Of labels that do not fall, how many of the same come before each."""
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    return np.asarray(np.arange(len(labels)) - np.repeat(starts, np.diff(starts, append=len(labels))))


def mean_rows(values: AnyArray, places: IntArray) -> tuple[FloatArray, BoolArray]:
    """The mean (m, D) of the rows (r, D) in each place, and whether (m,) it is one of rows that differ.

    places (r,) are those of the rows, from 0 to m - 1, none without a row, and do not fall.
    """
    ranks = ranks_within(places)
    firsts = np.flatnonzero(ranks == 0)
    means, differ = values[firsts].astype(np.float64), np.zeros(len(firsts), dtype=np.bool_)
    others = np.flatnonzero((ranks > 0) & (ranks < MOST_ROWS_OF_NODE))
    shared, more = places[others], values[others]
    np.logical_or.at(differ, shared, (more != values[firsts[shared]]).any(axis=1))
    # One row after the other: in any other order sums have other bytes.
    np.add.at(means, shared, more)
    several = np.unique(shared)
    means[several] /= np.minimum(np.bincount(places), MOST_ROWS_OF_NODE)[several, None]
    # The mean of rows alike is the row, to the last bit.
    alike = several[~differ[several]]
    means[alike] = values[firsts[alike]]
    return means, differ
