"""Objects for a distance function of the user's own, out of every kind of file that can hold them."""

import csv
import json
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.sources import text_rows
from pipeline.sources.objects import digest_of_objects, open_objects

WORDS = [f'wörd {i % 7}, "{"x" * (i % 5)}"' if i % 6 else "" for i in range(50)] + ["last"]


@pytest.fixture
def short_runs(monkeypatch):
    """So that a small file has many runs and blocks."""
    monkeypatch.setattr(text_rows, "INDEXED_ROWS", 8)
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", 64)


def saved_npy(path):
    np.save(path / "x.npy", np.array(WORDS, ">U30"))
    return open_objects(path / "x.npy")


def saved_bytes(path):
    np.savez(path / "x.npz", words=np.char.encode(WORDS), other=np.ones(3))
    return open_objects(path / "x.npz", "words")


def saved_compressed(path):
    np.savez_compressed(path / "x.npz", WORDS)
    return open_objects(str(path / "x.npz"))


def saved_zarr(path, zarr_format=3):
    zarr.create_array(path / "x", shape=len(WORDS), dtype=str, chunks=(10,), zarr_format=zarr_format)[:] = WORDS
    return open_objects(path / "x")


def saved_zarr_2(path):
    return saved_zarr(path, 2)


def saved_in_a_group(path):
    group = zarr.create_group(path / "g", zarr_format=2)
    group.create_array("deep/words", data=np.array(WORDS), chunks=(10,))
    group.create_array("deep/bytes", data=np.char.encode(WORDS), chunks=(10,))
    return open_objects(path / "g", "deep/bytes")


def saved_lines(path):
    (path / "x.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return open_objects(path / "x.txt")


def saved_csv(path):
    with (path / "x.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["n", "word"], *enumerate(WORDS)])
    return open_objects(path / "x.csv", "word")


def saved_parquet(path, kind=None):
    words = pa.array(WORDS) if kind is None else pa.array(WORDS).cast(kind)
    pq.write_table(pa.table({"n": range(len(WORDS)), "word": words}), path / "x.parquet", row_group_size=12)
    return open_objects(path / "x.parquet", "word")


def saved_categories(path):
    return saved_parquet(path, pa.dictionary(pa.int32(), pa.string()))


SAVES = [
    saved_npy,
    saved_bytes,
    saved_compressed,
    saved_zarr,
    saved_zarr_2,
    saved_in_a_group,
    saved_lines,
    saved_csv,
    saved_parquet,
    saved_categories,
]


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("save", SAVES)
def test_texts_are_read_in_any_blocks_and_order(tmp_path, save):
    source = save(tmp_path)
    n = len(WORDS)
    assert (source.n_rows, source.is_text, source.n_columns) == (n, True, None)
    for reader in (source, pickle.loads(pickle.dumps(source))):
        for start, stop in [(0, n), (30, 41), (n - 1, n), (7, 7), (8, 8), (n, n), (0, 9)]:
            found = reader.read(start, stop)
            assert found == WORDS[start:stop]
            assert all(type(text) is str for text in found)
        rows = [n - 1, 3, 3, 0, 24, 25, 40]
        assert reader.take(rows) == reader.take(np.array(rows)) == [WORDS[row] for row in rows]
    with pytest.raises(InvalidInputError, match=f"rows 3 to {n + 1} are outside of the {n} rows of"):
        source.read(3, n + 1)
    with pytest.raises(InvalidInputError, match=f"rows has {n}; row numbers run from 0 to {n - 1}"):
        source.take([0, n])


@pytest.mark.parametrize("save", SAVES)
def test_the_fingerprint_is_cheap_and_changes_with_the_file(tmp_path, save):
    source = save(tmp_path)
    before = source.fingerprint()
    json.dumps(before)
    assert pickle.loads(pickle.dumps(source)).fingerprint() == before
    assert len(pickle.dumps(source)) < 3000
    for file in tmp_path.rglob("*"):
        os.utime(file, ns=(1, 1))
    assert source.fingerprint() != before


@pytest.mark.parametrize("save", [saved_npy, saved_lines, saved_csv, saved_parquet])
def test_a_file_that_changes_after_it_was_opened_is_refused(tmp_path, save):
    source = save(tmp_path)
    source = pickle.loads(pickle.dumps(source))
    for file in tmp_path.iterdir():
        os.utime(file, ns=(1, 1))
    with pytest.raises(InvalidInputError, match="has changed since it was opened"):
        source.read(0, 1)


LINES = st.lists(st.text(st.sampled_from('aé"\t\x0b\x85\u2028 '), max_size=6), min_size=1, max_size=40)


@given(
    lines=LINES,
    line_end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    n_blank=st.integers(0, 3),
    block_bytes=st.integers(1, 20),
    run=st.integers(1, 9),
)
def test_lines_end_only_with_line_feeds(tmp_path_factory, lines, line_end, mark, n_blank, block_bytes, run):
    lines[-1] += "."  # blank lines at the end would not count
    text = line_end.join(lines) + line_end * n_blank
    path = tmp_path_factory.mktemp("lines") / "x.TXT"
    path.write_bytes(text.encode("utf-8-sig" if mark else "utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "BLOCK_BYTES", block_bytes)
        patch.setattr(text_rows, "INDEXED_ROWS", run)
        source = open_objects(path)
        assert source.read(0, source.n_rows) == lines
        assert source.take([len(lines) // 2]) == [lines[len(lines) // 2]]


@pytest.mark.usefixtures("short_runs")
def test_a_block_of_lines_is_read_alone(tmp_path):
    lines = [f"line {i}" for i in range(1000)]
    path = tmp_path / "x.txt"
    path.write_bytes("\n".join(lines).encode())
    source = open_objects(path)
    status = path.stat()
    data = path.read_bytes()
    begin, end = data.index(b"line 496"), data.index(b"line 520")
    with path.open("r+b") as file:  # what is not needed is made unreadable, and the file looks unchanged
        file.write(b"\xff" * begin)
        file.seek(end)
        file.write(b"\xff" * (len(data) - end))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.read(500, 515) == lines[500:515]
    with pytest.raises(InvalidInputError, match=r"x\.txt is no UTF-8 text in line 520 \(from 0\)"):
        source.read(500, 521)


def test_a_file_that_shrinks_while_it_is_indexed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.sources.objects.content_end", lambda file, start: 10_000)
    with pytest.raises(InvalidInputError, match=r"x\.txt became shorter while it was read"):
        saved_lines(tmp_path)


def test_numbers_in_a_column_of_delimited_text_stay_text(tmp_path):
    (tmp_path / "x.tsv").write_text("a\tb\n007\tNA\n1e3\t \n")
    assert open_objects(tmp_path / "x.tsv", "a").read(0, 2) == ["007", "1e3"]
    assert open_objects(tmp_path / "x.tsv", "1").read(0, 2) == ["NA", " "]


def test_a_folder_of_parquet_files_is_read(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, part in enumerate((WORDS[:20], WORDS[20:])):
        pq.write_table(pa.table({"word": part}), folder / f"{number}.parquet")
    source = open_objects(folder, "word")
    assert source.read(0, len(WORDS)) == WORDS
    assert source.take([21, 19]) == [WORDS[21], WORDS[19]]
    (folder / "deep").mkdir()
    pq.write_table(pa.table({"word": ["x"]}), folder / "deep" / "2.parquet")
    with pytest.raises(InvalidInputError, match="in folders below it; only a flat one is read"):
        open_objects(folder, "word")


@pytest.mark.parametrize("kind", ["npy", "npz", "zarr", "csv", "parquet"])
def test_rows_of_numbers_are_objects_too(tmp_path, rng, kind):
    array = rng.integers(0, 200, size=(40, 3)).astype(np.uint8)
    path = tmp_path / f"x.{kind}"
    saves = {
        "npy": lambda: np.save(path, array),
        "npz": lambda: np.savez(path, v=array, w=array),
        "zarr": lambda: zarr.create_array(path, data=array, chunks=(7, 2)),
        "csv": lambda: np.savetxt(path, array, delimiter=","),
        "parquet": lambda: pq.write_table(pa.table({name: array[:, i] for i, name in enumerate("abc")}), path),
    }
    saves[kind]()
    source = open_objects(path, "v" if kind == "npz" else None)
    assert (source.n_rows, source.n_columns, source.is_text) == (40, 3, False)
    for reader in (source, pickle.loads(pickle.dumps(source))):
        block = reader.read(3, 20)
        assert block.dtype == np.float64
        np.testing.assert_array_equal(block, array[3:20])
        np.testing.assert_array_equal(reader.take([39, 2, 2, 17]), array[[39, 2, 2, 17]])
    assert open_objects(path, "w" if kind == "npz" else None).read(5, 5).shape == (0, 3)


def test_few_rows_of_wide_vectors_cost_few_reads_and_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.sources.objects.STRIP_BYTES", 1000)
    array = np.arange(5000.0).reshape(500, 10)
    np.save(tmp_path / "x.npy", array)
    source = open_objects(tmp_path / "x.npy")
    blocks, read = [], source._rows.read
    monkeypatch.setattr(source._rows, "read", lambda *rows: (blocks.append(rows), read(*rows))[1])
    np.testing.assert_array_equal(source.take([499, 3, 250, 1]), array[[499, 3, 250, 1]])
    assert blocks == [(1, 4), (250, 251), (499, 500)]


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("none.npy", None, "does not exist"),
        ("x.txt", "q", r"key='q' names an array or a column; .*x\.txt has lines only"),
        ("empty.txt", None, "holds no lines of text; it is empty"),
        ("x.gz", None, "is compressed as a whole"),
        ("x.csv", None, "which is not a number; .* To take the texts of one column for objects, name it with key"),
        ("x.csv", "wrd", r"key: 'wrd' is not a column of .*; did you mean 'word'\?"),
        ("x.parquet", None, "has type string, not a number; .* name it with key"),
        ("x.parquet", "n", r"column 'n' of .* has type int64, not text; choose another with key"),
        ("x.npz", None, "holds 8 arrays; choose one with key"),
        ("x.npz", "objects", "has dtype object; objects must be text or real numbers, and pickled ones are never"),
        ("x.npz", "complex", "has dtype complex128; objects must be text or real numbers"),
        ("x.npz", "dates", "objects must be text or real numbers"),
        ("x.npz", "table", r"has shape \(2, 2\); texts must have 1 dimension"),
        ("x.npz", "none", "holds no texts; it is empty"),
        ("x.npz", "line", r"has shape \(3,\); it must have 2 dimensions"),
        ("x.npz", "no numbers", "it is empty"),
    ],
)
def test_what_holds_no_objects_is_refused(tmp_path, name, key, message):
    saved_lines(tmp_path)
    saved_csv(tmp_path)
    saved_parquet(tmp_path)
    (tmp_path / "x.gz").touch()
    (tmp_path / "empty.txt").write_text("\n\r\n\n")
    arrays = {"objects": np.full(3, {}, object), "complex": np.ones((3, 2), complex), "line": np.ones(3)}
    arrays |= {"dates": np.zeros(3, "M8[s]"), "table": np.full((2, 2), "x"), "none": np.empty(0, "U3")}
    np.savez(tmp_path / "x.npz", **arrays, **{"no numbers": np.empty((0, 2)), "latin": np.array([b"a", b"\xe9"])})
    with pytest.raises(InvalidInputError, match=message):
        open_objects(tmp_path / name, key)
    with pytest.raises(InvalidInputError, match=r"\[latin\] holds bytes that are no UTF-8 text in row 1"):
        open_objects(tmp_path / "x.npz", "latin").read(0, 2)


def test_no_rows_are_told_from_other_faults(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n")
    with pytest.raises(EmptySourceError, match="holds no rows of data"):
        open_objects(tmp_path / "x.csv")


def test_a_null_is_refused_with_its_row(tmp_path):
    pq.write_table(pa.table({"word": ["a", "b", None, "d"]}), tmp_path / "x.parquet", row_group_size=2)
    source = open_objects(tmp_path / "x.parquet", "word")
    assert source.read(0, 2) == ["a", "b"]
    with pytest.raises(InvalidInputError, match=r"column 'word' of .* is null in row 2"):
        source.read(0, 4)


def test_the_digest_of_a_block_tells_where_texts_end():
    blocks = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [], ["\ud800"], np.ones((1, 2)), np.ones((1, 3))]
    assert len({digest_of_objects(block) for block in blocks}) == len(blocks)
    assert digest_of_objects(["ab", "c"]) == digest_of_objects(["ab", "c"])
    turned = np.arange(6.0).reshape(2, 3).T
    assert digest_of_objects(turned) == digest_of_objects(turned.copy())
