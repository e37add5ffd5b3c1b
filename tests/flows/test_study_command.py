"""The command `trigpoint study`: what it prints, writes and refuses."""

import json
import shlex

import numpy as np
import pytest

from pipeline.numerics.datasets import swiss_roll

QUICK = ("--repeats", 2, "--landmarks", "20,60", "--neighbors", "7,12", "--selections", "maxmin,random")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Standardized it still has no edges from turn to turn with 12 neighbors; with 500 points it has 25."""
    path = tmp_path_factory.mktemp("data") / "a roll.npy"
    np.save(path, swiss_roll(1500, seed=0).points)
    return path


def test_it_prints_tables_and_a_command_that_fits_as_recommended(trigpoint, source, tmp_path):
    store = tmp_path / "run"
    told = ("--store", store, "--standardize", "--seed", 3, "--component-policy", "error", "--cluster-kind", "serial")
    code, out, _ = trigpoint("study", source, *QUICK, *told)
    assert code == 0
    lines = out.splitlines()
    assert sum(line.startswith("Intrinsic dimension ") for line in lines) == 1
    assert lines.count("  landmarks    time       maxmin      random") == 2
    assert [line.split()[0] for line in lines if line.endswith("neighbors:")] == ["7", "12"]
    assert sum(line.count("*") for line in lines[:-1]) == 2
    assert not store.exists()
    command = shlex.split(lines[-1])
    assert command[1:5] == ["fit", str(source), "--store", str(store)]
    code, out, _ = trigpoint(*command[1:], "--json")
    assert code == 0
    fitted = json.loads(out)
    assert str(fitted["figures"]["n_landmarks"]) == command[command.index("--n-landmarks") + 1]
    for part in (["--standardize"], ["--seed", "3"], ["--component-policy", "error"], ["--cluster-kind", "serial"]):
        place = command.index(part[0])
        assert command[place : place + len(part)] == part


def test_json_says_all_and_the_picture_is_drawn(trigpoint, source, tmp_path):
    picture = tmp_path / "study.png"
    code, out, _ = trigpoint("study", source, *QUICK, "--json", "--picture", picture)
    assert code == 0
    found = json.loads(out)
    assert found["intrinsic_dimension"]["two_nearest"]["value"] == pytest.approx(2, rel=0.2)
    assert [(t["n_neighbors"], t["selection"], t["n_landmarks"]) for t in found["trials"]] == [
        (k, selection, m) for k in (7, 12) for selection in ("maxmin", "random") for m in (20, 60)
    ]
    for trial in found["trials"]:
        assert trial["error"] == pytest.approx(np.mean(trial["errors"]))
        assert trial["n_evaluations"] == 1500 * trial["n_landmarks"]
        assert trial["seconds"] > 0
    assert found["recommended"] in found["trials"]
    assert f"--n-landmarks {found['recommended']['n_landmarks']} " in found["command"]
    assert (found["n_rows"], found["n_sampled"], found["n_held_out"]) == (1500, 1200, 300)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_method_without_neighbors_has_one_table_and_names_none(trigpoint, source, tmp_path):
    picture = tmp_path / "study.png"
    told = ("--method", "kernel-mds", "--landmarks", "20,60", "--repeats", 2, "--selections", "random")
    code, out, _ = trigpoint("study", source, *told, "--picture", picture)
    assert code == 0
    assert "neighbors" not in out
    command = shlex.split(out.splitlines()[-2])
    assert "--n-neighbors" not in command
    assert float(command[command.index("--gamma") + 1]) > 0
    assert out.endswith(f"The picture is in {picture}.\n")
    assert picture.stat().st_size > 10_000


def test_settings_come_from_a_file_those_of_the_fit_and_those_of_the_study(trigpoint, source, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        f"source = '{source}'\nn_components = 3\nn_landmarks = 99\n"
        "[study]\nlandmarks = [20, 60]\nneighbors = 9\nselections = ['random']\nrepeats = 2\n"
        "[extend]\nlevel = 0.1\n"
    )
    code, out, _ = trigpoint("study", "--config", config, "--json")
    assert code == 0
    found = json.loads(out)
    assert [(t["n_neighbors"], t["n_landmarks"]) for t in found["trials"]] == [(9, 20), (9, 60)]
    assert "--n-components 3" in found["command"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--landmarks", "20,many"), "landmarks='many'"),
        (("--landmarks", "1201"), "landmarks=1201 is out of range; use one from 3 to 1200"),
        (("--selections", "best"), "selections='best'"),
        (("--input", "objects", "--method", "mds", "--metric", "a:b"), "input='objects' does not go with a study"),
        (
            ("--neighbors", "2", "--landmarks", "20", "--component-policy", "error"),
            "nothing can be compared. 2 neighbors: The neighbor graph has",
        ),
        (("--picture", "nowhere/x.png"), "nowhere/x.png must be a .png file in a folder that exists"),
    ],
)
def test_bad_input_is_exit_code_2_in_words(trigpoint, source, given, words):
    code, out, err = trigpoint("study", source, *given)
    assert code == 2
    assert out == ""
    assert words in " ".join(err.split())


def test_a_graph_in_pieces_is_joined_as_in_a_run(trigpoint, source):
    code, out, _ = trigpoint("study", source, "--neighbors", 2, "--landmarks", "20,60", "--repeats", 2)
    assert code == 0
    assert "Left out" not in out
    assert "--component-policy" not in out


def test_what_is_left_out_and_what_more_landmarks_would_do_is_said(trigpoint, tmp_path, rng):
    source = tmp_path / "cloud.npy"
    np.save(source, rng.normal(size=(600, 12)) * np.linspace(3, 1, 12))
    told = ("--method", "lle", "--n-components", 2, "--neighbors", "8,30", "--landmarks", "20,60", "--repeats", 2)
    code, out, _ = trigpoint("study", source, *told, "--selections", "random")
    assert code == 0
    assert "Left out. 20 landmarks by random, 30 neighbors: n_neighbors=30 is out of range" in out
    told = ("--method", "mds", "--n-components", 10, "--landmarks", "12,200", "--repeats", 2, "--sample", 100)
    code, _, err = trigpoint("study", source, *told)
    assert (code, "landmarks=200 is out of range; use ones from 11 to 100" in err) == (2, True)
    code, out, _ = trigpoint("study", source, *told[:-2], "--sample", 300, "--held-out", 100, "--selections", "random")
    assert "Only the largest number of landmarks is as good as the best: try more with --landmarks." in out
    assert "This is a sample" in out
