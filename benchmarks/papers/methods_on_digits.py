"""Every method on handwritten digits, with new ones placed among them [G fig. 2, 3]

    TRIGPOINT_DATA=... python -m benchmarks.papers.methods_on_digits [picture.png]

Each method embeds 200 training images of each digit of MNIST, all of them landmarks, in two dimensions, and places 50
test images of each.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.spatial.distance import cdist

from benchmarks.papers.data import arrays
from benchmarks.papers.embedding import Embedding, fitted, measured, nearest_columns, studied
from benchmarks.papers.pictures import save
from pipeline.methods import METHODS
from pipeline.numerics.extension.interpolation import kernel_mapping
from pipeline.numerics.models.metrics import Kernel
from pipeline.numerics.statistics import residual_variance
from pipeline.types import AnyArray, FloatArray, IntArray

N_TRAINING_OF_EACH, N_NEW_OF_EACH = 200, 50
# The images that MNIST has for training come first.
FIRST_TEST_IMAGE = 60_000
# Those of which the tutorial draws new points. Its second extension for them has kernels that many times as wide as
# landmarks are apart; it calls for "a small positive number". None is what the landmarks themselves tell.
BY_KERNEL_MAPPING, WIDTHS = ("mds", "isomap"), (None, 1.0)
# Other edges of new points: their own only, and those of a graph of all images, which is what the tutorial took.
OTHER_EDGES = {"projection, own edges": "own", "projection, graph of all": "all"}
NOT_DRAWN = ("kernel-mapping, width 1", *OTHER_EDGES)
N_ACROSS = 4
# Percent of the points at either end of an axis that may lie outside of a panel: some methods have far outliers.
OUTSIDE = 0.5


class Digits(NamedTuple):
    """Images (n, 784), the digit that each shows, and how many of them, the first, are for training."""

    images: AnyArray
    labels: IntArray
    n_training: int


class Figures(NamedTuple):
    """1-nearest-neighbor accuracy of new points, residual variances, and how far the new points' mean is shifted."""

    accuracy: float
    of_training: float
    of_new: float
    shift: float


class Panel(NamedTuple):
    """Coordinates of training and of new points by one method and extension."""

    method: str
    extension: str
    training: FloatArray
    new: FloatArray


def digits(n_training_of_each: int = N_TRAINING_OF_EACH, n_new_of_each: int = N_NEW_OF_EACH) -> Digits:
    """The first images of each digit."""
    data = arrays("mnist70k")
    labels = data["y"].astype(np.int64)
    training = first_of_each(labels[:FIRST_TEST_IMAGE], n_training_of_each)
    new = FIRST_TEST_IMAGE + first_of_each(labels[FIRST_TEST_IMAGE:], n_new_of_each)
    rows = np.concatenate([training, new])
    return Digits(data["X"][rows], labels[rows], len(training))


def first_of_each(labels: IntArray, n_of_each: int) -> IntArray:
    """The first rows with each of the labels, label by label."""
    return np.concatenate([np.flatnonzero(labels == label)[:n_of_each] for label in np.unique(labels)])


def embeddings(chosen: Digits) -> Iterator[tuple[str, str, Embedding]]:
    """Method, extension and embedding, one after the other."""
    straight, by_kernel = measured(chosen.images), measured(chosen.images, Kernel("cosine"))
    training = np.arange(chosen.n_training)
    for method in METHODS:
        embedding = fitted(studied(method, 2), by_kernel if method == "kernel-mds" else straight, training)
        yield method, METHODS[method].extensions[0], embedding
        if method == "isomap":
            for name, edges in OTHER_EDGES.items():
                yield method, name, replace(embedding, studied=replace(embedding.studied, new_edges=edges))
        if method in BY_KERNEL_MAPPING:
            for width in WIDTHS:
                mapping = kernel_mapping(embedding.between, embedding.coordinates, width)
                name = "kernel-mapping" if width is None else f"kernel-mapping, width {width:g}"
                yield method, name, replace(embedding, model=mapping)


def figures(embedding: Embedding, labels: IntArray) -> tuple[Figures, FloatArray]:
    """Of an embedding of the first rows of a data set, the other rows being new; and where these are placed."""
    training, others = embedding.training, np.arange(len(embedding.training), len(labels))
    placed = embedding.placed(others)
    nearest = nearest_columns(cdist(placed, embedding.coordinates), 1)[:, 0]
    where = embedding.coordinates
    found = Figures(
        float((labels[training][nearest] == labels[others]).mean()),
        float(residual_variance(embedding.between, where, where)[-1]),
        float(residual_variance(embedding.to_training(others), placed, where)[-1]),
        float(np.linalg.norm(placed.mean(axis=0) - where.mean(axis=0)) / embedding.spread),
    )
    return found, placed


def distance_from_principal_components(embedding: Embedding) -> float:
    """Largest difference of coordinates from the scores of principal components, up to their signs, in spreads."""
    rows, where = embedding.data.rows[embedding.training], embedding.coordinates
    left, sizes, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    scores = left[:, : where.shape[1]] * sizes[: where.shape[1]]
    signs = np.sign((scores * where).sum(axis=0))
    return float(np.abs(scores * signs - where).max() / embedding.spread)


def main() -> None:
    chosen = digits()
    print("| method | extension | 1-NN accuracy | residual variance | of new points | drop | shift of the mean |")
    print("|---|---|---|---|---|---|---|")
    panels = []
    for method, extension, embedding in embeddings(chosen):
        found, placed = figures(embedding, chosen.labels)
        _print_row(method, extension, found)
        panels.append(Panel(method, extension, embedding.coordinates, placed))
        if (method, extension) == ("mds", "projection"):
            distance = distance_from_principal_components(embedding)
    print(f"Classical scaling is principal components, to {distance:.0e} of the spread.")
    if len(sys.argv) > 1:
        draw([panel for panel in panels if panel.extension not in NOT_DRAWN], chosen, Path(sys.argv[1]))


def _print_row(method: str, extension: str, found: Figures) -> None:
    fit = f"{found.of_training:.3f} | {found.of_new:.3f} | {found.of_new - found.of_training:+.3f}"
    print(f"| {method} | {extension} | {found.accuracy:.1%} | {fit} | {found.shift:.1%} |", flush=True)


def draw(panels: list[Panel], chosen: Digits, path: Path) -> None:
    n_lines = -(-len(panels) // N_ACROSS)
    figure = Figure(figsize=(9, 2.35 * n_lines + 0.5), layout="constrained")
    grid = figure.subplots(n_lines, N_ACROSS, squeeze=False).flat
    for axes in grid:
        axes.set_axis_off()
    for axes, panel in zip(figure.axes, panels, strict=False):
        _draw_panel(axes, panel, chosen)
    marks = [Line2D([], [], linestyle="", marker="o", color=f"C{digit}", label=str(digit)) for digit in range(10)]
    figure.legend(handles=marks, loc="outside upper center", ncols=10, frameon=False, columnspacing=1, handletextpad=0)
    save(figure, path, dpi=90)


def _draw_panel(axes: Axes, panel: Panel, chosen: Digits) -> None:
    """Training points faint, new ones strong, as the tutorial draws them."""
    colors = np.array([f"C{digit}" for digit in chosen.labels])
    axes.set_axis_on()
    old_x, old_y, new_x, new_y = *panel.training.T, *panel.new.T
    axes.scatter(old_x, old_y, s=3, c=colors[: chosen.n_training], alpha=0.25, linewidths=0)
    axes.scatter(new_x, new_y, s=5, c=colors[chosen.n_training :], linewidths=0)
    low, high = np.percentile(np.concatenate([panel.training, panel.new]), [OUTSIDE, 100 - OUTSIDE], axis=0)
    (left, bottom), (right, top) = low - 0.08 * (high - low), high + 0.08 * (high - low)
    axes.set(xticks=[], yticks=[], xlim=(left, right), ylim=(bottom, top))
    axes.set_title(f"{panel.method}\n{panel.extension}", fontsize="small")


if __name__ == "__main__":
    main()
