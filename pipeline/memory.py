"""How much memory each stage takes at its peak, by arithmetic: known before anything runs.

Figures are for one process that works on one partition at a time. `python -m benchmarks.memory` measures them.
"""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIB = 1 << 20
# The interpreter and its libraries; in later stages also compiled loops, and what allocators do not give back.
BASE, LATER = 200 * MIB, 100 * MIB
EARLY = ("validate", "axes", "cells", "assign", "order")
# What follows a graph, whatever its edges come from.
ALONG_THE_GRAPH = ("components", "landmarks", "rows", "model", "calibrate", "embed", "evaluate", "publish")
# Bytes of an edge while lists of any length are made, and while a graph is loaded.
LISTED_EDGE = 100
# Blocks of distances to candidates, wherever neighbors are searched.
SEARCH = 96 * MIB
# Points in memory at once: the group that is searched for, the one that is searched in, one to spare.
GROUPS = 3
# What a search for shortest paths holds for each node: eight lengths, and where it waits.
SEARCHED_NODE = 96
# A block of dissimilarities of rows to all landmarks, where they are not stored.
DISSIMILARITIES = 64 * MIB
# Sampled points whose distances to all cells are held at once.
RANKED_POINTS = 128


@dataclass(frozen=True)
class RunShape:
    """What the memory of a fit depends on: sizes in numbers and bytes."""

    n_rows: int
    n_columns: int
    source_itemsize: int
    n_axes: int
    finds_axes: bool
    point_itemsize: int
    rows_each: int
    n_cells: int
    cell_sample: int
    n_neighbors: int
    n_landmarks: int
    landmark_candidates: int
    batch: int
    nodes_per_chunk: int
    n_components: int
    # What edges come from: `neighbors`, a `radius` or a graph that is `given`; of the latter `n_neighbors` is a mean.
    edges_from: str = "neighbors"

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that it has, in order."""
        if self.edges_from == "given":
            return ("validate", "graph", *ALONG_THE_GRAPH)
        axes = ("axes",) * self.finds_axes
        lists = ("neighbors",) * (self.edges_from == "neighbors")
        return ("validate", *axes, "cells", "assign", "order", "probes", *lists, "graph", *ALONG_THE_GRAPH)

    @property
    def block(self) -> int:
        """Bytes of a partition's points as the run keeps them."""
        return min(self.n_rows, self.rows_each) * self.n_axes * self.point_itemsize

    @property
    def reading(self) -> int:
        """Bytes at the peak of reading a partition of the source and preprocessing it."""
        entries = min(self.n_rows, self.rows_each) * self.n_columns
        return entries * (self.source_itemsize + 2 * self.point_itemsize)


def stage_peaks(shape: RunShape) -> dict[str, int]:
    """Bytes that each stage has in memory at most, by its name."""
    rows = min(shape.n_rows, shape.rows_each)
    point = shape.n_axes * shape.point_itemsize
    edges = rows * shape.n_neighbors
    groups = GROUPS * shape.block
    per_node = 8 * shape.n_rows
    # About 1.3 times as many edges as neighbors, and as often twice, if those are not edges themselves: 8 bytes each.
    by_lists = shape.edges_from == "neighbors"
    graph = (13 if by_lists else 8) * shape.n_neighbors * shape.n_rows + per_node
    chunk = min(shape.n_rows, shape.nodes_per_chunk)
    lists = rows * (2 * shape.n_components + 4) * 8
    sampled = min(4000, shape.n_rows, max(100, 4_000_000 // shape.n_landmarks))
    parts = {
        "validate": rows * shape.n_columns * shape.source_itemsize + 4096 * shape.n_columns * 24,
        "axes": 3 * 8 * shape.n_columns**2 + 4096 * shape.n_columns * 24,
        "cells": shape.cell_sample * shape.n_axes * (shape.point_itemsize + 4) + shape.reading,
        "assign": shape.reading + 2 * shape.block + SEARCH + 16 * shape.n_cells * shape.n_axes,
        "order": 9 * shape.block,
        "probes": groups + SEARCH + 32 * RANKED_POINTS * shape.n_cells,
        "neighbors": groups + 3 * shape.block + SEARCH + 48 * edges,
        "graph": max(2 * 96 * edges, 6 * per_node),
        "components": shape.block + 2 * per_node,
        "landmarks": max(4 * per_node + 2 * shape.landmark_candidates * point + groups, graph + 4 * per_node),
        "rows": graph + SEARCHED_NODE * shape.n_rows,
        "model": 5 * 8 * shape.n_landmarks**2,
        "calibrate": 20_000 * 8 * (12 * shape.n_components + 4 * shape.n_neighbors + 24),
        "embed": 2 * per_node + 3 * 4 * chunk * shape.n_landmarks + 2048 * 24 * shape.n_landmarks + 4 * lists,
        "evaluate": groups + 8 * sampled * (5 * shape.n_landmarks + 4 * shape.n_axes),
        "publish": 3 * lists,
    }
    if not by_lists:
        parts["graph"] = max(groups + SEARCH + LISTED_EDGE * edges, 6 * per_node)
    if shape.edges_from == "given":
        parts |= {"validate": LISTED_EDGE * shape.n_neighbors * shape.n_rows, "landmarks": graph + 4 * per_node}
    return {name: BASE + (0 if name in EARLY else LATER) + part for name, part in parts.items()}


def extension_peaks(
    rows_each: int,
    n_columns: int,
    n_axes: int,
    itemsize: int,
    n_neighbors: int,
    n_components: int,
    n_cells: int,
    n_nodes: int,
) -> dict[str, int]:
    """Bytes that each stage of an extension has in memory at most: with partitions of `rows_each` new rows, whatever
    their number, against `n_nodes` fitted points in `n_cells` cells."""
    block, reading = rows_each * n_axes * itemsize, rows_each * n_columns * 3 * itemsize
    lists, neighbors = rows_each * n_neighbors, min(n_nodes, rows_each * n_neighbors)
    results = rows_each * (2 * n_components + 8) * 8
    parts = {
        "validate": reading + 4096 * n_columns * 24,
        "assign": reading + 2 * block + SEARCH + 16 * n_cells * n_axes,
        "order": 9 * block,
        "search": 4 * block + SEARCH + 48 * lists + 16 * n_cells * n_axes,
        # Places of neighbors, and their distances to a batch of landmarks.
        "place": 40 * lists + 48 * neighbors + 5 * results,
        "publish": 3 * results,
    }
    return {name: BASE + (0 if name in EARLY else LATER) + part for name, part in parts.items()}


def new_node_peaks(rows_each: int, n_edges: int, n_components: int, n_nodes: int) -> dict[str, int]:
    """The same where each new node comes with about `n_edges` edges to nodes of a graph; all that come at once are held
    in memory, here counted as two partitions of them."""
    lists, results = rows_each * n_edges, rows_each * (2 * n_components + 8) * 8
    parts = {
        "validate": 2 * 100 * lists,
        "search": 60 * lists + 9 * n_nodes,
        "place": 40 * lists + 48 * min(n_nodes, lists) + 5 * results,
        "publish": 3 * results,
    }
    return {name: BASE + (0 if name in EARLY else LATER) + part for name, part in parts.items()}


def direct_peaks(partition_bytes: int, n_columns: int, n_landmarks: int) -> dict[str, int]:
    """Bytes that each stage has in memory at most where rows are measured straight from the landmarks, fitted or new:
    a partition of data, and a block of dissimilarities a few times over."""
    blocks = 4 * DISSIMILARITIES + 8 * n_landmarks * n_columns
    parts = {
        "validate": 3 * partition_bytes + 4096 * n_columns * 24,
        "axes": 3 * 8 * n_columns**2 + 4096 * n_columns * 24,
        "landmarks": 50 * n_landmarks * n_columns * 16 + 3 * partition_bytes,
        "subset": 8 * 8 * n_landmarks**2,
        "rows": blocks,
        "model": 12 * 8 * n_landmarks**2,
        "embed": 4 * partition_bytes + blocks,
        "calibrate": LATER,
        "evaluate": 3 * partition_bytes + 2 * DISSIMILARITIES,
        "place": 4 * partition_bytes + blocks,
        "joint": 4 * partition_bytes + blocks,
        "arcs": blocks,
        "publish": 4 * partition_bytes,
    }
    return {name: BASE + (0 if name in EARLY else LATER) + part for name, part in parts.items()}


def machine_memory() -> int:
    """Bytes of memory of the machine, or of the container if it has a limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = CONTAINER_LIMIT.read_text().strip() if CONTAINER_LIMIT.is_file() else ""
    return min(physical, int(limit)) if limit.isdigit() else physical


def release_free_memory() -> None:
    """Hand memory that was freed back to the system, where the C library keeps it for itself otherwise."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
