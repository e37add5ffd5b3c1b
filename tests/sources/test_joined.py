"""Several sources as one: the rows of all, read across their borders, in a dtype that holds them."""

import numpy as np
import pytest

from pipeline.errors import InvalidInputError
from pipeline.sources import open_source
from pipeline.sources.arrays import JoinedSource, joined


@pytest.fixture
def parts(rng):
    return [rng.normal(size=(n, 3)) for n in (7, 1, 12)]


def arrays(parts, **options):
    return JoinedSource([open_source(part, **options) for part in parts])


def table(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def test_reads_across_borders(parts, check_reads):
    source = arrays(parts)
    check_reads(source, np.concatenate(parts))
    whole = np.concatenate(parts)
    for start in range(len(whole)):
        for stop in range(start, len(whole) + 1):
            np.testing.assert_array_equal(source.read(start, stop), whole[start:stop])


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((np.float32, np.float32), np.float32),
        ((np.float32, np.float64), np.float64),
        ((np.int32, np.float32), np.float64),
        ((np.bool_, np.int8), np.int8),
        ((np.int64, np.uint64), np.float64),
    ],
)
def test_the_dtype_holds_all_values(dtypes, expected, check_reads):
    parts = [np.arange(12).reshape(4, 3).astype(dtype) for dtype in dtypes]
    check_reads(arrays(parts), np.concatenate([part.astype(expected) for part in parts]))


def test_files_of_several_kinds_with_the_same_columns(tmp_path, rng, check_reads):
    rows = rng.normal(size=(5, 2)).round(3)
    np.save(tmp_path / "a.npy", rows)
    text = "x,y\n" + "\n".join(f"{x},{y}" for x, y in rows)
    sources = [open_source(tmp_path / "a.npy"), open_source(table(tmp_path, "b.csv", text))]
    check_reads(JoinedSource(sources), np.concatenate([rows, rows]))
    assert JoinedSource(sources[::-1]).column_names == ["x", "y"]


def test_ids_of_one_kind_are_joined(tmp_path, check_reads):
    names = [table(tmp_path, name, text) for name, text in (("a.csv", "id,x\nb,1\nccc,2"), ("b.csv", "id,x\ndddd,3"))]
    source = JoinedSource([open_source(name, id_column="id") for name in names])
    check_reads(source, np.array([[1.0], [2.0], [3.0]]), ["b", "ccc", "dddd"])


def test_ids_of_two_kinds_or_of_some_parts_are_none(tmp_path):
    text = open_source(table(tmp_path, "a.csv", "id,x\nb,1"), id_column="id")
    whole = open_source(table(tmp_path, "b.csv", "id,x\n7,1"), id_column="id")
    without = open_source(table(tmp_path, "c.csv", "x\n1"))
    for sources in ([text, whole], [text, without]):
        source = JoinedSource(sources)
        assert not source.has_ids
        with pytest.raises(InvalidInputError, match="no ids, or ids of different kinds"):
            source.ids(0, 1)


def test_other_columns_are_named_with_both_sources(tmp_path):
    some, others = table(tmp_path, "a.csv", "x,y\n1,2"), table(tmp_path, "b.csv", "x,z\n1,2")
    with pytest.raises(InvalidInputError, match=r"b\.csv has 2 columns \(x, z\), .*a\.csv has 2 \(x, y\)"):
        JoinedSource([open_source(some), open_source(others)])
    with pytest.raises(InvalidInputError, match=r"has 7 columns \(0, 1, 2, 3, 4, \.\.\.\), .*a\.csv has 2 \(x, y\)"):
        JoinedSource([open_source(some), open_source(np.ones((2, 7)))])


def test_the_fingerprint_is_that_of_all_parts_in_order(parts):
    reference = arrays(parts).fingerprint()
    assert arrays([part.copy() for part in parts]).fingerprint() == reference
    assert arrays(parts[::-1]).fingerprint() != reference
    parts[2][0, 0] += 1
    assert arrays(parts).fingerprint() != reference


def test_whole_numbers_that_would_be_rounded_are_refused():
    numbers = np.array([[7, 2**53 + 1, -3]])
    with pytest.raises(InvalidInputError, match="holds 9007199254740993 in row 0, which float64 would round"):
        arrays([numbers, np.full((1, 3), 0.5)]).read(0, 2)
    assert arrays([numbers, numbers]).read(0, 2)[1, 1] == 2**53 + 1


def test_rows_outside_are_refused(parts):
    with pytest.raises(InvalidInputError, match="rows 3 to 21 are outside of the 20 rows of the array and 2 more"):
        arrays(parts).read(3, 21)


def test_a_single_source_stays_what_it_is(parts):
    source = open_source(parts[0])
    assert joined([source]) is source
