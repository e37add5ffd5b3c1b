"""Residual variance with more components than are fitted: what fits of so many would find."""

import numpy as np
import pytest
from small import fitted, roll_file

from flows.reports import figures_table, fit_report, fit_summary
from pipeline import open_run
from pipeline.jobs.fit import fit
from pipeline.settings import fit_settings

SETTINGS = {"n_neighbors": 8, "n_landmarks": 50}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return roll_file(tmp_path_factory.mktemp("roll"), n_points=1500, n_columns=6)


def variances(source, store, **settings):
    fitted(source, store, **{**SETTINGS, **settings})
    quality = open_run(store).quality
    return quality["residual_variance"], quality.get("residual_variance_beyond")


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "isomap"},
        {"method": "isomap", "landmark_weights": "counts"},
        {"method": "kernel-isomap"},
        {"method": "kernel-isomap", "landmark_weights": "counts"},
        {"method": "kernel-mds"},
    ],
)
def test_is_what_a_fit_with_so_many_components_finds(source, tmp_path, settings):
    within, beyond = variances(source, tmp_path / "two", n_components=2, **settings)
    all_ten, further = variances(source, tmp_path / "ten", n_components=10, **settings)
    assert (len(within), len(beyond), len(all_ten), len(further)) == (2, 8, 10, 2)
    # The sampled distances are kept in single precision.
    np.testing.assert_allclose([*within, *beyond], all_ten, atol=1e-6)


def test_there_are_no_more_than_positive_eigenvalues(source, tmp_path):
    within, beyond = variances(source, tmp_path / "run", method="mds", n_components=2)
    assert len(within) + len(beyond) == open_run(tmp_path / "run").quality["n_positive"] == 3
    assert beyond[-1] < 1e-9


def test_only_classical_models_have_it(source, tmp_path):
    assert variances(source, tmp_path / "laplacian", method="laplacian")[1] is None
    assert variances(source, tmp_path / "rbf", method="isomap", extension="rbf")[1] is None


def test_too_many_landmarks_are_not_embedded_again(source, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.numerics.models.further.MOST_EMBEDDED_AGAIN", 49)
    assert variances(source, tmp_path / "run", method="mds")[1] == []


def test_summary_and_table_tell_it(source, tmp_path):
    told = {**SETTINGS, "source": str(source), "store": str(tmp_path / "run"), "method": "isomap"}
    fitted_run = fit(fit_settings(told))
    report = fit_report(open_run(told["store"]), fitted_run)
    beyond = [f"{value:.2g}" for value in report["quality"]["residual_variance_beyond"]]
    assert any(line.endswith(f"; with 3 to 10 it would be {', '.join(beyond)}.") for line in fit_summary(report))
    names = [row["figure"] for row in figures_table(report)]
    assert [name for name in names if name.endswith("(not fitted)")] == [
        f"residual variance, {i} components (not fitted)" for i in range(3, 11)
    ]
