"""Runs on disk by metrics between directions: LandmarkIsomap's numbers, in any chunks, for new rows and with models."""

from types import SimpleNamespace

import numpy as np
import pytest
from small import extended, fitted

from pipeline import LandmarkIsomap, open_run
from pipeline.errors import ComponentWarning, InvalidInputError
from pipeline.jobs.invert import invert
from pipeline.jobs.portable import export_model
from pipeline.jobs.refit import refit
from pipeline.jobs.study import study
from pipeline.methods import DIRECTIONAL
from pipeline.settings import InvertSettings, RefitSettings, StudySettings, fit_settings, job_settings
from pipeline.sources import open_source
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.validate import PreparedSource, Validate

N_FIT, N_NEW = 4500, 300
every_metric = pytest.mark.parametrize("metric", DIRECTIONAL)


def sheet(n_rows, n_columns=64, seed=0):
    """Rows of any length whose directions are a curved sheet in some of many dimensions, and a little noise."""
    rng = np.random.default_rng(seed)
    along, across = rng.uniform(-1.3, 1.3, n_rows), rng.uniform(-0.5, 0.5, n_rows)
    bent = np.column_stack([np.cos(2 * along), np.sin(2 * along), np.cos(along), across, 0.5 * across**2])
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(n_columns, 5)))[0]
    rows = bent @ turned.T + 0.002 * rng.normal(size=(n_rows, n_columns))
    return rows * rng.uniform(0.1, 10, size=(n_rows, 1))


def saved(path, rows):
    np.save(path, rows)
    return path


def difference(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.fixture(scope="module")
def data():
    return sheet(N_FIT + N_NEW)


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A run by each metric, made when it is first asked for, and its new rows placed."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    training, new = saved(folder / "x.npy", data[:N_FIT]), saved(folder / "new.npy", data[N_FIT:])

    def run_of(metric):
        if metric not in made:
            store, output = folder / metric, folder / f"{metric} new"
            fitted(training, store, metric=metric)
            extended(store, new, output)
            made[metric] = store, output
        return made[metric]

    run_of.training, run_of.new = training, new
    return run_of


@every_metric
def test_a_run_and_its_extension_are_the_estimators(data, runs, metric):
    store, output = runs(metric)
    isomap = LandmarkIsomap(8, 2, n_landmarks=70, metric=metric, random_state=0).fit(data[:N_FIT])
    assert difference(open_run(store).embedding("projection"), isomap.embedding_) <= 1e-6
    assert difference(open_run(output).embedding("projection"), isomap.transform(data[N_FIT:])) <= 1e-6


def test_nearest_says_how_far_by_the_metric(data, runs):
    rows = data[:N_FIT] / np.linalg.norm(data[:N_FIT], axis=1, keepdims=True)
    for number in (0, 1234, N_FIT - 1):
        cosines = np.delete(1 - rows @ rows[number], number)
        for metric, least in (("cosine", cosines.min()), ("angular", np.arccos(1 - cosines.min()))):
            assert open_run(runs(metric)[0]).embedding("nearest")[number] == pytest.approx(least, rel=1e-5)


def test_rows_have_the_same_bytes_in_any_chunks_and_as_new_ones(data, runs, tmp_path):
    store, _ = runs("angular")
    fitted(runs.training, tmp_path / "whole", metric="angular", partition_mib=64)
    arrays = open_run(store).arrays
    for name in arrays:
        assert open_run(tmp_path / "whole").embedding(name).tobytes() == open_run(store).embedding(name).tobytes()
    # Multiples are the same rows, also by powers that leave the scale of the fit.
    saved(tmp_path / "again.npy", data[4000:4100] * 2.0**200)
    extended(store, tmp_path / "again.npy", tmp_path / "again")
    for name in ("projection", "residual"):
        again = open_run(tmp_path / "again").embedding(name)
        assert again.tobytes() == open_run(store).embedding(name)[4000:4100].tobytes(), name


@pytest.mark.parametrize("few", [True, False])
def test_a_radius_is_in_units_of_the_metric(tmp_path, few):
    rows = sheet(1500, n_columns=20, seed=3)
    rows, radius = (rows[:, :3], 0.2) if few else (rows, 0.3)
    settings = {"n_landmarks": 70, "radius": radius, "metric": "angular"}
    fitted(saved(tmp_path / "x.npy", rows[:1400]), tmp_path / "run", component_policy="bridge", **settings)
    extended(tmp_path / "run", saved(tmp_path / "new.npy", rows[1400:]), tmp_path / "new")
    isomap = LandmarkIsomap(n_components=2, random_state=0, **settings).fit(rows[:1400])
    assert difference(open_run(tmp_path / "run").embedding("projection"), isomap.embedding_) <= 1e-6
    assert difference(open_run(tmp_path / "new").embedding("projection"), isomap.transform(rows[1400:])) <= 1e-6
    units = rows[:1400] / np.linalg.norm(rows[:1400], axis=1, keepdims=True)
    within = np.arccos(np.clip(units @ units.T, -1, 1)) <= radius
    assert open_run(tmp_path / "run").stage_figures("graph")["n_edges"] == within.sum() - 1400


def test_kernel_isomap_and_bridges_on_disk(tmp_path):
    rng = np.random.default_rng(5)
    blobs = np.concatenate([rng.normal(center, 0.05, size=(400, 6)) for center in 2 * np.eye(6)[:3]])
    settings = {"method": "kernel-isomap", "metric": "correlation", "n_landmarks": 60, "component_policy": "bridge"}
    with pytest.warns(ComponentWarning, match=r"rows: 400, 400, 400\), joined by 2 links, .*n_neighbors=") as on_disk:
        fitted(saved(tmp_path / "x.npy", blobs), tmp_path / "run", **settings)
    with pytest.warns(ComponentWarning, match="3 components") as in_memory:
        isomap = LandmarkIsomap(8, 2, random_state=0, **settings).fit(blobs)
    assert str(on_disk[0].message) == str(in_memory[0].message)
    assert difference(open_run(tmp_path / "run").embedding("projection"), isomap.embedding_) <= 1e-5


def test_multiples_collapse_and_all_rows_get_the_same_place(data, tmp_path):
    rows = np.concatenate([data[:1500], 3 * data[:50], 0.1 * data[:50], 7 * data[:50]])
    fitted(saved(tmp_path / "x.npy", rows), tmp_path / "run", metric="cosine")
    opened = open_run(tmp_path / "run")
    placed = opened.embedding("projection")
    for first in (1500, 1550, 1600):
        np.testing.assert_array_equal(placed[first : first + 50], placed[:50])
    assert sum(len(part) for part in opened.parts("order", "first")) == 1500
    assert (opened.embedding("nearest")[:50] == 0).all()


@pytest.mark.parametrize(("metric", "row", "what"), [("cosine", 0.0, "zeros"), ("correlation", -2.5, "equal entries")])
def test_rows_without_a_direction_are_refused_before_anything_else(data, tmp_path, runs, metric, row, what):
    rows = data[:N_FIT].copy()
    rows[[17, 4400]] = row
    message = rf"x\.npy has 2 rows of {what}, first in rows 17, 4400; '{metric}' is not defined for them"
    with pytest.raises(InvalidInputError, match=message):
        fitted(saved(tmp_path / "x.npy", rows), tmp_path / "run", metric=metric)
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name in ("cells", "order", "graph")] == []
    with pytest.raises(InvalidInputError, match=message):
        extended(runs(metric)[0], tmp_path / "x.npy", tmp_path / "new")


def test_a_scan_for_another_metric_does_not_stand_for_one_that_looks_for_zeros(tmp_path):
    rows = sheet(600)
    rows[17] = 0.0
    source = saved(tmp_path / "x.npy", rows)
    fitted(source, tmp_path / "run")
    with pytest.raises(InvalidInputError, match=r"x\.npy has 1 rows of zeros, first in row 17"):
        fitted(source, tmp_path / "run", metric="angular")


def test_missing_rows_are_dropped_as_ever(data, tmp_path):
    rows = data[:1500].copy()
    rows[[3, 700]] = np.nan
    fitted(saved(tmp_path / "x.npy", rows), tmp_path / "run", metric="angular", missing="drop")
    placed = open_run(tmp_path / "run").embedding("projection")
    assert np.flatnonzero(np.isnan(placed).any(axis=1)).tolist() == [3, 700]


@pytest.mark.parametrize("settings", [{"standardize": True}, {"pca": 6}])
def test_angles_are_between_rows_as_they_are_prepared(data, tmp_path, settings):
    rows = data[:1500]
    fitted(saved(tmp_path / "x.npy", rows), tmp_path / "run", metric="angular", **settings)
    prepared = rows - rows.mean(axis=0)
    if "pca" in settings:
        prepared = prepared @ np.linalg.eigh(prepared.T @ prepared)[1][:, :-7:-1]
    else:
        prepared = prepared / rows.std(axis=0)
    fitted(saved(tmp_path / "prepared.npy", prepared), tmp_path / "other", metric="angular")
    one, other = (open_run(tmp_path / name).embedding("projection") for name in ("run", "other"))
    signs = np.sign((one * other).sum(axis=0))
    assert difference(one * signs, other) <= 1e-6


def test_a_standardized_row_in_the_middle_is_refused(tmp_path):
    rows = np.repeat(np.arange(-300.0, 301.0)[:, None], 3, axis=1) ** [1, 3, 5]
    with pytest.raises(InvalidInputError, match=r"x\.npy has 1 rows of zeros, first in row 300; 'cosine' is not"):
        fitted(saved(tmp_path / "x.npy", rows), tmp_path / "run", metric="cosine", standardize=True)


def test_single_precision_stores_hold_new_rows_of_double_precision(data, tmp_path):
    rows = data[:1500].astype(np.float32)
    fitted(saved(tmp_path / "x.npy", rows), tmp_path / "run", metric="angular")
    extended(tmp_path / "run", saved(tmp_path / "new.npy", rows[:80].astype(np.float64) * 3), tmp_path / "new")
    np.testing.assert_array_equal(
        open_run(tmp_path / "new").embedding("projection"), open_run(tmp_path / "run").embedding("projection")[:80]
    )


def test_a_model_of_all_points_extends_as_the_run_and_a_small_one_nearly(runs, tmp_path):
    store, output = runs("angular")
    expected = open_run(output).embedding("projection")
    spread = np.sqrt(((expected - expected.mean(axis=0)) ** 2).sum(axis=1).mean())
    for anchors, largest in ((N_FIT, 1e-12), (1500, 0.05)):
        model = tmp_path / f"{anchors}"
        export_model(str(store), str(model), anchors)
        extended(model, runs.new, tmp_path / f"{anchors} new")
        found = open_run(tmp_path / f"{anchors} new").embedding("projection")
        assert np.sqrt(((found - expected) ** 2).sum(axis=1).mean()) / spread <= largest


def test_rows_placed_together_are_apart_by_the_metric(runs, tmp_path, data):
    """Two copies of a row far from all others: next to each other, as their angle of 0 has it."""
    far = np.random.default_rng(9).normal(size=(1, data.shape[1]))
    saved(tmp_path / "new.npy", np.concatenate([far, 2.5 * far, data[N_FIT : N_FIT + 6]]))
    extended(runs("angular")[0], tmp_path / "new.npy", tmp_path / "new", joint=8)
    together = open_run(tmp_path / "new").embedding("joint")
    np.testing.assert_allclose(together[0], together[1], atol=1e-6)


def test_a_refit_goes_on_by_the_metric(data, tmp_path):
    training, new = saved(tmp_path / "x.npy", data[:1500]), saved(tmp_path / "more.npy", data[1500:1700])
    fitted(training, tmp_path / "run", metric="angular")
    refit(job_settings(RefitSettings, {"store": str(tmp_path / "run"), "new": [str(new)]}))
    fitted(saved(tmp_path / "all.npy", data[:1700]), tmp_path / "afresh", metric="angular")
    refitted, afresh = (open_run(tmp_path / name).embedding("projection") for name in ("run", "afresh"))
    centered = refitted - refitted.mean(axis=0), afresh - afresh.mean(axis=0)
    turn, scales, other = np.linalg.svd(centered[0].T @ centered[1])
    assert difference(centered[0] @ turn @ other, centered[1]) <= 1e-6
    assert scales.min() > 0


def test_a_study_measures_by_the_metric(data):
    told = {"source": "memory", "landmarks": "40,150", "repeats": 2, "selections": "random", "neighbors": "10"}
    told |= {"metric": "angular"}
    found = study(job_settings(StudySettings, told), data=data[:1200])
    few, many = (np.mean(trial.errors) for trial in found.trials)
    assert many < few < 0.05
    assert found.intrinsic_dimension is not None
    zeros = data[:1200].copy()
    zeros[:] *= np.arange(1200)[:, None] % 2
    with pytest.raises(InvalidInputError, match="rows of zeros"):
        study(job_settings(StudySettings, told), data=zeros)


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_the_intrinsic_dimension_does_not_depend_on_the_metric(runs, metric):
    """Squared lengths would halve the estimate."""
    found, expected = (open_run(runs(name)[0]).quality["intrinsic_dimension"] for name in (metric, "angular"))
    assert found["two_nearest"]["value"] == pytest.approx(expected["two_nearest"]["value"], rel=0.01)


def test_invert_goes_back_to_the_rows_as_they_were(data, runs, tmp_path):
    saved(tmp_path / "places.npy", open_run(runs("angular")[0]).embedding("projection")[:30])
    told = {"coordinates": str(tmp_path / "places.npy"), "output": str(tmp_path / "back")}
    invert(job_settings(InvertSettings, {"store": str(runs("angular")[0]), **told}))
    np.testing.assert_allclose(open_run(tmp_path / "back").embedding("values"), data[:30], atol=1e-4)


@pytest.mark.parametrize("metric", ["cityblock", "chebyshev", "package.module:function"])
def test_other_metrics_are_refused_along_a_graph(metric):
    with pytest.raises(InvalidInputError, match="'euclidean', 'cosine', 'angular', 'correlation', or method='mds'"):
        fit_settings({"source": "x.npy", "store": "run", "metric": metric})


def test_a_graph_of_the_users_leaves_nothing_to_measure():
    with pytest.raises(InvalidInputError, match="metric='cosine' has nothing to measure: input='graph' is given"):
        fit_settings({"source": "x.npz", "store": "run", "input": "graph", "metric": "cosine"})


def test_euclidean_scans_keep_their_names():
    scan = Validate(open_source(np.eye(3)), RowPartitions(3, 1))
    assert set(scan.settings()) == {"missing", "rows_each"}
    assert PreparedSource(scan.source, SimpleNamespace(figures={"content": "x"})).identity == ["x", "standardize=False"]
