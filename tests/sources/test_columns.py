"""Columns are chosen by name or number, the same way for every kind of source."""

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet as pq

from pipeline.errors import InvalidInputError
from pipeline.sources import open_source
from pipeline.sources.source import chosen_columns, column_number

NAMES = ["height", "width", "2", "label"]


@pytest.mark.parametrize(
    ("column", "number"), [("width", 1), (1, 1), ("1", 1), (np.int32(3), 3), ("2", 2), ("3", 3), (np.str_("label"), 3)]
)
def test_a_column_is_found_by_name_or_number(column, number):
    assert column_number("columns", column, "t", NAMES) == number


def test_a_name_that_looks_like_a_number_is_a_name():
    assert column_number("columns", "1", "t", ["a", "b", "1"]) == 2
    assert column_number("columns", 1, "t", ["a", "b", "1"]) == 1


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("heigth", r"columns: 'heigth' is not a column of t; did you mean 'height'\?"),
        ("zzz", r"'zzz' is not a column of t; it has 'height', 'width', '2', 'label' \(numbers 0 to 3\)"),
        (4, r"4 is not a column of t; it has .* \(numbers 0 to 3\)"),
        ("17", "'17' is not a column of t"),
        (-1, "-1 is not a column of t"),
        (True, "True is neither the name nor the number"),
        (1.5, "1.5 is neither the name nor the number"),
        (None, "None is neither the name nor the number"),
    ],
)
def test_an_unknown_column_is_refused_with_the_valid_ones(column, message):
    with pytest.raises(InvalidInputError, match=message):
        column_number("columns", column, "t", NAMES)


def test_the_order_of_the_choice_is_kept():
    assert chosen_columns(["label", 0], None, "t", NAMES) == (3, 0)
    assert chosen_columns(np.array([2, 1]), None, "t", NAMES) == (2, 1)
    assert chosen_columns(None, 1, "t", NAMES) == (0, 2, 3)


@pytest.mark.parametrize(
    ("columns", "id_number", "message"),
    [
        (["width", 1], None, "names column 'width' of t twice"),
        (["width", "label"], 3, "names the id_column 'label' of t"),
        ([0], 0, "names the id_column 'height' of t"),
        ([], None, r"columns=\[\] chooses nothing"),
        ("width", None, "columns='width' must be a list"),
        (3, None, "columns=3 must be a list"),
    ],
)
def test_a_choice_that_makes_no_table_is_refused(columns, id_number, message):
    with pytest.raises(InvalidInputError, match=message):
        chosen_columns(columns, id_number, "t", NAMES)


@pytest.mark.parametrize(
    ("columns", "exclude", "id_number", "chosen"),
    [
        (["0-2"], None, None, (0, 1, 2)),
        (["3", "1-2"], None, None, (3, 1, 2)),
        (["2-2"], None, None, (2,)),
        (None, ["width"], None, (0, 2, 3)),
        (None, [0, "label"], None, (1, 2)),
        (None, ["1-3"], None, (0,)),
        (None, ["height"], 0, (1, 2, 3)),
        (["0-3"], ["1"], None, (0, 2, 3)),
        (["0-3"], ["label"], 3, (0, 1, 2)),
        (None, [], None, (0, 1, 2, 3)),
    ],
)
def test_ranges_are_inclusive_and_columns_are_left_out(columns, exclude, id_number, chosen):
    assert chosen_columns(columns, id_number, "t", NAMES, exclude) == chosen


def test_a_name_that_looks_like_a_range_is_a_name():
    assert chosen_columns(["0-1"], None, "t", ["a", "b", "0-1"]) == (2,)
    assert chosen_columns(None, None, "t", ["a", "b", "0-1"], ["0-1"]) == (0, 1)


@pytest.mark.parametrize(
    ("columns", "exclude", "message"),
    [
        (["2-9"], None, r"columns: '2-9' goes beyond the columns of t; it has .* \(numbers 0 to 3\)"),
        (["2-1"], None, "columns: '2-1' has no columns; write the smaller number first"),
        (["0-2", "1"], None, "names column 'width' of t twice"),
        (["a-b"], None, "columns: 'a-b' is not a column of t"),
        (None, ["7"], "exclude: '7' is not a column of t"),
        (None, ["0-9"], "exclude: '0-9' goes beyond the columns of t"),
        (None, ["widht"], r"exclude: 'widht' is not a column of t; did you mean 'width'\?"),
        (None, "width", "exclude='width' must be a list"),
        (None, ["0-3"], "exclude leaves no column of t"),
        (["width"], ["1"], "exclude leaves none of these columns"),
    ],
)
def test_a_range_or_exclusion_that_cannot_be_is_refused(columns, exclude, message):
    with pytest.raises(InvalidInputError, match=message):
        chosen_columns(columns, None, "t", NAMES, exclude)


def test_an_index_of_pandas_can_be_left_out():
    assert chosen_columns(None, None, "t", ["", "a"], [0]) == (1,)


@pytest.mark.parametrize("kind", ["npy", "npz", "zarr", "parquet", "csv", "array"])
def test_columns_are_left_out_of_every_kind_of_source(tmp_path, kind):
    array = np.arange(50.0).reshape(10, 5)
    path = tmp_path / f"x.{kind}"
    save = {
        "npy": lambda: np.save(path, array),
        "npz": lambda: np.savez(path, x=array, y=array[:, 0].astype(int)),
        "zarr": lambda: zarr.create_array(path, data=array),
        "parquet": lambda: pq.write_table(pa.table({str(i): array[:, i] for i in range(5)}), path),
        "csv": lambda: np.savetxt(path, array, delimiter=","),
        "array": lambda: None,
    }
    save[kind]()
    key = "x" if kind == "npz" else None
    source = open_source(array if kind == "array" else path, key, ["0-3"], exclude=["1"])
    np.testing.assert_array_equal(source.read(0, 10), array[:, [0, 2, 3]])
    assert source.column_names == ["0", "2", "3"]


def test_an_id_column_must_leave_a_column():
    with pytest.raises(InvalidInputError, match="id_column takes the only column of t"):
        chosen_columns(None, 0, "t", ["a"])


@pytest.mark.parametrize("name", ["", "__index_level_0__"])
def test_an_index_of_pandas_is_not_taken_for_a_coordinate(name):
    with pytest.raises(InvalidInputError, match="as pandas names an index; make it the id_column"):
        chosen_columns(None, None, "t", [name, "a"])
    assert chosen_columns(None, 0, "t", [name, "a"]) == (1,)
    assert chosen_columns([0, 1], None, "t", [name, "a"]) == (0, 1)


def test_the_choice_is_part_of_the_fingerprint(rng):
    array = rng.integers(0, 9, size=(20, 3))
    choices = [{}, {"columns": [0, 1]}, {"columns": [1, 0]}, {"id_column": 2}, {"columns": [0], "id_column": 2}]
    found = [open_source(array, **choice).fingerprint() for choice in choices]
    assert all(a != b for i, a in enumerate(found) for b in found[:i])
    assert found[0] == open_source(array, columns=[0, 1, 2]).fingerprint()


def test_rows_outside_of_the_table_and_ids_that_are_not_there_are_refused(rng):
    source = open_source(rng.normal(size=(5, 2)))
    for start, stop in [(-1, 2), (3, 2), (4, 6)]:
        with pytest.raises(InvalidInputError, match=rf"rows {start} to {stop} are outside of the 5 rows of the array"):
            source.read(start, stop)
    with pytest.raises(InvalidInputError, match="the array was opened without ids; name them with id_column"):
        source.ids(0, 1)
