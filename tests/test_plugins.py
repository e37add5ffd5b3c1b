"""Plugins: a method and a landmark choice added from outside the package, on disk, on workers and in memory."""

import sys
from textwrap import dedent

import numpy as np
import pytest

from pipeline import LandmarkIsomap, open_run, plugins
from pipeline.errors import InvalidInputError, StoreError
from pipeline.fanout.worker import packed, unpacked
from pipeline.jobs.extend import extend
from pipeline.jobs.fit import fit
from pipeline.methods import METHODS, landmark_choices
from pipeline.numerics.mds import classical_mds
from pipeline.settings import ExtendSettings, fit_settings, job_settings

SOURCE = '''
    """A method that places points at their nearest landmark, with landmarks that are evenly spaced rows."""

    from dataclasses import dataclass

    import numpy as np

    from pipeline.methods import Method
    from pipeline.numerics.extension.placement import Placement
    from pipeline.numerics.mds import classical_mds


    @dataclass(frozen=True, eq=False)
    class NearestPlacer:
        coordinates: np.ndarray
        residual_degree: int = 1

        def place(self, to_landmarks):
            nearest = to_landmarks.argmin(axis=1)
            return Placement(self.coordinates[nearest], to_landmarks.min(axis=1).astype(float))


    def fit(choice, between):
        return NearestPlacer(classical_mds(between**2, choice.n_components).coordinates)


    def spaced(points, first, n_landmarks, seed):
        return np.arange(n_landmarks) * (len(points) // n_landmarks)


    def register(plugins):
        plugins.methods["nearest"] = Method(("nearest",), ("vectors",), fit=fit, model=NearestPlacer)
        plugins.landmark_choices["spaced"] = spaced
        plugins.landmark_choices["same"] = lambda points, first, n_landmarks, seed: np.zeros(n_landmarks, dtype=int)
'''
CHOICES = {"method": "nearest", "landmark_selection": "spaced", "n_landmarks": 20, "plugins": "nearest_plugin"}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "nearest_plugin.py").write_text(dedent(SOURCE))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for table in (plugins.LOADED.methods, plugins.LOADED.landmark_choices, plugins._REGISTERED):
        table.clear()
    sys.modules.pop("nearest_plugin", None)


@pytest.fixture
def points(tmp_path):
    rows = np.random.default_rng(0).normal(size=(100, 3))
    np.save(tmp_path / "points.npy", rows)
    return rows


def settings(tmp_path, **others):
    return fit_settings({"source": str(tmp_path / "points.npy"), "store": str(tmp_path / "run"), **CHOICES, **others})


def extension(tmp_path, **others):
    paths = {"store": str(tmp_path / "run"), "source": str(tmp_path / "points.npy"), "output": str(tmp_path / "more")}
    return job_settings(ExtendSettings, paths | others)


def test_a_method_and_a_landmark_choice_of_a_plugin_are_fitted_and_extended(tmp_path, plugin, points):
    fit(settings(tmp_path))
    extend(extension(tmp_path, plugins="nearest_plugin"))
    found = open_run(str(tmp_path / "run")).embedding("projection")
    landmarks = np.arange(20) * 5
    apart = np.linalg.norm(points[:, None] - points[landmarks], axis=2)
    own = classical_mds(apart[landmarks] ** 2, 2).coordinates
    np.testing.assert_allclose(np.abs(found), np.abs(own[apart.argmin(axis=1)]), atol=1e-12)
    np.testing.assert_array_equal(open_run(str(tmp_path / "more")).embedding("projection"), found)


def test_the_estimator_takes_the_same_plugin(tmp_path, plugin, points):
    chosen = {name: value for name, value in CHOICES.items() if name != "plugins"}
    estimator = LandmarkIsomap(**chosen, plugins=("nearest_plugin",), random_state=0).fit(points)
    np.testing.assert_array_equal(estimator.landmark_indices_, np.arange(20) * 5)
    fit(settings(tmp_path))
    on_disk = open_run(str(tmp_path / "run")).embedding("projection")
    np.testing.assert_allclose(estimator.embedding_, on_disk, atol=1e-12)


def test_manifests_name_plugins_only_if_there_are_any(tmp_path, plugin):
    assert settings(tmp_path).of_results()["plugins"] == ["nearest_plugin"]
    assert "plugins" not in fit_settings({"source": "x.npy", "store": "run"}).of_results()


def test_workers_load_the_plugins_of_the_process_that_sends_them_work(plugin, tmp_path):
    settings(tmp_path)
    sent = packed("work")
    plugins.LOADED.methods.clear()
    plugins._REGISTERED.clear()
    assert unpacked(sent) == "work"
    assert "nearest" in METHODS
    assert "spaced" in landmark_choices()


def test_a_store_does_not_load_the_plugins_it_names(tmp_path, plugin, points):
    fit(settings(tmp_path))
    for table in (plugins.LOADED.methods, plugins.LOADED.landmark_choices, plugins._REGISTERED):
        table.clear()
    with pytest.raises((InvalidInputError, StoreError), match=r"method='nearest' is not known.*in plugins"):
        extend(extension(tmp_path))


def test_names_are_not_known_without_their_plugin():
    with pytest.raises(InvalidInputError, match="method='nearest' is not known; use one of 'isomap', 'kernel-isomap'"):
        fit_settings({"source": "x.npy", "store": "run", "method": "nearest"})
    with pytest.raises(InvalidInputError, match="plugins='no_such_module' cannot be loaded: No module named"):
        fit_settings({"source": "x.npy", "store": "run", "plugins": "no_such_module"})


def test_wrong_places_of_a_plugin_are_refused(tmp_path, plugin, points):
    with pytest.raises(InvalidInputError, match=r"landmark_selection='same' .* did not return 20 different whole"):
        LandmarkIsomap(method="mds", landmark_selection="same", n_landmarks=20, plugins=("nearest_plugin",)).fit(points)
