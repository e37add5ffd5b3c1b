"""Checks that sources of several kinds share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.types import AnyArray, BoolArray, Json


def checked_table(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int]:
    """The shape of a table of real numbers."""
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"{name} has dtype {dtype}; it must hold real numbers.")
    if len(shape) != 2:
        raise InvalidInputError(f"{name} has shape {shape}; it must have 2 dimensions, rows and columns.")
    if 0 in shape:
        kind = EmptySourceError if shape[1] else InvalidInputError
        raise kind(f"{name} has shape {shape}; it is empty, and at least one row and column are needed.")
    return int(shape[0]), int(shape[1])


def checked_labels(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], n_rows: int) -> None:
    """Refuse what cannot name the rows of a table."""
    if dtype.kind not in "iuUST":
        raise InvalidInputError(f"id_column: {name} has dtype {dtype}; ids must be integers or text.")
    if shape != (n_rows,):
        raise InvalidInputError(f"id_column: {name} has shape {shape}; ids must have shape ({n_rows},), one a row.")


def as_ids(values: AnyArray, name: str, first_row: int) -> AnyArray:
    """Ids as int64 or numpy text; `first_row` is the row of the first, for the error."""
    kind = values.dtype.kind
    if kind == "U":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    if kind == "S":
        return _decoded(values, name)
    if kind in "TO":
        return values.astype(object).astype(str)
    fits = _fits_int64(values)
    if not fits.all():
        row = int(np.argmin(fits))
        raise InvalidInputError(
            f"id_column: {name} holds {values[row]} in row {first_row + row}; ids must be whole numbers that its dtype "
            f"{values.dtype} and int64 hold exactly, or text."
        )
    return values.astype(np.int64)


def _decoded(values: AnyArray, name: str) -> AnyArray:
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"id_column: {name} holds bytes that are no UTF-8 text: {error}") from error


def _fits_int64(values: AnyArray) -> BoolArray:
    if values.dtype.kind != "f":
        return np.asarray(values <= np.iinfo(np.int64).max)
    exact_below = 2.0 ** min(np.finfo(values.dtype).nmant + 1, 53)
    return np.asarray((values == np.rint(values)) & (np.abs(values.astype(np.float64)) <= exact_below))


@dataclass(frozen=True)
class Stamp:
    """What tells a file from another, and from itself later: what was learned on opening it holds only as long.

    The time of its entry also changes when only its rights do, so it makes for another fingerprint but no error.
    """

    path: Path
    size: int
    changed: int
    number: int
    entered: int = field(compare=False)

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        try:
            status = path.stat()
        except OSError as error:
            raise InvalidInputError(f"source {path} cannot be read: {error}") from error
        return cls(path, status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)

    def check(self) -> None:
        if Stamp.of(self.path) != self:
            raise InvalidInputError(
                f"source {self.path} has changed since it was opened; start again with the new data."
            )

    def described(self) -> Json:
        place = [str(self.path.resolve()), self.number, self.entered]
        return {"bytes": self.size, "changed": self.changed, "file": place}
