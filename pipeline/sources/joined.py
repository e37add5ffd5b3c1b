"""Several sources with the same columns as one: the rows of each after those of the one before."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.source import Source
from pipeline.types import AnyArray, Json

LISTED_COLUMNS = 5
# Whole numbers up to here are doubles to the last digit.
LARGEST_EXACT = 2**53


class JoinedSource:
    """Rows come in the dtype that holds those of all parts; there are ids if all parts have them, of one kind."""

    def __init__(self, sources: Sequence[Source]) -> None:
        first, *others = sources
        for other in others:
            _require_same_columns(first, other)
        self.name = first.name if not others else f"{first.name} and {len(others)} more"
        self.shape = (sum(source.shape[0] for source in sources), first.shape[1])
        self.dtype: np.dtype[Any] = np.result_type(*(source.dtype for source in sources))
        self.column_names = first.column_names
        self.has_ids = all(source.has_ids for source in sources) and len({_id_kind(source) for source in sources}) == 1
        self._sources = list(sources)
        self._starts = [0, *accumulate(source.shape[0] for source in sources)]

    def read(self, start: int, stop: int) -> AnyArray:
        self._check_rows(start, stop)
        parts = [self._converted(source, *rows) for source, rows in self._parts(start, stop)]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])

    def ids(self, start: int, stop: int) -> AnyArray:
        if not self.has_ids:
            raise InvalidInputError(f"{self.name} have no ids, or ids of different kinds; name them with id_column.")
        self._check_rows(start, stop)
        parts = [source.ids(*rows) for source, rows in self._parts(start, stop)]
        return np.concatenate(parts) if parts else self._sources[0].ids(0, 0)

    def fingerprint(self) -> Json:
        return {"kind": "joined", "parts": [sorted(source.fingerprint().items()) for source in self._sources]}

    def _converted(self, source: Source, start: int, stop: int) -> AnyArray:
        block = source.read(start, stop)
        if self.dtype.kind == "f" and block.dtype.kind in "iu" and block.dtype.itemsize == 8:
            beyond = (block > LARGEST_EXACT) | (block < -LARGEST_EXACT)
            if beyond.any():
                row, column = np.argwhere(beyond)[0]
                raise InvalidInputError(
                    f"{source.name} holds {block[row, column]} in row {start + row}, which {self.dtype} would round, "
                    "and other data to be joined with it has fractions; subtract an offset or rescale."
                )
        return block.astype(self.dtype, copy=False)

    def _parts(self, start: int, stop: int) -> Iterator[tuple[Source, tuple[int, int]]]:
        """The sources that hold some of the rows, each with their numbers in it."""
        for source, base in zip(self._sources, self._starts, strict=False):
            first, last = max(start - base, 0), min(stop - base, source.shape[0])
            if first < last:
                yield source, (first, last)

    def _check_rows(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.shape[0]:
            raise InvalidInputError(f"rows {start} to {stop} are outside of the {self.shape[0]} rows of {self.name}.")


def joined(sources: Sequence[Source]) -> Source:
    """Several sources as one; a single one as it is."""
    return sources[0] if len(sources) == 1 else JoinedSource(sources)


def _id_kind(source: Source) -> str:
    return source.ids(0, 0).dtype.kind if source.has_ids else ""


def _require_same_columns(first: Source, other: Source) -> None:
    """Columns go by their names; where either side only counts them, by their number."""
    some, others = first.column_names, other.column_names
    counted = len(some) == len(others) and (_are_numbers(some) or _are_numbers(others))
    if some != others and not counted:
        raise InvalidInputError(
            f"{other.name} has {len(others)} columns ({_listed(others)}), {first.name} has {len(some)} "
            f"({_listed(some)}); give the same columns in the same order."
        )


def _are_numbers(names: list[str]) -> bool:
    return all(name.isdigit() for name in names)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:LISTED_COLUMNS]) + (", ..." if len(names) > LISTED_COLUMNS else "")
