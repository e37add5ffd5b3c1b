"""New rows of real data: digits that a run has seen the like of, digits that it has not, and inverted ones."""

import numpy as np
import pytest

from benchmarks.drift import Judge, extended_digits
from pipeline import open_run

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def digits(data_folder, tmp_path_factory):
    """Runs on disk: digits 0 to 8 fitted; others of them, 9s and inverted ones extended to."""
    folder = tmp_path_factory.mktemp("digits")
    extended_digits(str(folder))
    return folder


@pytest.mark.parametrize(("name", "drifts"), [("known", False), ("nines", True), ("inverted", True)])
def test_only_other_digits_drift(digits, name, drifts):
    opened = open_run(digits / f"{name}.zarr")
    assert opened.drift["drifts"] == drifts, opened.drift
    assert np.isfinite(opened.embedding("projection")).all()


def test_few_of_many_batches_of_known_digits_alarm_and_all_of_nines(digits):
    judge = Judge(str(digits))
    assert not judge.drifts(judge.columns["known"])  # as the extension itself said
    assert judge.drifts(judge.columns["nines"])
    assert judge.power(500, share=0.0, n_batches=100) <= 0.05
    assert judge.power(100, share=1.0, n_batches=100) == 1.0
