"""Runs on disk whose graph joins all points within a radius: exactly those, whatever the cells; and new points."""

import re

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist
from sklearn.manifold import Isomap
from small import extended, fitted

from pipeline import open_run
from pipeline.errors import ComponentWarning, DisconnectedGraphError, InvalidInputError
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit
from pipeline.jobs.portable import export_model
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension import project
from pipeline.settings import ClusterSettings, fit_settings
from pipeline.stages.graph import radius as stage
from pipeline.stages.publish import PUBLISHED

N_POINTS, RADIUS = 4500, 2.0


def saved(path, rows):
    np.save(path, rows)
    return path


def roll(n_columns):
    """A Swiss roll with some rows twice; in many columns a partition of the least size holds only 4,096 rows."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(n_columns, 3)))[0]
    rows = swiss_roll(N_POINTS, seed=0).points @ turned.T
    rows[-10:] = rows[:10]
    return rows


def fitted_roll(folder, n_columns):
    """Points, their file and a run on them."""
    rows = roll(n_columns)
    fitted(saved(folder / "x.npy", rows), folder / "run", radius=RADIUS)
    return rows, folder / "x.npy", folder / "run"


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A run on points of many columns, in two groups."""
    return fitted_roll(tmp_path_factory.mktemp("many"), 64)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return fitted_roll(tmp_path_factory.mktemp("few"), 3)


@pytest.fixture(params=["few", "many"])
def run(request):
    return request.getfixturevalue(request.param)


def published(store):
    opened = open_run(store)
    return {name: opened.embedding(name).tobytes() for name in PUBLISHED}


def graph_of(opened):
    """The graph of a run between the first rows of its points, in the user's units."""
    first = np.concatenate(list(opened.parts("order", "first")))
    parts = [list(opened.parts("graph", name)) for name in ("offsets", "targets", "weights")]
    sizes = np.concatenate([np.diff(offsets) for offsets in parts[0]])
    targets, weights = (np.concatenate(part) for part in parts[1:])
    places = (np.repeat(first, sizes), first[targets])
    return csr_array((weights * opened.unit, places), shape=(opened.n_rows, opened.n_rows))


def test_edges_are_all_pairs_within_the_radius_and_no_others(run):
    rows, _, store = run
    graph = graph_of(open_run(store))
    distinct = rows[:-10]
    apart = cdist(distinct, distinct)
    np.fill_diagonal(apart, np.inf)
    expected = apart <= RADIUS
    assert graph.nnz == np.count_nonzero(expected)
    found = graph.tocoo()
    assert expected[found.row, found.col].all()
    np.testing.assert_allclose(found.data, apart[found.row, found.col], rtol=1e-6)
    nearest = apart.min(axis=1)
    nearest[:10] = 0.0
    np.testing.assert_allclose(open_run(store).embedding("nearest")[:-10], nearest, rtol=1e-9)


def test_neighbors_are_called_exact(run):
    opened = open_run(run[2])
    assert opened.quality["recall"] == 1.0
    assert opened.quality["trustworthiness"]["value"] > 0.95
    assert opened.stage_figures("probes")["mean_neighbors"] > 10


def test_the_size_of_partitions_changes_nothing(many, tmp_path):
    _, file, store = many
    fitted(file, tmp_path / "run", radius=RADIUS, partition_mib=64)
    assert published(tmp_path / "run") == published(store)
    groups = [len(list(open_run(path).parts("graph", "offsets"))) for path in (store, tmp_path / "run")]
    assert groups == [2, 1]


@pytest.mark.cluster
def test_workers_give_the_bytes_of_the_serial_run(many, tmp_path):
    _, file, store = many
    given = {"n_neighbors": 8, "n_landmarks": 70, "partition_mib": 1, "radius": RADIUS}
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        fit(fit_settings({**given, "source": str(file), "store": str(tmp_path / "run")}), execute=execute)
    assert published(tmp_path / "run") == published(store)


@pytest.fixture(scope="module", params=["isomap", "kernel-isomap"])
def small(request, tmp_path_factory):
    """A small run with every point a landmark."""
    folder = tmp_path_factory.mktemp("small")
    points = np.random.default_rng(1).random((400, 3)) * [3.0, 1.5, 0.1]
    settings = {"n_landmarks": 400, "radius": 0.3, "method": request.param}
    fitted(saved(folder / "x.npy", points), folder / "run", **settings)
    return points, folder / "run", request.param


def as_in(expected, found):
    return found * np.sign((found * expected).sum(axis=0))


def test_with_every_point_a_landmark_it_is_the_isomap_of_scikit_learn(small):
    points, store, method = small
    reference = Isomap(n_neighbors=None, radius=0.3, n_components=2, eigen_solver="dense").fit(points)
    found = open_run(store).embedding()
    turned, atol = as_in(reference.embedding_, found), 1e-5 * np.abs(reference.embedding_).max()
    if method == "isomap":
        np.testing.assert_allclose(turned, reference.embedding_, rtol=0, atol=atol)
    else:
        assert np.corrcoef(turned.ravel(), reference.embedding_.ravel())[0, 1] > 0.98


def test_new_points_go_where_scikit_learn_puts_them(small, tmp_path, rng):
    points, store, method = small
    new = rng.random((60, 3)) * [3.0, 1.5, 0.1]
    extended(store, saved(tmp_path / "new.npy", new), tmp_path / "out")
    placed = open_run(tmp_path / "out")
    np.testing.assert_allclose(placed.embedding("nearest"), cdist(new, points).min(axis=1), rtol=1e-9)
    if method == "isomap":
        reference = Isomap(n_neighbors=None, radius=0.3, n_components=2, eigen_solver="dense").fit(points)
        signs = np.sign((open_run(store).embedding() * reference.embedding_).sum(axis=0))
        expected = reference.transform(new)
        np.testing.assert_allclose(placed.embedding() * signs, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_fitted_rows_taken_as_new_are_where_they_were_fitted(run, tmp_path):
    rows, _, store = run
    done = extended(store, saved(tmp_path / "again.npy", rows[:200]), tmp_path / "out")
    np.testing.assert_array_equal(open_run(tmp_path / "out").embedding(), open_run(store).embedding()[:200])
    assert done.outcomes["place"].figures["n_placed"] == 200


def test_a_new_point_without_neighbors_takes_the_nearest(run, tmp_path):
    rows, _, store = run
    center, away = rows.mean(axis=0), np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][0]
    far = center + away * 10 * np.abs((rows - center) @ away).max()
    extended(store, saved(tmp_path / "far.npy", far[None]), tmp_path / "out")
    apart = cdist(far[None], rows)[0]
    opened, placed = open_run(store), open_run(tmp_path / "out")
    assert placed.embedding("nearest")[0] == pytest.approx(apart.min())
    paths = dijkstra(graph_of(opened), indices=opened.landmark_rows)
    ways = (apart.min() + paths[:, apart.argmin()]) / opened.unit
    expected = project(opened.model, ways[None] ** 2) * opened.unit
    np.testing.assert_allclose(placed.embedding(), expected, rtol=1e-4)


def test_rows_like_the_fitted_ones_do_not_drift(run, tmp_path):
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(run[0].shape[1], 3)))[0]
    more = swiss_roll(1000, seed=5).points @ turned.T
    assert not extended(run[2], saved(tmp_path / "more.npy", more), tmp_path / "out").drift["drifts"]


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_a_radius_is_in_the_units_of_the_data(small, tmp_path, scale):
    points, store, method = small
    settings = {"n_landmarks": 400, "radius": 0.3 * scale, "method": method}
    fitted(saved(tmp_path / "x.npy", points * scale), tmp_path / "run", **settings)
    np.testing.assert_array_equal(open_run(tmp_path / "run").embedding(), open_run(store).embedding() * scale)


def test_of_standardized_data_a_radius_is_in_spreads(tmp_path, rng):
    points = rng.random((500, 2)) * [1000.0, 0.01]
    same = (points - points.mean(axis=0)) / points.std(axis=0)
    fitted(saved(tmp_path / "x.npy", points), tmp_path / "run", radius=0.4, standardize=True)
    fitted(saved(tmp_path / "same.npy", same), tmp_path / "same", radius=0.4)
    expected, found = (open_run(tmp_path / name).embedding() for name in ("same", "run"))
    np.testing.assert_allclose(as_in(expected, found), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.fixture
def scattered(tmp_path):
    """A square of 300 points, 30 beside it, and one far from all."""
    rng = np.random.default_rng(4)
    points = np.vstack([rng.random((300, 2)), rng.random((30, 2)) * 0.2 + [2.0, 0.0], [[9.0, 0.0]]])
    return points, saved(tmp_path / "x.npy", points)


def test_a_point_without_neighbors_is_a_component_of_its_own(scattered, tmp_path):
    with pytest.raises(DisconnectedGraphError, match=r"3 components, of sizes 300, 30, 1; .*Raise radius"):
        fitted(scattered[1], tmp_path / "run", radius=0.2, component_policy="error")
    with pytest.warns(ComponentWarning, match="the other 31 rows become NaN. A larger radius may connect them"):
        fitted(scattered[1], tmp_path / "run", radius=0.2, component_policy="largest")
    opened = open_run(tmp_path / "run")
    assert opened.embedding("component").tolist() == [0] * 300 + [1] * 30 + [2]
    np.testing.assert_array_equal(np.isnan(opened.embedding()).any(axis=1), np.arange(331) >= 300)
    near_both = np.array([[0.5, 0.5], [2.1, 0.1], [4.5, 0.0], [1.3, 0.0]])
    extended(tmp_path / "run", saved(tmp_path / "new.npy", near_both), tmp_path / "out")
    assert open_run(tmp_path / "out").embedding("component").tolist() == [0, 1, 1, 0]


def test_bridges_lead_to_points_without_neighbors(scattered, tmp_path):
    points, file = scattered
    with pytest.warns(ComponentWarning, match=r"joined by 2 links, .* radius=6\.\d+ is enough to connect") as told:
        fitted(file, tmp_path / "run", radius=0.2)
    enough = float(re.search(r"radius=(\S+)", str(told[0].message)).group(1))
    fitted(file, tmp_path / "whole", radius=enough, component_policy="error")
    opened = open_run(tmp_path / "run")
    assert np.isfinite(opened.embedding()).all()
    assert opened.embedding("nearest")[-1] == pytest.approx(cdist(points[-1:], points[:-1]).min())
    assert opened.stage_figures("components")["n_bridges"] == 2
    assert opened.calibration["nearest"]["0.99"] < 1 < opened.calibration_values["nearest"].max()


def test_a_radius_that_joins_nothing_is_refused(scattered, tmp_path):
    with pytest.raises(InvalidInputError, match=r"radius=1e-09 is too small: .*seen on 331 of 331 distinct points"):
        fitted(scattered[1], tmp_path / "run", radius=1e-9)


def test_a_radius_that_joins_everything_is_refused_before_memory_is_exhausted(scattered, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "machine_memory", lambda: 1 << 20)
    with pytest.raises(InvalidInputError, match=r"radius=100 is too large: it gives each point 330 neighbors"):
        fitted(scattered[1], tmp_path / "run", radius=100)
    monkeypatch.setattr(stage, "GRAPH_BYTES", 0)
    with pytest.raises(InvalidInputError, match=r"radius=100 gives each of 331 points more than \d+ neighbors"):
        fitted(scattered[1], tmp_path / "run", radius=100)


def test_a_radius_beyond_all_reason_joins_everything(tmp_path, rng):
    points = saved(tmp_path / "x.npy", rng.random((60, 2)) * 1e-9)
    fitted(points, tmp_path / "run", radius=1e150, n_landmarks=20)
    assert open_run(tmp_path / "run").stage_figures("graph")["n_edges"] == 60 * 59


def test_a_model_is_refused(few, tmp_path):
    with pytest.raises(InvalidInputError, match="was fitted by a radius or on a graph"):
        export_model(str(few[2]), str(tmp_path / "model"))


def test_the_commands_take_a_radius(trigpoint, few, tmp_path):
    options = ("--radius", RADIUS, "--n-landmarks", 70, "--partition-mib", 1, "--cluster-kind", "serial")
    code, out, err = trigpoint("plan", few[1], "--store", tmp_path / "run", *options)
    assert (code, err) == (0, "")
    stages = [line.split()[0] for line in out.splitlines()[2:-1]]
    assert stages[:6] == ["validate", "cells", "assign", "order", "probes", "graph"]
    code, out, err = trigpoint("fit", few[1], "--store", tmp_path / "run", *options)
    assert (code, err) == (0, "")
    assert "Neighbors are exact." in out
    assert published(tmp_path / "run") == published(few[2])
