"""A function of the user's that compares two objects: imported where it is needed, and every answer looked at.

How comparisons of rows with landmarks are cut into pieces of work: integers only.

What a call of the user's function takes is not known, microseconds or minutes. So even few comparisons make pieces
enough for a cluster to share and for a crash to lose little, while of many comparisons the pieces are larger, or
keeping track of them would take longer than they do.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError, described
from pipeline.numerics.checks import compared_number
from pipeline.types import FloatArray

LANDMARKS_EACH = 16
FEWEST_ROWS, USUAL_ROWS, MOST_ROWS = 8, 256, 65_536
# Pieces that there are at least and at most, as far as the rows of each may go down and up for it.
ENOUGH_PIECES, MOST_PIECES = 64, 10_000


@dataclass(frozen=True)
class Comparisons:
    """Every row with every landmark, in pieces of `rows_each` rows and a batch of landmarks; the last of either may be
    smaller. Pieces of the same rows follow each other."""

    n_rows: int
    n_landmarks: int

    @property
    def n_batches(self) -> int:
        return -(-self.n_landmarks // LANDMARKS_EACH)

    @cached_property
    def rows_each(self) -> int:
        rows = USUAL_ROWS
        while rows > FEWEST_ROWS and self._pieces(rows) < ENOUGH_PIECES:
            rows //= 2
        while rows < MOST_ROWS and self._pieces(rows) > MOST_PIECES:
            rows *= 2
        return rows

    @property
    def count(self) -> int:
        return self._pieces(self.rows_each)

    def rows(self, piece: int) -> range:
        """The rows of one piece."""
        first = piece // self.n_batches * self.rows_each
        return range(first, min(first + self.rows_each, self.n_rows))

    def landmarks(self, piece: int) -> slice:
        """The places of its landmarks among all of them."""
        first = piece % self.n_batches * LANDMARKS_EACH
        return slice(first, min(first + LANDMARKS_EACH, self.n_landmarks))

    def _pieces(self, rows_each: int) -> int:
        return self.n_batches * -(-self.n_rows // rows_each)


Comparing = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Comparison:
    """What two objects are to each other by a function `package.module:function`: a distance, or with `is_kernel` an
    inner product, which may be negative. `source` is the digest of its source where the command was started."""

    function: str
    is_kernel: bool = False
    source: str = ""

    @classmethod
    def named(cls, function: str, is_kernel: bool = False) -> "Comparison":
        """The function as it is here and now; refused if it cannot be had, before anything runs."""
        comparison = cls(function, is_kernel)
        return cls(function, is_kernel, source_of(comparison.imported(), function))

    @property
    def argument(self) -> str:
        """The setting that names it."""
        return "kernel" if self.is_kernel else "metric"

    def __str__(self) -> str:
        return f"{self.argument}={self.function!r}"

    def table(self, objects: Any, landmarks: Any, rows: Sequence[int], landmark_rows: Sequence[int]) -> FloatArray:
        """Values (p, b) of objects to landmarks, one call for each; `rows` and `landmark_rows` are where they stand."""
        values = np.empty((len(objects), len(landmarks)))
        for i, one in enumerate(objects):
            for j, other in enumerate(landmarks):
                values[i, j] = self._value(one, other, rows[i], landmark_rows[j])
        return values

    def own(self, objects: Any, rows: Sequence[int]) -> FloatArray:
        """Values (p,) of objects to themselves."""
        found = [self._value(one, one, row, None) for one, row in zip(objects, rows, strict=True)]
        return np.array(found, dtype=np.float64)

    def imported(self) -> Comparing:
        """The function as this process has it."""
        module, _, name = self.function.partition(":")
        here = os.getcwd()
        added = here not in sys.path
        # As with `python -m`: what stands in the folder of the command can be named.
        sys.path[:0] = [here] * added
        try:
            found: Comparing = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise InvalidInputError(
                f"{self} cannot be imported: {error}; it must be installed, or a module in the folder of the command, "
                "wherever it is evaluated."
            ) from error
        except Exception as error:
            raise InvalidInputError(f"{self} cannot be imported: {described(error)}; mend the module.") from error
        finally:
            if added:
                sys.path.remove(here)
        if not callable(found):
            raise InvalidInputError(
                f"{self} is not a function but {type(found).__name__}; name one as package.module:function."
            )
        return found

    @cached_property
    def _call(self) -> Comparing:
        call = self.imported()
        here = source_of(call, self.function)
        if "" not in (here, self.source) and here != self.source:
            raise InvalidInputError(
                f"{self} has another source here than where the command was started, or was edited since: install the "
                "same everywhere and run the command again."
            )
        return call

    def _value(self, one: Any, other: Any, row: int, landmark_row: int | None) -> float:
        call = self._call
        try:
            value = call(one, other)
        except Exception as error:
            raise _in_words(error, f"{self} fails for {_pair(row, landmark_row)}: {described(error)}") from error
        return compared_number(
            value, self.is_kernel, lambda given: f"{self} gives {given} for {_pair(row, landmark_row)}"
        )


def source_of(call: Comparing, function: str) -> str:
    """The digest of the files of the module that names a function and of the one that defines it; empty where they
    cannot be read.

    What a process has loaded it keeps, whatever becomes of the files: they are read once for it.
    """
    if id(call) not in _SOURCES:
        _SOURCES[id(call)] = call, _digest_of_files(call, function)
    return _SOURCES[id(call)][1]


# By the identity of a function, which stays its own as long as the function is kept with it.
_SOURCES: dict[int, tuple[Comparing, str]] = {}


def _digest_of_files(call: Comparing, function: str) -> str:
    defined_in = getattr(inspect.unwrap(call), "__module__", None)
    digest = hashlib.sha256()
    for module in dict.fromkeys((function.partition(":")[0], defined_in)):
        path = getattr(sys.modules.get(module or ""), "__file__", None)
        try:
            digest.update(hashlib.sha256(Path(path or "").read_bytes()).digest())
        except OSError:
            return ""
    return digest.hexdigest()


def _pair(row: int, landmark_row: int | None) -> str:
    return f"row {row} and " + ("itself" if landmark_row is None else f"the landmark in row {landmark_row}")


def _in_words(error: Exception, words: str) -> Exception:
    """An error of the user's function in our words. Faults that may pass keep their kind, by which they are tried
    again."""
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, words)
    kinds = (kind for kind in (TimeoutError, ConnectionError) if isinstance(error, kind))
    return next(kinds, InvalidInputError)(words)
