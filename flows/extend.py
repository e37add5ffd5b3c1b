"""The flow `extend`: new rows placed in the space of a fitted run, one batch or every new batch of a folder.

A batch that drifts is announced by an event, so that an automation can start a refit.
"""

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.logging import get_run_logger

from flows.events import emit_drift, store_slug
from pipeline.errors import DriftError
from pipeline.settings import ExtendSettings
from pipeline.types import Json


@flow(name="extend", persist_result=False, validate_parameters=True)
def extend(
    settings: ExtendSettings | None = None, take_over: bool = False, fail_on_drift: bool = False, **keywords: Any
) -> Json:
    """Place new rows in the space of a run: `extend(settings)`, or the settings as keywords.

    Run again, it resumes where it stopped. With `fail_on_drift` the flow fails, after publishing the results, if a
    batch drifts from the fitted rows. Returns the figures of each new batch.
    """
    from flows import batch_reports, runner, tasks

    job = runner.job_of(runner.ExtendJob, ExtendSettings, settings, keywords)
    report: Json = {"store": job.settings.store, "batches": []}
    with tasks.workers(take_over, job) as (display, way):
        for batch in job.batches(display, **way):
            report["batches"].append(batch)
            _record(job.settings.store, batch, batch_reports.drift_table(batch))
    if fail_on_drift and (words := batch_reports.drifted_words(report)):
        raise DriftError(words)
    return report


def _record(store: str, batch: Json, table: list[Json]) -> None:
    """Keep a batch on the server's pages, where artifacts of one key form a history; announce drift."""
    create_table_artifact(table, key=f"drift-{store_slug(store)}", description=f"{batch['output']} against {store}")
    if batch["drift"] is not None and batch["drift"]["drifts"]:
        get_run_logger().warning("%s drifts from the fitted rows", batch["output"])
        emit_drift(store, {"output": batch["output"], "n_rows": batch["n_rows"], "drift": batch["drift"]})
