"""The answers that are known in closed form [T ex. 1, 2, sec. 6], to 1e-10."""

import numpy as np
import pytest
from scipy.optimize import minimize, root

from pipeline.numerics.extension import (
    joint_restricted_reconstruction,
    project,
    reconstruction_arc,
    restricted_reconstruction,
)
from pipeline.numerics.mds import classical_mds

EXACT = {"rtol": 0, "atol": 1e-10}
EXAMPLE_2 = np.array([[0, 100, 45, 45], [100, 0, 45, 45], [45, 45, 0, 64], [45, 45, 64, 0]])
OUTLIER = np.array([386, 386, 457, 457])
# [T ex. 1]: xi = (-1, 0), (1, 0) on a line; eta = (0, 9) has squared distance 82 to both.
EXAMPLE_1 = np.array([[0, 4], [4, 0]])


def test_example_2_configuration():
    model = classical_mds(EXAMPLE_2, 2)
    np.testing.assert_allclose(model.coordinates, [[5, 0], [-5, 0], [0, 4], [0, -4]], **EXACT)
    np.testing.assert_allclose(model.eigenvalues, [50, 32], **EXACT)


def test_example_2_projection_is_the_centroid():
    np.testing.assert_allclose(project(classical_mds(EXAMPLE_2, 2), [OUTLIER]), [[0, 0]], **EXACT)


def test_example_2_restricted_reconstruction_is_far_out_and_ambiguous():
    answer = restricted_reconstruction(classical_mds(EXAMPLE_2, 2), [OUTLIER])
    np.testing.assert_allclose(np.abs(answer.coordinates), [[0, np.sqrt(368)]], **EXACT)
    np.testing.assert_allclose(answer.multipliers, [-32], **EXACT)
    np.testing.assert_allclose(answer.objective, [2 * 32 * 368 + (368 - 400) ** 2], rtol=1e-12)
    assert answer.ambiguous.all()


def test_example_2_the_other_sign_is_as_good():
    model = classical_mds(EXAMPLE_2, 2)
    y = restricted_reconstruction(model, [OUTLIER]).coordinates[0]

    def objective(y):
        return 2 * ((model.coordinates @ y) ** 2).sum() + (y @ y - 400) ** 2

    assert objective(y * [1, -1]) == pytest.approx(objective(y), rel=1e-12)


def test_example_2_arc_runs_straight_from_the_centroid_to_the_outlier():
    arc = reconstruction_arc(classical_mds(EXAMPLE_2, 2), OUTLIER, 11)
    np.testing.assert_allclose(arc[:, 0], 0, **EXACT)
    np.testing.assert_allclose(np.abs(arc[:, 1]), np.linspace(0, np.sqrt(368), 11), rtol=1e-3, atol=1e-10)


def test_example_1_as_reconstruction_of_inner_products():
    """The characterization used for proximity data: lam = 2, c = 0, beta = 81."""
    model = classical_mds(EXAMPLE_1, 1)
    np.testing.assert_allclose(model.eigenvalues, [2], **EXACT)
    np.testing.assert_allclose(project(model, [[82, 82]]), [[0]], **EXACT)
    answer = restricted_reconstruction(model, [[82, 82]])
    np.testing.assert_allclose(np.abs(answer.coordinates), [[np.sqrt(79)]], **EXACT)
    assert answer.ambiguous.all()


def test_example_1_as_best_hyperplane():
    """The paper's other characterization of PCA: cos(theta) = 1/27, y = 6 sin(theta), out of sample 3y/2 = 8.994."""
    data = np.array([[-1, -3], [1, -3], [0, 6]])

    def misfit(parameters):
        theta, y = parameters
        rotation = np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
        line = np.array([[-1 - y / 2, 0], [1 - y / 2, 0], [y, 0]])
        return ((data @ rotation - line) ** 2).sum()

    starts = [(1, 3), (0, 0), (2, 6), (1, -3)]
    rough = min((minimize(misfit, start) for start in starts), key=lambda end: end.fun).x

    def slope(parameters):
        theta, y = parameters
        return [-18 * y * np.cos(theta) + 4 * np.sin(theta), 3 * y - 18 * np.sin(theta)]

    theta, y = root(slope, rough, tol=1e-14).x
    assert np.cos(theta) == pytest.approx(1 / 27, abs=1e-10)
    assert abs(y) == pytest.approx(6 * np.sqrt(1 - 1 / 27**2), abs=1e-10)
    assert misfit((theta, y)) <= misfit(rough) + 1e-10
    assert abs(1.5 * y) == pytest.approx(8.994, abs=5e-4)


def test_opposite_new_points_come_out_on_opposite_sides():
    """[T sec. 6]: eta = (0, 9) and (0, -9); projection puts both at 0."""
    model = classical_mds(EXAMPLE_1, 1)
    to_landmarks, between = [[82, 82], [82, 82]], [[0, 324], [324, 0]]
    np.testing.assert_allclose(project(model, to_landmarks), [[0], [0]], **EXACT)
    answer = joint_restricted_reconstruction(model, to_landmarks, between)
    # By symmetry y1 = -y2 = s minimizes 4 s^2 * 2 + 4 (s^2 - 81)^2, at s^2 = 80.
    np.testing.assert_allclose(np.abs(answer.coordinates), [[np.sqrt(80)], [np.sqrt(80)]], **EXACT)
    assert answer.coordinates[0, 0] * answer.coordinates[1, 0] < 0
    assert answer.ambiguous.all()
