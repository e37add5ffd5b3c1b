"""Results as files of other kinds: the same numbers, in the source's order, with its ids."""

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from small import extended, fitted

from pipeline.errors import InvalidInputError
from pipeline.numerics.datasets import swiss_roll
from pipeline.results import export as export_module
from pipeline.results.export import export, export_batches
from pipeline.results.run import open_run

N = 4500


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A run of a table with names for its rows, some of them not plain."""
    folder = tmp_path_factory.mktemp("named")
    names = np.array([f"point {i}" if i % 7 else f'„ü{i}", x' for i in range(N)])
    np.savez(folder / "data.npz", X=swiss_roll(N, seed=0).points, names=names)
    fitted(folder / "data.npz", folder / "run", key="X", id_column="names")
    return open_run(folder / "run"), names


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch):
    monkeypatch.setattr(export_module, "ROWS_PER_BLOCK", 1000)


@pytest.mark.parametrize("array", ["projection", "residual", "ambiguous", "component"])
def test_npy(tmp_path, named, array):
    assert export(named[0], [array], tmp_path / "y.npy") == N
    found = np.load(tmp_path / "y.npy")
    expected = named[0].embedding(array)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("suffix", "read"), [("csv", pyarrow.csv.read_csv), ("parquet", pyarrow.parquet.read_table)])
def test_tables_carry_ids_and_named_columns(tmp_path, named, suffix, read):
    run, names = named
    path = tmp_path / f"y.{suffix}"
    export(run, ["projection", "gap", "ambiguous"], path)
    table = read(path)
    assert table.column_names == ["names", "projection_0", "projection_1", "gap", "ambiguous"]
    assert table["names"].to_pylist() == names.tolist()
    np.testing.assert_array_equal(table["projection_1"].to_numpy(), run.embedding("projection")[:, 1])
    np.testing.assert_array_equal(table["gap"].to_numpy(), run.embedding("gap"))
    np.testing.assert_array_equal(table["ambiguous"].to_numpy(), run.embedding("ambiguous"))


def test_whole_numbers_are_ids_too(tmp_path):
    points = swiss_roll(N, seed=0).points
    ids = np.arange(N)[::-1] * 10
    np.save(tmp_path / "x.npy", np.hstack([ids[:, None], points]))
    fitted(tmp_path / "x.npy", tmp_path / "run", id_column="0")
    run = open_run(tmp_path / "run")
    np.testing.assert_array_equal(run.ids(), ids)
    np.testing.assert_array_equal(run.ids(4000, 4300), ids[4000:4300])
    export(run, ["component"], tmp_path / "y.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "y.parquet")["0"].to_pylist() == ids.tolist()


@pytest.mark.parametrize(
    ("arrays", "name", "message"),
    [
        (["projection"], "y.xlsx", r"output='.*y\.xlsx' is of no known kind; end its name in \.npy, \.parquet, \.csv"),
        (["projection", "gap"], "y.npy", r"array=projection,gap: a \.npy file holds one"),
        (["projection"], "none/y.npy", "in a folder that does not exist"),
        (["labels"], "y.npy", "array='labels' is not published"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, named, arrays, name, message):
    with pytest.raises(InvalidInputError, match=message):
        export(named[0], arrays, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_ids_named_like_a_result_are_not_overwritten(tmp_path):
    np.savez(tmp_path / "x.npz", X=swiss_roll(N, seed=0).points, gap=np.arange(N))
    fitted(tmp_path / "x.npz", tmp_path / "run", key="X", id_column="gap")
    with pytest.raises(InvalidInputError, match="id_column='gap' is also the name of a result"):
        export(open_run(tmp_path / "run"), ["gap"], tmp_path / "y.csv")
    export(open_run(tmp_path / "run"), ["component"], tmp_path / "y.csv")


def test_a_failed_export_leaves_what_was_there(tmp_path, named, monkeypatch):
    path = tmp_path / "y.npy"
    path.write_bytes(b"old")
    monkeypatch.setattr(export_module, "_write_npy", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        export(named[0], ["projection"], path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("y.npy", b"old")]


@pytest.fixture(scope="module")
def placed(tmp_path_factory, named):
    """Batches of new rows with ids, without, and without rows, placed in the space of the run."""
    folder = tmp_path_factory.mktemp("placed")
    points = swiss_roll(2600, seed=1).points
    batches = {"a": points[:1500], "b": points[1500:1500], "c": points[1500:]}
    for name, rows in batches.items():
        np.savez(folder / f"{name}.npz", X=rows, names=np.array([f"{name}{i}" for i in range(len(rows))], dtype="U5"))
    np.savez(folder / "plain.npz", X=points[:9])
    for name in (*batches, "plain"):
        extended(named[0].url, folder / f"{name}.npz", folder / name)
    return {name: open_run(folder / name) for name in (*batches, "plain")}


def chosen(placed, *names):
    return {name: placed[name] for name in names}


@pytest.mark.parametrize(("suffix", "read"), [("csv", pyarrow.csv.read_csv), ("parquet", pyarrow.parquet.read_table)])
def test_batches_follow_each_other_in_one_table(tmp_path, placed, suffix, read):
    assert export_batches(chosen(placed, "a", "b", "c"), ["projection", "gap_rank"], tmp_path / f"y.{suffix}") == 2600
    table = read(tmp_path / f"y.{suffix}")
    assert table.column_names == ["batch", "names", "projection_0", "projection_1", "gap_rank"]
    assert table["batch"].to_pylist() == ["a"] * 1500 + ["c"] * 1100
    assert table["names"].to_pylist() == [f"a{i}" for i in range(1500)] + [f"c{i}" for i in range(1100)]
    expected = np.concatenate([placed[name].embedding("gap_rank") for name in "ac"])
    np.testing.assert_array_equal(table["gap_rank"].to_numpy(), expected)


def test_batches_follow_each_other_in_one_array(tmp_path, placed):
    assert export_batches(placed, ["projection"], tmp_path / "y.npy") == 2609
    expected = np.concatenate([placed[name].embedding() for name in ("a", "c", "plain")])
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_batches_without_rows_are_a_table_without_rows(tmp_path, placed):
    assert export_batches(chosen(placed, "b"), ["projection"], tmp_path / "y.parquet") == 0
    table = pyarrow.parquet.read_table(tmp_path / "y.parquet")
    assert (table.num_rows, table.column_names) == (0, ["batch", "projection_0", "projection_1"])
    assert export(placed["b"], ["gap"], tmp_path / "y.csv") == 0


def test_batches_of_other_columns_are_refused(tmp_path, placed):
    with pytest.raises(InvalidInputError, match="batch plain has other columns or ids than batch a"):
        export_batches(placed, ["gap"], tmp_path / "y.csv")
    with pytest.raises(InvalidInputError, match="batch a: array='joint' is not published"):
        export_batches(placed, ["joint"], tmp_path / "y.npy")
    assert list(tmp_path.iterdir()) == []


def test_ids_named_like_the_column_of_batches_are_not_overwritten(tmp_path, named):
    np.savez(tmp_path / "x.npz", X=swiss_roll(20, seed=1).points, batch=np.arange(20))
    extended(named[0].url, tmp_path / "x.npz", tmp_path / "out", id_column="batch")
    with pytest.raises(InvalidInputError, match="id_column='batch' is also the name of a result"):
        export_batches({"x": open_run(tmp_path / "out")}, ["gap"], tmp_path / "y.csv")
