"""Commands that look at a store or tidy it: status, gc and export; and what a fit will take."""

from dataclasses import asdict
from pathlib import Path

from flows.batch_reports import batch_report
from flows.reports import (
    automatic_line,
    component_lines,
    dimension_lines,
    dominance_lines,
    shortcut_lines,
)
from pipeline.errors import InvalidInputError
from pipeline.jobs.batches import RESULTS_SUFFIX, done_batches
from pipeline.results.run import Run, StageStatus, in_words, open_run
from pipeline.stages.stage import MIB
from pipeline.store import freed, lease, run
from pipeline.types import Json


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
    if published and opened.kind == run.FIT:
        lines += dominance_lines(opened.dominating_columns) + dimension_lines(opened.quality)
        lines += component_lines(opened.components)
        if "dimension" in opened.manifest["stages"]:
            lines.append(automatic_line(opened.stage_figures("dimension")))
        if "shortcuts" in opened.manifest["stages"]:
            n_cut = opened.stage_figures("components").get("n_cut", 0)
            lines += shortcut_lines({**opened.stage_figures("shortcuts"), "n_cut": n_cut})
    if published and opened.kind == run.FIT:
        lines.append(opened.verdict.words)
    lines += [_version_line(version) for version in versions if len(versions) > 1]
    ended = "published" if current else "not complete"
    under_way = "" if left is None else f"; under way, about {in_words(left)} left"
    stated = opened.portable if published else None
    retained = opened.retained if published else None
    if retained is not None:
        lines.append(f"  slimmed by `trigpoint gc --retain {retained}`; the same fit again computes what is missing")
    value |= {"retained": retained}
    value |= {"kind": opened.kind} | ({} if stated is None else {"portable": stated})
    of_model = [] if stated is None else model_lines(stated)
    if published and opened.kind == run.FIT:
        value["n_components"] = opened.manifest["settings"]["n_components"]
        value["dominating_columns"] = opened.dominating_columns
        value["components"] = opened.components
        value["verdict"] = opened.verdict._asdict()
        value["intrinsic_dimension"] = opened.quality.get("intrinsic_dimension")
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


def history(folder: str) -> tuple[Json, list[str]] | None:
    """The batches in a folder of results, in the order of their names; None if it is no such folder."""
    outputs = done_batches(folder)
    if not outputs:
        return None
    reports = [batch_report("", str(output)) for output in outputs]
    width = max(len(output.name) for output in outputs)
    lines = [f"  {'batch':<{width}} {'rows':>11}  residual       gap   nearest"]
    lines += [_history_line(Path(report["output"]).name, width, report) for report in reports]
    n_drifting = sum(bool(report["drift"] and report["drift"]["drifts"]) for report in reports)
    lines.append(f"{folder}: {len(reports)} batches, {n_drifting} not like the fitted rows.")
    return {"batches": reports, "n_drifting": n_drifting}, lines


def _history_line(name: str, width: int, report: Json) -> str:
    line = f"  {name:<{width}} {report['n_rows']:>11,}"
    if report["drift"] is None:
        return line
    shown = (report["drift"]["columns"].get(column) for column in ("residual", "gap", "nearest"))
    # Not every method has every column.
    figures = "".join(
        f" {column['statistic']:>8.3f}{'*' if column['drifts'] else ' '}" if column else " " * 10 for column in shown
    )
    return f"{line}{figures} {'drifts' if report['drift']['drifts'] else ''}".rstrip()


def slimming_report(store: str, retain: str) -> list[str]:
    """What `gc --retain` would free of a run, and what could no longer be done with it."""
    from pipeline.jobs.job import opened_run
    from pipeline.jobs.slimming import STOPPED, check_level, freeable_bytes

    check_level(retain)
    opened, _ = opened_run(store, run.FIT)
    size = f"{freeable_bytes(opened, retain) / MIB:,.1f} MiB of published results can be freed."
    stopped = " and ".join(f"`{command}`" for command in STOPPED[retain]) or "No command"
    plural = "" if len(STOPPED[retain]) > 1 else "s"
    return [
        size,
        f"{stopped} stop{plural} working. A fit into this store, the same or with other settings, will compute again "
        "what it needs of them.",
    ]


def collected_garbage(
    store: str, keep_versions: int | None = None, retain: str | None = None
) -> tuple[Json, list[str]]:
    """Delete what neither the published state, a version nor the latest command uses; of versions, keep the newest; of
    what is published, keep what a level retains."""
    from pipeline.jobs import extend, fit, invert, portable, refit, slimming

    target = run.open_store(store, writable=True)
    with lease.acquire(target):
        target.sweep_partials()
        dropped = [] if keep_versions is None else run.drop_versions(target, keep_versions)
        stages = dict.fromkeys((*refit.STAGES, *fit.ON_REQUEST, *extend.STAGES, *portable.STAGES, *invert.STAGES))
        paths = run.superseded(target, list(stages))
        n_bytes = sum(target.size(path) for path in paths)
        for path in paths:
            run.remove(target, path)
        if retain is not None:
            freed.declare_freed(target, retain, slimming.freeable(target, retain))
        # Also what was declared before, if that was interrupted.
        n_bytes += freed.delete_freed(target)
    lines = [*(f"  dropped version {name}" for name in dropped), *(f"  removed {path}" for path in paths)]
    value = {"removed": paths, "bytes": n_bytes} | ({} if keep_versions is None else {"versions": dropped})
    value |= {} if retain is None else {"retained": retain}
    return value, [*lines, f"{n_bytes / MIB:,.1f} MiB freed."]


def export_report(store: str, arrays: list[str], output: Path, version: str | None = None) -> tuple[Json, list[str]]:
    """Write published arrays of a run, or of all batches in a folder, to a file; what was written, for programs and in
    lines."""
    from pipeline.results.export import export, export_batches

    batches = {path.name.removesuffix(RESULTS_SUFFIX): open_run(path) for path in done_batches(store)}
    if batches and version is not None:
        raise InvalidInputError(f"version={version!r}: {store} holds batches, which have no versions; leave it out.")
    n_rows = export_batches(batches, arrays, output) if batches else export(open_run(store, version), arrays, output)
    of_batches: Json = {"batches": [*batches]} if batches else {}
    value = {"output": str(output), "arrays": arrays, "n_rows": n_rows, **of_batches}
    told = f" of {len(batches):,} batch{'es' * (len(batches) != 1)}" if batches else ""
    return value, [f"{n_rows:,} rows of {', '.join(arrays)}{told} are in {output}."]


def export_model_report(store: str, model: str, anchors: int | None) -> tuple[Json, list[str]]:
    """Write a model of a run; its size and accuracy, for programs and in lines."""
    from pipeline.jobs.portable import export_model

    exported = export_model(store, model, anchors)
    value = {"model": model, "n_computed": exported.n_computed, **exported.stated}
    return value, [f"A model of {store} is in {model}.", *model_lines(exported.stated)]
