"""The flow `invert`: data at coordinates in the space of a fitted run, or how well its own data is reconstructed."""

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact

from flows.events import store_slug
from pipeline.settings import InvertSettings
from pipeline.types import Json


@flow(name="invert", persist_result=False, validate_parameters=True)
def invert(settings: InvertSettings | None = None, take_over: bool = False, **keywords: Any) -> Json:
    """Map coordinates back to data: `invert(settings)`, or the settings as keywords.

    Run again, it resumes where it stopped. Returns the figures; the results are in the store of the output.
    """
    from flows import batch_reports, pictures, runner, tasks

    job = runner.job_of(runner.InvertJob, InvertSettings, settings, keywords)
    with tasks.workers(take_over, job) as (display, way):
        report = job.run(display, **way)
    slug = store_slug(job.settings.store)
    title = f"{batch_reports.asked_for(job.settings)} in the space of {job.settings.store}"
    create_table_artifact(batch_reports.inversion_table(report), key=f"inversion-{slug}", description=title)
    if job.settings.image is not None:
        n_shown = len(pictures.shown_steps(job.settings.steps))
        tasks.publish_picture(
            pictures.strip_picture(job.settings, job.data), f"strip-{slug}", f"{title}: {n_shown} steps shown"
        )
    return report
