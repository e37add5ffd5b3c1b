"""Nodes of a graph chosen one after the other, each the farthest from those before it along the graph.

A search from each choice goes only as far as it shortens a node's way to the nearest choice, so all searches together
cost little more than a few from one node.
"""

import heapq
from typing import Any

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.shortest_paths import PathGraph
from pipeline.types import AnyArray, IntArray


def farthest_nodes(graph: PathGraph, candidates: IntArray, first: int, n_chosen: int) -> IntArray:
    """Places in `candidates`, nodes that all reach each other, from `first` on; ties go to the lower place."""
    lengths = np.full(graph.n_nodes, np.inf)
    chosen = np.empty(n_chosen, dtype=np.int64)
    left = np.ones(len(candidates), dtype=np.bool_)
    for i in range(n_chosen):
        # Nodes may be at no distance from each other.
        chosen[i] = first if i == 0 else np.argmax(np.where(left, lengths[candidates], -1.0))
        left[chosen[i]] = False
        _shorten(graph.offsets, graph.targets, graph.weights, int(candidates[chosen[i]]), lengths)
    return chosen


@compiled
def _shorten(offsets: AnyArray, targets: AnyArray, weights: AnyArray, source: int, lengths: AnyArray) -> None:
    """Dijkstra's algorithm from one more source, where that is nearer than what is known."""
    lengths[source] = 0.0
    queue: Any = [(0.0, np.int64(source))]
    while queue:
        length, u = heapq.heappop(queue)
        if length > lengths[u]:
            continue
        for edge in range(offsets[u], offsets[u + 1]):
            v, offered = np.int64(targets[edge]), length + np.float64(weights[edge])
            if offered < lengths[v]:
                lengths[v] = offered
                heapq.heappush(queue, (offered, v))
