"""What commands and flows report of a job: figures for programs, lines for people, tables for the server's pages."""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from pipeline.jobs.job import Done
from pipeline.jobs.plan import Plan
from pipeline.numerics.geodesics.components import components_in_words
from pipeline.results.run import Run, in_words, open_run
from pipeline.stages.dominance import dominance_in_words
from pipeline.stages.graph.components import component_figures
from pipeline.stages.stage import MIB
from pipeline.types import Json

NOTHING: Mapping[str, int] = MappingProxyType({})
# Short circuits that a summary shows; all that are listed are in the figures.
SHOWN_SHORTCUTS = 5


def counted(count: int, what: str) -> str:
    """A number with its noun, in the plural where needed."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def plan_report(plan: Plan, data: str) -> tuple[Json, list[str]]:
    """What a fit of some data will take, for programs and in lines."""
    total = sum(plan.seconds.values())
    lines = [data, f"  {'stage':<11} {'tasks':>7} {'MiB a worker':>13} {'MiB on disk':>12} {'time':>8}"]
    lines += [
        f"  {stage.stage:<11} {stage.n_tasks:>7,} {stage.memory / MIB:>13,.0f} {stage.disk / MIB:>12,.1f} "
        f"{in_words(stage.seconds):>8}"
        for stage in plan.stages
    ]
    peak = max(plan.memory.values())
    has = "" if plan.worker_memory is None else f" of {plan.worker_memory / MIB:,.0f}"
    workers = f"{counted(plan.n_workers, 'worker')} of {counted(plan.n_threads, 'thread')}"
    lines += [
        f"{workers}: at most {peak / MIB:,.0f}{has} MiB each, "
        f"{plan.disk / MIB:,.0f} of {plan.free_disk / MIB:,.0f} MiB on disk, about {in_words(total)}.",
        *(f"Assumed: {assumption}." for assumption in plan.assumptions),
    ]
    value = {
        "data": data,
        "stages": [asdict(stage) for stage in plan.stages],
        "n_workers": plan.n_workers,
        "threads_per_worker": plan.n_threads,
        "worker_memory": plan.worker_memory,
        "free_disk": plan.free_disk,
        "disk": plan.disk,
        "seconds": total,
        "problems": plan.problems(),
        "assumptions": list(plan.assumptions),
    }
    return value, lines


def fit_report(opened: Run, fitted: Done, before: Mapping[str, int] = NOTHING) -> Json:
    """All figures of a fit, for programs; `before` are partitions of each stage that were computed before this part of
    it."""
    found = {name: outcome.figures for name, outcome in fitted.outcomes.items()}
    return {
        "store": opened.url,
        **computed_partitions(fitted, before),
        "figures": _counts(found) | {"dominating_columns": opened.dominating_columns},
        "quality": opened.quality,
        "verdict": opened.verdict._asdict(),
        "trust": opened.trust,
    }


def computed_partitions(done: Done | None, before: Mapping[str, int] = NOTHING) -> Json:
    """How many partitions were computed now, of each stage and of all; none of a job that was done earlier."""
    outcomes = {} if done is None else done.outcomes
    computed = {name: outcome.n_computed + before.get(name, 0) for name, outcome in outcomes.items()}
    return {"computed": computed, "n_computed": sum(computed.values())}


def _counts(found: Json) -> Json:
    """How many of everything; what only methods along a graph have is left out by others."""
    counts = {
        "n_rows": found["publish"]["n_rows"],
        "n_embedded": found["publish"]["n_embedded"],
        "n_landmarks": found["landmarks"]["n_landmarks"],
    }
    if "dimension" in found:
        counts["automatic_components"] = found["dimension"]
    if "order" in found:
        counts["n_distinct"] = found["order"]["n_nodes"]
    if "probes" in found:
        counts["n_audited"] = found["probes"]["audited"]
    if "components" in found:
        counts["components"] = {**found["components"], **(component_figures(found) or {})}
    if "shortcuts" in found:
        counts["short_circuits"] = {**found["shortcuts"], "n_cut": found["components"].get("n_cut", 0)}
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
    lines += dominance_lines(figures["dominating_columns"])
    lines += shortcut_lines(figures.get("short_circuits"))
    if "n_audited" in figures:
        lines.append(_recall_line(quality["recall"], figures["n_audited"]))
    if "automatic_components" in figures:
        lines.append(automatic_line(figures["automatic_components"]))
    if "n_evaluations" in figures:
        lines.append(f"Your function was called {figures['n_evaluations']:,} times.")
    lines += distance_lines(quality)
    lines += dimension_lines(quality)
    if "negative_mass" in quality:
        lines.append(f"Negative mass of the spectrum {quality['negative_mass']:.2%}.")
    trust = quality["trustworthiness"]
    if trust:
        lines.append(f"Trustworthiness {in_interval(trust, '.4f')}.")
    return [*lines, report["verdict"]["words"]]


def distance_lines(quality: Json) -> list[str]:
    """How far distances in the embedding are those of the data."""
    values = quality["residual_variance"]
    if not values:
        return []
    seen = "between points" if quality.get("measured_from", "landmarks") == "points" else "to the landmarks"
    low, high = quality.get("residual_variance_95", [[None, None]])[-1]
    within = "" if low is None else f" (95%: {low:.2g} to {high:.2g})"
    counts = "1 component" if len(values) == 1 else f"1 to {len(values)} components"
    shown = ", ".join(f"{value:.2g}" for value in values)
    return [f"Residual variance of distances {seen}, {counts}: {shown}{within}{_beyond(quality)}."]


def _beyond(quality: Json) -> str:
    """Residual variance with more components than were fitted, as the end of a line."""
    values = quality.get("residual_variance_beyond")
    if not values:
        return ""
    first = len(quality["residual_variance"]) + 1
    last = first + len(values) - 1
    with_more = f"{first}" if first == last else f"{first} to {last}"
    return f"; with {with_more} it would be {', '.join(f'{value:.2g}' for value in values)}"


def dimension_lines(quality: Json) -> list[str]:
    """How many dimensions the data has, if that is known."""
    found = quality.get("intrinsic_dimension")
    if not found:
        return []
    two, likelihood = (in_interval(found[name], ".2f") for name in ("two_nearest", "maximum_likelihood"))
    return [f"Intrinsic dimension {two} by the two-nearest-points method, {likelihood} by maximum likelihood."]


def in_interval(estimate: Json, style: str) -> str:
    """A value with its 95% interval, if that is more than a point."""
    value, low, high = (format(estimate[name], style) for name in ("value", "low", "high"))
    return value if low == value == high else f"{value} (95%: {low} to {high})"


def automatic_line(figures: Json) -> str:
    """How many components were chosen, and from what."""
    found = figures["intrinsic_dimension"]
    estimate = in_interval(found["two_nearest"], ".2f")
    chosen = counted(figures["n_components"], "component")
    return f"{chosen}: the intrinsic dimension of a sample of {found['n_points']:,} rows is {estimate}."


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
        ("short circuits of the graph", figures.get("short_circuits", {}).get("n_found"), ","),
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
    beyond = enumerate(quality.get("residual_variance_beyond") or [], len(variances) + 1)
    rows += [(f"residual variance, {i} components (not fitted)", f"{value:.3g}") for i, value in beyond]
    for name, estimate in (quality.get("intrinsic_dimension") or {}).items():
        if name != "n_points":
            rows.append((f"intrinsic dimension, {name.replace('_', ' ')}", in_interval(estimate, ".2f")))
    for name in ("trustworthiness", "continuity"):
        if quality[name]:
            rows.append(
                (name, f"{quality[name]['value']:.4f} ({quality[name]['low']:.4f} to {quality[name]['high']:.4f})")
            )
    return rows


def dominance_lines(figures: Json | None) -> list[str]:
    """Which columns carry nearly all of the variance, if there are such."""
    return [] if figures is None else [dominance_in_words(figures)]


def shortcut_lines(figures: Json | None) -> list[str]:
    """How many short circuits were found, what was done, and those on most paths."""
    if not figures or not figures["n_found"]:
        return []
    what = "cut" if figures["n_cut"] else "not cut"
    edges = counted(figures["n_edges"], "edge")
    lines = [f"The graph has {counted(figures['n_found'], 'likely short circuit')} ({edges}, {what})."]
    lines += [
        f"  row {item['row']} to {item['other']}: {item['length']:.4g} long; {item['across']:.3g} across instead of "
        f"{item['detour']:.3g}; {item['share']:.1%} of the paths"
        for item in figures["listed"][:SHOWN_SHORTCUTS]
    ]
    hidden = figures["n_found"] - SHOWN_SHORTCUTS
    return [*lines, *([f"  and {hidden:,} more"] if hidden > 0 else [])]


def component_lines(figures: Json | None) -> list[str]:
    """What became of a graph in several components."""
    return [components_in_words(figures)] if figures and figures["n_components"] > 1 else []


def refit_report(store: str, refitted: Done, before: Mapping[str, int] = NOTHING) -> Json:
    """All figures of a refit, for programs: those of a fit, and how it goes on from the version before."""
    base, n_rows = refitted.manifest["registered_to"], int(refitted.manifest["source"]["n_rows"])
    return {
        **fit_report(open_run(store, refitted.version), refitted, before),
        "version": refitted.version,
        "rows": {"old": base["n_rows"], "new": n_rows - base["n_rows"]},
        "registered_to": base["version"],
        "registration": refitted.outcomes["register"].figures,
        "n_bridges": _n_bridges(store, base["version"], refitted.version),
    }


def _n_bridges(store: str, *versions: str) -> Json:
    """How many links join the graph of each version that is there still."""
    opened = (open_run(store, version) for version in versions if version in open_run(store).versions)
    return {one.version: int((one.components or {}).get("n_bridges", 0)) for one in opened}


def more_bridges(report: Json) -> str:
    """What to say of a version that joins more components than the one before; nothing if it does not, or if that one
    is gone."""
    base, counts = report["registered_to"], report["n_bridges"]
    if counts[report["version"]] <= counts.get(base, counts[report["version"]]):
        return ""
    links = counted(counts[report["version"]], "link")
    return (
        f"The graph is in more pieces than that of version {base}: {links} between them, where it had {counts[base]:,}."
    )


def refit_summary(report: Json) -> list[str]:
    """What was published and how it lies on the version before, in lines for people."""
    rows, found = report["rows"], report["registration"]
    return [
        *fit_summary(report),
        *filter(None, [more_bridges(report)]),
        f"Turned onto version {report['registered_to']} on {found['n_shared']:,} of its landmarks: they are "
        f"{found['rms_after']:.3g} from where they were, {found['relative_rms']:.2%} of their spread (rms).",
        f"Version {report['version']} is published: {rows['old']:,} old and {rows['new']:,} new rows.",
    ]
