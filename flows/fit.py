"""The flow `fit`. The pipeline's libraries are loaded when it runs, not when it is imported."""

from typing import Any

from prefect import flow

from pipeline.settings import FitSettings
from pipeline.types import Json


@flow(name="fit", persist_result=False, validate_parameters=True)
def fit(settings: FitSettings | None = None, take_over: bool = False, anyway: bool = False, **keywords: Any) -> Json:
    """Embed a dataset: `fit(settings)`, or the settings as keywords. Run again, it resumes where it stopped.

    `take_over` takes the store from a run elsewhere that is known to be gone; `anyway` runs even if the plan says the
    job will not fit. Returns the figures of the run; the results are in its store.
    """
    from flows import runner, tasks

    job = runner.job_of(runner.FitJob, FitSettings, settings, keywords)
    job.require_feasible(anyway)
    with tasks.workers(take_over, job) as (display, way):
        report = job.run(display, **way)
    tasks.publish_figures(report, "fit")
    return report
