"""The flow `invert`: data at coordinates in the space of a fitted run, or how well its own data comes back."""

import base64
from typing import Any

from prefect import flow
from prefect.artifacts import create_image_artifact, create_table_artifact

from flows.events import store_slug
from flows.fit import LogWatch, as_task, chosen_settings
from flows.inversion import asked_for, inversion_report, inversion_table, shown_steps, strip_picture
from flows.progress import Display, Several, current_display
from pipeline.fanout import executor
from pipeline.jobs.invert import memory_of_inversion, prepare_invert
from pipeline.settings import InvertSettings
from pipeline.types import Json


@flow(name="invert", persist_result=False, validate_parameters=True)
def invert(settings: InvertSettings | None = None, take_over: bool = False, **keywords: Any) -> Json:
    """Go back to the data of a run: `invert(settings)`, or the settings as keywords.

    Run again, it goes on where it stopped. Returns the figures; the results are in the store of the output.
    """
    chosen = chosen_settings(InvertSettings, settings, keywords)
    display: Display = Several([LogWatch(), current_display()])
    job = prepare_invert(chosen)
    with executor(chosen.cluster, memory_of_inversion(job), display.noticed) as execute:
        display.ready()
        inverted = job.run(display, take_over, execute, as_task)
    report = inversion_report(chosen, inverted)
    _tell(chosen, report)
    return report


def _tell(settings: InvertSettings, report: Json) -> None:
    """The record, for the pages of the server."""
    slug, words = store_slug(settings.store), f"{asked_for(settings)} in the space of {settings.store}"
    create_table_artifact(inversion_table(report), key=f"inversion-{slug}", description=words)
    if settings.image is not None:
        picture = base64.b64encode(strip_picture(settings)).decode()
        shown = f"{words}: {len(shown_steps(settings.steps))} steps shown"
        create_image_artifact(f"data:image/png;base64,{picture}", key=f"strip-{slug}", description=shown)
