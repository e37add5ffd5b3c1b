"""Commands on a run in a local folder: what they do and what they say."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict

from pipeline.config import FitSettings
from pipeline.fitting import STAGES, Fitted, fit
from pipeline.runs import Run, StageStatus, open_run
from pipeline.stages.stage import Outcome, Watch
from pipeline.store import lease, run
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

Say = Callable[[str], None]


class Lines(Watch):
    """One line for each stage that had something to compute."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._start = time.perf_counter()

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        self._start = time.perf_counter()

    def finished(self, outcome: Outcome) -> None:
        if outcome.n_computed:
            took = time.perf_counter() - self._start
            plural = "s" * (outcome.n_computed != 1)
            self._say(f"  {outcome.ledger.stage:<11} {outcome.n_computed:>5} partition{plural:<1} {took:8.1f} s")


def fit_locally(settings: FitSettings, take_over: bool, as_json: bool, say: Say) -> None:
    """Fit in this process, then report."""
    if not as_json:
        say(f"{settings.source} -> {settings.store}")
    fitted = fit(settings, Watch() if as_json else Lines(say), take_over)
    if as_json:
        say(json.dumps(_report(settings, fitted), indent=2))
        return
    if not fitted.n_computed:
        say("Every stage was complete already: nothing was computed.")
    for line in _summary(open_run(settings.store), fitted):
        say(line)
    say(f"Next: trigpoint export {settings.store} --array projection --output projection.npy")


def _report(settings: FitSettings, fitted: Fitted) -> Json:
    opened = open_run(settings.store)
    return {
        "store": settings.store,
        "computed": {name: outcome.n_computed for name, outcome in fitted.outcomes.items()},
        "n_computed": fitted.n_computed,
        "quality": opened.quality,
        "trust": opened.trust,
    }


def _summary(opened: Run, fitted: Fitted) -> list[str]:
    """What was embedded and how well."""
    figures = {name: outcome.figures for name, outcome in fitted.outcomes.items()}
    n_rows, n_embedded = figures["publish"]["n_rows"], figures["publish"]["n_embedded"]
    n_nodes, quality = figures["order"]["n_nodes"], opened.quality
    lines = [f"{n_embedded:,} of {n_rows:,} rows embedded; {n_nodes:,} distinct."]
    if figures["components"]["n_components"] > 1:
        lines.append(_component_line(figures["components"]))
    variances = ", ".join(f"{value:.2g}" for value in quality["residual_variance"])
    trust = quality["trustworthiness"]
    lines += [
        f"Neighbor recall {quality['recall']:.4f}, audited on {figures['probes']['audited']:,} points.",
        f"Residual variance with 1, 2, ... components: {variances}.",
        f"Negative mass of the spectrum {quality['negative_mass']:.2%}.",
    ]
    if trust:
        lines.append(f"Trustworthiness {trust['value']:.4f} (95%: {trust['low']:.4f} to {trust['high']:.4f}).")
    return lines


def _component_line(figures: Json) -> str:
    found = f"The neighbor graph has {figures['n_components']:,} components"
    if figures["n_bridges"]:
        kind = "their" if figures["exact"] else "nearly the"
        return f"{found}, joined by {kind} {figures['n_bridges']:,} shortest links."
    return f"{found}; only the largest is embedded, other rows are NaN."


def status_report(store: str) -> tuple[Json, list[str]]:
    """How far a run is, for programs and for people."""
    opened = open_run(store)
    stages = opened.status
    published = opened.published
    current = published and opened.is_current
    value = {"published": published, "stages": [asdict(stage) for stage in stages]}
    lines = [_stage_line(stage) for stage in stages]
    ended = "published" if current else "not complete"
    return value, [*lines, f"{store}: {ended}."]


def _stage_line(stage: StageStatus) -> str:
    state = "complete" if stage.complete else f"{stage.n_committed} of {stage.n_partitions} partitions"
    return f"  {stage.stage:<11} {state}"


def collected_garbage(store: str) -> tuple[Json, list[str]]:
    """Delete what neither the published state nor the latest command uses."""
    target = run.open_store(store, writable=True)
    with lease.acquire(target):
        target.sweep_partials()
        paths = run.superseded(target, STAGES)
        freed = sum(run.size(target, path) for path in paths)
        for path in paths:
            run.remove(target, path)
    lines = [f"  removed {path}" for path in paths]
    return {"removed": paths, "bytes": freed}, [*lines, f"{freed / 2**20:,.1f} MiB freed."]
