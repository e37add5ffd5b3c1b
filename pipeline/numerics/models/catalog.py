"""Every method by name: from dissimilarities between the landmarks to a model that places other points.

Kernel Isomap adds the least constant that makes dissimilarities Euclidean [G eq. 32-34]. With K(.) = -1/2 times the
double-centered matrix, dissimilarities D + c (0 on the diagonal) have the centered Gram matrix K(D^2) + 2c K(D) + c^2/2
H, positive semidefinite for every c >= c*, the largest real eigenvalue of [[0, 2 K(D^2)], [-I, -4 K(D)]].
`mds.LandmarkModel` says what the constant means for new points.

With weights w of mean 1, landmark i counts as w_i copies of itself, which are different objects and so c apart. Their
mean is at the squared distance (D_ij + c)^2 - c^2 + c^2/2 (1/w_i + 1/w_j) from that of landmark j's. With weighted
means in K(.), the Gram matrix is K(D^2) + 2c K(D) + c^2/2 (W^-1 - ee'/m); between W^1/2 and W^1/2 its last term is
c^2/2 times a projector, as H is. So c* is the largest real eigenvalue for W^1/2 K(.) W^1/2, and a new point, c away
also from a landmark in its place, is short of the same c^2/2 in every eigenvalue. (If copies were 0 apart, it would be
short of w_i c^2/2 beside landmark i, and no linear map would return all landmarks.)

The all-ones vector e, with weights W^1/2 e, is in the null space of both matrices, which makes 0 a defective
eigenvalue: rounding would turn it into the square root of rounding, larger than a small c*. With ee'/m (W^1/2 ee'
W^1/2/m) added to K(D), the vector has the eigenvalues 0 and -4 instead, and all others stay the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.methods import METHODS, require_weights, resolved_extension
from pipeline.numerics import checks
from pipeline.numerics.extension.interpolation import KernelMappingPlacer, RbfPlacer, kernel_mapping, rbf_extension
from pipeline.numerics.landmarks.weights import relative_weights
from pipeline.numerics.mds import LandmarkModel, Model, classical_mds, double_centered
from pipeline.numerics.mds import with_constant as with_constant
from pipeline.numerics.models.lle import LlePlacer, locally_linear
from pipeline.numerics.models.metrics import automatic_gamma_of
from pipeline.numerics.models.spectral import NystromPlacer, laplacian_eigenmaps, spectral_embedding
from pipeline.numerics.models.stress import OrdinalPlacer, StressPlacer, metric_mds, nonmetric_mds, sammon
from pipeline.types import AnyArray, FloatArray

# Up to this many objects all eigenvalues are computed, above only those at the end of the spectrum.
MOST_FOR_ALL_EIGENVALUES = 500
# Eigenvalues above minus this share of the Gram matrix's norm are those of Euclidean dissimilarities up to rounding.
EUCLIDEAN_TOLERANCE = 1e-12
# Relative imaginary part that rounding may give a real eigenvalue.
IMAGINARY_TOLERANCE = 1e-6
EIGENVALUES_AT_THE_END = 6
MOST_RESTARTS = 2000
SEED_OF_START = 0


def additive_constant(between: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Cailliez's c* >= 0 for dissimilarities (m, m), not squared, of objects that may have weights (m,); 0 if they are
    already Euclidean."""
    matrix = checks.squared_dissimilarity_matrix("between", between)
    size = float(matrix.max())
    if size == 0:
        return 0.0
    w = None if weights is None else relative_weights(weights, len(matrix))
    # The two matrices scale differently with D; in units of its largest entry neither dwarfs the other.
    matrix /= size
    with threadpool_limits(1, "blas"):
        return max(0.0, size * _largest_real_eigenvalue(matrix, w))


def _largest_real_eigenvalue(between: FloatArray, weights: FloatArray | None) -> float:
    of_squares = double_centered(between**2, weights)
    if _is_semidefinite(of_squares):
        return 0.0
    null = 1.0 if weights is None else np.sqrt(np.multiply.outer(weights, weights))
    of_distances = double_centered(between, weights) + null / len(between)
    at_the_end = np.empty(0)
    if len(between) > MOST_FOR_ALL_EIGENVALUES:
        at_the_end = _real_ones(_rightmost_eigenvalues(of_squares, of_distances))
    # In theory all those found could be complex.
    found = at_the_end if len(at_the_end) else _real_ones(_all_eigenvalues(of_squares, of_distances))
    return float(found.max())


def _is_semidefinite(gram: FloatArray) -> bool:
    lifted = gram.copy()
    np.fill_diagonal(lifted, lifted.diagonal() + EUCLIDEAN_TOLERANCE * np.linalg.norm(gram))
    try:
        scipy.linalg.cholesky(lifted, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return False
    return True


def _all_eigenvalues(of_squares: FloatArray, of_distances: FloatArray) -> AnyArray:
    m = len(of_squares)
    blocks = np.block([[np.zeros((m, m)), 2 * of_squares], [-np.eye(m), -4 * of_distances]])
    return np.asarray(scipy.linalg.eigvals(blocks, overwrite_a=True, check_finite=False))


def _rightmost_eigenvalues(of_squares: FloatArray, of_distances: FloatArray) -> AnyArray:
    """Those of largest real part, by Arnoldi iteration from a fixed start; none if it does not converge."""
    m = len(of_squares)

    def multiply(vector: FloatArray) -> FloatArray:
        upper, lower = vector[:m], vector[m:]
        return np.concatenate([2 * (of_squares @ lower), -upper - 4 * (of_distances @ lower)])

    blocks = scipy.sparse.linalg.LinearOperator((2 * m, 2 * m), matvec=multiply, dtype=np.float64)
    start = np.random.default_rng(SEED_OF_START).normal(size=2 * m)
    try:
        given: dict[str, Any] = {"v0": start, "maxiter": MOST_RESTARTS, "rng": SEED_OF_START, "which": "LR"}
        return np.asarray(scipy.sparse.linalg.eigs(blocks, EIGENVALUES_AT_THE_END, return_eigenvectors=False, **given))
    except scipy.sparse.linalg.ArpackNoConvergence:
        return np.empty(0, dtype=np.complex128)


def _real_ones(eigenvalues: AnyArray) -> FloatArray:
    return np.asarray(eigenvalues.real[np.abs(eigenvalues.imag) <= IMAGINARY_TOLERANCE * np.abs(eigenvalues)])


_MODELS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (LandmarkModel, NystromPlacer, LlePlacer, StressPlacer, OrdinalPlacer, KernelMappingPlacer, RbfPlacer)
}


def model_class(name: str) -> type[Any] | None:
    """The class of a stored model, built-in or a plugin's, by its name."""
    of_plugins = {method.model.__name__: method.model for method in METHODS.values() if method.model is not None}
    return _MODELS.get(name) or of_plugins.get(name)


@dataclass(frozen=True)
class Choice:
    """A method with its parameters. `affinity`: similarities are given rather than dissimilarities; `signed`: squared
    dissimilarities may be negative. A `gamma` of None is found from the landmarks. `n_init` starts of which all but the
    first follow the `seed`."""

    method: str
    n_components: int
    extension: str = "auto"
    n_neighbors: int = 10
    gamma: float | None = None
    affinity: bool = False
    signed: bool = False
    regularization: float = 1e-3
    stress_neighbors: int | None = None
    n_init: int = 1
    seed: int = 0


def fitted_model(choice: Choice, between: FloatArray, weights: ArrayLike | None = None) -> Model:
    """Embed landmarks by their dissimilarities (m, m) and prepare to place other points. Classical methods let
    landmarks count by their weights (m,)."""
    extension = resolved_extension(choice.method, choice.extension)
    fit: Callable[..., Model] | None = _FITS.get(choice.method) or METHODS[choice.method].fit
    if fit is None:
        raise InvalidInputError(f"method={choice.method!r} is a plugin's without a function `fit`; correct the plugin.")
    require_weights(choice.method, "none" if weights is None else "counts")
    model = fit(choice, between) if weights is None else fit(choice, between, weights)
    if extension == "kernel-mapping":
        return kernel_mapping(between, model.coordinates)
    return rbf_extension(between, model.coordinates) if extension == "rbf" else model


def with_components(model: LandmarkModel, between: FloatArray, n_components: int) -> LandmarkModel:
    """The classical model of the same dissimilarities (m, m) with another number of components."""
    squared = _squared(between, model.constant)
    return classical_mds(squared, n_components, model.signed, model.constant, model.weights)


def _squared(between: FloatArray, constant: float) -> FloatArray:
    """Squares that keep the sign, of dissimilarities with the constant added."""
    return with_constant(between, constant) ** 2 if constant else between * np.abs(between)


def _classical(choice: Choice, between: FloatArray, weights: ArrayLike | None = None) -> Model:
    return classical_mds(_squared(between, 0.0), choice.n_components, choice.signed, weights=weights)


def _kernel_isomap(choice: Choice, between: FloatArray, weights: ArrayLike | None = None) -> Model:
    """Classical scaling of dissimilarities that an added constant makes Euclidean [G eq. 32-34]."""
    constant = additive_constant(between, weights)
    squared = _squared(between, constant)
    return classical_mds(squared, choice.n_components, constant=constant, weights=weights)


def _spectral(choice: Choice, between: FloatArray) -> Model:
    fit = laplacian_eigenmaps if choice.method == "laplacian" else spectral_embedding
    gamma = 0.0 if choice.affinity else automatic_gamma_of(between) if choice.gamma is None else choice.gamma
    return fit(between, choice.n_components, gamma, affinity=choice.affinity)


def _lle(choice: Choice, between: FloatArray) -> Model:
    return locally_linear(between, choice.n_components, choice.n_neighbors, choice.regularization)


def _sammon(choice: Choice, between: FloatArray) -> Model:
    k, m = choice.stress_neighbors, len(between)
    if k is not None:
        checks.integer_in_range(
            "stress_neighbors", k, 1, m - 1, f"or more landmarks: only the {m} landmarks are neighbors"
        )
    return sammon(between, choice.n_components, k, choice.n_init, choice.seed)


_FITS: dict[str, Callable[..., Model]] = {
    "isomap": _classical,
    "mds": _classical,
    "kernel-mds": _classical,
    "kernel-isomap": _kernel_isomap,
    "laplacian": _spectral,
    "spectral": _spectral,
    "lle": _lle,
    "metric-mds": lambda choice, between: metric_mds(between, choice.n_components, choice.n_init, choice.seed),
    "nonmetric-mds": lambda choice, between: nonmetric_mds(between, choice.n_components, choice.n_init, choice.seed),
    "sammon": _sammon,
}
