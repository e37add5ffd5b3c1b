"""Lists of the nearest so far: sorted by distance, ties by row. What comes in, in any order, the end is the same."""

import math

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray


@compiled
def clear(distances: AnyArray, indices: AnyArray) -> None:
    distances[:] = np.inf
    indices[:] = -1


@compiled
def insert(distances: AnyArray, indices: AnyArray, distance: float, row: int) -> None:
    """Put (distance, row) into its place in a list sorted by distance, then row, if it belongs there."""
    place = len(distances) - 1
    if distance > distances[place] or (distance == distances[place] and row > indices[place] >= 0):
        return
    while place > 0 and (
        distance < distances[place - 1] or (distance == distances[place - 1] and row < indices[place - 1])
    ):
        distances[place], indices[place] = distances[place - 1], indices[place - 1]
        place -= 1
    distances[place], indices[place] = distance, row


@compiled
def distance_between(a: AnyArray, b: AnyArray) -> float:
    """Rooted before it is ranked: squares that differ may have equal roots, and ties are those of what is returned."""
    total = 0.0
    for k in range(len(a)):
        difference = np.float64(a[k]) - np.float64(b[k])
        total += difference * difference
    return math.sqrt(total)
