"""What extensions and inversions are reported as: figures for programs, and lines and tables for people."""

from flows.reports import computed_partitions
from pipeline.jobs.job import Done
from pipeline.results.run import open_run
from pipeline.settings import InvertSettings
from pipeline.types import Json

# What each flag says of a query, for people.
MEANINGS = {
    "merged": "different rows in one place, taken for their mean",
    "not_unisolvent": "neighbors in a plane, or too few: no slope across it",
    "ill_conditioned": "few right digits",
    "regularized": "rows smoothed somewhat instead of interpolated",
    "dropped": "neighbors without usable rows left out",
    "undefined": "not finite, values are NaN",
}


def batch_report(store: str, output: str, extended: Done | None = None) -> Json:
    """All figures of one batch, as it was extended to now or earlier."""
    opened = open_run(output)
    n_placed = opened.stage_figures("place")["n_placed"] if opened.n_rows else 0
    return {
        "store": store,
        "output": output,
        "n_rows": opened.n_rows,
        "n_placed": n_placed,
        **computed_partitions(extended),
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
    if drift.get("were_fitted"):
        return "Most of these rows were fitted: they say nothing of how new rows compare."
    drifting = [name for name, column in drift["columns"].items() if column["drifts"]]
    # What all columns together may raise a false alarm at, shared out among them.
    level = f"each column tested at level {drift['level'] / len(drift['columns']):.2g}"
    if drifting:
        return f"These rows are not like the fitted ones, by their {' and '.join(drifting)} ({level})."
    return f"These rows are like the fitted ones ({level})."


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
        **computed_partitions(inverted),
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
