"""Rows of a prepared source, picked by number or by rank among those that take part: each partition is read once."""

import numpy as np

from pipeline.sources.partitions import RowPartitions
from pipeline.stages.validate import PreparedSource, usable_rows
from pipeline.types import AnyArray, IntArray


def n_usable(data: PreparedSource) -> int:
    """How many rows take part."""
    figures = data.validated.figures
    return int(figures["n_rows"] - figures["n_dropped_rows"])


def rows_of_rank(data: PreparedSource, partitions: RowPartitions, ranks: IntArray) -> tuple[AnyArray, IntArray]:
    """Points (r, D) and numbers (r,) of the rows with these ranks, rising, among the usable ones."""
    points = np.empty((len(ranks), data.n_columns), dtype=data.preprocessing.dtype)
    rows, seen = np.empty(len(ranks), dtype=np.int64), 0
    for partition in range(partitions.count):
        n_here = int(data.validated.ledger.part("usable", partition).read().sum())
        first, last = np.searchsorted(ranks, [seen, seen + n_here])
        if first < last:
            part = partitions.rows(partition)
            block = data.read(part.start, part.stop)
            places = np.flatnonzero(usable_rows(block))[ranks[first:last] - seen]
            points[first:last], rows[first:last] = block[places], places + part.start
        seen += n_here
    return points, rows


def points_of_rows(data: PreparedSource, partitions: RowPartitions, rows: IntArray) -> AnyArray:
    """Points (r, D) of the rows with these numbers, rising."""
    points = np.empty((len(rows), data.n_columns), dtype=data.preprocessing.dtype)
    bounds = np.searchsorted(rows, np.arange(partitions.count + 1) * partitions.rows_each)
    for partition in np.flatnonzero(np.diff(bounds)).tolist():
        part, mine = partitions.rows(partition), slice(*bounds[partition : partition + 2])
        points[mine] = data.read(part.start, part.stop)[rows[mine] - part.start]
    return points
