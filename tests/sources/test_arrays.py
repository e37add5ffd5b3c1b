"""Arrays in memory, and arrays that are computed where they are sliced."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse

from pipeline.errors import InvalidInputError
from pipeline.sources import arrays as matrices
from pipeline.sources import open_source


class Sliced:
    """What an HDF5 dataset looks like from outside. Records how much was read at once."""

    def __init__(self, array, dtype=None):
        self.shape, self.dtype = array.shape, dtype or array.dtype
        self.array, self.largest = array, 0

    def __getitem__(self, rows):
        self.largest = max(self.largest, rows.stop - rows.start)
        return self.array[rows]


FOR_ALL_SHAPES = (np.asarray, np.ndarray.tolist, np.asfortranarray, Sliced)


@pytest.fixture(params=["memory", "lists", "memory by columns", "lazy", "dask"])
def kept(request):
    return {
        "memory": np.asarray,
        "lists": np.ndarray.tolist,
        "memory by columns": np.asfortranarray,
        "lazy": Sliced,
        "dask": lambda array: da.from_array(array, chunks=(7, 2)),
    }[request.param]


def test_arrays_are_read_in_any_blocks_and_order(kept, rng, check_reads):
    array = rng.normal(size=(40, 5))
    check_reads(open_source(kept(array)), array)


def test_columns_and_ids_are_chosen_by_number(kept, rng, check_reads):
    array = rng.integers(-50, 50, size=(40, 5)).astype(float)
    source = open_source(kept(array), columns=[4, "0"], id_column=2)
    check_reads(source, array[:, [4, 0]], array[:, 2].astype(np.int64))
    assert source.column_names == ["4", "0"]
    assert open_source(kept(array), id_column=2).column_names == ["0", "1", "3", "4"]


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float16, np.float64])
def test_arrays_of_more_dimensions_are_flattened(kept, rng, check_reads, dtype):
    images = rng.integers(0, 2, size=(40, 5, 3, 2)).astype(dtype)
    array = kept(images) if kept in FOR_ALL_SHAPES else da.from_array(images, chunks=(7, 2, 3, 1))
    flat = np.asarray(images.tolist() if kept is np.ndarray.tolist else images).reshape(40, 30)
    check_reads(open_source(array), flat)
    check_reads(open_source(array, columns=[29, "7"]), flat[:, [29, 7]])
    changed = images.copy()
    changed[-1, -1, -1, -1] = 1 - changed[-1, -1, -1, -1]
    assert open_source(images).fingerprint() != open_source(changed).fingerprint()


def test_ids_are_a_column_of_flattened_rows(check_reads):
    images = np.arange(60).reshape(10, 3, 2)
    source = open_source(images.tolist(), id_column=4)
    check_reads(source, np.delete(images.reshape(10, 6), 4, axis=1), images[:, 2, 0])
    assert source.column_names == ["0", "1", "2", "3", "5"]


@pytest.mark.parametrize("shape", [(0, 2, 3), (4, 0, 3)])
def test_an_array_without_entries_is_refused(shape):
    with pytest.raises(InvalidInputError, match="it is empty"):
        open_source(np.ones(shape))


def test_content_tells_arrays_apart(kept, rng):
    array = rng.normal(size=(40, 5))
    changed = array.copy()
    changed[-1, -1] += 1e-9
    found = open_source(kept(array)).fingerprint()
    assert found == open_source(kept(array.copy())).fingerprint()
    assert found != open_source(kept(changed)).fingerprint()
    assert found != open_source(kept(array[:, :4])).fingerprint()


def test_a_dask_array_is_fingerprinted_without_computing_it():
    def fail(block):
        raise AssertionError("computed")

    array = da.ones((10, 3), chunks=5).map_blocks(fail, dtype=float)
    assert open_source(array).fingerprint()["name"] == array.name
    assert open_source(array).shape == (10, 3)


def test_few_columns_of_wide_rows_are_read_by_strips(rng, monkeypatch, check_reads):
    monkeypatch.setattr(matrices, "STRIP_BYTES", 8 * 100 * 3)
    lazy = Sliced(rng.normal(size=(50, 100)))
    check_reads(open_source(lazy, columns=[99, 3]), lazy.array[:, [99, 3]])
    assert lazy.largest == 3


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float64, ">f4"])
def test_whole_numbers_of_any_dtype_are_ids(dtype):
    array = np.array([[1, 100], [2, 50]]).astype(dtype)
    np.testing.assert_array_equal(open_source(array, id_column=1).ids(0, 2), [100, 50])


@pytest.mark.parametrize(
    "value", [np.float64(0.5), np.float64(np.nan), np.float64(np.inf), np.float32(2**25), np.uint64(2**63)]
)
def test_what_is_no_whole_number_or_may_have_been_rounded_is_no_id(value):
    array = np.array([[0, 0], [0, value]], dtype=value.dtype)
    with pytest.raises(InvalidInputError, match=r"id_column: the array holds .* in row 1; ids must be whole numbers"):
        open_source(array, id_column=1).ids(0, 2)
    with pytest.raises(InvalidInputError, match="in row 1;"):
        open_source(array, id_column=1).ids(1, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[1, 2], [3]], "the data of type list is no table of numbers"),
        (None, "dtype object"),
        (3.0, "must have 2 dimensions"),
        ([["a", "b"]], "must hold real numbers"),
        ([[1j]], "must hold real numbers"),
        ([[]], "it is empty"),
        (np.ma.masked_equal([[1, 2]], 2), r"the array is masked; fill it first"),
        (da.ones(5), "must have 2 dimensions"),
        (da.ones((5, 2), dtype=complex), "must hold real numbers"),
        (da.ones((5, 2))[da.arange(5) > 2], r"unknown shape .*compute_chunk_sizes"),
        (scipy.sparse.csr_array(np.eye(3)), "convert it to a dense array"),
        (Sliced(np.ones((3, 2)), "torch.float32"), "which numpy does not know"),
        (Sliced(np.ones((3, 2)), np.float32), "gives a block of float64"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(data, message):
    with pytest.raises(InvalidInputError, match=message):
        open_source(data).read(0, 3)


def test_truth_values_are_no_ids():
    with pytest.raises(InvalidInputError, match="dtype bool; ids must be integers or text"):
        open_source(np.ones((3, 2), bool), id_column=0)


def test_a_key_is_refused():
    with pytest.raises(InvalidInputError, match=r"key='x' names an array of .*; an array holds only one table"):
        open_source(np.ones((3, 2)), "x")
