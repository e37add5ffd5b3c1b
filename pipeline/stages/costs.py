"""What each stage costs, by arithmetic: memory, pieces of work, seconds of one core, bytes on disk.

How much memory each stage takes at its peak, by arithmetic: known before anything runs.

Figures are for one process that works on one partition at a time. `python -m benchmarks.memory` measures them.

What each stage of a fit costs, by arithmetic: pieces of work, seconds of one core, bytes on disk.

The seconds are measured on one kind of machine and meant within a factor of two or so; `python -m benchmarks.plan`
holds them against a fit.

What each stage costs where rows are measured straight from the landmarks, by arithmetic.

Seconds are of one core, measured on one kind of machine and meant within a factor of two or so. What a function of the
user's takes is not known: it is counted as a few microseconds a call.
"""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from pipeline.sources.comparison import Comparisons

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


# Every node probes cells of about this many others.
CELL_NODES = 1024
# Up to so many columns neighbors are searched by trees; above, in this many cells, as long as nothing is known.
FEW_COLUMNS, PROBES = 3, 12
EVALUATED_NODES = 4000
# Rows taken as if they were new.
HELD_OUT_ROWS = 20_000
SECONDS_PER_TASK = 0.008


def stage_tasks(shape: RunShape) -> dict[str, int]:
    """Independent pieces of work of each stage. Groups of cells are about as many as partitions of the source."""
    partitions = -(-shape.n_rows // shape.rows_each)
    counts = dict.fromkeys(("cells", "probes", "components", "landmarks", "model", "calibrate", "evaluate"), 1)
    counts |= {"rows": -(-shape.n_landmarks // shape.batch), "axes": -(-shape.n_rows // (64 * 4096))}
    if shape.edges_from == "given":
        counts["validate"] = 1
    return {stage: counts.get(stage, partitions) for stage in shape.stages}


def stage_seconds(shape: RunShape) -> dict[str, float]:
    """Seconds that each stage takes on one core."""
    n, m, d, k, columns = shape.n_rows, shape.n_landmarks, shape.n_components, shape.n_neighbors, shape.n_axes
    source, points = n * shape.n_columns * shape.source_itemsize, n * columns * shape.point_itemsize
    few = columns <= FEW_COLUMNS
    pairs = n * min(PROBES, shape.n_cells) * min(CELL_NODES, n)
    comparing = 1e-9 + 2.8e-11 * columns
    # With few landmarks those that are searched together are far apart; with many columns everything is near.
    searching = (1 + 30 / m) * (1.0 if few else 4.0) * (n / 200_000) ** 0.2
    work = {
        "validate": 0.1 + 6e-9 * source,
        "axes": 4e-9 * source + 1e-10 * n * shape.n_columns**2,
        "cells": 0.2 + 2e-9 * source + 5e-10 * shape.cell_sample * shape.n_cells * columns,
        "assign": 1.5e-6 * n if few else 2e-6 * n + 3e-11 * n * shape.n_cells * columns + 6e-9 * points,
        "order": 1.2e-6 * n + 8e-9 * points,
        "probes": 0.02 if few else 0.2 + 6e-9 * points,
        "neighbors": 4.5e-7 * n * (k + 1) if few else pairs * comparing,
        "graph": 1.4e-7 * n * k,
        "components": 0.02,
        "landmarks": 0.1 + 3e-7 * n + 4e-8 * n * k + 4e-9 * points + 6e-10 * shape.landmark_candidates * m * columns,
        "rows": 3e-9 * m * n * k * searching,
        "model": 0.05 + 1e-10 * m**3,
        "calibrate": 0.02 + (5e-9 + 1e-9 * d) * min(n, HELD_OUT_ROWS) * m,
        "embed": (1.2e-6 + 2e-7 * d) * n + (5e-9 + 1e-9 * d) * n * m,
        "evaluate": 0.3 + 3.5e-10 * min(n, EVALUATED_NODES) ** 2 * columns,
        "publish": 0.1 + (4e-7 + 1.5e-7 * d) * n,
    }
    if shape.edges_from == "radius":
        # Points reach into other cells as far as the radius, which is not known to be near or far.
        work["graph"] = 3e-7 * n * k if few else pairs * comparing + 1.5e-7 * n * k
    if shape.edges_from == "given":
        # Few edges are many steps.
        work |= {"validate": 0.1 + 6e-7 * n * k, "graph": 0.1 + 1.4e-7 * n * k, "evaluate": 0.1}
        work |= {"landmarks": 0.1 + 3e-7 * n * (k + 3), "rows": 3e-9 * m * n * (k + 3) * searching}
    return {stage: work[stage] + SECONDS_PER_TASK * tasks for stage, tasks in stage_tasks(shape).items()}


def stage_bytes(shape: RunShape) -> dict[str, int]:
    """Bytes that each stage leaves on disk, compressed as such numbers are."""
    n, k, d = shape.n_rows, shape.n_neighbors, shape.n_components
    points = n * shape.n_axes * shape.point_itemsize
    values = 8 * (2 * d + 4) * n
    # Distances kept for the figures of quality, by each group and together.
    m = shape.n_landmarks
    sampled = min(min(n, EVALUATED_NODES) * m, max(4_000_000, 100 * m))
    size = {
        "validate": 32 * shape.n_columns * (n // 4096 + 1),
        "axes": 8 * shape.n_columns**2 * (n // (64 * 4096) + 2),
        "cells": 8 * shape.n_cells * shape.n_axes,
        "assign": points + 4 * n,
        "order": points + 6 * n,
        "neighbors": 11 * (n + 2 * min(n, HELD_OUT_ROWS)) * k,
        "graph": 9 * n * k,
        "rows": 4 * (n + 2 * min(n, HELD_OUT_ROWS)) * m,
        "model": 24 * m * d,
        "calibrate": 32 * min(n, HELD_OUT_ROWS),
        "embed": values + 25 * n + 8 * sampled,
        "publish": values,
    }
    if shape.edges_from == "given":
        size |= {"validate": 16 * n * k + 16 * n}
    return {stage: size.get(stage, 4096) for stage in stage_tasks(shape)}


SECONDS_PER_CALL = 4e-6
ROWS_PER_GRAIN = 4096
# Seconds that a model of m landmarks takes, by m^2 (an iteration over all pairs) and m^3 (a decomposition).
PAIRS = {"metric-mds": 4e-6, "nonmetric-mds": 2e-5, "sammon": 4e-6}
DECOMPOSED = 2e-10
# Seconds that placing a point takes for each landmark and component: sums, or a search of its own.
PLACED = {"stress": 6e-8, "weights": 6e-9}
SUMS = 2e-9


@dataclass(frozen=True)
class DirectShape:
    """What a fit by a direct method depends on: sizes in numbers and bytes. `measured` says that distances between
    vectors are computed; `n_evaluated` landmarks are compared with every row by a function of the user's, and with
    `has_subset` these are chosen among all of them."""

    n_rows: int
    n_columns: int
    source_itemsize: int
    rows_each: int
    n_landmarks: int
    n_components: int
    n_answers: int
    method: str
    extension: str
    measured: bool
    n_evaluated: int
    has_subset: bool
    finds_axes: bool

    @property
    def partition_bytes(self) -> int:
        width = self.n_columns * self.source_itemsize if self.measured else 8 * self.n_landmarks
        return min(self.n_rows, self.rows_each) * width

    @property
    def n_partitions(self) -> int:
        return -(-self.n_rows // self.rows_each)


def direct_memory(shape: DirectShape) -> dict[str, int]:
    """Bytes that each stage has in memory at most."""
    peaks = direct_peaks(shape.partition_bytes, shape.n_columns, shape.n_landmarks)
    return {stage: peaks[stage] for stage in direct_tasks(shape)}


def direct_tasks(shape: DirectShape) -> dict[str, int]:
    """Independent pieces of work of each stage."""
    tasks = {"validate": shape.n_partitions}
    if shape.finds_axes:
        tasks["axes"] = -(-shape.n_rows // (64 * ROWS_PER_GRAIN))
    tasks["landmarks"] = 1
    if shape.has_subset:
        tasks["subset"] = Comparisons(shape.n_landmarks, shape.n_landmarks).count
    if shape.n_evaluated:
        tasks["rows"] = Comparisons(shape.n_rows, shape.n_evaluated).count
    return {
        **tasks,
        "model": 1,
        "embed": shape.n_partitions,
        "calibrate": 1,
        "evaluate": 1,
        "publish": tasks["validate"],
    }


def direct_seconds(shape: DirectShape) -> dict[str, float]:
    """Seconds that each stage takes on one core."""
    n, m, d, columns = shape.n_rows, shape.n_landmarks, shape.n_components, shape.n_columns
    source = n * (columns * shape.source_itemsize if shape.measured else 8 * m)
    measuring = 4e-10 * n * m * columns if shape.measured else 3e-9 * n * m
    work = {
        "validate": 0.1 + 6e-9 * source,
        "axes": 4e-9 * source + 1e-10 * n * columns**2,
        "landmarks": 0.1 + 4e-9 * source + 3e-8 * m * m * max(1, columns),
        "subset": SECONDS_PER_CALL * m * m,
        "rows": SECONDS_PER_CALL * n * shape.n_evaluated,
        "model": 0.05 + DECOMPOSED * m**3 + PAIRS.get(shape.method, 0.0) * m * m * 10,
        "embed": measuring + (1.2e-6 + 2e-7 * d) * n + PLACED.get(shape.extension, SUMS) * n * m * (1 + d),
        "calibrate": 0.02,
        "evaluate": 0.3 + 3.5e-10 * min(n, EVALUATED_NODES) ** 2 * columns,
        "publish": 0.1 + (4e-7 + 1.5e-7 * d) * n,
    }
    return {stage: work[stage] + SECONDS_PER_TASK * tasks for stage, tasks in direct_tasks(shape).items()}


def direct_bytes(shape: DirectShape) -> dict[str, int]:
    """Bytes that each stage leaves on disk."""
    n, m, d = shape.n_rows, shape.n_landmarks, shape.n_components
    values = 8 * (shape.n_answers * d + 4) * n
    sampled = min(min(n, EVALUATED_NODES) * m, max(4_000_000, 100 * m))
    size = {
        "validate": 32 * shape.n_columns * (n // 4096 + 1),
        "landmarks": 8 * m * (shape.n_columns + 1),
        "subset": 8 * m * m,
        "rows": 8 * n * shape.n_evaluated,
        "model": 8 * m * (m if shape.extension not in ("projection", "restricted") else 4 * d),
        "embed": values + 20 * n + 8 * sampled,
        "publish": values,
    }
    return {stage: size.get(stage, 4096) for stage in direct_tasks(shape)}
