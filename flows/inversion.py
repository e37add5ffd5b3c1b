"""The command `invert`: in this process or as a flow with workers, what it says, and strips of images."""

import io
import json
import os
from pathlib import Path

import numpy as np

from flows.commands import PREFECT_ENVIRONMENT, Say
from flows.progress import Display, shown_on, terminal_display
from pipeline.errors import InvalidInputError
from pipeline.jobs.invert import Inverted, prepare_invert
from pipeline.jobs.invert import invert as invert_here
from pipeline.results.run import open_run
from pipeline.settings import InvertSettings
from pipeline.types import AnyArray, IntArray, Json

# What each flag says of a query, for people.
MEANINGS = {
    "merged": "different rows in one place, taken for their mean",
    "not_unisolvent": "neighbors in a plane, or too few: no slope across it",
    "ill_conditioned": "few right digits",
    "regularized": "rows smoothed somewhat instead of interpolated",
    "dropped": "neighbors without usable rows left out",
    "undefined": "not finite, values are NaN",
}
# Images side by side at most; a longer strip goes on below. And steps that a picture shows: more than can be looked at
# take long to draw.
MOST_IN_A_ROW, MOST_SHOWN = 13, 24


def run_invert(settings: InvertSettings, take_over: bool, picture: Path | None, as_json: bool, say: Say) -> None:
    """Invert as the settings say, and tell what came of it."""
    tell: Say = (lambda _: None) if as_json else say
    if picture is not None and (settings.path is None or settings.image is None):
        raise InvalidInputError(f"picture={str(picture)!r} needs a path and the size of an image; give both.")
    prepare_invert(settings)
    tell(f"{asked_for(settings)} in the space of {settings.store} -> {settings.output}")
    report = _inverted_report(settings, take_over, Display() if as_json else terminal_display(say), tell)
    if as_json:
        say(json.dumps(report, indent=2))
    for line in inversion_summary(report):
        tell(line)
    if picture is not None:
        picture.write_bytes(strip_picture(settings))
        n_shown = len(shown_steps(settings.steps))
        some = "" if n_shown == settings.steps else f", with {n_shown} of the {settings.steps:,} steps, evenly spaced"
        tell(f"The strip is in {picture}{some}.")


def _inverted_report(settings: InvertSettings, take_over: bool, display: Display, say: Say) -> Json:
    if settings.cluster.kind == "serial":
        with shown_on(display):
            return inversion_report(settings, invert_here(settings, display, take_over))
    for name, value in PREFECT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    say("Starting a Prefect flow and its Dask workers; some ten seconds, the first time more.")
    from flows.server import prefect_server

    with prefect_server(say), shown_on(display):
        from flows import invert

        return invert(settings, take_over)


def asked_for(settings: InvertSettings) -> str:
    """What is to be found, in words."""
    if settings.path is not None:
        way = "in a straight line" if settings.along == "straight" else "along the data"
        return f"From row {settings.path[0]} to row {settings.path[1]} {way}, {settings.steps} steps,"
    if settings.leave_one_out:
        return "Every row" if settings.sample is None else f"{settings.sample:,} rows"
    return str(settings.coordinates)


def inversion_report(settings: InvertSettings, inverted: Inverted) -> Json:
    """All figures of an inversion, for programs."""
    found = {name: outcome.figures for name, outcome in inverted.outcomes.items()}
    return {
        "store": settings.store,
        "output": settings.output,
        "computed": {name: outcome.n_computed for name, outcome in inverted.outcomes.items()},
        "n_computed": inverted.n_computed,
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


def strip_picture(settings: InvertSettings) -> bytes:
    """A PNG of the images on a path."""
    from matplotlib.figure import Figure

    images = strip_images(settings)
    # As the real ones are: beyond their range there is nothing to see.
    low, high = float(images[[0, -1]].min()), float(images[[0, -1]].max())
    n_lines, n_shown = -(-len(images) // MOST_IN_A_ROW), min(len(images), MOST_IN_A_ROW)
    figure = Figure(figsize=(0.8 * n_shown, 1.0 * n_lines), layout="constrained")
    for place, image in enumerate(images, 1):
        axes = figure.add_subplot(n_lines, n_shown, place)
        axes.imshow(image, cmap="gray", vmin=low, vmax=high)
        axes.set_axis_off()
    for axes, row in zip((figure.axes[0], figure.axes[-1]), settings.path or (), strict=True):
        axes.set_title(f"row {row}", fontsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def shown_steps(n_steps: int) -> IntArray:
    """Which steps of a path a picture shows: all, or evenly spaced ones with both ends."""
    return np.linspace(0, n_steps - 1, min(n_steps, MOST_SHOWN)).round().astype(np.int64)


def strip_images(settings: InvertSettings) -> AnyArray:
    """Images (s + 2, rows, columns): the two real ones at the ends, what was made of the steps shown between them."""
    source = prepare_invert(settings).data
    first, last = (source.read(row, row + 1).astype(np.float64) for row in settings.path or ())
    made = open_run(settings.output).embedding("values")[shown_steps(settings.steps)]
    values = np.concatenate([first, made, last])
    n_rows, n_columns, by_columns = settings.image_shape or (1, values.shape[1], False)
    if by_columns:
        return values.reshape(-1, n_columns, n_rows).transpose(0, 2, 1)
    return values.reshape(-1, n_rows, n_columns)
