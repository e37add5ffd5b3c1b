"""Pictures: embeddings, images along a path, and studies, as PNG."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.reports import counted
from pipeline.results.run import Run, open_run
from pipeline.settings import InvertSettings, StudySettings
from pipeline.types import AnyArray, FloatArray, IntArray

if TYPE_CHECKING:  # matplotlib takes a second to import: only what draws waits for it
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pipeline.jobs.study import Study, Trial
    from pipeline.numerics.datasets import SwissRoll
    from pipeline.sources.source import Source

# Images side by side at most; a longer strip goes on below. And steps that a picture shows: more than can be looked at
# take long to draw.
MOST_IN_A_ROW, MOST_SHOWN = 13, 24
# Errors that differ by more than this factor are drawn on a logarithmic scale.
FACTORS = 5.0


def _empty_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: "Figure", dpi: int = 110) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def embedding_picture(run: Run) -> bytes:
    """The first two coordinates of the run's sample, colored by the gap between projection and restricted
    reconstruction if the method has both."""
    projection, *others = run.sample
    gaps = np.linalg.norm(projection - others[0], axis=1) if others else np.zeros(len(projection))
    order = np.argsort(gaps, kind="stable")
    x = projection[order, 0]
    y = projection[order, 1] if projection.shape[1] > 1 else np.zeros_like(x)
    figure = _empty_figure(8, 5)
    axes = figure.add_subplot()
    # A few far ones would leave all others in one color.
    ceiling = float(np.quantile(gaps, 0.99)) or 1.0
    points = axes.scatter(x, y, c=gaps[order], s=4, cmap="viridis", vmin=0, vmax=ceiling)
    axes.set(aspect="equal", xlabel="component 1", ylabel="component 2", title=_title(run, len(x)))
    if others:
        label = "distance between projection and restricted reconstruction"
        figure.colorbar(points, label=label, location="bottom", shrink=0.6, aspect=40)
    return _png(figure)


def _title(run: Run, n_shown: int) -> str:
    shown, variances = f"{n_shown:,} of {run.n_rows:,} rows", run.quality["residual_variance"]
    if variances is None:
        return shown
    return f"{shown}; residual variance {variances[-1]:.2g} in {len(variances)} components"


def strip_picture(settings: InvertSettings, data: "Source") -> bytes:
    """A PNG of the images on a path."""
    images = strip_images(settings, data)
    # As the real ones are: beyond their range there is nothing to see.
    low, high = float(images[[0, -1]].min()), float(images[[0, -1]].max())
    n_lines, n_shown = -(-len(images) // MOST_IN_A_ROW), min(len(images), MOST_IN_A_ROW)
    figure = _empty_figure(0.8 * n_shown, 1.0 * n_lines)
    for place, image in enumerate(images, 1):
        axes = figure.add_subplot(n_lines, n_shown, place)
        axes.imshow(image, cmap="gray", vmin=low, vmax=high)
        axes.set_axis_off()
    for axes, row in zip((figure.axes[0], figure.axes[-1]), settings.path or (), strict=True):
        axes.set_title(f"row {row}", fontsize=7)
    return _png(figure, dpi=100)


def shown_steps(n_steps: int) -> IntArray:
    """Which steps of a path a picture shows: all, or evenly spaced ones with both ends."""
    return np.linspace(0, n_steps - 1, min(n_steps, MOST_SHOWN)).round().astype(np.int64)


def strip_images(settings: InvertSettings, data: "Source") -> AnyArray:
    """Images (s + 2, rows, columns): the two real ones at the ends, what was made of the steps shown between them."""
    first, last = (data.read(row, row + 1).astype(np.float64) for row in settings.path or ())
    made = open_run(settings.output).embedding("values")[shown_steps(settings.steps)]
    values = np.concatenate([first, made, last])
    n_rows, n_columns, by_columns = settings.image_shape or (1, values.shape[1], False)
    if by_columns:
        return values.reshape(-1, n_columns, n_rows).transpose(0, 2, 1)
    return values.reshape(-1, n_rows, n_columns)


def study_picture(settings: StudySettings, found: "Study") -> bytes:
    """A PNG: errors against the number of landmarks, a panel for each number of neighbors, above what a fit takes."""
    counts = list(dict.fromkeys(trial.n_neighbors for trial in found.trials))
    figure = _empty_figure(3.4 + 3.6 * len(counts), 6)
    panels = figure.subplots(2, len(counts), sharex=True, sharey="row", squeeze=False, height_ratios=(3, 1))
    labelled: dict[str, Artist] = {}
    for (above, below), k in zip(panels.T, counts, strict=True):
        trials = [trial for trial in found.trials if trial.n_neighbors == k]
        _draw_errors(above, found, trials)
        _draw_seconds(below, found, trials)
        above.set_title("" if k is None else counted(k, "neighbor"), fontsize=11)
        labelled |= {label: handle for handle, label in zip(*above.get_legend_handles_labels(), strict=True)}
    panels[0, 0].set_ylabel("error (mean ± standard error)")
    panels[1, 0].set(ylabel="time of a fit, s", ylim=(0, 1.1 * max(trial.seconds for trial in found.trials)))
    _set_scale(panels[0, 0], found)
    figure.legend(list(labelled.values()), list(labelled), loc="outside right upper", frameon=False, fontsize=9)
    title = f"{Path(settings.source).name}: {settings.method}, {counted(settings.n_components, 'component')}"
    figure.suptitle(f"{title}; a sample of {found.n_training:,} of {found.n_rows:,} rows", fontsize=12)
    return _png(figure)


def _draw_errors(axes: "Axes", found: "Study", trials: "list[Trial]") -> None:
    for selection in dict.fromkeys(trial.selection for trial in trials):
        mine = sorted((t for t in trials if t.selection == selection), key=lambda t: t.n_landmarks)
        sizes, errors = [t.n_landmarks for t in mine], [t.error for t in mine]
        values, spreads = [e.value for e in errors], [e.standard_error for e in errors]
        axes.errorbar(sizes, values, yerr=spreads, marker="o", markersize=4, capsize=2, linewidth=1.2, label=selection)
    axes.axhspan(0, found.limit, color="0.92", zorder=0, label="as good as the best")
    if found.recommended in trials:
        _mark(axes, found.recommended.n_landmarks, found.recommended.error.value, "recommended")


def _draw_seconds(axes: "Axes", found: "Study", trials: "list[Trial]") -> None:
    sizes = sorted({trial.n_landmarks for trial in trials})
    slowest = [max(trial.seconds for trial in trials if trial.n_landmarks == m) for m in sizes]
    axes.plot(sizes, slowest, color="0.4", marker="o", markersize=3, linewidth=1.2)
    if found.recommended in trials:
        _mark(axes, found.recommended.n_landmarks, found.recommended.seconds, None)
    axes.set(xscale="log", xlabel="landmarks")
    axes.set_xticks(sizes, [f"{m:,}" for m in sizes])
    axes.minorticks_off()


def _mark(axes: "Axes", x: float, y: float, label: str | None) -> None:
    """A ring around a point."""
    axes.plot([x], [y], "o", markersize=13, markerfacecolor="none", markeredgecolor="black", label=label)


def _set_scale(axes: "Axes", found: "Study") -> None:
    """From 0 where errors are alike, else by factors."""
    values = [trial.error.value for trial in found.trials]
    if min(values) > 0 and max(values) > FACTORS * min(values):
        axes.set(yscale="log", ylim=(min(values) / 1.3, max(values) * 1.3))
        from matplotlib.ticker import LogFormatter

        for show in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            show(LogFormatter(minor_thresholds=(2, 0.7)))
    else:
        axes.set_ylim(0, 1.15 * max(values))


def swiss_roll_picture(roll: "SwissRoll", coordinates: FloatArray) -> bytes:
    """The roll in space; beside it the sheet it was made from and the sheet that was found, colored alike."""
    figure = _empty_figure(11, 4.2)
    grid = figure.add_gridspec(2, 2, width_ratios=[1, 1.7])
    color = roll.sheet[:, 0]
    shown = np.random.default_rng(0).permutation(len(color))[:6000]
    rolled: Any = figure.add_subplot(grid[:, 0], projection="3d", computed_zorder=False)
    rolled.scatter(*roll.points[shown].T, c=color[shown], s=3, cmap="viridis")
    rolled.view_init(10, -75)
    rolled.set_box_aspect((1, 0.9, 1), zoom=1.35)
    rolled.set_title(f"{len(color):,} points in space", y=0.98)
    rolled.set_axis_off()
    # An embedding is known up to reflections: turned so that both sheets read the same way.
    turned = coordinates * np.sign(np.einsum("ij,ij->j", coordinates, roll.sheet - roll.sheet.mean(axis=0)))
    for row, (sheet, title) in enumerate(
        ((roll.sheet, "the sheet it was rolled from"), (turned, "as it was unrolled"))
    ):
        axes = figure.add_subplot(grid[row, 1])
        x, y = sheet[shown].T
        axes.scatter(x, y, c=color[shown], s=3, cmap="viridis")
        axes.set(aspect="equal", title=title, xticks=[], yticks=[])
    return _png(figure)
