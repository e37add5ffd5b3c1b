"""What commands and flows report of a job: figures for programs, lines for people, tables for the server's pages."""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from pipeline.jobs.job import Done
from pipeline.jobs.plan import Plan
from pipeline.numerics.geodesics.components import components_in_words
from pipeline.results.run import Run, in_words, open_run
from pipeline.settings import InvertSettings
from pipeline.stages.dominance import dominance_in_words
from pipeline.stages.graph.components import component_figures
from pipeline.stages.stage import MIB
from pipeline.types import Json

# Short circuits that a summary shows; all that are listed are in the figures.
SHOWN_SHORTCUTS = 5
# What each flag says of a query, for people.
MEANINGS = {
    "merged": "different rows in one place, taken for their mean",
    "not_unisolvent": "neighbors in a plane, or too few: no slope across it",
    "ill_conditioned": "few right digits",
    "regularized": "rows smoothed somewhat instead of interpolated",
    "dropped": "neighbors without usable rows left out",
    "undefined": "not finite, values are NaN",
}


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


def fit_report(opened: Run, fitted: Done, before: Mapping[str, int]) -> Json:
    """All figures of a fit, for programs; `before` are partitions of each stage that were computed before this part of
    it."""
    found = {name: outcome.figures for name, outcome in fitted.outcomes.items()}
    return {
        "store": opened.url,
        **_computed(fitted, before),
        "figures": _counts(found) | {"dominating_columns": opened.dominating_columns},
        "quality": opened.quality,
        "trust": opened.trust,
    }


def _computed(done: Done | None, before: Mapping[str, int] = MappingProxyType({})) -> Json:
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
    lines += component_lines(figures.get("components"))
    lines += shortcut_lines(figures.get("short_circuits"))
    if "n_audited" in figures:
        lines.append(_recall_line(quality["recall"], figures["n_audited"]))
    if "automatic_components" in figures:
        lines.append(automatic_line(figures["automatic_components"]))
    if "n_evaluations" in figures:
        lines.append(f"Your function was called {figures['n_evaluations']:,} times.")
    if quality["residual_variance"]:
        variances = ", ".join(f"{value:.2g}" for value in quality["residual_variance"])
        lines.append(f"Residual variance with 1, 2, ... components: {variances}{_beyond(quality)}.")
    lines += dimension_lines(quality)
    if "negative_mass" in quality:
        lines.append(f"Negative mass of the spectrum {quality['negative_mass']:.2%}.")
    trust = quality["trustworthiness"]
    if trust:
        lines.append(f"Trustworthiness {in_interval(trust, '.4f')}.")
    return lines


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
    """A value with its 95% interval."""
    value, low, high = (format(estimate[name], style) for name in ("value", "low", "high"))
    return f"{value} (95%: {low} to {high})"


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


def refit_report(store: str, refitted: Done, before: Mapping[str, int]) -> Json:
    """All figures of a refit, for programs: those of a fit, and how it goes on from the version before."""
    base, n_rows = refitted.manifest["registered_to"], int(refitted.manifest["source"]["n_rows"])
    return {
        **fit_report(open_run(store, refitted.version), refitted, before),
        "version": refitted.version,
        "rows": {"old": base["n_rows"], "new": n_rows - base["n_rows"]},
        "registered_to": base["version"],
        "registration": refitted.outcomes["register"].figures,
        "n_bridges": {version: _n_bridges(open_run(store, version)) for version in (base["version"], refitted.version)},
    }


def _n_bridges(opened: Run) -> int:
    return int((opened.components or {}).get("n_bridges", 0))


def more_bridges(report: Json) -> str:
    """What to say of a version that joins more components than the one before; nothing if it does not."""
    before, now = (report["n_bridges"][version] for version in (report["registered_to"], report["version"]))
    if now <= before:
        return ""
    return (
        f"The graph is in more pieces than that of version {report['registered_to']}: {now:,} links join them, where "
        f"it had {before:,}."
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


def batch_report(store: str, output: str, extended: Done | None = None) -> Json:
    """All figures of one batch, as it was extended to now or earlier."""
    opened = open_run(output)
    n_placed = opened.stage_figures("place")["n_placed"] if opened.n_rows else 0
    return {
        "store": store,
        "output": output,
        "n_rows": opened.n_rows,
        "n_placed": n_placed,
        **_computed(extended),
        "joint": opened.stage_figures("joint") if "joint" in opened.arrays else None,
        "drift": opened.drift,
    }


def extension_summary(report: Json) -> list[str]:
    """What was placed and how it compares with the fitted rows, in lines for people."""
    if not report["batches"]:
        return ["No new batch: nothing to do."]
    return [line for batch in report["batches"] for line in _batch_lines(batch)]


def _batch_lines(batch: Json) -> list[str]:
    if not batch["n_rows"]:
        return [f"{batch['output']}: no rows."]
    lines = [] if batch["n_computed"] else ["Every stage was complete already: nothing was computed."]
    lines.append(f"{batch['output']}: {batch['n_placed']:,} of {batch['n_rows']:,} rows placed.")
    if batch["joint"] is not None:
        lines += _joint_lines(batch["joint"])
    drift = batch["drift"]
    lines += [
        f"  {name:<9} differs by {column['statistic']:.3f} from rows like the fitted ones (margin "
        f"{column['margin']:.3f}, p {column['p_value']:.2g}); {column['share_beyond_99']:.1%} beyond their 99% quantile"
        for name, column in drift["columns"].items()
    ]
    return [*lines, f"  {_verdict(drift)}"]


def _joint_lines(joint: Json) -> list[str]:
    """How the rows were reconstructed together; an extension of an earlier version does not say what is certified."""
    known = f", {joint['n_certified']:,} of them with a certified global minimum" if "n_certified" in joint else ""
    lines = [f"  {joint['n_blocks']:,} block{'s' * (joint['n_blocks'] != 1)} reconstructed jointly{known}."]
    if joint["upper_bounds"]:
        lines.append(
            "  The distances between new rows were upper bounds through the landmarks (joint_distances=bound): joint "
            "coordinates are that much less accurate."
        )
    return lines


def _verdict(drift: Json) -> str:
    drifting = [name for name, column in drift["columns"].items() if column["drifts"]]
    if drifting:
        told_by = " and ".join(drifting)
        return f"These rows are not like the fitted ones, by their {told_by}, at level {drift['level']:.2g}."
    return f"These rows are like the fitted ones, at level {drift['level']:.2g}."


def drifted_words(report: Json) -> str:
    """What to say of batches that are not like the fitted rows; nothing if there are none."""
    outputs = [batch["output"] for batch in report["batches"] if batch["drift"] and batch["drift"]["drifts"]]
    if not outputs:
        return ""
    return (
        f"{', '.join(outputs)}: not like the rows that were fitted; the results are there, but look at their trust "
        "columns, and consider `trigpoint refit`."
    )


def drift_table(report: Json) -> list[Json]:
    """One batch as a table of columns and figures."""
    if report["drift"] is None:
        return [{"column": "", "rows": 0}]
    return [
        {"column": name, "rows": report["n_rows"], **column, "drifts": "yes" if column["drifts"] else "no"}
        for name, column in report["drift"]["columns"].items()
    ]


def asked_for(settings: InvertSettings) -> str:
    """What is to be found, in words."""
    if settings.path is not None:
        way = "in a straight line" if settings.along == "straight" else "along the data"
        return f"From row {settings.path[0]} to row {settings.path[1]} {way}, {settings.steps} steps,"
    if settings.leave_one_out:
        return "Every row" if settings.sample is None else f"{settings.sample:,} rows"
    return str(settings.coordinates)


def inversion_report(settings: InvertSettings, inverted: Done) -> Json:
    """All figures of an inversion, for programs."""
    found = {name: outcome.figures for name, outcome in inverted.outcomes.items()}
    return {
        "store": settings.store,
        "output": settings.output,
        **_computed(inverted),
        "n_embedded_places": found["order"]["n_nodes"],
        "n_source_rows_read": found["gather"]["n_rows"],
        "recall": found["probes"]["recall"] if "probes" in found else 1.0,
        "outside": settings.outside,
        **({"path_length": found["path"]["length"]} if "path" in found else {}),
        **found["publish"],
    }


def inversion_summary(report: Json) -> list[str]:
    """What came back, in lines for people."""
    lines = [] if report["n_computed"] else ["Every stage was complete already: nothing was computed."]
    n_asked = report.get("n_left_out", report["n_rows"])
    if "n_left_out" in report:
        lines.append(f"{n_asked:,} of {report['n_rows']:,} rows left out, one at a time.")
        lines += _error_lines(report)
    else:
        lines.append(f"{n_asked:,} queries, from {report['n_source_rows_read']:,} rows of the data.")
    lines.append(
        f"{report['n_outside']:,} outside: farther than {report['outside']:g} fill distances from every embedded point."
    )
    if report["recall"] < 1:
        lines.append(f"The search finds {report['recall']:.2%} of the nearest points, audited on a sample.")
    return lines + [f"  {name:<16}{count:>9,}  {MEANINGS[name]}" for name, count in report["flags"].items() if count]


def _error_lines(report: Json) -> list[str]:
    if report["mean_error"] is None:
        return ["There is no error to tell: nothing is known of any row without it."]
    error, share = report["mean_error"], report["mean_relative_error"]
    return [f"Mean error {error:.4g} in the units of the data, {share:.2%} of the rows' sizes."]


def inversion_table(report: Json) -> list[Json]:
    """The same as a table of figures and values."""
    plain = {name: value for name, value in report.items() if not isinstance(value, dict)}
    named = {**plain, **{f"flagged {name}": count for name, count in report["flags"].items()}}
    return [{"figure": name, "value": str(value)} for name, value in named.items()]
