"""refit as a user runs it, and what other commands say of versions; the flow of the same name."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows import refit
from pipeline import open_run
from pipeline.errors import InvalidInputError
from pipeline.jobs.fit import fit as fit_here
from pipeline.jobs.refit import STAGES
from pipeline.jobs.refit import refit as refit_here
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import RefitSettings, fit_settings, job_settings

SERIAL = ("--cluster-kind", "serial")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A roll in three files, a run on the first, and one fitted again with the second; not to be changed."""
    folder = tmp_path_factory.mktemp("runs")
    files = {}
    for name, rows in zip(
        ("old", "new", "newer"), np.split(swiss_roll(2600, seed=0).points, [2000, 2300]), strict=True
    ):
        files[name] = folder / f"{name}.npy"
        np.save(files[name], rows)
    given = {"source": str(files["old"]), "store": str(folder / "once"), "n_neighbors": 8, "n_landmarks": 60}
    fit_here(fit_settings(given))
    shutil.copytree(folder / "once", folder / "twice")
    refit_here(job_settings(RefitSettings, {"store": str(folder / "twice"), "new": str(files["new"])}))
    return SimpleNamespace(once=folder / "once", twice=folder / "twice", **files)


@pytest.fixture
def once(runs, tmp_path):
    """The run on the first file, to be changed."""
    return shutil.copytree(runs.once, tmp_path / "run")


@pytest.fixture
def twice(runs, tmp_path):
    """The run that was fitted again, to be changed."""
    return shutil.copytree(runs.twice, tmp_path / "run")


def test_it_says_what_it_does_and_then_that_there_is_nothing_to_do(trigpoint, runs, once, tmp_path):
    command = ("refit", once, "--new", f"{runs.new},{runs.newer}", *SERIAL)
    code, out, err = trigpoint(*command, "--picture", tmp_path / "picture.png")
    assert (code, err) == (0, "")
    assert re.match(rf".*old\.npy and 2 more \([\d,]+ rows x \d+ columns\) -> {once}, version 2, about \d+ s\n", out)
    assert re.search(r"\n  register +1 partition +\d+\.\d s\n", out)
    assert re.search(
        r"\nTurned onto version 1 on 60 of its landmarks: they are [\d.]+ from where they were, \d\.\d+%", out
    )
    assert "\nVersion 2 is published: 2,000 old and 600 new rows.\n" in out
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = trigpoint(*command)
    assert code == 0
    assert "Every stage was complete already: nothing was computed." in out
    assert "Version 2 is published" in out


def test_figures_for_other_programs(trigpoint, runs, once):
    code, out, _ = trigpoint("refit", once, "--new", runs.new, "--name", "spring", *SERIAL, "--json")
    report = json.loads(out)
    assert code == 0
    assert (report["version"], report["registered_to"]) == ("spring", "1")
    assert report["rows"] == {"old": 2000, "new": 300}
    assert report["figures"]["n_embedded"] == 2300
    assert report["registration"]["n_shared"] == 60
    assert report["registration"]["rms_after"] <= report["registration"]["rms_before"]
    assert report["quality"] == open_run(once).quality


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no new data: none is given"),
        (["--new", "nowhere.npy"], "nowhere.npy does not exist"),
        (["--incoming", "nowhere"], "incoming='nowhere' is not a folder"),
        (["--new", "NEW", "--name", "1"], "name='1' is a version already"),
        (["--new", "NEW", "--n-components", "3"], "No such option"),
    ],
)
def test_what_cannot_be_done_is_exit_code_2_in_words(trigpoint, runs, once, arguments, message):
    given = [str(runs.new) if argument == "NEW" else argument for argument in arguments]
    code, out, err = trigpoint("refit", once, *given, *SERIAL)
    assert code == 2
    assert message in err
    assert "Traceback" not in out + err


def test_settings_stand_in_a_table_of_the_file(trigpoint, runs, once, tmp_path):
    (tmp_path / "run.toml").write_text(
        f'store = "{once}"\nn_neighbors = 8\n[cluster]\nkind = "serial"\n[refit]\nnew = ["{runs.new}"]\nname = "b"\n'
    )
    assert json.loads(trigpoint("refit", "--config", tmp_path / "run.toml", "--json")[1])["version"] == "b"


def test_status_lists_versions(trigpoint, runs):
    assert trigpoint("status", runs.twice)[1].splitlines()[-3:] == [
        "  version 1: 2,000 rows",
        "  version 2: 2,300 rows, published",
        f"{runs.twice}: published.",
    ]
    assert json.loads(trigpoint("status", runs.twice, "--json")[1])["versions"] == [
        {"name": "1", "n_rows": 2000, "published": False},
        {"name": "2", "n_rows": 2300, "published": True},
    ]
    assert "version" not in trigpoint("status", runs.once)[1]


def test_export_writes_the_version_it_is_told(trigpoint, runs, tmp_path):
    for name, n_rows in (("1", 2000), ("2", 2300)):
        code, out, _ = trigpoint("export", runs.twice, "--version", name, "--output", tmp_path / "y.npy")
        assert (code, out) == (0, f"{n_rows:,} rows of projection are in {tmp_path / 'y.npy'}.\n")
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), open_run(runs.twice, name).embedding())
    code, _, err = trigpoint("export", runs.twice, "--version", "3", "--output", tmp_path / "y.npy")
    assert code == 2
    assert err.endswith("; versions: 1, 2.\n")


def test_gc_keeps_versions_until_it_is_told_otherwise(trigpoint, twice):
    assert json.loads(trigpoint("gc", twice, "--json")[1]) == {"removed": [], "bytes": 0}
    code, out, _ = trigpoint("gc", twice, "--keep-versions", 1)
    assert code == 0
    assert out.startswith("  dropped version 1\n  removed validate/")
    assert open_run(twice).versions == ["2"]
    assert trigpoint("verify", twice)[1] == "Nothing is damaged.\n"
    assert json.loads(trigpoint("gc", twice, "--keep-versions", 1, "--json")[1])["versions"] == []
    assert trigpoint("gc", twice, "--keep-versions", 0)[0] == 2


@pytest.mark.filterwarnings("ignore::pipeline.errors.ComponentWarning")
def test_a_version_whose_graph_is_in_more_pieces_than_before_is_told(trigpoint, tmp_path):
    """Not one that has as many, nor the first."""
    points = swiss_roll(700, seed=0).points
    for name, rows in (("old", points[:500]), ("far", points[500:600] + 1000), ("more", points[600:])):
        np.save(tmp_path / f"{name}.npy", rows)
    store, small = tmp_path / "run", ("--n-neighbors", 8, "--n-landmarks", 40)
    assert "more pieces" not in trigpoint("fit", tmp_path / "old.npy", "--store", store, *small, *SERIAL)[1]
    code, out, _ = trigpoint("refit", store, "--new", tmp_path / "far.npy", *SERIAL)
    assert code == 0
    assert re.search(
        "\nThe graph is in more pieces than that of version 1: 1 link between them, where it had 0.\n", out
    )
    code, out, _ = trigpoint("refit", store, "--new", f"{tmp_path / 'far.npy'},{tmp_path / 'more.npy'}", *SERIAL)
    assert (code, "more pieces" in out) == (0, False)


def test_the_version_before_may_be_gone_when_the_same_refit_is_asked_for_again(trigpoint, runs, twice):
    assert trigpoint("gc", twice, "--keep-versions", 1)[0] == 0
    assert open_run(twice).versions == ["2"]
    code, out, err = trigpoint("refit", twice, "--new", runs.new, *SERIAL)
    assert (code, err) == (0, "")
    assert "nothing was computed" in out


def test_gc_leaves_nothing_of_a_refit_that_is_not_published(trigpoint, runs, twice):
    """Also of its registration."""
    fit_here(fit_settings({"source": str(runs.old), "store": str(twice), "n_neighbors": 8, "n_landmarks": 60}))
    (twice / "versions" / "2.json").unlink()
    removed = json.loads(trigpoint("gc", twice, "--json")[1])["removed"]
    assert {path.split("/")[0] for path in removed} == {*STAGES} - {"axes"}


@pytest.mark.cluster
def test_the_flow_has_a_task_for_each_stage(runs, once):
    with prefect_test_harness(server_startup_timeout=120):
        settings = {"store": str(once), "new": [str(runs.new)], "cluster": {"kind": "serial"}}
        report = refit(**settings)
        with get_client(sync_client=True) as client:
            (flow_run,) = client.read_flow_runs()
            artifacts = client.request("POST", "/artifacts/filter", json={}).json()
        assert refit(job_settings(RefitSettings, settings))["n_computed"] == 0
        with pytest.raises(InvalidInputError, match="settings are given, and name besides"):
            refit(job_settings(RefitSettings, settings), name="x")
    assert flow_run.state.is_completed()
    assert set(report["computed"]) == {*STAGES} - {"axes"}
    assert {artifact["key"] for artifact in artifacts} >= {"refit-figures", "refit-picture"}
    assert open_run(once).embedding().tobytes() == open_run(runs.twice).embedding().tobytes()
