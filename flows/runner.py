"""Runs a job of the pipeline for a command: shows its plan and progress, runs it here or as a flow, prints its report.

All that commands and flows ask of `pipeline.jobs` to run one stands in the classes of this module.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, Unpack

from flows import batch_reports, reports
from flows.beside import ServerBeside, ServerReady, may_have_server
from flows.progress import Display, shown_on, terminal_display
from flows.terminal import Say, aside
from pipeline.errors import DriftError, InvalidInputError
from pipeline.fanout.execution import executor
from pipeline.jobs.extend import extend_batches, memory_of_extension, opened_space, prepare_extend
from pipeline.jobs.fit import prepare_fit
from pipeline.jobs.invert import memory_of_inversion, prepare_invert
from pipeline.jobs.job import Way
from pipeline.jobs.plan import Plan
from pipeline.jobs.refit import prepare_refit
from pipeline.numerics.compiled import is_first_time
from pipeline.results.run import in_words, open_run
from pipeline.settings import (
    ClusterSettings,
    ExtendSettings,
    FitSettings,
    InvertSettings,
    JobSettings,
    RefitSettings,
    job_settings,
)
from pipeline.sources.inputs import size_in_words
from pipeline.stages.stage import Execute, Watch
from pipeline.types import Json

Settings = TypeVar("Settings", bound=JobSettings)
# The terminal shows our progress instead of Prefect's log, which is in its record of the run. A lost server is given
# up after seconds, not minutes: no result depends on it.
PREFECT_ENVIRONMENT = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
    "PREFECT_CLIENT_MAX_RETRIES": "2",
}


class Job(ABC, Generic[Settings]):
    """A job whose input is opened and checked, ready to run; those that are planned are known to fit, or not."""

    flow: ClassVar[str]
    plan: Plan | None = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Partitions that were computed before the job went on as a flow, by stage.
        self.computed: dict[str, int] = {}

    @property
    @abstractmethod
    def title(self) -> str:
        """What is done, in a line."""

    @abstractmethod
    def run(self, watch: Watch, **way: Unpack[Way]) -> Json:
        """Compute what is missing, publish it and return the figures."""

    @abstractmethod
    def summary(self, report: Json) -> list[str]:
        """The figures, in lines for people."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of memory that each stage takes in a worker."""
        return {} if self.plan is None else self.plan.memory

    def executor(self, notice: Say, when_long: Callable[[], None] = lambda: None) -> AbstractContextManager[Execute]:
        """What computes the partitions of its stages: what a command has handed over, or anew by the settings."""
        handed = _EXECUTE.get()
        if handed is not None:
            return nullcontext(handed)
        longest, planned = (0.0, {}) if self.plan is None else (self.plan.longest_task, self.plan.seconds)
        return executor(self.settings.cluster, self.memory, notice, longest, planned, when_long)

    def require_feasible(self, anyway: bool) -> None:
        """Refuse what does not fit, unless it is to run anyway."""
        if self.plan is not None and not anyway:
            self.plan.require_feasible()


class FitJob(Job[FitSettings]):
    flow = "fit"
    plan: Plan

    def __init__(self, settings: FitSettings) -> None:
        super().__init__(settings)
        self._prepared = prepare_fit(settings)
        self.plan = self._prepared.plan

    @property
    def title(self) -> str:
        return f"{self.data} -> {self.settings.store}"

    @property
    def data(self) -> str:
        """The source and its size."""
        return f"{self.settings.source} ({size_in_words(self._prepared.source)})"

    def run(self, watch: Watch, **way: Unpack[Way]) -> Json:
        fitted = self._prepared.run(watch, **way)
        return reports.fit_report(open_run(self.settings.store), fitted, self.computed)

    def summary(self, report: Json) -> list[str]:
        return reports.fit_summary(report)


class RefitJob(Job[RefitSettings]):
    flow = "refit"
    plan: Plan

    def __init__(self, settings: RefitSettings) -> None:
        super().__init__(settings)
        self._prepared = prepare_refit(settings)
        self.plan = self._prepared.plan

    @property
    def title(self) -> str:
        data = f"{self._prepared.source.name} ({size_in_words(self._prepared.source)})"
        return f"{data} -> {self.settings.store}, version {self._prepared.version}"

    def run(self, watch: Watch, **way: Unpack[Way]) -> Json:
        return reports.refit_report(self.settings.store, self._prepared.run(watch, **way), self.computed)

    def summary(self, report: Json) -> list[str]:
        return reports.refit_summary(report)


class ExtendJob(Job[ExtendSettings]):
    flow = "extend"

    def __init__(self, settings: ExtendSettings) -> None:
        super().__init__(settings)
        # A folder may have no new batch yet; only the space can be checked beforehand.
        self._space = opened_space(settings)
        self._prepared = None if settings.incoming else prepare_extend(settings, space=self._space)

    @property
    def title(self) -> str:
        return f"{self.settings.source} in the space of {self.settings.store} -> {self.settings.output}"

    @property
    def memory(self) -> dict[str, int]:
        return memory_of_extension(self.settings, self._space)

    def batches(self, watch: Watch, **way: Unpack[Way]) -> Iterator[Json]:
        """The figures of each batch as soon as it is published."""
        if self._prepared is not None:
            done = self._prepared.run(watch, **way)
            yield batch_reports.batch_report(self.settings.store, self.settings.output, done)
            return
        for output, done in extend_batches(self.settings, watch, **way):
            yield batch_reports.batch_report(self.settings.store, output, done)

    def run(self, watch: Watch, **way: Unpack[Way]) -> Json:
        return {"store": self.settings.store, "batches": list(self.batches(watch, **way))}

    def summary(self, report: Json) -> list[str]:
        return batch_reports.extension_summary(report)


class InvertJob(Job[InvertSettings]):
    flow = "invert"

    def __init__(self, settings: InvertSettings) -> None:
        super().__init__(settings)
        self._prepared = prepare_invert(settings)
        self.data = self._prepared.data

    @property
    def title(self) -> str:
        return (
            f"{batch_reports.asked_for(self.settings)} in the space of {self.settings.store} -> {self.settings.output}"
        )

    @property
    def memory(self) -> dict[str, int]:
        return memory_of_inversion(self._prepared)

    def run(self, watch: Watch, **way: Unpack[Way]) -> Json:
        return batch_reports.inversion_report(self.settings, self._prepared.run(watch, **way))

    def summary(self, report: Json) -> list[str]:
        return batch_reports.inversion_summary(report)


AnyJob = TypeVar("AnyJob", bound=Job[Any])
# The job that a command has prepared for the flow it is calling, and what computes its partitions: a flow's parameters
# must be plain values.
_PREPARED: ContextVar[Job[Any] | None] = ContextVar("prepared", default=None)
_EXECUTE: ContextVar[Execute | None] = ContextVar("execute", default=None)


def job_of(kind: type[AnyJob], model: type[JobSettings], settings: Any, keywords: dict[str, Any]) -> AnyJob:
    """The job of a flow: the one that the calling command prepared, or one from settings or keywords."""
    if settings is not None and keywords:
        raise InvalidInputError(f"settings are given, and {', '.join(keywords)} besides; put those into the settings.")
    prepared = _PREPARED.get()
    return prepared if isinstance(prepared, kind) else kind(settings or job_settings(model, keywords))


@contextmanager
def _handed_over(job: Job[Any], execute: Execute | None = None) -> Iterator[None]:
    tokens = _PREPARED.set(job), _EXECUTE.set(execute)
    try:
        yield
    finally:
        _PREPARED.reset(tokens[0])
        _EXECUTE.reset(tokens[1])


def run_job(job: Job[Any], take_over: bool, as_json: bool, say: Say, anyway: bool = False) -> Json:
    """Run a job and print its report, as JSON or in lines; return the figures."""
    job.require_feasible(anyway)
    tell = aside(as_json, say)
    seconds = {} if job.plan is None else job.plan.seconds
    tell(f"{job.title}, about {in_words(sum(seconds.values()))}" if seconds else job.title)
    if is_first_time():
        tell("The first run compiles its loops, which are kept then: half a minute or so within its stages.")
    report = run_shown(job, take_over, Display() if as_json else terminal_display(say, seconds), tell)
    for line in [json.dumps(report, indent=2)] if as_json else job.summary(report):
        say(line)
    return report


def run_shown(job: Job[Any], take_over: bool, display: Display, say: Say) -> Json:
    """Run a job, in this process alone or as a Prefect flow; the figures.

    What is short or complete needs no server. One that is configured is told of everything.
    """
    kind = job.settings.cluster.kind
    if kind == "serial":
        with shown_on(display):
            return job.run(display, take_over=take_over)
    for name, value in PREFECT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if kind == "auto" and not may_have_server():
        return _run_here(job, take_over, display, say)
    say(f"Starting {_described(job.plan, job.settings.cluster)}.")
    from flows.server import prefect_server

    with prefect_server(say), shown_on(display), _handed_over(job):
        return _flow_of(job, take_over)


def _flow_of(job: Job[Any], take_over: bool) -> Json:
    flow = getattr(import_module("flows"), job.flow)
    # The plan was checked by the command, or is to be ignored.
    report: Json = flow(job.settings, take_over, **({} if job.plan is None else {"anyway": True}))
    return report


def _run_here(job: Job[Any], take_over: bool, display: Display, say: Say) -> Json:
    """Run a job at once in this process. If it proves long, workers and a server are started beside its first stages,
    and the rest is a Prefect flow."""
    server = ServerBeside(say)
    # What has no plan comes batch by batch, and cannot be taken up again in a flow.
    when_long = (lambda: None) if job.plan is None else server.start
    with job.executor(display.noticed, when_long) as execute, server, shown_on(display):
        try:
            return job.run(display, take_over=take_over, execute=execute, around=server.around)
        except ServerReady:
            job.computed = server.computed
        with server.told(), _handed_over(job, execute):
            return _flow_of(job, take_over)


def _described(plan: Plan | None, cluster: ClusterSettings) -> str:
    if cluster.kind == "auto":
        return "a Prefect flow"
    if cluster.kind == "address":
        return f"a Prefect flow on the Dask workers at {cluster.address}"
    workers = "its Dask workers" if plan is None else reports.counted(plan.n_workers, "Dask worker")
    return f"a Prefect server and {workers}; this takes about ten seconds, longer the first time"


def run_drawn(
    job: FitJob | RefitJob, picture: Path | None, take_over: bool, as_json: bool, say: Say, anyway: bool
) -> None:
    """Run a job, print its report, and draw the published embedding if a picture is asked for."""
    run_job(job, take_over, as_json, say, anyway)
    if picture is not None:
        from flows.pictures import embedding_picture

        picture.write_bytes(embedding_picture(open_run(job.settings.store)))
        aside(as_json, say)(f"The picture is in {picture}.")


def run_invert(settings: InvertSettings, take_over: bool, picture: Path | None, as_json: bool, say: Say) -> None:
    """Invert, print the report and draw the images along the path if asked to."""
    if picture is not None and (settings.path is None or settings.image is None):
        raise InvalidInputError(f"picture={str(picture)!r} needs a path and the size of an image; give both.")
    job = InvertJob(settings)
    run_job(job, take_over, as_json, say)
    if picture is not None:
        from flows.pictures import shown_steps, strip_picture

        picture.write_bytes(strip_picture(settings, job.data))
        n_shown = len(shown_steps(settings.steps))
        some = "" if n_shown == settings.steps else f", with {n_shown} of the {settings.steps:,} steps, evenly spaced"
        aside(as_json, say)(f"The strip is in {picture}{some}.")


def run_extend(settings: ExtendSettings, take_over: bool, fail_on_drift: bool, as_json: bool, say: Say) -> None:
    """Extend and print the report; raise DriftError if the new rows drift and that is to fail."""
    report = run_job(ExtendJob(settings), take_over, as_json, say)
    if fail_on_drift and (words := batch_reports.drifted_words(report)):
        raise DriftError(words)
