"""Short circuits on disk: found as in memory, however the data is cut, listed or left out, and nothing else changes."""

import json
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz
from scipy.sparse.csgraph import dijkstra
from small import extended, fitted

from flows.reports import shortcut_lines
from pipeline import LandmarkIsomap, open_run
from pipeline.errors import InvalidInputError, ShortcutWarning
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit, prepare_fit
from pipeline.jobs.refit import refit
from pipeline.numerics.datasets import bridged_roll, swiss_roll
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.settings import ClusterSettings, RefitSettings, fit_settings, job_settings
from pipeline.stages.publish import PUBLISHED

N_POINTS, N_BRIDGES = 20_000, 10
PLANTED = set(range(N_POINTS, N_POINTS + N_BRIDGES))
SETTINGS = {"n_neighbors": 10, "n_landmarks": 200}
pytestmark = pytest.mark.filterwarnings("ignore::pipeline.errors.ShortcutWarning")


def found_in(store):
    return open_run(store).stage_figures("shortcuts")


def digests(store):
    return {stage.stage: stage.digest for stage in open_run(store).status}


def published(store):
    return {name: open_run(store).embedding(name).tobytes() for name in PUBLISHED}


@pytest.fixture(scope="module")
def bridged(tmp_path_factory):
    """A roll with bridges between its turns, and runs that report and cut them."""
    folder = tmp_path_factory.mktemp("bridged")
    source = folder / "roll.npy"
    np.save(source, bridged_roll(N_POINTS, N_BRIDGES, seed=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortcutWarning)
        for shortcuts in ("report", "cut"):
            fitted(source, folder / shortcuts, shortcuts=shortcuts, **SETTINGS)
    return folder


def test_of_ten_bridges_at_least_nine_are_among_thirty_edges(bridged):
    listed = found_in(bridged / "report")["listed"]
    assert len(listed) <= 30
    assert len(PLANTED & {item["row"] for item in listed}) >= 9


def test_cut_the_roll_lies_flat(bridged):
    assert open_run(bridged / "report").quality["residual_variance"][1] > 0.1
    assert open_run(bridged / "cut").quality["residual_variance"][1] < 1e-3


def test_stages_before_are_shared_and_the_search_is_the_same(bridged):
    report, cut = digests(bridged / "report"), digests(bridged / "cut")
    same = {name for name in report if report[name] == cut[name]}
    assert {"graph", "shortcuts"} <= same
    assert {"components", "rows", "model", "publish"}.isdisjoint(same)
    assert found_in(bridged / "report") == found_in(bridged / "cut")


def test_lengths_are_those_of_the_graph_without_the_edges(bridged):
    opened, points = open_run(bridged / "cut"), np.load(bridged / "roll.npy")
    graph = neighbor_graph(*neighbors_within(points, 10, 1)).tolil()
    n_cut = 0
    first = np.concatenate(list(opened.parts("order", "first")))
    ends = (first[opened._ledger("components").read(name).read()] for name in ("cut_starts", "cut_ends"))
    for start, end in zip(*ends, strict=True):
        assert graph[start, end] > 0
        graph[start, end] = graph[end, start] = 0
        n_cut += 1
    assert n_cut == opened.stage_figures("components")["n_cut"] == found_in(bridged / "cut")["n_edges"]
    expected = dijkstra(csr_array(graph), indices=opened.landmark_rows[:8]).T
    lengths = np.concatenate([part[:, :8] for part in opened.parts("rows", "rows")], axis=0)[: len(points)]
    np.testing.assert_allclose(lengths * opened.unit, expected[first], rtol=1e-5)


def test_memory_and_disk_list_the_same(bridged):
    points = np.load(bridged / "roll.npy")
    with pytest.warns(ShortcutWarning, match="10 likely short circuits.*shortcuts='cut'") as caught:
        reported = LandmarkIsomap(random_state=0, **SETTINGS).fit(points)
    assert caught[0].filename == __file__
    listed = found_in(bridged / "report")["listed"]
    assert [item._asdict() for item in reported.short_circuits_] == [pytest.approx(item, rel=1e-6) for item in listed]
    cut = LandmarkIsomap(random_state=0, shortcuts="cut", **SETTINGS).fit(points)
    assert cut.short_circuits_ == reported.short_circuits_
    on_disk = open_run(bridged / "cut").embedding()
    np.testing.assert_allclose(cut.embedding_, on_disk, atol=1e-4 * np.abs(on_disk).max())


def test_the_size_of_partitions_and_workers_change_nothing(bridged, tmp_path):
    cluster = ClusterSettings(kind="local", n_workers=2)
    settings = fit_settings(
        {**SETTINGS, "source": str(bridged / "roll.npy"), "store": str(tmp_path / "run"), "shortcuts": "cut"}
        | {"partition_mib": 64}
    )
    with executor(cluster, tmp_path / "run") as execute:
        fit(settings, execute=execute)
    assert found_in(tmp_path / "run") == found_in(bridged / "cut")
    assert published(tmp_path / "run") == published(bridged / "cut")


def test_without_short_circuits_cutting_computes_nothing(tmp_path):
    np.save(tmp_path / "roll.npy", swiss_roll(5000, seed=0).points)
    fitted(tmp_path / "roll.npy", tmp_path / "run")
    assert found_in(tmp_path / "run") == {"n_found": 0, "n_edges": 0, "listed": []}
    again = fitted(tmp_path / "roll.npy", tmp_path / "run", shortcuts="cut")
    assert again.computed_partitions == []


def test_new_rows_on_the_roll_get_its_coordinates(bridged, tmp_path):
    new = np.load(bridged / "roll.npy")[:N_POINTS:100] + 1e-9
    np.save(tmp_path / "new.npy", new)
    extended(bridged / "cut", tmp_path / "new.npy", tmp_path / "batch")
    placed, known = open_run(tmp_path / "batch").embedding(), open_run(bridged / "cut").embedding()[:N_POINTS:100]
    np.testing.assert_allclose(placed, known, atol=1e-3 * np.abs(known).max())


def test_a_refit_cuts_as_the_run_before(bridged, tmp_path):
    points = bridged_roll(5000, 5, seed=2)
    np.save(tmp_path / "old.npy", points)
    np.save(tmp_path / "new.npy", swiss_roll(1000, seed=9).points)
    fitted(tmp_path / "old.npy", tmp_path / "run", shortcuts="cut", **SETTINGS)
    refit(job_settings(RefitSettings, {"store": str(tmp_path / "run"), "new": [str(tmp_path / "new.npy")]}))
    opened = open_run(tmp_path / "run")
    assert opened.manifest["settings"]["shortcuts"] == "cut"
    assert opened.stage_figures("components")["n_cut"] > 0
    assert opened.quality["residual_variance"][1] < 1e-2


@pytest.mark.parametrize("kind", ["radius", "graph"])
def test_radius_graphs_and_given_graphs_are_searched_too(tmp_path, kind):
    points = swiss_roll(3000, seed=1).points
    if kind == "graph":
        graph = neighbor_graph(*neighbors_within(points, 8, 1)).tolil()
        inner = int(np.argmin(np.linalg.norm(points[:, [0, 2]], axis=1)))
        outer = int(np.argmax(np.linalg.norm(points[:, [0, 2]], axis=1)))
        graph[inner, outer] = graph[outer, inner] = 5.0
        save_npz(tmp_path / "source.npz", csr_array(graph))
        settings, source, planted = {"input": "graph"}, tmp_path / "source.npz", {inner, outer}
    else:
        # Within the radius a chain of points, each 1.9 from the next, leads from turn to turn.
        t, height = 2 * np.pi, 10.0
        ends = [np.array([u * np.cos(u), height, u * np.sin(u)]) for u in (t, t + 2 * np.pi)]
        chain = [ends[0] + (ends[1] - ends[0]) * share for share in (0.25, 0.5, 0.75)]
        np.save(tmp_path / "source.npy", np.concatenate([points, chain]))
        settings, source, planted = {"radius": 1.95}, tmp_path / "source.npy", set(range(3000, 3003))
    fitted(source, tmp_path / "run", **settings)
    folded = open_run(tmp_path / "run").quality
    found = found_in(tmp_path / "run")
    assert {item["row"] for item in found["listed"]} | {item["other"] for item in found["listed"]} <= planted | set(
        range(3000)
    )
    assert all({item["row"], item["other"]} & planted for item in found["listed"])
    assert found["n_found"] >= 1
    fitted(source, tmp_path / "run", shortcuts="cut", **settings)
    assert open_run(tmp_path / "run").quality["normalized_stress"] < folded["normalized_stress"]


def test_commands_show_them(trigpoint, bridged):
    code, out, _ = trigpoint("status", bridged / "cut")
    assert code == 0
    assert "The graph has 10 likely short circuits (" in out
    assert "edges, cut)." in out
    assert "and 5 more" in out
    code, out, _ = trigpoint(
        "fit",
        bridged / "roll.npy",
        "--store",
        bridged / "report",
        "--n-landmarks",
        200,
        "--cluster-kind",
        "serial",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["figures"]["short_circuits"]["n_found"] == 10
    assert shortcut_lines({**found_in(bridged / "report"), "n_cut": 0})[0].endswith("not cut).")
    assert shortcut_lines(None) == []


def test_the_plan_counts_the_stage(bridged, tmp_path):
    settings = fit_settings({**SETTINGS, "source": str(bridged / "roll.npy"), "store": str(tmp_path / "run")})
    assert "shortcuts" in prepare_fit(settings).plan.seconds


@pytest.mark.parametrize(("settings", "message"), [({"method": "mds"}, "means nothing with method='mds'")])
def test_it_is_refused_where_there_is_no_graph(bridged, tmp_path, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        fitted(bridged / "roll.npy", tmp_path / "run", shortcuts="cut", **settings)
    with pytest.raises(InvalidInputError, match=message):
        LandmarkIsomap(shortcuts="cut", **settings).fit(np.eye(8))
    with pytest.raises(InvalidInputError, match="shortcuts='none' is not known; use one of 'report', 'cut'"):
        LandmarkIsomap(shortcuts="none").fit(np.eye(8))
