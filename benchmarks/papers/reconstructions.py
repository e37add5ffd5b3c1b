"""Images left out and interpolated back from their place in an embedding [M tables 1 and 2, fig. 4, 5]

    TRIGPOINT_DATA=... python -m benchmarks.papers.reconstructions [digits.png faces.png]

1,000 images of a digit, 14 x 14, in 10 coordinates, and the Frey faces in 15, all of unit norm. With each error the
correlation of neighboring pixels of what is left over: the more it looks like noise, the nearer that is to 0.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from benchmarks.papers.data import arrays
from benchmarks.papers.leave_one_out import eigenmap, kernel_name, kernels_at, reconstructed
from benchmarks.papers.pictures import save
from pipeline.numerics.inverse.neighborhood import Kernel
from pipeline.types import AnyArray, FloatArray

DIGIT_SHAPE, FACE_SHAPE = (14, 14), (28, 20)
IMAGES_OF_A_DIGIT, DIGIT_COMPONENTS, FACE_COMPONENTS = 1000, 10, 15
# Samples of each digit: between methods there is less than between samples.
N_SAMPLES = 3
DIGIT_KERNELS = kernels_at((0.5, 1.0, 2.0), (0.5, 1.0, 2.0))
FACE_KERNELS = kernels_at((0.25, 0.5, 1.0), (1.0, 2.0, 4.0))
# Beside the paper's methods: what a constant adds to the Gaussian.
WITH_CONSTANT = [Kernel("gaussian", scale=scale, degree=0) for scale in (0.5, 1.0, 2.0)]
# The paper's table 1, digit by digit, and table 2, in the order of its kernels.
PAPER_DIGITS = (
    (0.248, 0.319, 0.305, 0.457, 0.422, 0.302, 0.303),
    (0.135, 0.169, 0.223, 0.420, 0.271, 0.175, 0.186),
    (0.349, 0.421, 0.375, 0.535, 0.511, 0.396, 0.400),
    (0.334, 0.417, 0.363, 0.505, 0.489, 0.385, 0.382),
    (0.299, 0.362, 0.345, 0.513, 0.475, 0.348, 0.362),
    (0.350, 0.424, 0.382, 0.554, 0.508, 0.378, 0.402),
    (0.259, 0.315, 0.310, 0.477, 0.439, 0.314, 0.320),
    (0.261, 0.314, 0.322, 0.497, 0.453, 0.318, 0.325),
    (0.354, 0.452, 0.369, 0.491, 0.474, 0.379, 0.382),
    (0.262, 0.313, 0.312, 0.478, 0.434, 0.309, 0.320),
)
PAPER_FACES = (0.0361, 0.0457, 0.0414, 0.0684, 0.0633, 0.0603, 0.0672)
DRAWN_DIGIT = 3
# Of the images in the order of the cubic's error, those drawn: an easy one, a middling one and a hard one.
DRAWN_QUANTILES = (0.2, 0.5, 0.8)


class LeftOver(NamedTuple):
    """By kernel: mean errors [M eq. 16] and correlations of neighboring pixels of the residuals."""

    errors: FloatArray
    correlations: FloatArray


class Images(NamedTuple):
    """Images of unit norm as rows (n, h w), their places (n, d) in an embedding, and the shape (h, w) of one."""

    rows: FloatArray
    points: FloatArray
    shape: tuple[int, int]


def digits(digit: int, seed: int) -> Images:
    """1,000 of a digit at random."""
    data = arrays("mnist70k")
    images = data["X"][data["y"] == digit]
    images = images[np.random.default_rng(seed).choice(len(images), IMAGES_OF_A_DIGIT, replace=False)]
    return embedded(images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)), DIGIT_SHAPE, DIGIT_COMPONENTS)


def faces() -> Images:
    return embedded(arrays("frey_faces")["X"], FACE_SHAPE, FACE_COMPONENTS)


def embedded(images: AnyArray, shape: tuple[int, int], n_components: int) -> Images:
    flat = images.reshape(len(images), -1).astype(np.float64)
    rows = np.asarray(flat / np.linalg.norm(flat, axis=1, keepdims=True))
    return Images(rows, eigenmap(rows, n_components).coordinates, shape)


def left_over(images: Images, kernels: list[Kernel]) -> LeftOver:
    residuals = (images.rows - reconstructed(images.points, images.rows, kernel) for kernel in kernels)
    found = [(np.linalg.norm(each, axis=1).mean(), pixel_correlation(each, images.shape)) for each in residuals]
    return LeftOver(*np.array(found).T)


def pixel_correlation(residuals: FloatArray, shape: tuple[int, int]) -> float:
    """Mean product of horizontally or vertically neighboring pixels over the mean square; of white noise about 0."""
    pixels = residuals.reshape(-1, *shape)
    products = [(pixels[:, 1:] * pixels[:, :-1]).ravel(), (pixels[:, :, 1:] * pixels[:, :, :-1]).ravel()]
    return float(np.concatenate(products).mean() / (pixels**2).mean())


def digit_rows() -> Iterator[LeftOver]:
    """[M table 1], digit by digit."""
    for digit in range(10):
        found = [left_over(digits(digit, seed), DIGIT_KERNELS + WITH_CONSTANT) for seed in range(N_SAMPLES)]
        yield LeftOver(*(np.mean(column, axis=0) for column in zip(*found, strict=True)))


def best(errors: FloatArray, kernels: list[Kernel], kind: str) -> int:
    """The place of the kernel of a kind with the least error."""
    return min((place for place, kernel in enumerate(kernels) if kernel.kind == kind), key=lambda at: errors[at])


def main() -> None:
    _print_header("digit", DIGIT_KERNELS + WITH_CONSTANT)
    found = []
    for digit, left in enumerate(digit_rows()):
        found.append(left)
        _print_row(str(digit), left, PAPER_DIGITS[digit], 3)
    n_lowest = sum(left.errors[: len(DIGIT_KERNELS)].argmin() == 0 for left in found)
    print(f"Of the paper's methods the cubic is the lowest for {n_lowest} of 10 digits.\n")
    _print_header("images", FACE_KERNELS)
    frames = faces()
    of_faces = left_over(frames, FACE_KERNELS)
    _print_row("Frey faces", of_faces, PAPER_FACES, 4)
    if len(sys.argv) > 2:
        draw(digits(DRAWN_DIGIT, 0), DIGIT_KERNELS, found[DRAWN_DIGIT].errors, Path(sys.argv[1]))
        draw(frames, FACE_KERNELS, of_faces.errors, Path(sys.argv[2]))


def _print_header(what: str, kernels: list[Kernel]) -> None:
    print(f"| {what} | | {' | '.join(map(kernel_name, kernels))} |\n" + "|---" * (2 + len(kernels)) + "|")


def _print_row(what: str, left: LeftOver, paper: tuple[float, ...], n_places: int) -> None:
    here, printed = (" | ".join(f"{error:.{n_places}f}" for error in errors) for errors in (left.errors, paper))
    print(f"| {what} | here | {here} |")
    print(f"| | paper | {printed} |" + " |" * (len(left.errors) - len(paper)))
    print(f"| | pixel correlation | {' | '.join(f'{each:.2f}' for each in left.correlations)} |", flush=True)


def draw(images: Images, kernels: list[Kernel], errors: FloatArray, path: Path) -> None:
    """Images as they are, and by the best kernel of each kind what comes back and what is left over."""
    chosen = [best(errors, kernels, kind) for kind in ("power", "gaussian", "shepard")]
    back = [reconstructed(images.points, images.rows, kernels[place]) for place in chosen]
    hardest = np.argsort(np.linalg.norm(images.rows - back[0], axis=1), kind="stable")
    drawn = hardest[[round(quantile * (len(hardest) - 1)) for quantile in DRAWN_QUANTILES]]
    # One scale for all residuals, so that their sizes compare.
    largest = max(np.abs(images.rows - each)[drawn].max() for each in back)
    height = images.shape[0] / images.shape[1]
    figure = Figure(figsize=(9, 0.35 + len(drawn) * (0.2 + 9 / 7 * height)), layout="constrained")
    for line, row in zip(figure.subplots(len(drawn), 7), drawn, strict=True):
        original = images.rows[row].reshape(images.shape)
        grays = (float(original.min()), float(original.max()))
        _draw_image(line[0], original, "left out", "gray", grays)
        for axes, residual_axes, place, values in zip(line[1::2], line[2::2], chosen, back, strict=True):
            returned = values[row].reshape(images.shape)
            title = f"residual {np.linalg.norm(original - returned):.{2 if largest > 0.1 else 3}f}"
            _draw_image(axes, returned, kernel_name(kernels[place]), "gray", grays)
            _draw_image(residual_axes, original - returned, title, "RdBu_r", (-largest, largest))
    save(figure, path, dpi=90)


def _draw_image(axes: Axes, image: FloatArray, title: str, colors: str, ends: tuple[float, float]) -> None:
    axes.imshow(image, cmap=colors, vmin=ends[0], vmax=ends[1])
    axes.set_title(title, fontsize="small")
    axes.set(xticks=[], yticks=[])


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):
        main()
