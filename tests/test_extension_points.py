"""Each extension point used from outside the package, without patching it: fit, extend and export with the addition.

A plugin is a module of at most 60 lines, written to a folder of its own and named by the setting `plugins`.
"""

import sys
from textwrap import dedent

import numpy as np
import pytest

from pipeline import open_run, plugins
from pipeline.jobs.extend import extend
from pipeline.jobs.fit import fit
from pipeline.numerics.mds import classical_mds
from pipeline.results.export import export
from pipeline.settings import ExtendSettings, fit_settings, job_settings

METHOD = '''
    from dataclasses import dataclass

    import numpy as np

    from pipeline.methods import Method
    from pipeline.numerics.extension.placement import Placement
    from pipeline.numerics.mds import classical_mds


    @dataclass(frozen=True, eq=False)
    class NearestPlacer:
        """Places a point where its nearest landmark is."""

        coordinates: np.ndarray
        residual_degree: int = 1

        def place(self, to_landmarks):
            return Placement(self.coordinates[to_landmarks.argmin(axis=1)], to_landmarks.min(axis=1).astype(float))


    def fit(choice, between):
        return NearestPlacer(classical_mds(between**2, choice.n_components).coordinates)


    def register(plugins):
        plugins.methods["nearest"] = Method(("nearest",), ("vectors",), fit=fit, model=NearestPlacer)
'''
LANDMARK_CHOICE = '''
    import numpy as np


    def spaced(points, first, n_landmarks, seed):
        """Evenly spaced candidates."""
        return np.arange(n_landmarks) * (len(points) // n_landmarks)


    def register(plugins):
        plugins.landmark_choices["spaced"] = spaced
'''
SOURCE_FORMAT = '''
    import numpy as np

    from pipeline.sources.arrays import open_array


    def open_words(path, key, columns, id_column):
        """Numbers separated by blanks, a row a line."""
        return open_array(np.loadtxt(path), columns, id_column)


    def register(plugins):
        plugins.source_formats[".words"] = open_words
'''
TRUST_COLUMN = '''
    import numpy as np

    from pipeline.plugins import TrustColumn


    def from_center(model, answer):
        """How far a point is from the center of the landmarks."""
        coordinates = answer.coordinates[:, : model.coordinates.shape[1]]
        return np.sqrt(((coordinates - model.coordinates.mean(axis=0)) ** 2).sum(axis=1))


    def register(plugins):
        plugins.trust_columns["from_center"] = TrustColumn(from_center, degree=1)
'''
BACKEND = '''
    from pipeline.store.backend import MemoryBackend


    class CountingBackend(MemoryBackend):
        """Objects in memory, with a count of the writes."""

        writes = 0

        def write(self, key, data):
            type(self).writes += 1
            super().write(key, data)


    def register(plugins):
        plugins.backends["counting"] = lambda url: CountingBackend(url)
'''


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a plugin to a module and returns its name; what it registered is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(source):
        assert len(dedent(source).strip().splitlines()) <= 60
        (tmp_path / "added_plugin.py").write_text(dedent(source))
        return "added_plugin"

    yield written
    added = plugins.LOADED
    for table in (added.methods, added.landmark_choices, added.source_formats, added.trust_columns, added.backends):
        table.clear()
    plugins._REGISTERED.pop("added_plugin", None)
    sys.modules.pop("added_plugin", None)


@pytest.fixture
def points():
    return np.random.default_rng(0).normal(size=(300, 3))


def ran(tmp_path, points, name, store=None, suffix=".npy", **others):
    """A fit, an extension and an export with a plugin; the run, the extension and the exported table."""
    source, new = tmp_path / f"points{suffix}", tmp_path / f"new{suffix}"
    for path, rows in ((source, points), (new, points[:40] + 0.01)):
        np.save(path, rows) if suffix == ".npy" else np.savetxt(path, rows)
    run, more = store or str(tmp_path / "run"), f"{store}-more" if store else str(tmp_path / "more")
    choices = {"method": "mds", "n_landmarks": 20, "plugins": name, "cluster": {"kind": "serial"}} | others
    fit(fit_settings({"source": str(source), "store": run, **choices}))
    extend(job_settings(ExtendSettings, {"store": run, "source": str(new), "output": more, "plugins": name}))
    export(open_run(run), ["projection"], tmp_path / "out.npy")
    return open_run(run), open_run(more), np.load(tmp_path / "out.npy")


def test_a_method(tmp_path, points, plugin):
    run, more, exported = ran(tmp_path, points, plugin(METHOD), method="nearest")
    landmarks = points[run.landmark_rows]
    nearest = np.linalg.norm(points[:, None] - landmarks, axis=2).argmin(axis=1)
    between = np.linalg.norm(landmarks[:, None] - landmarks, axis=2)
    expected = classical_mds(between**2, 2).coordinates[nearest]
    np.testing.assert_allclose(np.abs(exported), np.abs(expected), atol=1e-9)
    assert more.embedding().shape == (40, 2)


@pytest.mark.parametrize("method", ["mds", "isomap"])
def test_a_landmark_choice(tmp_path, points, plugin, method):
    run, more, _ = ran(tmp_path, points, plugin(LANDMARK_CHOICE), method=method, landmark_selection="spaced")
    assert sorted(run.landmark_rows) == list(range(0, 300, 15))
    assert np.isfinite(more.embedding()).all()


def test_a_source_format(tmp_path, points, plugin):
    _, more, exported = ran(tmp_path, points, plugin(SOURCE_FORMAT), suffix=".words")
    assert exported.shape == (300, 2)
    assert np.isfinite(more.embedding()).all()


@pytest.mark.parametrize("method", ["mds", "isomap"])
def test_a_trust_column(tmp_path, points, plugin, method):
    run, more, exported = ran(tmp_path, 100 * points, plugin(TRUST_COLUMN), method=method)
    center = run.unit * run.model.coordinates.mean(axis=0)
    expected = np.linalg.norm(exported - center, axis=1)
    np.testing.assert_allclose(run.embedding("from_center"), expected, rtol=1e-9)
    assert {"from_center", "from_center_rank"} <= set(more.arrays)
    ranks = more.embedding("from_center_rank")
    assert ((ranks >= 0) & (ranks <= 1)).all()


def test_a_store_backend(tmp_path, points, plugin):
    name = plugin(BACKEND)
    run, more, exported = ran(tmp_path, points, name, store="counting://runs/points")
    on_disk, more_on_disk, exported_from_disk = ran(tmp_path, points, name)
    np.testing.assert_array_equal(exported, exported_from_disk)
    np.testing.assert_array_equal(more.embedding("residual"), more_on_disk.embedding("residual"))
    assert sys.modules[name].CountingBackend.writes > 0
    assert run.damaged() == on_disk.damaged() == []
