"""What commands and flows say of a run: for programs, and in lines for people."""

from dataclasses import asdict

from pipeline.jobs import extend as extending
from pipeline.jobs import invert as inverting
from pipeline.jobs import portable
from pipeline.jobs import refit as refitting
from pipeline.jobs.fit import Fitted
from pipeline.results.run import Run, StageStatus, in_words, open_run
from pipeline.stages.costs import MIB
from pipeline.store import lease, run
from pipeline.types import Json


def fit_report(opened: Run, fitted: Fitted) -> Json:
    """All figures of a fit, for programs."""
    found = {name: outcome.figures for name, outcome in fitted.outcomes.items()}
    return {
        "store": opened.url,
        "computed": {name: outcome.n_computed for name, outcome in fitted.outcomes.items()},
        "n_computed": fitted.n_computed,
        "figures": _counts(found),
        "quality": opened.quality,
        "trust": opened.trust,
    }


def _counts(found: Json) -> Json:
    """How many of everything; what only methods along a graph have is left out by others."""
    counts = {
        "n_rows": found["publish"]["n_rows"],
        "n_embedded": found["publish"]["n_embedded"],
        "n_landmarks": found["landmarks"]["n_landmarks"],
    }
    if "order" in found:
        counts["n_distinct"] = found["order"]["n_nodes"]
    if "probes" in found:
        counts["n_audited"] = found["probes"]["audited"]
    if "components" in found:
        counts["components"] = found["components"]
    evaluations = [found.get(stage, {}).get("n_evaluations", 0) for stage in ("subset", "rows")]
    if any(evaluations):
        counts["n_evaluations"] = sum(evaluations)
    return counts


def fit_summary(report: Json) -> list[str]:
    """What was embedded and how well, in lines for people."""
    figures, quality = report["figures"], report["quality"]
    lines = [] if report["n_computed"] else ["Every stage was complete already: nothing was computed."]
    distinct = f"; {figures['n_distinct']:,} distinct" if "n_distinct" in figures else ""
    lines.append(f"{figures['n_embedded']:,} of {figures['n_rows']:,} rows embedded{distinct}.")
    if figures.get("components", {}).get("n_components", 1) > 1:
        lines.append(_component_line(figures["components"]))
    if "n_audited" in figures:
        lines.append(_recall_line(quality["recall"], figures["n_audited"]))
    if "n_evaluations" in figures:
        lines.append(f"Your function was called {figures['n_evaluations']:,} times.")
    if quality["residual_variance"]:
        variances = ", ".join(f"{value:.2g}" for value in quality["residual_variance"])
        lines.append(f"Residual variance with 1, 2, ... components: {variances}.")
    if "negative_mass" in quality:
        lines.append(f"Negative mass of the spectrum {quality['negative_mass']:.2%}.")
    trust = quality["trustworthiness"]
    if trust:
        lines.append(f"Trustworthiness {trust['value']:.4f} (95%: {trust['low']:.4f} to {trust['high']:.4f}).")
    return lines


def _recall_line(recall: float, n_audited: int) -> str:
    """In few dimensions nothing has to be audited: the search is exact."""
    return f"Neighbor recall {recall:.4f}, audited on {n_audited:,} points." if n_audited else "Neighbors are exact."


def figures_table(report: Json) -> list[Json]:
    """The same as a table of figures and values."""
    return [{"figure": name, "value": value} for name, value in _figures(report)]


def _figures(report: Json) -> list[tuple[str, str]]:
    figures, quality = report["figures"], report["quality"]
    components = figures.get("components", {}).get("n_components")
    named: list[tuple[str, object, str]] = [
        ("rows", figures["n_rows"], ","),
        ("rows embedded", figures["n_embedded"], ","),
        ("distinct rows", figures.get("n_distinct"), ","),
        ("components of the graph", components, ","),
        ("landmarks", figures["n_landmarks"], ","),
        ("evaluations of your function", figures.get("n_evaluations"), ","),
        ("neighbor recall", quality.get("recall"), ".4f"),
        ("normalized stress", quality["normalized_stress"], ".3g"),
        ("negative mass of the spectrum", quality.get("negative_mass"), ".2%"),
        ("error of the kernel by landmarks", quality.get("nystrom_error"), ".3g"),
        ("partitions computed", report["n_computed"], ","),
    ]
    rows = [(name, format(value, style)) for name, value, style in named if value is not None]
    variances = quality["residual_variance"] or []
    rows += [(f"residual variance, {i} components", f"{value:.3g}") for i, value in enumerate(variances, 1)]
    for name in ("trustworthiness", "continuity"):
        if quality[name]:
            rows.append(
                (name, f"{quality[name]['value']:.4f} ({quality[name]['low']:.4f} to {quality[name]['high']:.4f})")
            )
    return rows


def _component_line(figures: Json) -> str:
    found = f"The graph has {figures['n_components']:,} components"
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
    left = None if current else opened.seconds_left()
    versions = _versions(opened)
    value = {
        "published": published,
        "versions": versions,
        "stages": [asdict(stage) for stage in stages],
        "seconds_left": left,
    }
    lines = [_stage_line(stage) for stage in stages]
    lines += [_version_line(version) for version in versions if len(versions) > 1]
    ended = "published" if current else "not complete"
    under_way = "" if left is None else f"; under way, about {in_words(left)} left"
    stated = opened.portable if published else None
    value |= {"kind": opened.kind} | ({} if stated is None else {"portable": stated})
    of_model = [] if stated is None else model_lines(stated)
    return value, [*lines, *of_model, f"{store}: {ended}{under_way}."]


def model_lines(stated: Json) -> list[str]:
    """What an exported model states of itself."""
    if stated.get("exact"):
        size = f"{stated['n_landmarks']:,} landmarks, {stated['bytes'] / MIB:,.1f} MiB."
        return [size, "Rows are placed where the run places them."]
    accuracy = stated["accuracy"]
    lines = [f"{stated['n_anchors']:,} anchors, {stated['bytes'] / MIB:,.1f} MiB."]
    if not accuracy["n_checked"]:
        return [*lines, "Every distinct row is an anchor: rows are placed where the run places them."]
    return [
        *lines,
        f"Against the run, on {accuracy['n_checked']:,} rows that are not anchors: {accuracy['rms']:.2%} of the "
        f"embedding's spread off (root mean square), 99% of them at most {accuracy['q99']:.2%}.",
    ]


def _stage_line(stage: StageStatus) -> str:
    state = "complete" if stage.complete else f"{stage.n_committed} of {stage.n_partitions} partitions"
    return f"  {stage.stage:<11} {state}"


def _versions(opened: Run) -> list[Json]:
    """Every version by name, the oldest first, with its rows and whether it is the published one."""
    found = [open_run(opened.url, name) for name in opened.versions]
    return [{"name": v.version, "n_rows": v.n_rows, "published": v.version == opened.version} for v in found]


def _version_line(version: Json) -> str:
    return f"  version {version['name']}: {version['n_rows']:,} rows{', published' * version['published']}"


def collected_garbage(store: str, keep_versions: int | None = None) -> tuple[Json, list[str]]:
    """Delete what neither the published state, a version nor the latest command uses; of versions, keep the newest."""
    target = run.open_store(store, writable=True)
    with lease.acquire(target):
        target.sweep_partials()
        dropped = [] if keep_versions is None else run.drop_versions(target, keep_versions)
        stages = dict.fromkeys((*refitting.STAGES, *extending.STAGES, *portable.STAGES, *inverting.STAGES))
        paths = run.superseded(target, list(stages))
        freed = sum(target.size(path) for path in paths)
        for path in paths:
            run.remove(target, path)
    lines = [*(f"  dropped version {name}" for name in dropped), *(f"  removed {path}" for path in paths)]
    value = {"removed": paths, "bytes": freed} | ({} if keep_versions is None else {"versions": dropped})
    return value, [*lines, f"{freed / 2**20:,.1f} MiB freed."]
