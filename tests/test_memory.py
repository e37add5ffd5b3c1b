"""Memory by arithmetic: every stage has a figure, and each grows only with what it depends on."""

from dataclasses import replace

import pytest

from pipeline.stages.costs import BASE, RunShape, stage_peaks

SHAPE = RunShape(
    n_rows=4_000_000,
    n_columns=128,
    source_itemsize=4,
    n_axes=128,
    finds_axes=False,
    point_itemsize=4,
    rows_each=65_536,
    n_cells=3906,
    cell_sample=249_984,
    n_neighbors=10,
    n_landmarks=1000,
    landmark_candidates=50_000,
    batch=5,
    nodes_per_chunk=16_384,
    n_components=10,
)


def growth(**changes):
    before, after = stage_peaks(SHAPE), stage_peaks(replace(SHAPE, **changes))
    return {name for name in before if after[name] > before[name]}


def test_more_rows_cost_memory_only_where_something_is_kept_for_every_node():
    assert growth(n_rows=10 * SHAPE.n_rows) == {"graph", "components", "landmarks", "rows", "embed"}


def test_more_cells_cost_memory_where_points_are_compared_with_all_of_them():
    assert growth(n_cells=4 * SHAPE.n_cells) == {"assign", "probes"}
    assert growth(cell_sample=2 * SHAPE.cell_sample) == {"cells"}


def test_larger_partitions_cost_memory_where_points_are_read():
    assert {"validate", "cells", "assign", "order", "neighbors"} <= growth(rows_each=2 * SHAPE.rows_each)
    assert {"rows", "model"}.isdisjoint(growth(rows_each=2 * SHAPE.rows_each))


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"n_landmarks": 5000}, {"model", "embed"}),
        ({"n_components": 100}, {"calibrate", "embed", "publish"}),
        ({"n_neighbors": 40}, {"neighbors", "graph", "landmarks", "rows", "calibrate"}),
    ],
)
def test_settings_cost_memory_in_their_own_stages(changes, stages):
    assert growth(**changes) == stages


def test_every_figure_holds_the_libraries_at_least():
    assert all(isinstance(peak, int) and peak >= BASE for peak in stage_peaks(SHAPE).values())
