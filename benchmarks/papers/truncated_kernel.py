"""Why Nystrom on a truncated kernel jumps [M fig. 6]: `python -m benchmarks.papers.truncated_kernel [picture.png]`.

Points on a line, the first eigenvector of their normalized affinities that is not trivial, and its extension to all
positions between them: by Nystrom on the whole Gaussian, by Nystrom on one that is cut off below a threshold, and by
cubic radial functions through the values of the latter. A jump is a change between neighboring positions that stays
when these come ten times closer.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pipeline.numerics.extension.interpolation import rbf_extension
from pipeline.numerics.models.spectral import NystromPlacer, spectral_embedding
from pipeline.types import FloatArray

N_POINTS, WIDTH, THRESHOLD = 20, 0.2, 0.3
COARSE, FINE = 2_000, 20_000
WHOLE, TRUNCATED, CUBIC = "Nyström, whole Gaussian", "Nyström, truncated Gaussian", "cubic RBF, truncated Gaussian"


def extended(n_positions: int) -> tuple[FloatArray, FloatArray, dict[str, FloatArray]]:
    """Positions (p,), the points (m,), and the eigenvector at each position by each way, in units of its range."""
    points = np.sort(np.random.default_rng(0).uniform(0.0, 1.0, N_POINTS))
    positions = np.linspace(points[0], points[-1], n_positions)
    apart, between = np.abs(positions[:, None] - points), np.abs(points[:, None] - points)
    smooth, cut = (spectral_embedding(_affinities(between, low), 2, 0.0, affinity=True) for low in (0.0, THRESHOLD))
    values = cut.coordinates[:, 1:]
    return (
        positions,
        points,
        {
            WHOLE: _scaled(smooth, _affinities(apart, 0.0)),
            TRUNCATED: _scaled(cut, _affinities(apart, THRESHOLD)),
            CUBIC: rbf_extension(between, values, n_axes=1).place(apart).coordinates[:, 0] / np.ptp(values),
        },
    )


def largest_changes(n_positions: int) -> dict[str, float]:
    """How much each extension changes at most from one position to the next, as a share of the eigenvector's range."""
    return {name: float(np.abs(np.diff(values)).max()) for name, values in extended(n_positions)[2].items()}


def _affinities(apart: FloatArray, threshold: float) -> FloatArray:
    gaussian = np.exp(-((apart / WIDTH) ** 2))
    return np.asarray(np.where(gaussian < threshold, 0.0, gaussian))


def _scaled(placer: NystromPlacer, affinities: FloatArray) -> FloatArray:
    return np.asarray(placer.place(affinities).coordinates[:, 1] / np.ptp(placer.coordinates[:, 1]))


def _picture(path: Path) -> None:
    positions, points, found = extended(COARSE)
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    for axes, (left, right) in zip(figure.subplots(1, 2), ((0.0, 1.0), (0.35, 0.6)), strict=True):
        shown = (positions >= left) & (positions <= right)
        for (name, values), color in zip(found.items(), ("0.7", "tab:red", "tab:blue"), strict=True):
            axes.plot(positions[shown], values[shown], color=color, lw=1.2, label=name)
        known = points[(points >= left) & (points <= right)]
        axes.plot(known, np.interp(known, positions, found[CUBIC]), "k.", ms=4)
        axes.set(xlabel="position")
    figure.axes[0].set(ylabel="eigenvector")
    figure.axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=90)


def main() -> None:
    coarse, fine = largest_changes(COARSE), largest_changes(FINE)
    print(f"| extension | largest change, {COARSE:,} positions | {FINE:,} positions |\n|---|---|---|")
    for name in coarse:
        print(f"| {name} | {coarse[name]:.2%} | {fine[name]:.2%} |")
    if len(sys.argv) > 1:
        _picture(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
