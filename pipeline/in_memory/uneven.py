"""Along graphs whose nodes have any number of edges: path lengths of new points, and nodes far from each other."""

import numpy as np

from pipeline.numerics.geodesics import rows_through_neighbors
from pipeline.numerics.radius import RadiusLists
from pipeline.numerics.shortest_paths import PathGraph, PathSearch
from pipeline.types import AnyArray, IntArray

# Lists that are filled up to the longest among so many.
LISTS_AT_ONCE = 256


def rows_through_lists(lists: RadiusLists, to_landmarks: AnyArray) -> AnyArray:
    """Path lengths (q, m) of new points to the landmarks, given their neighbors and those points' (n, m); infinite
    where a list is empty."""
    sizes = np.diff(lists.offsets)
    rows = np.full((len(sizes), to_landmarks.shape[1]), np.inf, dtype=to_landmarks.dtype)
    order = np.argsort(sizes, kind="stable")[np.count_nonzero(sizes == 0) :]
    for first in range(0, len(order), LISTS_AT_ONCE):
        some = order[first : first + LISTS_AT_ONCE]
        # Filled up with the last of each list: an edge that is there twice changes no minimum.
        places = lists.offsets[some, None] + np.minimum(np.arange(sizes[some].max()), sizes[some, None] - 1)
        rows[some] = rows_through_neighbors(lists.distances[places], lists.indices[places], to_landmarks)
    return rows


def farthest_nodes(graph: PathGraph, candidates: IntArray, first: int, n_chosen: int) -> IntArray:
    """Places in `candidates`, nodes that all reach each other, from `first` on; of equally far ones the first."""
    search, chosen = PathSearch(graph), [first]
    nearest = np.full(len(candidates), np.inf)
    while len(chosen) < n_chosen:
        np.minimum(nearest, search.lengths(candidates[chosen[-1:]])[candidates, 0], out=nearest)
        # Nodes may be at no distance from each other.
        nearest[chosen[-1]] = -1.0
        chosen.append(int(nearest.argmax()))
    return np.array(chosen, dtype=np.int64)
