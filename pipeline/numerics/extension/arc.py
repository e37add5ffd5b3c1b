"""The arc of answers from the projection to the restricted reconstruction [T sec. 5].

y(x) = c / (lam + x) for x from 0 to mu. The paper expects singular values on the way; as mu >= -lam_d there are
none. In the hard case (mu = -lam_d, c_d = 0) the curve ends short of the minimizer, and a straight piece along the
last axis leads to it.
"""

import numpy as np
from numpy.typing import ArrayLike

from pipeline.numerics import checks
from pipeline.numerics.extension.moments import Moments, landmark_moments
from pipeline.numerics.extension.projection import project_moments
from pipeline.numerics.extension.restricted import DiagonalWeight, reconstruct_moments, resolved_weight
from pipeline.numerics.mds import LandmarkModel
from pipeline.types import FloatArray

# Positions at which the curve's length is measured. They are even in the logarithm of the smallest denominator, where
# y grows by at most a fixed factor from one to the next however close the pole is.
LENGTH_SAMPLES = 16384


def reconstruction_arc(
    model: LandmarkModel, squared_to_landmarks: ArrayLike, n_steps: int, diagonal_weight: DiagonalWeight = 1.0
) -> FloatArray:
    """Positions (n_steps, d) of one point, given by its (m,) squared dissimilarities, evenly spaced by length.

    The first is the projection, the last the reconstruction.
    """
    steps = checks.integer_in_range("n_steps", n_steps, 2, None, "both ends of the arc are given")
    squared = checks.real_array("squared_to_landmarks", squared_to_landmarks, 1)
    weight = resolved_weight(model, diagonal_weight)
    return arc_of_moments(model, landmark_moments(model, squared[None]), steps, weight)


def arc_of_moments(model: LandmarkModel, moments: Moments, steps: int, weight: float) -> FloatArray:
    """The arc of one point whose moments are known."""
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
    # A coordinate moves along the curve only if its own equation made it; the free part of the hard case did not.
    active = (c != 0) & (np.sign(c) == np.sign(end))
    curve = np.zeros((len(parameters), len(c)))
    if active.any():
        nearest = np.flatnonzero(active)[-1]
        # The last denominator lam + mu is taken from y = c / (lam + mu), which has the digits that lam + mu cancels.
        denominators = lam[nearest] * (c[nearest] / end[nearest] / lam[nearest]) ** parameters
        curve[:, active] = c[active] / (lam[active] - lam[nearest] + denominators[:, None])
    return curve
