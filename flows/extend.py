"""The flow `extend`: new rows in the space of a fitted run, one batch or all that came into a folder.

A batch that is not like the fitted rows is told of by an event, for an automation to start a refit with.
"""

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.logging import get_run_logger

from flows.events import emit_drift, store_slug
from flows.extension_reports import batch_report, drift_table, drifted_words
from flows.fit import LogWatch, as_task, chosen_settings
from flows.progress import Display, Several, current_display
from pipeline.errors import DriftError
from pipeline.fanout import executor
from pipeline.jobs.extend import extend_batches, memory_of_extension
from pipeline.settings import ExtendSettings
from pipeline.types import Json


@flow(name="extend", persist_result=False, validate_parameters=True)
def extend(
    settings: ExtendSettings | None = None, take_over: bool = False, fail_on_drift: bool = False, **keywords: Any
) -> Json:
    """Place new rows in the space of a run: `extend(settings)`, or the settings as keywords.

    Run again, it goes on where it stopped. With `fail_on_drift` the flow fails, results published, if the rows of a
    batch are not like the fitted ones. Returns the figures of each batch that it extended to.
    """
    chosen = chosen_settings(ExtendSettings, settings, keywords)
    display: Display = Several([LogWatch(), current_display()])
    reports: list[Json] = []
    with executor(chosen.cluster, memory_of_extension(chosen), display.noticed) as execute:
        display.ready()
        for output, extended in extend_batches(chosen, display, take_over, execute, as_task):
            reports.append(batch_report(chosen.store, output, extended))
            _tell(chosen.store, reports[-1])
    report = {"store": chosen.store, "batches": reports}
    if fail_on_drift and (words := drifted_words(report)):
        raise DriftError(words)
    return report


def _tell(store: str, report: Json) -> None:
    """The record of a batch, for the pages of the server; artifacts of one key are a history there."""
    create_table_artifact(
        drift_table(report), key=f"drift-{store_slug(store)}", description=f"{report['output']} against {store}"
    )
    if report["drift"] is not None and report["drift"]["drifts"]:
        get_run_logger().warning("%s is not like the rows that were fitted", report["output"])
        emit_drift(store, {"output": report["output"], "n_rows": report["n_rows"], "drift": report["drift"]})
