"""A model exported, looked at and extended from, as a user runs it."""

import json
import shutil

import numpy as np
import pytest

from pipeline.jobs.fit import fit
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import fit_settings


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    np.save(folder / "roll.npy", swiss_roll(3000, seed=0).points)
    settings = {"source": str(folder / "roll.npy"), "store": str(folder / "run"), "n_neighbors": 8, "n_landmarks": 60}
    fit(fit_settings(settings))
    return folder / "run"


def test_a_model_states_its_size_and_accuracy_and_stands_alone(trigpoint, store, tmp_path):
    shutil.copytree(store, tmp_path / "run")
    model = tmp_path / "model"
    code, out, err = trigpoint("export", tmp_path / "run", "--model", model, "--anchors", 800)
    assert (code, err) == (0, "")
    assert f"A model of {tmp_path / 'run'} is in {model}." in out
    assert "800 anchors, 0." in out
    assert "rows that are not anchors" in out
    shutil.rmtree(tmp_path / "run")
    np.save(tmp_path / "new.npy", swiss_roll(300, seed=1).points)
    code, _, err = trigpoint(
        "extend", model, tmp_path / "new.npy", "--output", tmp_path / "out", "--cluster-kind", "serial"
    )
    assert (code, err) == (0, "")
    code, out, err = trigpoint("export", tmp_path / "out", "--output", tmp_path / "y.npy")
    assert (code, err) == (0, "")
    assert np.isfinite(np.load(tmp_path / "y.npy")).all()


def test_figures_are_there_for_programs_and_kept(trigpoint, store, tmp_path):
    code, out, _ = trigpoint("export", store, "--model", tmp_path / "model", "--anchors", 800, "--json")
    assert code == 0
    first = json.loads(out)
    assert first["n_anchors"] == 800
    assert first["bytes"] > 800 * 60 * 4
    assert 0 < first["accuracy"]["rms"] < first["accuracy"]["q99"] < 0.2
    code, out, _ = trigpoint("status", tmp_path / "model", "--json")
    told = json.loads(out)
    assert told["kind"] == "model"
    assert told["portable"] == {name: first[name] for name in ("n_anchors", "bytes", "accuracy")}
    code, out, _ = trigpoint("export", store, "--model", tmp_path / "model", "--anchors", 800, "--json")
    assert json.loads(out) == {**first, "n_computed": 0}


def test_status_and_verify_speak_of_a_model(trigpoint, store, tmp_path):
    trigpoint("export", store, "--model", tmp_path / "model")
    code, out, _ = trigpoint("status", tmp_path / "model")
    assert code == 0
    assert "3,000 anchors" in out
    assert "Every distinct row is an anchor" in out
    assert out.endswith(f"{tmp_path / 'model'}: published.\n")
    assert trigpoint("verify", tmp_path / "model")[:2] == (0, "Nothing is damaged.\n")
    assert trigpoint("gc", tmp_path / "model")[:2] == (0, "0.0 MiB freed.\n")
    assert trigpoint("verify", tmp_path / "model")[0] == 0
    code, _, err = trigpoint("export", tmp_path / "model", "--output", tmp_path / "y.npy")
    assert code == 2
    assert "has none of its own" in err


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--model", "m", "--output", "y.npy"),
        ("--model", "m", "--array", "gap"),
        ("--output", "y.npy", "--anchors", "500"),
    ],
)
def test_what_does_not_go_together_is_refused(trigpoint, store, options):
    code, _, err = trigpoint("export", store, *options)
    assert code == 2
    assert "give either --output PATH" in err


def test_too_few_anchors_are_refused_with_the_range(trigpoint, store, tmp_path):
    code, _, err = trigpoint("export", store, "--model", tmp_path / "model", "--anchors", 10)
    assert code == 2
    assert "anchors=10 is out of range; use from 80 to 2500, or all 3000" in err
