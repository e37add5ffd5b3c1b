"""Checks: what is good passes unchanged, and each refusal says what, where and what would do."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks


@given(st.integers(-50, 50), st.integers(-50, 50), st.none() | st.integers(-50, 50))
def test_whole_numbers_pass_exactly_when_in_range(value, low, high):
    if low <= value and (high is None or value <= high):
        found = checks.integer_in_range("size", np.int32(value), low, high, "so it is")
        assert type(found) is int
        assert found == value
    else:
        valid = f"at least {low}" if high is None else f"from {low} to {high}"
        with pytest.raises(InvalidInputError) as caught:
            checks.integer_in_range("size", value, low, high, "so it is")
        expected = f"size={value} is out of range; use one {valid} (so it is)."
        if high is not None and high < low:
            expected = f"size={value} cannot be used, and no other value can: so it is."
        assert str(caught.value) == expected


@pytest.mark.parametrize("value", [True, np.True_, 2.0, np.float64(2), np.nan, "2", None, [2], 2 + 0j])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(InvalidInputError, match=r"^size=.* is not a whole number; use one from 1 to 9 \(why\)\.$"):
        checks.integer_in_range("size", value, 1, 9, "why")


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(3), 1e-3, 1e3, Fraction(1, 2)])
def test_numbers_in_range_pass_as_floats(value):
    found = checks.number_in_range("radius", value, 1e-3, 1e3)
    assert type(found) is float
    assert found == value


@pytest.mark.parametrize("value", [0, -0.0, -1, np.nan, np.inf, -np.inf, 1001, pytest.param(10**400, id="huge")])
def test_numbers_out_of_range_are_refused(value):
    with pytest.raises(InvalidInputError, match=r"^radius=.* is out of range; use a number from 0\.001 to 1000\.$"):
        checks.number_in_range("radius", value, 1e-3, 1e3)


@pytest.mark.parametrize("value", [True, np.False_, "1", None, 1j, [1.0]])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(InvalidInputError, match=r"^radius=.* is not a number; use one from 0\.001 to 1000\.$"):
        checks.number_in_range("radius", value, 1e-3, 1e3)


def test_a_known_choice_passes():
    assert checks.one_of("policy", "bridge", ("error", "bridge")) == "bridge"


@pytest.mark.parametrize("value", ["Bridge", "", None, 1, ("error",), np.array(["error"])])
def test_an_unknown_choice_is_refused_with_the_known_ones(value):
    with pytest.raises(InvalidInputError, match=r"^policy=.* is not known; use one of 'error', 'bridge'\.$"):
        checks.one_of("policy", value, ("error", "bridge"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_pass_without_a_copy(dtype):
    array = np.ones((2, 3), dtype=dtype)
    assert checks.real_array("X", array, 2) is array


@pytest.mark.parametrize(
    "dtype", [np.float16, np.longdouble, np.int8, np.uint16, np.int64, np.bool_, ">f8", ">f4", ">i4"]
)
def test_other_real_types_become_float64(dtype):
    found = checks.real_array("X", np.array([[0, 1], [1, 1]]).astype(dtype), 2)
    assert found.dtype == np.float64
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, [[0, 1], [1, 1]])


def test_lists_are_arrays():
    np.testing.assert_array_equal(checks.real_array("X", [[1, 2], [3, 4]], 2), [[1.0, 2.0], [3.0, 4.0]])
    assert checks.real_array("w", [1, 2], 1).shape == (2,)


@pytest.mark.parametrize(
    ("values", "n_dimensions", "message"),
    [
        (np.ones(3) * 1j, 1, r"X has dtype complex128; it must hold real numbers: .*astype"),
        ([["a"]], 2, r"X has dtype <U1"),
        (np.array([[b"a"]]), 2, r"X has dtype \|S1"),
        (np.array([[1, None]], dtype=object), 2, r"X has dtype object"),
        (np.array(["2020-01-01"], dtype="M8[D]"), 1, r"X has dtype datetime64"),
        (np.array([1], dtype="m8[s]"), 1, r"X has dtype timedelta64"),
        (csr_array(np.eye(2)), 2, r"X has dtype object"),
        (None, 2, r"X has dtype object"),
        (3.0, 1, r"X has shape \(\); it must have 1 dimension\."),
        ([1.0], 2, r"X has shape \(1,\); it must have 2 dimensions\."),
        (np.ones((2, 2, 2)), 2, r"X has shape \(2, 2, 2\); it must have 2 dimensions\."),
        ([], 1, r"X has shape \(0,\); it is empty"),
        (np.empty((3, 0)), 2, r"X has shape \(3, 0\); it is empty"),
        pytest.param([[1.0, 2.0], [3.0]], 2, r"X ", id="ragged"),
    ],
)
def test_what_is_no_real_array_is_refused(values, n_dimensions, message):
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        checks.real_array("X", values, n_dimensions)


@given(
    st.sampled_from([(7,), (7, 3), (7, 2, 2)]),
    st.sampled_from([np.float32, np.float64]),
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([np.nan, np.inf, -np.inf])), max_size=4, unique_by=lambda x: x[0]
    ),
)
def test_holes_are_counted_and_placed(shape, dtype, holes):
    # Finite, though the sum overflows.
    array = np.full(shape, 0.9 * np.finfo(dtype).max, dtype=dtype)
    for row, bad in holes:
        array[row].fill(bad) if array.ndim > 1 else array.put(row, bad)
    if not holes:
        checks.require_finite("X", array)
        return
    count = len(holes) * (array.size // 7)
    rows = sorted(row for row, _ in holes)
    listed = f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows))};"
    with pytest.raises(InvalidInputError) as caught:
        checks.require_finite("X", array)
    assert str(caught.value).startswith(f"X has {count} NaN or infinite entries, first in {listed} all entries must be")


def test_infinities_that_cancel_are_still_seen_and_at_most_five_rows_are_listed():
    array = np.tile([np.inf, -np.inf], (9, 1))
    with pytest.raises(InvalidInputError, match=r"X has 18 NaN .* first in rows 0, 1, 2, 3, 4;"):
        checks.require_finite("X", array)


def test_nonnegative_entries_pass_and_the_lowest_negative_one_is_placed():
    checks.require_nonnegative("D", np.array([[0.0, -0.0], [1.0, 2.0]]))
    with pytest.raises(InvalidInputError, match=r"D has a negative entry, -3 at \(1, 0\); .* at least 0"):
        checks.require_nonnegative("D", np.array([[0.0, -1.0], [-3.0, 2.0]]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0.0, 1e-30, -1.0, 1e30])
def test_ordinary_sizes_are_squarable(size, dtype):
    checks.require_squarable("X", np.array([[0.0, size]], dtype=dtype))


@pytest.mark.parametrize("size", [1e-151, -1e151, 1e300])
def test_sizes_whose_squares_leave_double_precision_are_refused(size):
    with pytest.raises(InvalidInputError, match=r"^X reaches 1e[+-]\d+ in .* from 1e-150 to 1e\+150; rescale it\.$"):
        checks.require_squarable("X", np.array([[0.0, size]]))


def squared(rng, m=6):
    matrix = rng.random((m, m))
    matrix = matrix + matrix.T
    np.fill_diagonal(matrix, 0)
    return matrix


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_squared_dissimilarities_come_back_as_a_fresh_symmetric_copy(rng, scale):
    matrix = squared(rng) * scale
    found = checks.squared_dissimilarity_matrix("D", matrix)
    np.testing.assert_array_equal(found, matrix)
    assert not np.shares_memory(found, matrix)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_averaged_away_in_a_copy(rng, dtype):
    matrix = squared(rng).astype(dtype)
    noisy = matrix * (1 + 1e-6 * rng.normal(size=matrix.shape)).astype(dtype)
    noisy[2, 2] = 1e-11
    before = noisy.copy()
    found = checks.squared_dissimilarity_matrix("D", noisy)
    assert found.dtype == np.float64
    assert found[2, 2] == 0
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, matrix, rtol=1e-5)
    np.testing.assert_array_equal(noisy, before)


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            (1, 4),
            -0.5,
            r"D has a negative entry, -0\.5(e[+-]\d+)? at \(1, 4\)|D has a negative entry, -5e[+-]\d+ at \(1, 4\)",
        ),
        ((1, 4), np.nan, r"D has 1 NaN or infinite entries, first in row 1;"),
        ((3, 3), 0.25, r"D has a nonzero diagonal, .* at \(3, 3\)"),
        ((1, 4), 7.0, r"D is not symmetric: .* at \(1, 4\) against .* at \(4, 1\), the largest deviation"),
    ],
)
def test_what_is_no_dissimilarity_is_refused_with_its_place(rng, scale, place, value, message):
    matrix = squared(rng)
    matrix[place] = value
    with pytest.raises(InvalidInputError, match=message):
        checks.squared_dissimilarity_matrix("D", matrix * scale)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((2, 3)), r"D has shape \(2, 3\); it must be square"),
        (np.ones(4), r"D has shape \(4,\); it must have 2 dimensions"),
        (np.empty((0, 0)), r"D has shape \(0, 0\); it is empty"),
        (np.eye(2) * 1j, r"D has dtype complex128"),
    ],
)
def test_what_is_no_square_matrix_is_refused(values, message):
    with pytest.raises(InvalidInputError, match=message):
        checks.squared_dissimilarity_matrix("D", values)


@pytest.mark.parametrize("values", [[0, 4], (3,), np.array([1, 1], dtype=np.uint8), range(5)])
def test_row_numbers_pass_as_int64(values):
    found = checks.row_indices("rows", values, 5)
    assert found.dtype == np.int64
    assert found.tolist() == list(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([5], r"rows has 5; row numbers run from 0 to 4"),
        ([0, -1], r"rows has -1; row numbers run from 0 to 4"),
        ([0, 9, -1], r"rows has 9; row numbers run from 0 to 4"),
        (np.array([2**64 - 1], dtype=np.uint64), r"rows has 18446744073709551615; row numbers run from 0 to 4"),
        ([], r"rows has shape \(0,\) .* non-empty list of row numbers"),
        (2, r"rows has shape \(\)"),
        ([[1]], r"rows has shape \(1, 1\)"),
        ([1.0], r"rows has .*dtype float64"),
        ([True], r"rows has .*dtype bool"),
        (["1"], r"rows has .*dtype <U1"),
        ([None], r"rows has .*dtype object"),
    ],
)
def test_what_are_no_row_numbers_is_refused(values, message):
    with pytest.raises(InvalidInputError, match=message):
        checks.row_indices("rows", values, 5)
