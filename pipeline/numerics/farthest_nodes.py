"""Nodes of a graph chosen one after the other, each the farthest from those before it along the graph.

A search from each choice goes only as far as it shortens a node's way to the nearest choice, so all searches together
cost little more than a few from one node.
"""

import numpy as np

from pipeline.numerics.shortest_paths import PathGraph, shorten
from pipeline.types import IntArray


def farthest_nodes(graph: PathGraph, candidates: IntArray, first: int, n_chosen: int) -> IntArray:
    """Places in `candidates`, nodes that all reach each other, from `first` on; ties go to the lower place."""
    lengths = np.full(graph.n_nodes, np.inf)
    chosen = np.empty(n_chosen, dtype=np.int64)
    left = np.ones(len(candidates), dtype=np.bool_)
    for i in range(n_chosen):
        # Nodes may be at no distance from each other.
        chosen[i] = first if i == 0 else np.argmax(np.where(left, lengths[candidates], -1.0))
        left[chosen[i]] = False
        shorten(graph.offsets, graph.targets, graph.weights, int(candidates[chosen[i]]), lengths)
    return chosen
