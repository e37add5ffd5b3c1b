"""Where the rows of a text file begin: found in one pass over the bytes and kept for every 4,096th row."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.partitions import GRAIN_ROWS
from pipeline.types import IntArray

INDEXED_ROWS = GRAIN_ROWS  # so that what partitions begin with is parsed once
BLOCK_BYTES = 4 << 20
LINE_FEED, QUOTE = 10, 34


class OpenQuoteError(ValueError):
    """The text ends within quotes."""


@dataclass(frozen=True)
class RowIndex:
    """The byte at which each run of `INDEXED_ROWS` rows begins, and the one at which the last row ends."""

    n_rows: int
    offsets: IntArray

    def runs(self, start: int, stop: int) -> range:
        """The runs that hold the rows from `start` up to `stop`."""
        return range(start // INDEXED_ROWS, -(-stop // INDEXED_ROWS))

    def rows(self, run: int) -> range:
        return range(run * INDEXED_ROWS, min((run + 1) * INDEXED_ROWS, self.n_rows))

    def read_run(self, path: Path, run: int) -> bytes:
        """The text of all rows of a run."""
        start, stop = self.offsets[run : run + 2].tolist()
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(stop - start)
        if len(data) < stop - start:
            raise InvalidInputError(f"{path} became shorter while it was read; start again.")
        return data

    @classmethod
    def scanned(cls, file: IO[bytes], start: int, stop: int, with_quotes: bool = True) -> "RowIndex":
        """Index the rows between two bytes; the last row ends at `stop`, without a line feed."""
        if start >= stop:
            return cls(0, np.array([stop]))
        found, count = [np.array([start])], 1
        for ends in row_ends(file, start, stop, with_quotes):
            # The first end in this block begins row `count`.
            found.append(ends[-count % INDEXED_ROWS :: INDEXED_ROWS] + 1)
            count += len(ends)
        return cls(count, np.concatenate([*found, np.array([stop])]))


def row_ends(file: IO[bytes], start: int, stop: int, with_quotes: bool = True) -> Iterator[IntArray]:
    """The positions of the line feeds that end rows, block by block; those within quotes do not."""
    file.seek(start)
    quoted = 0
    while start < stop:
        data = np.frombuffer(file.read(min(BLOCK_BYTES, stop - start)), np.uint8)
        if not len(data):
            raise EOFError
        feeds, quotes = np.flatnonzero(data == LINE_FEED), np.flatnonzero(data == QUOTE) if with_quotes else ()
        if quoted or len(quotes):
            feeds = feeds[(quoted + np.searchsorted(quotes, feeds)) % 2 == 0]
        yield start + feeds
        quoted = (quoted + len(quotes)) % 2
        start += len(data)
    if quoted:
        raise OpenQuoteError


def content_start(file: IO[bytes]) -> int:
    """Where the text begins, behind a byte order mark if there is one."""
    file.seek(0)
    return len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0


def content_end(file: IO[bytes], start: int) -> int:
    """Where the text ends but for line ends, searched from the back down to `start`."""
    end = file.seek(0, 2)
    while end > start:
        first = max(start, end - BLOCK_BYTES)
        file.seek(first)
        kept = len(file.read(end - first).rstrip(b"\r\n"))
        if kept:
            return first + kept
        end = first
    return start
