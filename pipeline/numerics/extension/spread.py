"""How far a point's coordinates hang on single landmarks: the standard error of its projection.

The projection is a least-squares fit. With r_i = -1/2 (a_2 - mean_i), which would be x_i'y and a constant if the
landmarks' space held everything, minimizing sum_i w_i (r_i - x_i'y - t)^2 over y and t gives y = c / lam and t =
mean(r), because X is centered and X'WX = diag(lam): distance-based triangulation [T eq. 7, 8; G eq. 39]. Its misfits
e_i = r_i - x_i'y - t are what other dimensions, geodesics that are not straight, and noise leave. Their weighted sum of
squares needs one number a point beside the moments, sum w_i r_i^2:

    RSS = sum w_i r_i^2 - sum_k c_k^2 / lam_k - m t^2

Moving r_i by e_i moves y_k by v_ik e_i, v_ik = w_i x_ik / lam_k. If misfits have one variance and do not depend on the
landmark, it is estimated by RSS / f, with f = m - sum_ik w_i x_ik v_ik - sum_i w_i^2 / m degrees of freedom (m - d - 1
without weights), and

    spread^2 = RSS / f * sum_ik v_ik^2

which without weights is RSS / (m - d - 1) * sum_k 1 / lam_k. It stands for what leaving out tenths of the landmarks
gives, the delete-a-group jackknife (G - 1) / G sum_g ||y_(-g) - y||^2, where y_(-g) minimizes over the landmarks that
are not in group g of G. To first order y_(-g) - y = -G / (G - 1) sum_{i in g} v_i e_i. As sum_i v_i e_i = 0, the mean
of the jackknife over all divisions into G groups of one size is sum_i |v_i|^2 e_i^2 whatever G is; where misfits do not
depend on the landmark that is spread^2, but for the degrees of freedom. A single division scatters around it with few
groups, ranks points less well by their errors, and needs d + 1 sums a point for each group.

For exactly Euclidean dissimilarities of d dimensions it is 0 up to rounding. It says nothing of errors that all misfits
share, like a uniform stretch of all paths. With an added constant c the coordinates are lam_k / (lam_k - c^2/2) times
the fit's, and so is their spread.
"""

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.mds import LandmarkModel, Moments
from pipeline.types import FloatArray

SPREAD = "spread"


def spread_of(model: LandmarkModel, moments: Moments) -> FloatArray:
    """The spread (p,) of points whose moments have `squares`, in the unit of the coordinates."""
    if moments.squares is None:
        raise TypeError("the moments were summed without squares")
    require_spare_landmark(model.n_landmarks, model.n_components)
    m, scale = model.n_landmarks, _scale(model)
    constant = -0.5 * (moments.beta + model.constant**2 / m - model.grand_mean / 2)
    rest = moments.squares / 4 - m * constant**2
    # Column by column: the order of a sum along rows would depend on their number.
    for inner, eigenvalue, by in zip(moments.inner.T, model.eigenvalues, _of_constant(model), strict=True):
        rest -= (inner / by) ** 2 / eigenvalue
    return np.asarray(np.sqrt(np.maximum(rest, 0.0) * scale))


def require_spare_landmark(n_landmarks: int, n_components: int) -> None:
    """Refuse as many landmarks as place a point without any misfit."""
    if n_landmarks < n_components + 2:
        raise InvalidInputError(
            f"spread=True needs misfits, which n_landmarks={n_landmarks} with n_components={n_components} do not have; "
            f"use n_landmarks of at least {n_components + 2}, or leave spread out."
        )


def _of_constant(model: LandmarkModel) -> FloatArray:
    """What the moments of a model with an added constant were multiplied by (d,)."""
    return np.asarray(model.eigenvalues / (model.eigenvalues - model.constant**2 / 2))


def _scale(model: LandmarkModel) -> float:
    """sum_ik v_ik^2 / f, with the constant's factors."""
    m = model.n_landmarks
    w = np.ones(m) if model.weights is None else model.weights
    moved = w[:, None] * model.coordinates / model.eigenvalues
    freedom = m - float((w[:, None] * model.coordinates * moved).sum()) - float((w * w).sum()) / m
    return float(((moved * _of_constant(model)) ** 2).sum()) / freedom
