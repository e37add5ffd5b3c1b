"""Portable models: they place new rows nearly as the run does, know how nearly, and need nothing of it any more."""

import json
import shutil

import numpy as np
import pytest
from small import Counting, contents, extended, fitted
from snapshots import bury_the_holder, committed, snapshots_of

from pipeline import open_run
from pipeline.errors import ComponentWarning, InvalidInputError, StageError, StoreError
from pipeline.jobs.portable import STAGES, export_model
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.shortest_paths import PathSearch
from pipeline.stages.graph.rows import connected_graph, row_batches
from pipeline.stages.publish import COORDINATES
from pipeline.stages.space import exportable_space
from pipeline.store import local, run

N_TRAINING = 4500


def saved(folder, name, rows):
    np.save(folder / name, rows)
    return folder / name


def exported(store, model, anchors=None, watch=None):
    return export_model(str(store), str(model), anchors, watch)


def spread(coordinates):
    return np.sqrt(np.sum((coordinates - coordinates.mean(axis=0)) ** 2, axis=1).mean())


def errors(found, expected):
    """Distances from where rows should be, in units of the embedding's spread."""
    return np.sqrt(np.sum((found - expected) ** 2, axis=1)) / spread(expected)


def on_the_roll(n_points, seed, n_columns):
    points = swiss_roll(n_points, seed=seed).points
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(n_columns, 3)))[0]
    return points if n_columns == 3 else points @ turned.T


@pytest.fixture(scope="module", params=[3, 64], ids=["trees", "cells"])
def roll(request, tmp_path_factory):
    """A fitted roll, new points on it and where the run puts them, and models of 300, 1,000 and all points."""
    folder = tmp_path_factory.mktemp("roll")
    points = on_the_roll(6000, 0, request.param)
    training = saved(folder, "training.npy", points[:N_TRAINING])
    fitted(training, folder / "run", recall=1)
    extended(folder / "run", saved(folder, "new.npy", points[N_TRAINING:]), folder / "full")
    for anchors in (300, 1000, N_TRAINING):
        exported(folder / "run", folder / f"model-{anchors}", anchors)
    return folder, request.param


# Measured: 2.9% and 8.8% of the spread with 300 anchors, 1.7% and 6.3% with 1,000.
@pytest.mark.parametrize(("anchors", "rms", "q99"), [(300, 0.04, 0.12), (1000, 0.025, 0.08), (N_TRAINING, 1e-5, 1e-5)])
def test_rows_are_placed_nearly_as_by_the_run_that_is_gone(roll, tmp_path, anchors, rms, q99):
    folder, _ = roll
    shutil.copytree(folder / "run", tmp_path / "run")
    stated = exported(tmp_path / "run", tmp_path / "model", anchors).stated["accuracy"]
    shutil.rmtree(tmp_path / "run")
    extended(tmp_path / "model", folder / "new.npy", tmp_path / "out")
    found, expected = (open_run(at) for at in (tmp_path / "out", folder / "full"))
    for name in COORDINATES:
        off = errors(found.embedding(name), expected.embedding(name))
        assert np.sqrt((off**2).mean()) < rms
        assert np.quantile(off, 0.99) < q99
    # What it says of itself is about what new rows see.
    assert stated["rms"] < rms
    assert stated["q99"] < q99
    if anchors < N_TRAINING:
        assert stated["n_checked"] > 500
        assert abs(stated["rms"] / np.sqrt((off**2).mean()) - 1) < 0.4


def test_more_anchors_are_more_accurate(roll):
    folder, _ = roll
    stated = [open_run(folder / f"model-{n}").portable["accuracy"]["rms"] for n in (300, 1000, N_TRAINING)]
    assert stated[0] > stated[1] > stated[2] == 0


def test_anchors_return_to_their_places_to_the_bit(roll, tmp_path):
    folder, _ = roll
    model = run.open_store(folder / "model-1000")
    rows = np.sort(exportable_space(model, run.read_manifest(model)).stages["order"].ledger.part("first", 0).read())
    assert len(np.unique(rows)) == 1000
    assert np.isin(open_run(folder / "run").landmark_rows, rows).all()
    source = saved(tmp_path, "anchors.npy", np.load(folder / "training.npy")[rows])
    extended(folder / "model-1000", source, tmp_path / "out")
    for name in COORDINATES:
        there, again = open_run(folder / "run").embedding(name)[rows], open_run(tmp_path / "out").embedding(name)
        assert again.tobytes() == there.tobytes()


@pytest.mark.parametrize("anchors", [300, 1000])
def test_batches_of_the_same_kind_do_not_drift_and_others_do(roll, tmp_path, anchors):
    folder, n_columns = roll
    away = np.linalg.qr(np.random.default_rng(5).normal(size=(n_columns, 2)))[0][:, 0]
    n_alarms = 0
    for seed in range(1, 13):
        batch = on_the_roll(700, seed, n_columns)
        source = saved(tmp_path, "batch.npy", batch)
        n_alarms += extended(folder / f"model-{anchors}", source, tmp_path / f"same-{seed}").drift["drifts"]
    # One in a hundred is what the level allows; two in twelve would be a chance of 1 in 150.
    assert n_alarms <= 1
    extended(folder / f"model-{anchors}", saved(tmp_path, "away.npy", batch + 6 * away), tmp_path / "away")
    drift = open_run(tmp_path / "away").drift
    assert drift["drifts"]
    assert drift["columns"]["nearest"]["share_beyond_99"] > 0.3


def test_ranks_are_shares_of_rows_that_are_not_anchors(roll, tmp_path):
    folder, n_columns = roll
    extended(folder / "model-1000", saved(tmp_path, "new.npy", on_the_roll(2000, 9, n_columns)), tmp_path / "out")
    for name in ("residual", "gap", "nearest"):
        assert abs(np.median(open_run(tmp_path / "out").embedding(f"{name}_rank")) - 0.5) < 0.06


def test_paths_along_the_anchors_are_those_of_the_run(roll):
    """From a landmark to any anchor none is shorter than in the run, and none much longer."""
    folder, _ = roll
    store = run.open_store(folder / "model-300")
    stages = exportable_space(store, run.read_manifest(store)).stages
    landmarks = run.published_ledger(store, run.read_manifest(store), "landmarks").read("nodes").read()
    graph = connected_graph(stages["order"], stages["graph"], stages["components"])
    expected = row_batches(stages["rows"])[0].read()
    lengths = PathSearch(graph).lengths(landmarks[:8])[:, :8]
    assert (lengths >= expected * (1 - 1e-5)).all()
    far = expected > 0.2 * expected.max()
    assert np.quantile(lengths[far] / expected[far], 0.99) < 1.25


@pytest.mark.parametrize("how", ["paths", "bound"])
def test_rows_are_reconstructed_together_as_by_the_run(roll, tmp_path, how):
    """Measured: 1.8% of the spread off with 1,000 anchors, either way."""
    folder, _ = roll
    source = saved(tmp_path, "some.npy", np.load(folder / "new.npy")[:200])
    for name in ("run", "model-1000"):
        extended(folder / name, source, tmp_path / name, joint=100, joint_distances=how)
    found, expected = (open_run(tmp_path / name).embedding("joint") for name in ("model-1000", "run"))
    assert np.sqrt((errors(found, expected) ** 2).mean()) < 0.03


def test_the_same_bytes_twice_and_however_the_run_was_cut(tmp_path):
    source = saved(tmp_path, "roll.npy", on_the_roll(N_TRAINING, 0, 64))
    for mib in (1, 64):
        fitted(source, tmp_path / f"run-{mib}", partition_mib=mib)
        exported(tmp_path / f"run-{mib}", tmp_path / f"model-{mib}", 500)
    assert len(open_run(tmp_path / "run-1").status[0].figures) > 0
    expected = contents(tmp_path / "model-1")
    assert contents(tmp_path / "model-64") == expected
    assert exported(tmp_path / "run-64", tmp_path / "model-1", 500).n_computed == 0
    assert contents(tmp_path / "model-1") == expected


def test_its_size_is_as_documented_and_stated(roll):
    """See docs/models.md."""
    folder, n_columns = roll
    m, k, d = 70, 8, 2
    for anchors in (300, 1000, N_TRAINING):
        model = folder / f"model-{anchors}"
        n_calibrating = min(N_TRAINING, 20_000) if anchors == N_TRAINING else 0.8 * (N_TRAINING - anchors)
        expected = anchors * (4 * m + 8 * n_columns + 14 * k + 48) + 40 * n_calibrating + 8 * m * (d + 30) + 60_000
        on_disk = sum(len(data) for data in contents(model).values())
        stated = open_run(model).portable["bytes"]
        assert 0.5 * expected < stated <= on_disk < expected
        assert on_disk - stated < 40_000
        assert stated > 4 * m * anchors


def test_nothing_in_it_is_pickled(roll):
    folder, _ = roll
    kinds = set()
    for path in (folder / "model-1000").rglob("*"):
        if path.name == "zarr.json":
            described = json.loads(path.read_text())
            kinds.add(described.get("data_type", described["node_type"]))
        elif path.is_file():
            assert path.suffix == ".json" or path.name.startswith("c.")
            assert b"numpy.core" not in path.read_bytes()
    assert kinds == {"group", "float64", "float32", "int64", "int32"}


def test_it_opens_like_a_run_and_says_what_it_has_not(roll):
    folder, _ = roll
    model, original = open_run(folder / "model-1000"), open_run(folder / "run")
    assert (model.kind, model.published, model.is_current) == ("model", True, True)
    assert model.model.coordinates.tobytes() == original.model.coordinates.tobytes()
    assert model.landmark_rows.tobytes() == original.landmark_rows.tobytes()
    assert model.unit == original.unit
    assert set(model.calibration) == set(original.calibration)
    assert model.portable["n_anchors"] == 1000
    assert original.portable is None
    assert model.damaged() == []
    assert all(stage.complete and stage.stage in STAGES for stage in model.status)
    with pytest.raises(InvalidInputError, match="which places new rows and has none of its own"):
        model.embedding()
    with pytest.raises(InvalidInputError, match="has no results of stage evaluate"):
        _ = model.quality


def test_a_damaged_model_is_found_out(roll, tmp_path):
    folder, _ = roll
    shutil.copytree(folder / "model-300", tmp_path / "model")
    chunk = next(iter((tmp_path / "model" / "rows").rglob("c.0.0")))
    data = bytearray(chunk.read_bytes())
    data[100] ^= 1
    chunk.write_bytes(data)
    assert len(open_run(tmp_path / "model").damaged()) == 1
    with pytest.raises(StageError, match="damaged"):
        extended(tmp_path / "model", folder / "new.npy", tmp_path / "out")


def test_preprocessing_goes_with_it(tmp_path, rng):
    data = swiss_roll(3000, seed=0).points @ rng.normal(size=(3, 6)) * [1, 5, 1, 1, 1, 1] + 7
    fitted(saved(tmp_path, "data.npy", data), tmp_path / "run", standardize=True, pca=4)
    expected = open_run(tmp_path / "run").embedding()[:500]
    exported(tmp_path / "run", tmp_path / "model")
    shutil.rmtree(tmp_path / "run")
    extended(tmp_path / "model", saved(tmp_path, "some.npy", data[:500]), tmp_path / "out")
    assert open_run(tmp_path / "out").embedding().tobytes() == expected.tobytes()


def test_rows_near_a_dropped_component_are_still_known(tmp_path):
    """Heaps of forty and of nine points are dropped; one point in fifteen is an anchor, of each heap at least one."""
    data = on_the_roll(N_TRAINING, 0, 3)
    data[1000:1040] += 1000
    for i in range(10):
        data[2000 + 9 * i : 2009 + 9 * i] = np.random.default_rng(i).normal(size=(9, 3)) - [1000 + 100 * i, 0, 0]
    with pytest.warns(ComponentWarning, match="12 components .* the other 130 rows become NaN"):
        fitted(saved(tmp_path, "data.npy", data), tmp_path / "run", component_policy="largest")
    labels = open_run(tmp_path / "run").embedding("component")
    assert labels.max() == 11
    exported(tmp_path / "run", tmp_path / "model", 300)
    extended(tmp_path / "model", saved(tmp_path, "new.npy", data + 1e-3), tmp_path / "out")
    out = open_run(tmp_path / "out")
    away = np.flatnonzero(np.abs(data).max(axis=1) > 500)
    assert len(away) == 130
    np.testing.assert_array_equal(out.embedding("component")[away], labels[away])
    assert np.isnan(out.embedding()[away]).all()
    assert np.isfinite(out.embedding()[labels == 0]).all()
    assert open_run(tmp_path / "model").portable["accuracy"]["rms"] < 0.04


def test_rows_that_repeat_are_as_frequent_in_the_calibration_as_in_new_data(tmp_path, rng):
    points = on_the_roll(2000, 0, 3)
    data, new = points[rng.integers(0, 2000, 4500)], points[rng.integers(0, 2000, 4500)]
    fitted(saved(tmp_path, "data.npy", data), tmp_path / "run")
    exported(tmp_path / "run", tmp_path / "model", 700)
    extended(tmp_path / "model", saved(tmp_path, "new.npy", new), tmp_path / "out")
    store = run.open_store(tmp_path / "model")
    calibrated = run.published_ledger(store, run.read_manifest(store), "calibrate").read("nearest").read()
    share = (open_run(tmp_path / "out").embedding("nearest") == 0).mean()
    assert 0.1 < share < 0.9
    assert abs((calibrated == 0).mean() - share) < 4 * np.sqrt(share * (1 - share) / len(calibrated))
    assert not open_run(tmp_path / "out").drift["drifts"]


def test_without_a_number_small_runs_are_kept_whole(roll, tmp_path):
    folder, _ = roll
    assert exported(folder / "run", tmp_path / "model").stated["n_anchors"] == N_TRAINING


def test_what_cannot_be_exported_is_named(roll, tmp_path):
    folder, _ = roll
    store, training = folder / "run", folder / "training.npy"
    for anchors in (-1, 0, 79, 4001, 4499, 4501):
        with pytest.raises(InvalidInputError, match=rf"anchors={anchors} is out of range; use from 80 to 4000, or all"):
            exported(store, tmp_path / "model", anchors)
    assert not (tmp_path / "model").exists()
    with pytest.raises(InvalidInputError, match="holds a model exported from a run; name the run itself"):
        exported(folder / "model-300", tmp_path / "model")
    with pytest.raises(InvalidInputError, match="holds new points in the space of a run; name the run itself"):
        exported(folder / "full", tmp_path / "model")
    with pytest.raises(InvalidInputError, match="does not exist"):
        exported(tmp_path / "nothing", tmp_path / "model")
    with pytest.raises(InvalidInputError, match=r"model=.* is inside the source"):
        exported(store, store / "model")
    with pytest.raises(InvalidInputError, match="holds new points in the space of a run, not a model"):
        exported(store, folder / "full")
    with pytest.raises(InvalidInputError, match="is a file"):
        exported(store, training)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError, match=r"is not a run: it has no trigpoint\.json"):
        exported(store, tmp_path / "full")
    run.create_run(tmp_path / "begun")
    with pytest.raises(StoreError, match="has nothing published yet"):
        exported(tmp_path / "begun", tmp_path / "model")
    with pytest.raises(InvalidInputError, match="holds a model exported from a run, not a fitted run"):
        fitted(training, folder / "model-300")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run of few landmarks; a model of it written over a smaller one, with a snapshot for every operation."""
    folder = tmp_path_factory.mktemp("killed")
    fitted(saved(folder, "roll.npy", on_the_roll(N_TRAINING, 0, 3)), folder / "run", n_landmarks=16)
    np.save(folder / "new.npy", on_the_roll(50, 1, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_sync", lambda _: None)
        taken = snapshots_of(folder / "first", lambda: exported(folder / "run", folder / "model", 200))
        shutil.copytree(folder / "model", folder / "smaller")
        again = snapshots_of(folder / "second", lambda: exported(folder / "run", folder / "model", 300))
        yield folder, {"first": taken, "second": again}


# Every 8th operation in the quick suite, all others in `make test-faults`.
SHARES = 8


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [0, *(pytest.param(i, marks=pytest.mark.faults) for i in range(1, SHARES))])
@pytest.mark.parametrize(("which", "anchors", "whole"), [("first", 200, "smaller"), ("second", 300, "model")])
def test_killed_at_any_operation_it_ends_the_same(killed, tmp_path, which, anchors, whole, share):
    folder, operations = killed
    expected = contents(folder / whole)
    results = {}
    for name, n_anchors in (("smaller", 200), ("model", 300)):
        extended(folder / name, folder / "new.npy", tmp_path / name)
        results[n_anchors] = open_run(tmp_path / name).embedding().tobytes()
    assert len(operations[which]) > 60
    for number in range(share, len(operations[which]), SHARES):
        root, where = folder / which / str(number), f"killed at operation {number}, {operations[which][number]}"
        readable = (root / "manifest.json").exists()
        assert readable == (which == "second" or "manifest.json" in operations["first"][:number]), where
        if readable:
            extended(root, folder / "new.npy", tmp_path / str(number))
            found = open_run(root).portable["n_anchors"]
            assert open_run(tmp_path / str(number)).embedding().tobytes() == results[found], where
        elif (root / "trigpoint.json").exists():
            with pytest.raises(StoreError, match="nothing published yet"):
                extended(root, folder / "new.npy", tmp_path / str(number))
        bury_the_holder(root)
        before, again = committed(root), Counting()
        exported(folder / "run", root, anchors, again)
        assert contents(root) == expected, where
        assert not before & set(again.computed_partitions), where
        shutil.rmtree(root)
