"""What the commands do that compute something."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from flows.progress import Display, shown_on, terminal_display
from flows.refit_reports import refit_report, refit_summary
from flows.reports import fit_report, fit_summary, model_lines
from pipeline.jobs import fit as fitting
from pipeline.jobs import refit as refitting
from pipeline.jobs.plan import Plan, plan_fit
from pipeline.results.run import in_words, open_run
from pipeline.settings import ClusterSettings, FitSettings, RefitSettings
from pipeline.stages.costs import MIB
from pipeline.types import Json

Say = Callable[[str], None]
# What Prefect would log to the terminal is in its record of the run, and ours is shown instead. A server that is lost
# is given up after seconds, not minutes: no result depends on it.
PREFECT_ENVIRONMENT = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
    "PREFECT_CLIENT_MAX_RETRIES": "2",
}


def run_fit(
    settings: FitSettings, take_over: bool, anyway: bool, as_json: bool, picture: Path | None, say: Say
) -> Json:
    """Fit as the settings say, and tell what came of it."""
    plan = _heeded(plan_fit(settings, fitting.checked_source(settings)), anyway)
    tell = _aside(as_json, say)
    tell(f"{settings.source} -> {settings.store}, about {in_words(sum(plan.seconds.values()))}")
    report = fitted_report(settings, plan, take_over, _display(as_json, plan, say), tell)
    _tell_report(report, fit_summary(report), as_json, say)
    _draw(settings.store, picture, tell)
    return report


def run_refit(
    settings: RefitSettings, take_over: bool, anyway: bool, as_json: bool, picture: Path | None, say: Say
) -> Json:
    """Fit again as the settings say, and tell what came of it."""
    job = refitting.prepare_refit(settings)
    plan = _heeded(job.plan, anyway)
    tell = _aside(as_json, say)
    tell(f"{job.source.name} -> {settings.store}, version {job.version}, about {in_words(sum(plan.seconds.values()))}")
    display = _display(as_json, plan, say)

    def here() -> Json:
        return refit_report(settings.store, job.run(display, take_over))

    def as_flow() -> Json:
        from flows import refit

        return refit(settings, take_over, anyway=True)

    report = _run_where_told(settings.cluster, plan, display, tell, here, as_flow)
    _tell_report(report, refit_summary(report), as_json, say)
    _draw(settings.store, picture, tell)
    return report


def fitted_report(settings: FitSettings, plan: Plan, take_over: bool, display: Display, say: Say) -> Json:
    """Fit in this process, or as a flow with workers; the figures."""

    def here() -> Json:
        fitted = fitting.fit(settings, display, take_over)
        return fit_report(open_run(settings.store), fitted)

    def as_flow() -> Json:
        from flows import fit

        # What the plan says was heeded already, or is not to be.
        return fit(settings, take_over, anyway=True)

    return _run_where_told(settings.cluster, plan, display, say, here, as_flow)


def _run_where_told(
    cluster: ClusterSettings,
    plan: Plan,
    display: Display,
    say: Say,
    here: Callable[[], Json],
    as_flow: Callable[[], Json],
) -> Json:
    """Run in this process if that is wanted, else as a flow on a server."""
    if cluster.kind == "serial":
        with shown_on(display):
            return here()
    for name, value in PREFECT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    say(f"Starting {_described(plan, cluster)}.")
    from flows.server import prefect_server

    with prefect_server(say), shown_on(display):
        return as_flow()


def _heeded(plan: Plan, anyway: bool) -> Plan:
    if not anyway:
        plan.require_feasible()
    return plan


def _aside(as_json: bool, say: Say) -> Say:
    """For words that do not belong into JSON."""
    return (lambda _: None) if as_json else say


def _display(as_json: bool, plan: Plan, say: Say) -> Display:
    return Display() if as_json else terminal_display(say, plan.seconds)


def _tell_report(report: Json, lines: list[str], as_json: bool, say: Say) -> None:
    for line in [json.dumps(report, indent=2)] if as_json else lines:
        say(line)


def _draw(store: str, picture: Path | None, tell: Say) -> None:
    if picture is not None:
        from flows.picture import embedding_picture

        picture.write_bytes(embedding_picture(open_run(store)))
        tell(f"The picture is in {picture}.")


def _described(plan: Plan, cluster: ClusterSettings) -> str:
    if cluster.kind == "address":
        return f"a Prefect flow on the Dask workers at {cluster.address}"
    workers = f"{plan.n_workers} Dask worker{'s' * (plan.n_workers > 1)}"
    return f"a Prefect server and {workers}; some ten seconds, the first time more"


def plan_report(settings: FitSettings) -> tuple[Json, list[str], list[str]]:
    """What a fit will take, for programs and in lines; and what does not fit."""
    plan = plan_fit(settings, fitting.checked_source(settings))
    total = sum(plan.seconds.values())
    lines = [f"  {'stage':<11} {'tasks':>7} {'MiB a worker':>13} {'MiB on disk':>12} {'time':>8}"]
    lines += [
        f"  {stage.stage:<11} {stage.n_tasks:>7,} {stage.memory / MIB:>13,.0f} {stage.disk / MIB:>12,.1f} "
        f"{in_words(stage.seconds):>8}"
        for stage in plan.stages
    ]
    peak = max(plan.memory.values())
    has = "" if plan.worker_memory is None else f" of {plan.worker_memory / MIB:,.0f}"
    workers = f"{plan.n_workers} worker{'s' * (plan.n_workers > 1)}"
    lines += [
        f"{workers} of {plan.n_threads} thread{'s' * (plan.n_threads > 1)}: at most {peak / MIB:,.0f}{has} MiB each, "
        f"{plan.disk / MIB:,.0f} of {plan.free_disk / MIB:,.0f} MiB on disk, about {in_words(total)}."
    ]
    problems = plan.problems()
    value = {
        "stages": [asdict(stage) for stage in plan.stages],
        "n_workers": plan.n_workers,
        "threads_per_worker": plan.n_threads,
        "worker_memory": plan.worker_memory,
        "free_disk": plan.free_disk,
        "disk": plan.disk,
        "seconds": total,
        "problems": problems,
    }
    return value, lines, problems


def export_report(store: str, arrays: list[str], output: Path, version: str | None = None) -> tuple[Json, list[str]]:
    """Write published arrays to a file; what was written, for programs and in lines."""
    from pipeline.results.export import export

    n_rows = export(open_run(store, version), arrays, output)
    value = {"output": str(output), "arrays": arrays, "n_rows": n_rows}
    return value, [f"{n_rows:,} rows of {', '.join(arrays)} are in {output}."]


def export_model_report(store: str, model: str, anchors: int | None) -> tuple[Json, list[str]]:
    """Write a model of a run; its size and accuracy, for programs and in lines."""
    from pipeline.jobs.portable import export_model

    exported = export_model(store, model, anchors)
    value = {"model": model, "n_computed": exported.n_computed, **exported.stated}
    return value, [f"A model of {store} is in {model}.", *model_lines(exported.stated)]
