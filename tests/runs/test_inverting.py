"""From coordinates back to data, on disk: as in memory, whatever the chunks, the workers and the queries beside one."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import Counting, contents, extended, fitted, roll_file

from pipeline import open_run
from pipeline.errors import InvalidInputError, StoreError
from pipeline.fanout.execution import executor
from pipeline.jobs import invert as inverting
from pipeline.jobs.fit import fit
from pipeline.jobs.invert import STAGES, invert, memory_of_inversion, prepare_invert
from pipeline.jobs.refit import refit
from pipeline.methods import RADIAL_FUNCTIONS
from pipeline.numerics.inverse import interpolant as inverse
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.settings import ClusterSettings, InvertSettings, RefitSettings, fit_settings, job_settings
from pipeline.sources import open_source, partitions
from pipeline.sources.source import take_rows
from pipeline.stages.inverse import invert as stage
from pipeline.stages.inverse import neighborhoods as index
from pipeline.stages.inverse.invert import FLAGS
from pipeline.stages.inverse.neighborhoods import GatheredRows
from pipeline.stages.inverse.points import shortest_way

K = 12


def settings(store, output, **more):
    return job_settings(InvertSettings, {"store": str(store), "output": str(output), "n_neighbors": K, **more})


def inverted(store, output, watch=None, execute=None, **more):
    """Invert a run; what is published."""
    options = {} if execute is None else {"execute": execute}
    invert(settings(store, output, **more), watch, **options)
    return open_run(output)


def published(opened):
    return {name: opened.embedding(name).tobytes() for name in opened.arrays}


def saved(folder, name, array):
    np.save(folder / name, array)
    return str(folder / name)


def left_out_errors(points, data, k=K):
    """Distances of rows from those interpolated in memory between their nearest others, and the stencils."""
    found = inverse.invert(points, points, data, neighbors_within(points, min(k, len(points) - 1))[1])
    return np.linalg.norm(data - found.values, axis=1), found.stencils


@pytest.fixture(scope="module")
def roll(tmp_path_factory):
    """A fitted roll, its data and its embedding, and queries: within, on and away from it, and none at all."""
    folder = tmp_path_factory.mktemp("roll")
    source = roll_file(folder)
    fitted(source, folder / "run")
    data, points = np.load(source), open_run(folder / "run").embedding()
    rng = np.random.default_rng(1)
    queries = rng.uniform(points.min(axis=0), points.max(axis=0), size=(4200, 2))
    queries[:50], queries[50:53] = points[1000:1050], queries[53]
    queries[60], queries[61], queries[62] = (np.nan, 0.0), 100 * points.max(axis=0), (1e200, 0.0)
    np.save(folder / "queries.npy", queries)
    inverted(folder / "run", folder / "serial", coordinates=str(folder / "queries.npy"), partition_mib=1)
    return folder, data, points, queries


@pytest.mark.parametrize("kernel", RADIAL_FUNCTIONS)
def test_values_are_those_of_the_numerics_in_memory(roll, tmp_path, kernel):
    folder, data, points, queries = roll
    some = queries[:200]
    opened = inverted(folder / "run", tmp_path / "out", coordinates=saved(tmp_path, "q.npy", some), kernel=kernel)
    kind, power = RADIAL_FUNCTIONS[kernel]
    near = inverse.nearest_nodes(points, some, K)
    expected = inverse.invert(some, points, data, near, inverse.Kernel(kind, power))
    known = np.delete(np.arange(200), [60, 61, 62])
    np.testing.assert_allclose(
        opened.embedding("values")[known], expected.values[known], rtol=0, atol=1e-8 * np.abs(data).max()
    )
    np.testing.assert_allclose(opened.embedding("distance"), expected.stencils.distance, rtol=1e-12)
    np.testing.assert_allclose(opened.embedding("remoteness"), expected.stencils.remoteness, rtol=1e-12)
    np.testing.assert_array_equal(opened.embedding("flags"), expected.stencils.flags)


def test_embedded_points_have_their_own_rows_with_the_usual_number_of_neighbors(roll, tmp_path):
    folder, data, points, _ = roll
    rows = np.arange(0, 4500, 60)
    given = {"coordinates": saved(tmp_path, "q.npy", points[rows]), "n_neighbors": 200}
    opened = inverted(folder / "run", tmp_path / "out", **given)
    relative = np.linalg.norm(opened.embedding("values") - data[rows], axis=1) / np.linalg.norm(data[rows], axis=1)
    assert relative.max() < 1e-8
    assert not opened.embedding("distance").any()


def test_queries_that_are_no_points_or_far_away_are_flagged(roll):
    folder, _, points, queries = roll
    opened = open_run(folder / "serial")
    flags, outside = opened.embedding("flags"), opened.embedding("outside")
    np.testing.assert_array_equal(np.flatnonzero(flags & FLAGS["undefined"]), [60, 62])
    assert np.isnan(opened.embedding("values")[[60, 62]]).all()
    assert np.isnan(opened.embedding("distance")[[60, 62]]).all()
    assert not outside[[60, 62]].any()
    away = np.linalg.norm(points - queries[61], axis=1).min()
    assert opened.embedding("distance")[61] == pytest.approx(away, rel=1e-12)
    np.testing.assert_array_equal(outside, opened.embedding("remoteness") > 3.0)
    assert outside[61]
    assert not outside[:50].any()
    figures = opened.stage_figures("publish")
    assert figures["n_outside"] == outside.sum()
    assert figures["flags"]["undefined"] == 2


def test_results_depend_neither_on_chunks_nor_blocks_nor_the_order_of_queries(roll, tmp_path, monkeypatch):
    folder, _, _, queries = roll
    expected = open_run(folder / "serial")
    assert len(expected.stage_figures("query_order")["nodes_each"]) > 1
    with monkeypatch.context() as patch:
        patch.setattr(inverting, "FEWEST_TOGETHER", 10**6)
        whole = inverted(folder / "run", tmp_path / "whole", coordinates=str(folder / "queries.npy"), partition_mib=64)
    assert len(whole.stage_figures("query_order")["nodes_each"]) == 1
    assert published(whole) == published(expected)
    monkeypatch.setattr(partitions, "SMALLEST_BYTES", 1)
    small = inverted(folder / "run", tmp_path / "small", coordinates=str(folder / "queries.npy"))
    assert len(small.stage_figures("order")["nodes_each"]) > len(whole.stage_figures("order")["nodes_each"]) == 1
    assert published(small) == published(expected)
    monkeypatch.setattr(stage, "BLOCK_BYTES", 1 << 15)
    order = np.random.default_rng(0).permutation(len(queries))
    shuffled = inverted(folder / "run", tmp_path / "other", coordinates=saved(tmp_path, "q.npy", queries[order]))
    for name in expected.arrays:
        assert shuffled.embedding(name).tobytes() == expected.embedding(name)[order].tobytes(), name
    alone = inverted(folder / "run", tmp_path / "alone", coordinates=saved(tmp_path, "one.npy", queries[77:78]))
    assert alone.embedding("values").tobytes() == expected.embedding("values")[77:78].tobytes()


@pytest.mark.cluster
def test_workers_give_the_bytes_of_one_process(roll, tmp_path):
    folder, _, _, _ = roll
    queries = {"coordinates": str(folder / "queries.npy"), "partition_mib": 1}
    left_out = {"leave_one_out": True, "sample": 300, "partition_mib": 1}
    inverted(folder / "run", tmp_path / "serial", **left_out)
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        spread = inverted(folder / "run", tmp_path / "spread", execute=execute, **queries)
        others = inverted(folder / "run", tmp_path / "others", execute=execute, **left_out)
    assert published(spread) == published(open_run(folder / "serial"))
    assert published(others) == published(open_run(tmp_path / "serial"))


def test_rows_left_out_have_the_errors_of_the_numerics_in_memory(roll, tmp_path, monkeypatch):
    folder, data, points, _ = roll
    opened = inverted(folder / "run", tmp_path / "out", leave_one_out=True)
    errors, stencils = left_out_errors(points, data)
    relative = errors / np.linalg.norm(data, axis=1)
    np.testing.assert_allclose(opened.embedding("error"), errors, rtol=0, atol=1e-8 * np.abs(data).max())
    np.testing.assert_allclose(opened.embedding("relative_error"), relative, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(opened.embedding("flags"), stencils.flags)
    figures = opened.stage_figures("publish")
    assert figures["mean_error"] == pytest.approx(errors.mean(), rel=1e-9)
    assert figures["mean_relative_error"] == pytest.approx(relative.mean(), rel=1e-9)
    monkeypatch.setattr(partitions, "SMALLEST_BYTES", 1)
    small = inverted(folder / "run", tmp_path / "small", leave_one_out=True)
    assert len(small.stage_figures("order")["nodes_each"]) > len(opened.stage_figures("order")["nodes_each"]) == 1
    assert published(small) == published(opened)
    assert small.stage_figures("publish") == figures


def test_a_sample_of_rows_has_the_errors_that_they_have_among_all(roll, tmp_path):
    folder, data, points, _ = roll
    opened = inverted(folder / "run", tmp_path / "out", leave_one_out=True, sample=100, partition_mib=1)
    errors = opened.embedding("error")
    left_out = np.flatnonzero(np.isfinite(errors))
    assert len(left_out) == opened.stage_figures("publish")["n_left_out"] == 100
    expected, _ = left_out_errors(points, data)
    np.testing.assert_allclose(errors[left_out], expected[left_out], rtol=0, atol=1e-8 * np.abs(data).max())
    assert not np.delete(opened.embedding("flags"), left_out).any()
    again = inverted(folder / "run", tmp_path / "again", leave_one_out=True, sample=100, partition_mib=64)
    assert published(again) == published(opened)
    other = inverted(folder / "run", tmp_path / "other", leave_one_out=True, sample=100, seed=1)
    assert (np.flatnonzero(np.isfinite(other.embedding("error"))) != left_out).any()
    every = inverted(folder / "run", tmp_path / "every", leave_one_out=True, sample=10**6)
    assert np.isfinite(every.embedding("error")).all()


@pytest.fixture(scope="module")
def doubled(tmp_path_factory):
    """A run by angles: a row twice as long, or the same again, is in the same place."""
    folder = tmp_path_factory.mktemp("doubled")
    rows = np.abs(np.random.default_rng(0).normal(size=(300, 5)))
    data = np.concatenate([rows, 2 * rows[:20], rows[20:40], np.repeat(rows[40:41], 100, axis=0)])
    data = np.concatenate([data, np.full((3, 5), np.nan)])
    np.save(folder / "data.npy", data)
    choice = {"method": "mds", "metric": "cosine", "missing": "drop", "n_landmarks": 60, "n_components": 2}
    fitted(folder / "data.npy", folder / "run", **choice)
    return folder, data, open_run(folder / "run").embedding()


def test_rows_in_the_same_place_are_one_with_their_mean(doubled, tmp_path):
    folder, data, points = doubled
    np.testing.assert_array_equal(points[:20], points[300:320])
    chosen = [3, 25, 40, 200]
    opened = inverted(folder / "run", tmp_path / "out", coordinates=saved(tmp_path, "q.npy", points[chosen]))
    expected = data[chosen] * np.array([1.5, 1.0, 1.0, 1.0])[:, None]
    np.testing.assert_allclose(opened.embedding("values"), expected, rtol=0, atol=1e-8 * np.nanmax(data))
    # Rows that repeat exactly are one row; nothing is lost by their mean.
    apart = inverted(folder / "run", tmp_path / "one", coordinates=str(tmp_path / "q.npy"), n_neighbors=1)
    np.testing.assert_array_equal(apart.embedding("flags") & FLAGS["merged"], [1, 0, 0, 0])
    np.testing.assert_array_equal(apart.embedding("values"), expected)


def test_of_rows_in_the_same_place_each_is_left_out_of_the_mean(doubled, tmp_path):
    folder, data, _ = doubled
    opened = inverted(folder / "run", tmp_path / "out", leave_one_out=True)
    errors = opened.embedding("error")
    scale = 1e-7 * np.nanmax(data)
    sizes = np.linalg.norm(data, axis=1)
    np.testing.assert_allclose(errors[:20], sizes[:20], rtol=0, atol=scale)
    np.testing.assert_allclose(errors[300:320], sizes[:20], rtol=0, atol=scale)
    repeated = [*range(20, 41), *range(320, 440)]
    np.testing.assert_allclose(errors[repeated], 0.0, rtol=0, atol=scale)
    assert (errors[41:300] > scale).all()
    assert np.isnan(errors[440:]).all()
    assert opened.stage_figures("publish")["n_left_out"] == 440


def test_of_many_rows_in_one_place_those_beyond_the_mean_are_read_for_that_place_alone(tmp_path, monkeypatch):
    """By angles, so that a row's multiples are in its place: 300 of one, of which the first 64 make the mean."""
    rng = np.random.default_rng(0)
    rows, factors = np.abs(rng.normal(size=(100, 5))), np.tile([1.0, 2.0, 4.0], 100)
    data = rng.permutation(np.concatenate([factors[:, None] * rows[0], rows[1:]]))
    choice = {"method": "mds", "metric": "cosine", "n_landmarks": 60, "n_components": 2}
    fitted(saved(tmp_path, "data.npy", data), tmp_path / "run", **choice)
    n_read, read = [], GatheredRows.of
    monkeypatch.setattr(GatheredRows, "of", lambda *given: n_read.append(len(read(*given).rows)) or read(*given))
    monkeypatch.setattr(stage, "BLOCK_BYTES", 8 * 5 * 80)
    opened = inverted(tmp_path / "run", tmp_path / "out", leave_one_out=True)
    assert max(n_read) <= 80
    alike = np.flatnonzero(np.isin(data[:, 0] / rows[0, 0], [1.0, 2.0, 4.0]))
    first = data[alike[:64]]
    others = (first.sum(axis=0) - first) / 63
    expected = np.concatenate([first - others, data[alike[64:]] - first.mean(axis=0)])
    errors = opened.embedding("error")
    np.testing.assert_allclose(errors[alike], np.linalg.norm(expected, axis=1), rtol=0, atol=1e-7)
    assert opened.stage_figures("publish")["n_left_out"] == 399
    sample = inverted(tmp_path / "run", tmp_path / "sample", leave_one_out=True, sample=150).embedding("error")
    assert np.isfinite(sample).sum() == 150
    np.testing.assert_array_equal(sample[np.isfinite(sample)], errors[np.isfinite(sample)])


def test_neighbors_in_a_line_and_too_few_of_them_are_flagged(tmp_path):
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    data = saved(tmp_path, "grid.npy", np.column_stack([grid, np.ones(len(grid))]))
    fitted(data, tmp_path / "run", method="mds", n_landmarks=20, n_components=2)
    points = open_run(tmp_path / "run").embedding()
    # The plane that the grid was embedded in, to speak of queries by their place on the grid.
    ones = np.ones((len(grid), 1))
    placing = np.linalg.lstsq(np.hstack([grid, ones]), points, rcond=None)[0]
    beside = np.array([[5.1, -5.0, 1.0]]) @ placing
    given = {"coordinates": saved(tmp_path, "q.npy", beside)}
    for k, flagged in ((3, True), (2, True), (20, False)):
        opened = inverted(tmp_path / "run", tmp_path / f"out{k}", **given, n_neighbors=k)
        assert bool(opened.embedding("flags")[0] & FLAGS["not_unisolvent"]) == flagged
        assert np.isfinite(opened.embedding("values")).all()
        assert opened.embedding("outside")[0]
    # What is known of the line alone goes on along it and not across.
    along = open_run(tmp_path / "out3").embedding("values")
    np.testing.assert_allclose(along[0, :2], [5.1, 0.0], atol=1e-9)


def test_a_query_that_is_nowhere_and_nothing_else_is_undefined(roll, tmp_path):
    folder = roll[0]
    opened = inverted(folder / "run", tmp_path / "out", coordinates=saved(tmp_path, "q.npy", np.full((3, 2), np.nan)))
    assert np.isnan(opened.embedding("values")).all()
    assert opened.stage_figures("publish")["flags"]["undefined"] == 3


def test_all_points_of_a_small_run_are_neighbors_where_more_are_asked_for(tmp_path):
    data = np.random.default_rng(0).normal(size=(40, 3))
    fitted(saved(tmp_path, "few.npy", data), tmp_path / "run", method="mds", n_landmarks=20, n_components=3)
    points = open_run(tmp_path / "run").embedding()
    given = {"coordinates": saved(tmp_path, "q.npy", points[:5] * 1.01), "n_neighbors": 200}
    opened = inverted(tmp_path / "run", tmp_path / "out", **given)
    np.testing.assert_allclose(
        opened.embedding("values"), inverse.invert(points[:5] * 1.01, points, data).values, atol=1e-9
    )
    left_out = inverted(tmp_path / "run", tmp_path / "left", leave_one_out=True, n_neighbors=200)
    np.testing.assert_allclose(left_out.embedding("error"), left_out_errors(points, data, 200)[0], atol=1e-9)


def test_values_scale_with_the_data(tmp_path):
    data = np.random.default_rng(0).normal(size=(300, 4))
    found = []
    for exponent in (0, 90):
        source = saved(tmp_path, f"data{exponent}.npy", np.ldexp(data, exponent))
        store = tmp_path / f"run{exponent}"
        fitted(source, store, method="mds", n_landmarks=30, n_components=2)
        points = open_run(store).embedding()
        found.append(
            inverted(store, tmp_path / f"out{exponent}", coordinates=saved(tmp_path, "q.npy", 0.5 * points[:9]))
        )
    for name, factor in (("values", 90), ("distance", 90), ("remoteness", 0), ("flags", None)):
        first, second = (opened.embedding(name) for opened in found)
        np.testing.assert_array_equal(second, first if factor is None else np.ldexp(first, factor))


def test_only_what_depends_on_a_setting_is_computed_again(roll, tmp_path):
    folder = roll[0]
    queries = {"coordinates": saved(tmp_path, "q.npy", roll[3][:100])}
    stages = []
    for more in ({}, {}, {"outside": 2.0}, {"kernel": "thin-plate"}, {"n_neighbors": 8}):
        watch = Counting()
        inverted(folder / "run", tmp_path / "out", watch, **queries, **more)
        stages.append(watch.stages)
    first = ["points", "cells", "assign", "order", "validate", "query_cells", "query_order", "search", "gather"]
    assert stages[0] == [*first, "invert", "publish"]
    assert stages[1:] == [[], ["publish"], ["invert", "publish"], ["search", "gather", "invert", "publish"]]
    assert set(stages[0]) < set(STAGES)


class Stopping(Counting):
    """Stops after so many partitions."""

    def __init__(self, n_partitions):
        super().__init__()
        self._left = n_partitions

    def computed(self, ledger, partition):
        super().computed(ledger, partition)
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def test_an_interrupted_inversion_goes_on_where_it_stopped(roll, tmp_path):
    folder = roll[0]
    given = {"coordinates": str(folder / "queries.npy"), "partition_mib": 1}
    done = []
    while True:
        watch = Stopping(4)
        try:
            inverted(folder / "run", tmp_path / "out", watch, **given)
        except KeyboardInterrupt:
            done += watch.computed_partitions
            continue
        done += watch.computed_partitions
        break
    assert len(done) == len(set(done)) > 12
    assert contents(tmp_path / "out") == contents(folder / "serial")


@pytest.fixture
def moving(tmp_path):
    """A small run whose data may be done anything to."""
    data = np.random.default_rng(0).normal(size=(5000, 3))
    fitted(saved(tmp_path, "data.npy", data), tmp_path / "run", method="mds", n_landmarks=30, n_components=2)
    np.save(tmp_path / "q.npy", open_run(tmp_path / "run").embedding()[:5])
    return tmp_path, data, {"coordinates": str(tmp_path / "q.npy")}


def test_data_that_was_moved_or_touched_is_checked_and_taken(moving):
    folder, data, given = moving
    plain = Counting()
    expected = inverted(folder / "run", folder / "out", plain, **given).embedding("values")
    assert "check" not in plain.stages
    np.testing.assert_allclose(expected, data[:5], atol=1e-8)
    os.utime(folder / "data.npy", ns=(1, 1))
    (folder / "data.npy").rename(folder / "moved.npy")
    with pytest.raises(InvalidInputError, match=r"data\.npy does not exist"):
        inverted(folder / "run", folder / "gone", **given)
    watch = Counting()
    found = inverted(folder / "run", folder / "out", watch, **given, source=str(folder / "moved.npy"))
    assert watch.stages == ["check"]
    np.testing.assert_array_equal(found.embedding("values"), expected)


def test_data_that_has_changed_is_refused(moving):
    folder, data, given = moving
    changed = data.copy()
    changed[4700, 1] += 1.0
    np.save(folder / "data.npy", changed)
    with pytest.raises(InvalidInputError, match=r"has changed: rows 4096 to 5000 of .* are not those that were fitted"):
        inverted(folder / "run", folder / "out", **given)
    np.save(folder / "data.npy", data[:-1])
    with pytest.raises(InvalidInputError, match=r"it had 5000 rows and 3 columns of <f8, now .* has 4999 and 3 of <f8"):
        inverted(folder / "run", folder / "out", **given)
    np.save(folder / "data.npy", data.astype(np.float32))
    with pytest.raises(InvalidInputError, match="has 5000 and 3 of <f4; put it back"):
        inverted(folder / "run", folder / "out", **given)


def test_columns_and_ids_are_those_of_the_fit_and_of_the_queries(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(400, 4))
    lines = [",".join(map(repr, row)) for row in data.tolist()]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,d", *lines]))
    choice = {"method": "mds", "n_landmarks": 30, "n_components": 2, "columns": "d,b", "standardize": True}
    fitted(tmp_path / "data.csv", tmp_path / "run", **choice)
    points = open_run(tmp_path / "run").embedding()
    rows = [f"q{i},{x!r},{y!r}" for i, (x, y) in enumerate(points[7:10].tolist())]
    (tmp_path / "q.csv").write_text("\n".join(["name,x,y", *rows]))
    opened = inverted(tmp_path / "run", tmp_path / "out", coordinates=str(tmp_path / "q.csv"), id_column="name")
    np.testing.assert_allclose(opened.embedding("values"), data[7:10][:, [3, 1]], atol=1e-8)
    np.testing.assert_array_equal(opened.ids(), ["q0", "q1", "q2"])


def test_versions_of_a_run_go_back_to_the_data_that_each_was_fitted_on(tmp_path):
    data = np.random.default_rng(0).normal(size=(700, 3))
    saved(tmp_path, "old.npy", data[:500])
    saved(tmp_path, "new.npy", data[500:])
    fitted(tmp_path / "old.npy", tmp_path / "run", method="mds", n_landmarks=30, n_components=3)
    refit(job_settings(RefitSettings, {"store": str(tmp_path / "run"), "new": str(tmp_path / "new.npy")}))
    for version, rows in (("1", slice(490, 500)), ("2", slice(495, 505))):
        points = open_run(tmp_path / "run", version).embedding()[rows]
        given = {"coordinates": saved(tmp_path, "q.npy", points), "version": version}
        opened = inverted(tmp_path / "run", tmp_path / f"out{version}", **given)
        np.testing.assert_allclose(opened.embedding("values"), data[rows], atol=1e-8)


def test_a_run_from_an_array_needs_the_array_or_a_file(tmp_path):
    data = np.random.default_rng(0).normal(size=(300, 3))
    choice = {"method": "mds", "n_landmarks": 30, "n_components": 2, "source": "array", "store": str(tmp_path / "run")}
    fit(fit_settings(choice), data=data)
    points = open_run(tmp_path / "run").embedding()
    told = settings(tmp_path / "run", tmp_path / "out", coordinates="array")
    with pytest.raises(InvalidInputError, match="does not say where its data is"):
        invert(told, queries=points[:4])
    invert(told, data=data, queries=points[:4])
    np.testing.assert_allclose(open_run(tmp_path / "out").embedding("values"), data[:4], atol=1e-8)


def test_a_straight_path_has_equal_steps_from_row_to_row(roll, tmp_path):
    folder, data, points, _ = roll
    opened = inverted(folder / "run", tmp_path / "out", path=(3, 900), steps=7)
    distance, values = opened.embedding("distance"), opened.embedding("values")
    np.testing.assert_allclose(values[[0, -1]], data[[3, 900]], atol=1e-8 * np.abs(data).max())
    assert distance[0] == distance[-1] == 0.0
    line = np.linspace(0, 1, 7)[:, None] * (points[900] - points[3]) + points[3]
    np.testing.assert_allclose(
        distance, np.linalg.norm(line[:, None] - points[None], axis=2).min(axis=1), rtol=0, atol=1e-12
    )


@pytest.fixture(scope="module")
def horseshoe(tmp_path_factory):
    """Points on three quarters of a circle, embedded as they are."""
    folder = tmp_path_factory.mktemp("horseshoe")
    angles = np.sort(np.random.default_rng(0).uniform(0, 1.5 * np.pi, 6000))
    data = np.column_stack([np.cos(angles), np.sin(angles), angles])
    np.save(folder / "data.npy", data)
    fitted(folder / "data.npy", folder / "run", method="mds", n_landmarks=50, n_components=2, columns="0,1")
    return folder


def test_a_path_along_the_data_stays_there(horseshoe, tmp_path):
    straight = inverted(horseshoe / "run", tmp_path / "straight", path=(0, 5999))
    along = inverted(horseshoe / "run", tmp_path / "along", path=(0, 5999), along="data")
    assert straight.embedding("outside").any()
    assert not along.embedding("outside").any()
    angles = np.arctan2(*along.embedding("values").T[::-1]) % (2 * np.pi)
    np.testing.assert_allclose(np.diff(angles), 1.5 * np.pi / 8, rtol=0.02)
    np.testing.assert_allclose(np.linalg.norm(along.embedding("values"), axis=1), 1.0, atol=1e-3)
    assert along.stage_figures("path")["length"] == pytest.approx(1.5 * np.pi, rel=0.01)


def test_a_way_along_the_data_is_found_over_gaps_and_to_where_one_is():
    apart = np.concatenate([np.linspace(0, 1, 40), np.linspace(50, 51, 40)])[:, None]
    np.testing.assert_array_equal(shortest_way(apart, 0, 79)[[0, -1]], [0, 79])
    np.testing.assert_array_equal(shortest_way(apart, 5, 5), [5])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "give exactly one of coordinates, leave_one_out and path"),
        ({"coordinates": "q.npy", "path": (0, 1)}, "give exactly one"),
        ({"coordinates": "q.npy", "sample": 4}, "sample=4 goes with leave_one_out only"),
        ({"leave_one_out": True, "image": "2x2"}, "image='2x2' goes with path only"),
        ({"path": (0, 1), "key": "x"}, "key='x' goes with coordinates only"),
        ({"path": (0, 1), "image": "28"}, "rows x columns are needed, such as 28x28"),
        ({"path": "0,1,2"}, "path='0,1,2': .*two rows are needed, such as 7,0"),
        ({"path": "3"}, "path='3': .*two rows are needed, such as 7,0"),
        ({"path": 3}, "path=3: .*two rows are needed"),
        ({"path": [3, 7, 9]}, "two rows are needed"),
        ({"path": "3,x"}, "path='x': .*valid integer"),
        ({"path": (0, 1), "scale": 2.0}, "scale=2.0 means nothing to kernel='cubic'"),
        ({"path": (0, 1), "kernel": "gaussian", "scale": 0}, "scale=0"),
        ({"path": (0, 1), "kernel": "wide"}, "kernel='wide'"),
        ({"path": (0, 1), "steps": True}, "a number is needed"),
        ({"path": (0, 1), "neighbours": 3}, "setting 'neighbours' is not known; did you mean 'n_neighbors'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(more, message):
    with pytest.raises(InvalidInputError, match=message):
        job_settings(InvertSettings, {"store": "run", "output": "out", **more})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"coordinates": "wide.npy"}, r"wide\.npy has 3 columns; the run has 2 coordinates"),
        ({"coordinates": "empty.npy"}, "it is empty"),
        ({"coordinates": "text.npy"}, "it must hold real numbers"),
        ({"coordinates": "none.npy"}, "does not exist"),
        ({"path": (0, 4500)}, "path=4500 is out of range; the run has rows 0 to 4499"),
        ({"path": (0, 1), "image": "8x9"}, "image='8x9' has 72 pixels; the data has 64 columns"),
        ({"path": (0, 1), "version": "7"}, "version='7' is not in"),
    ],
)
def test_what_does_not_go_with_the_run_is_refused_before_anything_is_written(roll, tmp_path, more, message):
    saved(tmp_path, "wide.npy", np.zeros((4, 3)))
    saved(tmp_path, "empty.npy", np.zeros((0, 2)))
    saved(tmp_path, "text.npy", np.array([["a", "b"]]))
    if "coordinates" in more:
        more = {"coordinates": str(tmp_path / more["coordinates"])}
    with pytest.raises(InvalidInputError, match=message):
        inverted(roll[0] / "run", tmp_path / "out", **more)
    assert not (tmp_path / "out").exists()


def test_a_path_to_a_row_that_is_not_embedded_is_refused(doubled, tmp_path):
    with pytest.raises(InvalidInputError, match="path=441: that row takes no part in the embedding"):
        inverted(doubled[0] / "run", tmp_path / "out", path=(0, 441))
    assert not (tmp_path / "out").exists()


def test_stores_without_data_to_go_back_to_are_refused(roll, tmp_path):
    folder, data, _, _ = roll
    given = {"path": (0, 1)}
    apart = np.linalg.norm(data[:60, None] - data[None, :60], axis=2)
    source = saved(tmp_path, "apart.npy", apart)
    fitted(source, tmp_path / "proximities", method="mds", input="dissimilarities", n_landmarks=20)
    with pytest.raises(InvalidInputError, match="was fitted on dissimilarities: there are no rows of numbers"):
        inverted(tmp_path / "proximities", tmp_path / "out", **given)
    extended(folder / "run", saved(tmp_path, "new.npy", data[:5]), tmp_path / "extension")
    with pytest.raises(InvalidInputError, match="holds new points in the space of a run; name the run itself"):
        inverted(tmp_path / "extension", tmp_path / "out", **given)
    with pytest.raises(InvalidInputError, match="holds data at coordinates in the space of a run"):
        inverted(folder / "serial", tmp_path / "out", **given)
    with pytest.raises(InvalidInputError, match="not data at coordinates"):
        inverted(folder / "run", tmp_path / "extension", **given)


def test_damage_is_told(roll, tmp_path):
    folder = roll[0]
    opened = inverted(folder / "run", tmp_path / "out", path=(0, 9))
    assert opened.damaged() == []
    next((tmp_path / "out").glob("publish/*/values/c.0.0")).write_bytes(b"")
    with pytest.raises(StoreError, match="is damaged"):
        open_run(tmp_path / "out").embedding("values")
    assert len(opened.damaged()) == 1


def test_memory_is_told_of_every_stage_and_bounded_by_the_partitions(roll, tmp_path):
    job = prepare_invert(settings(roll[0] / "run", tmp_path / "out", coordinates=str(roll[0] / "queries.npy")))
    assert set(memory_of_inversion(job)) == set(STAGES)
    small = memory_of_inversion(prepare_invert(job.settings.model_copy(update={"partition_mib": 1})))
    large = memory_of_inversion(prepare_invert(job.settings.model_copy(update={"partition_mib": 4096})))
    assert all(small[name] <= large[name] for name in STAGES)


def test_memory_counts_wide_rows_and_systems_of_many_neighbors(roll, tmp_path, monkeypatch):
    told = settings(roll[0] / "run", tmp_path / "out", coordinates=str(roll[0] / "queries.npy"))
    few, many = (
        memory_of_inversion(prepare_invert(told.model_copy(update={"n_neighbors": k})))["invert"] for k in (10, 4000)
    )
    assert many - few > 16 * 4000**2
    # With smaller blocks the 64 columns are as if they were many: those of one query count.
    monkeypatch.setattr(inverting, "BLOCK_BYTES", 1 << 10)
    small, large = (
        memory_of_inversion(prepare_invert(told.model_copy(update={"n_neighbors": k})))["invert"] for k in (10, 400)
    )
    assert large - small > 6 * 8 * 390 * 64 + 16 * (400**2 - 10**2)


def test_a_partition_of_wide_rows_is_a_grain_at_least(tmp_path):
    """Rows of 4,096 numbers in partitions of a MiB: a grain has 128 MiB, but there are only 50 rows."""
    data = np.random.default_rng(0).normal(size=(50, 4096))
    fitted(saved(tmp_path, "wide.npy", data), tmp_path / "run", method="mds", n_landmarks=20, n_components=2)
    job = prepare_invert(settings(tmp_path / "run", tmp_path / "out", path=(0, 1), partition_mib=1))
    told = memory_of_inversion(job)
    assert told["gather"] - told["order"] > 3 * data.nbytes - (1 << 20)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 25), st.integers(1, 40))
def test_blocks_have_every_query_once_and_no_more_rows_than_they_may(seed, k, n_queries, most_rows):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, size=3 * k)
    places = np.array([rng.choice(3 * k, k, replace=False) for _ in range(n_queries)], dtype=np.int64).reshape(-1, k)
    blocks = list(stage.blocks_of(places, sizes, most_rows))
    assert [query for block in blocks for query in range(block.start, block.stop)] == list(range(n_queries))
    for block in blocks:
        n_rows = sizes[np.unique(places[block])].sum()
        assert n_rows <= most_rows or block.stop - block.start == 1
        if block.stop < n_queries:
            assert sizes[np.unique(places[block.start : block.stop + 1])].sum() > most_rows


class Recording:
    """A source that remembers what was read of it."""

    def __init__(self, data):
        self._source, self.runs = open_source(data), []
        self.name, self.shape, self.dtype = "recorded", self._source.shape, self._source.dtype

    def read(self, start, stop):
        self.runs.append((start, stop))
        return self._source.read(start, stop)


def test_single_rows_are_read_in_runs_without_what_is_far_between():
    data = np.arange(40_000.0).reshape(400, 100)
    wide = Recording(np.repeat(data, 100, axis=1))  # rows of 80,000 bytes, 13 of which are a gap
    numbers = np.array([0, 1, 14, 100, 399])
    np.testing.assert_array_equal(take_rows(wide, numbers)[:, ::100], data[numbers])
    assert wide.runs == [(0, 15), (100, 101), (399, 400)]
    assert take_rows(wide, np.empty(0, dtype=np.int64)).shape == (0, 10_000)


@pytest.mark.parametrize("probing", [False, True])
def test_in_many_dimensions_all_near_points_are_found_or_nearly_all(tmp_path, monkeypatch, probing):
    data = np.random.default_rng(0).normal(size=(12_500, 6))
    fitted(saved(tmp_path, "data.npy", data), tmp_path / "run", method="mds", n_landmarks=40, n_components=5)
    points = open_run(tmp_path / "run").embedding()
    queries = 0.7 * points[:300] + 0.3 * points[300:600]
    monkeypatch.setattr(partitions, "SMALLEST_BYTES", 1)
    if probing:
        monkeypatch.setattr(index, "SEARCHED_EXACTLY", 1000)
    opened = inverted(tmp_path / "run", tmp_path / "out", coordinates=saved(tmp_path, "q.npy", queries), recall=0.8)
    expected = inverse.invert(queries, points, data, inverse.nearest_nodes(points, queries, K)).values
    same = np.isclose(opened.embedding("values"), expected, atol=1e-8).all(axis=1)
    if probing:
        recall = opened.stage_figures("probes")["recall"]
        assert 0.7 < recall < 1.0
        assert recall**K / 2 < same.mean() < 1.0
    else:
        assert same.all()
