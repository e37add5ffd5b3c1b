"""Costs by arithmetic: each stage has its own, they grow with the work, and a real fit leaves what they say."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.jobs.fit import EMBEDDING_ALONG_PATHS, STAGES, checked_source, fit, fit_costs
from pipeline.jobs.measured import ALONG_NEIGHBORS
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.neighbors.spatial import FEW_DIMENSIONS
from pipeline.results.run import open_run
from pipeline.settings import fit_settings
from pipeline.stages.stage import Cost, Shape, costs_of

BY_SOURCE_ROWS = ("validate", "assign", "publish")
BY_CELL_GROUPS = ("order", "neighbors", "graph", "embed")
SINGLE = ("cells", "probes", "shortcuts", "components", "landmarks", "model", "evaluate")
# Stages whose results are large enough for the few kB of metadata not to count.
LARGE_BYTES = 100_000


COLUMNS = st.integers(1, 600)


def costs(shape):
    """What each stage of a fit along a graph of neighbors takes."""
    return costs_of((*ALONG_NEIGHBORS, *EMBEDDING_ALONG_PATHS), shape)


@st.composite
def shapes(draw, n_columns=COLUMNS):
    columns, n_components = draw(n_columns), draw(st.integers(1, 50))
    return Shape(
        n_rows=draw(st.integers(2, 10**9)),
        n_columns=columns,
        row_bytes=columns * draw(st.sampled_from([1, 4, 8])),
        n_axes=draw(st.one_of(st.just(columns), st.integers(1, columns))),
        point_itemsize=draw(st.sampled_from([4, 8])),
        rows_each=4096 * draw(st.integers(1, 4096)),
        n_cells=draw(st.integers(1, 16_384)),
        cell_sample=draw(st.integers(1, 10**6)),
        n_neighbors=draw(st.integers(1, 100)),
        n_landmarks=draw(st.integers(2, 20_000)),
        landmark_candidates=draw(st.integers(0, 10**6)),
        landmarks_each=draw(st.integers(1, 64)),
        nodes_per_chunk=draw(st.integers(1, 10**6)),
        n_components=n_components,
        n_values=2 * n_components + 4,
        edges_from="neighbors",
    )


def assert_never_falls(shape, **changes):
    """No stage has fewer tasks, takes less time or leaves less on disk than before."""
    before, after = costs(shape), costs(replace(shape, **changes))
    for field in ("tasks", "seconds", "disk"):
        fallen = [stage for stage in before if getattr(after[stage], field) < getattr(before[stage], field)]
        assert fallen == [], field


@given(shapes())
def test_every_stage_has_tasks_seconds_bytes_and_memory(shape):
    found = costs(shape)
    assert tuple(found) == STAGES
    for cost in found.values():
        assert isinstance(cost.tasks, int)
        assert cost.tasks > 0
        assert isinstance(cost.memory, int)
        assert cost.memory >= 0
        assert isinstance(cost.disk, int)
        assert cost.disk > 0
        assert np.isfinite(cost.seconds)
        assert cost.seconds > 0


@given(shapes())
def test_tasks_cover_the_rows_and_the_landmarks_without_an_empty_one(shape):
    tasks = {stage: cost.tasks for stage, cost in costs(shape).items()}
    for stage in (*BY_SOURCE_ROWS, *BY_CELL_GROUPS):
        assert (tasks[stage] - 1) * shape.rows_each < shape.n_rows <= tasks[stage] * shape.rows_each
    assert (tasks["rows"] - 1) * shape.landmarks_each < shape.n_landmarks <= tasks["rows"] * shape.landmarks_each
    assert all(tasks[stage] == 1 for stage in SINGLE)


@pytest.mark.parametrize(
    "argument",
    ["n_rows", "n_landmarks", "n_neighbors", "n_components", "n_cells", "cell_sample", "landmark_candidates"],
)
@given(shape=shapes(), more=st.integers(1, 10**8))
def test_costs_never_fall_as_one_number_grows(argument, shape, more):
    assert_never_falls(shape, **{argument: getattr(shape, argument) + more})


@pytest.mark.parametrize("n_columns", [st.integers(1, FEW_DIMENSIONS), st.integers(FEW_DIMENSIONS + 1, 3000)])
@given(data=st.data())
def test_costs_never_fall_with_more_columns_for_one_way_of_searching(n_columns, data):
    """Few columns are searched in another way than many, each with costs of its own."""
    few, many = sorted([data.draw(n_columns), data.draw(n_columns)])
    shape = data.draw(shapes(st.just(few)))
    assert_never_falls(replace(shape, n_axes=few), n_columns=many, n_axes=many)


@given(shapes(), st.integers(1, 3000))
def test_costs_never_fall_with_more_columns_before_the_same_principal_axes(shape, more):
    assert_never_falls(shape, n_columns=shape.n_columns + more)


def test_a_run_takes_longer_where_columns_are_too_many_for_the_way_that_few_are_searched():
    base = Shape(
        n_rows=1_000_000,
        n_columns=FEW_DIMENSIONS,
        row_bytes=8 * FEW_DIMENSIONS,
        n_axes=FEW_DIMENSIONS,
        point_itemsize=8,
        rows_each=65_536,
        n_cells=976,
        cell_sample=62_464,
        n_neighbors=10,
        n_landmarks=1000,
        landmark_candidates=50_000,
        landmarks_each=5,
        nodes_per_chunk=16_384,
        n_components=2,
        n_values=8,
        edges_from="neighbors",
    )
    wider = replace(base, n_columns=FEW_DIMENSIONS + 1, n_axes=FEW_DIMENSIONS + 1)
    narrow, wide = costs(base), costs(wider)
    assert sum(cost.seconds for cost in wide.values()) > sum(cost.seconds for cost in narrow.values())
    assert wide["neighbors"].seconds > 2 * narrow["neighbors"].seconds


def roll_settings(folder, pca, dtype=np.float64, n_columns=8):
    """Of a Swiss roll turned into more columns, in a file."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(n_columns, 3)))[0]
    np.save(folder / "roll.npy", (swiss_roll(20_000, seed=0).points @ turned.T).astype(dtype))
    given = {"source": str(folder / "roll.npy"), "store": str(folder / "run"), "partition_mib": 1, "n_landmarks": 60}
    return fit_settings({**given, "pca": pca, "cluster": {"kind": "serial"}})


@pytest.mark.parametrize(
    ("pca", "there"),
    [
        (None, False),
        (1, True),
        (7, True),
        (8, True),
    ],
)
def test_principal_axes_are_a_stage_only_where_they_are_asked_for(tmp_path, pca, there):
    settings = roll_settings(tmp_path, pca)
    assert ("axes" in fit_costs(settings, checked_source(settings))) == there


class Fitted(NamedTuple):
    """A fit in one process: what was predicted of it, and what it left."""

    costs: dict[str, Cost]
    store: Path
    n_partitions: dict[str, int]

    def left(self, stage):
        return sum(file.stat().st_size for file in (self.store / stage).rglob("*") if file.is_file())


@pytest.fixture(scope="module", params=["all columns", "principal axes"])
def fitted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    axes = request.param == "principal axes"
    settings = roll_settings(folder, 4, np.float32, 32) if axes else roll_settings(folder, None)
    fit(settings)
    found = {stage.stage: stage.n_partitions for stage in open_run(settings.store).status}
    return Fitted(fit_costs(settings, checked_source(settings)), folder / "run", found)


def test_a_fit_has_the_stages_and_partitions_that_were_predicted(fitted):
    tasks = {stage: cost.tasks for stage, cost in fitted.costs.items()}
    assert set(fitted.n_partitions) == set(tasks)
    assert min(tasks[stage] for stage in (*BY_SOURCE_ROWS, *BY_CELL_GROUPS, "rows")) > 1
    for stage in set(tasks) - set(BY_CELL_GROUPS):
        assert fitted.n_partitions[stage] == tasks[stage], stage
    for stage in BY_CELL_GROUPS:
        assert abs(fitted.n_partitions[stage] - tasks[stage]) <= max(2, 0.2 * tasks[stage]), stage


def test_a_fit_leaves_on_disk_what_was_predicted(fitted):
    predicted = {stage: cost.disk for stage, cost in fitted.costs.items()}
    total = sum(file.stat().st_size for file in fitted.store.rglob("*") if file.is_file())
    assert sum(predicted.values()) / 2 < total < 2 * sum(predicted.values())
    large = [stage for stage, size in predicted.items() if size > LARGE_BYTES]
    assert {"assign", "order", "neighbors", "graph", "rows", "embed", "publish"} <= set(large)
    for stage in large:
        assert predicted[stage] / 2 < fitted.left(stage) < 2 * predicted[stage], stage
    assert sum(fitted.left(stage) for stage in predicted if stage not in large) < LARGE_BYTES


SHAPE = Shape(
    n_rows=4_000_000,
    n_columns=128,
    row_bytes=512,
    n_axes=128,
    point_itemsize=4,
    rows_each=65_536,
    n_cells=3906,
    cell_sample=249_984,
    n_neighbors=10,
    n_landmarks=1000,
    landmark_candidates=50_000,
    landmarks_each=5,
    nodes_per_chunk=16_384,
    n_components=10,
    n_values=24,
    edges_from="neighbors",
)


def growth(**changes):
    before, after = costs(SHAPE), costs(replace(SHAPE, **changes))
    return {name for name in before if after[name].memory > before[name].memory}


def test_more_rows_cost_memory_only_where_something_is_kept_for_every_node():
    for_every_node = {"graph", "shortcuts", "components", "landmarks", "rows", "embed", "pairs"}
    assert growth(n_rows=10 * SHAPE.n_rows) == for_every_node


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
        ({"n_components": 100, "n_values": 204}, {"calibrate", "embed", "publish"}),
        (
            {"n_neighbors": 40},
            {"neighbors", "reach", "graph", "shortcuts", "landmarks", "rows", "calibrate", "pairs", "evaluate"},
        ),
    ],
)
def test_settings_cost_memory_in_their_own_stages(changes, stages):
    assert growth(**changes) == stages
