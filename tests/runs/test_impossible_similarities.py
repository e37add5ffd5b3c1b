"""Similarities with a diagonal that was never filled in are pointed out, on disk and in memory."""

import warnings

import numpy as np
import pytest

from pipeline import LandmarkIsomap
from pipeline.errors import DiagonalWarning
from pipeline.jobs.fit import fit
from pipeline.settings import fit_settings


def similarities(diagonal):
    points = np.random.default_rng(0).normal(size=(60, 3))
    found = np.exp(-0.1 * ((points[:, None] - points) ** 2).sum(axis=2))
    np.fill_diagonal(found, diagonal)
    return found


def on_disk(values, folder):
    np.save(folder / "s.npy", values)
    told = {"input": "similarities", "method": "mds", "n_landmarks": 30}
    fit(fit_settings({"source": str(folder / "s.npy"), "store": str(folder / "run"), **told}))


def in_memory(values, _):
    LandmarkIsomap(method="mds", metric="precomputed", precomputed="similarities", n_landmarks=30).fit(values)


@pytest.mark.parametrize("fitted", [on_disk, in_memory])
def test_a_diagonal_of_zeros_is_pointed_out(fitted, tmp_path):
    with pytest.warns(DiagonalWarning, match=r"^100% of the pairs .* diagonal is from 0 to 0.*never filled in"):
        fitted(similarities(0.0), tmp_path)


@pytest.mark.parametrize("fitted", [on_disk, in_memory])
def test_one_that_is_possible_is_not(fitted, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(similarities(1.0), tmp_path)
