"""What people have fits at the defaults, and the verdict says what came of it."""

import gzip

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from pipeline.jobs.fit import fit
from pipeline.results.run import open_run
from pipeline.settings import fit_settings

LEVELS = ("good", "fair", "poor")


def text_of(points, separator=",", comma="."):
    lines = [separator.join("abcdefghijklmnopqrstuvwxyz"[: points.shape[1]])]
    lines += [separator.join(f"{value:.6g}".replace(".", comma) for value in row) for row in points]
    return "\n".join(lines).encode()


def rng():
    return np.random.default_rng(0)


def blobs(n_blobs=8, n_columns=20):
    centers = 20 * rng().normal(size=(n_blobs, n_columns))
    return np.concatenate([center + rng().normal(size=(40, n_columns)) for center in centers])


def wild():
    """Columns like those of network traffic: shares beside counts of bytes."""
    columns = rng().random((800, 12))
    columns[:, 3] = np.exp(8 * rng().normal(size=800))
    return columns


# Of each kind how it is saved, and what must be said of it.
KINDS = {
    "iris.csv": (lambda: text_of(load_iris().data), "fair", "bridges between 2 components"),
    "semicolons.csv": (lambda: text_of(load_iris().data, ";", ","), "fair", "bridges between 2 components"),
    "zipped.csv.gz": (lambda: gzip.compress(text_of(load_iris().data)), "fair", "bridges between 2 components"),
    "digits.npy": (lambda: load_digits().data, "poor", "components miss"),
    "images.npy": (lambda: load_digits().images.astype(np.uint8), "poor", "try n_components="),
    "volumes.npy": (lambda: rng().random((200, 3, 4, 2)), None, ""),
    "columns.npy": (lambda: np.asfortranarray(load_iris().data), "fair", "bridges"),
    "half.npy": (lambda: load_digits().data.astype(np.float16), "poor", "components miss"),
    "repeated.npy": (lambda: np.repeat(load_iris().data, 5, axis=0), "fair", "largest with 67% of the rows"),
    "in pieces.npy": (blobs, "poor", "most of the picture is bridges between 8 components"),
    "wild.npy": (wild, "poor", "--standardize"),
    "few.npy": (lambda: rng().normal(size=(8, 3)), None, ""),
    "plane.npy": (lambda: rng().random((600, 2)) @ rng().normal(size=(2, 5)), "good", "Good to look at"),
}


@pytest.mark.filterwarnings("ignore::pipeline.errors.ComponentWarning", "ignore::pipeline.errors.ScaleWarning")
@pytest.mark.parametrize("name", KINDS)
def test_it_fits_at_the_defaults_with_a_verdict(tmp_path, name):
    made, level, said = KINDS[name]
    content, source = made(), tmp_path / name
    if isinstance(content, bytes):
        source.write_bytes(content)
    else:
        np.save(source, content)
    fit(fit_settings({"source": str(source), "store": str(tmp_path / "run")}))
    run = open_run(tmp_path / "run")
    assert np.isfinite(run.embedding()).all()
    assert run.verdict.level in ((level,) if level else LEVELS)
    assert said in run.verdict.words
    assert run.verdict.words in repr(run)


def test_other_data_is_refused_or_becomes_the_next_version(tmp_path):
    source, store = tmp_path / "points.npy", tmp_path / "run"
    told = {"source": str(source), "store": str(store), "n_landmarks": 30}
    first, second = rng().normal(size=(2, 200, 3))
    np.save(source, first)
    fit(fit_settings(told))
    before = open_run(store).embedding()
    np.save(source, second)
    with pytest.raises(
        ValueError, match=r"is not the data that version '1' .* Nothing was replaced.*on-changed-source"
    ):
        fit(fit_settings(told))
    np.testing.assert_array_equal(open_run(store).embedding(), before)
    done = fit(fit_settings({**told, "on_changed_source": "version"}))
    assert (done.version, open_run(store).versions) == ("2", ["1", "2"])
    np.testing.assert_array_equal(open_run(store, "1").embedding(), before)
    assert fit(fit_settings({**told, "on_changed_source": "version"})).version == "2"
    # Other settings on data that is known replace what was published, as before.
    assert fit(fit_settings({**told, "n_components": 3})).version == "3"


def test_data_that_an_earlier_version_has_is_not_refused(tmp_path):
    source, store = tmp_path / "points.npy", tmp_path / "run"
    told = {"source": str(source), "store": str(store), "n_landmarks": 30}
    first, second = rng().normal(size=(2, 200, 3))
    for points, policy in ((first, "refuse"), (second, "version"), (first, "refuse")):
        np.save(source, points)
        fit(fit_settings({**told, "on_changed_source": policy}))
    np.testing.assert_array_equal(open_run(store).embedding(), open_run(store, "1").embedding())
