"""Checks of arguments. Each error names the argument, its value, the valid range and what to do."""

import math
import reprlib
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.methods import RANGES
from pipeline.methods import one_of as one_of
from pipeline.types import AnyArray, FloatArray, IntArray

# Squared dissimilarities that came from two float32 shortest-path runs differ by a few 1e-7 of their size;
# anything beyond this is not rounding but an asymmetric dissimilarity.
SYMMETRY_TOLERANCE = 1e-5
# Relative to the largest entry: what cancellation leaves of a squared distance that should be 0.
ROUNDING_FLOOR = 1e-10
# Data within these sizes has squared distances whose sums stay well within double precision.
SMALLEST_SIZE, LARGEST_SIZE = 1e-150, 1e150
# Rows of a matrix whose symmetry is checked at a time.
ROWS_PER_BLOCK = 512


class Entries(NamedTuple):
    """A matrix as errors speak of it: the user's numbers of its rows and columns, if they are others, and in what words
    they are told."""

    name: str
    matrix: AnyArray
    rows: Sequence[int] | IntArray | None = None
    columns: Sequence[int] | IntArray | None = None
    place: str = "({}, {})"
    among: str = ""

    def described(self, i: np.integer | int, j: np.integer | int) -> str:
        row = i if self.rows is None else self.rows[int(i)]
        column = j if self.columns is None else self.columns[int(j)]
        return f"{self.matrix[i, j]:g} at {self.place.format(row, column)}"


def integer_in_range(name: str, value: object, low: int, high: int | None, why: str) -> int:
    """`value` as an int within [low, high]; the error explains the range by `why`."""
    if high is not None and high < low:
        raise InvalidInputError(f"{name}={value!r} cannot be used, and no other value can: {why}.")
    valid = f"at least {low}" if high is None else f"from {low} to {high}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise InvalidInputError(f"{name}={value!r} is not a whole number; use one {valid} ({why}).")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise InvalidInputError(f"{name}={number} is out of range; use one {valid} ({why}).")
    return number


def number_in_range(name: str, value: object, low: float, high: float) -> float:
    """`value` as a float within [low, high]."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise InvalidInputError(f"{name}={value!r} is not a number; use one from {low:g} to {high:g}.")
    if not bool(value >= low and value <= high):  # type: ignore[operator]
        raise InvalidInputError(f"{name}={value!r} is out of range; use a number from {low:g} to {high:g}.")
    return float(value)


def require_parameter(name: str, value: object) -> None:
    """Refuse a value outside the range that the registry gives for a parameter."""
    valid = RANGES[name]
    if valid.whole:
        integer_in_range(name, value, int(valid.low), None if valid.high is None else int(valid.high), valid.about)
    else:
        number_in_range(name, value, valid.low, math.inf if valid.high is None else valid.high)


def real_array(name: str, values: ArrayLike, n_dimensions: int, allow_empty: bool = False) -> AnyArray:
    """`values` as a real array with this number of dimensions; float32 is kept, other types become float64."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInputError(f"{name} is a masked array; drop or fill the masked entries first.")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInputError(f"{name} is not a rectangular array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} has dtype {array.dtype}; it must hold real numbers: convert it, for example with astype(float)."
        )
    if array.ndim != n_dimensions:
        raise InvalidInputError(
            f"{name} has shape {array.shape}; it must have {n_dimensions} dimension{'s' * (n_dimensions > 1)}."
        )
    if 0 in array.shape and not allow_empty:
        raise InvalidInputError(f"{name} has shape {array.shape}; it is empty, and at least one entry is needed.")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def finite_array(name: str, values: ArrayLike, n_dimensions: int, allow_empty: bool = False) -> AnyArray:
    """`real_array` without NaN and infinity."""
    array = real_array(name, values, n_dimensions, allow_empty)
    require_finite(name, array)
    return array


def square_matrix(name: str, values: ArrayLike) -> AnyArray:
    """`values` as a real (m, m) array."""
    array = real_array(name, values, 2)
    if array.shape[0] != array.shape[1]:
        raise InvalidInputError(f"{name} has shape {array.shape}; it must be square.")
    return array


def generator(seed: int, *stream: int) -> np.random.Generator:
    """numpy's generator for a checked seed; other generators of a `stream` draw differently."""
    integer_in_range("seed", seed, 0, None, "a seed of numpy's generator")
    return np.random.default_rng([*stream, seed] if stream else seed)


def require_finite(name: str, array: AnyArray) -> None:
    """Refuse NaN and infinity; the error has their count and the first rows that hold them."""
    # A sum is finite only if every term is, and needs no temporary array; if it overflows, entries are checked below.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return
    bad = ~np.isfinite(array)
    if not bad.any():
        return
    rows = np.flatnonzero(bad.reshape(len(array), -1).any(axis=1))
    raise InvalidInputError(
        f"{name} has {np.count_nonzero(bad)} NaN or infinite entries, first in row{'s' * (len(rows) > 1)} "
        f"{', '.join(map(str, rows[:5]))}; all entries must be finite: drop or fill those rows."
    )


def require_squarable(name: str, array: AnyArray) -> None:
    """Refuse data so large or so small that squared distances would overflow or vanish."""
    _require_size(name, array, SMALLEST_SIZE, LARGEST_SIZE)


def require_not_too_large(name: str, array: AnyArray) -> None:
    _require_size(name, array, 0.0, LARGEST_SIZE)


def require_not_too_small(name: str, array: AnyArray) -> None:
    _require_size(name, array, SMALLEST_SIZE, np.inf)


def _require_size(name: str, array: AnyArray, low: float, high: float) -> None:
    largest = float(np.abs(array).max())
    if largest > high or 0 < largest < low:
        raise InvalidInputError(
            f"{name} reaches {largest:g} in absolute value, and its squares would leave double precision; it must "
            f"reach a size from {SMALLEST_SIZE:g} to {LARGEST_SIZE:g}; rescale it."
        )


def require_nonnegative(name: str, array: AnyArray) -> None:
    """Refuse negative entries; the error has the lowest and its position."""
    lowest = array.min()
    if lowest < 0:
        where = tuple(int(i) for i in np.unravel_index(int(array.argmin()), array.shape))
        raise InvalidInputError(f"{name} has a negative entry, {lowest:g} at {where}; all entries must be at least 0.")


def squared_dissimilarity_matrix(name: str, values: ArrayLike, signed: bool = False) -> FloatArray:
    """A new, exactly symmetric (m, m) float64 copy of squared dissimilarities, negative only if `signed`."""
    array = square_matrix(name, values)
    require_finite(name, array)
    if not signed:
        require_nonnegative(name, array)
    require_squarable(name, array)
    require_zero_diagonal(Entries(name, array), "the dissimilarity of an object to itself must be 0")
    require_symmetric(Entries(name, array))
    return symmetrized(array, zero_diagonal=True)


def symmetrized(matrix: AnyArray, zero_diagonal: bool) -> FloatArray:
    """A new, exactly symmetric (m, m) copy in double precision of what is symmetric up to rounding."""
    exact = matrix.astype(np.float64)
    exact = (exact + exact.T) / 2
    if zero_diagonal:
        np.fill_diagonal(exact, 0.0)
    return exact


def require_zero_diagonal(entries: Entries, remedy: str, are_lengths: bool = False) -> None:
    """Refuse a diagonal that is more than rounding, of squares if the entries are lengths."""
    power = 2 if are_lengths else 1
    diagonal = np.abs(entries.matrix.diagonal())
    worst = int(np.argmax(diagonal))
    if float(diagonal[worst]) ** power > ROUNDING_FLOOR * float(np.abs(entries.matrix).max()) ** power:
        raise InvalidInputError(f"{entries.name} has a nonzero diagonal, {entries.described(worst, worst)}; {remedy}.")


def require_diagonal(entries: Entries, diagonal: FloatArray, given_by: str) -> None:
    """Refuse a diagonal that differs by more than rounding from one that is also given elsewhere."""
    found = entries.matrix.diagonal().astype(np.float64)
    floor = ROUNDING_FLOOR * float(np.abs(entries.matrix).max())
    beyond = np.abs(found - diagonal) - SYMMETRY_TOLERANCE * np.maximum(np.abs(found), np.abs(diagonal)) - floor
    worst = int(np.argmax(beyond))
    if beyond[worst] > 0:
        raise InvalidInputError(
            f"{entries.name} has {entries.described(worst, worst)}, where {given_by} has {diagonal[worst]:g}; both "
            "must be the same: check the order of the points."
        )


def require_symmetric(entries: Entries, are_lengths: bool = False) -> None:
    """Refuse entries that differ across the diagonal by more than rounding, of squares if they are lengths."""
    matrix, power = entries.matrix, 2 if are_lengths else 1
    floor = ROUNDING_FLOOR * float(np.abs(matrix).max()) ** power
    worst, i, j, n_beyond = 0.0, 0, 0, 0
    for first in range(0, len(matrix), ROWS_PER_BLOCK):
        block = matrix[first : first + ROWS_PER_BLOCK].astype(np.float64)
        across = matrix[:, first : first + ROWS_PER_BLOCK].T.astype(np.float64)
        a, b = block**power, across**power
        # Relative to each entry: with a bound relative to the largest, an outlier could hide any asymmetry.
        beyond = np.abs(a - b) > SYMMETRY_TOLERANCE * np.maximum(np.abs(a), np.abs(b)) + floor
        apart = np.where(beyond, np.abs(block - across), 0.0)
        row, column = np.unravel_index(int(apart.argmax()), apart.shape)
        n_beyond += int(np.count_nonzero(beyond))
        if apart[row, column] > worst:
            worst, i, j = float(apart[row, column]), first + int(row), int(column)
    if worst:
        raise InvalidInputError(
            f"{entries.name} is not symmetric{entries.among}: {entries.described(i, j)} against "
            f"{entries.described(j, i)}, the largest deviation ({worst:g}) of {n_beyond // 2} pairs; average it with "
            "its transpose if that is what you mean."
        )


def landmark_rows(name: str, values: ArrayLike, n_landmarks: int) -> AnyArray:
    """`values` as an array (p, m) with a column for each landmark."""
    rows = real_array(name, values, 2, allow_empty=True)
    if rows.shape[1] != n_landmarks:
        raise InvalidInputError(
            f"{name} has shape {rows.shape}; it must be (n_points, {n_landmarks}), a row for each point and a column "
            "for each landmark."
        )
    return rows


def rows_to_landmarks(to_landmarks: ArrayLike, n_landmarks: int) -> AnyArray:
    """Dissimilarities (p, m), not squared, of points to all landmarks."""
    rows = landmark_rows("to_landmarks", to_landmarks, n_landmarks)
    require_finite("to_landmarks", rows)
    if len(rows):
        require_nonnegative("to_landmarks", rows)
    return rows


def compared_number(value: object, signed: bool, words: Callable[[str], str]) -> float:
    """The result of a user's function of two objects as a number, negative only if `signed`. `words` makes the
    beginning of the error message from the result's repr."""
    try:
        number = float(value)  # type: ignore[arg-type]
        given = repr(number)
    except (TypeError, ValueError, OverflowError):
        number, given = math.nan, reprlib.repr(value)
    # NaN fails this comparison too.
    if (-LARGEST_SIZE if signed else 0.0) <= number <= LARGEST_SIZE:
        return number
    wanted = "finite" if signed else "finite and at least 0"
    raise InvalidInputError(
        f"{words(given)}; it must be {wanted}, and of a size up to {LARGEST_SIZE:g}: larger squares would leave "
        "double precision."
    )


def row_indices(name: str, values: ArrayLike, n_rows: int) -> IntArray:
    """`values` as a one-dimensional array of row numbers below `n_rows`."""
    array: Any = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; it must be a non-empty list of row numbers."
        )
    if array.min() < 0 or array.max() >= n_rows:
        wrong = array[(array < 0) | (array >= n_rows)][0]
        raise InvalidInputError(f"{name} has {wrong}; row numbers run from 0 to {n_rows - 1}.")
    return np.asarray(array, dtype=np.int64)
