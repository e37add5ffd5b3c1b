"""Methods that measure straight from the landmarks, on disk: fitted, extended, whatever the chunks and the workers."""

from dataclasses import fields

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist
from small import Counting, extended, fitted, roll_file

from pipeline import LandmarkIsomap, open_run
from pipeline.errors import InvalidInputError
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit
from pipeline.jobs.plan import method_choice
from pipeline.jobs.portable import export_model
from pipeline.jobs.refit import refit
from pipeline.methods import METHODS, SELECTIONS
from pipeline.numerics.models.stress import StressPlacer
from pipeline.settings import ClusterSettings, FitSettings, RefitSettings, fit_settings, job_settings
from pipeline.stages.landmarks import described_choice

DIRECT = [name for name, method in METHODS.items() if not method.geodesic]
LENGTHS = [name for name in DIRECT if METHODS[name].coordinates_are_lengths and name != "kernel-mds"]
SETTINGS = {"n_landmarks": 40, "n_components": 2}


def published(store):
    opened = open_run(store)
    return {name: opened.embedding(name).tobytes() for name in opened.arrays}


def arrays(store, names):
    opened = open_run(store)
    return {name: opened.embedding(name) for name in names}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return roll_file(tmp_path_factory.mktemp("roll"), n_points=4200)


@pytest.fixture(scope="module")
def runs(source, tmp_path_factory):
    """A run of each method in two partitions, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def run_of(method):
        if method not in made:
            fitted(source, folder / method, method=method, **SETTINGS)
            made[method] = folder / method
        return made[method]

    return run_of


@pytest.mark.parametrize("method", DIRECT)
def test_a_rows_bytes_depend_neither_on_the_chunks_nor_on_being_new(source, runs, tmp_path, method):
    store = runs(method)
    fitted(source, tmp_path / "whole", method=method, **SETTINGS, partition_mib=64)
    assert published(tmp_path / "whole") == published(store)
    rows = np.load(source)[4000:4150]
    np.save(tmp_path / "rows.npy", rows)
    extended(store, tmp_path / "rows.npy", tmp_path / "extension")
    fit_columns = arrays(store, open_run(store).arrays)
    for name, column in fit_columns.items():
        assert open_run(tmp_path / "extension").embedding(name).tobytes() == column[4000:4150].tobytes(), name


@pytest.mark.parametrize("method", DIRECT)
def test_landmarks_have_the_coordinates_of_the_model(runs, method):
    opened = open_run(runs(method))
    unit = 2.0 ** opened.stage_figures("embed")["coordinate_exponent"]
    expected = opened.model.coordinates * unit
    found = opened.embedding()[opened.landmark_rows]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.cluster
def test_workers_give_the_bytes_of_the_serial_runs(source, runs, tmp_path):
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        for method in DIRECT:
            given = {"source": str(source), "store": str(tmp_path / method), "method": method, "partition_mib": 1}
            fit(fit_settings({**SETTINGS, "n_neighbors": 8, **given}), execute=execute)
    for method in DIRECT:
        assert published(tmp_path / method) == published(runs(method)), method


@pytest.mark.parametrize("method", DIRECT)
def test_coordinates_scale_with_the_data_where_they_are_lengths(tmp_path, method):
    points = np.random.default_rng(0).normal(size=(300, 3))
    found = []
    for exponent in (0, 100):
        np.save(tmp_path / "points.npy", np.ldexp(points, exponent))
        store = tmp_path / f"run{exponent}"
        fitted(tmp_path / "points.npy", store, method=method, **SETTINGS, kernel="rbf")
        found.append(open_run(store).embedding())
    factor = 100 if method in LENGTHS else 0
    np.testing.assert_array_equal(found[1], np.ldexp(found[0], factor))


@pytest.mark.parametrize("method", ["metric-mds", "nonmetric-mds", "sammon"])
def test_more_starts_lead_where_they_lead_in_memory(tmp_path, method):
    points = np.random.default_rng(0).normal(size=(60, 6))
    np.save(tmp_path / "points.npy", points)
    stresses = []
    for n_init in (1, 4):
        store = tmp_path / f"run{n_init}"
        fitted(tmp_path / "points.npy", store, method=method, n_landmarks=40, n_init=n_init, seed=5)
        model = open_run(store).model
        told = {"n_landmarks": 40, "method": method, "n_init": n_init, "random_state": 5}
        in_memory = LandmarkIsomap(**told).fit(points).model_
        np.testing.assert_array_equal(model.coordinates, in_memory.coordinates)
        stresses.append(model.stress)
    assert stresses[1] <= stresses[0]


def test_the_model_of_one_start_does_not_depend_on_the_seed():
    settings = [FitSettings(source="x", store="y", method="sammon", n_init=n, seed=s) for n in (1, 2) for s in (0, 7)]
    told = [described_choice(method_choice(one)) for one in settings]
    assert told[0] == told[1] == {"method": "sammon", "n_components": 2}
    assert told[2] == {**told[0], "n_init": 2}
    assert told[3] == {**told[2], "seed": 7}


def test_models_of_the_order_in_the_units_of_the_data_are_still_extended(runs, source, tmp_path):
    """As earlier states of this version left them."""
    placer = open_run(runs("nonmetric-mds")).model
    earlier = StressPlacer(**{field.name: getattr(placer, field.name) for field in fields(StressPlacer)})
    assert (earlier.residual_degree, placer.residual_degree) == (1, 0)
    rows = cdist(np.load(source)[:50], np.load(source)[open_run(runs("nonmetric-mds")).landmark_rows])
    rows = np.ldexp(rows, -open_run(runs("nonmetric-mds")).stage_figures("embed")["exponent"])
    np.testing.assert_array_equal(earlier.place(rows).coordinates, placer.place(rows).coordinates)


def test_a_gamma_is_in_the_units_of_the_data(tmp_path):
    points = 1000 * np.random.default_rng(0).normal(size=(300, 3))
    np.save(tmp_path / "points.npy", points)
    for method in ("kernel-mds", "laplacian"):
        fitted(tmp_path / "points.npy", tmp_path / method, method=method, **SETTINGS, gamma=1e-6)
    gram = np.exp(-1e-6 * cdist(points, points, "sqeuclidean"))
    opened = open_run(tmp_path / "kernel-mds")
    marks = opened.landmark_rows
    squared = 2 - 2 * gram[np.ix_(marks, marks)]
    expected = np.linalg.eigvalsh(-0.5 * (squared - squared.mean(0) - squared.mean(1)[:, None] + squared.mean()))[::-1]
    np.testing.assert_allclose(opened.model.eigenvalues, expected[:2], rtol=1e-6)
    assert open_run(tmp_path / "laplacian").model.gamma / 1e-6 == 2.0 ** (
        2 * open_run(tmp_path / "laplacian").stage_figures("embed")["exponent"]
    )


def test_rows_with_missing_entries_take_no_part(tmp_path):
    points = np.random.default_rng(0).normal(size=(300, 3))
    points[[7, 100]] = np.nan
    np.save(tmp_path / "points.npy", points)
    fitted(tmp_path / "points.npy", tmp_path / "run", method="spectral", **SETTINGS, missing="drop")
    opened = open_run(tmp_path / "run")
    for name, value in (("component", -1), ("labels", -1)):
        np.testing.assert_array_equal(np.flatnonzero(opened.embedding(name) == value), [7, 100])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(opened.embedding()).any(axis=1)), [7, 100])


def test_only_what_depends_on_a_setting_is_computed_again(source, runs, tmp_path):
    fitted(source, tmp_path / "run", method="mds", **SETTINGS)
    again = fitted(source, tmp_path / "run", method="mds", **SETTINGS)
    assert again.stages == []
    other = fitted(source, tmp_path / "run", method="mds", **{**SETTINGS, "n_components": 3})
    assert other.stages == ["model", "embed", "calibrate", "evaluate", "publish"]
    stress = fitted(source, tmp_path / "run", method="lle", **SETTINGS)
    assert "validate" not in stress.stages
    assert "landmarks" not in stress.stages


@pytest.mark.parametrize("selection", SELECTIONS)
def test_landmarks_are_different_rows_however_chosen_and_however_rows_repeat(tmp_path, selection):
    points = np.random.default_rng(0).normal(size=(60, 3))
    np.save(tmp_path / "points.npy", np.repeat(points, 50, axis=0))
    fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", **SETTINGS, landmark_selection=selection)
    rows = open_run(tmp_path / "run").landmark_rows
    assert len(np.unique(rows // 50)) == len(rows) == 40


def test_too_few_different_rows_for_the_landmarks_are_counted(tmp_path):
    np.save(tmp_path / "points.npy", np.repeat(np.random.default_rng(0).normal(size=(30, 3)), 50, axis=0))
    with pytest.raises(InvalidInputError, match=r"n_landmarks=40 is out of range; .* has 30 distinct rows"):
        fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", **SETTINGS)


def test_by_default_there_are_no_more_landmarks_than_different_rows(tmp_path):
    points = np.repeat(np.random.default_rng(0).normal(size=(60, 3)), 3, axis=0)
    np.save(tmp_path / "points.npy", points)
    fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", n_components=2, n_landmarks="auto")
    found = open_run(tmp_path / "run")
    assert len(np.unique(found.landmark_rows // 3)) == len(found.landmark_rows) == 60
    np.save(tmp_path / "few.npy", np.repeat(points[:9:3], 20, axis=0))
    with pytest.raises(InvalidInputError, match=r"n_components=3 is out of range; .* 3 distinct rows: use at most 2"):
        fitted(tmp_path / "few.npy", tmp_path / "few", method="mds", n_components=3, n_landmarks="auto")


def test_rows_left_out_for_missing_entries_leave_those_to_calibrate_by(tmp_path):
    """Every usable row is a landmark then."""
    points = np.random.default_rng(0).normal(size=(100, 4))
    points[7, 2] = np.nan
    np.save(tmp_path / "points.npy", points)
    fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", n_landmarks="auto", missing="drop")
    found = open_run(tmp_path / "run").embedding("projection")
    assert np.flatnonzero(np.isnan(found).any(axis=1)).tolist() == [7]


@pytest.mark.parametrize(("metric", "row"), [("cosine", np.zeros(3)), ("correlation", np.full(3, 2.5))])
def test_a_row_without_direction_is_named_by_its_number_in_the_source(tmp_path, metric, row):
    points = np.random.default_rng(0).normal(size=(4200, 3))
    points[10, 0], points[4150] = np.nan, row
    np.save(tmp_path / "points.npy", points)
    with pytest.raises(InvalidInputError, match=rf"points.npy has 1 rows of .*, first in row 4150; '{metric}'"):
        fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", metric=metric, missing="drop", **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "mds", "extension": "stress"}, "use one of 'projection', 'restricted', 'kernel-mapping', 'rbf'"),
        ({"method": "lle", "extension": "projection"}, "use one of 'weights', 'kernel-mapping', 'rbf'"),
        ({"method": "isomap", "metric": "chebyshev"}, "metric='chebyshev' does not go with method='isomap'"),
        ({"method": "mds", "metric": "hamming"}, "metric='hamming' is not known; use one of 'euclidean'"),
        ({"method": "kernel-mds", "kernel": "sigmoid"}, "kernel='sigmoid' is not known"),
        ({"method": "mds", "metric": "a:b"}, "input='objects'"),
        ({"method": "mds", "input": "objects"}, "metric='euclidean' is not one; name it as package.module:function"),
        ({"method": "isomap", "input": "dissimilarities"}, "input='dissimilarities' does not go with method='isomap'"),
        ({"method": "mds", "n_clusters": 3}, "n_clusters=3 means nothing with method='mds'"),
        ({"method": "mds", "radius": 3.0}, "radius=3.0 means nothing"),
        ({"method": "mds", "gamma": 3.0}, "gamma=3.0 means nothing"),
        ({"method": "mds", "kernel": "linear"}, "kernel='linear' means nothing"),
        ({"method": "kernel-mds", "degree": 5}, "degree=5 means nothing"),
        ({"method": "kernel-mds", "kernel": "cosine", "gamma": 3.0}, "gamma=3.0 means nothing"),
        ({"method": "isomap", "regularization": 0.5}, "regularization=0.5 means nothing"),
        ({"method": "laplacian", "input": "similarities", "gamma": 5.0}, "gamma=5.0 means nothing"),
        ({"method": "laplacian", "input": "similarities", "own_key": "own.npy"}, "own_key='own.npy' means nothing"),
        ({"method": "laplacian", "gamma": -1.0}, "gamma=-1.0: .*greater than or equal to 1e-300, or .*'auto'"),
        ({"method": "laplacian", "gamma": float("nan")}, "gamma=nan: .*finite"),
        ({"method": "isomap", "radius": float("inf")}, "radius=inf: .*finite"),
        ({"method": "lle", "stress_neighbors": 3}, "stress_neighbors=3 means nothing"),
        ({"method": "mds", "n_init": 4}, "n_init=4 means nothing with method='mds'"),
        ({"method": "sammon", "n_init": 0}, "n_init=0: .*greater than or equal to 1"),
        ({"method": "mds", "input": "similarities", "standardize": True}, "standardize=True means nothing"),
        ({"method": "mds", "input": "similarities", "landmark_selection": "trace"}, "use 'random'"),
        (
            {"method": "lle", "n_landmarks": 5},
            "n_neighbors=8 is out of range; use one from 1 to 4 .or more landmarks",
        ),
        ({"method": "sammonn"}, "'sammon'"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(tmp_path, settings, message):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(60, 3)))
    with pytest.raises(InvalidInputError, match=message):
        fitted(tmp_path / "points.npy", tmp_path / "run", **{"n_landmarks": 20, **settings})


def test_the_error_of_the_kernel_by_landmarks_falls_with_more_of_them(source, tmp_path):
    errors = []
    for m in (20, 80):
        fitted(source, tmp_path / str(m), method="laplacian", n_landmarks=m, gamma=0.01)
        errors.append(open_run(tmp_path / str(m)).quality["nystrom_error"])
    assert 0 < errors[1] < 0.5 * errors[0] < 0.5


def test_an_array_in_memory_is_vectors(tmp_path):
    given = {"source": "memory", "store": str(tmp_path / "run"), "method": "mds", "input": "dissimilarities"}
    with pytest.raises(InvalidInputError, match="data is an array, and input='dissimilarities' is read from a file"):
        fit(fit_settings(given), data=np.eye(5))


def test_another_extension_of_the_same_landmarks_places_the_others_nearby(source, runs, tmp_path):
    reference = open_run(runs("mds")).embedding()
    for extension in ("kernel-mapping", "rbf"):
        fitted(source, tmp_path / extension, method="mds", extension=extension, **SETTINGS)
        assert open_run(tmp_path / extension).arrays == ("projection", "residual", "nearest", "component")
        assert procrustes(reference, open_run(tmp_path / extension).embedding())[2] < 0.2**2


def test_jointly_and_along_arcs_only_where_there_are_two_answers(source, runs, tmp_path):
    np.save(tmp_path / "rows.npy", np.load(source)[:20])
    extended(runs("mds"), tmp_path / "rows.npy", tmp_path / "joint", joint=5, arc=4, arc_rows=(3,))
    opened = open_run(tmp_path / "joint")
    rows, arcs = opened.arcs()
    np.testing.assert_array_equal(rows, [3])
    np.testing.assert_allclose(arcs[0, [0, -1]], [opened.embedding()[3], opened.embedding("restricted")[3]], atol=1e-9)
    # Euclidean distances are met by the points' own places as well as can be.
    assert np.isfinite(opened.embedding("joint")).all()
    with pytest.raises(InvalidInputError, match="joint=5 does not go with the fitted run: method='lle'"):
        extended(runs("lle"), tmp_path / "rows.npy", tmp_path / "other", joint=5)


def test_a_batch_of_another_kind_drifts_and_one_of_the_same_does_not(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "points.npy", rng.normal(size=(2000, 4)) * [3, 2, 0.1, 0.1])
    np.save(tmp_path / "alike.npy", rng.normal(size=(500, 4)) * [3, 2, 0.1, 0.1])
    np.save(tmp_path / "lifted.npy", rng.normal(size=(500, 4)) * [3, 2, 0.1, 0.1] + [0, 0, 1, 0])
    fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", **SETTINGS)
    for name, drifts in (("alike", False), ("lifted", True)):
        assert extended(tmp_path / "run", tmp_path / f"{name}.npy", tmp_path / name).drift["drifts"] == drifts
    watch = Counting()
    extended(tmp_path / "run", tmp_path / "alike.npy", tmp_path / "alike", watch)
    assert watch.stages == []


@pytest.mark.parametrize("method", ["mds", "lle", "spectral"])
def test_a_model_places_rows_where_the_run_does(source, runs, tmp_path, method):
    export_model(str(runs(method)), str(tmp_path / "model"))
    np.save(tmp_path / "rows.npy", np.load(source)[:50] + 0.01)
    for store, name in ((runs(method), "by run"), (tmp_path / "model", "by model")):
        extended(store, tmp_path / "rows.npy", tmp_path / name)
    assert published(tmp_path / "by model") == published(tmp_path / "by run")
    with pytest.raises(InvalidInputError, match="anchors=99 means nothing here"):
        export_model(str(runs(method)), str(tmp_path / "other"), 99)


def test_a_refit_is_turned_onto_the_published_coordinates(tmp_path):
    rng = np.random.default_rng(0)
    for name, size in (("old", 500), ("new", 200)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(size, 4)) * [3, 2, 1, 0.1])
    fitted(tmp_path / "old.npy", tmp_path / "run", method="metric-mds", **SETTINGS)
    before = open_run(tmp_path / "run").embedding()
    refit(job_settings(RefitSettings, {"store": str(tmp_path / "run"), "new": [str(tmp_path / "new.npy")]}))
    after = open_run(tmp_path / "run")
    assert (after.version, after.n_rows) == ("2", 700)
    assert np.sqrt(((after.embedding()[:500] - before) ** 2).mean()) < 0.1 * before.std()
