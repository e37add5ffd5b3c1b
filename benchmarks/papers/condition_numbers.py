"""Condition of the interpolation matrix by the Gaussian and by the cubic [M fig. 1, 2]

python -m benchmarks.papers.condition_numbers [picture.png]

Points are random on the quadrant of the unit sphere with no negative coordinate. First more and more of them, so that
they come closer, with a Gaussian of fixed scale; then 200 of them, with a Gaussian of each scale. The cubic has none.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.leave_one_out import local_fill_distance
from benchmarks.papers.pictures import save
from pipeline.numerics.inverse.interpolant import CUBIC, stencils
from pipeline.numerics.inverse.neighborhood import Kernel, apply_radial
from pipeline.numerics.models.metrics import squared_distances
from pipeline.types import FloatArray

DIMENSIONS, SIZES, SCALES = (5, 20, 100), (10, 20, 50, 100, 200, 500, 1000), np.logspace(-3, 1, 17)
FIXED_SCALE, FIXED_SIZE = 1e-2, 200
# The reciprocal of the rounding of double precision. Condition numbers above it are of that order, whatever the matrix.
MEASURABLE = 1 / float(np.finfo(np.float64).eps)


class Condition(NamedTuple):
    """Condition numbers in the 2-norm of K [M eq. 7] for points with a fill distance and a scale of the Gaussian."""

    n_points: int
    fill_distance: float
    scale: float
    gaussian: float
    cubic: float


def first_quadrant(n: int, dimension: int, seed: int = 0) -> FloatArray:
    """Points of the unit sphere with no negative coordinate."""
    points = np.abs(np.random.default_rng(seed).normal(size=(n, dimension)))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def interpolation_matrix(points: FloatArray, kernel: Kernel) -> FloatArray:
    """K (n, n) without a polynomial [M eq. 7], the kernel's scale in units of length."""
    matrix = squared_distances(points, points)
    for row in matrix:
        apply_radial(kernel.radial(), 1.0, row)
    return matrix


def condition(points: FloatArray, scale: float) -> Condition:
    gaussian, cubic = (
        float(np.linalg.cond(interpolation_matrix(points, kernel)))
        for kernel in (Kernel("gaussian", scale=scale), CUBIC)
    )
    return Condition(len(points), local_fill_distance(points), scale, gaussian, cubic)


def reported_condition(points: FloatArray) -> float:
    """What the inverse map says of the cubic's system with its linear part, in the 1-norm."""
    return float(stencils(points[:1], points, np.arange(len(points))[None]).condition[0])


def of_sizes(dimension: int) -> list[Condition]:
    """[M fig. 1], a panel."""
    return [condition(first_quadrant(n, dimension), FIXED_SCALE) for n in SIZES]


def of_scales(dimension: int) -> list[Condition]:
    """[M fig. 2], a panel."""
    points = first_quadrant(FIXED_SIZE, dimension)
    return [condition(points, float(scale)) for scale in SCALES]


def main() -> None:
    found = {dimension: (of_sizes(dimension), of_scales(dimension)) for dimension in DIMENSIONS}
    print(f"| D | n | local fill distance | Gaussian, scale {FIXED_SCALE:g} | cubic | cubic with linear part |")
    print("|---|---|---|---|---|---|")
    for dimension, (sizes, _) in found.items():
        for at in sizes:
            reported = reported_condition(first_quadrant(at.n_points, dimension))
            figures = f"{at.gaussian:.1e} | {at.cubic:.1e} | {reported:.1e}"
            print(f"| {dimension} | {at.n_points} | {at.fill_distance:.3f} | {figures} |")
    print(f"\n| D | scale, n = {FIXED_SIZE} | Gaussian | cubic |\n|---|---|---|---|")
    for dimension, (_, scales) in found.items():
        for at in scales[::2]:
            print(f"| {dimension} | {at.scale:.2g} | {at.gaussian:.1e} | {at.cubic:.1e} |")
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


def draw(found: dict[int, tuple[list[Condition], list[Condition]]], path: Path) -> None:
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    grid = figure.subplots(2, len(found), sharey=True)
    for column, (dimension, (sizes, scales)) in enumerate(found.items()):
        _draw_panel(grid[0, column], [at.fill_distance for at in sizes], sizes)
        _draw_panel(grid[1, column], [at.scale for at in scales], scales)
        grid[0, column].set(title=f"D = {dimension}", xlabel="local fill distance")
        grid[1, column].set(xlabel="scale ε of the Gaussian", xscale="log")
    grid[0, 0].set_ylabel(f"condition number, ε = {FIXED_SCALE:g}\n{SIZES[0]} to {SIZES[-1]:,} points")
    grid[1, 0].set_ylabel(f"condition number\n{FIXED_SIZE} points")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    save(figure, path)


def _draw_panel(axes: Axes, places: list[float], conditions: list[Condition]) -> None:
    axes.semilogy(places, [at.gaussian for at in conditions], "o-", markersize=4, linewidth=1.2, label="Gaussian")
    axes.semilogy(places, [at.cubic for at in conditions], "*-", markersize=6, linewidth=1.2, label="cubic")
    axes.axhline(MEASURABLE, color="0.5", linestyle=":", linewidth=1, label="1 / rounding of double precision")
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    main()
