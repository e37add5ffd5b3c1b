"""A matrix of dissimilarities or similarities that the user has already: landmarks x points, read by blocks of points.

Square matrices of all points are one kind of it: any rows can be chosen for landmarks. Arrays kept with it say which
point each of its rows is, and how similar points are to themselves.

| symbol | variable | shape |
|---|---|---|
| proximities of all points to the landmarks | the matrix as stored | (m, n) |
| those of p points | `block` | (p, m) |
| those between landmarks | `between` | (m, m) |
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.checks import Entries
from pipeline.sources.arrays import Rows
from pipeline.sources.opening import ArrayPlace, Url, holds_several, place_of, places_in, readable
from pipeline.sources.source import checked_table, require_range
from pipeline.types import AnyArray, FloatArray, IntArray, Json

Numbers: TypeAlias = Sequence[int] | IntArray
# What may be done about a negative entry, where there can be none.
NO_DISSIMILARITIES = (
    "dissimilarities must be at least 0 (similarities may be negative: say so if that is what they are)"
)
NO_AFFINITIES = (
    "laplacian and spectral take similarities for affinities, which must be at least 0: add a constant, take "
    "exponentials, or use method='mds', for which they may be negative"
)
NOT_ITSELF = (
    "the dissimilarity of a landmark to its own point must be 0: check which point each landmark is, and whether these "
    "are similarities"
)
PLACE = "row {} (landmark), column {} (point)"
NEW_PLACE, AMONG_NEW = "row {}, column {}", " between new points"
# Landmarks copied at a time when a block is turned around, so that the cache holds their columns.
TURNED_ROWS = 128
# Entries that are looked at together: 8 MB.
BLOCK_ENTRIES = 1 << 20


def open_proximities(url: Url, key: str | None = None) -> "ProximitySource":
    """The matrix of a .npy file, or the array `key` of a .npz file or a Zarr group, or a Zarr array."""
    return ProximitySource(Path(url), place_of(url, key), key)


def open_vector(url: Url, key: str | None = None) -> Rows:
    """One number for each landmark or point, to be read by blocks: from the same kinds of files."""
    return _vector(place_of(url, key))


class ProximitySource:
    """Real numbers (m, n) on disk, read where asked for: a row for each landmark, a column for each point."""

    def __init__(self, path: Path, place: ArrayPlace, key: str | None) -> None:
        with readable(path):
            self._matrix = place.matrix()
        self.name, self.dtype = self._matrix.name, self._matrix.dtype
        self.shape = checked_table(self.name, self._matrix.shape, self.dtype)
        self.n_landmarks, self.n_points = self.shape
        self.is_square = self.n_landmarks == self.n_points
        self._path, self._key = path, key

    def columns(self, start: int, stop: int, rows: Numbers | None = None) -> FloatArray:
        """Points from `start` up to `stop` as rows (stop - start, m), to all landmarks or those in the given rows.

        For a moment the block is held twice, in its own dtype and in double precision.
        """
        require_range("columns", start, stop, self.n_points, self.name)
        if rows is None:
            return _turned(self._picked(slice(0, self.n_landmarks), slice(start, stop)))
        numbers, places = _rising("rows", rows, self.n_landmarks)
        return _turned(self._picked(numbers, slice(start, stop))[places])

    def entries(self, rows: Numbers, columns: Numbers) -> FloatArray:
        """The entries (r, c) where any rows, landmarks, and any columns, points, cross."""
        row_numbers, row_places = _rising("rows", rows, self.n_landmarks)
        column_numbers, column_places = _rising("columns", columns, self.n_points)
        found = self._picked(row_numbers, column_numbers)
        return found[np.ix_(row_places, column_places)].astype(np.float64)

    def open_companion(self, key: str) -> Rows:
        """The array `key` (any length,) of the same .npz file or Zarr group, to be read by blocks."""
        return _vector(self._companion(key))

    def open_companion_matrix(self, key: str) -> "ProximitySource":
        """The array `key` (r, c) of the same .npz file or Zarr group, to be read where asked for."""
        return ProximitySource(self._path, self._companion(key), key)

    def _companion(self, key: str) -> ArrayPlace:
        with readable(self._path):
            places = places_in(self._path) if holds_several(self._path) else {}
        beside = f"{(self._key or '').rpartition('/')[0]}/{key}"
        for name in (key, beside):
            if name in places:
                return places[name]
        raise InvalidInputError(
            f"{key!r} is not an array kept with {self.name}; "
            + (f"{self._path} holds {', '.join(map(repr, places))}." if places else "give a file of its own for it.")
        )

    def fingerprint(self) -> Json:
        """Something cheap that changes when the matrix may have changed."""
        return {**self._matrix.fingerprint(), "shape": list(self.shape), "dtype": self.dtype.str}

    def _picked(self, rows: slice | IntArray, columns: slice | IntArray) -> AnyArray:
        with readable(self._path):
            return self._matrix.pick(rows, columns)


def check_dissimilarity_block(
    block: AnyArray, first_column: int, name: str = "dissimilarities", rows: Numbers | None = None
) -> None:
    """Refuse what cannot be the dissimilarities (p, m) of the points from `first_column` on to landmarks in `rows`."""
    _refuse_bad_entries(_entries_of_points(block, first_column, name, rows), lowest_allowed=0.0)


def check_similarity_block(
    block: AnyArray,
    first_column: int,
    name: str = "similarities",
    rows: Numbers | None = None,
    are_affinities: bool = False,
) -> None:
    """Refuse NaN, infinity and sizes that cannot be squared among similarities (p, m); negative affinities too."""
    lowest_allowed = 0.0 if are_affinities else -checks.LARGEST_SIZE
    _refuse_bad_entries(_entries_of_points(block, first_column, name, rows), lowest_allowed, NO_AFFINITIES)


def landmark_dissimilarities(
    between: AnyArray, rows: Numbers | None = None, columns: Numbers | None = None, name: str = "dissimilarities"
) -> FloatArray:
    """Exactly symmetric dissimilarities (m, m) between landmarks with a zero diagonal, if they are so up to rounding.

    `rows` and `columns` are where the landmarks stand in the user's matrix, for the error.
    """
    entries = _entries_between(between, rows, columns, name)
    _refuse_bad_entries(entries, lowest_allowed=0.0)
    checks.require_symmetric(entries, are_lengths=True)
    checks.require_zero_diagonal(entries, NOT_ITSELF, are_lengths=True)
    return checks.symmetrized(entries.matrix, zero_diagonal=True)


def landmark_similarities(
    between: AnyArray, rows: Numbers | None = None, columns: Numbers | None = None, name: str = "similarities"
) -> FloatArray:
    """Exactly symmetric similarities (m, m) between landmarks, if they are so up to rounding; also indefinite ones."""
    entries = _entries_between(between, rows, columns, name)
    _refuse_bad_entries(entries, lowest_allowed=-checks.LARGEST_SIZE)
    checks.require_symmetric(entries)
    return checks.symmetrized(entries.matrix, zero_diagonal=False)


def new_dissimilarities(source: ProximitySource, rows: IntArray) -> FloatArray:
    """Exactly symmetric dissimilarities (p, p) with a zero diagonal between some new points, if they are so up to
    rounding; `source` has those between all."""
    entries = _entries_between_new(source, rows)
    _refuse_bad_entries(entries, lowest_allowed=0.0)
    checks.require_symmetric(entries, are_lengths=True)
    checks.require_zero_diagonal(entries, "the dissimilarity of a point to itself must be 0", are_lengths=True)
    return checks.symmetrized(entries.matrix, zero_diagonal=True)


def new_similarities(source: ProximitySource, rows: IntArray, own: FloatArray) -> FloatArray:
    """Exactly symmetric similarities (p, p) between some new points, whose similarities to themselves are `own`."""
    entries = _entries_between_new(source, rows)
    _refuse_bad_entries(entries, lowest_allowed=-checks.LARGEST_SIZE)
    checks.require_symmetric(entries)
    checks.require_diagonal(entries, own, "own_key")
    between = checks.symmetrized(entries.matrix, zero_diagonal=False)
    np.fill_diagonal(between, own)
    return between


def _entries_between_new(source: ProximitySource, rows: IntArray) -> Entries:
    return Entries(source.name, source.entries(rows, rows), rows, rows, NEW_PLACE, AMONG_NEW)


def _entries_of_points(block: AnyArray, first_column: int, name: str, rows: Numbers | None) -> Entries:
    return Entries(name, block.T, rows, range(first_column, first_column + len(block)), PLACE)


def _entries_between(between: AnyArray, rows: Numbers | None, columns: Numbers | None, name: str) -> Entries:
    return Entries(name, checks.square_matrix(name, between), rows, columns, PLACE, " between landmarks")


def _rising(argument: str, numbers: Numbers, size: int) -> tuple[IntArray, IntArray]:
    """The different ones among the numbers, and where among them each is."""
    found, places = np.unique(checks.row_indices(argument, numbers, size), return_inverse=True)
    return found, places


def _vector(place: ArrayPlace) -> Rows:
    rows = place.numbers()
    if not rows.shape[0]:
        raise InvalidInputError(f"{rows.name} has shape {rows.shape}; it must have 1 dimension and not be empty.")
    return rows


def _turned(block: AnyArray) -> FloatArray:
    """A block (m, p) as (p, m) in double precision."""
    turned = np.empty(block.shape[::-1])
    for first in range(0, len(block), TURNED_ROWS):
        turned[:, first : first + TURNED_ROWS] = block[first : first + TURNED_ROWS].T
    return turned


def _refuse_bad_entries(entries: Entries, lowest_allowed: float, if_negative: str = NO_DISSIMILARITIES) -> None:
    """Refuse NaN, infinity, and what is too low or too large; `if_negative` says what to do about what is below 0."""
    name, matrix = entries.name, entries.matrix
    # Written so that NaN, which both would be, leads to the exact look.
    if not matrix.size or (matrix.min() >= lowest_allowed and matrix.max() <= checks.LARGEST_SIZE):
        return
    bad = ~np.isfinite(matrix)
    if bad.any():
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(bad)} NaN or infinite entries among those looked at, the first "
            f"{entries.described(*np.argwhere(bad)[0])}; all must be finite: fill them, or drop those points."
        )
    if matrix.min() < lowest_allowed == 0.0:
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(matrix < 0)} negative entries among those looked at, the lowest "
            f"{entries.described(*np.unravel_index(matrix.argmin(), matrix.shape))}; {if_negative}."
        )
    checks.require_not_too_large(name, matrix)


def is_file_of_its_own(key: str) -> bool:
    """Whether a key names a file, not an array beside the matrix."""
    return Path(key).suffix == ".npy"


def landmark_points(source: ProximitySource, key: str) -> IntArray:
    """The point that each landmark is."""
    vector = _sidecar("landmarks_key", source, key)
    rows = checks.row_indices("landmarks_key", vector.read(0, vector.shape[0]), source.n_points)
    if len(rows) != source.n_landmarks or len(np.unique(rows)) != len(rows):
        raise InvalidInputError(
            f"landmarks_key={key!r} names {len(rows)} points, {len(np.unique(rows))} of them different; {source.name} "
            f"has {source.n_landmarks} rows, and each must be another point."
        )
    return rows


def own_similarities(source: ProximitySource, key: str) -> Rows:
    """The similarity of each point to itself, to be read by blocks."""
    vector = _sidecar("own_key", source, key)
    if vector.shape[0] != source.n_points:
        raise InvalidInputError(
            f"own_key={key!r} has {vector.shape[0]} entries; {source.name} has {source.n_points} points: one is needed "
            "for each."
        )
    return vector


def between_new(source: ProximitySource, key: str) -> ProximitySource:
    """The proximities (n, n) between the new points of a matrix (m, n), to be read by blocks."""
    try:
        found = open_proximities(key) if is_file_of_its_own(key) else source.open_companion_matrix(key)
    except InvalidInputError as error:
        raise InvalidInputError(f"between_key={key!r} cannot be used: {error}") from error
    n = source.n_points
    if found.shape != (n, n):
        raise InvalidInputError(
            f"between_key={key!r} has shape {found.shape}; it must be ({n}, {n}), a row and a column for each of the "
            f"points of {source.name}."
        )
    return found


def require_own_similarities(source: ProximitySource, key: str | None) -> None:
    """Refuse similarities without those of points to themselves, or with some that are none."""
    if key is None:
        raise no_own_similarities(source)
    for first, block in _blocks(own_similarities(source, key)):
        bad = np.flatnonzero(~(np.abs(block) <= checks.LARGEST_SIZE))
        if len(bad):
            raise InvalidInputError(
                f"own_key={key!r} is {block[bad[0]]:g} for point {first + bad[0]}; similarities must be finite and at "
                f"most {checks.LARGEST_SIZE:g} in size: fill it, or drop that point."
            )


def no_own_similarities(source: ProximitySource) -> InvalidInputError:
    return InvalidInputError(
        f"{source.name} does not have the similarities of its points to themselves, which distances between them need; "
        "name an array of them with own_key: one kept beside the matrix, or a .npy file."
    )


def digest_of_vector(argument: str, source: ProximitySource, key: str) -> str:
    """What changes whenever the array does, wherever it is kept."""
    digest = hashlib.sha256()
    for _, block in _blocks(_sidecar(argument, source, key)):
        digest.update(block.tobytes())
    return digest.hexdigest()


def _sidecar(argument: str, source: ProximitySource, key: str) -> Rows:
    try:
        return open_vector(key) if is_file_of_its_own(key) else source.open_companion(key)
    except InvalidInputError as error:
        raise InvalidInputError(f"{argument}={key!r} cannot be used: {error}") from error


def _blocks(vector: Rows) -> Iterator[tuple[int, FloatArray]]:
    n = vector.shape[0]
    for first in range(0, n, BLOCK_ENTRIES):
        yield first, vector.read(first, min(first + BLOCK_ENTRIES, n)).astype(np.float64)
