"""How many shortest paths run through each node of a graph, estimated from paths between drawn nodes.

The work is a search from each source, and a walk back from each target that ends where an earlier one has been.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.geodesics.shortest_paths import Csr, PathGraph, PathSearch
from pipeline.types import AnyArray, FloatArray, IntArray


class PathLoads(NamedTuple):
    """The share (n,) of the paths that run through each node, without those that end there, and their mean length."""

    shares: FloatArray
    mean_length: float


def path_loads(
    graph: PathGraph, searches: Sequence[PathSearch], rows: IntArray, sources: IntArray, targets: IntArray
) -> PathLoads:
    """Follow a shortest path from each source to each target that it reaches, with as many threads as there are
    searches in the graph. Of several as long, the one is taken whose last node but one has the lowest row, and so on
    back to the source."""
    found = [(0, 0.0)] * len(sources)

    def follow(first: int) -> IntArray:
        counts = np.zeros(graph.n_nodes, np.int64)
        workspace = np.full(graph.n_nodes, -1, np.int32), np.empty(graph.n_nodes, np.int32)
        for place in range(first, len(sources), len(searches)):
            source = int(sources[place])
            lengths = searches[first].lengths_from(source)
            reached = targets[np.isfinite(lengths[targets]) & (targets != source)]
            found[place] = len(reached), float(lengths[reached].sum())
            _add_paths(graph.csr, rows, lengths, (source, reached), workspace, counts)
        return counts

    with ThreadPoolExecutor(len(searches)) as pool:
        counts = sum(pool.map(follow, range(len(searches))), np.zeros(graph.n_nodes, np.int64))
    # In the order of the sources, whatever thread followed them.
    n_paths, total = max(1, sum(n for n, _ in found)), 0.0
    for _, length in found:
        total += length
    return PathLoads(counts / n_paths, total / n_paths)


@compiled
def _add_paths(
    csr: Csr,
    rows: AnyArray,
    lengths: AnyArray,
    ends: tuple[int, AnyArray],
    workspace: tuple[AnyArray, AnyArray],
    counts: AnyArray,
) -> None:
    """Add to the counts (n,) the paths from a source to targets; the workspace is left as it was."""
    (source, targets), (places, nodes) = ends, workspace
    n_nodes = 0
    for target in targets:
        v = int(target)
        while v >= 0 and v != source and places[v] < 0:
            places[v], nodes[n_nodes] = n_nodes, v
            n_nodes += 1
            v = _before(csr, rows, lengths, v)
    through = np.zeros(n_nodes, np.int64)
    for target in targets:
        through[places[target]] += 1
        counts[target] -= 1
    # The farthest first: all paths through a node are known before they are passed on.
    for i in np.argsort(-lengths[nodes[:n_nodes]]):
        counts[nodes[i]] += through[i]
        u = _before(csr, rows, lengths, int(nodes[i]))
        if u >= 0 and u != source:
            through[places[u]] += through[i]
    places[nodes[:n_nodes]] = -1


@compiled
def _before(csr: Csr, rows: AnyArray, lengths: AnyArray, v: int) -> int:
    """The node before v on its path, -1 if it is at no distance from it: a path of zero lengths is not followed."""
    offsets, targets, weights = csr
    best = -1
    for edge in range(offsets[v], offsets[v + 1]):
        u = int(targets[edge])
        is_before = lengths[u] < lengths[v] and lengths[u] + np.float64(weights[edge]) == lengths[v]
        if is_before and (best < 0 or rows[u] < rows[best]):
            best = u
    return best
