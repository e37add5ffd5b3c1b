"""The inverse map's convergence and conditioning, drawn [M fig. 1-3]: `python -m benchmarks.inverse_pictures FILE`."""

import sys

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.inverse import (
    CONDITION_DIMENSIONS,
    CONDITION_SCALES,
    conditions,
    first_quadrant,
    fitted_slope,
    sphere_errors,
)

N_CONDITIONED = 200


def draw_convergence(axes: Axes) -> None:
    """Leave-one-out errors on S^4 in R^10 against the fill distance, with the fitted slopes."""
    found = list(sphere_errors())
    lengths = np.array([row.of_unit_vectors for row in found])
    for place, name in enumerate(("cubic", "Gaussian 0.5", "Shepard 1")):
        errors = np.array([row.errors[place] for row in found])
        slope = fitted_slope(lengths.tolist(), errors.tolist())
        print(f"{name}: error ~ h^{slope:.2f}")
        axes.loglog(lengths, errors, "o-", label=f"{name}, slope {slope:.2f}", markersize=4)
    axes.loglog(lengths, found[0].errors[0] * (lengths / lengths[0]) ** 2, "k:", label="slope 2")
    axes.set(
        xlabel="fill distance h of unit-length eigenvectors", ylabel="leave-one-out error", title="$S^4$ in $R^{10}$"
    )
    axes.legend()


def draw_conditioning(axes: Axes) -> None:
    """Condition of the Gaussian's system against its scale, beside the cubic's, which has none."""
    for color, dimension in zip(("C0", "C1", "C2"), CONDITION_DIMENSIONS, strict=True):
        points = first_quadrant(N_CONDITIONED, dimension)
        found = np.array([conditions(points, float(scale))[:2] for scale in CONDITION_SCALES])
        axes.loglog(CONDITION_SCALES, found[:, 0], "o-", color=color, label=f"Gaussian, D = {dimension}", markersize=4)
        axes.loglog(CONDITION_SCALES, found[:, 1], "--", color=color, label=f"cubic, D = {dimension}")
    axes.set(xlabel="scale of the Gaussian", ylabel="condition", title=f"{N_CONDITIONED} points of a sphere's quadrant")
    axes.legend(fontsize="small")


def main() -> None:
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_convergence(left)
    draw_conditioning(right)
    figure.savefig(sys.argv[1], dpi=80)


if __name__ == "__main__":
    main()
