"""Sources of shortest paths in groups near each other along the graph, so that one search serves a group.

Every node belongs to the source nearest to it; where two such territories touch, the edge across makes a link between
their sources. Distances along those few links are all that the grouping needs.
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra, floyd_warshall

from pipeline.numerics.compiled import compiled
from pipeline.numerics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.vectors import LANES
from pipeline.types import AnyArray, FloatArray, IntArray


def nearby_order(graph: PathGraph, sources: IntArray) -> IntArray:
    """An order of the sources in which every LANES consecutive ones are near each other, the middle one first.

    Groups are taken from the far end of what is left, so that what is left stays in one piece.
    """
    links = np.full((len(sources), len(sources)), np.inf, dtype=np.float32)
    _link_territories(graph.offsets, graph.targets, graph.weights, *PathSearch(graph).spread(sources)[:2], links)
    ends = np.nonzero(np.isfinite(links))
    between = coo_array((links[ends].astype(np.float64), ends), shape=(len(sources), len(sources))).tocsr()
    depth = dijkstra(between, indices=[0])[0]
    left = np.ones(len(sources), dtype=np.bool_)
    groups = []
    while left.any():
        remaining = np.flatnonzero(left)
        seed = remaining[np.argmax(depth[remaining])]
        away = dijkstra(between, indices=[seed])[0, remaining]
        group = remaining[np.argsort(away, kind="stable")[:LANES]]
        groups.append(_middle_first(links, group))
        left[group] = False
    return np.concatenate(groups)


def _middle_first(links: AnyArray, group: IntArray) -> IntArray:
    """The group with the source first whose way to the farthest other, within the group, is the shortest."""
    away: FloatArray = floyd_warshall(links[np.ix_(group, group)].astype(np.float64))
    middle = int(np.argmin(away.max(axis=1, initial=0.0)))
    return np.concatenate([group[middle : middle + 1], np.delete(group, middle)])


@compiled
def _link_territories(
    offsets: AnyArray, targets: AnyArray, weights: AnyArray, lengths: AnyArray, nearest: AnyArray, links: AnyArray
) -> None:
    """The shortest way between each two sources whose territories touch, across one edge between them."""
    for u in range(len(nearest)):
        own = nearest[u]
        if own < 0:
            continue
        for edge in range(offsets[u], offsets[u + 1]):
            other = nearest[targets[edge]]
            if other != own and other >= 0:
                length = np.float32(lengths[u] + weights[edge] + lengths[targets[edge]])
                if length < links[own, other]:
                    links[own, other] = length
                    links[other, own] = length
