"""A study as a picture."""

import io
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from flows.study import counted
from pipeline.jobs.study import Study, Trial
from pipeline.settings import StudySettings

# Errors that differ by more than this factor are drawn on a logarithmic scale.
FACTORS = 5.0


def study_picture(settings: StudySettings, found: Study) -> bytes:
    """A PNG: errors against the number of landmarks, a panel for each number of neighbors, above what a fit takes."""
    counts = list(dict.fromkeys(trial.n_neighbors for trial in found.trials))
    figure = Figure(figsize=(3.4 + 3.6 * len(counts), 6), layout="constrained")
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
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _draw_errors(axes: Axes, found: Study, trials: list[Trial]) -> None:
    for selection in dict.fromkeys(trial.selection for trial in trials):
        mine = sorted((t for t in trials if t.selection == selection), key=lambda t: t.n_landmarks)
        sizes, errors = [t.n_landmarks for t in mine], [t.error for t in mine]
        values, spreads = [e.value for e in errors], [e.standard_error for e in errors]
        axes.errorbar(sizes, values, yerr=spreads, marker="o", markersize=4, capsize=2, linewidth=1.2, label=selection)
    axes.axhspan(0, found.limit, color="0.92", zorder=0, label="as good as the best")
    if found.recommended in trials:
        _mark(axes, found.recommended.n_landmarks, found.recommended.error.value, "recommended")


def _draw_seconds(axes: Axes, found: Study, trials: list[Trial]) -> None:
    sizes = sorted({trial.n_landmarks for trial in trials})
    slowest = [max(trial.seconds for trial in trials if trial.n_landmarks == m) for m in sizes]
    axes.plot(sizes, slowest, color="0.4", marker="o", markersize=3, linewidth=1.2)
    if found.recommended in trials:
        _mark(axes, found.recommended.n_landmarks, found.recommended.seconds, None)
    axes.set(xscale="log", xlabel="landmarks")
    axes.set_xticks(sizes, [f"{m:,}" for m in sizes])
    axes.minorticks_off()


def _mark(axes: Axes, x: float, y: float, label: str | None) -> None:
    """A ring around a point."""
    axes.plot([x], [y], "o", markersize=13, markerfacecolor="none", markeredgecolor="black", label=label)


def _set_scale(axes: Axes, found: Study) -> None:
    """From 0 where errors are alike, else by factors."""
    values = [trial.error.value for trial in found.trials]
    if min(values) > 0 and max(values) > FACTORS * min(values):
        axes.set(yscale="log", ylim=(min(values) / 1.3, max(values) * 1.3))
        for show in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            show(LogFormatter(minor_thresholds=(2, 0.7)))
    else:
        axes.set_ylim(0, 1.15 * max(values))
