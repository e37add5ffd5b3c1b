"""The flow `fit`: every stage a Prefect task, its partitions on the workers that the settings name.

Resuming goes through the run's ledger, not through Prefect: a flow that runs again computes what is missing.
"""

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_image_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.logging import get_run_logger

from flows.picture import embedding_picture
from flows.progress import Display, Several, current_display
from flows.reports import figures_table, fit_report
from pipeline.errors import ClusterError, InvalidInputError
from pipeline.fanout import executor
from pipeline.fanout.rounds import is_passing
from pipeline.jobs import fit as fitting
from pipeline.jobs.plan import Plan
from pipeline.results.run import open_run
from pipeline.settings import ClusterSettings, FitSettings, Settings, job_settings
from pipeline.stages.stage import Execute, Outcome
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

RETRIES, RETRY_SECONDS = 2, 5


@flow(name="fit", persist_result=False, validate_parameters=True)
def fit(settings: FitSettings | None = None, take_over: bool = False, anyway: bool = False, **keywords: Any) -> Json:
    """Embed a dataset: `fit(settings)`, or the settings as keywords. Run again, it goes on where it stopped.

    `take_over` takes the store from a run elsewhere that is known to be gone, `anyway` runs what the plan says does not
    fit. Returns the figures of the run; the results are in its store.
    """
    chosen = chosen_settings(FitSettings, settings, keywords)
    job = fitting.prepare_fit(chosen)
    with planned_workers(chosen.cluster, job.plan, anyway) as (display, execute):
        fitted = job.run(display, take_over, execute, as_task)
    report = fit_report(open_run(chosen.store), fitted)
    publish_artifacts(report)
    return report


def chosen_settings(model: type[Settings], settings: Settings | None, keywords: dict[str, Any]) -> Settings:
    """The settings of a flow, given as such or as keywords."""
    if settings is not None and keywords:
        raise InvalidInputError(
            f"settings are given, and {', '.join(keywords)} beside them; put those into the settings."
        )
    return settings or job_settings(model, keywords)


@contextmanager
def planned_workers(cluster: ClusterSettings, plan: Plan, anyway: bool) -> Iterator[tuple[Display, Execute]]:
    """The workers that a plan counts on, if it fits or is to be run anyway; and where to show what they do."""
    if not anyway:
        plan.require_feasible()
    display = Several([LogWatch(), current_display()])
    with executor(cluster, plan.memory, display.noticed, plan.longest_task) as execute:
        display.ready()
        yield display, execute


class LogWatch(Display):
    """Writes what happens to the log of the stage's task."""

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        get_run_logger().info("%s: %d of %d partitions to compute", ledger.stage, n_missing, n_partitions)

    def finished(self, outcome: Outcome) -> None:
        get_run_logger().info("%s: complete, %d computed now", outcome.ledger.stage, outcome.n_computed)

    def noticed(self, message: str) -> None:
        get_run_logger().warning(message)


def as_task(stage: str, run_one: Callable[[], Outcome]) -> Outcome:
    """Run a stage as a Prefect task, which tries it again where that may help; only what is missing is computed."""
    outcomes: list[Outcome] = []

    @task(
        name=stage,
        task_run_name=stage,
        retries=RETRIES,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=_may_pass,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def compute() -> Json:
        outcome = run_one()
        outcomes.append(outcome)
        return {"path": outcome.ledger.path, "n_computed": outcome.n_computed}

    compute()
    return outcomes[-1]


def _may_pass(_task: object, _task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed stage is worth another try: a lost connection may come back, bad input stays bad."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, ClusterError) or (isinstance(error, Exception) and is_passing(error))


def publish_artifacts(report: Json, name: str = "fit") -> None:
    """Figures and picture, for the pages of the Prefect server."""
    store = report["store"]
    create_table_artifact(figures_table(report), key=f"{name}-figures", description=f"Figures of {store}")
    picture = base64.b64encode(embedding_picture(open_run(store))).decode()
    create_image_artifact(
        f"data:image/png;base64,{picture}", key=f"{name}-picture", description=f"Embedding in {store}"
    )
