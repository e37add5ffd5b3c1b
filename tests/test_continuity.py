"""Every extension is continuous at the landmarks, but for the weights of lle, whose neighbors change at once."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline import LandmarkIsomap
from pipeline.methods import DISSIMILARITIES, METHODS
from pipeline.numerics.datasets import swiss_roll

CASES = [
    (name, extension)
    for name, method in METHODS.items()
    for extension in method.extensions
    if (name, extension) != ("lle", "weights")
]
NEAR, CLOSE = 1e-9, 1e-6


@pytest.fixture(scope="module")
def points():
    """So many that none of the 8 nearest neighbors is on another turn: of 400 points, two pairs are."""
    return swiss_roll(600, seed=0).points


@pytest.fixture(scope="module")
def steps(points):
    """Of each point a step of NEAR of the spread, in a direction of its own."""
    directions = np.random.default_rng(0).normal(size=points.shape)
    return NEAR * np.ptp(points) * directions / np.linalg.norm(directions, axis=1)[:, None]


def fitted(method, extension, X, **settings):
    return LandmarkIsomap(8, 2, n_landmarks=40, random_state=0, method=method, extension=extension, **settings).fit(X)


def require_close(found, estimator):
    expected = estimator.embedding_[estimator.landmark_indices_]
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.ptp(estimator.embedding_, axis=0).max())


@pytest.mark.parametrize(("method", "extension"), CASES)
def test_landmarks_and_points_right_beside_them_are_placed_on_them(points, steps, method, extension):
    estimator = fitted(method, extension, points)
    landmarks = estimator.landmark_indices_
    require_close(estimator.transform(points[landmarks]), estimator)
    require_close(estimator.transform((points + steps)[landmarks]), estimator)


@pytest.mark.parametrize(("method", "extension"), [c for c in CASES if DISSIMILARITIES in METHODS[c[0]].inputs])
def test_so_they_are_by_dissimilarities_that_are_not_euclidean(points, steps, method, extension):
    apart = cdist(points, points, "cityblock")
    estimator = fitted(method, extension, apart, metric="precomputed")
    landmarks = estimator.landmark_indices_
    require_close(estimator.transform(apart[landmarks]), estimator)
    require_close(estimator.transform(cdist((points + steps)[landmarks], points, "cityblock")), estimator)


@pytest.mark.parametrize(("method", "extension"), [case for case in CASES if case[1] != "restricted"])
def test_landmarks_have_the_coordinates_that_the_model_gives_them(points, method, extension):
    """But for restricted reconstruction, which also fits the length that the landmarks' space does not have."""
    estimator = fitted(method, extension, points)
    own, found = estimator.model_.coordinates, estimator.embedding_[estimator.landmark_indices_]
    unit = np.ptp(found, axis=0).max() / np.ptp(own, axis=0).max()
    np.testing.assert_allclose(found, own * unit, rtol=0, atol=CLOSE * np.ptp(found))
