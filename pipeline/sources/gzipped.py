"""Gzipped tables, read like plain ones: each process that reads one unpacks it once.

Blocks are read in any order, which a gzipped stream does not allow. The unpacked text goes to a file without a name in
the temporary folder (TMPDIR): the system frees it with the process, however that ends.
"""

import gzip
import shutil
import tempfile
import threading
import weakref
import zlib
from functools import lru_cache
from pathlib import Path

from pipeline.errors import InvalidInputError
from pipeline.sources.source import Stamp

GZIPPED = (".csv.gz", ".tsv.gz")
COPIED_BYTES = 1 << 20
# Files kept unpacked in a process: a fit reads one, a refit a few in turn.
KEPT = 2
_UNPACKING = threading.Lock()


def table_suffix(path: Path) -> str:
    """The suffix of a file in lower case; of a gzipped table, that of the table."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz") if name.endswith(GZIPPED) else name).suffix


class Unpacked:
    """The text of a gzipped file; it takes disk space for as long as this is referred to."""

    def __init__(self, packed: Path) -> None:
        try:
            # Closed by the finalizer: the file must outlive this block.
            file = tempfile.TemporaryFile()  # noqa: SIM115
            weakref.finalize(self, file.close)
            with gzip.open(packed, "rb") as stream:
                shutil.copyfileobj(stream, file, COPIED_BYTES)
            file.flush()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInputError(f"{packed} is damaged: it cannot be unpacked ({error}).") from error
        except OSError as error:
            raise InvalidInputError(
                f"{packed} cannot be unpacked to {tempfile.gettempdir()}: {error}; name a folder with enough space in "
                "the environment variable TMPDIR."
            ) from error
        # Opened anew by each reader, for a position of its own.
        self.path = Path(f"/proc/self/fd/{file.fileno()}")


def unpacked(stamp: Stamp) -> Unpacked:
    """The text of a gzipped file as it was when it was opened."""
    with _UNPACKING:
        return _kept(stamp)


@lru_cache(maxsize=KEPT)
def _kept(stamp: Stamp) -> Unpacked:
    return Unpacked(stamp.path)
