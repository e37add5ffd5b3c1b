"""fit, status, verify, gc and export as a user runs them: words, figures, exit codes."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline.numerics.datasets import swiss_roll
from pipeline.results.run import open_run

COMMAND = Path(sys.executable).with_name("trigpoint")
SMALL = ("--n-neighbors", "8", "--n-landmarks", "60", "--cluster-kind", "serial")
# Rows whose graph is in two components.
TWO = np.vstack([np.arange(40.0)[:, None], np.arange(5000.0, 5040)[:, None]])


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "roll.npy"
    np.save(path, swiss_roll(3000, seed=0).points)
    return path


@pytest.fixture(scope="module")
def store(source):
    path = source.with_name("run.zarr")
    subprocess.run([COMMAND, "fit", source, "--store", path, *SMALL], check=True, capture_output=True, timeout=200)
    return path


def test_a_fit_says_what_it_does_and_then_that_there_is_nothing_to_do(trigpoint, source, tmp_path):
    code, out, err = trigpoint("fit", source, "--store", tmp_path / "run", *SMALL)
    assert (code, err) == (0, "")
    assert "publish" in out
    assert "3,000 of 3,000 rows embedded; 3,000 distinct." in out
    assert "\nIntrinsic dimension 2." in out
    code, out, err = trigpoint("fit", source, "--store", tmp_path / "run", *SMALL)
    assert (code, err) == (0, "")
    assert "Every stage was complete already: nothing was computed." in out
    assert "partition" not in out


def test_plan_and_fit_say_what_is_used_of_the_source(trigpoint, tmp_path):
    images = np.random.default_rng(0).normal(size=(1100, 4, 3))
    np.savez(tmp_path / "x.npz", images=images, names=np.arange(1100))
    told = (tmp_path / "x.npz", "--key", "images", "--id-column", "names", "--exclude", "0-1")
    size = f"{tmp_path}/x.npz (1,100 rows x 10 columns, flattened from 1,100 x 4 x 3)"
    code, out, _ = trigpoint("plan", *told, "--store", tmp_path / "run", *SMALL)
    assert (code, out.splitlines()[0]) == (0, size)
    value = json.loads(trigpoint("plan", *told, "--store", tmp_path / "run", *SMALL, "--json")[1])
    assert value["data"] == size
    code, out, _ = trigpoint("fit", *told, "--store", tmp_path / "run", *SMALL, "--method", "mds")
    assert code == 0
    assert out.startswith(f"{size} -> {tmp_path}/run, about ")


@pytest.mark.filterwarnings("ignore::pipeline.errors.ScaleWarning")
def test_fit_and_status_name_a_column_that_dominates(trigpoint, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(1100, 3)) * [1.0, 1e3, 1.0])
    told = ("fit", tmp_path / "x.npy", "--store", tmp_path / "run", *SMALL, "--method", "mds")
    line = "Column '1' carries 99.99% of the variance of all 3 columns"
    code, out, _ = trigpoint(*told)
    assert code == 0
    assert line in out
    assert line in trigpoint("status", tmp_path / "run")[1]
    value = json.loads(trigpoint("status", tmp_path / "run", "--json")[1])
    assert value["dominating_columns"]["columns"] == ["1"]
    assert json.loads(trigpoint(*told, "--json")[1])["figures"]["dominating_columns"] == value["dominating_columns"]


@pytest.mark.filterwarnings("always::pipeline.errors.ComponentWarning")
def test_fit_and_status_say_what_became_of_a_graph_in_pieces(trigpoint, tmp_path):
    np.save(tmp_path / "x.npy", TWO)
    told = ("fit", tmp_path / "x.npy", "--store", tmp_path / "run", *SMALL, "--n-components", 1)
    line = "The neighbor graph is in 2 components (rows: 40, 40), joined by a link, the shortest there is."
    for _ in range(2):
        code, out, err = trigpoint(*told)
        assert code == 0
        assert err.startswith(f"warning: {line}")
        assert "2 components" in out
    _, out, err = trigpoint("status", tmp_path / "run")
    assert ("2 components" in out, err) == (True, "")
    fitted, status = (json.loads(trigpoint(*some, "--json")[1]) for some in (told, ("status", tmp_path / "run")))
    for found in (fitted["figures"]["components"], status["components"]):
        assert (found["n_components"], found["n_bridges"], found["enough"]) == (2, 1, 40)


def test_only_the_last_stages_run_again_for_another_number_of_components(trigpoint, source, store, tmp_path):
    report = json.loads(trigpoint("fit", source, "--store", store, *SMALL, "--n-components", 3, "--json")[1])
    assert {name for name, n in report["computed"].items() if n} == {
        "model",
        "embed",
        "calibrate",
        "pairs",
        "evaluate",
        "publish",
    }
    assert len(report["quality"]["residual_variance"]) == 3
    code, out, _ = trigpoint("gc", store)
    assert code == 0
    assert [line.split()[1].split("/")[0] for line in out.splitlines()[:-1]] == [
        "model",
        "embed",
        "calibrate",
        "pairs",
        "evaluate",
        "publish",
    ]
    assert "MiB freed." in out
    assert json.loads(trigpoint("gc", store, "--json")[1]) == {"removed": [], "bytes": 0}
    assert trigpoint("verify", store)[0] == 0


def test_every_setting_can_stand_in_a_file(trigpoint, source, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        f'source = "{source}"\nstore = "{tmp_path / "run"}"\nn_neighbors = 8\nn_landmarks = 60\n'
        '[cluster]\nkind = "serial"\n'
    )
    assert trigpoint("fit", "--config", file)[0] == 0
    code, out, _ = trigpoint("fit", "--config", file, "--n-neighbors", "8")
    assert code == 0
    assert "nothing was computed" in out


def test_status_counts_and_says_when_all_is_published(trigpoint, store):
    code, out, _ = trigpoint("status", store)
    assert code == 0
    assert out.splitlines()[0] == "  validate    complete"
    assert out.splitlines()[-1] == f"{store}: published."
    value = json.loads(trigpoint("status", store, "--json")[1])
    assert value["published"]
    assert [stage["stage"] for stage in value["stages"]][-1] == "publish"


def test_verify_names_what_is_damaged(trigpoint, source, tmp_path):
    store = tmp_path / "run"
    trigpoint("fit", source, "--store", store, *SMALL)
    assert trigpoint("verify", store)[1] == "Nothing is damaged.\n"
    chunk = next((store / "publish").glob("*/projection/c.0.0"))
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(bytes(data))
    entry = next((store / "order").glob("*/ledger/partition-00000000.json"))
    entry.write_text(entry.read_text().replace('"n_rows":3000', '"n_rows":3001'))
    code, out, _ = trigpoint("verify", store)
    assert code == 1
    assert "projection/c.0.0" in out
    assert "partition-00000000.json is damaged: it is not as it was written" in out
    assert out.splitlines()[-1] == "2 damaged."
    assert len(json.loads(trigpoint("verify", store, "--json")[1])["damaged"]) == 2


def test_a_run_is_slimmed_when_that_is_confirmed(trigpoint, source, store, tmp_path, monkeypatch):
    run = shutil.copytree(store, tmp_path / "run")
    whole, command = open_run(run).embedding().tobytes(), ("gc", run, "--retain", "results")
    code, out, err = trigpoint(*command)
    assert (code, err) == (2, "trigpoint: nobody can be asked here whether to delete this; say so with --yes.\n")
    assert re.match(
        r"\d+\.\d MiB of published results can be freed\.\n`extend` and `export --model` stop working\. A", out
    )
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    code, _, err = trigpoint(*command)
    assert (code, "Delete it? [y/N]" in err) == (1, True)
    assert json.loads(trigpoint("status", run, "--json")[1])["retained"] is None
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    code, out, _ = trigpoint(*command)
    assert (code, "MiB freed." in out) == (0, True)
    assert open_run(run).embedding().tobytes() == whole
    assert trigpoint("verify", run)[:2] == (0, "Nothing is damaged.\n")
    line = "slimmed by `trigpoint gc --retain results`; the same fit again computes what is missing"
    assert line in trigpoint("status", run)[1]
    code, _, err = trigpoint("extend", run, source, "--output", tmp_path / "out", "--cluster-kind", "serial")
    assert (code, "was freed by `trigpoint gc --retain results`" in err) == (2, True)
    value = json.loads(trigpoint(*command, "--yes", "--json")[1])
    assert value == {"removed": [], "bytes": 0, "retained": "results"}
    assert trigpoint("fit", source, "--store", run, *SMALL)[0] == 0
    assert json.loads(trigpoint("status", run, "--json")[1])["retained"] is None
    assert "No command stops working." in trigpoint("gc", run, "--retain", "extendable", "--yes")[1]


class Terminal(io.StringIO):
    """Where somebody types."""

    def isatty(self):
        return True


def test_export_writes_the_file_it_is_told(trigpoint, store, tmp_path):
    code, out, _ = trigpoint("export", store, "--array", "projection", "--output", tmp_path / "y.npy")
    assert (code, out) == (0, f"3,000 rows of projection are in {tmp_path / 'y.npy'}.\n")
    assert np.load(tmp_path / "y.npy").shape[0] == 3000


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.array([[1.0, np.nan], [2, 3]] * 50), [], "NaN or infinite entries"),
        (np.ones((100, 3)), [], "all 100 rows of .* are identical"),
        (np.random.default_rng(0).normal(size=(9, 2)), ["--n-neighbors", "9"], "n_neighbors=9 is out of range"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--n-landmarks", "0"], "n_landmarks=0 is out of range"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--n-landmarks", "91"], "n_landmarks=91 is out of range"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--n-landmarks", "2"], "from 3 to 90"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--n-components", "0"], "n_components='0'"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--n-neighbors", "0"], "n_neighbors='0'"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--n-neighbors", "x"], "n_neighbors='x'"),
        (np.arange(90.0)[:, None] ** 3, ["--n-components", "80", "--n-landmarks", "90"], "positive eigenvalue"),
        (np.repeat(np.arange(4.0)[:, None], 50, axis=0), ["--n-neighbors", "9"], "4 distinct rows"),
        (TWO, ["--component-policy", "error"], "2 components, of sizes 40, 40"),
        (np.full((50, 2), 1e200), [], "leave double precision"),
        (np.empty((0, 3)), [], "empty"),
        (np.arange(9.0), [], "2 dimensions"),
        (np.array([["a", "b"]]), [], "real numbers"),
        (np.ones((5, 2)) * 1j, [], "real numbers"),
        (np.array([[1, "a"]], dtype=object), [], "real numbers|not a numpy file"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--diagonal-weight", "-1"], "diagonal_weight='-1'"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--pca", "3"], "pca=3 is out of range"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--columns", "0,5"], "5"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--key", "X"], "key='X'"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--n-neighbours", "3"], "--n-neighbors"),
        (np.random.default_rng(0).normal(size=(90, 2)), ["--component-policy", "join"], "'bridge' or 'largest'"),
    ],
)
def test_bad_input_is_exit_code_2_in_words(trigpoint, tmp_path, array, options, message):
    np.save(tmp_path / "x.npy", array)
    serial = ("--cluster-kind", "serial")
    code, out, err = trigpoint("fit", tmp_path / "x.npy", "--store", tmp_path / "run", *serial, *options)
    assert code == 2
    assert re.search(message, err), err
    assert "Traceback" not in err + out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit"], "Missing argument SOURCE; Missing argument STORE."),
        (["fit", "nowhere.npy", "--store", "run"], "does not exist"),
        (["fit", "points.xyz", "--store", "run"], "no known kind"),
        (["fit", "s3://bucket/x.zarr", "--store", "run"], "local"),
        (["status", "nowhere"], "store='nowhere' does not exist"),
        (["export", "nowhere", "--output", "y.npy"], "store='nowhere' does not exist"),
        (["gc", "nowhere"], "store='nowhere' does not exist"),
        (["verify", "nowhere"], "store='nowhere' does not exist"),
    ],
)
def test_what_is_not_there_is_named(trigpoint, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.xyz").touch()
    code, _, err = trigpoint(*arguments)
    assert code == 2
    assert message in err
    assert not (tmp_path / "run").exists()


def test_misspelt_settings_in_a_file_are_named(trigpoint, source, tmp_path):
    (tmp_path / "run.toml").write_text("n_neighbours = 5\n")
    code, _, err = trigpoint("fit", source, "--store", tmp_path / "run", "--config", tmp_path / "run.toml")
    assert (code, err) == (2, "trigpoint: setting 'n_neighbours' is not known; did you mean 'n_neighbors'?\n")


def test_a_store_that_cannot_be_written_is_refused_before_computing(trigpoint, source, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    code, out, err = trigpoint("fit", source, "--store", tmp_path / "file" / "run", *SMALL)
    assert code == 1
    assert "cannot be written: Not a directory" in err
    assert "validate" not in out


def test_a_warning_is_said_when_the_search_finds_too_few(tmp_path):
    """Points without structure in many dimensions: many of their neighbors are in far cells. Said every time."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(9000, 30)).astype(np.float32))
    command = [COMMAND, "fit", tmp_path / "x.npy", "--store", tmp_path / "run", *SMALL, "--recall", "0.6", "--json"]
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
        assert result.stderr.startswith("warning: The neighbor search finds")
        assert json.loads(result.stdout)["quality"]["recall"] < 0.99


def test_interrupted_it_stops_in_words_and_gives_the_store_back(source, tmp_path):
    # So many landmarks that it has long to go.
    command = [COMMAND, "fit", source, "--store", tmp_path / "run", *SMALL, "--n-landmarks", "2500"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(process, tmp_path / "run", "rows/*/ledger/partition-00000000.json")
    process.send_signal(signal.SIGINT)
    stopped, _, again = process.communicate(timeout=60)[1].rpartition(" To go on: ")
    assert stopped == "trigpoint: stopped; what is complete is kept."
    program, *arguments = shlex.split(again)
    assert program in {str(COMMAND), "trigpoint"}  # the name alone where the search path finds it
    assert arguments == [str(word) for word in command[1:]]
    assert process.returncode == 130
    assert json.loads((tmp_path / "run" / "lease" / "00000001.json").read_text())["released"]


def left_unread(n_lines, *command):
    """What a command says of faults, and how it ends, whose output nobody reads after some lines."""
    with subprocess.Popen([COMMAND, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(n_lines)]
        process.stdout.close()
        return lines, process.stderr.read(), process.wait(timeout=60)


@pytest.mark.parametrize("kind", ["serial", "auto"])
def test_a_fit_goes_on_in_silence_when_nobody_reads_what_it_prints(source, tmp_path, kind):
    """As in `trigpoint fit ... | head -1`."""
    run = tmp_path / "run"
    (line,), faults, code = left_unread(1, "fit", source, "--store", run, *SMALL, "--cluster-kind", kind)
    assert line.startswith(str(source))
    assert (faults, code) == ("", 0)
    assert open_run(run).is_current
    assert open_run(run).damaged() == []


def test_a_report_that_nobody_reads_is_no_fault(store):
    assert left_unread(0, "status", store, "--json") == ([], "", 0)


def wait_for(process, root, pattern):
    """Until the process has written such a file."""
    deadline = time.monotonic() + 120
    while not list(root.glob(pattern)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_killed_it_goes_on_where_it_stopped(source, store, tmp_path):
    """A real process and a real SIGKILL, as soon as the neighbors are found."""
    run = tmp_path / "run"
    command = [COMMAND, "fit", source, "--store", run, *SMALL]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(process, run, "neighbors/*/ledger/finished.json")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=200, check=True)
    computed = json.loads(again.stdout)["computed"]
    assert computed["neighbors"] == computed["order"] == 0
    assert computed["publish"] == 1
    fresh = tmp_path / "fresh"
    subprocess.run([*command[:3], "--store", fresh, *SMALL], capture_output=True, timeout=200, check=True)
    some, others = (sorted(path.glob("publish/*/*/c.*")) for path in (run, fresh))
    assert [path.read_bytes() for path in some if path.is_file()] == [p.read_bytes() for p in others if p.is_file()]
    assert not list(run.rglob("*.partial"))
