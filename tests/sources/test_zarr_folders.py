"""Zarr arrays and groups as sources; tests/store/test_foreign.py has what concerns reading them safely."""

import os

import numpy as np
import pytest
import zarr

from pipeline.errors import InvalidInputError
from pipeline.sources import open_source


@pytest.fixture
def array(rng):
    return rng.integers(-50, 50, size=(103, 4)).astype(np.float32)


@pytest.fixture
def words():
    return np.array([f"wörd {i}" for i in range(103)])


@pytest.fixture(params=[2, 3])
def group(tmp_path, array, words, request):
    """A group with the table `x`, ids in `words` and `numbers`, and more below `deep`."""
    group = zarr.create_group(tmp_path / "g", zarr_format=request.param)
    group.create_array("x", data=array, chunks=(10, 3))
    group.create_array("words", shape=words.shape, dtype=str, chunks=(10,))[:] = words
    group.create_array("numbers", data=np.arange(103, dtype=np.uint8))
    deep = group.create_group("deep")
    deep.create_array("y", data=2 * array)
    deep.create_array("ids", data=np.arange(103) + 1000)
    return tmp_path / "g"


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float16])
def test_an_array_of_more_dimensions_is_flattened(tmp_path, rng, zarr_format, dtype, check_reads):
    images = rng.integers(0, 2, size=(50, 4, 3)).astype(dtype)
    zarr.create_array(tmp_path / "x", data=images, chunks=(7, 2, 3), zarr_format=zarr_format)
    flat = images.reshape(50, 12)
    check_reads(open_source(tmp_path / "x"), flat)
    check_reads(open_source(tmp_path / "x", columns=[11, 2]), flat[:, [11, 2]])


def test_an_array_is_read_by_its_folder(group, array, check_reads):
    check_reads(open_source(group / "x"), array)
    check_reads(open_source(group / "x", columns=[3, 0], id_column=1), array[:, [3, 0]], array[:, 1].astype(np.int64))


def test_an_array_of_a_group_is_read_by_its_key(group, array, words, check_reads):
    check_reads(open_source(group, "x"), array)
    check_reads(open_source(group, "x", id_column="words"), array, words)
    check_reads(open_source(group, "x", columns=["2"], id_column="numbers"), array[:, [2]], np.arange(103))
    check_reads(open_source(group, "deep/y", id_column="deep/ids"), 2 * array, np.arange(103) + 1000)
    check_reads(open_source(group, "deep/y", id_column="ids"), 2 * array, np.arange(103) + 1000)
    check_reads(open_source(group, "deep/y", id_column="words"), 2 * array, words)


def test_text_of_fixed_length_names_rows(tmp_path, array, words, check_reads):
    group = zarr.create_group(tmp_path / "g", zarr_format=2)
    group.create_array("x", data=array)
    group.create_array("words", data=words)
    check_reads(open_source(tmp_path / "g", id_column="words"), array, words)


@pytest.mark.parametrize(
    ("key", "id_column", "message"),
    [
        (None, None, "holds 5 arrays; choose one with key: 'deep/ids', 'deep/y', 'numbers', 'words', 'x'"),
        ("y", None, "key='y' is not in .*; it holds 'deep/ids'"),
        ("../g/x", None, r"key='\.\./g/x' is not in"),
        ("numbers", None, r"numbers has shape \(103,\); it must have 2 dimensions"),
        ("words", None, "it must hold real numbers"),
        ("x", "deep/y", "ids must be integers or text"),
        ("x", "nubmers", r"id_column='nubmers' is neither .* did you mean 'numbers'\?"),
        ("x", 4, "id_column: 4 is not a column of .*; columns are numbered 0 to 3"),
    ],
)
def test_what_is_no_table_with_ids_is_refused(group, key, id_column, message):
    with pytest.raises(InvalidInputError, match=message):
        open_source(group, key, id_column=id_column)


def test_a_key_for_a_single_array_is_refused(group):
    with pytest.raises(InvalidInputError, match=r"key='x' names an array of a Zarr group; .*/x is one array"):
        open_source(group / "x", "x")


def test_an_empty_group_or_array_is_refused(tmp_path):
    zarr.create_group(tmp_path / "g")
    with pytest.raises(InvalidInputError, match="holds 0 arrays; choose one with key: none"):
        open_source(tmp_path / "g")
    zarr.create_array(tmp_path / "x", shape=(0, 3), dtype=float, chunks=(1, 3))
    with pytest.raises(InvalidInputError, match="it is empty"):
        open_source(tmp_path / "x")


def test_the_fingerprint_changes_with_the_rows_and_with_the_ids(group):
    source = open_source(group, "x", id_column="numbers")
    before = source.fingerprint()
    assert before == open_source(group, "x", id_column="numbers").fingerprint()
    for file in (group / "deep").rglob("*"):
        os.utime(file, ns=(1, 1))
    assert before == source.fingerprint()
    for name in ("numbers", "x"):
        for file in (group / name).rglob("*"):
            os.utime(file, ns=(1, 1))
        assert before != (before := source.fingerprint())
