"""Sources give the rows that were put in, block by block, and refuse the rest by name."""

import os
import subprocess
import sys

import numpy as np
import pytest

from pipeline.errors import InvalidInputError
from pipeline.sources import open_source

DTYPES = [np.float64, np.float32, np.float16, np.int32, np.uint8, np.bool_, ">f8"]


def saved(tmp_path, kind, array):
    path = tmp_path / f"x.{'npy' if kind == 'npy' else 'npz'}"
    {"npy": np.save, "npz": np.savez, "compressed": np.savez_compressed}[kind](path, array)
    return path


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_files_are_read_in_any_blocks_and_order(tmp_path, rng, kind, dtype):
    array = rng.integers(0, 2, size=(103, 7)).astype(dtype)
    source = open_source(saved(tmp_path, kind, array))
    assert (source.shape, source.dtype) == ((103, 7), np.dtype(dtype))
    for start, stop in [(0, 103), (50, 60), (0, 1), (102, 103), (7, 7), (0, 50)]:
        np.testing.assert_array_equal(source.read(start, stop), array[start:stop])


def test_arrays_in_memory_are_read_and_told_apart_by_content(rng):
    array = rng.normal(size=(20, 3))
    source = open_source(array)
    np.testing.assert_array_equal(source.read(3, 9), array[3:9])
    assert source.fingerprint() == open_source(array.copy()).fingerprint()
    assert source.fingerprint() != open_source(array + 1).fingerprint()


def test_one_of_several_arrays_is_chosen_by_key(tmp_path, rng):
    a, b = rng.normal(size=(5, 2)), rng.normal(size=(6, 3))
    np.savez(tmp_path / "x.npz", a=a, b=b)
    np.testing.assert_array_equal(open_source(tmp_path / "x.npz", "b").read(0, 6), b)
    with pytest.raises(InvalidInputError, match=r"holds 2 arrays; choose one with key: 'a', 'b'"):
        open_source(tmp_path / "x.npz")
    with pytest.raises(InvalidInputError, match=r"key='c' is not in .*; it holds 'a', 'b'"):
        open_source(tmp_path / "x.npz", "c")


def test_fingerprint_changes_with_the_file(tmp_path, rng):
    path = saved(tmp_path, "npy", rng.normal(size=(5, 2)))
    before = open_source(path).fingerprint()
    assert open_source(path).fingerprint() == before
    os.utime(path, ns=(1, 1))
    assert open_source(path).fingerprint() != before


def test_a_truncated_file_is_named_with_the_row(tmp_path, rng):
    path = saved(tmp_path, "npy", rng.normal(size=(50, 2)))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match=r"x\.npy is truncated: it ends within row 43 of 50"):
        open_source(path).read(0, 50)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5), "must have 2 dimensions"),
        (np.zeros((0, 5)), "it is empty"),
        (np.zeros((5, 2), complex), "must hold real numbers"),
        (np.zeros((5, 2), "U3"), "must hold real numbers"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(tmp_path, array, message):
    with pytest.raises(InvalidInputError, match=message):
        open_source(saved(tmp_path, "npy", array))


def test_pickled_objects_are_never_loaded(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="dtype object; it must hold real numbers"):
        open_source(tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["missing.npy", "x.h5", "folder.npy"])
def test_paths_that_hold_nothing_readable_are_refused(tmp_path, name):
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(InvalidInputError, match=name):
        open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_files_of_another_kind_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"not numpy at all")
    with pytest.raises(InvalidInputError, match="is not a"):
        open_source(tmp_path / name)


def test_urls_are_refused():
    with pytest.raises(InvalidInputError, match=r"source s3://bucket/x\.npy is a URL; only local paths are read"):
        open_source("s3://bucket/x.npy")


@pytest.mark.parametrize("name", ["x.dat", "x", "x.h5"])
def test_unknown_kinds_are_refused_with_the_known_ones(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(InvalidInputError, match=rf"{name} is of no known kind; use a file of \.npy, .*Zarr folder"):
        open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["x.npy.gz", "x.tsv.zst", "x.zip"])
def test_compressed_files_are_refused_with_the_remedy(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(InvalidInputError, match=rf"{name} is compressed as a whole; decompress it first"):
        open_source(tmp_path / name)


def test_a_folder_of_anything_else_is_refused(tmp_path):
    (tmp_path / "x.csv").touch()
    with pytest.raises(InvalidInputError, match=r"holds neither \.parquet files nor a Zarr description"):
        open_source(tmp_path)


@pytest.mark.parametrize("name", ["x.npy", "x.csv"])
def test_a_key_is_refused_where_there_is_one_table(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(InvalidInputError, match=rf"key='a' names an array .*{name} holds only one table"):
        open_source(str(tmp_path / name), "a")


def test_importing_sources_stays_light():
    code = "import sys, pipeline.sources; print({'pyarrow', 'zarr', 'dask', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
