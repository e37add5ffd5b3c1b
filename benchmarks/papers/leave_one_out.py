"""Data left out and interpolated back from its place in an embedding [M sec. 4]: what its experiments share."""

from dataclasses import replace

import numpy as np

from benchmarks.papers.embedding import Embedding, fitted, measured, studied
from pipeline.numerics.inverse.interpolant import CUBIC, N_NEIGHBORS, stencils
from pipeline.numerics.inverse.neighborhood import Kernel
from pipeline.numerics.models.metrics import automatic_gamma_of
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.types import AnyArray, FloatArray

# The variance of the Gaussian affinities, in median squared distances: the paper does not say which it took.
VARIANCE = 2.0


def eigenmap(rows: AnyArray, n_components: int, method: str = "laplacian") -> Embedding:
    """Laplacian eigenmaps of all rows (n, D), or by `spectral` the eigenvectors of the normalized affinities."""
    data = measured(rows)
    how = studied(method, n_components)
    gamma = automatic_gamma_of(data.apart) / (2 * VARIANCE)
    return fitted(replace(how, choice=replace(how.choice, gamma=gamma)), data, np.arange(len(data.rows)))


def local_fill_distance(points: FloatArray) -> float:
    """[M eq. 11] of all points (n, d): the mean distance to the nearest other that does not coincide."""
    apart = neighbors_within(points, 1)[0]
    return float(apart[apart > 0].mean())


def reconstructed(points: FloatArray, values: FloatArray, kernel: Kernel) -> FloatArray:
    """Every row (n, D) interpolated from those of its 200 nearest others in the embedding (n, d).

    The kernel's scale is in units of the fill distance of all points, as in the paper.
    """
    others = neighbors_within(points, min(N_NEIGHBORS, len(points) - 1))[1]
    return stencils(points, points, others, kernel, local_fill_distance(points)).combine(values)


def mean_errors(points: FloatArray, values: FloatArray, kernels: list[Kernel]) -> tuple[float, ...]:
    """E_avg of each kernel [M eq. 16]."""
    return tuple(
        float(np.linalg.norm(values - reconstructed(points, values, kernel), axis=1).mean()) for kernel in kernels
    )


def kernels_at(gaussian_scales: tuple[float, ...], shepard_scales: tuple[float, ...]) -> list[Kernel]:
    """The cubic, the Gaussian as the paper writes it, Shepard's method."""
    gaussians = (Kernel("gaussian", scale=scale, degree=-1) for scale in gaussian_scales)
    return [CUBIC, *gaussians, *(Kernel("shepard", scale=scale) for scale in shepard_scales)]


def kernel_name(kernel: Kernel) -> str:
    names = {"power": "cubic", "gaussian": f"Gaussian {kernel.scale:g}", "shepard": f"Shepard {kernel.scale:g}"}
    return names[kernel.kind] + " + constant" * (kernel.degree == 0)
