"""What a stage is, and how one is run: only what the ledger does not hold yet, each partition once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError, StageError
from pipeline.stages.cost import Cost, Shape, release_free_memory
from pipeline.store.lease import Lease
from pipeline.store.ledger import StageLedger, stage_digest
from pipeline.types import Json

# What committing a piece of work takes.
SECONDS_PER_TASK = 0.008


class Stage(ABC):
    """One step of a run. A partition may be computed twice, and must then write the same bytes."""

    name: str
    # To be raised when the stage writes something else than before for the same settings and inputs.
    version = 1

    def settings(self) -> Json:
        """Everything but the inputs that the results depend on."""
        return {}

    @abstractmethod
    def inputs(self) -> list[str]:
        """The digests of what the stage reads."""

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


def costs_of(stages: Iterable[type[Stage]], shape: Shape) -> dict[str, Cost]:
    """What each stage takes on one core, by name."""
    stated = {stage.name: stage.cost(shape) for stage in stages}
    return {name: cost._replace(seconds=cost.seconds + SECONDS_PER_TASK * cost.tasks) for name, cost in stated.items()}


class SingleStage(Stage):
    """A stage that is one piece of work."""

    def n_partitions(self) -> int:
        return 1

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return figures[0], ledger.vouched_for(0)


@dataclass(frozen=True)
class Outcome:
    """A finished stage: where its results are, what they say, and how many partitions had to be computed for it."""

    ledger: StageLedger
    figures: Json
    n_computed: int


class Watch:
    """Told what happens as a stage runs; this one keeps it to itself."""

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
    """The stage's outcome, computing only what is not complete under its digest."""
    watch = watch or Watch()
    ledger = ledger_of(lease, stage)
    done = ledger.finished()
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
