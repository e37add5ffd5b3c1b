"""Runs a job inside a Prefect flow: every stage a task, its partitions on the workers that the settings name.

Resuming goes through the run's ledger, not through Prefect: a flow that runs again computes what is missing.
"""

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prefect import task
from prefect.artifacts import create_image_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.logging import get_run_logger

from flows.pictures import embedding_picture
from flows.progress import Display, Several, current_display
from flows.reports import figures_table
from flows.runner import Job
from pipeline.errors import ClusterError
from pipeline.fanout.faults import is_passing
from pipeline.jobs.job import Way
from pipeline.results.run import open_run
from pipeline.stages.stage import Outcome
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

RETRIES, RETRY_SECONDS = 2, 5


@contextmanager
def workers(take_over: bool, job: Job[Any]) -> Iterator[tuple[Display, Way]]:
    """Workers for a job: where to show what they do, and how to run the job on them, each stage as a task."""
    display = Several([LogWatch(), current_display()])
    with job.executor(display.noticed) as execute:
        if not job.computed:  # else the command has begun with it already
            display.ready()
        yield display, {"take_over": take_over, "execute": execute, "around": as_task}


class LogWatch(Display):
    """Logs progress to the Prefect run."""

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        get_run_logger().info("%s: %d of %d partitions to compute", ledger.stage, n_missing, n_partitions)

    def finished(self, outcome: Outcome) -> None:
        get_run_logger().info("%s: complete, %d computed now", outcome.ledger.stage, outcome.n_computed)

    def noticed(self, message: str) -> None:
        get_run_logger().warning(message)


def as_task(stage: str, run_one: Callable[[], Outcome]) -> Outcome:
    """Run a stage as a Prefect task, retried after transient faults; only what is missing is computed."""
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
    """Whether a retry may help: a lost connection may come back, bad input stays bad."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, ClusterError) or (isinstance(error, Exception) and is_passing(error))


def publish_figures(report: Json, name: str) -> None:
    """Figures and picture of a run as artifacts of the Prefect server."""
    store = report["store"]
    create_table_artifact(figures_table(report), key=f"{name}-figures", description=f"Figures of {store}")
    publish_picture(embedding_picture(open_run(store)), f"{name}-picture", f"Embedding in {store}")


def publish_picture(png: bytes, key: str, description: str) -> None:
    """A PNG as an artifact of the Prefect server."""
    data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    create_image_artifact(data, key=key, description=description)
