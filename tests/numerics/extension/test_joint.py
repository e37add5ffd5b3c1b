"""Points reconstructed together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import joint_restricted_reconstruction, project, restricted_reconstruction
from pipeline.numerics.mds import classical_mds

seeds = st.integers(0, 2**32 - 1)


def problem(seed, k=5, d=2, outside=2.0):
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(10, 4)) * [3, 2, 0.3, 0.3], rng.normal(size=(k, 4)) * [3, 2, outside, outside]
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), d)
    return model, cdist(points, landmarks, "sqeuclidean"), cdist(points, points, "sqeuclidean")


def joint_objective(model, rows, between, Y):
    """2||XY' - b||^2 + ||YY' - beta||^2 as [T sec. 6] writes it, with all its terms."""
    means = rows.mean(axis=1)
    b = -0.5 * (rows - means[:, None] - model.row_means + model.grand_mean)
    beta = -0.5 * (between - means[:, None] - means + model.grand_mean)
    return 2 * ((Y @ model.coordinates.T - b) ** 2).sum() + ((Y @ Y.T - beta) ** 2).sum()


@given(seeds)
def test_is_never_worse_than_the_points_one_by_one_nor_than_projection(seed):
    model, rows, between = problem(seed)
    found = joint_objective(model, rows, between, joint_restricted_reconstruction(model, rows, between).coordinates)
    single = restricted_reconstruction(model, rows).coordinates
    for start in (single, project(model, rows)):
        assert found <= joint_objective(model, rows, between, start) * (1 + 1e-12)


@given(seeds)
def test_no_single_point_can_be_moved_to_a_better_place(seed):
    """Against a fine grid over the plane for each point, the others held: the moves of single points are global."""
    model, rows, between = problem(seed, k=4)
    Y = joint_restricted_reconstruction(model, rows, between).coordinates
    found = joint_objective(model, rows, between, Y)
    reach = 1.5 * np.abs(Y).max() + 1
    grid = np.stack(np.meshgrid(*[np.linspace(-reach, reach, 15)] * 2), axis=-1).reshape(-1, 2)
    for i in range(4):
        for place in grid:
            moved = Y.copy()
            moved[i] = place
            assert joint_objective(model, rows, between, moved) >= found * (1 - 1e-9)


@given(seeds)
def test_gradient_vanishes(seed):
    model, rows, between = problem(seed, k=3)
    Y = joint_restricted_reconstruction(model, rows, between).coordinates
    slope = approx_fprime(Y.ravel(), lambda y: joint_objective(model, rows, between, y.reshape(Y.shape)), 1e-6)
    assert np.abs(slope).max() <= 1e-3 * joint_objective(model, rows, between, np.zeros_like(Y))


@given(seeds)
def test_one_point_jointly_is_that_point_alone(seed):
    model, rows, _ = problem(seed, k=1)
    joint, single = joint_restricted_reconstruction(model, rows, [[0.0]]), restricted_reconstruction(model, rows)
    np.testing.assert_allclose(joint.coordinates, single.coordinates, atol=1e-6)
    np.testing.assert_allclose(joint.objective, single.objective, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(joint.multipliers, single.multipliers, atol=1e-5)


@given(seeds)
def test_points_of_the_landmarks_space_are_found_exactly(seed):
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(9, 2)), rng.normal(size=(4, 2))
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), 2)
    rows, between = cdist(points, landmarks, "sqeuclidean"), cdist(points, points, "sqeuclidean")
    answer = joint_restricted_reconstruction(model, rows, between)
    np.testing.assert_allclose(answer.coordinates, project(model, rows), atol=1e-6)
    assert not answer.ambiguous.any()


@given(seeds)
def test_shares_add_up_to_the_objective_without_the_constant(seed):
    model, rows, between = problem(seed)
    answer = joint_restricted_reconstruction(model, rows, between)
    means = rows.mean(axis=1)
    b = -0.5 * (rows - means[:, None] - model.row_means + model.grand_mean)
    full = joint_objective(model, rows, between, answer.coordinates)
    assert answer.objective.sum() + 2 * (b**2).sum() == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e12])
def test_scale_does_not_matter(scale):
    model, rows, between = problem(7)
    rng = np.random.default_rng(7)
    landmarks = rng.normal(size=(10, 4)) * [3, 2, 0.3, 0.3]
    scaled_model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean") * scale**2, 2)
    plain = joint_restricted_reconstruction(model, rows, between)
    scaled = joint_restricted_reconstruction(scaled_model, rows * scale**2, between * scale**2)
    np.testing.assert_allclose(scaled.coordinates, plain.coordinates * scale, rtol=1e-5, atol=1e-6 * scale)


def test_four_points_around_a_line_split_into_two_sides():
    """(0, 9), (0, -9), (0.5, 9), (0.5, -9) over the landmarks (-1, 0), (1, 0): two and two, by their distances."""
    landmarks = np.array([[-1.0, 0], [1, 0]])
    points = np.array([[0, 9], [0, -9], [0.001, 9], [0.001, -9]])
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), 1)
    rows, between = cdist(points, landmarks, "sqeuclidean"), cdist(points, points, "sqeuclidean")
    Y = joint_restricted_reconstruction(model, rows, between).coordinates[:, 0]
    assert Y[0] * Y[1] < 0
    assert Y[0] * Y[2] > 0
    assert Y[1] * Y[3] > 0


@pytest.mark.parametrize(
    ("between", "message"),
    [
        (np.zeros((2, 2)), r"squared_between has shape \(2, 2\); it must be \(5, 5\)"),
        (np.triu(np.ones((5, 5)), 1), "squared_between is not symmetric"),
        (np.ones((5, 5)), "squared_between has a nonzero diagonal"),
        (-1.0 * (np.ones((5, 5)) - np.eye(5)), "squared_between has a negative entry"),
    ],
)
def test_bad_distances_between_the_points_are_refused(between, message):
    model, rows, _ = problem(0)
    with pytest.raises(InvalidInputError, match=message):
        joint_restricted_reconstruction(model, rows, between)
