"""What each stage of a fit costs, by arithmetic: pieces of work, seconds of one core, bytes on disk.

The seconds are measured on one kind of machine and meant within a factor of two or so; `python -m benchmarks.plan`
holds them against a fit.
"""

from pipeline.memory import RunShape

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
