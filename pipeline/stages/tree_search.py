"""Neighbors in few dimensions, exactly: a group's own points first, then the cells that its nodes' balls reach into.

Each node's k-th distance so far says how far it has to look. Cells whose box is beyond are never read, so what is in
memory at once is a group and a portion of others about as large, whatever the data.
"""

from collections.abc import Iterator

import numpy as np

from pipeline.numerics.trees import LabelledTree, box_gaps, reaching
from pipeline.stages.ordered import OrderedNodes, empty_lists, node_keys
from pipeline.types import AnyArray, FloatArray, IntArray

# Nodes of other groups searched at once, at least.
LEAST_PORTION = 1 << 16


def neighbors_by_trees(nodes: OrderedNodes, group: int, k: int) -> tuple[FloatArray, IntArray]:
    """Distances (n, k) and keys (n, k) of the k nearest of a group's nodes."""
    points, rows = nodes.group(group)
    keys = node_keys(rows, int(nodes.offsets[nodes.groups[group]]))
    distances, found = empty_lists(len(points), k)
    LabelledTree(points, keys).refine(points, keys, distances, found)
    home = slice(*nodes.groups[group : group + 2].tolist())
    sizes, homes = nodes.sizes[home], nodes.boxes[home]
    for cells in _portions(nodes, home, distances[:, -1], max(len(points), LEAST_PORTION)):
        open_rows = np.flatnonzero(reaching(points, distances[:, -1], sizes, homes, nodes.boxes[cells]))
        if len(open_rows):
            lists = distances[open_rows], found[open_rows]
            LabelledTree(*_read(nodes, cells, group)).refine(points[open_rows], keys[open_rows], *lists)
            distances[open_rows], found[open_rows] = lists
    return distances, found


def _portions(nodes: OrderedNodes, home: slice, limits: FloatArray, most_nodes: int) -> Iterator[IntArray]:
    """Cells of other groups, rising, that nodes may have to look into: the nearest first, so many nodes at a time."""
    sizes, holding = nodes.sizes[home], nodes.sizes[home] > 0
    starts = np.cumsum(sizes) - sizes
    farthest = np.maximum.reduceat(limits, starts[holding])
    others = np.setdiff1d(np.flatnonzero(nodes.sizes), np.arange(home.start, home.stop))
    gaps = box_gaps(nodes.boxes[home][holding], farthest, nodes.boxes[others])
    near = np.flatnonzero(np.isfinite(gaps))
    order = others[near[np.argsort(gaps[near], kind="stable")]]
    portion_of = np.cumsum(nodes.sizes[order]) // most_nodes
    for portion in np.unique(portion_of):
        yield np.sort(order[portion_of == portion])


def _read(nodes: OrderedNodes, cells: IntArray, group: int) -> tuple[AnyArray, IntArray]:
    """Points and keys of the nodes of some cells."""
    parts = [(points, keys) for _, points, keys in nodes.near_first(cells, group)]
    points, keys = (np.concatenate(column) for column in zip(*parts, strict=True))
    return points, keys
