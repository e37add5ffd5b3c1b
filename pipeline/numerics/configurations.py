"""Every method by its name: from dissimilarities between the landmarks to a model that places other points."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.methods import resolved_extension
from pipeline.numerics.additive_constant import additive_constant, with_constant
from pipeline.numerics.answers import Model
from pipeline.numerics.extension.kernel_mapping import KernelMappingPlacer, kernel_mapping
from pipeline.numerics.extension.rbf import RbfPlacer, rbf_extension
from pipeline.numerics.lle import LlePlacer, locally_linear
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.numerics.spectral import NystromPlacer, automatic_gamma_of, laplacian_eigenmaps, spectral_embedding
from pipeline.numerics.stress import StressPlacer, metric_mds, nonmetric_mds, sammon
from pipeline.types import FloatArray

# What a run may have to read again.
MODELS = {
    kind.__name__: kind
    for kind in (LandmarkModel, NystromPlacer, LlePlacer, StressPlacer, KernelMappingPlacer, RbfPlacer)
}


@dataclass(frozen=True)
class Choice:
    """A method with all that it can be told. `affinity` says that similarities are given, not dissimilarities; `signed`
    that squares of dissimilarities may be negative. `gamma` of None is found from the landmarks."""

    method: str
    n_components: int
    extension: str = "auto"
    n_neighbors: int = 10
    gamma: float | None = None
    affinity: bool = False
    signed: bool = False
    regularization: float = 1e-3
    stress_neighbors: int | None = None


def fitted_model(choice: Choice, between: FloatArray) -> Model:
    """Embed landmarks by their dissimilarities (m, m), and make ready to place other points."""
    extension = resolved_extension(choice.method, choice.extension)
    model = _FITS[choice.method](choice, between)
    if extension == "kernel-mapping":
        return kernel_mapping(between, model.coordinates)
    return rbf_extension(between, model.coordinates) if extension == "rbf" else model


def _classical(choice: Choice, between: FloatArray) -> Model:
    return classical_mds(between * np.abs(between), choice.n_components, choice.signed)


def _kernel_isomap(choice: Choice, between: FloatArray) -> Model:
    """Classical scaling of dissimilarities that an added constant makes Euclidean [G eq. 32-34]."""
    constant = additive_constant(between)
    model = classical_mds(with_constant(between, constant) ** 2, choice.n_components)
    return LandmarkModel(
        coordinates=model.coordinates,
        eigenvalues=model.eigenvalues,
        row_means=model.row_means,
        grand_mean=model.grand_mean,
        spectrum=model.spectrum,
        constant=constant,
    )


def _gamma(choice: Choice, between: FloatArray) -> float:
    return automatic_gamma_of(between) if choice.gamma is None else choice.gamma


def _laplacian(choice: Choice, between: FloatArray) -> Model:
    gamma = 0.0 if choice.affinity else _gamma(choice, between)
    return laplacian_eigenmaps(between, choice.n_components, gamma, affinity=choice.affinity)


def _spectral(choice: Choice, between: FloatArray) -> Model:
    gamma = 0.0 if choice.affinity else _gamma(choice, between)
    return spectral_embedding(between, choice.n_components, gamma, affinity=choice.affinity)


def _lle(choice: Choice, between: FloatArray) -> Model:
    k, m = choice.n_neighbors, len(between)
    if k >= m:
        raise InvalidInputError(
            f"n_neighbors={k} is out of range; lle takes the neighbors among the {m} landmarks: use one from 1 to "
            f"{m - 1}, or more landmarks."
        )
    return locally_linear(between, choice.n_components, k, choice.regularization)


def _sammon(choice: Choice, between: FloatArray) -> Model:
    k, m = choice.stress_neighbors, len(between)
    if k is not None and k >= m:
        raise InvalidInputError(
            f"stress_neighbors={k} is out of range; neighbors are taken among the {m} landmarks: use one from 1 to "
            f"{m - 1}, or more landmarks."
        )
    return sammon(between, choice.n_components, k)


_FITS: dict[str, Callable[[Choice, FloatArray], Model]] = {
    "isomap": _classical,
    "mds": _classical,
    "kernel-mds": _classical,
    "kernel-isomap": _kernel_isomap,
    "laplacian": _laplacian,
    "spectral": _spectral,
    "lle": _lle,
    "metric-mds": lambda choice, between: metric_mds(between, choice.n_components),
    "nonmetric-mds": lambda choice, between: nonmetric_mds(between, choice.n_components),
    "sammon": _sammon,
}
