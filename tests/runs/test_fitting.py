"""Whole fits: the numbers of LandmarkIsomap, whatever the chunks; only what changed is computed again."""

import os
import re

import dask.array
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy.spatial import procrustes
from small import SETTINGS, Counting, fitted, roll_file

from pipeline import LandmarkIsomap, open_run
from pipeline.errors import (
    ComponentWarning,
    DisconnectedGraphError,
    InvalidInputError,
    LeaseHeldError,
    RecallWarning,
    StoreError,
)
from pipeline.jobs.fit import STAGES, fit
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import fit_settings
from pipeline.stages.publish import PUBLISHED
from pipeline.store import lease, run
from pipeline.store.backend import Objects

COLUMNS = ("residual", "multiplier", "gap", "nearest", "ambiguous", "component")


def saved(folder, array, name="data.npy"):
    np.save(folder / name, array)
    return folder / name


def up_to_sign(reference, coordinates):
    return coordinates * np.sign((reference * coordinates).sum(axis=0))


@pytest.fixture(scope="module")
def roll(tmp_path_factory):
    """A source and its run, not to be changed."""
    folder = tmp_path_factory.mktemp("roll")
    source = roll_file(folder)
    fitted(source, folder / "run", recall=1)
    return source, folder / "run"


def test_equals_the_estimator(roll):
    source, store = roll
    data, opened = np.load(source), open_run(store)
    for extension, name in (("projection", "projection"), ("restricted", "restricted")):
        isomap = LandmarkIsomap(8, 2, n_landmarks=70, extension=extension, random_state=0).fit(data)
        np.testing.assert_array_equal(np.sort(opened.landmark_rows), np.sort(isomap.landmark_indices_))
        found = up_to_sign(isomap.embedding_, opened.embedding(name))
        np.testing.assert_allclose(found, isomap.embedding_, rtol=0, atol=1e-5 * np.abs(isomap.embedding_).max())
    np.testing.assert_allclose(opened.model.eigenvalues * opened.unit**2, isomap.eigenvalues_, rtol=1e-6)


def test_a_lazy_array_gives_what_a_file_does(tmp_path):
    data = swiss_roll(4500, seed=0).points
    fitted(saved(tmp_path, data), tmp_path / "file")
    settings = fit_settings({**SETTINGS, "source": "an array", "store": str(tmp_path / "lazy")})
    fit(settings, data=dask.array.from_array(data, chunks=(700, 2)))
    some, others = open_run(tmp_path / "file"), open_run(tmp_path / "lazy")
    assert some.embedding().tobytes() == others.embedding().tobytes()
    again = Counting()
    fit(settings, again, data=dask.array.from_array(data, chunks=(700, 2)))
    assert again.stages == []


def test_trust_columns_are_in_the_units_of_the_data(roll):
    source, store = roll
    data, opened = np.load(source), open_run(store)
    projection, restricted = opened.embedding("projection"), opened.embedding("restricted")
    np.testing.assert_allclose(opened.embedding("gap"), np.linalg.norm(projection - restricted, axis=1), rtol=1e-9)
    nearest = np.sort(np.linalg.norm(data[:50, None] - data[None], axis=2), axis=1)[:, 1]
    np.testing.assert_allclose(opened.embedding("nearest")[:50], nearest, rtol=1e-9)
    for name in ("residual", "multiplier", "gap", "nearest"):
        exact = np.quantile(opened.embedding(name), 0.95, method="inverted_cdf")
        assert opened.trust[name]["0.95"] == pytest.approx(exact, rel=1 / 128)


@pytest.mark.parametrize("partition_mib", [3, 64])
def test_a_rows_bytes_do_not_depend_on_the_chunks(tmp_path, partition_mib):
    source = roll_file(tmp_path, 13_000, 40)
    for mib in (1, partition_mib):
        fitted(source, tmp_path / str(mib), partition_mib=mib)
    some, others = open_run(tmp_path / "1"), open_run(tmp_path / str(partition_mib))
    assert some.status[0].n_partitions != others.status[0].n_partitions
    for name in PUBLISHED:
        assert some.embedding(name).tobytes() == others.embedding(name).tobytes(), name
    assert some.quality == others.quality
    assert some.trust == others.trust


def test_ties_do_not_depend_on_the_chunks(tmp_path):
    """Random bits: nearly every distance ties with others, also across groups of cells."""
    bits = np.random.default_rng(0).integers(0, 2, size=(15_000, 16)).astype(np.float64)
    source = saved(tmp_path, bits)
    for mib in (1, 64):
        with pytest.warns(RecallWarning, match="of the true neighbors"):
            fitted(source, tmp_path / str(mib), partition_mib=mib, n_neighbors=10, recall=0.921)
    some, others = open_run(tmp_path / "1"), open_run(tmp_path / "64")
    assert some.quality == others.quality
    assert some.embedding().tobytes() == others.embedding().tobytes()


def test_few_distinct_rows_are_searched_exactly(tmp_path):
    data = np.random.default_rng(0).normal(size=(900, 8))[np.arange(20_000) % 900]
    fitted(saved(tmp_path, data), tmp_path / "run", component_policy="bridge")
    assert open_run(tmp_path / "run").quality["recall"] == 1


def test_a_run_taken_over_cannot_publish(tmp_path):
    source = roll_file(tmp_path)

    class TakenOver(Counting):
        def finished(self, outcome):
            if outcome.ledger.stage == "publish":
                lease.acquire(run.open_store(tmp_path / "run", writable=True), take_over=True)

    with pytest.raises(LeaseHeldError, match="this run lost"):
        fitted(source, tmp_path / "run", TakenOver())
    assert not open_run(tmp_path / "run").published


def test_a_changed_ledger_is_an_error_until_it_is_gone(tmp_path):
    source = roll_file(tmp_path)
    fitted(source, tmp_path / "run")
    (entry,) = (tmp_path / "run" / "evaluate").glob("*/ledger/finished.json")
    text = entry.read_text()
    entry.write_text(re.sub('"recall":[0-9.]+', '"recall":7.0', text))
    with pytest.raises(StoreError, match=r"finished\.json is damaged: it is not as it was written"):
        fitted(source, tmp_path / "run")
    assert "damaged" in open_run(tmp_path / "run").damaged()[0]


def test_a_damaged_manifest_is_written_anew(tmp_path):
    source = roll_file(tmp_path)
    fitted(source, tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    text = manifest.read_bytes()
    manifest.write_bytes(text[:50])
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        open_run(tmp_path / "run").embedding()
    assert fitted(source, tmp_path / "run").stages == []
    assert manifest.read_bytes() == text


def test_another_file_that_looks_the_same_from_outside_is_another_source(tmp_path):
    """Same size and time of change, as unpacked archives have."""
    data = swiss_roll(4500, seed=0).points
    some, other = saved(tmp_path, data, "a.npy"), saved(tmp_path, data * 50, "b.npy")
    os.utime(other, ns=(some.stat().st_atime_ns, some.stat().st_mtime_ns))
    fitted(some, tmp_path / "run")
    with pytest.raises(InvalidInputError, match="is not the data that version '1'"):
        fitted(other, tmp_path / "run")
    assert len(fitted(other, tmp_path / "run", on_changed_source="version").stages) > 10


def test_collecting_interrupted_leaves_a_run_that_can_go_on(tmp_path, monkeypatch):
    source = roll_file(tmp_path)
    fitted(source, tmp_path / "run", n_neighbors=9)
    expected = open_run(tmp_path / "run").embedding()
    fitted(source, tmp_path / "run")

    def interrupted(self, prefix):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "delete_below", interrupted)
        with pytest.raises(KeyboardInterrupt):
            collect(tmp_path / "run")
    fitted(source, tmp_path / "run", n_neighbors=9)
    np.testing.assert_array_equal(open_run(tmp_path / "run").embedding(), expected)
    assert open_run(tmp_path / "run").damaged() == []


def test_collecting_leaves_alone_what_is_not_the_runs(tmp_path, roll):
    (tmp_path / "notes").mkdir()
    run.create_run(tmp_path / "run")
    for name in ("notes/plots/a.txt", "rows/mine/b.txt", "out.npy"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("mine")
    assert collect(tmp_path / "run") == []


def test_a_second_run_computes_nothing_and_changes_only_what_it_must(tmp_path, roll):
    source = roll_file(tmp_path)
    store = tmp_path / "run"
    fitted(source, store)
    first = open_run(store).embedding()
    assert fitted(source, store).stages == []
    assert fitted(source, store, n_components=3).stages == [
        "model",
        "embed",
        "calibrate",
        "pairs",
        "evaluate",
        "publish",
    ]
    assert open_run(store).embedding().shape == (4500, 3)
    np.testing.assert_array_equal(open_run(store).embedding()[:, :2], first)
    with_other_k = fitted(source, store, n_components=3, n_neighbors=9).stages
    assert with_other_k[:2] == ["probes", "neighbors"]
    assert {"validate", "cells", "assign", "order"}.isdisjoint(with_other_k)
    assert fitted(source, store).stages == [], "the first settings' results are kept until they are collected"
    collect(store)
    assert fitted(source, store).stages == []
    assert "neighbors" in fitted(source, store, n_neighbors=9).stages


def collect(store):
    opened = run.open_store(store, writable=True)
    paths = run.superseded(opened, STAGES)
    for path in paths:
        run.remove(opened, path)
    return paths


def test_touching_the_source_scans_it_again_but_computes_nothing_else(tmp_path):
    source = roll_file(tmp_path)
    fitted(source, tmp_path / "run")
    source.with_name("copy.npy").write_bytes(source.read_bytes())
    source.with_name("copy.npy").replace(source)
    assert fitted(source, tmp_path / "run").stages == ["validate"]
    np.save(source, np.load(source)[::-1])
    assert len(fitted(source, tmp_path / "run", on_changed_source="version").stages) > 10


def test_rows_of_dropped_components_are_nan_with_a_flag(tmp_path):
    data = swiss_roll(4500, seed=0).points
    data[1000:1040] += 1000
    source = saved(tmp_path, data)
    with pytest.warns(ComponentWarning, match="only the largest is embedded, the other 40 rows become NaN") as on_disk:
        fitted(source, tmp_path / "run", component_policy="largest")
    opened = open_run(tmp_path / "run")
    component = opened.embedding("component")
    np.testing.assert_array_equal(np.flatnonzero(component), np.arange(1000, 1040))
    for name in ("projection", "restricted", "residual", "gap", "nearest", "multiplier"):
        rows = opened.embedding(name)
        np.testing.assert_array_equal(np.isnan(rows.reshape(4500, -1)).all(axis=1), component > 0)
    isomap = LandmarkIsomap(8, 2, n_landmarks=70, component_policy="largest", random_state=0)
    with pytest.warns(ComponentWarning, match="2 components") as in_memory:
        expected = isomap.fit(data).embedding_
    assert str(on_disk[0].message) == str(in_memory[0].message)
    kept = component == 0
    # The search is approximate here, so that a few edges may differ.
    assert procrustes(expected[kept], opened.embedding()[kept])[2] < 0.01**2


def test_bridges_join_components_as_in_memory(tmp_path):
    data = swiss_roll(4500, seed=0).points
    data[:500] += 1000
    with pytest.warns(ComponentWarning, match=r"rows: 4000, 500\), joined by a link.* n_neighbors=500 is") as on_disk:
        fitted(saved(tmp_path, data), tmp_path / "run", recall=1)
    with pytest.warns(ComponentWarning, match="2 components") as in_memory:
        expected = LandmarkIsomap(8, 2, n_landmarks=70, random_state=0).fit(data).embedding_
    assert str(on_disk[0].message) == str(in_memory[0].message)
    found = up_to_sign(expected, open_run(tmp_path / "run").embedding())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_disconnected_graph_is_refused_and_the_work_done_is_kept(tmp_path):
    data = swiss_roll(4500, seed=0).points
    data[:500] += 1000
    source = saved(tmp_path, data)
    with pytest.raises(DisconnectedGraphError, match="2 components, of sizes 4000, 500"):
        fitted(source, tmp_path / "run", component_policy="error")
    with pytest.warns(ComponentWarning, match="2 components"):
        again = fitted(source, tmp_path / "run")
    assert again.stages[:4] == ["pieces", "links", "connecting", "components"]


def test_missing_rows_are_refused_or_kept_out(tmp_path):
    data = swiss_roll(4500, seed=0).points
    source = saved(tmp_path, data, "clean.npy")
    bad = data.copy()
    bad[[7, 4200], [0, 2]] = np.nan, np.inf
    holes = saved(tmp_path, bad, "holes.npy")
    with pytest.raises(InvalidInputError, match=r"2 NaN or infinite entries in 2 rows, first in rows 7, 4200"):
        fitted(holes, tmp_path / "run")
    fitted(holes, tmp_path / "run", missing="drop")
    opened = open_run(tmp_path / "run")
    component = opened.embedding("component")
    np.testing.assert_array_equal(np.flatnonzero(component == -1), [7, 4200])
    np.testing.assert_array_equal(np.isnan(opened.embedding()).all(axis=1), component == -1)
    fitted(source, tmp_path / "whole")
    kept = component == 0
    assert procrustes(open_run(tmp_path / "whole").embedding()[kept], opened.embedding()[kept])[2] < 0.01**2


@pytest.mark.parametrize("partition_mib", [1, 64])
def test_a_whole_partition_may_be_missing(tmp_path, partition_mib):
    data = np.load(roll_file(tmp_path, 9000))
    data[:4096] = np.nan
    fitted(saved(tmp_path, data), tmp_path / "run", missing="drop", partition_mib=partition_mib)
    kept = np.isfinite(open_run(tmp_path / "run").embedding()).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(kept), np.arange(4096, 9000))


@pytest.mark.parametrize("seed", range(4))
def test_few_usable_rows_are_enough(tmp_path, seed):
    data = np.full((1000, 3), np.nan)
    usable = np.random.default_rng(seed).choice(1000, 40, replace=False)
    data[usable] = swiss_roll(40, seed).points
    source = saved(tmp_path, data)
    fitted(source, tmp_path / "run", missing="drop", n_landmarks=20, component_policy="bridge", seed=seed)
    assert np.isfinite(open_run(tmp_path / "run").embedding()).all(axis=1).sum() == 40


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e-140])
def test_far_scales_give_the_same_shape(tmp_path, scale):
    data = swiss_roll(4500, seed=0).points
    fitted(saved(tmp_path, data), tmp_path / "run")
    power = 2.0 ** np.round(np.log2(scale))
    fitted(saved(tmp_path, data * power, "scaled.npy"), tmp_path / "scaled")
    found = open_run(tmp_path / "scaled").embedding()
    assert (found / power).tobytes() == open_run(tmp_path / "run").embedding().tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.int64])
def test_other_number_types_are_taken_as_they_are(tmp_path, dtype):
    data = np.round(swiss_roll(4500, seed=0).points * 4 + 100).astype(dtype)
    fitted(saved(tmp_path, data), tmp_path / "run", component_policy="largest")
    fitted(saved(tmp_path, data.astype(np.float64), "doubles.npy"), tmp_path / "doubles", component_policy="largest")
    some, others = open_run(tmp_path / "run"), open_run(tmp_path / "doubles")
    np.testing.assert_array_equal(some.embedding(), others.embedding())


def test_duplicates_share_their_coordinates_and_are_nearest_to_themselves(tmp_path):
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, 1500, size=6000)
    data = swiss_roll(1500, seed=0).points[chosen]
    fitted(saved(tmp_path, data), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    coordinates, nearest = opened.embedding(), opened.embedding("nearest")
    _, first, counts = np.unique(chosen, return_index=True, return_counts=True)
    place = np.searchsorted(np.unique(chosen), chosen)
    np.testing.assert_array_equal(coordinates, coordinates[first][place])
    np.testing.assert_array_equal(nearest == 0, counts[place] > 1)


def test_standardizing_and_principal_axes_do_what_they_would_do_beforehand(tmp_path):
    rng = np.random.default_rng(0)
    data = swiss_roll(4500, seed=0).points @ rng.normal(size=(3, 6)) * [1, 10, 100, 1, 1, 1] + 7
    data = np.hstack([data, np.full((4500, 1), 0.1)])
    spread = data.std(axis=0)
    spread[6] = 1
    standard = (data - data.mean(axis=0)) / spread
    _, _, axes = np.linalg.svd(standard - standard.mean(axis=0), full_matrices=False)
    source = saved(tmp_path, data)
    fitted(source, tmp_path / "a", standardize=True, pca=3, recall=1)
    fitted(saved(tmp_path, standard @ axes[:3].T, "by_hand.npy"), tmp_path / "b", recall=1)
    found, expected = open_run(tmp_path / "a").embedding(), open_run(tmp_path / "b").embedding()
    np.testing.assert_allclose(up_to_sign(expected, found), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"n_neighbors": 5000},
            r"n_neighbors=5000 is out of range; use one from 1 to 4499 \(the source has 4500 rows\)",
        ),
        ({"n_landmarks": 4501}, "n_landmarks=4501 is out of range"),
        ({"n_landmarks": 2}, "n_landmarks=2 is out of range"),
        ({"pca": 65}, "pca=65 is out of range; use one from 1 to 64"),
        ({"key": "x"}, "key='x'"),
        ({"columns": "99"}, "99"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, settings, message):
    source = roll_file(tmp_path)
    with pytest.raises(InvalidInputError, match=message):
        fitted(source, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_graph_does_not_break_at_the_borders_of_cells(tmp_path):
    """Evenly spaced points on a line: a cell of its own would do for 99.5% of the neighbors."""
    fitted(saved(tmp_path, np.linspace(0, 1, 9000)[:, None]), tmp_path / "run", n_components=1)
    assert open_run(tmp_path / "run").quality["residual_variance"][0] < 1e-9


def test_more_components_than_the_spectrum_has_are_refused_with_their_number(tmp_path):
    line = np.linspace(0, 1, 4500)[:, None]
    with pytest.raises(InvalidInputError, match=r"n_components=\d+ is more than .* positive eigenvalue"):
        fitted(saved(tmp_path, line), tmp_path / "run", n_components=60, n_landmarks=70)


def test_identical_rows_are_refused_at_the_scan(tmp_path):
    source = saved(tmp_path, np.full((5000, 3), 0.1))
    with pytest.raises(InvalidInputError, match=r"all 5000 rows of .* are identical"):
        fitted(source, tmp_path / "run")
    assert [stage.stage for stage in open_run(tmp_path / "run").status] == ["validate"]


def test_whole_numbers_that_doubles_cannot_tell_apart_are_refused(tmp_path):
    data = 2**60 + np.arange(9000).reshape(4500, 2)
    with pytest.raises(InvalidInputError, match=r"whole numbers up to \d+, beyond 2\^53"):
        fitted(saved(tmp_path, data), tmp_path / "run")


def test_a_store_inside_its_source_is_refused(tmp_path):
    (tmp_path / "parts").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"a": np.arange(50.0)}), tmp_path / "parts" / "x.parquet")
    with pytest.raises(InvalidInputError, match="is inside the source"):
        fitted(tmp_path / "parts", tmp_path / "parts" / "run", n_landmarks=20)


def test_too_few_distinct_rows_are_refused(tmp_path):
    data = np.repeat(np.arange(12.0).reshape(6, 2), 800, axis=0)
    with pytest.raises(InvalidInputError, match=r"n_neighbors=8 .*6 distinct rows"):
        fitted(saved(tmp_path, data), tmp_path / "run")


def test_a_store_is_held_by_one_run_at_a_time(tmp_path):
    source = roll_file(tmp_path)
    store = run.create_run(tmp_path / "run")
    with lease.acquire(store), pytest.raises(LeaseHeldError, match="is held by process"):
        fitted(source, tmp_path / "run")


def test_a_newer_format_is_refused_by_name(tmp_path, roll):
    run.create_run(tmp_path / "run")
    (tmp_path / "run" / "trigpoint.json").write_text('{"format_version": 99}')
    for use in (lambda: fitted(roll[0], tmp_path / "run"), lambda: open_run(tmp_path / "run")):
        with pytest.raises(StoreError, match=r"format version 99; this version of trigpoint reads 1: install a newer"):
            use()


def test_a_folder_that_is_no_run_is_left_alone(tmp_path, roll):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(InvalidInputError, match=r"is not a run: it has no trigpoint\.json"):
        fitted(roll[0], tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_nothing_is_published_before_the_end(tmp_path):
    run.create_run(tmp_path / "run")
    opened = open_run(tmp_path / "run")
    assert not opened.published
    assert opened.status == []
    with pytest.raises(StoreError, match="nothing published yet"):
        opened.embedding()


def test_unknown_arrays_are_named(roll):
    with pytest.raises(InvalidInputError, match="array='labels' is not published; use one of projection, restricted"):
        open_run(roll[1]).embedding("labels")
