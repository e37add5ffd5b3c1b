"""Both answers and the trust columns in one call equal the functions that make them, whatever the block."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline.numerics.extension import placement as trust
from pipeline.numerics.extension import project, restricted_reconstruction
from pipeline.numerics.mds import classical_mds


@pytest.fixture
def problem(rng):
    landmarks, points = rng.normal(size=(40, 6)), rng.normal(size=(300, 6)) * 1.5
    model = classical_mds(cdist(landmarks, landmarks) ** 2, 4)
    return model, cdist(points, landmarks).astype(np.float32)


def test_columns_are_what_their_names_say(problem):
    model, lengths = problem
    squared = lengths.astype(np.float64) ** 2
    found = trust.placed(model, lengths, 40.0)
    answer = restricted_reconstruction(model, squared, 40.0)
    np.testing.assert_array_equal(found.projection, project(model, squared))
    np.testing.assert_array_equal(found.restricted, answer.coordinates)
    np.testing.assert_array_equal(found.multiplier, answer.multipliers)
    np.testing.assert_array_equal(found.ambiguous, answer.ambiguous)
    np.testing.assert_allclose(found.gap, np.linalg.norm(found.projection - found.restricted, axis=1), rtol=1e-12)
    beta = squared.mean(axis=1) - model.grand_mean / 2
    np.testing.assert_allclose(found.residual, beta - (found.projection**2).sum(axis=1), rtol=1e-9)


def test_the_residual_is_the_squared_part_outside_the_space(rng):
    """For Euclidean dissimilarities: landmarks in a plane, points above it."""
    landmarks = np.concatenate([rng.normal(size=(30, 2)), np.zeros((30, 1))], axis=1)
    heights = rng.normal(size=50)
    points = np.concatenate([rng.normal(size=(50, 2)), heights[:, None]], axis=1)
    model = classical_mds(cdist(landmarks, landmarks) ** 2, 2)
    np.testing.assert_allclose(trust.placed(model, cdist(points, landmarks), 1.0).residual, heights**2, atol=1e-12)


def test_a_row_does_not_depend_on_the_rows_beside_it(problem):
    model, lengths = problem
    whole = trust.placed(model, lengths, 1.0)
    for part, other in zip(whole, trust.placed(model, lengths[100:101], 1.0), strict=True):
        assert part[100:101].tobytes() == other.tobytes()


def test_no_points_give_empty_results(problem):
    model, lengths = problem
    assert [part.shape for part in trust.placed(model, lengths[:0], 1.0)] == [(0, 4), (0, 4), (0,), (0,), (0,), (0,)]
