"""Arrays that are kept with a matrix of proximities: which point each of its rows is, and of similarities those of
points to themselves."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.sources.matrices import Rows
from pipeline.sources.proximities import ProximitySource, open_vector
from pipeline.types import FloatArray, IntArray

# Entries that are looked at together: 8 MB.
BLOCK_ENTRIES = 1 << 20


def is_file_of_its_own(key: str) -> bool:
    """Whether a key names a file, not an array beside the matrix."""
    return Path(key).suffix == ".npy"


def landmark_points(source: ProximitySource, key: str) -> IntArray:
    """The point that each landmark is."""
    vector = _vector("landmarks_key", source, key)
    rows = checks.row_indices("landmarks_key", vector.read(0, vector.shape[0]), source.n_points)
    if len(rows) != source.n_landmarks or len(np.unique(rows)) != len(rows):
        raise InvalidInputError(
            f"landmarks_key={key!r} names {len(rows)} points, {len(np.unique(rows))} of them different; {source.name} "
            f"has {source.n_landmarks} rows, and each must be another point."
        )
    return rows


def own_similarities(source: ProximitySource, key: str) -> Rows:
    """The similarity of each point to itself, to be read by blocks."""
    vector = _vector("own_key", source, key)
    if vector.shape[0] != source.n_points:
        raise InvalidInputError(
            f"own_key={key!r} has {vector.shape[0]} entries; {source.name} has {source.n_points} points: one is needed "
            "for each."
        )
    return vector


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
    for _, block in _blocks(_vector(argument, source, key)):
        digest.update(block.tobytes())
    return digest.hexdigest()


def _vector(argument: str, source: ProximitySource, key: str) -> Rows:
    try:
        return open_vector(key) if is_file_of_its_own(key) else source.open_companion(key)
    except InvalidInputError as error:
        raise InvalidInputError(f"{argument}={key!r} cannot be used: {error}") from error


def _blocks(vector: Rows) -> Iterator[tuple[int, FloatArray]]:
    n = vector.shape[0]
    for first in range(0, n, BLOCK_ENTRIES):
        yield first, vector.read(first, min(first + BLOCK_ENTRIES, n)).astype(np.float64)
