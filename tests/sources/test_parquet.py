"""Parquet files and folders of them."""

import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import InvalidInputError
from pipeline.sources import open_source


@pytest.fixture
def array(rng):
    return rng.normal(size=(200, 3)).astype(np.float32)


def table(array, **more):
    return pa.table({**{f"c{i}": array[:, i] for i in range(array.shape[1])}, **more})


def written(path, *tables, **options):
    """One file, or a folder with a file for each table."""
    if len(tables) == 1:
        pq.write_table(tables[0], path, **options)
    else:
        path.mkdir()
        for number, part in enumerate(tables):
            pq.write_table(part, path / f"part-{number}.parquet", **options)
    return path


@pytest.mark.parametrize("group_rows", [1, 37, 1000])
def test_a_file_is_read_in_any_blocks_and_order(tmp_path, array, group_rows, check_reads):
    names = [f"n{i}" for i in range(200)]
    path = written(tmp_path / "x.parquet", table(array, name=names), row_group_size=group_rows)
    source = open_source(path, id_column="name")
    check_reads(source, array, np.array(names))
    assert source.column_names == ["c0", "c1", "c2"]
    check_reads(open_source(path, columns=["c2", 0]), array[:, [2, 0]])


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path, array, check_reads):
    ids = pa.array(np.arange(200))
    parts = [table(array, id=ids).slice(*place) for place in [(0, 50), (50, 0), (50, 101), (151, 49)]]
    path = written(tmp_path / "x", *parts, row_group_size=20)
    (path / "_SUCCESS").touch()
    check_reads(open_source(path, id_column="id"), array, np.arange(200))


@pytest.mark.parametrize(
    ("types", "dtype"),
    [
        ([np.float32], np.float32),
        ([np.float16, np.int16, np.uint8, np.bool_], np.float32),
        ([np.float32, np.float64], np.float64),
        ([np.int32], np.float64),
        ([np.int64, np.float32], np.float64),
        ([np.uint64], np.float64),
    ],
)
def test_the_dtype_is_the_smallest_that_holds_every_column(tmp_path, types, dtype, check_reads):
    columns = {f"c{i}": np.arange(10).astype(kind) for i, kind in enumerate(types)}
    path = written(tmp_path / "x.parquet", pa.table(columns))
    check_reads(open_source(path), np.column_stack([column.astype(dtype) for column in columns.values()]))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int8(), pa.int64(), pa.uint64(), pa.bool_()])
def test_nulls_are_nan(tmp_path, kind, check_reads):
    path = written(
        tmp_path / "x.parquet", pa.table({"a": pa.array([True, None, False]).cast(kind), "b": np.zeros(3, np.float32)})
    )
    source = open_source(path)
    check_reads(source, np.array([[1, 0], [np.nan, 0], [0, 0]], source.dtype))


@pytest.mark.parametrize(
    ("kind", "edge"), [(pa.int64(), 2**63 - 1), (pa.int64(), -(2**53) - 1), (pa.uint64(), 2**64 - 1)]
)
def test_integers_that_floats_would_round_are_refused(tmp_path, kind, edge):
    column = pa.array([1, 2**53, 2**60, edge, None], kind)
    source = open_source(written(tmp_path / "x.parquet", pa.table({"big": column})))
    np.testing.assert_array_equal(source.read(0, 3)[:, 0], [1.0, 2.0**53, 2.0**60])
    with pytest.raises(
        InvalidInputError, match=rf"column 'big' of .* holds {edge} in row 3, which float64 would round"
    ):
        source.read(2, 5)


def test_the_smallest_integer_is_a_float(tmp_path):
    source = open_source(written(tmp_path / "x.parquet", pa.table({"a": pa.array([-(2**63)], pa.int64())})))
    assert source.read(0, 1) == -(2.0**63)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["a", "bb", "ü"]),
        pa.array(["a", "bb", "ü"], pa.large_string()),
        pa.array(["a", "bb", "a"]).dictionary_encode(),
        pa.array([3, -1, 2**62]),
        pa.array([3, 1, 2], pa.uint8()),
    ],
)
def test_ids_are_integers_or_text(tmp_path, ids, check_reads):
    path = written(tmp_path / "x.parquet", pa.table({"id": ids, "a": np.arange(3.0)}), row_group_size=2)
    check_reads(open_source(path, id_column="id"), np.arange(3.0)[:, None], np.array(ids.to_pylist()))


def test_ids_are_of_one_kind_even_where_there_are_none(tmp_path):
    path = written(tmp_path / "x.parquet", pa.table({"i": [1, 2], "t": ["a", "b"], "a": [0.0, 1.0]}))
    assert open_source(path, columns=["a"], id_column="i").ids(1, 1).dtype == np.int64
    assert open_source(path, columns=["a"], id_column="t").ids(1, 1).dtype.kind == "U"


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (pa.array(["a", "b", None, "d"]), "column 'id' of .* is null in row 2; give every row an id"),
        (pa.array([1, 2, None, 4]), "is null in row 2"),
        (pa.array([1, 2, 2**63, 4], pa.uint64()), "holds 9223372036854775808 in row 2"),
        (pa.array([1.0, 2.0, 3.0, 4.0]), "column 'id' of .* has type double; ids must be integers or text"),
        (pa.array([b"a"] * 4), "has type binary"),
    ],
)
def test_what_cannot_name_the_rows_is_refused(tmp_path, ids, message):
    path = written(tmp_path / "x.parquet", pa.table({"id": ids, "a": np.arange(4.0)}), row_group_size=2)
    with pytest.raises(InvalidInputError, match=message):
        open_source(path, id_column="id").ids(2, 4)


@pytest.mark.parametrize(
    "column", [pa.array(["a"]), pa.array([[1.0]]), pa.array([{"x": 1}]), pa.array([0], pa.timestamp("s"))]
)
def test_a_column_that_holds_no_numbers_is_refused_by_name_and_type(tmp_path, column):
    path = written(tmp_path / "x.parquet", pa.table({"odd": column, "a": [0.0]}))
    with pytest.raises(InvalidInputError, match=r"column 'odd' of .* has type .*; choose others with columns, or make"):
        open_source(path)
    assert open_source(path, columns=["a"]).shape == (1, 1)


def test_names_with_dots_are_names(tmp_path, array, check_reads):
    path = written(tmp_path / "x.parquet", pa.table({"a": array[:, 0], "a.b": array[:, 1], "a.b.c": array[:, 2]}))
    check_reads(open_source(path, columns=["a.b", "a"]), array[:, [1, 0]])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"a": [1.0], "c": [1.0]}, r"part-1\.parquet has column 'c' of type double where .*part-0\.parquet has 'b'"),
        ({"a": [1.0], "b": [1]}, r"part-1\.parquet has column 'b' of type int64 where .* has 'b' of type double"),
        ({"a": [1.0]}, r"part-1\.parquet and .*part-0\.parquet do not both have column 'b'"),
        ({"a": [1.0], "b": [1.0], "c": [1.0]}, "do not both have column 'c'"),
    ],
)
def test_files_of_different_columns_are_refused(tmp_path, other, message):
    path = written(tmp_path / "x", pa.table({"a": [1.0], "b": [1.0]}), pa.table(other))
    with pytest.raises(InvalidInputError, match=message):
        open_source(path)


def test_files_in_folders_below_are_not_left_out_in_silence(tmp_path, array):
    path = written(tmp_path / "x", table(array), table(array))
    (path / "year=2001").mkdir()
    written(path / "year=2001" / "y.parquet", table(array))
    with pytest.raises(InvalidInputError, match=r"has \.parquet files in folders, such as .*y\.parquet"):
        open_source(path)


@pytest.mark.parametrize("columns", [{"a": np.empty(0)}, {}])
def test_an_empty_table_is_refused(tmp_path, columns):
    with pytest.raises(InvalidInputError, match="it is empty"):
        open_source(written(tmp_path / "x.parquet", pa.table(columns)))


def test_two_columns_of_one_name_are_refused(tmp_path, array):
    doubled = pa.Table.from_arrays([pa.array(array[:, 0])] * 2, names=["a", "a"])
    with pytest.raises(InvalidInputError, match="has two columns named 'a'"):
        open_source(written(tmp_path / "x.parquet", doubled))


@pytest.mark.parametrize("data", [b"", b"PAR1 not a parquet file PAR1", b"x" * 100])
def test_a_file_of_another_kind_is_refused(tmp_path, data):
    (tmp_path / "x.parquet").write_bytes(data)
    with pytest.raises(InvalidInputError, match=r"x\.parquet is not a Parquet file that can be read"):
        open_source(tmp_path / "x.parquet")


def test_a_damaged_row_group_is_named(tmp_path, array):
    path = written(tmp_path / "x.parquet", table(array), row_group_size=100, write_page_checksum=True)
    place = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[place.data_page_offset + place.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    source = open_source(path)
    np.testing.assert_array_equal(source.read(0, 100), array[:100])
    with pytest.raises(InvalidInputError, match=r"x\.parquet is damaged in row group 1"):
        source.read(50, 150)


def test_only_the_last_row_group_is_held_and_nothing_of_it_is_pickled(tmp_path, array):
    path = written(tmp_path / "x.parquet", table(array), row_group_size=50)
    source = open_source(path)
    before = len(pickle.dumps(source))
    for start in range(0, 200, 10):
        source.read(start, start + 10)
    held = source._table._last[2]
    source.read(190, 200)
    assert source._table._last[2] is held
    assert held.num_rows == 50
    assert len(pickle.dumps(source)) == before


@pytest.mark.parametrize("folder", [False, True])
def test_the_fingerprint_changes_with_the_files(tmp_path, array, folder):
    path = written(tmp_path / "x.parquet", *[table(array)] * (2 if folder else 1))
    changed = path / "part-1.parquet" if folder else path
    source = open_source(path)
    before = source.fingerprint()
    assert before == open_source(path).fingerprint()
    assert before != open_source(path, columns=["c0"]).fingerprint()
    os.utime(changed, ns=(1, 1))
    assert before != open_source(path).fingerprint()
    with pytest.raises(InvalidInputError, match=rf"{changed.name} has changed since it was opened"):
        source.read(0, len(array) * (1 + folder))
