"""The inverse map: against scipy's interpolant, and what the paper measures [M fig. 1-3, tables 1-2].

`python -m benchmarks.inverse [speed] [convergence] [conditioning] [tables]` runs those, or all. The tables need the
data sets `mnist70k.npz` and `frey_faces.npz` in the folder that TRIGPOINT_DATA names.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from benchmarks.measure import Measurement, fastest_in_turns, use_one_core
from benchmarks.orchestration import in_own_process
from pipeline.numerics.inverse.interpolant import CUBIC, N_NEIGHBORS, invert, stencils
from pipeline.numerics.inverse.neighborhood import Kernel
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.types import AnyArray, FloatArray

N_POINTS, N_QUERIES, N_COLUMNS, N_COMPONENTS = 20_000, 10_000, 784, 10
# scipy takes as long for every query, so that a few tell what all would take.
N_TIMED, REPEATS, LIMIT, LARGEST_DIFFERENCE = 200, 3, 1 / 5, 1e-8
SPHERE_SIZES, SPHERE_COMPONENTS = (10, 20, 50, 100, 200, 500, 1000, 2000), 5
CONDITION_DIMENSIONS, CONDITION_SIZES, CONDITION_SCALES = (5, 20, 100), (10, 30, 100, 300, 1000), np.logspace(-3, 1, 9)
FLAT = 1e-2
IMAGES_OF_A_DIGIT, DIGIT_COMPONENTS, FACE_COMPONENTS = 1000, 10, 15
N_SAMPLES = 3
DIGIT_KERNELS, FACE_KERNELS = ((0.5, 1.0, 2.0), (0.5, 1.0, 2.0)), ((0.25, 0.5, 1.0), (1.0, 2.0, 4.0))
# Of the cubic [M table 1, 2].
PAPER_DIGITS, PAPER_FACES = (0.248, 0.135, 0.349, 0.334, 0.299, 0.350, 0.259, 0.261, 0.354, 0.262), 0.0361


class SphereError(NamedTuple):
    """Of n points on S^4: the embedding's fill distance, if its coordinates are of unit variance; errors by kernel."""

    n_points: int
    fill_distance: float
    errors: tuple[float, ...]

    @property
    def of_unit_vectors(self) -> float:
        """The fill distance if coordinates are vectors of unit length, as an eigensolver gives them."""
        return self.fill_distance / float(np.sqrt(self.n_points))


def inverse_against_scipy() -> list[Measurement]:
    """Both with their search for neighbors, on one core; what is compiled is compiled before the clock starts."""
    ours, theirs, difference = in_own_process(timed_with_scipy)
    if not difference < LARGEST_DIFFERENCE:
        raise RuntimeError(f"values are {difference:.2g} from scipy's, more than {LARGEST_DIFFERENCE}.")
    name = f"inverse map at {N_QUERIES:,} queries of {N_POINTS:,} x {N_COLUMNS}, d={N_COMPONENTS}, 200 neighbors"
    note = f"relative difference {difference:.2g}"
    return [Measurement("inverse-scipy", name, ours, "scipy's RBFInterpolator", theirs, LIMIT, note)]


def timed_with_scipy() -> tuple[float, float, float]:
    """Seconds of ours and of theirs for all queries, and how far their values differ."""
    use_one_core()
    rng = np.random.default_rng(0)
    points, values = rng.normal(size=(N_POINTS, N_COMPONENTS)), rng.normal(size=(N_POINTS, N_COLUMNS))
    queries = 0.8 * rng.normal(size=(N_QUERIES, N_COMPONENTS))
    some = slice(None, None, N_QUERIES // N_TIMED)
    answers: dict[str, FloatArray] = {}

    def ours() -> None:
        answers["ours"] = invert(queries, points, values).values[some]

    def theirs() -> None:
        answers["scipy"] = RBFInterpolator(points, values, neighbors=200, kernel="cubic")(queries[some])

    invert(queries[:2], points, values)
    with threadpool_limits(1):
        seconds, few_seconds = fastest_in_turns(REPEATS, ours, theirs)
    difference = np.abs(answers["ours"] - answers["scipy"]).max() / np.abs(answers["scipy"]).max()
    return seconds, few_seconds * N_QUERIES / N_TIMED, float(difference)


def eigenmap(images: FloatArray, n_components: int) -> FloatArray:
    """Laplacian eigenmaps (n, d) with a full Gaussian whose sigma^2 is twice the median squared distance."""
    squares = cdist(images, images, "sqeuclidean")
    variance = 2 * np.median(squares[np.triu_indices(len(images), 1)])
    affinity = np.exp(-squares / (2 * variance))
    roots = np.sqrt(affinity.sum(axis=1))
    last = len(images) - 1
    vectors = eigh(affinity / np.outer(roots, roots), subset_by_index=[last - n_components, last])[1]
    return np.ascontiguousarray(vectors[:, -2::-1] / roots[:, None])


def whole_fill_distance(points: FloatArray) -> float:
    """[M eq. 11] of all points (n, d): the mean distance to the nearest other that does not coincide."""
    apart = neighbors_within(points, 1)[0]
    return float(apart[apart > 0].mean())


def errors_by_kernel(points: FloatArray, values: FloatArray, kernels: list[Kernel]) -> tuple[float, ...]:
    """E_avg [M eq. 16] of each kernel: how far rows are from those interpolated between their nearest others.

    The kernel's scale is in units of the fill distance of all points [M eq. 11].
    """
    spacing = whole_fill_distance(points)
    others = neighbors_within(points, min(N_NEIGHBORS, len(points) - 1))[1]
    predicted = (stencils(points, points, others, kernel, spacing).combine(values) for kernel in kernels)
    return tuple(float(np.linalg.norm(values - rows, axis=1).mean()) for rows in predicted)


def kernels_at(gaussian_scales: tuple[float, ...], shepard_scales: tuple[float, ...]) -> list[Kernel]:
    """The cubic, the Gaussian as the paper writes it and with a constant, Shepard's method."""
    gaussians = (Kernel("gaussian", scale=scale, degree=degree) for degree in (-1, 0) for scale in gaussian_scales)
    return [CUBIC, *gaussians, *(Kernel("shepard", scale=scale) for scale in shepard_scales)]


def sphere_errors() -> Iterator[SphereError]:
    """Leave-one-out errors on S^4 in R^10, embedded in R^5 [M fig. 3]; means over more samples where they are small."""
    kernels = [CUBIC, Kernel("gaussian", scale=0.5), Kernel("shepard")]
    for n in SPHERE_SIZES:
        found = []
        for seed in range(max(1, 400 // n)):
            values = sphere(n, seed)
            points = eigenmap(values, SPHERE_COMPONENTS)
            found.append((whole_fill_distance(points) / points.std(), *errors_by_kernel(points, values, kernels)))
        spacing, *errors = np.mean(found, axis=0)
        yield SphereError(n, float(spacing), tuple(errors))


def sphere(n: int, seed: int) -> FloatArray:
    """Points spread evenly over the unit sphere of 5 dimensions, turned into 10."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, 5))
    turn = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True) @ turn[:5])


def fitted_slope(fill_distances: list[float], errors: list[float]) -> float:
    """s of the best error = c h^s."""
    return float(np.polyfit(np.log(fill_distances), np.log(errors), 1)[0])


def print_convergence() -> None:
    print("| n | h | h of unit vectors | cubic | Gaussian 0.5 | Shepard 1 |")
    print("|---|---|---|---|---|---|")
    found = []
    for row in sphere_errors():
        found.append(row)
        errors = " | ".join(f"{error:.2e}" for error in row.errors)
        print(f"| {row.n_points} | {row.fill_distance:.3f} | {row.of_unit_vectors:.4f} | {errors} |", flush=True)
    for unit in ("fill_distance", "of_unit_vectors"):
        lengths = [getattr(row, unit) for row in found]
        slopes = (fitted_slope(lengths, [row.errors[c] for row in found]) for c in range(3))
        print(f"error ~ h^s, h {unit}: " + ", ".join(f"{slope:.2f}" for slope in slopes))


def first_quadrant(n: int, dimension: int) -> FloatArray:
    """Points of the unit sphere with no negative coordinate, as in [M fig. 1, 2]."""
    points = np.abs(np.random.default_rng(0).normal(size=(n, dimension)))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def conditions(points: FloatArray, scale: float) -> tuple[float, float, float]:
    """Of K [M eq. 7] with the Gaussian and with the cubic, in the 2-norm; and what we report of the cubic's system."""
    apart = cdist(points, points)
    reported = stencils(points[:1], points, np.arange(len(points))[None]).condition[0]
    return np.linalg.cond(np.exp(-((scale * apart) ** 2))), np.linalg.cond(apart**3), float(reported)


def print_conditioning() -> None:
    print(f"| D | n | h | Gaussian, epsilon {FLAT:g} | cubic | cubic, as reported |\n|---|---|---|---|---|---|")
    for dimension in CONDITION_DIMENSIONS:
        for n in CONDITION_SIZES:
            points = first_quadrant(n, dimension)
            figures = " | ".join(f"{figure:.1e}" for figure in conditions(points, FLAT))
            print(f"| {dimension} | {n} | {whole_fill_distance(points):.3f} | {figures} |")
    print("| D | epsilon, n = 200 | Gaussian | cubic |\n|---|---|---|---|")
    for dimension in CONDITION_DIMENSIONS:
        for scale in CONDITION_SCALES:
            gaussian, cubic, _ = conditions(first_quadrant(200, dimension), float(scale))
            print(f"| {dimension} | {scale:.2g} | {gaussian:.1e} | {cubic:.1e} |")


def digit_images(digit: int, seed: int) -> FloatArray:
    """1,000 of a digit at random, 14 x 14, of unit norm."""
    with np.load(Path(os.environ["TRIGPOINT_DATA"]) / "mnist70k.npz") as file:
        images = file["X"][file["y"] == digit]
    images = images[np.random.default_rng(seed).choice(len(images), IMAGES_OF_A_DIGIT, replace=False)]
    return _of_unit_norm(images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(images), -1))


def face_images() -> FloatArray:
    with np.load(Path(os.environ["TRIGPOINT_DATA"]) / "frey_faces.npz") as file:
        return _of_unit_norm(file["X"])


def _of_unit_norm(images: AnyArray) -> FloatArray:
    return np.asarray(images / np.linalg.norm(images.astype(np.float64), axis=1, keepdims=True))


def digit_errors(digit: int, kernels: list[Kernel]) -> tuple[float, ...]:
    """[M table 1], a column, as the mean of several samples: between methods there is less than between samples."""
    samples = (digit_images(digit, seed) for seed in range(N_SAMPLES))
    errors = [errors_by_kernel(eigenmap(images, DIGIT_COMPONENTS), images, kernels) for images in samples]
    return tuple(np.mean(errors, axis=0))


def print_tables() -> None:
    if not os.environ.get("TRIGPOINT_DATA"):
        print("tables: left out, for TRIGPOINT_DATA names no folder of data sets")
        return
    kernels = kernels_at(*DIGIT_KERNELS)
    _print_header(kernels)
    n_lowest = 0
    for digit in range(10):
        errors = digit_errors(digit, kernels)
        n_lowest += _is_lowest(errors, kernels)
        print(
            f"| {digit}, {PAPER_DIGITS[digit]:.3f} | " + " | ".join(f"{error:.3f}" for error in errors) + " |",
            flush=True,
        )
    print(f"the cubic is lower than the paper's other methods for {n_lowest} of 10 digits")
    kernels = kernels_at(*FACE_KERNELS)
    _print_header(kernels)
    faces = face_images()
    errors = errors_by_kernel(eigenmap(faces, FACE_COMPONENTS), faces, kernels)
    print(f"| faces, {PAPER_FACES:.4f} | " + " | ".join(f"{error:.4f}" for error in errors) + " |")
    print(f"the cubic is lower than the paper's other methods: {_is_lowest(errors, kernels)}")


def _is_lowest(errors: tuple[float, ...], kernels: list[Kernel]) -> bool:
    """Whether the cubic's, the first, is below those of the methods as the paper writes them."""
    others = list(zip(errors, kernels, strict=True))[1:]
    return all(errors[0] < error for error, kernel in others if kernel.degree != 0)


def _print_header(kernels: list[Kernel]) -> None:
    names = [f"{kernel.kind} {kernel.scale:g}{' with constant' * (kernel.degree == 0)}" for kernel in kernels[1:]]
    print("| paper's cubic | cubic | " + " | ".join(names) + " |\n" + "|---" * (2 + len(names)) + "|")


def print_speed() -> None:
    for measurement in inverse_against_scipy():
        print(measurement)


PARTS = {
    "speed": print_speed,
    "convergence": print_convergence,
    "conditioning": print_conditioning,
    "tables": print_tables,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
