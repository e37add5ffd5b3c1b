"""Projection, alias Nystrom extension [T eq. 4, 7, 8; G eq. 39, 60; B eq. 11, 15].

Gower's formula for adding a point, kernel PCA, the eigenfunction formula, least squares on X and distance-based
triangulation are all y = c / lam. ([G eq. 41] is printed with unsquared distances and a scalar average.)
"""

import numpy as np
from numpy.typing import ArrayLike

from pipeline.numerics.extension.moments import Moments, landmark_moments
from pipeline.numerics.mds import LandmarkModel
from pipeline.types import FloatArray


def project(model: LandmarkModel, squared_to_landmarks: ArrayLike) -> FloatArray:
    """Coordinates (p, d) of points from their (p, m) squared dissimilarities to the landmarks.

    A landmark's own row gives its own coordinates. A row's bytes do not depend on the rows beside it.
    """
    return project_moments(model, landmark_moments(model, squared_to_landmarks))


def project_moments(model: LandmarkModel, moments: Moments) -> FloatArray:
    """y = c / lam, for moments already computed."""
    return np.asarray(moments.inner / model.eigenvalues)
