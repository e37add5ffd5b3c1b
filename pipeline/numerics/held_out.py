"""Training rows taken as if they were new, to know what new rows of the same kind look like.

Their distances to the landmarks go over their nearest other points, like those of a new row. Rows are drawn by a hash
of their number, so that a row is drawn or not whatever the order and the portions in which rows come.
"""

import numpy as np

from pipeline.types import BoolArray, HashArray, IntArray

# Enough for the thousandth part to be told from nothing.
MOST_HELD_OUT = 20_000


def drawn(rows: IntArray, n_rows: int, seed: int, wanted: int = MOST_HELD_OUT) -> BoolArray:
    """Whether each of some rows out of `n_rows` is drawn: all of few rows, else about as many as are wanted."""
    if n_rows <= wanted:
        return np.ones(len(rows), dtype=np.bool_)
    return np.asarray(row_hashes(rows, seed) < np.uint64(int(wanted / n_rows * 2**64)))


def row_hashes(rows: IntArray, seed: int) -> HashArray:
    """A number for each row that depends on it and the seed alone, even over all 64 bits and unlike any other row's."""
    return _mixed(rows.astype(np.uint64) + _mixed(np.array([seed], dtype=np.uint64)))


def _mixed(numbers: HashArray) -> HashArray:
    """The finalizer of splitmix64: every bit of the answer depends on every bit given."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
