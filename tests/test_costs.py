"""Costs by arithmetic: each stage has its own, they grow with the work, and a real fit leaves what they say."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.jobs.fit import checked_source, fit
from pipeline.jobs.plan import STAGES, run_shape
from pipeline.numerics.datasets import swiss_roll
from pipeline.results.run import open_run
from pipeline.settings import fit_settings
from pipeline.stages.costs import FEW_COLUMNS, RunShape, stage_bytes, stage_peaks, stage_seconds, stage_tasks

BY_SOURCE_ROWS = ("validate", "assign", "publish")
BY_CELL_GROUPS = ("order", "neighbors", "graph", "embed")
SINGLE = ("cells", "probes", "components", "landmarks", "model", "evaluate")
# Stages whose results are large enough for the few kB of metadata not to count.
LARGE_BYTES = 100_000


COLUMNS = st.integers(1, 600)


@st.composite
def shapes(draw, n_columns=COLUMNS):
    columns = draw(n_columns)
    return RunShape(
        n_rows=draw(st.integers(2, 10**9)),
        n_columns=columns,
        source_itemsize=draw(st.sampled_from([1, 4, 8])),
        n_axes=draw(st.one_of(st.just(columns), st.integers(1, columns))),
        finds_axes=draw(st.booleans()),
        point_itemsize=draw(st.sampled_from([4, 8])),
        rows_each=4096 * draw(st.integers(1, 4096)),
        n_cells=draw(st.integers(1, 16_384)),
        cell_sample=draw(st.integers(1, 10**6)),
        n_neighbors=draw(st.integers(1, 100)),
        n_landmarks=draw(st.integers(2, 20_000)),
        landmark_candidates=draw(st.integers(0, 10**6)),
        batch=draw(st.integers(1, 64)),
        nodes_per_chunk=draw(st.integers(1, 10**6)),
        n_components=draw(st.integers(1, 50)),
    )


def assert_never_falls(shape, **changes):
    """No stage has fewer tasks, takes less time or leaves less on disk than before."""
    grown = replace(shape, **changes)
    for costs in (stage_tasks, stage_seconds, stage_bytes):
        before, after = costs(shape), costs(grown)
        assert {stage: after[stage] for stage in before if after[stage] < before[stage]} == {}


@given(shapes())
def test_every_stage_has_tasks_seconds_bytes_and_memory(shape):
    tasks, seconds, size = stage_tasks(shape), stage_seconds(shape), stage_bytes(shape)
    assert set(tasks) == set(seconds) == set(size)
    assert {*tasks, "axes"} == set(STAGES)
    assert set(tasks) <= set(stage_peaks(shape))
    assert all(isinstance(count, int) and count > 0 for count in tasks.values())
    assert all(np.isfinite(time) and time > 0 for time in seconds.values())
    assert all(isinstance(figure, int) and figure > 0 for figure in size.values())


@given(shapes())
def test_tasks_cover_the_rows_and_the_landmarks_without_an_empty_one(shape):
    tasks = stage_tasks(shape)
    for stage in (*BY_SOURCE_ROWS, *BY_CELL_GROUPS):
        assert (tasks[stage] - 1) * shape.rows_each < shape.n_rows <= tasks[stage] * shape.rows_each
    assert (tasks["rows"] - 1) * shape.batch < shape.n_landmarks <= tasks["rows"] * shape.batch
    assert all(tasks[stage] == 1 for stage in SINGLE)


@pytest.mark.parametrize(
    "argument",
    ["n_rows", "n_landmarks", "n_neighbors", "n_components", "n_cells", "cell_sample", "landmark_candidates"],
)
@given(shape=shapes(), more=st.integers(1, 10**8))
def test_costs_never_fall_as_one_number_grows(argument, shape, more):
    assert_never_falls(shape, **{argument: getattr(shape, argument) + more})


@pytest.mark.parametrize("n_columns", [st.integers(1, FEW_COLUMNS), st.integers(FEW_COLUMNS + 1, 3000)])
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
    base = RunShape(
        n_rows=1_000_000,
        n_columns=FEW_COLUMNS,
        source_itemsize=8,
        n_axes=FEW_COLUMNS,
        finds_axes=False,
        point_itemsize=8,
        rows_each=65_536,
        n_cells=976,
        cell_sample=62_464,
        n_neighbors=10,
        n_landmarks=1000,
        landmark_candidates=50_000,
        batch=5,
        nodes_per_chunk=16_384,
        n_components=2,
    )
    wider = replace(base, n_columns=FEW_COLUMNS + 1, n_axes=FEW_COLUMNS + 1)
    assert sum(stage_seconds(wider).values()) > sum(stage_seconds(base).values())
    assert stage_seconds(wider)["neighbors"] > 2 * stage_seconds(base)["neighbors"]


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
    shape = run_shape(settings, checked_source(settings))
    assert [("axes" in costs(shape)) for costs in (stage_tasks, stage_seconds, stage_bytes)] == [there] * 3


class Fitted(NamedTuple):
    """A fit in one process: what was predicted of it, and what it left."""

    shape: RunShape
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
    return Fitted(run_shape(settings, checked_source(settings)), folder / "run", found)


def test_a_fit_has_the_stages_and_partitions_that_were_predicted(fitted):
    tasks = stage_tasks(fitted.shape)
    assert set(fitted.n_partitions) == set(tasks)
    assert min(tasks[stage] for stage in (*BY_SOURCE_ROWS, *BY_CELL_GROUPS, "rows")) > 1
    for stage in set(tasks) - set(BY_CELL_GROUPS):
        assert fitted.n_partitions[stage] == tasks[stage], stage
    for stage in BY_CELL_GROUPS:
        assert abs(fitted.n_partitions[stage] - tasks[stage]) <= max(2, 0.2 * tasks[stage]), stage


def test_a_fit_leaves_on_disk_what_was_predicted(fitted):
    predicted = stage_bytes(fitted.shape)
    total = sum(file.stat().st_size for file in fitted.store.rglob("*") if file.is_file())
    assert sum(predicted.values()) / 2 < total < 2 * sum(predicted.values())
    large = [stage for stage, size in predicted.items() if size > LARGE_BYTES]
    assert {"assign", "order", "neighbors", "graph", "rows", "embed", "publish"} <= set(large)
    for stage in large:
        assert predicted[stage] / 2 < fitted.left(stage) < 2 * predicted[stage], stage
    assert sum(fitted.left(stage) for stage in predicted if stage not in large) < LARGE_BYTES
