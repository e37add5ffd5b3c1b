"""The two answers for a new point, and the arc between them [T ex. 1, 2, sec. 5, 6]

python -m benchmarks.papers.two_answers [picture.png]
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from benchmarks.papers.pictures import save
from pipeline.numerics.extension import (
    joint_restricted_reconstruction,
    project,
    reconstruction_arc,
    restricted_reconstruction,
)
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.types import FloatArray

# [T ex. 1]: (-1, 0) and (1, 0) are fitted on a line, and (0, 9) is new.
PAIR, ABOVE_PAIR, ABOVE_AND_BELOW = [[0, 4], [4, 0]], [82, 82], [[0, 324], [324, 0]]
# [T ex. 2]: four objects in the plane that are a tetrahedron in space, and a fifth far above them.
FOUR = [[0, 100, 45, 45], [100, 0, 45, 45], [45, 45, 0, 64], [45, 45, 64, 0]]
ABOVE_FOUR = [386, 386, 457, 457]
TETRAHEDRON = np.array([[5.0, 0, 1], [-5, 0, 1], [0, 4, -1], [0, -4, -1]])
# Points as high as that, but not above the middle, each with an arc of its own.
BESIDE_FOUR = np.array([[1.0, 1, 20], [3, 1, 20], [1, -1.5, 20], [4, -1, 20], [-2.5, 1, 20], [-4, -2, 20]])
N_STEPS = 60


class Compared(NamedTuple):
    """What the paper says, if anything, and the numbers that this project gives."""

    what: str
    paper: str
    found: FloatArray


def best_line() -> float:
    """[T ex. 1] with PCA as the search for a line: where (0, 9) comes to lie if the two points stay as they are.

    Of f(theta, y) = 1.5 y^2 - 18 y sin(theta) - 4 cos(theta) + 58 the y at which it is least is 6 sin(theta).
    """

    def misfit(theta: float) -> float:
        return float(-54 * np.sin(theta) ** 2 - 4 * np.cos(theta) + 58)

    theta = minimize_scalar(misfit, bounds=(0, np.pi), method="bounded", options={"xatol": 1e-12}).x
    return float(1.5 * 6 * np.sin(theta))


def pair_of_answers(model: LandmarkModel, to_landmarks: list[int]) -> tuple[FloatArray, FloatArray]:
    """Projection (d,) and restricted reconstruction (d,) of one point."""
    return project(model, [to_landmarks])[0], restricted_reconstruction(model, [to_landmarks]).coordinates[0]


def compared() -> list[Compared]:
    line, plane = classical_mds(PAIR, 1), classical_mds(FOUR, 2)
    on_line, on_plane = pair_of_answers(line, ABOVE_PAIR), pair_of_answers(plane, ABOVE_FOUR)
    joint = joint_restricted_reconstruction(line, [ABOVE_PAIR, ABOVE_PAIR], ABOVE_AND_BELOW).coordinates
    multipliers = restricted_reconstruction(plane, [ABOVE_FOUR]).multipliers
    return [
        Compared("example 1, projection", "0", on_line[0]),
        Compared("example 1, restricted reconstruction as the best line", "±8.994", np.array([best_line()])),
        Compared("example 1, restricted reconstruction of inner products", "", on_line[1]),
        Compared("section 6, opposite points together", "", joint[:, 0]),
        Compared("example 2, landmarks", "(5, 0), (-5, 0), (0, 4), (0, -4)", plane.coordinates.ravel()),
        Compared("example 2, projection", "(0, 0)", on_plane[0]),
        Compared("example 2, restricted reconstruction", "(0, ±19.2)", on_plane[1]),
        Compared("example 2, multiplier", "", multipliers),
    ]


def arcs() -> list[FloatArray]:
    """From one answer to the other, of points as high above the four as the paper's but not above their middle."""
    plane = classical_mds(FOUR, 2)
    squared = ((BESIDE_FOUR[:, None] - TETRAHEDRON) ** 2).sum(axis=2)
    return [reconstruction_arc(plane, to_landmarks, N_STEPS) for to_landmarks in squared]


def main() -> None:
    print("| | paper | here |")
    print("|---|---|---|")
    for what, paper, found in compared():
        print(f"| {what} | {paper} | {', '.join(f'{value + 0.0:.4f}' for value in found.round(10))} |")
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]))


def draw(path: Path) -> None:
    figure = Figure(figsize=(8, 4.3), layout="constrained")
    line, first, second = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    _draw_line(line)
    _draw_plane(first, "Example 2", [reconstruction_arc(classical_mds(FOUR, 2), ABOVE_FOUR, N_STEPS)])
    first.plot([0, 0], [0, -np.sqrt(368)], ":", color="C3", linewidth=1)
    first.plot(0, -np.sqrt(368), "^", color="C3", markerfacecolor="none", label="as good")
    first.annotate("√368", (0, np.sqrt(368)), (7, -4), textcoords="offset points")
    _draw_plane(second, "Not above the middle", arcs())
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    save(figure, path)


def _draw_line(axes: Axes) -> None:
    """Example 1: the plane that the points are in, and the line that they are to be represented on."""
    model = classical_mds(PAIR, 1)
    arc = reconstruction_arc(model, ABOVE_PAIR, N_STEPS)[:, 0]
    axes.axhline(0, color="0.7", linewidth=0.8)
    axes.plot([0, 0], [9, 0], ":", color="0.5", linewidth=1)
    axes.plot(0, 9, "*", color="black", markersize=9)
    axes.annotate("η = (0, 9)", (0, 9), (8, -3), textcoords="offset points")
    axes.plot(model.coordinates[:, 0], [0, 0], "o", color="C0")
    axes.plot(arc, np.zeros_like(arc), "-", color="C1")
    axes.plot(arc[0], 0, "s", color="C2")
    axes.plot(arc[-1], 0, "^", color="C3")
    axes.plot(-arc[-1], 0, "^", color="C3", markerfacecolor="none")
    axes.annotate("√79", (arc[-1], 0), (0, 8), textcoords="offset points", ha="center")
    axes.annotate("-√79", (-arc[-1], 0), (0, 8), textcoords="offset points", ha="center")
    axes.set(title="Example 1", xlim=(-11, 11), ylim=(-3, 11), aspect="equal")


def _draw_plane(axes: Axes, title: str, curves: list[FloatArray]) -> None:
    ends = np.array([[curve[0], curve[-1]] for curve in curves])
    for curve in curves[1:]:
        axes.plot(*curve.T, "-", color="C1", linewidth=1.2)
    axes.plot(*curves[0].T, "-", color="C1", linewidth=1.2, label="arc")
    axes.plot(*classical_mds(FOUR, 2).coordinates.T, "o", color="C0", label="landmarks")
    axes.plot(*ends[:, 0].T, "s", color="C2", markersize=5, label="projection")
    axes.plot(*ends[:, 1].T, "^", color="C3", label="restricted reconstruction")
    axes.set(title=title, xlim=(-13, 13), ylim=(-22, 22), aspect="equal")


if __name__ == "__main__":
    main()
