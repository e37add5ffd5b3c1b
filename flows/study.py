"""What a study says: for programs, in lines for people and in a picture."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from flows.pictures import empty_figure, png_of
from flows.reports import counted, dimension_lines
from flows.terminal import Say, command_line
from pipeline.fanout.execution import executor
from pipeline.jobs.study import Study, Trial, study
from pipeline.numerics.dimension import described_dimension
from pipeline.numerics.statistics import NEGLIGIBLE, NEIGHBORHOOD, TOLERANCE
from pipeline.results.run import in_words
from pipeline.settings import ClusterSettings, FitSettings, StudySettings
from pipeline.types import Json

if TYPE_CHECKING:  # matplotlib takes a second to import: only what draws waits for it
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

MEASURES = {
    "unexplained_variance": "the share of the variance of {distances} between held-out rows that distances in the "
    "embedding do not explain",
    "unexplained_order": "the share of the variance of the order of {distances} between held-out rows that distances "
    "in the embedding do not explain",
    "lost_neighbors": f"the share of the {NEIGHBORHOOD} held-out rows nearest to each by {{distances}} that are not "
    "nearest in the embedding",
}
RECOMMENDED, CLOSE = "*", "+"
# Errors that differ by more than this factor are drawn on a logarithmic scale.
FACTORS = 5.0
# Settings of a fit that the study itself decides, or that its command line names first.
DECIDED = ("source", "store", "cluster", "n_landmarks", "landmark_selection", "n_neighbors", "gamma")


def study_report(settings: StudySettings, picture: Path | None, say: Say) -> tuple[Json, list[str]]:
    """Study as the settings say; what came of it, for programs and in lines."""
    with executor(ClusterSettings(kind="auto")) as execute:
        found = study(settings, say, execute=execute)
    command = command_line(["fit", *fit_arguments(settings, found)])
    lines = [*_introduction(settings, found), *_tables(found), *_conclusion(settings, found), f"  {command}"]
    if picture is not None:
        picture.write_bytes(study_picture(settings, found))
        lines.append(f"The picture is in {picture}.")
    return _described(settings, found, command), lines


def fit_arguments(settings: StudySettings, found: Study) -> list[str]:
    """The arguments of the recommended fit: what the study was told about it, and what it decided."""
    trial = found.recommended
    decided: dict[str, object] = {
        "store": settings.store,
        "n_landmarks": trial.n_landmarks,
        "landmark_selection": trial.selection,
    }
    decided |= {} if trial.n_neighbors is None else {"n_neighbors": trial.n_neighbors}
    decided |= {"n_components": found.n_components} if settings.n_components == "auto" else {}
    gamma = settings.gamma if found.gamma is None else found.gamma
    decided |= {} if gamma == "auto" else {"gamma": gamma}
    told = dict(settings.changed(name for name in FitSettings.model_fields if name not in {*DECIDED, *decided}))
    changed = settings.cluster.changed(ClusterSettings.model_fields)
    cluster = {f"cluster_{name}": value for name, value in changed}
    options = (_option(name, value) for name, value in (decided | told | cluster).items())
    return [settings.source, *(part for option in options for part in option)]


def _option(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag]
    if isinstance(value, float):
        return [flag, f"{value:.12g}"]
    return [flag, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def _introduction(settings: StudySettings, found: Study) -> list[str]:
    distances = "path lengths" if settings.is_geodesic else "dissimilarities"
    return [
        f"A sample of {settings.source}: landmarks are chosen among {found.n_training:,} of its {found.n_rows:,} rows, "
        f"{found.n_held_out:,} others are held out and placed ({settings.method}, "
        f"{counted(found.n_components, 'component')}).",
        f"Error: {MEASURES[found.measure].format(distances=distances)}; 0 is perfect. Mean of {settings.repeats} "
        "choices of landmarks.",
        "Time: of a fit of all rows, as `trigpoint plan` expects it.",
        *dimension_lines({"intrinsic_dimension": described_dimension(found.intrinsic_dimension)}),
    ]


def _tables(found: Study) -> list[str]:
    """A table for each number of neighbors: landmarks down, selections across."""
    lines = []
    selections = list(dict.fromkeys(trial.selection for trial in found.trials))
    for k in dict.fromkeys(trial.n_neighbors for trial in found.trials):
        trials = {(t.n_landmarks, t.selection): t for t in found.trials if t.n_neighbors == k}
        lines += ["", *([] if k is None else [f"{counted(k, 'neighbor')}:"])]
        lines.append(f"  {'landmarks':>9} {'time':>7} " + "".join(f"{selection:>12}" for selection in selections))
        for m in sorted({m for m, _ in trials}):
            seconds = max(trials[m, s].seconds for s in selections if (m, s) in trials)
            cells = (_cell(found, trials.get((m, selection))) for selection in selections)
            lines.append(f"  {m:>9,} {_in_words(seconds):>7} " + "".join(cells))
    return [*lines, f"{RECOMMENDED} recommended, {CLOSE} as good as the best", ""]


def _cell(found: Study, trial: Trial | None) -> str:
    if trial is None:
        return f"{'-':>11} "
    mark = RECOMMENDED if trial == found.recommended else CLOSE if trial in found.close else " "
    return f"{_number(found, trial.error.value):>11}{mark}"


def _number(found: Study, error: float) -> str:
    """An error with as many digits as tell the best ones apart."""
    digits = 2 - math.floor(math.log10(max(1e-9, found.best.error.value)))
    return f"{error:.{min(8, max(3, digits))}f}"


def _conclusion(settings: StudySettings, found: Study) -> list[str]:
    best, recommended = found.best, found.recommended
    lines = [f"Left out. {reason}" for reason in found.left_out]
    if best != recommended:
        lines.append(f"Best: {_told_of(found, best)}.")
    lines.append(
        f"Recommended: {_told_of(found, recommended)}. Of those as good as the best (within {TOLERANCE:.0%} or "
        f"{NEGLIGIBLE:g} of it) no other is cheaper by more than a tenth."
    )
    if found.still_falling:
        lines.append("Only the largest number of landmarks is as good as the best: try more with --landmarks.")
    if found.n_training + found.n_held_out < found.n_rows:
        lines.append(
            "This is a sample: as many landmarks serve all rows, but among all rows neighbors are nearer and the error "
            "is lower."
        )
    lines += [*_components_lines(found), *_connectivity_lines(settings, found)]
    return [*lines, f"Without --n-landmarks a fit would take {found.automatic:,}. To fit as recommended:"]


def _components_lines(found: Study) -> list[str]:
    """What other numbers of components would do."""
    if len(found.by_components) < 2:
        return []
    shown = ", ".join(f"{d}: {error.value:.2g}" for d, error in found.by_components)
    return [f"Error by number of components, all else as recommended: {shown}."]


def _connectivity_lines(settings: StudySettings, found: Study) -> list[str]:
    """In how many pieces the graph of all rows is, and what becomes of that."""
    checked = found.connectivity
    if checked is None:
        return []
    neighbors = counted(checked.n_neighbors, "neighbor")
    if checked.n_components is None:
        return [
            f"Whether the graph of all rows is in one piece with {neighbors} was not checked: that would take "
            f"{in_words(checked.seconds)}."
        ]
    if checked.n_components == 1:
        return [f"The graph of all rows is in one piece with {neighbors}."]
    then = {"bridge": "links will join them", "largest": "only the largest will be embedded", "error": "refused"}
    pieces = f"{checked.n_components:,} pieces with {neighbors}"
    return [f"The graph of all rows is in {pieces}: {then[settings.component_policy]}."]


def _told_of(found: Study, trial: Trial) -> str:
    neighbors = "" if trial.n_neighbors is None else f", {counted(trial.n_neighbors, 'neighbor')}"
    error, spread = (_number(found, value) for value in trial.error)
    return (
        f"{counted(trial.n_landmarks, 'landmark')} by {trial.selection}{neighbors}: error {error} ± {spread}, about "
        f"{_in_words(trial.seconds)}"
    )


def _in_words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else in_words(seconds)


def _described(settings: StudySettings, found: Study, command: str) -> Json:
    return {
        "source": settings.source,
        "n_rows": found.n_rows,
        "n_sampled": found.n_training,
        "n_held_out": found.n_held_out,
        "n_components": found.n_components,
        "measure": found.measure,
        "trials": [_described_trial(trial) for trial in found.trials],
        "left_out": list(found.left_out),
        "best": _described_trial(found.best),
        "recommended": _described_trial(found.recommended),
        "still_falling": found.still_falling,
        "automatic": found.automatic,
        "intrinsic_dimension": described_dimension(found.intrinsic_dimension),
        "components": [{"n_components": d, "error": error.value} for d, error in found.by_components],
        "connectivity": None if found.connectivity is None else found.connectivity._asdict(),
        "command": command,
    }


def _described_trial(trial: Trial) -> Json:
    return {
        "selection": trial.selection,
        "n_landmarks": trial.n_landmarks,
        "n_neighbors": trial.n_neighbors,
        "error": trial.error.value,
        "standard_error": trial.error.standard_error,
        "errors": list(trial.errors),
        "n_evaluations": trial.n_evaluations,
        "seconds": trial.seconds,
    }


def study_picture(settings: StudySettings, found: Study) -> bytes:
    """A PNG: errors against the number of landmarks, a panel for each number of neighbors, above what a fit takes."""
    counts = list(dict.fromkeys(trial.n_neighbors for trial in found.trials))
    figure = empty_figure(3.4 + 3.6 * len(counts), 6)
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
    title = f"{Path(settings.source).name}: {settings.method}, {counted(found.n_components, 'component')}"
    figure.suptitle(f"{title}; a sample of {found.n_training:,} of {found.n_rows:,} rows", fontsize=12)
    return png_of(figure)


def _draw_errors(axes: "Axes", found: Study, trials: list[Trial]) -> None:
    for selection in dict.fromkeys(trial.selection for trial in trials):
        mine = sorted((t for t in trials if t.selection == selection), key=lambda t: t.n_landmarks)
        sizes, errors = [t.n_landmarks for t in mine], [t.error for t in mine]
        values, spreads = [e.value for e in errors], [e.standard_error for e in errors]
        axes.errorbar(sizes, values, yerr=spreads, marker="o", markersize=4, capsize=2, linewidth=1.2, label=selection)
    axes.axhspan(0, found.limit, color="0.92", zorder=0, label="as good as the best")
    if found.recommended in trials:
        _mark(axes, found.recommended.n_landmarks, found.recommended.error.value, "recommended")


def _draw_seconds(axes: "Axes", found: Study, trials: list[Trial]) -> None:
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


def _set_scale(axes: "Axes", found: Study) -> None:
    """From 0 where errors are alike, else by factors."""
    values = [trial.error.value for trial in found.trials]
    if min(values) > 0 and max(values) > FACTORS * min(values):
        axes.set(yscale="log", ylim=(min(values) / 1.3, max(values) * 1.3))
        from matplotlib.ticker import LogFormatter

        for show in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            show(LogFormatter(minor_thresholds=(2, 0.7)))
    else:
        axes.set_ylim(0, 1.15 * max(values))
