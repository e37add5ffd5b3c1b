"""LandmarkIsomap beside a run on disk on the same data: every published column, of fitted and of new rows, for every
method and every kind of input; arcs, joint reconstruction and the inverse map."""

from types import SimpleNamespace

import edit_distance
import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph
from small import extended, fitted

from pipeline import LandmarkIsomap, open_run
from pipeline.jobs.invert import invert
from pipeline.methods import DISSIMILARITIES, METHODS, OBJECTS, RADIAL_FUNCTIONS, SIMILARITIES
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import InvertSettings, job_settings

N_FIT, SEED = 300, 3
SHARED = {"n_neighbors": 8, "n_landmarks": 60, "n_components": 2}
# Powers of a length that columns are, in which rounding counts.
DEGREES = {"residual": 2, "multiplier": 2}
GEODESIC = [name for name, method in METHODS.items() if method.geodesic]
DIRECT = [name for name in METHODS if name not in GEODESIC]


def taking(given):
    return [name for name, method in METHODS.items() if given in method.inputs]


@pytest.fixture(scope="module")
def points():
    """On a roll, new ones a little off it."""
    rows = swiss_roll(N_FIT + 40, seed=0).points
    return SimpleNamespace(fitted=rows[:N_FIT], new=rows[N_FIT:] + 0.05)


def assert_same(table, opened, rank_steps=0.0):
    """Every array that the run has, and no other, within 1e-6 of the embedding's size or its square; ranks, which jump,
    within so many of the rows that they are counted among."""
    assert set(table) == set(opened.arrays)
    size = np.nanmax(np.abs(opened.embedding("projection")))
    for name in opened.arrays:
        expected = opened.embedding(name)
        if name.endswith("_rank"):
            step = rank_steps / opened.calibration_rows if rank_steps else 0.0
            np.testing.assert_allclose(table[name], expected, rtol=0, atol=step + 1e-12, err_msg=name)
        elif expected.dtype.kind != "f":
            np.testing.assert_array_equal(table[name], expected, err_msg=name)
        else:
            scale = max(size ** DEGREES.get(name, 1), np.nanmax(np.abs(expected)))
            np.testing.assert_allclose(table[name], expected, rtol=0, atol=1e-6 * scale, err_msg=name)


class OpenedRun:
    """A run, and how many rows its ranks are counted among."""

    def __init__(self, folder, fit):
        self._run = open_run(folder)
        self.arrays, self.embedding = self._run.arrays, self._run.embedding
        self.calibration_rows = open_run(fit).stage_figures("calibrate")["n_rows"]


def saved(path, array):
    np.save(path, array)
    return path


def both(folder, source, new, settings, ours, X, new_X, of_fit=None, of_new=None, **options):
    """Compare the fit and the extension with the estimator's tables."""
    fitted(source, folder / "run", seed=SEED, **settings)
    extended(folder / "run", new, folder / "out", **options)
    ours.fit(X, **(of_fit or {}))
    steps = 1.0 if METHODS[ours.method].geodesic else 0.0
    assert_same(ours.table_, OpenedRun(folder / "run", folder / "run"), steps)
    assert_same(ours.place(new_X, **(of_new or {})), OpenedRun(folder / "out", folder / "run"), steps)
    np.testing.assert_array_equal(ours.place(new_X, **(of_new or {})).projection, wanted(ours, new_X, of_new))


def wanted(ours, new_X, of_new):
    """`transform` and the table say the same, where the projection is what is wanted."""
    return ours.transform(new_X, **(of_new or {}))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *((method, {}) for method in METHODS),
        *((method, {"extension": "rbf"}) for method in ("isomap", "mds", "lle")),
        ("isomap", {"radius": 5.0}),
        ("isomap", {"metric": "angular"}),
        ("kernel-isomap", {"metric": "cosine", "landmark_weights": "counts"}),
        ("mds", {"metric": "cityblock", "landmark_weights": "counts", "diagonal_weight": "balanced"}),
        ("kernel-mds", {"kernel": "polynomial", "gamma": 0.01, "degree": 2}),
        ("metric-mds", {"extension": "kernel-mapping"}),
        *((method, {"spread": True}) for method in ("isomap", "kernel-isomap", "kernel-mds")),
        ("mds", {"spread": True, "landmark_weights": "counts"}),
    ],
    ids=str,
)
def test_vectors(points, tmp_path, method, settings):
    source, new = saved(tmp_path / "x.npy", points.fitted), saved(tmp_path / "new.npy", points.new)
    told = {**SHARED, **settings, "method": method}
    on_disk = {**told, "recall": 1} if METHODS[method].geodesic else told
    both(tmp_path, source, new, on_disk, LandmarkIsomap(**told, random_state=SEED), points.fitted, points.new)


@pytest.mark.parametrize("method", taking(DISSIMILARITIES))
def test_dissimilarities(points, tmp_path, method):
    apart, new = cdist(points.fitted, points.fitted), cdist(points.new, points.fitted)
    files = saved(tmp_path / "d.npy", apart), saved(tmp_path / "new.npy", new.T)
    told = {**SHARED, "method": method, "landmark_selection": "random"}
    ours = LandmarkIsomap(**told, metric="precomputed", random_state=SEED)
    both(tmp_path, *files, {**told, "input": "dissimilarities"}, ours, apart, new)


@pytest.mark.parametrize("method", taking(DISSIMILARITIES))
def test_dissimilarities_to_the_landmarks(points, tmp_path, method):
    marks = np.random.default_rng(5).permutation(N_FIT)[:50]
    apart, new = cdist(points.fitted, points.fitted[marks]), cdist(points.new, points.fitted[marks])
    np.savez(tmp_path / "d.npz", D=apart.T, which=marks)
    told = {"method": method, "n_components": 2, "n_neighbors": 8}
    on_disk = {**told, "input": "dissimilarities", "n_landmarks": "auto", "key": "D", "landmarks_key": "which"}
    ours = LandmarkIsomap(**told, metric="precomputed", landmark_indices=marks, random_state=SEED)
    np.savez(tmp_path / "new.npz", D=new.T)
    both(tmp_path, tmp_path / "d.npz", tmp_path / "new.npz", on_disk, ours, apart, new, key="D")
    np.testing.assert_array_equal(ours.landmark_indices_, marks)
    assert ours.n_features_in_ == 50


def similarities(method, ones, others):
    """Inner products, or affinities."""
    return ones @ others.T if method == "mds" else np.exp(-0.01 * cdist(ones, others) ** 2)


@pytest.mark.parametrize("method", taking(SIMILARITIES))
@pytest.mark.parametrize("to_landmarks", [False, True])
def test_similarities(points, tmp_path, method, to_landmarks):
    marks = np.random.default_rng(5).permutation(N_FIT)[:50] if to_landmarks else np.arange(N_FIT)
    given, new = (similarities(method, rows, points.fitted[marks]) for rows in (points.fitted, points.new))
    own, own_new = ((rows**2).sum(axis=1) for rows in (points.fitted, points.new))
    told = {**SHARED, "method": method}
    on_disk, options = {**told, "input": "similarities", "key": "S"}, {"key": "S"}
    arrays, ours = {"S": given.T, "which": marks, "own": own}, {**told, "precomputed": "similarities"}
    of_fit, of_new = {}, {}
    if to_landmarks:
        on_disk |= {"n_landmarks": "auto", "landmarks_key": "which"}
        ours |= {"n_landmarks": "auto", "landmark_indices": marks}
    if method == "mds":
        options["own_key"] = "own"
        of_new["own_similarities"] = own_new
        if to_landmarks:
            on_disk["own_key"] = "own"
            of_fit["own_similarities"] = own
    np.savez(tmp_path / "s.npz", **arrays)
    np.savez(tmp_path / "new.npz", S=new.T, own=own_new)
    estimator = LandmarkIsomap(**ours, metric="precomputed", random_state=SEED)
    files = tmp_path / "s.npz", tmp_path / "new.npz"
    both(tmp_path, *files, on_disk, estimator, given, new, of_fit, of_new, **options)


@pytest.mark.parametrize("method", [name for name in taking(OBJECTS) if name != "kernel-mds"])
@pytest.mark.parametrize("n_evaluated", [None, 7])
def test_functions(points, tmp_path, method, n_evaluated):
    rows, new = points.fitted[:90], points.new[:10]
    files = saved(tmp_path / "x.npy", rows), saved(tmp_path / "new.npy", new)
    told = {**SHARED, "n_landmarks": 20, "method": method, "n_evaluated": n_evaluated}
    on_disk = {**told, "input": "objects", "metric": "edit_distance:apart"}
    chosen = {"landmark_selection": "random", "random_state": SEED}
    both(tmp_path, *files, on_disk, LandmarkIsomap(**told, **chosen, metric=edit_distance.apart), rows, new)


def inner(a, b):
    return float(np.asarray(a) @ np.asarray(b))


def test_a_kernel_function(points, tmp_path, monkeypatch):
    monkeypatch.setattr(edit_distance, "inner", inner, raising=False)
    rows, new = points.fitted[:90], points.new[:10]
    files = saved(tmp_path / "x.npy", rows), saved(tmp_path / "new.npy", new)
    told = {**SHARED, "n_landmarks": 20, "method": "kernel-mds"}
    on_disk = {**told, "input": "objects", "kernel": "edit_distance:inner"}
    ours = LandmarkIsomap(**told, kernel=inner, landmark_selection="random", random_state=SEED)
    both(tmp_path, *files, on_disk, ours, rows, new)


@pytest.mark.parametrize("method", GEODESIC)
@pytest.mark.parametrize("extension", ["auto", "rbf"])
def test_graphs(points, tmp_path, method, extension):
    edges = csr_array(kneighbors_graph(points.fitted, 8, mode="distance"))
    apart = cdist(points.new, points.fitted)
    near = np.argsort(apart, axis=1)[:, :5]
    places = np.repeat(np.arange(len(near)), 5), near.ravel()
    new = csr_array((apart[places], places), shape=apart.shape)
    save_npz(tmp_path / "g.npz", edges)
    save_npz(tmp_path / "new.npz", new)
    told = {"n_landmarks": 60, "n_components": 2, "method": method, "extension": extension}
    ours = LandmarkIsomap(**told, metric="precomputed", random_state=SEED)
    both(tmp_path, tmp_path / "g.npz", tmp_path / "new.npz", {**told, "input": "graph"}, ours, edges, new)


@pytest.mark.filterwarnings("ignore::pipeline.errors.ComponentWarning")
@pytest.mark.parametrize("settings", [{}, {"radius": 8.0}], ids=str)
@pytest.mark.parametrize("policy", ["largest", "bridge"])
def test_repeated_rows_and_components(points, tmp_path, settings, policy):
    island = np.random.default_rng(0).normal(size=(40, 3)) + 500
    rows = np.concatenate([points.fitted, points.fitted[::7], island, island[:20] - 900])
    near = np.concatenate([points.new, points.fitted[:9], island[:3] + 0.01])
    files = saved(tmp_path / "x.npy", rows), saved(tmp_path / "new.npy", near)
    told = {**SHARED, **settings, "component_policy": policy}
    fitted(files[0], tmp_path / "run", seed=SEED, recall=1, **told)
    extended(tmp_path / "run", files[1], tmp_path / "out")
    ours = LandmarkIsomap(**told, random_state=SEED).fit(rows)
    assert_same(ours.table_, OpenedRun(tmp_path / "run", tmp_path / "run"), 1.0)
    table = ours.place(near)
    assert_same(table, OpenedRun(tmp_path / "out", tmp_path / "run"), 2.0)
    assert (ours.table_.nearest[:N_FIT:7] == 0).all()
    assert np.isnan(table.projection[-3:]).all() == (policy == "largest")


@pytest.mark.parametrize(
    ("method", "weight"), [("isomap", 1.0), ("kernel-isomap", 1.0), ("mds", 3.0), ("kernel-mds", "balanced")]
)
def test_arcs_and_joint_reconstruction(points, tmp_path, method, weight):
    files = saved(tmp_path / "x.npy", points.fitted), saved(tmp_path / "new.npy", points.new)
    told = {**SHARED, "method": method, "diagonal_weight": weight}
    fitted(files[0], tmp_path / "run", seed=SEED, **told, **({"recall": 1} if method in GEODESIC else {}))
    extended(tmp_path / "run", files[1], tmp_path / "paths", joint=64, arc=5, arc_rows=(0, 7, 39))
    extended(tmp_path / "run", files[1], tmp_path / "bound", joint=64, joint_distances="bound")
    ours = LandmarkIsomap(**told, random_state=SEED).fit(points.fitted)
    size = np.abs(ours.embedding_).max()
    for name, between in (("paths", None), ("bound", "bound")):
        opened, found = open_run(tmp_path / name), ours.joint(points.new, between)
        np.testing.assert_allclose(found.joint, opened.embedding("joint"), rtol=0, atol=1e-6 * size)
        np.testing.assert_array_equal(found.certified, opened.embedding("certified"))
    _, arcs = open_run(tmp_path / "paths").arcs()
    found = ours.reconstruction_arc(points.new[[0, 7, 39]], 5)
    np.testing.assert_allclose(found, arcs, rtol=0, atol=1e-6 * size)


@pytest.fixture(scope="module")
def embedded(points, tmp_path_factory):
    """A run with rows that repeat, and the estimator's fit."""
    folder = tmp_path_factory.mktemp("embedded")
    rows = np.concatenate([points.fitted, points.fitted[:30], np.repeat(points.fitted[:1], 70, axis=0)])
    # The projection forgets one coordinate: rows that differ there only are in one place.
    rows = np.concatenate([rows, rows[100:110] * [1.0, 1.0, 1.0]])
    fitted(saved(folder / "x.npy", rows), folder / "run", seed=SEED, **SHARED, method="isomap", recall=1)
    ours = LandmarkIsomap(**SHARED, random_state=SEED).fit(rows)
    return SimpleNamespace(folder=folder, ours=ours, rows=rows)


@pytest.mark.parametrize("kernel", RADIAL_FUNCTIONS)
def test_the_inverse_map(embedded, tmp_path, kernel):
    """The run's embedding is that of single precision, so both are asked at the same places of it."""
    told = {"kernel": kernel, "n_neighbors": 30} | ({"scale": 2.0} if kernel in ("gaussian", "shepard") else {})
    ours = LandmarkIsomap(**SHARED, random_state=SEED).fit(embedded.rows)
    ours.embedding_[:] = open_run(embedded.folder / "run").embedding()
    places = ours.embedding_[::9] + 0.1
    given = {"store": str(embedded.folder / "run"), **told}
    saved(tmp_path / "places.npy", places)
    asked = {**given, "coordinates": str(tmp_path / "places.npy"), "output": str(tmp_path / "values")}
    invert(job_settings(InvertSettings, asked))
    invert(job_settings(InvertSettings, {**given, "leave_one_out": True, "output": str(tmp_path / "errors")}))
    size = np.abs(embedded.rows).max()
    for name, table in (("values", ours.invert(places, **told)), ("errors", ours.inverse_errors(**told))):
        opened = open_run(tmp_path / name)
        assert set(table) == set(opened.arrays)
        for column in opened.arrays:
            np.testing.assert_allclose(table[column], opened.embedding(column), rtol=1e-6, atol=1e-6 * size)
