"""What a stage is, what it costs, and how one is run: only what the ledger does not hold yet, each partition once.

Every stage states its own cost, by arithmetic from sizes known before anything runs. Memory is for one process that
works on one partition at a time, measured by `python -m benchmarks.memory`. Seconds are of one core, measured on one
kind of machine and meant within a factor of two or so: `python -m benchmarks.plan` compares them with a fit. What a
function of the user's takes is not known; it is counted as a few microseconds a call.
"""

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError, StageError
from pipeline.sources.partitions import RowPartitions
from pipeline.store.lease import Lease
from pipeline.store.ledger import StageLedger, stage_digest
from pipeline.types import AnyArray, Json

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
# What committing a piece of work takes.
SECONDS_PER_TASK = 0.008


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
    # Starts of a method that iterates.
    n_init: int = 1
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
        """Bytes of a graph in memory, 8 an edge from each end: about 1.3 times as many as nearest neighbors."""
        each = 13 if self.edges_from == "neighbors" else 8
        return each * self.n_neighbors * self.n_rows + 8 * self.n_rows


@dataclass(frozen=True)
class Outcome:
    """A finished stage: where its results are, what they say, and how many partitions had to be computed for it."""

    ledger: StageLedger
    figures: Json
    n_computed: int


# Figures, and arrays by their names.
Result = tuple[Json, Mapping[str, AnyArray]]


class Stage(ABC):
    """One step of a run. A partition may be computed twice, and must then write the same bytes."""

    name: str
    # To be raised when the stage writes something else than before for the same settings and inputs.
    version = 1
    # Fields that are settings under their own names, and fields with the outcomes of stages that are read.
    depends_on: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()

    def settings(self) -> Json:
        """Everything but the inputs that the results depend on."""
        return {name: getattr(self, name) for name in self.depends_on}

    def inputs(self) -> list[str]:
        """The digests of what the stage reads."""
        return [getattr(self, name).ledger.digest for name in self.reads]

    @abstractmethod
    def n_partitions(self) -> int:
        """How many independent pieces of work there are."""

    def prepare(self, ledger: StageLedger) -> None:  # noqa: B027  most stages need none
        """Create the arrays that several partitions write; called before them, perhaps more than once."""

    @abstractmethod
    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        """Do one piece: its figures, and the names of the arrays that it alone has written."""

    def release(self) -> None:  # noqa: B027  most stages keep nothing
        """Let go of what this process keeps in memory between partitions."""

    @staticmethod
    def cost(shape: Shape) -> Cost:
        """What the stage takes in a job of these sizes. Stages that no plan counts state their memory alone."""
        return Cost()

    @abstractmethod
    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        """Bring the pieces together: the stage's figures, and the names of the arrays written between them."""


class SingleStage(Stage):
    """A stage that is one piece of work."""

    def n_partitions(self) -> int:
        return 1

    @abstractmethod
    def result(self) -> Result:
        """The stage's figures and arrays."""

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        return written(ledger, *self.result())

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return figures[0], ledger.vouched_for(0)


class RowStage(Stage):
    """A stage whose pieces of work are the partitions of the rows."""

    partitions: RowPartitions

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each, **super().settings()}

    def n_partitions(self) -> int:
        return self.partitions.count


class GroupStage(Stage):
    """A stage whose pieces of work are the groups of nodes that the order stage made."""

    ordered: Outcome

    def n_partitions(self) -> int:
        return len(self.ordered.figures["nodes_each"])


def written(ledger: StageLedger, figures: Json, arrays: Mapping[str, AnyArray]) -> tuple[Json, list[str]]:
    """Write arrays under their own names: the figures, and those names."""
    for name, array in arrays.items():
        ledger.write(name, array)
    return figures, list(arrays)


def total(figures: dict[int, Json], name: str) -> int:
    """The sum over all partitions of one of their figures."""
    return sum(entry[name] for entry in figures.values())


def costs_of(stages: Iterable[type[Stage]], shape: Shape) -> dict[str, Cost]:
    """What each stage takes on one core, by name."""
    stated = {stage.name: stage.cost(shape) for stage in stages}
    return {name: cost._replace(seconds=cost.seconds + SECONDS_PER_TASK * cost.tasks) for name, cost in stated.items()}


class Watch:
    """Told what happens as a stage runs; this one keeps it to itself."""

    def began(self, what: str) -> None:
        """Of several pieces of data, the next one is taken up."""

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        """A stage begins, with so many partitions left to compute."""

    def computed(self, ledger: StageLedger, partition: int) -> None:
        """A partition was computed and committed."""

    def finished(self, outcome: Outcome) -> None:
        """A stage is complete, perhaps since an earlier run."""


@dataclass(frozen=True)
class Work:
    """All that it takes to compute partitions of a stage; small, and the same wherever it is sent."""

    lease: Lease
    stage: Stage
    ledger: StageLedger

    def run(self, partitions: Sequence[int], computed: Callable[[], None] = lambda: None) -> None:
        """Compute some partitions and commit them together; those before one that fails are committed still.

        `computed` is called when only the commit is left, which waits for the disk and hardly computes.
        """
        done: dict[int, tuple[Json, list[str]]] = {}
        try:
            for partition in partitions:
                # Another worker may have committed it and died before it could say so.
                if not self.ledger.is_complete(partition):
                    done[partition] = self._computed(partition)
        except Exception:
            with suppress(Exception):  # the first fault is the one to tell of
                self._commit(done)
            raise
        computed()
        self._commit(done)

    def _computed(self, partition: int) -> tuple[Json, list[str]]:
        try:
            return self.stage.run_partition(self.ledger, partition)
        except InvalidInputError:
            raise
        except Exception as error:
            raise StageError(self.stage.name, partition, error) from error

    def _commit(self, done: dict[int, tuple[Json, list[str]]]) -> None:
        if done:
            self.lease.ensure_held()
            self.ledger.commit(done)


Execute = Callable[[Work, Sequence[int], Callable[[int], None]], None]


def serially(work: Work, partitions: Sequence[int], computed: Callable[[int], None]) -> None:
    """One partition after the other, on one thread: the reference that any other way of running must equal."""
    try:
        with threadpool_limits(1):
            for partition in partitions:
                work.run([partition])
                computed(partition)
    finally:
        work.stage.release()


def ledger_of(lease: Lease, stage: Stage) -> StageLedger:
    """Where a stage's results are or will be."""
    return StageLedger(
        lease.store, stage.name, stage_digest(stage.name, stage.version, stage.settings(), stage.inputs())
    )


def run_stage(lease: Lease, stage: Stage, execute: Execute = serially, watch: Watch | None = None) -> Outcome:
    """The stage's outcome, computing only what is not complete under its digest, or was freed."""
    watch = watch or Watch()
    ledger = ledger_of(lease, stage)
    done = None if ledger.reopen() else ledger.finished()
    outcome = Outcome(ledger, done, 0) if done is not None else _completed(lease, stage, ledger, execute, watch)
    watch.finished(outcome)
    return outcome


def _completed(lease: Lease, stage: Stage, ledger: StageLedger, execute: Execute, watch: Watch) -> Outcome:
    n_partitions, complete = stage.n_partitions(), set(ledger.complete())
    missing = [partition for partition in range(n_partitions) if partition not in complete]
    watch.started(ledger, n_partitions, len(missing))
    stage.prepare(ledger)
    ledger.flush()
    execute(Work(lease, stage, ledger), missing, lambda partition: watch.computed(ledger, partition))
    figures, arrays = stage.finish(ledger, ledger.committed())
    lease.ensure_held()
    ledger.finish(n_partitions, figures, arrays)
    release_free_memory()
    return Outcome(ledger, figures, len(missing))


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
