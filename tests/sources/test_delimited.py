"""CSV and TSV files."""

import csv
import gzip
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.sources import open_source, text_rows
from pipeline.sources.dialect import MISSING, Dialect, dialect_of
from pipeline.sources.gzipped import _kept, unpacked


@pytest.fixture
def short_runs(monkeypatch):
    """So that a small file has many runs and blocks."""
    monkeypatch.setattr(text_rows, "INDEXED_ROWS", 8)
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", 64)


def written(path, header, *columns, line_end="\n", encoding="utf-8", end="\n"):
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator=line_end)
        writer.writerows([header] * bool(header))
        writer.writerows(zip(*columns, strict=True))
        file.write(end)
    return path


def text(tmp_path, content):
    (tmp_path / "x.csv").write_bytes(content)
    return tmp_path / "x.csv"


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".CSV"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("header", [["ä", "b", "id"], None])
@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n\n"])
def test_a_file_is_read_in_any_blocks_and_order(tmp_path, rng, suffix, line_end, encoding, header, end, check_reads):
    array = rng.normal(size=(50, 2))
    path = tmp_path / f"x{suffix}"
    written(path, header, *array.T, np.arange(50), line_end=line_end, encoding=encoding, end=end)
    source = open_source(path, id_column=2)
    check_reads(source, array, np.arange(50))
    assert source.column_names == (["ä", "b"] if header else ["0", "1"])
    check_reads(open_source(path, columns=[1]), array[:, [1]])


def test_a_file_of_many_runs_is_read(tmp_path, rng, check_reads):
    array = rng.normal(size=(10_000, 3))
    check_reads(open_source(written(tmp_path / "x.csv", "abc", *array.T)), array)


@pytest.mark.usefixtures("short_runs")
def test_line_ends_within_quotes_end_no_row(tmp_path, rng, check_reads):
    array = rng.normal(size=(60, 2))
    names = np.array([f'{i} "said"\nwith, commas\r\nand lines{"!" * i}' for i in range(60)])
    path = written(tmp_path / "x.csv", ["the\nname", "x", "y"], names, *array.T, line_end="\r\n")
    check_reads(open_source(path, id_column="the\nname"), array, names)


PIECES = st.lists(st.sampled_from(["a", '"', ",", "\n", "\r\n", " ", "\t", "é", "1", "NA"]), min_size=1, max_size=6)


@given(names=st.lists(PIECES.map("".join), min_size=1, max_size=40), block_bytes=st.integers(1, 20))
def test_any_text_is_an_id(tmp_path_factory, names, block_bytes):
    path = written(tmp_path_factory.mktemp("any") / "x.csv", ["n", "x"], names, range(len(names)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "BLOCK_BYTES", block_bytes)
        source = open_source(path, id_column="n")
        np.testing.assert_array_equal(source.ids(0, len(names)).astype(str), names)
        np.testing.assert_array_equal(source.read(0, len(names))[:, 0], range(len(names)))


def test_fields_without_a_number_are_nan(tmp_path, check_reads):
    path = text(tmp_path, b'a,b,c\n1,,NA\nNaN, 2 ,"3"\n"",inf,-1e-3\n')
    check_reads(open_source(path), np.array([[1, np.nan, np.nan], [np.nan, 2, 3], [np.nan, np.inf, -0.001]]))


def test_the_parser_and_the_first_line_agree_on_what_is_missing(tmp_path):
    path = text(tmp_path, "".join(f"{missing},1\n" for missing in ["a", *sorted(MISSING)]).encode())
    assert np.isnan(open_source(path).read(0, len(MISSING))[:, 0]).all()


def test_a_first_line_of_numbers_is_data_even_if_some_are_missing(tmp_path):
    source = open_source(text(tmp_path, b"1,NA,\n4,5,6\n"))
    np.testing.assert_array_equal(source.read(0, 2), [[1, np.nan, np.nan], [4, 5, 6]])


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["1", "-20", "300"], np.array([1, -20, 300])),
        (["1", "2", "x"], np.array(["1", "2", "x"])),
        (["1", "02", "3"], np.array(["1", "02", "3"])),
        (["1", "2.0", "3"], np.array(["1", "2.0", "3"])),
        (["1", "9999999999999999999", "3"], np.array(["1", "9999999999999999999", "3"])),
        (["NA", "nan", "null"], np.array(["NA", "nan", "null"])),
    ],
)
def test_ids_are_integers_only_if_all_of_them_read_back_the_same(tmp_path, monkeypatch, ids, expected):
    monkeypatch.setattr(text_rows, "INDEXED_ROWS", 1)
    source = open_source(written(tmp_path / "x.csv", ["id", "x"], ids, [1, 2, 3]), id_column="id")
    for start, stop in [(0, 3), (0, 1), (1, 1)]:
        assert source.ids(start, stop).dtype.kind == expected.dtype.kind
        np.testing.assert_array_equal(source.ids(start, stop), expected[start:stop])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty or begins with a blank line"),
        (b"\n\n", "is empty or begins with a blank line"),
        (b"\na,b\n1,2\n", "is empty or begins with a blank line"),
        (b"a,b\n", "holds no rows of data"),
        (b"a,a\n1,2\n", "has two columns named 'a'"),
        (b",a\n1,2\n", "column 0 of .* is named '', as pandas names an index"),
        (b"\xff\xfea\x00,\x00b\x00\n\x00", "is not a table in UTF-8 text"),
        (b'a,b\n1,"2\n', "ends within quotes"),
        (b"a,b\n1,2\n3,x y\n", r"row 1 \(from 0, after any header\) holds 'x y' in column 'b', which is not a number"),
        (b"a,b\n1,2\n3,1_0\n", "row 1 .* holds '1_0' in column 'b'"),
        (b"a,b\n1,2\n3\n", r"row 1 .* has 1 fields where the first line has 2"),
        (b"a,b\n1,2,3\n", r"row 0 .* has 3 fields where the first line has 2"),
        (b"a,b\n1,2\n\n3,4\n", r"row 1 .* is blank; remove the line"),
        (b"a\n1\n\n3\n", r"row 1 .* is blank; remove the line"),
        (b"a;b\n1;2\n3\n", r"row 1 .* has 1 fields where the first line has 2"),
        (b"a;b\n1,5;2\n3.5;4\n", r"row 0 .* holds '1,5' in column 'a', which is not a number; write decimal points"),
        (b"a;b\n1,234;2\n", r"row 0 .* holds '1,234' in column 'a', .*separators of thousands"),
        (b"a,b\r1,2\r3,4\r", "is not a table in UTF-8 text: new-line character seen"),
        (b"a,b\n1,2\r3,4\n", r"cannot be parsed in rows 0 to 1: 2 rows are there. A quote or a carriage return"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(tmp_path, content, message):
    with pytest.raises(InvalidInputError, match=message):
        open_source(text(tmp_path, content))


def test_a_bare_quote_does_not_hide_rows(tmp_path):
    path = text(tmp_path, b'n,x\n5" pipe,1\nb,2\n6" pipe,3\nd,4\n')
    with pytest.raises(InvalidInputError, match=r"cannot be parsed in rows 0 to 2: 4 rows are there. A quote"):
        open_source(path, id_column="n")


def test_faults_far_into_a_file_are_found_where_they_are_read(tmp_path):
    column = [str(i) for i in range(10_000)]
    column[9000] = "abc"
    source = open_source(written(tmp_path / "x.csv", ["a"], column))
    assert source.read(8000, 8192)[0] == 8000
    with pytest.raises(InvalidInputError, match=r"x\.csv: row 9000 .* holds 'abc' in column 'a'"):
        source.read(8192, 10_000)


def test_columns_of_text_that_are_not_chosen_do_not_matter(tmp_path, check_reads):
    path = text(tmp_path, b"name,x,other\na,1,\xff\nb,2,q\n")
    check_reads(open_source(path, columns=["x"], id_column="name"), np.array([[1.0], [2.0]]), np.array(["a", "b"]))
    with pytest.raises(InvalidInputError, match=r"row 0 .* holds 'a' in column 'name'"):
        open_source(path)
    with pytest.raises(InvalidInputError, match="invalid UTF8"):
        open_source(path, columns=["x"], id_column="other")


def test_an_empty_id_is_refused_with_its_row(tmp_path):
    path = text(tmp_path, b"id,x\na,1\n,2\n")
    with pytest.raises(InvalidInputError, match=r"column 'id' of .* is empty in row 1; give every row an id"):
        open_source(path, id_column="id").ids(0, 2)


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".csv.gz", ".TSV.GZ"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [["x", "y", "name"], None])
def test_separators_are_told_from_the_first_rows(tmp_path, rng, suffix, separator, header, check_reads):
    array = rng.normal(size=(150, 2))
    lines = [header] * bool(header) + [[repr(x), repr(y), str(i)] for i, (x, y) in enumerate(array.tolist())]
    path = packed(tmp_path / f"t{suffix}", "\n".join(separator.join(line) for line in lines) + "\n")
    check_reads(open_source(path, id_column=2), array, np.arange(150))


def packed(path, content):
    """A text file, gzipped if its name says so."""
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "wb") as file:
        file.write(content.encode())
    return path


@pytest.mark.parametrize("style", ["%.18e", "%d"])
def test_lines_of_numbers_with_spaces_are_a_table(tmp_path, rng, style, check_reads):
    array = np.rint(1000 * rng.normal(size=(150, 3))) / (1 if style == "%d" else 7)
    np.savetxt(tmp_path / "x.txt", array, style)
    check_reads(open_source(tmp_path / "x.txt"), array)


def test_a_text_file_of_anything_else_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "x.txt").write_text("ACGT\nCGTA\n")
    with pytest.raises(InvalidInputError, match=r"holds 'CGTA' .*If its lines are texts to compare, choose input="):
        open_source(tmp_path / "x.txt")
    (tmp_path / "x.txt").write_text("One line.")
    with pytest.raises(InvalidInputError, match=r"holds no rows of data.* choose input=") as refused:
        open_source(tmp_path / "x.txt")
    assert not isinstance(refused.value, EmptySourceError)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_decimal_commas_are_read_between_semicolons(tmp_path, rng, suffix, check_reads):
    array = rng.normal(size=(9000, 2)) * 1e5
    content = "\n".join(f"{float(x)!r};{float(y)!r}".replace(".", ",") for x, y in array)
    check_reads(open_source(packed(tmp_path / f"x{suffix}", content)), array)


@pytest.mark.parametrize(
    ("content", "suffix", "expected"),
    [
        ("a,b\n1,2\n", ".csv", Dialect(",")),
        ("a,b\n1,2\n", ".tsv", Dialect(",")),
        ("1,2\t3,4\n1,2\t3,4\n", ".csv", Dialect(",")),
        ("a;b\n1,5;2\n", ".csv", Dialect(";", ",")),
        ("1,5;2,5\n3,5;4,5\n", ".csv", Dialect(";", ",")),
        ("1;2\n3;4\n", ".csv", Dialect(";", ",")),
        ("1,500;2,500\n", ".csv", Dialect(";", ".")),
        ("0,500;2,500\n", ".csv", Dialect(";", ",")),
        ("1,5;2.5\n", ".csv", Dialect(";", ".")),
        ("a;b,1,2\nc;d,3,4\n", ".csv", Dialect(",")),
        ("x;y\nhello; world\n", ".csv", Dialect(",")),
        ('"a;b",1\n"c;d",2\n', ".csv", Dialect(",")),
        ("1\n2\n", ".csv", Dialect(",")),
        ("1 2\n3 4\n", ".csv", Dialect(",")),
        ("1 2\n3 4\n", ".txt", Dialect(" ")),
        ("1  2\n3  4\n", ".txt", Dialect(",")),
        ("", ".csv", Dialect(",")),
    ],
)
def test_a_dialect_is_chosen_only_where_it_gives_a_table(content, suffix, expected):
    found = dialect_of(content, suffix)
    # Whole numbers are the same in both.
    assert found.delimiter == expected.delimiter
    assert found.decimal == expected.decimal or "," not in content


def test_a_gzipped_table_leaves_nothing_behind(tmp_path, monkeypatch, rng):
    path = packed(tmp_path / "x.csv.gz", "\n".join(map(repr, rng.normal(size=9000).tolist())))
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    source = open_source(path)
    held = unpacked(source._table._stamp)
    assert held.path.stat().st_size > path.stat().st_size
    assert list(folder.iterdir()) == []
    assert unpacked(source._table._stamp) is held


def test_threads_share_a_gzipped_table(tmp_path, rng):
    array = rng.normal(size=20_000)
    source = open_source(packed(tmp_path / "x.csv.gz", "\n".join(map(repr, array.tolist()))))
    _kept.cache_clear()
    with ThreadPoolExecutor(4) as threads:
        starts = range(0, 20_000, 500)
        found = list(threads.map(lambda start: source.read(start, start + 500)[:, 0], starts))
    np.testing.assert_array_equal(np.concatenate(found), array)
    assert _kept.cache_info().misses == 1


def test_a_damaged_gzipped_table_is_refused(tmp_path, rng):
    path = packed(tmp_path / "x.csv.gz", "\n".join(map(repr, rng.normal(size=900).tolist())))
    data = path.read_bytes()
    for damaged in (data[:-50], b"x" + data[1:], data[:500] + b"x" + data[501:]):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInputError, match=r"x\.csv\.gz is damaged: it cannot be unpacked"):
            open_source(path)


def test_a_temporary_folder_that_cannot_be_used_is_named_with_the_remedy(tmp_path, monkeypatch):
    path = packed(tmp_path / "x.csv.gz", "1\n2\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(InvalidInputError, match=r"cannot be unpacked to .*missing: .* TMPDIR"):
        open_source(path)


@pytest.mark.usefixtures("short_runs")
def test_no_more_of_the_file_is_read_than_the_rows_need(tmp_path, rng, monkeypatch):
    path = written(tmp_path / "x.csv", "ab", *rng.normal(size=(2, 1000)))
    source = open_source(path)
    table, parsed = source._table, []
    parse = table._arrow_table
    monkeypatch.setattr(table, "_arrow_table", lambda data, *rest: (parsed.append(len(data)), parse(data, *rest))[1])
    source.read(500, 520)
    assert len(parsed) == 3
    assert sum(parsed) < path.stat().st_size / 20


def test_a_file_that_shrinks_during_the_scan_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.sources.delimited.content_end", lambda file, start: 1000)
    with pytest.raises(InvalidInputError, match=r"x\.csv became shorter while it was read"):
        open_source(text(tmp_path, b"a,b\n1,2\n"))


def test_the_fingerprint_changes_with_the_file(tmp_path, rng):
    path = written(tmp_path / "x.csv", "ab", *rng.normal(size=(2, 10)))
    source = open_source(path)
    before = source.fingerprint()
    assert before == open_source(path).fingerprint()
    assert before != open_source(path, columns=["a"]).fingerprint()
    os.utime(path, ns=(1, 1))
    assert before != source.fingerprint()
    with pytest.raises(InvalidInputError, match=r"x\.csv has changed since it was opened"):
        source.read(0, 1)
