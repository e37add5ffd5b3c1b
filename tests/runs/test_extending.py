"""Extending: the numbers of the estimator, the same bytes however the work is cut, faults in words."""

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra
from small import contents, extended, fitted

from benchmarks.diagonal_weight import normals
from pipeline import LandmarkIsomap, open_run
from pipeline.errors import ComponentWarning, InvalidInputError, StoreError
from pipeline.jobs.extend import extend_batches
from pipeline.jobs.refit import refit
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension import joint_restricted_reconstruction
from pipeline.numerics.extension.placement import TRUST
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.rows import rows_through_neighbors, with_direct_ways
from pipeline.numerics.neighbors.exact import nearest_neighbors, neighbors_within
from pipeline.numerics.statistics import ranks_of
from pipeline.settings import ExtendSettings, RefitSettings, job_settings
from pipeline.stages.publish import COORDINATES, PUBLISHED
from pipeline.stages.stage import Watch

COLUMNS = (*TRUST, *ranks_of(TRUST))

ARRAYS = (*PUBLISHED, *COLUMNS[4:])


def saved(folder, name, rows):
    np.save(folder / name, rows)
    return folder / name


def results(store):
    opened = open_run(store)
    return {name: opened.embedding(name).tobytes() for name in ARRAYS}


@pytest.fixture(scope="module", params=[3, 64], ids=["trees", "cells"])
def roll(request, tmp_path_factory):
    """A fitted roll, in few or many columns, and new points on it."""
    folder = tmp_path_factory.mktemp("roll")
    points = swiss_roll(6000, seed=0).points
    if request.param > 3:
        points = points @ np.linalg.qr(np.random.default_rng(0).normal(size=(request.param, 3)))[0].T
    training, new = points[:4500], points[4500:]
    np.save(folder / "training.npy", training)
    fitted(folder / "training.npy", folder / "run", recall=1)
    return folder, training, new


@pytest.mark.parametrize("extension", ["projection", "restricted"])
def test_new_rows_are_placed_as_by_the_estimator(roll, tmp_path, extension):
    folder, training, new = roll
    extended(folder / "run", saved(tmp_path, "new.npy", new), tmp_path / "out")
    isomap = LandmarkIsomap(8, 2, n_landmarks=70, extension=extension, random_state=0).fit(training)
    expected = isomap.transform(new)
    # Signs of components are the same on both sides: the largest entry of each eigenvector is positive.
    np.testing.assert_allclose(
        open_run(tmp_path / "out").embedding(extension), expected, atol=1e-5 * np.abs(expected).max(), rtol=0
    )


def test_training_rows_return_to_their_places(roll, tmp_path):
    folder, _, _ = roll
    extended(folder / "run", folder / "training.npy", tmp_path / "out")
    run, out = open_run(folder / "run"), open_run(tmp_path / "out")
    for name in COORDINATES:
        assert out.embedding(name).tobytes() == run.embedding(name).tobytes()
    assert (out.embedding("nearest") == 0).all()


@pytest.mark.parametrize("settings", [{"partition_mib": 1}, {"partition_mib": 64}])
def test_neither_chunks_nor_order_change_a_row(roll, tmp_path, settings):
    folder, _, new = roll
    many = np.concatenate([new] * 6)[:8500]
    extended(folder / "run", saved(tmp_path, "new.npy", many), tmp_path / "whole")
    shuffled = np.random.default_rng(1).permutation(len(many))
    extended(folder / "run", saved(tmp_path, "shuffled.npy", many[shuffled]), tmp_path / "out", **settings)
    whole, out = open_run(tmp_path / "whole"), open_run(tmp_path / "out")
    for name in ARRAYS:
        assert whole.embedding(name)[shuffled].tobytes() == out.embedding(name).tobytes(), name
    assert whole.drift == out.drift


def test_the_same_batch_again_computes_nothing(roll, tmp_path):
    folder, _, new = roll
    source = saved(tmp_path, "new.npy", new)
    assert extended(folder / "run", source, tmp_path / "out").n_computed > 0
    before = contents(tmp_path / "out")
    assert extended(folder / "run", source, tmp_path / "out").n_computed == 0
    assert contents(tmp_path / "out") == before


def test_an_empty_batch_has_no_rows_and_is_no_error(roll, tmp_path):
    folder, training, _ = roll
    extended(folder / "run", saved(tmp_path, "none.npy", training[:0]), tmp_path / "out")
    out = open_run(tmp_path / "out")
    assert out.embedding("projection").shape == (0, 2)
    assert out.embedding("gap").shape == (0,)
    assert (out.n_rows, out.drift) == (0, None)


def test_one_row_and_equal_rows_are_batches_too(roll, tmp_path):
    folder, _, new = roll
    extended(folder / "run", saved(tmp_path, "one.npy", new[:1]), tmp_path / "one")
    extended(folder / "run", saved(tmp_path, "same.npy", np.repeat(new[:1], 9, axis=0)), tmp_path / "same")
    one, same = open_run(tmp_path / "one"), open_run(tmp_path / "same")
    np.testing.assert_array_equal(same.embedding(), np.repeat(one.embedding(), 9, axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_rows_of_another_dtype_are_taken_for_their_values(roll, tmp_path, dtype):
    folder, _, new = roll
    values = new[:300].astype(dtype)
    extended(folder / "run", saved(tmp_path, "as_is.npy", values), tmp_path / "as_is")
    extended(folder / "run", saved(tmp_path, "doubles.npy", values.astype(np.float64)), tmp_path / "doubles")
    assert results(tmp_path / "as_is") == results(tmp_path / "doubles")


def test_missing_rows_are_refused_or_left_out(roll, tmp_path):
    folder, _, new = roll
    holes = new[:50].copy()
    holes[7, 1] = np.nan
    source = saved(tmp_path, "holes.npy", holes)
    with pytest.raises(InvalidInputError, match="1 NaN or infinite entries in 1 rows, first in rows 7"):
        extended(folder / "run", source, tmp_path / "out")
    extended(folder / "run", source, tmp_path / "out", missing="drop")
    out = open_run(tmp_path / "out")
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(out.embedding("residual_rank"))), [7])
    assert out.embedding("component")[7] == -1


def test_what_does_not_fit_the_run_is_named(roll, tmp_path):
    folder, training, new = roll
    training, run = folder / "training.npy", folder / "run"
    with pytest.raises(InvalidInputError, match=f"has 2 columns; the run was fitted on {new.shape[1]}"):
        extended(run, saved(tmp_path, "narrow.npy", new[:, :2]), tmp_path / "out")
    with pytest.raises(InvalidInputError, match="squares would leave double precision"):
        extended(run, saved(tmp_path, "huge.npy", new * 1e200), tmp_path / "out")
    with pytest.raises(InvalidInputError, match=r"output=.* is inside the source"):
        extended(run, training, run / "out")
    with pytest.raises(InvalidInputError, match="does not exist"):
        extended(tmp_path / "nothing", training, tmp_path / "out")
    with pytest.raises(InvalidInputError, match=r"version='7' is not in .*; versions: 1\."):
        extended(run, training, tmp_path / "out", version="7")


def test_stores_of_other_kinds_are_told_apart(roll, tmp_path):
    folder, _, new = roll
    training, run = folder / "training.npy", folder / "run"
    extended(run, saved(tmp_path, "new.npy", new), tmp_path / "out")
    with pytest.raises(InvalidInputError, match="holds new points in the space of a run; name the run itself"):
        extended(tmp_path / "out", training, tmp_path / "again")
    with pytest.raises(InvalidInputError, match="holds new points in the space of a run, not a fitted run"):
        fitted(training, tmp_path / "out")
    fitted(training, tmp_path / "other")
    with pytest.raises(InvalidInputError, match="holds a fitted run, not new points"):
        extended(run, training, tmp_path / "other")


def test_rows_out_of_all_proportion_are_refused(tmp_path):
    data = swiss_roll(3000, seed=0).points * 1e-140
    fitted(saved(tmp_path, "data.npy", data), tmp_path / "run")
    with pytest.raises(InvalidInputError, match=r"reaches 1e\+20 in absolute value, beyond .* times the fitted data"):
        extended(tmp_path / "run", saved(tmp_path, "huge.npy", np.full((5, 3), 1e20)), tmp_path / "out")


def test_preprocessing_is_replayed(tmp_path, rng):
    """Training rows, standardized and turned onto axes, come back to their places; so by the new rows' own figures
    they would not."""
    data = swiss_roll(3000, seed=0).points @ rng.normal(size=(3, 6)) * [1, 5, 1, 1, 1, 1] + 7
    fitted(saved(tmp_path, "data.npy", data), tmp_path / "run", standardize=True, pca=4)
    extended(tmp_path / "run", saved(tmp_path, "some.npy", data[:500]), tmp_path / "out")
    expected = open_run(tmp_path / "run").embedding()[:500]
    assert open_run(tmp_path / "out").embedding().tobytes() == expected.tobytes()


def test_rows_near_a_dropped_component_are_nan_like_it(tmp_path):
    data = swiss_roll(4500, seed=0).points
    data[1000:1040] += 1000
    with pytest.warns(ComponentWarning, match="the other 40 rows become NaN"):
        fitted(saved(tmp_path, "data.npy", data), tmp_path / "run", component_policy="largest")
    new = np.concatenate([data[990:1050] + 0.01, swiss_roll(600, seed=1).points])
    extended(tmp_path / "run", saved(tmp_path, "new.npy", new), tmp_path / "out")
    out = open_run(tmp_path / "out")
    isomap = LandmarkIsomap(8, 2, n_landmarks=70, component_policy="largest", random_state=0)
    with pytest.warns(ComponentWarning, match="2 components"):
        expected = isomap.fit(data).transform(new)
    np.testing.assert_array_equal(np.flatnonzero(out.embedding("component")), np.arange(10, 50))
    for name in (*COORDINATES, "gap", "gap_rank"):
        rows = out.embedding(name).reshape(len(new), -1)
        np.testing.assert_array_equal(np.isnan(rows).all(axis=1), np.isnan(expected[:, 0]))
    np.testing.assert_allclose(out.embedding(), expected, atol=1e-5 * np.nanmax(np.abs(expected)))


def test_ranks_are_shares_of_rows_like_the_training_rows(roll, tmp_path):
    folder, _, new = roll
    extended(folder / "run", saved(tmp_path, "new.npy", new), tmp_path / "out")
    out = open_run(tmp_path / "out")
    for name in ("residual", "gap", "nearest"):
        ranks, values = out.embedding(f"{name}_rank"), out.embedding(name)
        assert ((ranks >= 0) & (ranks <= 1)).all()
        assert (np.diff(ranks[np.argsort(values)]) >= 0).all()
        assert abs(np.median(ranks) - 0.5) < 0.06
    assert not out.drift["drifts"]


def test_points_lifted_off_the_roll_stand_out_and_drift(roll, tmp_path):
    folder, _, new = roll
    away = np.linalg.qr(np.random.default_rng(5).normal(size=(new.shape[1], 2)))[0][:, 0]
    extended(folder / "run", saved(tmp_path, "away.npy", new[:400] + 4 * away), tmp_path / "out")
    drift = open_run(tmp_path / "out").drift
    assert drift["drifts"]
    assert drift["columns"]["nearest"]["share_beyond_99"] > 0.5


def test_a_store_without_calibration_says_what_to_do(roll, tmp_path, monkeypatch):
    folder, _, _ = roll
    monkeypatch.setattr("pipeline.stages.space.ALONG_A_GRAPH", (("validate", "census"), ()))
    with pytest.raises(StoreError, match="did not have census; run the fit again"):
        extended(folder / "run", folder / "training.npy", tmp_path / "out")


def squared_between(training, new, distances, neighbors):
    """Squared distances of new points over the graph of the training points, or directly where they are near."""
    among = dijkstra(neighbor_graph(*neighbors_within(training, 8)))
    ways = distances[:, :, None, None] + among[neighbors[:, :, None, None], neighbors] + distances
    between = with_direct_ways(ways.min(axis=(1, 3)), new, distances[:, -1])
    np.fill_diagonal(between, 0.0)
    return between**2


@pytest.mark.parametrize("method", ["isomap", "kernel-isomap"])
def test_blocks_of_rows_are_reconstructed_together(method, tmp_path):
    points = swiss_roll(1240, seed=0).points
    training, new = points[:1200], points[1200:]
    fitted(saved(tmp_path, "training.npy", training), tmp_path / "run", method=method, new_edges="own")
    new[5, 1] = np.nan
    given = {"joint": 16, "missing": "drop"}
    extended(tmp_path / "run", saved(tmp_path, "new.npy", new), tmp_path / "out", **given)
    out, model = open_run(tmp_path / "out"), open_run(tmp_path / "run").model
    joint, unit = out.embedding("joint"), open_run(tmp_path / "run").unit
    assert np.isnan(joint[5]).all()
    assert not out.embedding("certified")[5]
    isomap = LandmarkIsomap(8, 2, n_landmarks=70, random_state=0).fit(training)
    order = [list(isomap.landmark_indices_).index(row) for row in open_run(tmp_path / "run").landmark_rows]
    for first in (0, 16, 32):
        block = [row for row in range(first, min(first + 16, 40)) if row != 5]
        distances, neighbors = nearest_neighbors(training, new[block], 8)
        rows = rows_through_neighbors(distances, neighbors, isomap._space.to_landmarks[:, order] * unit)
        between = squared_between(training, new[block], distances, neighbors)
        answer = joint_restricted_reconstruction(model, (rows / unit) ** 2, between / unit**2)
        expected = answer.coordinates * unit
        np.testing.assert_allclose(joint[block], expected, atol=2e-5 * np.abs(expected).max())
        np.testing.assert_array_equal(out.embedding("certified")[block], answer.certified)


@pytest.mark.parametrize("roll", [3], ids=["trees"], indirect=True)  # the others take as long to say the same
def test_upper_bounds_between_rows_are_flagged_and_blocks_do_not_depend_on_partitions(roll, tmp_path):
    folder, _, new = roll
    source = saved(tmp_path, "new.npy", np.concatenate([new] * 4)[:4500])
    for mib in (1, 64):
        given = {"joint": 30, "joint_distances": "bound", "partition_mib": mib}
        extended(folder / "run", source, tmp_path / f"out{mib}", **given)
    first, second = (open_run(tmp_path / f"out{mib}") for mib in (1, 64))
    assert first.embedding("joint").tobytes() == second.embedding("joint").tobytes()
    assert first.stage_figures("joint")["upper_bounds"]
    assert np.isfinite(first.embedding("joint")).all()


def test_arcs_lead_from_one_answer_to_the_other(roll, tmp_path):
    folder, _, new = roll
    source = saved(tmp_path, "new.npy", new)
    extended(folder / "run", source, tmp_path / "out", arc=7, arc_rows=(3, 1400))
    out = open_run(tmp_path / "out")
    rows, arcs = out.arcs()
    np.testing.assert_array_equal(rows, [3, 1400])
    assert arcs.shape == (2, 7, 2)
    np.testing.assert_array_equal(arcs[:, 0], out.embedding("projection")[rows])
    np.testing.assert_array_equal(arcs[:, -1], out.embedding("restricted")[rows])
    with pytest.raises(InvalidInputError, match=r"arc_rows=1500 is out of range; .* has rows 0 to 1499"):
        extended(folder / "run", source, tmp_path / "out", arc=7, arc_rows=(1500,))
    with pytest.raises(InvalidInputError, match="arc and arc_rows go together"):
        extended(folder / "run", source, tmp_path / "out", arc=7)
    extended(folder / "run", source, tmp_path / "plain")
    with pytest.raises(InvalidInputError, match="has no arcs; extend with arc and arc_rows"):
        open_run(tmp_path / "plain").arcs()


def test_each_batch_of_a_folder_is_done_once(roll, tmp_path):
    folder, _, new = roll
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    for name, rows in (("b.npy", new[:40]), ("a.npy", new[40:90]), ("_c.npy", new[:10]), ("d.npy.tmp", new[:10])):
        with (incoming / name).open("wb") as file:
            np.save(file, rows)
    (incoming / "notes.txt").write_text("no data")
    given = {"store": str(folder / "run"), "source": str(incoming), "output": str(tmp_path / "out"), "incoming": True}
    settings = job_settings(ExtendSettings, given)
    done = []
    with pytest.raises(InvalidInputError, match=r"notes\.txt holds no rows of data"):
        done.extend(output for output, _ in extend_batches(settings))
    assert [output.rpartition("/")[2] for output in done] == ["a.npy.zarr", "b.npy.zarr"]
    (incoming / "notes.txt").unlink()
    (incoming / "_c.npy").rename(incoming / "c.npy")
    assert [output.rpartition("/")[2] for output, _ in extend_batches(settings)] == ["c.npy.zarr"]
    assert list(extend_batches(settings)) == []
    np.save(incoming / "a.npy", new[:7])
    with pytest.raises(InvalidInputError, match=r"a\.npy has changed since it was extended to; give it another name"):
        list(extend_batches(settings))
    assert open_run(tmp_path / "out" / "a.npy.zarr").n_rows == 50


def test_points_lifted_off_a_roll_are_told_by_residual_and_gap(tmp_path):
    """By 5 times the median edge, 8,000 points fitted, 500 landmarks, balanced weight. With 8 neighbors that is less
    than half way to the next winding; with 10 it is half way, where points belong to neither."""
    points = swiss_roll(9000, seed=0).points
    training, clean = points[:8000], points[8000:]
    edges = neighbors_within(training, 8)[0]
    lifted = clean + 5 * np.median(edges) * normals(clean)
    given = {"n_landmarks": 500, "diagonal_weight": "balanced"}
    fitted(saved(tmp_path, "training.npy", training), tmp_path / "run", **given)
    outs = []
    for name, rows in (("clean", clean), ("lifted", lifted)):
        extended(tmp_path / "run", saved(tmp_path, f"{name}.npy", rows), tmp_path / name)
        outs.append(open_run(tmp_path / name))
    beyond = [float((out.embedding("residual_rank") > 0.99).mean()) for out in outs]
    gaps = [float(np.median(out.embedding("gap"))) for out in outs]
    assert beyond[0] < 0.03
    assert beyond[1] >= 0.85, beyond
    assert gaps[1] >= 10 * gaps[0], gaps
    assert [out.drift["drifts"] for out in outs] == [False, True]


def test_a_refit_that_publishes_meanwhile_does_not_touch_an_extension_under_way(tmp_path):
    points = swiss_roll(3600, seed=0).points
    fitted(saved(tmp_path, "training.npy", points[:3000]), tmp_path / "run")
    source = saved(tmp_path, "new.npy", points[3000:])
    extended(tmp_path / "run", source, tmp_path / "before")
    stages = []

    class Refitting(Watch):
        def finished(self, outcome):
            stages.append(outcome.ledger.stage)
            if outcome.ledger.stage == "search":
                refit(job_settings(RefitSettings, {"store": str(tmp_path / "run"), "new": (str(source),)}))

    extended(tmp_path / "run", source, tmp_path / "during", Refitting())
    assert stages[-2:] == ["place", "publish"]
    assert open_run(tmp_path / "run").version == "2"
    assert results(tmp_path / "during") == results(tmp_path / "before")
    extended(tmp_path / "run", source, tmp_path / "after")
    extended(tmp_path / "run", source, tmp_path / "old", version="1")
    assert results(tmp_path / "old") == results(tmp_path / "before")
    assert (open_run(tmp_path / "after").embedding("nearest") == 0).all()
    moved = open_run(tmp_path / "after").embedding() - open_run(tmp_path / "before").embedding()
    assert np.linalg.norm(moved, axis=1).mean() < 0.05 * open_run(tmp_path / "before").embedding().std()
