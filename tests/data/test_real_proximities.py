"""Runs on proximities and objects of the real world, through the command."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import procrustes

from pipeline import open_run

pytestmark = [pytest.mark.data, pytest.mark.timeout(600)]
COMMAND = Path(sys.executable).with_name("trigpoint")
SERIAL = ("--cluster-kind", "serial")
EDIT_DISTANCE = """
def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]
"""


def fitted(source, store, *options, cwd=None):
    command = [COMMAND, "fit", source, "--store", store, "--method", "mds", *map(str, options), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, cwd=cwd)


def test_confusions_of_morse_codes_are_refused_with_the_largest_deviation(data_folder, tmp_path):
    path = data_folder / "prox_morse2_confusion.npz"
    refused = fitted(path, tmp_path / "run", "--key", "P", "--input", "dissimilarities", *SERIAL)
    assert refused.returncode == 2
    assert "0.34 at row 9 (landmark), column 27 (point) against 0.74" in refused.stderr
    assert "the largest deviation (0.4)" in refused.stderr


def test_road_distances_of_european_cities_are_embedded_with_their_negative_mass(data_folder, tmp_path):
    path = data_folder / "prox_eurodist.npz"
    done = fitted(path, tmp_path / "run", "--key", "D", "--input", "dissimilarities", *SERIAL)
    assert done.returncode == 0, done.stderr
    D = np.load(path)["D"]
    centered = -0.5 * (D**2 - (D**2).mean(0) - (D**2).mean(1)[:, None] + (D**2).mean())
    lam, vectors = np.linalg.eigh(centered)
    expected = -lam[lam < 0].sum() / np.abs(lam).sum()
    assert json.loads(done.stdout)["quality"]["negative_mass"] == pytest.approx(expected, rel=1e-9)
    top = vectors[:, -2:] * np.sqrt(lam[-2:])
    assert procrustes(top, open_run(tmp_path / "run").embedding())[2] < 1e-9**2


def test_edit_distances_of_dna_strings_take_landmarks_times_strings_evaluations(data_folder, tmp_path):
    (tmp_path / "edits.py").write_text(EDIT_DISTANCE)
    strings = np.load(data_folder / "dna_strings5k.npz")["S"][:3000]
    np.save(tmp_path / "strings.npy", strings)
    options = ("--input", "objects", "--metric", "edits:distance", "--n-landmarks", 25)
    done = fitted("strings.npy", "run", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["figures"]["n_evaluations"] == 25 * 3000
    assert report["figures"]["n_embedded"] == 3000
