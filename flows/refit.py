"""The flow `refit`: a run fitted again with new data, aligned with its coordinates, published as its next version."""

from typing import Any

from prefect import flow

from flows.events import BRIDGES, emit
from pipeline.settings import RefitSettings
from pipeline.types import Json


@flow(name="refit", persist_result=False, validate_parameters=True)
def refit(
    settings: RefitSettings | None = None, take_over: bool = False, anyway: bool = False, **keywords: Any
) -> Json:
    """Fit a run again with new data: `refit(settings)`, or the settings as keywords. Its arguments are those of `fit`.

    Run again, it resumes where it stopped; data that the published version already has does not count as new. Returns
    the figures of the new version.
    """
    from flows import reports, runner, tasks

    job = runner.job_of(runner.RefitJob, RefitSettings, settings, keywords)
    job.require_feasible(anyway)
    with tasks.workers(take_over, job) as (display, way):
        report = job.run(display, **way)
    tasks.publish_figures(report, "refit")
    if reports.more_bridges(report):
        emit(BRIDGES, report["store"], {"version": report["version"], "n_bridges": report["n_bridges"]})
    return report
