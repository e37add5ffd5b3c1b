"""Restricted reconstruction through its public function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import project, restricted_reconstruction
from pipeline.numerics.mds import classical_mds

seeds = st.integers(0, 2**32 - 1)


def problem(seed, m=20, p=30, d=3, outside=1.0):
    """Points in 6 dimensions, landmarks nearly within 3 of them, and squared distances."""
    rng = np.random.default_rng(seed)
    shape = np.array([3, 2, 1, 0.2, 0.2, 0.2])
    landmarks, points = rng.normal(size=(m, 6)) * shape, rng.normal(size=(p, 6)) * shape
    points[:, 3:] *= 5 * outside
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), d)
    return model, cdist(points, landmarks, "sqeuclidean")


def moments_by_definition(model, rows):
    """b and beta as [T eq. 6, 9] write them, without any shortcut."""
    means = rows.mean(axis=1)
    b = -0.5 * (rows - means[:, None] - model.row_means + model.grand_mean)
    return b, means - model.grand_mean / 2


def full_objective(model, rows, y, weight):
    b, beta = moments_by_definition(model, rows)
    return 2 * ((y @ model.coordinates.T - b) ** 2).sum(axis=1) + weight * ((y * y).sum(axis=1) - beta) ** 2


@given(seeds)
def test_beta_and_b_are_gowers_blocks(seed):
    """[T eq. 11]: with weights on the landmarks only, tau_w bordered by the new point has b and beta at its edge."""
    rng = np.random.default_rng(seed)
    landmarks, point = rng.normal(size=(8, 3)), rng.normal(size=(1, 3))
    squared, row = cdist(landmarks, landmarks, "sqeuclidean"), cdist(point, landmarks, "sqeuclidean")
    bordered = np.block([[squared, row.T], [row, np.zeros((1, 1))]])
    w = np.append(np.full(8, 1 / 8), 0.0)
    left = np.eye(9) - np.outer(np.ones(9), w)
    tau = -0.5 * left @ bordered @ left.T
    b, beta = moments_by_definition(classical_mds(squared, 2), row)
    np.testing.assert_allclose(b[0], tau[:8, 8], atol=1e-10)
    np.testing.assert_allclose(beta, tau[8, 8], atol=1e-10)


@given(seeds, st.sampled_from([1.0, 0.01, 50.0, "balanced"]))
def test_is_never_worse_than_the_projection_nor_than_anything_nearby(seed, weight):
    model, rows = problem(seed)
    number = model.n_landmarks if weight == "balanced" else weight
    y = restricted_reconstruction(model, rows, weight).coordinates
    found = full_objective(model, rows, y, number)
    assert (found <= full_objective(model, rows, project(model, rows), number) * (1 + 1e-12)).all()
    rng = np.random.default_rng(seed)
    for size in (1e-4, 1e-2, 1, 10):
        nearby = y + size * rng.normal(size=y.shape)
        assert (found <= full_objective(model, rows, nearby, number) * (1 + 1e-12)).all()


@given(seeds)
def test_reported_objective_lacks_only_the_constant(seed):
    model, rows = problem(seed)
    answer = restricted_reconstruction(model, rows, 3.0)
    b, _ = moments_by_definition(model, rows)
    full = full_objective(model, rows, answer.coordinates, 3.0)
    np.testing.assert_allclose(answer.objective + 2 * (b**2).sum(axis=1), full, rtol=1e-9)


@given(seeds)
def test_a_point_of_the_landmarks_space_stays_where_projection_puts_it(seed):
    """Nothing lies outside: beta is the squared length, both terms vanish at the projection."""
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(15, 3)), rng.normal(size=(10, 3))
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), 3)
    rows = cdist(points, landmarks, "sqeuclidean")
    answer = restricted_reconstruction(model, rows, "balanced")
    np.testing.assert_allclose(answer.coordinates, project(model, rows), atol=1e-9)
    np.testing.assert_allclose(answer.multipliers, 0, atol=1e-8)
    assert not answer.ambiguous.any()


@given(seeds)
def test_points_outside_are_pushed_outwards_and_more_so_with_more_weight(seed):
    model, rows = problem(seed, outside=3.0)
    lengths = [np.linalg.norm(project(model, rows), axis=1)]
    for weight in (0.1, 1.0, 10.0, 1000.0):
        answer = restricted_reconstruction(model, rows, weight)
        lengths.append(np.linalg.norm(answer.coordinates, axis=1))
    outside = answer.multipliers < 0
    assert outside.any()
    assert (np.diff(np.array(lengths)[:, outside], axis=0) >= -1e-9).all()


@pytest.mark.parametrize("exponent", [-100, -20, 7, 100])
def test_rescaling_by_a_power_of_two_rescales_the_bits(exponent):
    rng = np.random.default_rng(1)
    landmarks, points = rng.normal(size=(12, 4)), rng.normal(size=(40, 4))
    s = 2.0**exponent
    squared, rows = cdist(landmarks, landmarks, "sqeuclidean"), cdist(points, landmarks, "sqeuclidean")
    plain = restricted_reconstruction(classical_mds(squared, 2), rows)
    scaled = restricted_reconstruction(classical_mds(squared * s**2, 2), rows * s**2)
    np.testing.assert_array_equal(scaled.coordinates, plain.coordinates * s)
    np.testing.assert_array_equal(scaled.multipliers, plain.multipliers * s**2)
    np.testing.assert_array_equal(scaled.objective, plain.objective * s**4)


def test_a_row_has_the_same_bytes_in_any_batch():
    model, rows = problem(4, p=301)
    whole = restricted_reconstruction(model, rows)
    for size in (1, 7, 128):
        for first in range(0, 301, size):
            piece = restricted_reconstruction(model, rows[first : first + size])
            for name in ("coordinates", "multipliers", "objective", "ambiguous"):
                np.testing.assert_array_equal(getattr(piece, name), getattr(whole, name)[first : first + size])


@pytest.mark.parametrize("weight", [0, -1.0, np.nan, np.inf, 1e31, "blanced", None, True, [1.0]])
def test_bad_weights_are_refused_with_the_valid_ones(weight):
    model, rows = problem(0)
    with pytest.raises(
        InvalidInputError, match=r"diagonal_weight=.*(use .* from 1e-30 to 1e\+30|use one of 'balanced')"
    ):
        restricted_reconstruction(model, rows, weight)
