"""How fast leave-one-out errors fall as points are added [M fig. 3]: python -m benchmarks.papers.sphere [picture.png]

Points spread evenly over S^4, turned into 10 dimensions, are embedded by the first five eigenvectors of their
normalized affinities that are not trivial. Each is left out and interpolated from at most 200 others.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.papers.leave_one_out import eigenmap, kernel_name, kernels_at, local_fill_distance, mean_errors
from benchmarks.papers.pictures import save
from pipeline.types import FloatArray

SIZES, N_COMPONENTS, N_COLUMNS = (10, 20, 50, 100, 200, 500, 1000, 2000), 5, 10
# As many samples of each size as have this many points together, as small samples differ from each other.
POINTS_IN_SAMPLES = 400
KERNELS = kernels_at((0.5,), (1.0,))
# From this size on points are dense enough that lengths in the embedding no longer change.
SETTLED = 200


class SphereError(NamedTuple):
    """Of n points: the fill distance of the unit vectors that embed them, and the error by each kernel."""

    n_points: int
    fill_distance: float
    errors: tuple[float, ...]

    @property
    def of_unit_variance(self) -> float:
        """The fill distance if coordinates have unit variance, in which lengths do not shrink as points are added."""
        return self.fill_distance * float(np.sqrt(self.n_points))


def sphere(n: int, seed: int) -> FloatArray:
    """Points spread evenly over the unit sphere of 5 dimensions, turned into 10."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, N_COMPONENTS))
    turn = np.linalg.qr(rng.normal(size=(N_COLUMNS, N_COLUMNS)))[0]
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True) @ turn[:N_COMPONENTS])


def sphere_error(n: int, n_samples: int) -> SphereError:
    found = []
    for seed in range(n_samples):
        values = sphere(n, seed)
        points = eigenmap(values, N_COMPONENTS, "spectral").coordinates
        found.append((local_fill_distance(points), *mean_errors(points, values, KERNELS)))
    spacing, *errors = (float(figure) for figure in np.mean(found, axis=0))
    return SphereError(n, spacing, tuple(errors))


def sphere_errors() -> Iterator[SphereError]:
    for n in SIZES:
        yield sphere_error(n, max(1, POINTS_IN_SAMPLES // n))


def fitted_slope(fill_distances: list[float], errors: list[float]) -> float:
    """s of the best error = c h^s."""
    return float(np.polyfit(np.log(fill_distances), np.log(errors), 1)[0])


def slopes(found: list[SphereError], unit: str) -> tuple[float, ...]:
    """By each kernel, with the fill distance in that unit."""
    lengths = [getattr(at, unit) for at in found]
    return tuple(fitted_slope(lengths, [at.errors[place] for at in found]) for place in range(len(KERNELS)))


def main() -> None:
    names = [kernel_name(kernel) for kernel in KERNELS]
    print(f"| n | h of unit vectors | h at unit variance | {' | '.join(names)} |")
    print("|---" * (3 + len(names)) + "|")
    found = []
    for at in sphere_errors():
        found.append(at)
        errors = " | ".join(f"{error:.1e}" for error in at.errors)
        print(f"| {at.n_points:,} | {at.fill_distance:.4f} | {at.of_unit_variance:.3f} | {errors} |", flush=True)
    settled = [at for at in found if at.n_points >= SETTLED]
    print(f"\n| slopes of error = c h^s | {' | '.join(names)} |\n" + "|---" * (1 + len(names)) + "|")
    for which, chosen in (("all n", found), (f"n from {SETTLED} on", settled)):
        for unit, label in (("fill_distance", "unit vectors"), ("of_unit_variance", "unit variance")):
            cells = " | ".join(f"{slope:.2f}" for slope in slopes(chosen, unit))
            print(f"| {which}, h of {label} | {cells} |")
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


def draw(found: list[SphereError], path: Path) -> None:
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    lengths = np.array([at.fill_distance for at in found])
    for place, axes in enumerate(figure.subplots(1, len(KERNELS), sharey=True)):
        errors = np.array([at.errors[place] for at in found])
        slope = fitted_slope(lengths.tolist(), errors.tolist())
        axes.loglog(lengths, errors, "o-", color=f"C{place}", markersize=4, label=f"fitted slope {slope:.2f}")
        axes.loglog(lengths, errors[0] * (lengths / lengths[0]) ** 2, "k:", label="slope 2")
        axes.set(title=kernel_name(KERNELS[place]), xlabel="local fill distance h of unit vectors")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", loc="lower right")
    figure.axes[0].set_ylabel("mean leave-one-out error")
    save(figure, path)


if __name__ == "__main__":
    main()
