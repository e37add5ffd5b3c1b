"""The flow `refit`: a run fitted again with new data, turned onto its coordinates, published as its next version."""

from typing import Any

from prefect import flow

from flows.fit import as_task, chosen_settings, planned_workers, publish_artifacts
from flows.refit_reports import refit_report
from pipeline.jobs import refit as refitting
from pipeline.settings import RefitSettings
from pipeline.types import Json


@flow(name="refit", persist_result=False, validate_parameters=True)
def refit(
    settings: RefitSettings | None = None, take_over: bool = False, anyway: bool = False, **keywords: Any
) -> Json:
    """Fit a run again with new data: `refit(settings)`, or the settings as keywords. Its arguments are those of `fit`.

    Run again, it goes on where it stopped; what is in the published version already is not taken for new. Returns the
    figures of the version.
    """
    chosen = chosen_settings(RefitSettings, settings, keywords)
    job = refitting.prepare_refit(chosen)
    with planned_workers(chosen.cluster, job.plan, anyway) as (display, execute):
        refitted = job.run(display, take_over, execute, as_task)
    report = refit_report(chosen.store, refitted)
    publish_artifacts(report, "refit")
    return report
