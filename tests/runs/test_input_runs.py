"""Whole runs on data that comes in other forms: the results are those of the plain form, to the bit."""

import gzip

import numpy as np
import pytest
from small import extended, fitted

from pipeline import open_run
from pipeline.errors import InvalidInputError, ScaleWarning
from pipeline.jobs.invert import invert
from pipeline.jobs.refit import refit
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import InvertSettings, RefitSettings, fit_settings, job_settings

N_FIT = 4300


@pytest.fixture(scope="module")
def rows():
    """On a roll turned into nine columns, new ones a little off it."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 3)))[0]
    return swiss_roll(N_FIT + 50, seed=0).points @ turned.T + 3.0


@pytest.fixture(scope="module")
def plain(rows, tmp_path_factory):
    """The run on the plain form, and its extension."""
    folder = tmp_path_factory.mktemp("plain")
    np.save(folder / "x.npy", rows[:N_FIT])
    np.save(folder / "new.npy", rows[N_FIT:])
    return ran(folder, "x.npy", "new.npy")


def ran(folder, source, new, of_fit=None, **told):
    """A fit that standardizes, which needs the moments of columns, and an extension of it."""
    fitted(folder / source, folder / "run", standardize=True, **told, **(of_fit or {}))
    extended(folder / "run", folder / new, folder / "out", **told)
    return open_run(folder / "run"), open_run(folder / "out")


def assert_same_bytes(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.arrays == theirs.arrays
        for name in theirs.arrays:
            assert ours.embedding(name).tobytes() == theirs.embedding(name).tobytes(), name


def test_an_array_stored_by_columns_gives_the_bytes_of_one_stored_by_rows(rows, plain, tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(rows[:N_FIT]))
    np.savez_compressed(tmp_path / "new.npz", np.asfortranarray(rows[N_FIT:]))
    assert_same_bytes(ran(tmp_path, "x.npy", "new.npz"), plain)


def test_an_array_of_more_dimensions_gives_the_bytes_of_the_flattened_one(rows, plain, tmp_path):
    images = rows.reshape(-1, 3, 3)
    np.save(tmp_path / "x.npy", np.asfortranarray(images[:N_FIT]))
    np.save(tmp_path / "new.npy", images[N_FIT:])
    assert_same_bytes(ran(tmp_path, "x.npy", "new.npy"), plain)


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float16])
def test_numbers_of_few_bytes_are_read_as_they_are(tmp_path, dtype):
    images = np.random.default_rng(1).integers(0, 2, size=(300, 6, 5))
    runs = []
    for name, kind in (("few", dtype), ("many", np.float32)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", images.astype(kind))
        runs.append(ran(tmp_path / name, "x.npy", "x.npy", of_fit={"n_landmarks": 40}))
    assert_same_bytes(*runs)


def test_tables_in_other_dialects_and_gzipped_give_the_bytes_of_the_array(rows, plain, tmp_path):
    text = "\n".join(";".join(map(repr, row)) for row in rows[:N_FIT].tolist()).replace(".", ",")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    lines = ["|".join("abcdefghi"), *("|".join(map(repr, row)) for row in rows[N_FIT:].tolist())]
    (tmp_path / "new.txt").write_text("\n".join(lines))
    assert_same_bytes(ran(tmp_path, "x.csv.gz", "new.txt"), plain)


WIDER = [0, 1, 2, 9, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("suffix", "choice"),
    [
        ("npy", {"exclude": "3,10"}),
        ("npy", {"columns": "0-10", "exclude": "3,10"}),
        ("csv", {"columns": "0-2,4-9"}),
        ("csv", {"exclude": "10,x3"}),
    ],
    ids=str,
)
def test_columns_left_out_give_the_bytes_of_the_others(rows, plain, tmp_path, suffix, choice):
    """Of new rows the same columns are taken; those of a table with names in whatever order, unless they were counted,
    and those of one without the columns that are left out."""
    wide = np.column_stack([rows, np.arange(len(rows)) * 1e3])[:, WIDER]
    names = [f"x{i}" for i in range(wide.shape[1])]
    order = [4, 2, 0, 10, 9, 8, 7, 6, 5, 3, 1] if suffix == "csv" and "columns" not in choice else range(11)
    save(tmp_path / f"x.{suffix}", wide[:N_FIT], names)
    save(tmp_path / f"new.{suffix}", wide[N_FIT:, order], [names[i] for i in order])
    assert_same_bytes(ran(tmp_path, f"x.{suffix}", f"new.{suffix}", choice), plain)
    if "columns" not in choice:
        np.save(tmp_path / "few.npy", rows[N_FIT:])
        extended(tmp_path / "run", tmp_path / "few.npy", tmp_path / "few")
        assert_same_bytes([open_run(tmp_path / "few")], plain[1:])


def save(path, array, names):
    if path.suffix == ".npy":
        np.save(path, array)
        return
    lines = [",".join(names), *(",".join(map(repr, row)) for row in array.tolist())]
    path.write_text("\n".join(lines))


def test_a_refit_and_an_inversion_leave_out_the_same_columns(tmp_path):
    rows = np.column_stack([swiss_roll(400, seed=1).points, np.arange(400.0)])
    np.save(tmp_path / "x.npy", rows[:300])
    np.save(tmp_path / "new.npy", rows[300:])
    np.save(tmp_path / "all.npy", rows[:, :3])
    settings = {"method": "mds", "n_landmarks": 40, "seed": 1}
    fitted(tmp_path / "x.npy", tmp_path / "run", exclude="3", **settings)
    refit(job_settings(RefitSettings, {"store": str(tmp_path / "run"), "new": str(tmp_path / "new.npy")}))
    asked = {"store": str(tmp_path / "run"), "output": str(tmp_path / "back"), "leave_one_out": True}
    invert(job_settings(InvertSettings, asked))
    assert open_run(tmp_path / "run").embedding("projection").shape == (400, 2)


def test_a_setting_that_leaves_columns_out_is_of_vectors_only_and_named_only_if_set(tmp_path):
    with pytest.raises(InvalidInputError, match=r"exclude=.* input='dissimilarities'"):
        fitted(tmp_path / "x.npy", tmp_path / "run", input="dissimilarities", method="mds", exclude="0")
    told = fit_settings({"source": "x", "store": "y"}).of_results()
    assert "exclude" not in told
    assert fit_settings({"source": "x", "store": "y", "exclude": "1"}).of_results()["exclude"] == ["1"]


@pytest.fixture
def of_different_units(tmp_path):
    """Columns named a to d, of which c is in a much smaller unit."""
    table = np.random.default_rng(2).normal(size=(300, 4)) * [1.0, 2.0, 500.0, 1.0]
    save(tmp_path / "x.csv", table, list("abcd"))
    return tmp_path / "x.csv"


OF_VECTORS = {"method": "mds", "n_landmarks": 40}


@pytest.mark.parametrize("settings", [OF_VECTORS, {"n_landmarks": 40}, {**OF_VECTORS, "metric": "cityblock"}], ids=str)
def test_a_column_that_dominates_is_named_and_kept_with_the_run(of_different_units, tmp_path, settings):
    with pytest.warns(ScaleWarning, match=r"Column 'c' carries 99\.99% .* of all 4 columns, .* --standardize") as seen:
        fitted(of_different_units, tmp_path / "run", **settings)
    assert len(seen) == 1
    found = open_run(tmp_path / "run").dominating_columns
    assert (found["columns"], found["n_columns"]) == (["c"], 4)
    assert 0.9999 < found["share"] < 1


@pytest.mark.parametrize(
    "settings",
    [
        {**OF_VECTORS, "standardize": True},
        {**OF_VECTORS, "pca": 3},
        {**OF_VECTORS, "exclude": "c"},
        {**OF_VECTORS, "columns": "2,0"},
        {**OF_VECTORS, "metric": "angular"},
        {**OF_VECTORS, "method": "kernel-mds", "kernel": "cosine"},
    ],
    ids=str,
)
def test_a_column_that_dominates_does_not_matter_where_scale_is_seen_to(of_different_units, tmp_path, settings):
    fitted(of_different_units, tmp_path / "run", **settings)
    assert open_run(tmp_path / "run").dominating_columns is None


def test_a_constant_column_does_not_count(tmp_path):
    table = np.random.default_rng(2).normal(size=(300, 3)) * [1.0, 500.0, 0.0] + 0.1
    np.save(tmp_path / "x.npy", table)
    fitted(tmp_path / "x.npy", tmp_path / "run", **OF_VECTORS)
    assert open_run(tmp_path / "run").dominating_columns is None
