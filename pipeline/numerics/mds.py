"""Classical multidimensional scaling on the landmarks [T fig. 2; G eq. 13-15; B sec. 2.1].

| symbol     | variable                  | shape  |
|------------|---------------------------|--------|
| Delta_2    | squared_dissimilarities   | (m, m) |
| B          | double_centered(...)      | (m, m) |
| X          | model.coordinates         | (m, d) |
| lam        | model.eigenvalues         | (d,)   |
| mean_i     | model.row_means           | (m,)   |
| g          | model.grand_mean          | ()     |

Because X'X = diag(lam), every formula downstream is diagonal and needs no linear solve.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.types import FloatArray


@dataclass(frozen=True, eq=False)
class LandmarkModel:
    """What the landmarks' classical scaling leaves behind: all that a new point needs, and figures of its fit.

    `spectrum` (m,) holds every eigenvalue of B, largest first; geodesic Gram matrices have negative ones. `constant` is
    what was added to every dissimilarity but those of an object to itself, and has to be to a new point's. `signed`
    models are of squared dissimilarities that may be negative, as indefinite similarities give them.
    """

    coordinates: FloatArray
    eigenvalues: FloatArray
    row_means: FloatArray
    grand_mean: float
    spectrum: FloatArray
    constant: float = 0.0
    signed: bool = False

    @property
    def n_landmarks(self) -> int:
        return len(self.coordinates)

    @property
    def n_components(self) -> int:
        return len(self.eigenvalues)

    @property
    def n_positive(self) -> int:
        """How many eigenvalues stand above rounding error: the most components the landmarks can give."""
        return count_positive(self.spectrum)

    @property
    def negative_mass(self) -> float:
        """Share of the spectrum's absolute sum that is negative; 0 for Euclidean dissimilarities."""
        return float(-self.spectrum[self.spectrum < 0].sum() / np.abs(self.spectrum).sum())

    @property
    def explained_mass(self) -> float:
        """Share of the spectrum's positive sum that the kept components carry."""
        return float(self.eigenvalues.sum() / self.spectrum[self.spectrum > 0].sum())


def classical_mds(squared_dissimilarities: ArrayLike, n_components: int, signed: bool = False) -> LandmarkModel:
    """Embed m objects from their (m, m) squared dissimilarities; X = U sqrt(lam) of B = -1/2 P Delta_2 P.

    With `signed` squares may be negative, as those are that indefinite similarities induce. The whole decomposition is
    computed, not only its top: the negative mass and the number of usable components need all of it, and the first
    components then have the same bytes for any `n_components`. It takes three (m, m) float64 arrays of memory.
    """
    delta2 = checks.squared_dissimilarity_matrix("squared_dissimilarities", squared_dissimilarities, signed)
    d = _checked_n_components(n_components, len(delta2))
    if not delta2.any():
        raise InvalidInputError(
            "squared_dissimilarities are all zero: every object is the same, so there is nothing to embed; "
            "use objects that differ."
        )
    row_means, grand_mean = delta2.mean(axis=1), float(delta2.mean())
    # On one thread: the bytes of a decomposition depend on how many threads share it.
    with threadpool_limits(1, "blas"):
        spectrum, vectors = eigh(double_centered(delta2), driver="evd", overwrite_a=True, check_finite=False)
    spectrum, vectors = spectrum[::-1], vectors[:, ::-1]
    _require_positive(d, spectrum)
    eigenvalues = spectrum[:d].copy()
    return LandmarkModel(
        coordinates=np.ascontiguousarray(with_fixed_signs(vectors[:, :d]) * np.sqrt(eigenvalues)),
        eigenvalues=eigenvalues,
        row_means=row_means,
        grand_mean=grand_mean,
        spectrum=spectrum.copy(),
        signed=signed,
    )


def double_centered(squared_dissimilarities: FloatArray) -> FloatArray:
    """-1/2 P Delta_2 P with P = I - ee'/m, exactly symmetric if the argument is [T fig. 2]."""
    means = squared_dissimilarities.mean(axis=1)
    return np.asarray(-0.5 * (squared_dissimilarities - (means[:, None] + means) + means.mean()))


def with_fixed_signs(vectors: FloatArray) -> FloatArray:
    """Columns flipped so that the largest absolute entry of each is positive.

    Of entries that tie up to rounding the first decides, or symmetric configurations would flip with the noise.
    """
    sizes = np.abs(vectors)
    deciding = np.argmax(sizes >= sizes.max(axis=0) * (1 - 1e-8), axis=0)
    signs = np.sign(vectors[deciding, np.arange(vectors.shape[1])])
    return np.asarray(vectors * signs)


def count_positive(spectrum: FloatArray) -> int:
    """Number of eigenvalues above what rounding leaves of a zero one."""
    floor = len(spectrum) * np.finfo(np.float64).eps * np.abs(spectrum).max()
    return int(np.count_nonzero(spectrum > floor))


def _checked_n_components(n_components: object, n_landmarks: int) -> int:
    if n_landmarks < 2:
        raise InvalidInputError("squared_dissimilarities holds 1 object; at least 2 are needed to embed anything.")
    why = f"fewer than the {n_landmarks} objects"
    return checks.integer_in_range("n_components", n_components, 1, n_landmarks - 1, why)


def _require_positive(n_components: int, spectrum: FloatArray) -> None:
    available = count_positive(spectrum)
    if n_components > available:
        raise InvalidInputError(
            f"n_components={n_components} is more than the dissimilarities support: their centered Gram matrix has "
            f"{available} positive eigenvalue{'s' * (available != 1)}; use n_components from 1 to {available}."
        )
