"""The command `extend`: in this process, or as a flow with workers."""

import json
import os

from flows.commands import PREFECT_ENVIRONMENT, Say
from flows.extension_reports import batch_report, drifted_words, extension_summary
from flows.progress import Display, shown_on, terminal_display
from pipeline.errors import DriftError
from pipeline.jobs.extend import extend_batches, opened_space
from pipeline.jobs.new_rows import checked_batch
from pipeline.settings import ExtendSettings
from pipeline.types import Json


def run_extend(settings: ExtendSettings, take_over: bool, fail_on_drift: bool, as_json: bool, say: Say) -> None:
    """Extend as the settings say, and tell what came of it; an error if it drifts and that is to be one."""
    tell: Say = (lambda _: None) if as_json else say
    space = opened_space(settings)
    if not settings.incoming:
        checked_batch(settings, space)
    tell(f"{settings.source} in the space of {settings.store} -> {settings.output}")
    report = _extended_report(settings, take_over, Display() if as_json else terminal_display(say), tell)
    if as_json:
        say(json.dumps(report, indent=2))
    for line in extension_summary(report):
        tell(line)
    if fail_on_drift and (words := drifted_words(report)):
        raise DriftError(words)


def _extended_report(settings: ExtendSettings, take_over: bool, display: Display, say: Say) -> Json:
    if settings.cluster.kind == "serial":
        with shown_on(display):
            done = extend_batches(settings, display, take_over)
            reports = [batch_report(settings.store, output, extended) for output, extended in done]
        return {"store": settings.store, "batches": reports}
    for name, value in PREFECT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    say("Starting a Prefect flow and its Dask workers; some ten seconds, the first time more.")
    from flows.server import prefect_server

    with prefect_server(say), shown_on(display):
        from flows import extend

        return extend(settings, take_over)
