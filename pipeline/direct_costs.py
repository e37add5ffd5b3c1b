"""What each stage costs where rows are measured straight from the landmarks, by arithmetic.

Seconds are of one core, measured on one kind of machine and meant within a factor of two or so. What a function of the
user's takes is not known: it is counted as a few microseconds a call.
"""

from dataclasses import dataclass

from pipeline.comparing import Comparisons
from pipeline.costs import EVALUATED_NODES, SECONDS_PER_TASK
from pipeline.memory import direct_peaks

SECONDS_PER_CALL = 4e-6
ROWS_PER_GRAIN = 4096
# Seconds that a model of m landmarks takes, by m^2 (an iteration over all pairs) and m^3 (a decomposition).
PAIRS = {"metric-mds": 4e-6, "nonmetric-mds": 2e-5, "sammon": 4e-6}
DECOMPOSED = 2e-10
# Seconds that placing a point takes for each landmark and component: sums, or a search of its own.
PLACED = {"stress": 6e-8, "weights": 6e-9}
SUMS = 2e-9


@dataclass(frozen=True)
class DirectShape:
    """What a fit by a direct method depends on: sizes in numbers and bytes. `measured` says that distances between
    vectors are computed; `n_evaluated` landmarks are compared with every row by a function of the user's, and with
    `has_subset` these are chosen among all of them."""

    n_rows: int
    n_columns: int
    source_itemsize: int
    rows_each: int
    n_landmarks: int
    n_components: int
    n_answers: int
    method: str
    extension: str
    measured: bool
    n_evaluated: int
    has_subset: bool
    finds_axes: bool

    @property
    def partition_bytes(self) -> int:
        width = self.n_columns * self.source_itemsize if self.measured else 8 * self.n_landmarks
        return min(self.n_rows, self.rows_each) * width

    @property
    def n_partitions(self) -> int:
        return -(-self.n_rows // self.rows_each)


def direct_memory(shape: DirectShape) -> dict[str, int]:
    """Bytes that each stage has in memory at most."""
    peaks = direct_peaks(shape.partition_bytes, shape.n_columns, shape.n_landmarks)
    return {stage: peaks[stage] for stage in direct_tasks(shape)}


def direct_tasks(shape: DirectShape) -> dict[str, int]:
    """Independent pieces of work of each stage."""
    tasks = {"validate": shape.n_partitions}
    if shape.finds_axes:
        tasks["axes"] = -(-shape.n_rows // (64 * ROWS_PER_GRAIN))
    tasks["landmarks"] = 1
    if shape.has_subset:
        tasks["subset"] = Comparisons(shape.n_landmarks, shape.n_landmarks).count
    if shape.n_evaluated:
        tasks["rows"] = Comparisons(shape.n_rows, shape.n_evaluated).count
    return {
        **tasks,
        "model": 1,
        "embed": shape.n_partitions,
        "calibrate": 1,
        "evaluate": 1,
        "publish": tasks["validate"],
    }


def direct_seconds(shape: DirectShape) -> dict[str, float]:
    """Seconds that each stage takes on one core."""
    n, m, d, columns = shape.n_rows, shape.n_landmarks, shape.n_components, shape.n_columns
    source = n * (columns * shape.source_itemsize if shape.measured else 8 * m)
    measuring = 4e-10 * n * m * columns if shape.measured else 3e-9 * n * m
    work = {
        "validate": 0.1 + 6e-9 * source,
        "axes": 4e-9 * source + 1e-10 * n * columns**2,
        "landmarks": 0.1 + 4e-9 * source + 3e-8 * m * m * max(1, columns),
        "subset": SECONDS_PER_CALL * m * m,
        "rows": SECONDS_PER_CALL * n * shape.n_evaluated,
        "model": 0.05 + DECOMPOSED * m**3 + PAIRS.get(shape.method, 0.0) * m * m * 10,
        "embed": measuring + (1.2e-6 + 2e-7 * d) * n + PLACED.get(shape.extension, SUMS) * n * m * (1 + d),
        "calibrate": 0.02,
        "evaluate": 0.3 + 3.5e-10 * min(n, EVALUATED_NODES) ** 2 * columns,
        "publish": 0.1 + (4e-7 + 1.5e-7 * d) * n,
    }
    return {stage: work[stage] + SECONDS_PER_TASK * tasks for stage, tasks in direct_tasks(shape).items()}


def direct_bytes(shape: DirectShape) -> dict[str, int]:
    """Bytes that each stage leaves on disk."""
    n, m, d = shape.n_rows, shape.n_landmarks, shape.n_components
    values = 8 * (shape.n_answers * d + 4) * n
    sampled = min(min(n, EVALUATED_NODES) * m, max(4_000_000, 100 * m))
    size = {
        "validate": 32 * shape.n_columns * (n // 4096 + 1),
        "landmarks": 8 * m * (shape.n_columns + 1),
        "subset": 8 * m * m,
        "rows": 8 * n * shape.n_evaluated,
        "model": 8 * m * (m if shape.extension not in ("projection", "restricted") else 4 * d),
        "embed": values + 20 * n + 8 * sampled,
        "publish": values,
    }
    return {stage: size.get(stage, 4096) for stage in direct_tasks(shape)}
