"""What all jobs have in common: prepared once (opened, checked, planned), then run stage by stage under a lease.

How a stage is run (here, on a cluster, under an orchestrator) is the caller's choice: `execute` computes the partitions
of a stage, `around` wraps each stage in whatever an orchestrator wants to see and repeat.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypedDict

from pipeline.errors import InvalidInputError
from pipeline.stages.stage import Execute, Outcome, Stage, Watch, ledger_of, run_stage, serially
from pipeline.store import is_within, lease, run
from pipeline.store.backend import Backend
from pipeline.store.lease import Lease
from pipeline.types import Json

Runner = Callable[[Stage], Outcome]
Around = Callable[[str, Callable[[], Outcome]], Outcome]


def at_once(_name: str, run_one: Callable[[], Outcome]) -> Outcome:
    """Run a stage without an orchestrator."""
    return run_one()


class Way(TypedDict, total=False):
    """How a job is run."""

    take_over: bool
    execute: Execute
    around: Around


@dataclass(frozen=True)
class Done:
    """What a job came to: the outcomes of its stages by name, and the manifest that it published."""

    outcomes: dict[str, Outcome]
    manifest: Json

    @property
    def n_computed(self) -> int:
        """Partitions that this call had to compute."""
        return sum(outcome.n_computed for outcome in self.outcomes.values())

    @property
    def version(self) -> str:
        """The name of the version that was published."""
        return run.version_name(self.manifest)

    @property
    def drift(self) -> Json | None:
        """How new rows compare with the fitted ones; None if none were placed."""
        return dict(self.outcomes["place"].figures["drift"]) if "place" in self.outcomes else None

    @property
    def stated(self) -> Json:
        """What an exported model says of itself: its anchors or landmarks, its bytes, its accuracy."""
        return dict(self.manifest["portable"])


@dataclass(frozen=True)
class Job(ABC):
    """A command whose input is opened and checked, ready to run into the store at `output`."""

    # What the output holds.
    kind: ClassVar[str] = run.FIT
    output: str
    # The name to publish under; None for the next number.
    version: str | None = field(default=None, kw_only=True)

    def open_store(self) -> Backend:
        """The store that results go into, created if it is not there."""
        return run.create_run(self.output, self.kind)

    @abstractmethod
    def stages(self, done: Runner) -> None:
        """Run every stage after the other."""

    @abstractmethod
    def manifest(self, outcomes: dict[str, Outcome]) -> Json:
        """What is published of the job besides its stages."""

    def planned_seconds(self) -> Mapping[str, float] | None:
        """Seconds that each stage is expected to take, for others to tell how long the run will take still; None where
        no plan is made."""
        return None

    def version_of(self, store: Backend, outcomes: dict[str, Outcome]) -> str | None:
        """The name to publish under; None for the next number, if the store has versions."""
        return self.version

    def check_again(self, store: Backend) -> None:  # noqa: B027  most jobs need none
        """Refuse to go on if the store has changed since the job was prepared; called with the lease held."""

    def tidy(self, store: Backend) -> None:  # noqa: B027  most jobs need none
        """Clean up after publishing."""

    def run(
        self,
        watch: Watch | None = None,
        take_over: bool = False,
        execute: Execute = serially,
        around: Around = at_once,
    ) -> Done:
        """Run every stage that is not complete and publish the result."""
        store = self.open_store()
        with lease.acquire(store, take_over) as held:
            self.check_again(store)
            planned = self.planned_seconds()
            if planned is not None:
                run.write_plan(store, planned)
            outcomes = self._outcomes(held, watch, execute, around)
            ledgers = [outcome.ledger for outcome in outcomes.values()]
            published = run.publish(store, self.manifest(outcomes), ledgers, self.version_of(store, outcomes))
            self.tidy(store)
        return Done(outcomes, published)

    def _outcomes(self, held: Lease, watch: Watch | None, execute: Execute, around: Around) -> dict[str, Outcome]:
        """The outcomes of all stages in a store that is held; stages that are complete are taken as they are."""
        held.store.sweep_partials()
        journal, outcomes = Journal(held), dict[str, Outcome]()

        def run_one(stage: Stage) -> Outcome:
            held.ensure_held()
            journal.note(stage)
            return run_stage(held, stage, execute, watch)

        def done(stage: Stage) -> Outcome:
            outcomes[stage.name] = around(stage.name, lambda: run_one(stage))
            return outcomes[stage.name]

        self.stages(done)
        held.ensure_held()
        if execute is not serially:
            held.store.sweep_partials()  # of workers that died on the way
        return outcomes


class Journal:
    """Records each stage before it runs, so that its results are known even if the run never ends."""

    def __init__(self, held: Lease) -> None:
        self._held = held
        self._before = run.read_journal(held.store)
        self._entries: list[Json] = []

    def note(self, stage: Stage) -> None:
        digest = ledger_of(self._held, stage).digest
        entry = {"stage": stage.name, "digest": digest, "n_partitions": stage.n_partitions()}
        if self._entries[-1:] != [entry]:  # it is when the stage is tried again
            self._entries.append(entry)
        if self._before[: len(self._entries)] != self._entries:
            self._before = []
            run.write_journal(self._held.store, self._entries)


def opened_run(url: str, *kinds: str, version: str | None = None) -> tuple[Backend, Json]:
    """The store of a published run, or of whatever kinds are named, and its manifest."""
    store = run.open_store(url)
    kind = run.kind_of(store)
    if kind not in kinds:
        raise InvalidInputError(f"store={url!r} holds {run.KINDS[kind]}; name the run itself.")
    return store, run.published_manifest(store, version)


def require_apart(argument: str, folder: str, source: str) -> None:
    """Refuse a store inside its own source: writing it would change the source."""
    if is_within(folder, source):
        raise InvalidInputError(f"{argument}={folder!r} is inside the source {source!r}; choose another.")
