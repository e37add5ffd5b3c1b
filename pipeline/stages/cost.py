"""What work costs, by arithmetic from sizes known before anything runs, and what memory there is for it.

Every stage states its own `cost`. Memory is for one process that works on one partition at a time, measured by
`python -m benchmarks.memory`. Seconds are of one core, measured on one kind of machine and meant within a factor of
two or so: `python -m benchmarks.plan` compares them with a fit. What a function of the user's takes is not known; it
is counted as a few microseconds a call.
"""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIB = 1 << 20
# The interpreter, its libraries, compiled loops, and what allocators do not give back.
BASE = 300 * MIB
# Blocks of distances to candidates, wherever neighbors are searched.
SEARCH = 96 * MIB
# Bytes of an edge while lists of any length are made, and while a graph is loaded.
LISTED_EDGE = 100
# A call of a function of the user's.
SECONDS_PER_CALL = 4e-6


class Cost(NamedTuple):
    """What one stage takes: bytes of memory beyond `BASE`, seconds of one core, bytes on disk, pieces of work."""

    memory: int = 0
    seconds: float = 0.0
    disk: int = 4096
    tasks: int = 1

    @property
    def peak(self) -> int:
        """Bytes of a process, libraries included."""
        return BASE + self.memory


@dataclass(frozen=True)
class Shape:
    """The sizes of a job: how many there are of everything, and bytes of each. What a job does not have is 0.

    `edges_from` says what a graph is made of: `neighbors`, a `radius`, or `given` by the user, in which case
    `n_neighbors` is a mean; None where rows are measured straight from the landmarks.
    """

    n_rows: int
    rows_each: int
    n_components: int
    # Numbers published for each row, and bytes of a row as it is given.
    n_values: int
    row_bytes: int = 0
    n_columns: int = 0
    n_axes: int = 0
    point_itemsize: int = 0
    n_landmarks: int = 0
    edges_from: str | None = None
    n_cells: int = 0
    cell_sample: int = 0
    n_neighbors: int = 0
    landmark_candidates: int = 0
    landmarks_each: int = 1
    nodes_per_chunk: int = 0
    method: str = ""
    extension: str = ""
    # Landmarks that every row is compared with by a function of the user's.
    n_evaluated: int = 0
    # Points that new rows are compared with, and how many a partition of them has.
    n_nodes: int = 0
    nodes_each: int = 0
    # Terms of the polynomial that an inverse map takes with it.
    n_terms: int = 0

    @property
    def rows(self) -> int:
        """Rows of the largest partition."""
        return min(self.n_rows, self.rows_each)

    @property
    def n_partitions(self) -> int:
        return -(-self.n_rows // self.rows_each)

    @property
    def partition_bytes(self) -> int:
        """Bytes of a partition as it is given."""
        return self.rows * self.row_bytes

    @property
    def block(self) -> int:
        """Bytes of a partition's points as the run keeps them."""
        return self.rows * self.n_axes * self.point_itemsize

    @property
    def reading(self) -> int:
        """Bytes at the peak of reading a partition of the source and preprocessing it."""
        return self.partition_bytes + 2 * self.rows * self.n_columns * self.point_itemsize

    @property
    def points(self) -> int:
        """Bytes of all points as the run keeps them."""
        return self.n_rows * self.n_axes * self.point_itemsize

    @property
    def source(self) -> int:
        """Bytes of the whole source."""
        return self.n_rows * self.row_bytes

    @property
    def graph(self) -> int:
        """Bytes of a graph in memory: about 1.3 times as many edges as neighbors, each from both its ends, 8 bytes
        each; neighbors within a radius and given ones are those edges already."""
        each = 13 if self.edges_from == "neighbors" else 8
        return each * self.n_neighbors * self.n_rows + 8 * self.n_rows


def machine_memory() -> int:
    """Bytes of memory of the machine, or of the container if it has a limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = CONTAINER_LIMIT.read_text().strip() if CONTAINER_LIMIT.is_file() else ""
    return min(physical, int(limit)) if limit.isdigit() else physical


def release_free_memory() -> None:
    """Hand freed memory back to the system, where the C library would keep it."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
