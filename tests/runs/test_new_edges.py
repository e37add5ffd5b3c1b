"""Edges of new points in both directions: nearer to where a graph of all points puts them, in runs, models, memory."""

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz
from small import extended, fitted

from benchmarks.new_edges import cases, placement_error
from pipeline import LandmarkIsomap, open_run
from pipeline.errors import ComponentWarning, InvalidInputError
from pipeline.jobs.fit import fit
from pipeline.jobs.portable import export_model
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.settings import fit_settings
from pipeline.stages.graph import takers

TRUST = ("residual", "multiplier", "gap", "nearest")


def saved(path, rows):
    np.save(path, rows)
    return path


@pytest.mark.parametrize(("name", "most", "without"), [("roll", 0.0015, 0.004), ("digits", 0.065, 0.08)])
def test_new_rows_are_where_a_graph_with_them_puts_them(name, most, without):
    (case,) = (case for case in cases() if case.name.startswith(name))
    assert placement_error(case, "both") <= most
    assert placement_error(case, "own") >= without


@pytest.mark.parametrize("new_edges", ["both", "own"])
@pytest.mark.parametrize(("n_columns", "metric"), [(3, "euclidean"), (12, "euclidean"), (12, "cosine")])
def test_a_run_places_as_the_estimator_and_however_it_is_cut(tmp_path, n_columns, metric, new_edges):
    points = swiss_roll(3000, seed=0).points @ np.linalg.qr(np.random.default_rng(0).normal(size=(n_columns, 3)))[0].T
    points += 100.0 * (metric == "cosine")
    known, new = points[:2400], np.vstack([points[2400:], points[:7]])
    settings = {"n_neighbors": 8, "n_landmarks": 60, "metric": metric, "new_edges": new_edges, "recall": 1}
    fitted(saved(tmp_path / "known.npy", known), tmp_path / "run", **settings)
    source, results = saved(tmp_path / "new.npy", np.tile(new, (9, 1))), []
    for name, mib in (("one", 64), ("many", 1)):
        extended(tmp_path / "run", source, tmp_path / name, partition_mib=mib)
        results.append(open_run(tmp_path / name))
    arrays = ("projection", "restricted", *TRUST, *(f"{name}_rank" for name in TRUST))
    assert [results[0].embedding(name).tobytes() for name in arrays] == [
        results[1].embedding(name).tobytes() for name in arrays
    ]
    isomap = LandmarkIsomap(8, 2, n_landmarks=60, metric=metric, new_edges=new_edges, random_state=0).fit(known)
    table, size = isomap.place(new), np.abs(isomap.embedding_).max()
    for name in ("projection", "restricted"):
        np.testing.assert_allclose(results[0].embedding(name)[: len(new)], table[name], atol=2e-5 * size, rtol=0)
    for name in TRUST:
        np.testing.assert_allclose(results[0].embedding(f"{name}_rank")[: len(new)], table[f"{name}_rank"], atol=0.01)
    # Fitted rows that come again are where they were, to the bit.
    again = results[0].embedding("projection")[len(new) - 7 : len(new)]
    assert again.tobytes() == open_run(tmp_path / "run").embedding("projection")[:7].tobytes()


def test_the_rows_themselves_calibrate(tmp_path):
    """All rows of a small source but the landmarks, to the bit."""
    fitted(saved(tmp_path / "roll.npy", swiss_roll(1500, seed=1).points), tmp_path / "run", n_landmarks=50)
    opened = open_run(tmp_path / "run")
    others = np.setdiff1d(np.arange(1500), opened.landmark_rows)
    for name, values in opened.calibration_values.items():
        np.testing.assert_array_equal(values, np.sort(opened.embedding(name)[others]))


def test_rows_that_are_landmarks_calibrate_where_there_are_no_others(tmp_path):
    points = swiss_roll(120, seed=1).points
    fitted(saved(tmp_path / "roll.npy", points), tmp_path / "run", n_landmarks=120)
    assert {len(values) for values in open_run(tmp_path / "run").calibration_values.values()} == {120}
    isomap = LandmarkIsomap(8, 2, n_landmarks=120, random_state=0).fit(points)
    ranks = isomap.place(points + 0.5).nearest_rank
    assert 0.0 < ranks.min() <= ranks.max() < 1.0


def test_components_that_are_dropped_take_nobody(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(900, 3)), rng.normal(size=(60, 3)) + 40])
    settings = {"n_neighbors": 8, "n_landmarks": 40, "component_policy": "largest"}
    with pytest.warns(ComponentWarning, match=r"rows: 900, 60\); only the largest is embedded, the other 60 rows"):
        fitted(saved(tmp_path / "rows.npy", rows), tmp_path / "run", **settings)
    new = np.concatenate([rng.normal(size=(100, 3)), rng.normal(size=(20, 3)) + 40])
    extended(tmp_path / "run", saved(tmp_path / "new.npy", new), tmp_path / "out")
    found = open_run(tmp_path / "out").embedding("projection")
    assert np.isnan(found[100:]).all()
    assert np.isfinite(found[:100]).all()
    with pytest.warns(ComponentWarning, match="the other 60 rows become NaN"):
        isomap = LandmarkIsomap(8, 2, n_landmarks=40, component_policy="largest", random_state=0).fit(rows)
    np.testing.assert_allclose(found[:100], isomap.transform(new[:100]), atol=1e-4)


def test_a_run_with_own_edges_only_is_not_computed_anew_up_to_the_paths(tmp_path):
    """Nor is one of an earlier version, which had no others."""
    source = saved(tmp_path / "roll.npy", swiss_roll(1500, seed=1).points)
    fitted(source, tmp_path / "run", new_edges="own")
    assert "reach" not in open_run(tmp_path / "run").manifest["stages"]
    assert fitted(source, tmp_path / "run").stages == ["reach", "embed", "calibrate", "pairs", "evaluate", "publish"]


JOINT = {"joint": 16, "arc": 5, "arc_rows": (2, 7)}


@pytest.mark.parametrize("choice", [{}, {"new_edges": "own"}, {"radius": 3.0}], ids=["both", "own", "radius"])
def test_joint_and_arcs_are_those_of_the_estimator(tmp_path, choice):
    points = swiss_roll(1216, seed=0).points
    known, new = points[:1200], points[1200:]
    settings = {**({} if "radius" in choice else {"n_neighbors": 8}), "n_landmarks": 60, **choice}
    fitted(saved(tmp_path / "known.npy", known), tmp_path / "run", **settings)
    extended(tmp_path / "run", saved(tmp_path / "new.npy", new), tmp_path / "out", **JOINT)
    out = open_run(tmp_path / "out")
    isomap = LandmarkIsomap(8, 2, n_landmarks=60, random_state=0, **choice).fit(known)
    expected = isomap.joint(new)
    size = np.abs(isomap.embedding_).max()
    np.testing.assert_allclose(out.embedding("joint"), expected.joint, atol=5e-5 * size, rtol=0)
    np.testing.assert_array_equal(out.embedding("certified"), expected.certified)
    rows, arcs = out.arcs()
    np.testing.assert_allclose(arcs, isomap.reconstruction_arc(new[list(rows)], 5), atol=5e-5 * size, rtol=0)


def test_joint_of_new_nodes_of_a_graph_is_that_of_the_estimator(tmp_path):
    rng = np.random.default_rng(0)
    graph = neighbor_graph(*neighbors_within(rng.normal(size=(300, 2)), 6))
    settings = {"input": "graph", "n_landmarks": 40}
    save_npz(tmp_path / "graph.npz", graph)
    fit(fit_settings({"source": str(tmp_path / "graph.npz"), "store": str(tmp_path / "run"), **settings}))
    edges = csr_array(
        (rng.uniform(0.1, 0.3, 36), (np.repeat(np.arange(12), 3), rng.choice(300, 36, replace=False))), shape=(12, 300)
    )
    save_npz(tmp_path / "new.npz", edges)
    extended(tmp_path / "run", tmp_path / "new.npz", tmp_path / "out", joint=12)
    isomap = LandmarkIsomap(n_components=2, n_landmarks=40, metric="precomputed", random_state=0).fit(graph)
    expected = isomap.joint(edges)
    np.testing.assert_allclose(open_run(tmp_path / "out").embedding("joint"), expected.joint, atol=1e-4)


@pytest.mark.parametrize("n_columns", [3, 12])
def test_a_model_of_all_points_extends_as_the_run_does(tmp_path, n_columns):
    points = swiss_roll(1700, seed=0).points @ np.linalg.qr(np.random.default_rng(0).normal(size=(n_columns, 3)))[0].T
    fitted(saved(tmp_path / "known.npy", points[:1500]), tmp_path / "run", recall=1)
    source = saved(tmp_path / "new.npy", points[1500:])
    export_model(str(tmp_path / "run"), str(tmp_path / "all"), 1500)
    export_model(str(tmp_path / "run"), str(tmp_path / "few"), 600)
    for store in ("run", "all", "few"):
        extended(tmp_path / store, source, tmp_path / f"{store}-out")
    whole, every, thinned = (
        open_run(tmp_path / f"{store}-out").embedding("projection") for store in ("run", "all", "few")
    )
    np.testing.assert_allclose(every, whole, atol=1e-9 * np.abs(whole).max())
    assert np.sqrt(np.square(thinned - whole).sum(axis=1).mean()) <= 0.06 * np.sqrt(whole.var(axis=0).sum())


def test_rows_beside_a_point_that_all_take_have_as_many_edges_as_there_may_be(tmp_path, monkeypatch):
    """Pairs that wait are thinned on the way, which changes nothing."""
    rng, folder = np.random.default_rng(0), tmp_path
    around = rng.normal(size=(2000, 40))
    rows = np.vstack([around / np.linalg.norm(around, axis=1)[:, None], np.zeros((1, 40))])
    fitted(saved(folder / "rows.npy", rows), folder / "run", n_landmarks=40)
    source = saved(folder / "new.npy", 1e-3 * rng.normal(size=(300, 40)))
    results = []
    for name, waiting in (("one", 1 << 23), ("other", 10_000)):
        monkeypatch.setattr(takers, "MOST_WAITING", waiting)
        extended(folder / "run", source, folder / name)
        results.append(open_run(folder / name))
    assert results[0].stage_figures("search")["n_edges"] == 300 * 256
    first, second = (one.embedding("projection").tobytes() for one in results)
    assert first == second


def test_edges_are_counted(tmp_path):
    points = swiss_roll(1700, seed=0).points
    fitted(saved(tmp_path / "known.npy", points[:1500]), tmp_path / "run", n_neighbors=10)
    extended(tmp_path / "run", saved(tmp_path / "new.npy", points[1500:]), tmp_path / "out")
    assert 10 * 200 < open_run(tmp_path / "out").stage_figures("search")["n_edges"] < 20 * 200


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"new_edges": "all"}, "new_edges"),
        ({"new_edges": "own", "radius": 2.0}, "new_edges='own' means nothing with radius=2"),
        ({"new_edges": "own", "method": "mds"}, "new_edges='own' means nothing with method='mds'"),
    ],
)
def test_what_means_nothing_is_refused(tmp_path, choice, message):
    source = saved(tmp_path / "rows.npy", swiss_roll(200, seed=0).points)
    with pytest.raises(InvalidInputError, match=message):
        fitted(source, tmp_path / "run", **choice)
    with pytest.raises(InvalidInputError, match=message):
        LandmarkIsomap(**choice).fit(np.load(source))
