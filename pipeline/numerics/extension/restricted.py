"""Restricted reconstruction of each point on its own, with a global guarantee [T eq. 10, 12, sec. 5].

Where projection ignores whatever of a point lies outside the landmarks' space, restricted reconstruction also fits
its squared length beta: min_y 2||Xy - b||^2 + w (y'y - beta)^2. The paper has w = 1. lam_d grows like m while the
quartic term does not, so with many landmarks w = 1 hardly tells the two answers apart; w = m ("balanced") lets a
residual count once it compares with lam_d / m, the variance of the last component.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pipeline.numerics import checks
from pipeline.numerics.extension.moments import Moments, landmark_moments
from pipeline.numerics.extension.secular import solve_secular
from pipeline.numerics.mds import LandmarkModel
from pipeline.types import BoolArray, FloatArray

DiagonalWeight = float | Literal["balanced"]
WEIGHT_RANGE = (1e-30, 1e30)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Global minimizers and what they say.

    coordinates (p, d); multipliers (p,), the mu of (diag(lam) + mu I) y = c; objective (p,) without the constant
    2||b||^2; ambiguous (p,), True where another, distant answer is equally good up to rounding.
    """

    coordinates: FloatArray
    multipliers: FloatArray
    objective: FloatArray
    ambiguous: BoolArray


def restricted_reconstruction(
    model: LandmarkModel, squared_to_landmarks: ArrayLike, diagonal_weight: DiagonalWeight = 1.0
) -> Reconstruction:
    """The best positions of points given their (p, m) squared dissimilarities, the landmarks held fixed.

    Among equally good answers the one with a positive last coordinate is given, and flagged as ambiguous.
    """
    weight = resolved_weight(model, diagonal_weight)
    return reconstruct_moments(model, landmark_moments(model, squared_to_landmarks), weight)


def reconstruct_moments(model: LandmarkModel, moments: Moments, weight: float) -> Reconstruction:
    """Restricted reconstruction for moments already computed."""
    coordinates, multipliers, ambiguous = solve_secular(model.eigenvalues, moments.inner, moments.beta, weight)
    return Reconstruction(
        coordinates=coordinates,
        multipliers=multipliers,
        objective=_objective(model, moments, weight, coordinates),
        ambiguous=ambiguous,
    )


def resolved_weight(model: LandmarkModel, diagonal_weight: DiagonalWeight) -> float:
    """The number w that `diagonal_weight` stands for."""
    check_weight(diagonal_weight)
    return float(model.n_landmarks) if diagonal_weight == "balanced" else float(diagonal_weight)


def check_weight(diagonal_weight: object) -> None:
    """Refuse what is neither "balanced" nor a number for which the secular equation stays in range."""
    if isinstance(diagonal_weight, str):
        checks.one_of("diagonal_weight", diagonal_weight, ("balanced",))
    else:
        checks.number_in_range("diagonal_weight", diagonal_weight, *WEIGHT_RANGE)


def _objective(model: LandmarkModel, moments: Moments, weight: float, coordinates: FloatArray) -> FloatArray:
    """2 (y' diag(lam) y - 2 c'y) + w (y'y - beta)^2, summed in a fixed order for every row."""
    linear = np.zeros(len(coordinates))
    length = np.zeros(len(coordinates))
    for k, lam in enumerate(model.eigenvalues):
        y, c = coordinates[:, k], moments.inner[:, k]
        linear += y * (lam * y - 2 * c)
        length += y * y
    return np.asarray(2 * linear + weight * (length - moments.beta) ** 2)
