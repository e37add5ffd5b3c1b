"""n_components="auto": the intrinsic dimension of a sample, in runs, plans, refits, studies and the estimator."""

import json

import numpy as np
import pytest
from rolls import refitted
from small import Counting, extended, fitted, roll_file

from flows.reports import plan_report
from pipeline import LandmarkIsomap, open_run
from pipeline.errors import InvalidInputError
from pipeline.jobs.fit import checked_source, plan_fit
from pipeline.jobs.study import study
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.dimension import automatic_rows, dimension_of_points
from pipeline.settings import FitSettings, StudySettings, fit_settings, job_settings

AUTO = {"n_components": "auto", "n_landmarks": 40}


def sphere(n: int, d: int, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(n, d + 1))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def chosen(store) -> tuple[int, dict]:
    figures = open_run(store).stage_figures("dimension")
    return figures["n_components"], figures["intrinsic_dimension"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return roll_file(tmp_path_factory.mktemp("roll"), n_points=4300)


@pytest.fixture(scope="module")
def store(source, tmp_path_factory):
    store = tmp_path_factory.mktemp("runs") / "run"
    fitted(source, store, **AUTO)
    return store


def test_a_roll_gets_two_components_everywhere_results_are_told(store, source, tmp_path):
    n_components, found = chosen(store)
    assert n_components == 2
    assert found["two_nearest"]["value"] == pytest.approx(2, rel=0.05)
    opened = open_run(store)
    assert opened.embedding().shape == (4300, 2)
    assert opened.manifest["settings"]["n_components"] == 2
    np.save(tmp_path / "rows.npy", np.load(source)[:30])
    extended(store, tmp_path / "rows.npy", tmp_path / "extension")
    assert open_run(tmp_path / "extension").embedding().shape == (30, 2)


def test_the_bytes_are_those_of_the_number_itself(store, source, tmp_path):
    fitted(source, tmp_path / "two", **{**AUTO, "n_components": 2})
    one, other = open_run(store), open_run(tmp_path / "two")
    for name in one.arrays:
        assert one.embedding(name).tobytes() == other.embedding(name).tobytes()
    assert one.quality == other.quality
    # Everything but the estimate is there already.
    assert fitted(source, tmp_path / "two", Counting(), **AUTO).stages == ["dimension"]


@pytest.mark.parametrize(
    ("method", "points", "expected"),
    [
        ("mds", sphere(3000, 4), 4),
        ("isomap", np.random.default_rng(0).random((500, 1)) * [3, 4], 1),
        ("laplacian", swiss_roll(3000, 0).points, 2),
        ("kernel-mds", swiss_roll(3000, 0).points, 2),
    ],
)
def test_is_found_for_any_method_and_alike_in_memory(tmp_path, method, points, expected):
    np.save(tmp_path / "points.npy", points)
    fitted(tmp_path / "points.npy", tmp_path / "run", method=method, **AUTO)
    assert chosen(tmp_path / "run")[0] == expected
    assert open_run(tmp_path / "run").embedding().shape == (len(points), expected)
    estimator = LandmarkIsomap(8, method=method, random_state=0, **AUTO).fit(points)
    assert (estimator.n_components_, estimator.embedding_.shape) == (expected, (len(points), expected))
    two = chosen(tmp_path / "run")[1]["two_nearest"]
    assert estimator.intrinsic_dimension_.two_nearest._asdict() == pytest.approx(two, rel=1e-6)


def test_is_of_what_preprocessing_leaves_and_of_usable_rows(tmp_path):
    """Of a sheet with noise of little spread in five columns, standardizing brings the noise out."""
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.random((2000, 2)), 1e-6 * rng.random((2000, 5))])
    rows[::100] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    told = {"method": "mds", "missing": "drop", **AUTO}
    found = {}
    for name, how in {"plain": {}, "standardized": {"standardize": True}, "pca": {"pca": 1}}.items():
        fitted(tmp_path / "rows.npy", tmp_path / name, **told, **how)
        found[name] = chosen(tmp_path / name)[0]
    assert found["plain"] == 2
    assert found["standardized"] >= 5
    assert found["pca"] == 1


def test_few_landmarks_bound_it(tmp_path):
    np.save(tmp_path / "points.npy", sphere(1000, 6))
    fitted(tmp_path / "points.npy", tmp_path / "run", method="mds", n_components="auto", n_landmarks=4)
    assert chosen(tmp_path / "run")[0] == 3


def test_does_not_depend_on_partitions(tmp_path, source):
    fitted(source, tmp_path / "whole", partition_mib=64, method="mds", **AUTO)
    fitted(source, tmp_path / "parts", partition_mib=1, method="mds", **AUTO)
    assert chosen(tmp_path / "whole") == chosen(tmp_path / "parts")


def test_a_refit_keeps_the_published_number(tmp_path):
    np.save(tmp_path / "old.npy", np.random.default_rng(0).random((1200, 2)) @ [[1.0, 0, 0], [0, 1, 0]])
    fitted(tmp_path / "old.npy", tmp_path / "run", method="mds", **AUTO)
    # With these, the data would have three dimensions.
    np.save(tmp_path / "new.npy", np.random.default_rng(1).random((5000, 3)))
    refitted(tmp_path / "run", tmp_path / "new.npy")
    opened = open_run(tmp_path / "run")
    assert opened.manifest["settings"]["n_components"] == 2
    assert opened.embedding().shape == (6200, 2)
    assert "dimension" not in opened.manifest["stages"]


def test_a_plan_says_what_it_assumes(source, tmp_path):
    told = fit_settings({**AUTO, "source": str(source), "store": str(tmp_path / "run")})
    plan = plan_fit(told, checked_source(told))
    assert plan.assumptions[0] == "n_components=auto is counted as 10; the fit finds it from the data"
    assert plan.assumptions[1].startswith("the graph is in one piece; to join one in pieces takes up to")
    stages = [stage.stage for stage in plan.stages]
    assert stages[:2] == ["validate", "dimension"]
    ten = told.with_components(10)
    others = {stage.stage: stage for stage in plan_fit(ten, checked_source(ten)).stages}
    assert all(stage == others[stage.stage] for stage in plan.stages if stage.stage != "dimension")
    value, lines = plan_report(plan, "x.npy")
    assert lines[-2:] == [f"Assumed: {assumption}." for assumption in plan.assumptions]
    assert json.loads(json.dumps(value))["assumptions"] == list(plan.assumptions)
    few = told.model_copy(update={"n_landmarks": 4})
    assert "counted as 3" in plan_fit(few, checked_source(few)).assumptions[0]


def test_a_fit_says_what_it_chose(trigpoint, source, store, tmp_path):
    options = ("--n-neighbors", 8, "--n-landmarks", 40, "--n-components", "auto", "--partition-mib", 1)
    code, out, _ = trigpoint("fit", source, "--store", store, *options)
    assert code == 0
    assert "\n2 components: the intrinsic dimension of a sample of 4,300 rows is 2.0" in out
    code, out, _ = trigpoint("status", store)
    assert code == 0
    assert "\n2 components: the intrinsic dimension of a sample of 4,300 rows is 2.0" in out
    assert json.loads(trigpoint("status", store, "--json")[1])["n_components"] == 2
    (tmp_path / "run.toml").write_text(f'source = "{source}"\nstore = "{store}"\nn_components = "auto"\n')
    assert job_settings(FitSettings, {}, tmp_path / "run.toml").n_components == "auto"


def test_a_study_tries_the_dimension_of_its_sample(trigpoint, source):
    told = {"source": str(source), "n_components": "auto", "landmarks": "30", "neighbors": "8", "sample": 1000}
    found = study(job_settings(StudySettings, {**told, "selections": "random", "repeats": 2}))
    assert found.n_components == 2
    options = ("--landmarks", 30, "--neighbors", 8, "--sample", 1000, "--selections", "random", "--repeats", 2)
    code, out, _ = trigpoint("study", source, "--n-components", "auto", *options)
    assert code == 0
    assert "--n-components 2" in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"method": "mds", "input": "dissimilarities"}, "Euclidean distances between rows of numbers"),
        ({"method": "mds", "input": "similarities"}, "Euclidean distances between rows of numbers"),
        ({"method": "isomap", "input": "graph"}, "Euclidean distances between rows of numbers"),
        ({"method": "mds", "metric": "cosine"}, "the lengths of rows do not matter"),
        ({"method": "kernel-mds", "kernel": "cosine"}, "the lengths of rows do not matter"),
        ({"method": "spectral"}, "as many components as there are clusters"),
    ],
)
def test_is_refused_where_nothing_can_be_estimated(source, tmp_path, settings, why):
    with pytest.raises(InvalidInputError, match=f"n_components='auto' does not go with method=.*{why}.*use a number"):
        fitted(source, tmp_path / "run", **settings, n_components="auto")


def test_is_refused_in_memory_too():
    points = np.random.default_rng(0).random((50, 3))
    for given in ({"metric": "precomputed", "method": "mds"}, {"metric": max, "method": "mds"}):
        with pytest.raises(InvalidInputError, match="n_components='auto' does not go"):
            LandmarkIsomap(n_components="auto", **given).fit(points)
    with pytest.raises(InvalidInputError, match="n_components='two'"):
        LandmarkIsomap(n_components="two").fit(points)


def test_too_few_rows_or_a_grid_give_no_estimate(tmp_path):
    grid = np.stack(np.meshgrid(range(20), range(20)), axis=-1).reshape(-1, 2).astype(float)
    for name, rows in (("grid", grid), ("few", np.random.default_rng(0).random((15, 2)))):
        words = f"n_components='auto' needs an estimate of the intrinsic dimension, and {len(rows)} rows give none"
        np.save(tmp_path / f"{name}.npy", rows)
        with pytest.raises(InvalidInputError, match=words):
            fitted(tmp_path / f"{name}.npy", tmp_path / name, method="mds", n_components="auto", n_landmarks=10)
        with pytest.raises(InvalidInputError, match=words):
            LandmarkIsomap(method="mds", n_components="auto").fit(rows)


def test_the_estimate_of_any_fit_in_memory_is_made_when_it_is_asked_for():
    points = swiss_roll(600, 0).points
    estimator = LandmarkIsomap(8, n_landmarks=40, random_state=3).fit(points)
    rows = automatic_rows(600, 3, 3)
    assert estimator.intrinsic_dimension_ == dimension_of_points(np.ldexp(points[rows], -5), 8)
    assert estimator.n_components_ == 2
    between = np.abs(points[:50, :1] - points[:50, 0])
    assert (
        LandmarkIsomap(method="mds", metric="precomputed", n_landmarks=20, n_components=1)
        .fit(between)
        .intrinsic_dimension_
        is None
    )
