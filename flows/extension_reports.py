"""What commands and flows say of new rows: for programs, and in lines for people."""

from pathlib import Path

from pipeline.jobs.extend import Extended
from pipeline.jobs.incoming import done_batches
from pipeline.results.run import open_run
from pipeline.types import Json


def batch_report(store: str, output: str, extended: Extended | None = None) -> Json:
    """All figures of one batch, as it was extended to now or earlier."""
    opened = open_run(output)
    n_placed = opened.stage_figures("place")["n_placed"] if opened.n_rows else 0
    computed = {} if extended is None else {name: outcome.n_computed for name, outcome in extended.outcomes.items()}
    return {
        "store": store,
        "output": output,
        "n_rows": opened.n_rows,
        "n_placed": n_placed,
        "computed": computed,
        "n_computed": sum(computed.values()),
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
    drift = batch["drift"]
    lines += [
        f"  {name:<9} differs by {column['statistic']:.3f} from rows like the fitted ones (margin "
        f"{column['margin']:.3f}, p {column['p_value']:.2g}); {column['share_beyond_99']:.1%} beyond their 99% quantile"
        for name, column in drift["columns"].items()
    ]
    return [*lines, f"  {_verdict(drift)}"]


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
