"""Runs on disk of real data sets, as the command makes them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline import LandmarkIsomap, open_run

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]
COMMAND = Path(sys.executable).with_name("trigpoint")


def fitted(source, store, *options):
    command = [COMMAND, "fit", source, "--store", store, *map(str, options), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)


def test_mnist_end_to_end(data_folder, tmp_path):
    options = ("--key", "X", "--n-neighbors", 10, "--n-landmarks", 1000, "--n-components", 10)
    result = fitted(data_folder / "mnist70k.npz", tmp_path / "run", *options)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    opened = open_run(tmp_path / "run")
    assert opened.quality["recall"] >= 0.99
    assert opened.quality["residual_variance"][9] < 0.25
    coordinates, labels = opened.embedding(), np.load(data_folder / "mnist70k.npz")["y"]
    assert coordinates.shape == (70_000, 10)
    assert np.isfinite(coordinates).all()
    assert nearest_label_agreement(coordinates, labels) > 0.85


def nearest_label_agreement(coordinates, labels):
    """How often a point's nearest other in the embedding is the same digit, on a sample."""
    sample = np.random.default_rng(0).choice(len(labels), 2000, replace=False)
    distances = np.linalg.norm(coordinates[sample][:, None] - coordinates[sample], axis=2)
    np.fill_diagonal(distances, np.inf)
    return (labels[sample][distances.argmin(axis=1)] == labels[sample]).mean()


@pytest.mark.parametrize("name", ["projection", "restricted"])
def test_mnist_equals_the_estimator(data_folder, tmp_path, name):
    images = np.load(data_folder / "mnist70k.npz")["X"][:10_000]
    np.save(tmp_path / "x.npy", images)
    options = ("--n-neighbors", 10, "--n-landmarks", 1000, "--n-components", 10, "--recall", 1)
    assert fitted(tmp_path / "x.npy", tmp_path / "run", *options).returncode == 0
    isomap = LandmarkIsomap(10, 10, n_landmarks=1000, extension=name, component_policy="error", random_state=0)
    expected = isomap.fit(images).embedding_
    found = open_run(tmp_path / "run").embedding(name)
    found *= np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_skin_with_four_fifths_duplicates(data_folder, tmp_path):
    """Nothing need be said about duplicates; that its graph has five components is said unless a policy is chosen."""
    source, run = data_folder / "skin245k.npz", tmp_path / "run"
    refused = fitted(source, run, "--key", "X")
    assert refused.returncode == 2
    assert "5 components, of sizes 51158, 98, 92, 63, 22" in refused.stderr
    result = fitted(source, run, "--key", "X", "--component-policy", "bridge")
    assert result.returncode == 0, result.stderr
    computed = json.loads(result.stdout)["computed"]
    assert not any(computed[stage] for stage in ("validate", "order", "neighbors", "graph"))
    opened = open_run(run)
    assert opened.quality["recall"] >= 0.99
    table, coordinates = np.load(source)["X"], opened.embedding()
    _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
    assert (len(first), len(table)) == (51_433, 244_962)
    assert np.isfinite(coordinates).all()
    np.testing.assert_array_equal(coordinates, coordinates[first][place.ravel()])
    assert fitted(source, tmp_path / "wide", "--key", "X", "--n-neighbors", 40).returncode == 0
