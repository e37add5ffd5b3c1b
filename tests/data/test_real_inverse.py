"""Digits back from their coordinates: as they were at their own points, nearly so without them, others in between."""

import numpy as np
import pytest

from flows.pictures import strip_images
from flows.runner import InvertJob
from pipeline import open_run
from pipeline.jobs.fit import fit
from pipeline.jobs.invert import invert
from pipeline.settings import InvertSettings, fit_settings, job_settings

pytestmark = [pytest.mark.data, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def digits(data_folder, tmp_path_factory):
    """A run on 3,000 digits in 10 coordinates, and a row of each kind of digit."""
    folder = tmp_path_factory.mktemp("digits")
    with np.load(data_folder / "mnist70k.npz") as file:
        chosen = np.random.default_rng(0).permutation(len(file["y"]))[:3000]
        images, labels = file["X"][chosen], file["y"][chosen]
    np.save(folder / "digits.npy", images)
    given = {"n_neighbors": 10, "n_landmarks": 300, "n_components": 10, "component_policy": "bridge"}
    fit(fit_settings({**given, "source": str(folder / "digits.npy"), "store": str(folder / "run")}))
    return folder, images.astype(np.float64), [int(np.argmax(labels == digit)) for digit in range(10)]


def inverted(folder, output, **given):
    settings = job_settings(InvertSettings, {"store": str(folder / "run"), "output": str(output), **given})
    invert(settings)
    return settings, open_run(output)


def test_embedded_digits_come_back_as_they_were(digits, tmp_path):
    folder, images, _ = digits
    np.save(tmp_path / "queries.npy", open_run(folder / "run").embedding()[:100])
    _, opened = inverted(folder, tmp_path / "out", coordinates=str(tmp_path / "queries.npy"))
    np.testing.assert_allclose(opened.embedding("values"), images[:100], rtol=0, atol=255 * 1e-8)
    assert not opened.embedding("outside").any()


def test_digits_left_out_are_far_nearer_than_the_mean_digit(digits, tmp_path):
    folder, images, _ = digits
    _, opened = inverted(folder, tmp_path / "out", leave_one_out=True, sample=200)
    errors = opened.embedding("error")
    left_out = np.flatnonzero(np.isfinite(errors))
    assert len(left_out) == 200
    trivial = np.linalg.norm(images[left_out] - images.mean(axis=0), axis=1)
    assert errors[left_out].mean() < 0.7 * trivial.mean()
    assert opened.embedding("outside")[left_out].mean() < 0.03


def test_between_two_digits_the_way_along_the_data_stays_nearer_to_it(digits, tmp_path):
    folder, images, rows = digits
    nearest = {}
    for along in ("straight", "data"):
        given = {"path": (rows[1], rows[2]), "along": along, "image": "28x28"}
        settings, opened = inverted(folder, tmp_path / along, **given)
        strip = strip_images(settings, InvertJob(settings).data)
        assert strip.shape == (11, 28, 28)
        for place, row in ((0, rows[1]), (1, rows[1]), (-2, rows[2]), (-1, rows[2])):
            np.testing.assert_allclose(strip[place].ravel(), images[row], rtol=0, atol=255 * 1e-8)
        between = strip[2:-2].reshape(7, -1)
        nearest[along] = np.mean([np.linalg.norm(images - image, axis=1).min() for image in between])
        assert not opened.embedding("outside").any()
    assert nearest["data"] < nearest["straight"]
