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


@compiled
def insert_into_row(distances: AnyArray, indices: AnyArray, row: int, n_found: int, distance: float, index: int) -> int:
    """`insert` into one row of many lists, of which `n_found` places are filled; how many are filled then.

    Without slices, which cost more than all the rest in an inner loop; without signs, for a place that may be negative
    is looked at first; and only what is filled is moved.
    """
    i, place = np.uint64(row), np.uint64(min(n_found, distances.shape[1] - 1))
    if n_found > place and (
        distance > distances[i, place] or (distance == distances[i, place] and index > indices[i, place])
    ):
        return n_found
    while place > 0:
        before = place - np.uint64(1)
        if not (distance < distances[i, before] or (distance == distances[i, before] and index < indices[i, before])):
            break
        distances[i, place], indices[i, place] = distances[i, before], indices[i, before]
        place = before
    distances[i, place], indices[i, place] = distance, index
    return int(min(n_found + 1, distances.shape[1]))


@compiled
def n_listed(indices: AnyArray, row: int) -> int:
    """How many places of one of many lists are filled; the rest is -1."""
    i, n_found = np.uint64(row), 0
    while n_found < indices.shape[1] and indices[i, np.uint64(n_found)] >= 0:
        n_found += 1
    return n_found


@compiled
def distance_of_rows(points: AnyArray, i: int, others: AnyArray, j: int) -> float:
    """`distance_between` two rows, to the bit."""
    one, other, total = np.uint64(i), np.uint64(j), 0.0
    for k in range(points.shape[1]):
        axis = np.uint64(k)
        difference = np.float64(points[one, axis]) - np.float64(others[other, axis])
        total += difference * difference
    return math.sqrt(total)
