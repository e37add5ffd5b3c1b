"""Arrays in .npy and .npz files; tests/test_sources.py has what holds without columns or ids."""

import os
import threading
import zipfile

import numpy as np
import pytest

from pipeline.errors import InvalidInputError
from pipeline.sources import open_source
from pipeline.sources.numpy_files import FileRange

SAVES = {"npy": np.save, "npz": np.savez, "compressed": np.savez_compressed}


@pytest.fixture
def array(rng):
    return rng.integers(-50, 50, size=(103, 7)).astype(np.float32)


@pytest.fixture
def words():
    return np.array([f"wörd {i}" for i in range(103)])


@pytest.mark.parametrize("kind", SAVES)
def test_columns_and_ids_are_chosen_by_number(tmp_path, array, kind, check_reads):
    path = tmp_path / f"x.{'npy' if kind == 'npy' else 'npz'}"
    SAVES[kind](path, array)
    check_reads(open_source(path, columns=["6", 1], id_column="2"), array[:, [6, 1]], array[:, 2].astype(np.int64))


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1", "?"])
def test_an_array_stored_column_by_column_is_read_by_rows(tmp_path, array, kind, dtype, check_reads):
    path = tmp_path / f"x.{'npy' if kind == 'npy' else 'npz'}"
    array = array.astype(dtype)
    SAVES[kind](path, np.asfortranarray(array))
    check_reads(open_source(path), array)
    check_reads(open_source(path, columns=[5, 0, 3]), array[:, [5, 0, 3]])
    assert open_source(path).read(2, 90).flags.c_contiguous
    if dtype != "?":
        check_reads(open_source(path, id_column=2), np.delete(array, 2, axis=1), array[:, 2].astype(np.int64))


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("order", [np.ascontiguousarray, np.asfortranarray])
def test_arrays_of_more_dimensions_are_flattened(tmp_path, rng, kind, order, check_reads):
    path = tmp_path / f"x.{'npy' if kind == 'npy' else 'npz'}"
    images = rng.integers(0, 256, size=(50, 4, 3, 2)).astype(np.uint8)
    flat = images.reshape(50, 24)
    SAVES[kind](path, order(images))
    check_reads(open_source(path), flat)
    check_reads(open_source(path, columns=[23, 0], id_column=5), flat[:, [23, 0]], flat[:, 5].astype(np.int64))


def test_a_block_of_an_array_stored_by_columns_reads_only_its_rows(tmp_path, rng, monkeypatch):
    np.save(tmp_path / "x.npy", np.asfortranarray(rng.normal(size=(1000, 30))))
    source, lengths = open_source(tmp_path / "x.npy"), []
    read_each = FileRange.read_each
    monkeypatch.setattr(FileRange, "read_each", lambda self, spans: read_each(self, noted(spans, lengths)))
    source.read(300, 340)
    assert lengths == [40 * 8] * 30


def noted(spans, lengths):
    for offset, length in spans:
        lengths.append(length)
        yield offset, length


def test_a_file_stored_by_columns_and_cut_short_is_refused(tmp_path, array):
    path = tmp_path / "x.npy"
    np.save(path, np.asfortranarray(array))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InvalidInputError, match=r"is truncated: it has 2874 of 2884 bytes for shape \(103, 7\)"):
        open_source(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "convert", [np.asarray, np.char.encode, lambda words: words.astype(">U10"), lambda words: np.arange(len(words)) * 7]
)
def test_ids_are_another_array_of_the_file(tmp_path, array, words, save, convert, check_reads):
    given = convert(words)
    save(tmp_path / "x.npz", x=array, words=given)
    expected = words if given.dtype.kind in "US" else given
    check_reads(open_source(tmp_path / "x.npz", "x", id_column="words"), array, expected)
    # With two arrays, one of which holds the ids, the other must be the table.
    check_reads(open_source(tmp_path / "x.npz", columns=[3], id_column="words"), array[:, [3]], expected)


@pytest.mark.parametrize(
    ("members", "id_column", "message"),
    [
        ({"words": np.zeros(3, "U2")}, "words", r"\[words\] has shape \(3,\); ids must have shape \(103,\)"),
        ({"words": np.zeros((103, 1), int)}, "words", "ids must have shape"),
        ({"words": np.zeros(103)}, "words", "has dtype float64; ids must be integers or text"),
        ({"words": np.full(103, {}, object)}, "words", "has dtype object; ids must be integers or text"),
        ({"words": np.zeros(103, int)}, "word", r"id_column='word' is neither another array .* did you mean 'words'\?"),
        ({}, "q", "id_column='q' is neither .*; other arrays: none"),
        ({}, "7", "id_column: '7' is not a column of .*; columns are numbered 0 to 6"),
    ],
)
def test_what_cannot_name_the_rows_is_refused(tmp_path, array, members, id_column, message):
    np.savez(tmp_path / "x.npz", x=array, **members)
    with pytest.raises(InvalidInputError, match=message):
        open_source(tmp_path / "x.npz", "x", id_column=id_column)


def test_a_compressed_array_read_forward_is_decompressed_once(tmp_path, rng, monkeypatch):
    array = rng.integers(0, 1 << 40, size=(100_000, 3))
    np.savez_compressed(tmp_path / "x.npz", array)
    source = open_source(tmp_path / "x.npz", id_column=0)
    opened = []
    monkeypatch.setattr(zipfile.ZipFile, "open", counting(zipfile.ZipFile.open, opened))
    rewound = []
    monkeypatch.setattr(zipfile, "_get_decompressor", counting(zipfile._get_decompressor, rewound))
    for start in range(0, len(array), 1000):
        np.testing.assert_array_equal(source.read(start, start + 1000), array[start : start + 1000, 1:])
        np.testing.assert_array_equal(source.ids(start, start + 1000), array[start : start + 1000, 0])
    # The rows' reader goes back once, from the header; the ids' is opened, since they would send it back each time.
    assert (len(opened), len(rewound)) == (1, 2)


def counting(function, calls):
    def counted(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    return counted


def test_threads_share_a_compressed_array(tmp_path, array):
    np.savez_compressed(tmp_path / "x.npz", array)
    source = open_source(tmp_path / "x.npz")
    wrong = []

    def read(offset):
        starts = [*range(offset, 100, 5), *range(95, 0, -13)]
        wrong.extend(a for a in starts if not np.array_equal(source.read(a, a + 3), array[a : a + 3]))

    threads = [threading.Thread(target=read, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_damage_to_a_compressed_array_is_an_error(tmp_path, rng):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, rng.normal(size=(500, 3)))
    data = bytearray(path.read_bytes())
    data[5000] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match=r"x\.npz is damaged: its member arr_0\.npy cannot be decompressed"):
        open_source(path).read(0, 500)


def test_an_array_shorter_than_it_says_is_truncated(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((50, 2)))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", (tmp_path / "x.npy").read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match=r"x\.npz\[x\] is truncated: it ends within row 43 of 50"):
        open_source(tmp_path / "x.npz")


def test_an_archive_cut_short_is_refused(tmp_path, array):
    np.savez(tmp_path / "x.npz", array)
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:1000])
    with pytest.raises(InvalidInputError, match=r"x\.npz is not a \.npz file"):
        open_source(tmp_path / "x.npz")


@pytest.mark.parametrize("kind", SAVES)
def test_a_file_that_changes_after_it_was_opened_is_refused(tmp_path, array, kind):
    path = tmp_path / f"x.{'npy' if kind == 'npy' else 'npz'}"
    SAVES[kind](path, array)
    source = open_source(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InvalidInputError, match=r"has changed since it was opened"):
        source.read(0, 1)
    path.unlink()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        source.read(0, 1)


def test_the_key_is_part_of_the_fingerprint(tmp_path, array, words):
    np.savez(tmp_path / "x.npz", x=array, y=array, a=words, b=words)
    choices = [("x", None), ("y", None), ("x", "a"), ("x", "b"), ("x", 0)]
    found = [open_source(tmp_path / "x.npz", key, id_column=ids).fingerprint() for key, ids in choices]
    assert all(a != b for i, a in enumerate(found) for b in found[:i])
