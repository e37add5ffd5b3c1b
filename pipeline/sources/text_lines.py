"""A text file with one object on each line: indexed in one pass over its bytes, then read by runs of lines.

A line ends with a line feed, or a carriage return and a line feed; an empty line is the empty text, but those at the
end of the file do not count, as in files of delimited text.
"""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.sources import row_index
from pipeline.sources.checks import Stamp
from pipeline.sources.row_index import RowIndex, content_end
from pipeline.types import IntArray, Json


class TextLines:
    """Lines of UTF-8 text. Of the file only where each run of lines begins is held."""

    def __init__(self, path: Path) -> None:
        self.name, self._path, self._stamp = str(path), path, Stamp.of(path)
        try:
            with path.open("rb") as file:
                self._index = line_index(file)
        except EOFError as error:
            raise InvalidInputError(f"{self.name} became shorter while it was read; start again.") from error
        self.n_rows = self._index.n_rows
        self.rows_at_once = row_index.INDEXED_ROWS
        if not self.n_rows:
            raise EmptySourceError(f"{self.name} holds no lines of text; it is empty, and at least one is needed.")

    def read(self, start: int, stop: int) -> list[str]:
        self._stamp.check()
        lines: list[str] = []
        for run in self._index.runs(start, stop):
            first = self._index.rows(run).start
            lines += self._lines(run)[max(start - first, 0) : stop - first]
        return lines

    def fingerprint(self) -> Json:
        return {"kind": "lines of text", **Stamp.of(self._path).described()}

    def _lines(self, run: int) -> list[str]:
        """All lines of a run."""
        start, stop = self._index.offsets[run : run + 2].tolist()
        with self._path.open("rb") as file:
            file.seek(start)
            data = file.read(stop - start)
        if len(data) < stop - start:
            raise InvalidInputError(f"{self.name} became shorter while it was read; start again.")
        rows = self._index.rows(run)
        try:
            lines = data.decode().split("\n")[: len(rows)]
        except UnicodeDecodeError as error:
            row = rows.start + data.count(b"\n", 0, error.start)
            raise InvalidInputError(f"{self.name} is no UTF-8 text in line {row} (from 0): {error}") from error
        return [line.removesuffix("\r") for line in lines]


def line_index(file: IO[bytes]) -> RowIndex:
    """Where each run of lines begins, and where the last line ends."""
    start = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
    stop = content_end(file, start)
    if start == stop:
        return RowIndex(0, np.array([stop]))
    begins, n_lines = [np.array([start])], 1
    for feeds in _line_feeds(file, start, stop):
        # The first feed in this block begins line `n_lines`.
        begins.append(feeds[-n_lines % row_index.INDEXED_ROWS :: row_index.INDEXED_ROWS] + 1)
        n_lines += len(feeds)
    return RowIndex(n_lines, np.concatenate([*begins, np.array([stop])]))


def _line_feeds(file: IO[bytes], start: int, stop: int) -> Iterator[IntArray]:
    """The positions of line feeds, block by block."""
    file.seek(start)
    while start < stop:
        data = np.frombuffer(file.read(min(row_index.BLOCK_BYTES, stop - start)), np.uint8)
        if not len(data):
            raise EOFError
        yield start + np.flatnonzero(data == row_index.LINE_FEED)
        start += len(data)
