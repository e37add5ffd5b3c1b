"""Every set of vectors fits at the defaults, with a verdict; what `study` recommends can be fitted as printed."""

import warnings

import numpy as np
import pytest

from flows.study import fit_arguments
from pipeline.errors import ComponentWarning, ScaleWarning, ShortcutWarning
from pipeline.jobs.fit import fit
from pipeline.jobs.study import study
from pipeline.results.run import open_run
from pipeline.settings import StudySettings, fit_settings, job_settings

pytestmark = pytest.mark.data
MOST = 5000
NAMES = (
    *("frey_faces", "mnist70k", "isomap_faces_32x32", "orl_32x32", "olivetti_64x64", "world_cities15000"),
    *("glove100d_60k", "dragon_res2", "ionosphere", "skin245k", "pbmc3500_pcs"),
)


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        for kind in (ComponentWarning, ScaleWarning, ShortcutWarning):
            warnings.simplefilter("ignore", kind)
        yield


@pytest.fixture
def saved(data_folder, tmp_path):
    def save(name, most=MOST):
        points = np.load(data_folder / f"{name}.npz")["X"]
        rows = np.sort(np.random.default_rng(0).permutation(len(points))[:most])
        np.save(tmp_path / "points.npy", points[rows])
        return str(tmp_path / "points.npy")

    return save


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("quiet")
def test_a_set_fits_at_the_defaults_and_as_a_study_recommends(saved, tmp_path, name):
    source = saved(name)
    fit(fit_settings({"source": source, "store": str(tmp_path / "run")}))
    run = open_run(tmp_path / "run")
    assert np.isfinite(run.embedding()).all()
    assert run.verdict.level in ("good", "fair", "poor")
    settings = job_settings(StudySettings, {"source": source, "store": str(tmp_path / "studied"), "repeats": 2})
    given, *options = fit_arguments(settings, study(settings))
    told = {
        option.removeprefix("--").replace("-", "_"): value for option, value in zip(*[iter(options)] * 2, strict=True)
    }
    fit(fit_settings({"source": given, **told}))
    assert np.isfinite(open_run(tmp_path / "studied").embedding()).all()


@pytest.mark.usefixtures("quiet")
def test_residual_variance_does_not_rise_with_landmarks(saved, tmp_path):
    source, before = saved("mnist70k"), None
    for n_landmarks in (3, 10, 100, 400):
        store = str(tmp_path / "run")
        fit(fit_settings({"source": source, "store": store, "n_landmarks": n_landmarks}))
        quality = open_run(store).quality
        value, (low, _) = quality["residual_variance"][-1], quality["residual_variance_95"][-1]
        assert before is None or low <= before
        before = value if before is None else min(before, value)
