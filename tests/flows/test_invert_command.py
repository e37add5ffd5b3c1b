"""invert as a command and as a flow: what it says, strips of images, exit codes, a record."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows import invert
from flows.pictures import shown_steps, strip_images
from flows.runner import InvertJob
from pipeline import open_run
from pipeline.jobs.fit import fit
from pipeline.methods import RADIAL_FUNCTIONS
from pipeline.settings import InvertSettings, fit_settings, job_settings
from pipeline.stages.inverse.invert import ERRORS, FLAGS, JUDGED, OUTSIDE

SERIAL = ("--cluster-kind", "serial")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on images of 4 x 6: a bright spot that goes to and fro, embedded by one coordinate and another."""
    folder = tmp_path_factory.mktemp("images")
    across, down = np.random.default_rng(0).uniform([0, 0], [5, 3], size=(600, 2)).T
    rows, columns = np.meshgrid(np.arange(4), np.arange(6), indexing="ij")
    spots = np.exp(-((rows - down[:, None, None]) ** 2) / 4 - (columns - across[:, None, None]) ** 2 / 4)
    np.save(folder / "images.npy", spots.reshape(600, 24))
    given = {"source": str(folder / "images.npy"), "store": str(folder / "run"), "n_landmarks": 60, "method": "mds"}
    fit(fit_settings(given))
    np.save(folder / "points.npy", open_run(folder / "run").embedding())
    return folder


def asked(folder, output, *arguments):
    return ("invert", folder / "run", *arguments, "--output", output, *SERIAL)


def test_the_command_says_what_came_back(trigpoint, folder, tmp_path):
    queries = np.load(folder / "points.npy")[:40]
    queries[3], queries[4] = np.nan, 50.0
    np.save(tmp_path / "queries.npy", queries)
    command = asked(folder, tmp_path / "out", tmp_path / "queries.npy", "--n-neighbors", 30)
    code, out, err = trigpoint(*command)
    assert (code, err) == (0, "")
    assert "queries.npy in the space of" in out
    assert "40 queries, from" in out
    assert "1 outside: farther than 3 fill distances from every embedded point." in out
    assert "undefined               1  not finite, values are NaN" in out
    code, out, _ = trigpoint(*command)
    assert "Every stage was complete already: nothing was computed." in out
    code, out, _ = trigpoint(*command, "--outside", 1e6, "--json")
    report = json.loads(out)
    assert (report["n_rows"], report["n_outside"], report["flags"]["undefined"]) == (40, 0, 1)
    assert report["computed"]["publish"] == report["n_computed"] == 1
    code, _, _ = trigpoint("export", tmp_path / "out", "--array", "values", "--output", tmp_path / "values.npy")
    assert code == 0
    rows = np.load(folder / "images.npy")[[0, 1, 2, *range(5, 40)]]
    np.testing.assert_allclose(np.delete(np.load(tmp_path / "values.npy"), [3, 4], axis=0), rows, atol=1e-8)
    code, out, _ = trigpoint("status", tmp_path / "out")
    assert "invert      complete" in out
    assert trigpoint("verify", tmp_path / "out")[0] == 0
    code, out, _ = trigpoint("gc", tmp_path / "out", "--json")
    # The first threshold's results.
    assert len(json.loads(out)["removed"]) == 1


def test_rows_left_out_have_a_mean_error(trigpoint, folder, tmp_path):
    command = asked(folder, tmp_path / "out", "--leave-one-out", "--sample", 50)
    code, out, err = trigpoint(*command)
    assert (code, err) == (0, "")
    errors = open_run(tmp_path / "out").embedding("error")
    assert "50 of 600 rows left out, one at a time." in out
    assert f"Mean error {np.nanmean(errors):.4g} in the units of the data" in out
    report = json.loads(trigpoint(*command, "--json")[1])
    assert report["mean_error"] == pytest.approx(np.nanmean(errors))
    assert report["n_left_out"] == np.isfinite(errors).sum() == 50


@pytest.mark.parametrize("order", ["", ",column-major"])
def test_a_path_is_drawn_as_a_strip_with_the_real_images_at_its_ends(trigpoint, folder, tmp_path, order):
    data = np.load(folder / "images.npy")
    path = ("--path", "3,10", "--steps", 5, "--along", "data", "--image", f"4x6{order}")
    code, out, err = trigpoint(*asked(folder, tmp_path / "out", *path, "--picture", tmp_path / "strip.png"))
    assert (code, err) == (0, "")
    assert "From row 3 to row 10 along the data, 5 steps, in the space of" in out
    assert f"The strip is in {tmp_path / 'strip.png'}." in out
    told = {"store": str(folder / "run"), "output": str(tmp_path / "out"), "path": (3, 10), "steps": 5}
    settings = job_settings(InvertSettings, {**told, "along": "data", "image": f"4x6{order}"})
    images = strip_images(settings, InvertJob(settings).data)
    layout = "F" if order else "C"
    assert images.shape == (7, 4, 6)
    for place, row in ((0, 3), (1, 3), (-2, 10), (-1, 10)):
        np.testing.assert_allclose(images[place], data[row].reshape((4, 6), order=layout), atol=1e-8)
    drawn = image.imread(tmp_path / "strip.png")
    # Images side by side: seven are wider than they are high.
    assert drawn.shape[1] > 4 * drawn.shape[0]


@pytest.mark.parametrize("n_steps", [2, 9, 24, 25, 10_000])
def test_a_strip_shows_all_steps_or_some_evenly_spaced_with_both_ends(n_steps):
    shown = shown_steps(n_steps)
    assert len(shown) == min(n_steps, 24)
    assert (shown[0], shown[-1]) == (0, n_steps - 1)
    assert np.ptp(np.diff(shown)) <= 1


def test_a_long_path_is_drawn_in_part_and_said_to_be(trigpoint, folder, tmp_path):
    path = ("--path", "3,10", "--steps", 60, "--image", "4x6", "--picture", tmp_path / "strip.png")
    code, out, err = trigpoint(*asked(folder, tmp_path / "out", *path))
    assert (code, err) == (0, "")
    assert f"The strip is in {tmp_path / 'strip.png'}, with 24 of the 60 steps, evenly spaced." in out
    assert open_run(tmp_path / "out").embedding("values").shape == (60, 24)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("wide.npy",), "has 3 columns; the run has 2 coordinates"),
        (("empty.npy",), "it is empty"),
        ((), "trigpoint: give exactly one of coordinates, leave_one_out and path.\n"),
        (("--path", "3,600"), "path=600 is out of range"),
        (("--path", "3,x"), "path="),
        (("--path", "3"), "two rows are needed, such as 7,0"),
        (("--path", "3,4", "--image", "5x5"), "image='5x5' has 25 pixels; the data has 24 columns"),
        (("--path", "3,4", "--picture", "strip.png"), "needs a path and the size of an image"),
        (("--leave-one-out", "--source", "gone.npy"), "gone.npy does not exist"),
        (("--leave-one-out", "--source", "other.npy"), "rows 0 to 600 of other.npy are not those that were fitted"),
    ],
)
def test_bad_input_is_exit_code_2(trigpoint, folder, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    np.save("wide.npy", np.zeros((5, 3)))
    np.save("empty.npy", np.zeros((0, 2)))
    np.save("other.npy", np.load(folder / "images.npy")[::-1])
    code, _, err = trigpoint(*asked(folder, "out", *arguments))
    assert code == 2
    assert message in err
    if "other.npy" not in arguments:
        assert not (tmp_path / "out").exists()


def test_the_file_of_settings_has_a_table_for_it(trigpoint, folder, tmp_path):
    lines = [f'source = "{folder / "images.npy"}"', f'store = "{folder / "run"}"', "[invert]"]
    lines += [f'output = "{tmp_path / "out"}"', "path = [3, 10]", "steps = 4", "[cluster]", 'kind = "serial"']
    (tmp_path / "run.toml").write_text("\n".join(lines))
    code, out, err = trigpoint("invert", "--config", tmp_path / "run.toml")
    assert (code, err) == (0, "")
    assert "4 queries" in out
    assert trigpoint("plan", "--config", tmp_path / "run.toml", "--method", "mds")[0] == 0


@pytest.mark.cluster
def test_it_is_a_flow_with_a_record(folder, tmp_path):
    given = {"store": str(folder / "run"), "path": (3, 10), "image": "4x6", "cluster": {"kind": "serial"}}
    with prefect_test_harness(server_startup_timeout=120):
        report = invert(**given, output=str(tmp_path / "out"))
        with get_client(sync_client=True) as client:
            artifacts = client.request("POST", "/artifacts/filter", json={}).json()
    assert report["n_rows"] == open_run(tmp_path / "out").n_rows == 9
    kinds = {artifact["key"].split("-")[0]: artifact["type"] for artifact in artifacts if artifact["key"]}
    assert kinds == {"inversion": "table", "strip": "image"}


def test_the_page_on_the_inverse_names_every_setting_array_and_flag():
    page = (Path(__file__).parent.parent.parent / "docs" / "inverse.md").read_text()
    for name in (*InvertSettings.model_fields, *RADIAL_FUNCTIONS, "values", *ERRORS, *JUDGED, OUTSIDE, *FLAGS):
        assert f"`{name}`" in page, name
    for name, flag in FLAGS.items():
        assert f"| `{name}` | {flag} |" in page
