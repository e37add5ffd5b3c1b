"""Pictures: embeddings and images along a path, as PNG."""

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.results.run import Run, open_run
from pipeline.settings import InvertSettings
from pipeline.types import AnyArray, FloatArray, IntArray

if TYPE_CHECKING:  # matplotlib takes a second to import: only what draws waits for it
    from matplotlib.figure import Figure

    from pipeline.numerics.datasets import SwissRoll
    from pipeline.sources.source import Source

# Images side by side at most; a longer strip goes on below. And steps that a picture shows: more than can be looked at
# take long to draw.
MOST_IN_A_ROW, MOST_SHOWN = 13, 24


def empty_figure(width: float, height: float) -> "Figure":
    """A figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def png_of(figure: "Figure", dpi: int = 110) -> bytes:
    """A figure as a PNG."""
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
    figure = empty_figure(8, 5)
    axes = figure.add_subplot()
    # A few far ones would leave all others in one color.
    ceiling = float(np.quantile(gaps, 0.99)) or 1.0
    points = axes.scatter(x, y, c=gaps[order], s=4, cmap="viridis", vmin=0, vmax=ceiling)
    axes.set(aspect="equal", xlabel="component 1", ylabel="component 2", title=_title(run, len(x)))
    if others:
        label = "distance between projection and restricted reconstruction"
        figure.colorbar(points, label=label, location="bottom", shrink=0.6, aspect=40)
    return png_of(figure)


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
    figure = empty_figure(0.8 * n_shown, 1.0 * n_lines)
    for place, image in enumerate(images, 1):
        axes = figure.add_subplot(n_lines, n_shown, place)
        axes.imshow(image, cmap="gray", vmin=low, vmax=high)
        axes.set_axis_off()
    for axes, row in zip((figure.axes[0], figure.axes[-1]), settings.path or (), strict=True):
        axes.set_title(f"row {row}", fontsize=7)
    return png_of(figure, dpi=100)


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


def swiss_roll_picture(roll: "SwissRoll", coordinates: FloatArray) -> bytes:
    """The roll in space; beside it the sheet it was made from and the sheet that was found, colored alike."""
    figure = empty_figure(11, 4.2)
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
    return png_of(figure)
