"""Proximities on disk: what is read, how much of the file is read for it, and what is refused."""

import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.sources import numpy_files as numpy_matrices
from pipeline.sources.proximities import (
    check_dissimilarity_block,
    check_similarity_block,
    landmark_dissimilarities,
    landmark_similarities,
    open_proximities,
    open_vector,
)

LANDMARKS = np.array([17, 3, 40, 8, 21, 0, 33])


@pytest.fixture
def matrix(rng):
    """Distances of 7 landmarks to 41 points, of which they are some."""
    points = rng.normal(size=(41, 3))
    return cdist(points[LANDMARKS], points)


def saved_npy(path, matrix):
    np.save(path / "d.npy", matrix)
    return open_proximities(path / "d.npy")


def saved_by_columns(path, matrix):
    return saved_npy(path, np.asfortranarray(matrix))


def saved_npz(path, matrix):
    np.savez(path / "d.npz", d=matrix, of=LANDMARKS)
    return open_proximities(path / "d.npz", "d")


def saved_compressed(path, matrix):
    np.savez_compressed(path / "d.npz", of=LANDMARKS, d=matrix)
    return open_proximities(str(path / "d.npz"), "d")


def saved_zarr(path, matrix):
    zarr.create_array(path / "d.zarr", data=matrix, chunks=(3, 10))
    return open_proximities(path / "d.zarr")


def saved_in_a_group(path, matrix):
    group = zarr.create_group(path / "g.zarr", zarr_format=2)
    group.create_array("deep/d", data=matrix, chunks=(7, 4))
    group.create_array("deep/of", data=LANDMARKS)
    return open_proximities(path / "g.zarr", "deep/d")


SAVES = [saved_npy, saved_by_columns, saved_npz, saved_compressed, saved_zarr, saved_in_a_group]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("dtype", ["f8", ">f4", "f2", "i8", "u1", "?"])
def test_any_columns_and_entries_are_read_in_double_precision(tmp_path, matrix, save, dtype):
    matrix = (3 * matrix).astype(dtype)
    source = save(tmp_path, matrix)
    expected = matrix.astype(np.float64)
    assert (source.shape, source.n_landmarks, source.n_points) == ((7, 41), 7, 41)
    for reader in (source, pickle.loads(pickle.dumps(source))):
        for start, stop in [(0, 41), (40, 41), (5, 5), (9, 22), (0, 10)]:
            block = reader.columns(start, stop)
            assert (block.dtype, block.flags.c_contiguous) == (np.float64, True)
            np.testing.assert_array_equal(block, expected[:, start:stop].T)
        np.testing.assert_array_equal(reader.columns(9, 22, [5, 0, 5]), expected[[5, 0, 5], 9:22].T)
        found = reader.entries([6, 0, 6], np.array([40, 2, 17, 2]))
        np.testing.assert_array_equal(found, expected[np.ix_([6, 0, 6], [40, 2, 17, 2])])
        assert found.dtype == np.float64


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 60)),
    by_columns=st.booleans(),
    skipped=st.integers(0, 60),
    longest=st.integers(8, 200),
    data=st.data(),
)
def test_runs_of_entries_do_not_matter(tmp_path_factory, shape, by_columns, skipped, longest, data):
    matrix = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    path = tmp_path_factory.mktemp("runs") / "d.npy"
    np.save(path, np.asfortranarray(matrix) if by_columns else matrix)
    rows = data.draw(st.lists(st.integers(0, shape[0] - 1), min_size=1, max_size=5))
    columns = data.draw(st.lists(st.integers(0, shape[1] - 1), min_size=1, max_size=20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numpy_matrices, "SKIPPED_BYTES", skipped)
        patch.setattr(numpy_matrices, "RUN_BYTES", longest)
        source = open_proximities(path)
        np.testing.assert_array_equal(source.entries(rows, columns), matrix[np.ix_(rows, columns)])
        np.testing.assert_array_equal(source.columns(0, shape[1]), matrix.T)


@pytest.fixture
def spans(monkeypatch):
    """The (offset, length) of all that is read from files."""
    found = []
    read_each = numpy_matrices.FileRange.read_each

    def recorded(self, spans):
        spans = list(spans)
        found.extend(spans)
        return read_each(self, spans)

    monkeypatch.setattr(numpy_matrices.FileRange, "read_each", recorded)
    return found


@pytest.mark.parametrize("save", [saved_npy, saved_by_columns, saved_npz])
def test_only_the_wanted_columns_of_a_file_are_read(tmp_path, matrix, save, spans):
    source = save(tmp_path, matrix)
    source.columns(11, 15)
    assert sum(length for _, length in spans) == 7 * 4 * 8


def test_few_entries_of_a_long_row_are_read_alone(tmp_path, rng, spans):
    matrix = rng.normal(size=(3, 100_000)).astype(np.float32)
    source = saved_npy(tmp_path, matrix)
    columns = [99_999, 0, 50_000, 50_010]
    np.testing.assert_array_equal(source.entries([2, 0], columns), matrix[np.ix_([2, 0], columns)])
    assert [length for _, length in spans] == [4, 44, 4] * 2
    assert spans == sorted(spans)


def test_only_the_chunks_of_the_wanted_columns_are_read(tmp_path, matrix):
    source = saved_zarr(tmp_path, matrix)
    for chunk in (tmp_path / "d.zarr" / "c").rglob("[034]"):
        if chunk.is_file():
            chunk.write_bytes(b"damaged")
    np.testing.assert_array_equal(source.columns(10, 30), matrix[:, 10:30].T)
    np.testing.assert_array_equal(source.entries([0, 6], [29, 12]), matrix[np.ix_([0, 6], [29, 12])])
    with pytest.raises(InvalidInputError, match=r"d\.zarr cannot be read in rows 0 to 7, columns 10 to 31; a chunk"):
        source.columns(10, 31)
    with pytest.raises(
        InvalidInputError, match="cannot be read in 1 rows from 2 to 2, 2 columns from 3 to 12; a chunk"
    ):
        source.entries([2], [12, 3])


def test_a_compressed_matrix_is_decompressed_once_for_a_block(tmp_path, rng, monkeypatch):
    matrix = rng.integers(0, 1 << 40, size=(50, 5000))
    source = saved_compressed(tmp_path, matrix)
    begun, begin = [], zipfile._get_decompressor
    monkeypatch.setattr(zipfile, "_get_decompressor", lambda *args: (begun.append(args), begin(*args))[1])
    np.testing.assert_array_equal(source.columns(100, 200), matrix[:, 100:200].T)
    np.testing.assert_array_equal(source.entries([49, 3, 20], [4000, 7]), matrix[np.ix_([49, 3, 20], [4000, 7])])
    assert len(begun) == 2
    # Also if two blocks are read in turn, as threads do.
    data, spans = source._matrix._data, [(offset, 10) for offset in range(0, 1_000_000, 50_000)]
    assert all(one == other for one, other in zip(data.read_each(spans), data.read_each(spans), strict=True))
    assert len(begun) == 4


@pytest.mark.parametrize("save", SAVES)
def test_what_is_outside_of_the_matrix_is_refused(tmp_path, matrix, save):
    source = save(tmp_path, matrix)
    with pytest.raises(InvalidInputError, match="columns 40 to 42 are outside of the 41 columns of"):
        source.columns(40, 42)
    with pytest.raises(InvalidInputError, match="rows has 7; row numbers run from 0 to 6"):
        source.entries([7], [0])
    with pytest.raises(InvalidInputError, match="columns has -1; row numbers run from 0 to 40"):
        source.entries([0], [-1])


@pytest.mark.parametrize("save", [saved_npz, saved_compressed, saved_in_a_group])
def test_companions_are_other_arrays_kept_with_the_matrix(tmp_path, matrix, save):
    source = save(tmp_path, matrix)
    found = source.open_companion("of").read(0, len(LANDMARKS))
    np.testing.assert_array_equal(found, LANDMARKS)
    assert found.dtype == LANDMARKS.dtype
    np.testing.assert_array_equal(source.open_companion("of").read(2, 5), LANDMARKS[2:5])
    with pytest.raises(InvalidInputError, match=r"'off' is not an array kept with .*holds '.*of'"):
        source.open_companion("off")
    with pytest.raises(InvalidInputError, match=r"has shape \(7, 41\); it must have 1 dimension"):
        source.open_companion("d")


@pytest.mark.parametrize("save", [saved_npy, saved_zarr])
def test_a_matrix_alone_has_no_companions(tmp_path, matrix, save):
    with pytest.raises(InvalidInputError, match=r"'of' is not an array kept with .*; give a file of its own for it"):
        save(tmp_path, matrix).open_companion("of")


def test_a_vector_is_read_from_a_file_of_its_own(tmp_path):
    values = np.linspace(0, 1, 9).astype(">f4")
    np.save(tmp_path / "v.npy", values)
    np.savez(tmp_path / "v.npz", v=values, words=np.array(["a"]), empty=np.empty(0))
    zarr.create_array(tmp_path / "v.zarr", data=values.astype("f4"))
    for url, key in [("v.npy", None), ("v.npz", "v"), ("v.zarr", None)]:
        found = open_vector(tmp_path / url, key)
        assert found.shape == (9,)
        np.testing.assert_array_equal(found.read(0, 9), values)
        np.testing.assert_array_equal(found.read(3, 5), values[3:5])
    with pytest.raises(InvalidInputError, match=r"v\.npz\[words\] has dtype <U1; it must hold real numbers"):
        open_vector(tmp_path / "v.npz", "words")
    with pytest.raises(InvalidInputError, match=r"has shape \(0,\); it must have 1 dimension and not be empty"):
        open_vector(tmp_path / "v.npz", "empty")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((3, 4), complex), "has dtype complex128; it must hold real numbers"),
        (np.full((3, 4), {}, object), "has dtype object; it must hold real numbers"),
        (np.full((3, 4), "x"), "has dtype <U1; it must hold real numbers"),
        (np.ones(3), r"has shape \(3,\); it must have 2 dimensions"),
        (np.ones((3, 4, 5)), r"has shape \(3, 4, 5\); it must have 2 dimensions"),
        (np.ones((0, 4)), "it is empty"),
        (np.ones((4, 0)), "it is empty"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(tmp_path, array, message):
    with pytest.raises(InvalidInputError, match=message):
        saved_npy(tmp_path, array)


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("none.npy", None, "does not exist"),
        ("s3://bucket/d.npy", None, "is a URL; only local paths are read"),
        ("d.npy", "d", r"key='d' names an array .*d\.npy is one array: leave it out"),
        ("d.npz", None, "holds 2 arrays; choose one with key: 'd', 'of'"),
        ("d.npz", "q", "key='q' is not in .*; it holds 'd', 'of'"),
        ("d.csv", None, r"d\.csv holds no array; use a \.npy or \.npz file, or a Zarr array or group"),
        ("cut.npy", None, r"cut\.npy is truncated: it has 2286 of 2296 bytes for shape \(7, 41\)"),
    ],
)
def test_what_cannot_be_opened_is_refused(tmp_path, matrix, name, key, message):
    saved_npy(tmp_path, matrix)
    saved_npz(tmp_path, matrix)
    (tmp_path / "d.csv").write_text("1,2\n")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "d.npy").read_bytes()[:-10])
    with pytest.raises(InvalidInputError, match=message):
        open_proximities(name if "://" in name else tmp_path / name, key)


@pytest.mark.parametrize("save", SAVES)
def test_the_fingerprint_is_cheap_and_changes_with_the_file(tmp_path, matrix, save):
    source = save(tmp_path, matrix)
    before = source.fingerprint()
    json.dumps(before)
    assert pickle.loads(pickle.dumps(source)).fingerprint() == before
    assert len(pickle.dumps(source)) < 3000
    for file in tmp_path.rglob("*"):
        os.utime(file, ns=(1, 1))
    assert source.fingerprint() != before
    if save in (saved_npy, saved_npz, saved_compressed):
        with pytest.raises(InvalidInputError, match="has changed since it was opened"):
            source.columns(0, 1)


def test_sound_blocks_pass(matrix):
    check_dissimilarity_block(matrix.T, 100)
    check_dissimilarity_block(np.empty((0, 7)), 100)
    check_similarity_block(-matrix.T, 100)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_entries_that_are_no_numbers_are_counted_and_placed(matrix, bad):
    block = matrix.T.copy()
    block[4, 2] = block[9, 5] = bad
    for check in (check_dissimilarity_block, check_similarity_block):
        with pytest.raises(
            InvalidInputError, match=rf"has 2 NaN or .* first {bad:g} at row 2 \(landmark\), column 104 \(point\)"
        ):
            check(block, 100)


def test_negative_dissimilarities_are_counted_and_the_lowest_is_placed(matrix):
    block = matrix.T.copy()
    block[4, 2], block[9, 5] = -1e-9, -0.5
    with pytest.raises(
        InvalidInputError, match=r"own has 2 negative entries .* lowest -0\.5 at row 33 \(landmark\), column 109"
    ):
        check_dissimilarity_block(block, 100, "own", [*range(5), 33, 40])
    check_similarity_block(block, 100)


def test_sizes_that_cannot_be_squared_are_refused(matrix):
    for check in (check_dissimilarity_block, check_similarity_block):
        with pytest.raises(InvalidInputError, match=r"reaches 1e\+200 .*; rescale it"):
            check(np.array([[1.0, 1e200]]), 0)
    with pytest.raises(InvalidInputError, match="rescale it"):
        check_similarity_block(np.array([[-1e200]]), 0)


def test_landmark_dissimilarities_are_made_exactly_symmetric(matrix):
    between = matrix[:, LANDMARKS]
    rounded = between * (1 + np.linspace(0, 4e-6, 49).reshape(7, 7))
    np.fill_diagonal(rounded, 1e-6)
    found = landmark_dissimilarities(rounded)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(found.diagonal(), 0)
    np.testing.assert_allclose(found, between, rtol=1e-5, atol=0)
    checks.squared_dissimilarity_matrix("squares", rounded**2)
    np.testing.assert_array_equal(landmark_dissimilarities(np.zeros((2, 2))), np.zeros((2, 2)))


@pytest.mark.parametrize("factor", [1 + 4e-6, 1 + 6e-6])
def test_the_tolerance_is_that_of_the_squares_in_the_model(matrix, factor):
    between = matrix[:, LANDMARKS].copy()
    between[1, 4] *= factor
    accepted = []
    for check in (landmark_dissimilarities, lambda values: checks.squared_dissimilarity_matrix("x", values**2)):
        try:
            check(between)
            accepted.append(True)
        except InvalidInputError:
            accepted.append(False)
    assert accepted == [factor < 1 + 5e-6] * 2


def test_an_asymmetric_matrix_is_refused_with_its_largest_deviation(matrix):
    between = matrix[:, LANDMARKS].copy()
    between[1, 4], between[4, 1], between[0, 2] = 0.75, 3.25, between[2, 0] + 1
    # Asymmetry is named before the diagonal: it is what a confusion matrix is refused for.
    between[3, 3] = 0.5
    message = (
        r"not symmetric between landmarks: 0\.75 at row 1 \(landmark\), column 21 \(point\) against 3\.25 at "
        r"row 4 \(landmark\), column 3 \(point\), the largest deviation \(2\.5\) of 2 pairs"
    )
    with pytest.raises(InvalidInputError, match=message):
        landmark_dissimilarities(between, columns=LANDMARKS)
    with pytest.raises(InvalidInputError, match=r"0\.75 at row 1 .*, column 4 .*, the largest deviation \(2\.5\)"):
        landmark_similarities(between)


def test_a_landmark_that_is_not_at_its_own_point_is_refused(matrix):
    between = matrix[:, LANDMARKS].copy()
    between[3, 3] = 0.5
    with pytest.raises(InvalidInputError, match=r"nonzero diagonal, 0\.5 at row 3 \(landmark\), column 8 \(point\)"):
        landmark_dissimilarities(between, columns=LANDMARKS)
    similarities = landmark_similarities(between - 1)
    np.testing.assert_allclose(similarities, between - 1, atol=1e-12)
    np.testing.assert_array_equal(similarities, similarities.T)


def test_landmarks_of_a_square_matrix_are_any_rows(tmp_path, rng):
    points = rng.normal(size=(30, 2))
    square = cdist(points, points)
    source = saved_npy(tmp_path, square)
    assert source.is_square
    chosen = [12, 3, 25]
    between = landmark_dissimilarities(source.entries(chosen, chosen), chosen, chosen)
    np.testing.assert_allclose(between, square[np.ix_(chosen, chosen)], atol=1e-15)
    np.testing.assert_array_equal(source.columns(10, 20, chosen), square[10:20][:, chosen])
    with pytest.raises(InvalidInputError, match=r"has shape \(2, 3\); it must be square"):
        landmark_dissimilarities(square[:2, :3])
