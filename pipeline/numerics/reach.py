"""Which cells may hold a point near another, by their centers alone.

Every point of a cell is at least as near to its own center c as to that of a query's cell h, so the cell lies beyond
the plane midway between the two. The query q is (|q - c|^2 - |q - h|^2) / 2|c - h| before it: what is nearer than that
is not in the cell. In many dimensions balls around cells overlap where such planes still tell them apart.
"""

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.lists import distance_between
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

ROUNDING = 8.0 * float(np.finfo(np.float64).eps)


def within_reach(centers: FloatArray, probes: IntArray, apart: FloatArray, limits: FloatArray) -> BoolArray:
    """Whether each of some cells (p, c) may hold a point within the limit (p,) of each query.

    probes: numbers of cells (p, c), the nearest first. apart: the query's distances (p, c) to their centers.
    """
    reached = np.ones(probes.shape, dtype=np.bool_)
    _mark_reached(centers, probes, apart, limits, reached)
    return reached


@compiled
def _mark_reached(centers: AnyArray, probes: AnyArray, apart: AnyArray, limits: AnyArray, reached: AnyArray) -> None:
    rounding = ROUNDING * (centers.shape[1] + 8)
    for i in range(len(probes)):
        if not np.isfinite(limits[i]):
            continue
        home = centers[probes[i, 0]]
        for j in range(1, probes.shape[1]):
            gap = apart[i, j] ** 2 - apart[i, 0] ** 2
            # Distances are rounded, those that gave points their cells as well.
            slack = rounding * (limits[i] + apart[i, j]) ** 2
            reached[i, j] = gap <= 2.0 * limits[i] * distance_between(centers[probes[i, j]], home) + slack
