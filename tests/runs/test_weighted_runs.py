"""Runs whose landmarks count by how many rows each stands for: on disk, in memory, extended, exported and refitted."""

import shutil

import numpy as np
import pytest
from rolls import refitted
from scipy import sparse
from scipy.spatial.distance import cdist
from small import Counting, extended, fitted

from pipeline import LandmarkIsomap, open_run
from pipeline.errors import InvalidInputError
from pipeline.jobs.fit import fit, fit_costs
from pipeline.jobs.portable import export_model
from pipeline.methods import METHODS
from pipeline.settings import fit_settings
from pipeline.sources.opening import open_source
from pipeline.store.ledger import StageLedger

CLASSICAL = ("isomap", "kernel-isomap", "mds", "kernel-mds")
SETTINGS = {"n_landmarks": 30, "n_components": 2, "landmark_weights": "counts"}


def uneven(n: int, seed: int = 0, repeated: bool = True) -> np.ndarray:
    """Points of a bent sheet, most of them at one end, in many columns, some of them twice if that is wanted."""
    rng = np.random.default_rng(seed)
    t = 1.5 * np.pi * (1 + rng.beta(1, 4, n))
    sheet = np.stack([t * np.cos(t), 10 * rng.random(n), t * np.sin(t)], axis=1)
    if repeated:
        sheet[1::7] = sheet[::7][: len(sheet[1::7])]
    return sheet @ np.linalg.qr(np.random.default_rng(0).normal(size=(64, 3)))[0].T


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("uneven") / "points.npy"
    np.save(path, uneven(4300))
    return path


@pytest.fixture(scope="module")
def runs(source, tmp_path_factory):
    """A run of each method in two partitions, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), set()

    def run_of(method):
        if method not in made:
            fitted(source, folder / method, method=method, **SETTINGS)
            made.add(method)
        return folder / method

    return run_of


def counts_of(store) -> np.ndarray:
    opened = open_run(store)
    return StageLedger(opened._store, "weights", opened.manifest["stages"]["weights"]["digest"]).read("counts").read()


def arrays_of(store) -> dict[str, np.ndarray]:
    opened = open_run(store)
    return {name: opened.embedding(name) for name in opened.arrays}


@pytest.mark.parametrize("method", CLASSICAL)
def test_is_what_the_estimator_makes_of_the_same_rows(runs, tmp_path, method):
    store = runs(method)
    if not METHODS[method].geodesic:
        # Where rows repeat, these choose their landmarks in another way in memory.
        np.save(tmp_path / "points.npy", uneven(1000, repeated=False))
        fitted(tmp_path / "points.npy", store := tmp_path / "run", method=method, **SETTINGS)
    opened = open_run(store)
    points = np.load(opened.manifest["sources"][0])
    estimator = LandmarkIsomap(8, random_state=0, method=method, **SETTINGS).fit(points)
    assert set(estimator.landmark_indices_) == set(opened.landmark_rows)
    np.testing.assert_allclose(np.sort(estimator.model_.weights), np.sort(opened.model.weights), rtol=1e-12)
    scale = np.abs(estimator.embedding_).max()
    np.testing.assert_allclose(opened.embedding(), estimator.embedding_, atol=1e-5 * scale)


@pytest.mark.parametrize("method", CLASSICAL)
def test_rows_count_for_their_nearest_landmark(source, runs, method):
    opened, counts, points = open_run(runs(method)), counts_of(runs(method)), np.load(source)
    assert counts.sum() == len(points)
    np.testing.assert_allclose(opened.model.weights, counts / counts.mean())
    if not METHODS[method].geodesic:
        # The distance that an rbf kernel induces grows with the Euclidean one.
        nearest = cdist(points, points[opened.landmark_rows]).argmin(axis=1)
        np.testing.assert_array_equal(counts, np.bincount(nearest, minlength=30))


def test_the_weighted_center_of_the_landmarks_is_near_that_of_all_rows(source, runs, tmp_path):
    """That is what weights are for: landmarks chosen far apart have their center elsewhere."""
    fitted(source, tmp_path / "plain", method="mds", **{**SETTINGS, "landmark_weights": "none"})
    offsets = [np.linalg.norm(open_run(store).embedding().mean(axis=0)) for store in (runs("mds"), tmp_path / "plain")]
    assert offsets[0] < 0.2 * offsets[1]


@pytest.mark.parametrize("method", ["isomap", "kernel-mds"])
def test_bytes_do_not_depend_on_partitions(source, runs, tmp_path, method):
    fitted(source, tmp_path / "whole", method=method, **SETTINGS, partition_mib=64)
    whole, parts = (arrays_of(store) for store in (tmp_path / "whole", runs(method)))
    assert {name: array.tobytes() for name, array in whole.items()} == {n: a.tobytes() for n, a in parts.items()}


@pytest.mark.parametrize("method", CLASSICAL)
def test_landmarks_have_the_coordinates_of_the_model_and_new_rows_are_placed_alike(source, runs, tmp_path, method):
    store, points = runs(method), np.load(source)
    opened = open_run(store)
    placed = opened.embedding()[opened.landmark_rows]
    np.testing.assert_allclose(placed, opened.model.coordinates * opened.unit, atol=1e-5 * np.abs(placed).max())
    np.save(tmp_path / "rows.npy", points[4000:4100])
    extended(store, tmp_path / "rows.npy", tmp_path / "extension")
    again = open_run(tmp_path / "extension").embedding()
    np.testing.assert_allclose(again, opened.embedding()[4000:4100], atol=1e-5 * np.abs(again).max())


@pytest.mark.parametrize("method", ["isomap", "mds"])
def test_an_exported_model_has_the_weights(source, runs, tmp_path, method):
    export_model(str(runs(method)), str(tmp_path / "model"))
    np.testing.assert_array_equal(open_run(tmp_path / "model").model.weights, open_run(runs(method)).model.weights)
    np.save(tmp_path / "rows.npy", np.load(source)[:50] + 1e-3)
    for space, output in ((runs(method), "direct"), (tmp_path / "model", "exported")):
        extended(space, tmp_path / "rows.npy", tmp_path / output)
    ours, theirs = (open_run(tmp_path / output).embedding() for output in ("exported", "direct"))
    np.testing.assert_allclose(ours, theirs, atol=1e-9 * np.abs(theirs).max())


def test_a_refit_counts_the_new_rows_too_and_stays_in_place(runs, tmp_path):
    store = shutil.copytree(runs("mds"), tmp_path / "run")
    before = open_run(store).embedding()
    np.save(tmp_path / "new.npy", uneven(900, seed=1))
    refitted(store, tmp_path / "new.npy")
    assert counts_of(store).sum() == 5200
    moved = open_run(store).embedding()[:4300] - before
    assert np.sqrt((moved**2).sum(axis=1).mean()) < 0.05 * before.std()


def test_only_counting_adds_a_stage_and_changes_digests(source, runs, tmp_path):
    store = shutil.copytree(runs("mds"), tmp_path / "run")
    watch = fitted(source, store, Counting(), method="mds", **{**SETTINGS, "landmark_weights": "none"})
    assert watch.stages == ["model", "embed", "calibrate", "evaluate", "publish"]
    assert open_run(store).model.weights is None
    assert "landmark_weights" not in open_run(store).manifest["settings"]
    settings = fit_settings({**SETTINGS, "source": str(source), "store": str(store)})
    costs = fit_costs(settings, open_source(str(source)))
    assert list(costs).index("weights") == list(costs).index("model") - 1
    plain = settings.model_copy(update={"landmark_weights": "none"})
    assert "weights" not in fit_costs(plain, open_source(str(source)))


def test_a_matrix_and_a_graph_count_alike(tmp_path):
    """Of a complete graph whose edges are Euclidean distances, shortest paths are these distances."""
    points = uneven(120)[:, :5]
    points += np.random.default_rng(2).normal(size=points.shape) * 0.1
    between = cdist(points, points)
    np.save(tmp_path / "matrix.npy", between)
    sparse.save_npz(tmp_path / "graph.npz", sparse.csr_matrix(np.triu(between)))
    told = {**SETTINGS, "n_landmarks": 20}
    fitted(tmp_path / "matrix.npy", tmp_path / "m", method="mds", input="dissimilarities", **told)
    rows = open_run(tmp_path / "m").landmark_rows
    expected = np.bincount(between[:, rows].argmin(axis=1), minlength=20)
    np.testing.assert_array_equal(counts_of(tmp_path / "m"), expected)
    run = {"source": str(tmp_path / "graph.npz"), "store": str(tmp_path / "g"), "method": "isomap", "input": "graph"}
    fit(fit_settings({**told, **run}))
    graph_rows = open_run(tmp_path / "g").landmark_rows
    expected = np.bincount(between[:, graph_rows].argmin(axis=1), minlength=20)
    np.testing.assert_array_equal(counts_of(tmp_path / "g"), expected)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in CLASSICAL])
def test_other_methods_refuse_weights_and_say_why(source, tmp_path, method):
    words = f"landmark_weights='counts' does not go with method='{method}': weights belong to classical scaling"
    with pytest.raises(InvalidInputError, match=words):
        fitted(source, tmp_path / "run", method=method, **{**SETTINGS, "n_neighbors": 10})
    with pytest.raises(InvalidInputError, match=words):
        LandmarkIsomap(method=method, landmark_weights="counts").fit(np.load(source)[:100])


def test_unknown_weights_are_refused(source, tmp_path):
    with pytest.raises(InvalidInputError, match="landmark_weights='density' is not known; use one of 'none', 'counts'"):
        fitted(source, tmp_path / "run", **{**SETTINGS, "landmark_weights": "density"})
