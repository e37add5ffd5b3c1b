"""Restricted reconstruction of single points, and the arc that leads there from the projection.

Restricted reconstruction also fits the squared length beta, which projection ignores: min_y 2||Xy - b||^2 + w (y'y -
beta)^2, with a global guarantee [T eq. 10, 12, sec. 5]. The paper has w = 1, which hardly matters with many landmarks
because lam_d grows like m; w = m ("balanced") makes a residual count once it compares with lam_d / m, the variance of
the last component.

The arc is y(x) = c / (lam + x) for x from 0 to mu; as mu >= -lam_d, it has none of the singularities that the paper
expects. In the hard case (mu = -lam_d, c_d = 0) it ends with a straight piece along the last axis.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pipeline.numerics import checks
from pipeline.numerics.extension.secular import solve_secular
from pipeline.numerics.mds import LandmarkModel, Moments, landmark_moments, project_moments
from pipeline.types import BoolArray, FloatArray

DiagonalWeight = float | Literal["balanced"]


# Positions at which an arc's length is measured, evenly spaced in the logarithm of the smallest denominator: from one
# to the next y grows by at most a fixed factor, however close the pole is.
LENGTH_SAMPLES = 16384


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Minimizers: coordinates (p, d); multipliers (p,), the mu of (diag(lam) + mu I) y = c; objective (p,) without the
    constant 2||b||^2; ambiguous (p,), True where a distant minimizer is equally good up to rounding; certified (p,),
    True where the minimum is proved to be global, as it always is for points one by one."""

    coordinates: FloatArray
    multipliers: FloatArray
    objective: FloatArray
    ambiguous: BoolArray
    certified: BoolArray


def restricted_reconstruction(
    model: LandmarkModel, squared_to_landmarks: ArrayLike, diagonal_weight: DiagonalWeight = 1.0
) -> Reconstruction:
    """The best positions of points given their (p, m) squared dissimilarities to the fixed landmarks. Of equally good
    positions the one with a positive last coordinate is returned and flagged as ambiguous."""
    weight = resolved_weight(model, diagonal_weight)
    return reconstruct_moments(model, landmark_moments(model, squared_to_landmarks), weight)


def reconstruct_moments(model: LandmarkModel, moments: Moments, weight: float) -> Reconstruction:
    """Restricted reconstruction from moments."""
    coordinates, multipliers, ambiguous = solve_secular(model.eigenvalues, moments.inner, moments.beta, weight)
    objective = _objective(model, moments, weight, coordinates)
    return Reconstruction(coordinates, multipliers, objective, ambiguous, np.ones(len(coordinates), np.bool_))


def resolved_weight(model: LandmarkModel, diagonal_weight: DiagonalWeight) -> float:
    """The number w that `diagonal_weight` stands for."""
    check_weight(diagonal_weight)
    return float(model.n_landmarks) if diagonal_weight == "balanced" else float(diagonal_weight)


def check_weight(diagonal_weight: object) -> None:
    """Refuse a weight that is neither "balanced" nor a number within range."""
    if isinstance(diagonal_weight, str):
        checks.one_of("diagonal_weight", diagonal_weight, ("balanced",))
    else:
        checks.require_parameter("diagonal_weight", diagonal_weight)


def _objective(model: LandmarkModel, moments: Moments, weight: float, coordinates: FloatArray) -> FloatArray:
    """2 (y' diag(lam) y - 2 c'y) + w (y'y - beta)^2, summed in a fixed order for every row."""
    linear = np.zeros(len(coordinates))
    length = np.zeros(len(coordinates))
    for k, lam in enumerate(model.eigenvalues):
        y, c = coordinates[:, k], moments.inner[:, k]
        linear += y * (lam * y - 2 * c)
        length += y * y
    return np.asarray(2 * linear + weight * (length - moments.beta) ** 2)


def reconstruction_arc(
    model: LandmarkModel, squared_to_landmarks: ArrayLike, n_steps: int, diagonal_weight: DiagonalWeight = 1.0
) -> FloatArray:
    """Positions (n_steps, d), evenly spaced by length from the projection to the restricted reconstruction of one
    point, given by its (m,) squared dissimilarities."""
    steps = checks.integer_in_range("n_steps", n_steps, 2, None, "both ends of the arc are given")
    squared = checks.real_array("squared_to_landmarks", squared_to_landmarks, 1)
    weight = resolved_weight(model, diagonal_weight)
    return arc_of_moments(model, landmark_moments(model, squared[None]), steps, weight)


def arc_of_moments(model: LandmarkModel, moments: Moments, steps: int, weight: float) -> FloatArray:
    """The arc of one point from its moments."""
    end = reconstruct_moments(model, moments, weight).coordinates[0]
    arc = _evenly_spaced(model.eigenvalues, moments.inner[0], end, steps)
    arc[0], arc[-1] = project_moments(model, moments)[0], end
    return arc


def _evenly_spaced(lam: FloatArray, c: FloatArray, end: FloatArray, n_steps: int) -> FloatArray:
    """Positions at equal distances along the curve and the straight piece after it."""
    parameters = np.linspace(0.0, 1.0, LENGTH_SAMPLES)
    curve = _curve(lam, c, end, parameters)
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))])
    straight = end - curve[-1]
    straight_length = float(np.linalg.norm(straight))
    wanted = np.linspace(0.0, lengths[-1] + straight_length, n_steps)
    positions = _curve(lam, c, end, np.interp(wanted, lengths, parameters))
    beyond = np.maximum(wanted - lengths[-1], 0.0)[:, None]
    return np.asarray(positions + straight * (beyond / max(straight_length, np.finfo(np.float64).tiny)))


def _curve(lam: FloatArray, c: FloatArray, end: FloatArray, parameters: FloatArray) -> FloatArray:
    """c / (lam + x), x = 0 at parameter 0 and mu at parameter 1."""
    # A coordinate follows the curve only if its own equation determines it; the free part of the hard case does not.
    active = (c != 0) & (np.sign(c) == np.sign(end))
    curve = np.zeros((len(parameters), len(c)))
    if active.any():
        nearest = np.flatnonzero(active)[-1]
        # The last denominator comes from y = c / (lam + mu), which keeps the digits that computing lam + mu cancels.
        denominators = lam[nearest] * (c[nearest] / end[nearest] / lam[nearest]) ** parameters
        curve[:, active] = c[active] / (lam[active] - lam[nearest] + denominators[:, None])
    return curve
