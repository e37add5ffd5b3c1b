"""Projection: one formula under many names, the same bytes however rows are batched.

Restricted reconstruction through its public function.

The arc starts at the projection, ends at the reconstruction and is continuous between.

The answers that are known in closed form [T ex. 1, 2, sec. 6], to 1e-10.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, root
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA, KernelPCA

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import (
    joint_restricted_reconstruction,
    project,
    reconstruction_arc,
    restricted_reconstruction,
)
from pipeline.numerics.mds import LandmarkModel, classical_mds, double_centered

seeds = st.integers(0, 2**32 - 1)


def problem(seed, m=20, p=7, d=3, power=0.8):
    """Non-Euclidean squared dissimilarities: between landmarks, and of new points to them."""
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(m, 5)), rng.normal(size=(p, 5))
    squared = cdist(landmarks, landmarks, "sqeuclidean") ** power
    return classical_mds(squared, d), squared, cdist(points, landmarks, "sqeuclidean") ** power


def centered_kernel(squared, to_landmarks):
    """b of [T eq. 6] for every new point, by its definition."""
    return -0.5 * (to_landmarks - to_landmarks.mean(axis=1)[:, None] - squared.mean(axis=0) + squared.mean())


@given(seeds)
def test_is_the_least_squares_solution(seed):
    """[T eq. 7], after Anderson and Robinson."""
    model, squared, to_landmarks = problem(seed)
    b = centered_kernel(squared, to_landmarks)
    expected = np.linalg.lstsq(model.coordinates, b.T, rcond=None)[0].T
    np.testing.assert_allclose(project(model, to_landmarks), expected, rtol=1e-9, atol=1e-11)


@given(seeds)
def test_is_distance_based_triangulation(seed):
    """[T eq. 8], after de Silva and Tenenbaum: the pseudo-inverse of X' on -1/2 (a_2 - mean_i)."""
    model, squared, to_landmarks = problem(seed)
    expected = -0.5 * (to_landmarks - squared.mean(axis=0)) @ np.linalg.pinv(model.coordinates).T
    np.testing.assert_allclose(project(model, to_landmarks), expected, rtol=1e-9, atol=1e-11)


@given(seeds)
def test_is_the_eigenfunction_formula(seed):
    """[B eq. 11, 15], [T eq. 4]: sqrt(lam_k)/lam_k sum_i v_ik k(new, x_i)."""
    model, squared, to_landmarks = problem(seed)
    eigenvalues, vectors = np.linalg.eigh(double_centered(squared))
    lam, V = eigenvalues[::-1][:3], vectors[:, ::-1][:, :3]
    V = V * np.sign((V * model.coordinates).sum(axis=0))
    expected = centered_kernel(squared, to_landmarks) @ V / np.sqrt(lam)
    np.testing.assert_allclose(project(model, to_landmarks), expected, rtol=1e-9, atol=1e-11)


@given(seeds)
def test_is_kernel_pca(seed):
    """[G eq. 39]: scikit-learn's KernelPCA on -1/2 Delta_2 centers the same way."""
    model, squared, to_landmarks = problem(seed, power=0.5)
    kernel_pca = KernelPCA(3, kernel="precomputed", eigen_solver="dense").fit(-0.5 * squared)
    expected = kernel_pca.transform(-0.5 * to_landmarks)
    found = project(model, to_landmarks)
    np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, rtol=1e-8, atol=1e-10)


@given(seeds)
def test_is_gowers_formula_and_so_adds_a_point_to_a_principal_component_analysis(seed):
    """[T eq. 1], after Gower: with Euclidean distances the score of the new point."""
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(15, 4)) * [4, 3, 2, 1], rng.normal(size=(6, 4))
    model = classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), 2)
    expected = PCA(2).fit(landmarks).transform(points)
    found = project(model, cdist(points, landmarks, "sqeuclidean"))
    np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, rtol=1e-8, atol=1e-10)


@given(seeds, st.integers(3, 40), st.integers(1, 3))
def test_a_landmark_projects_to_its_own_coordinates(seed, m, d):
    model, squared, _ = problem(seed, m=m, d=min(d, m - 2), power=0.7)
    np.testing.assert_allclose(project(model, squared), model.coordinates, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("m", [4, 5, 6, 7, 129])
def test_a_row_has_the_same_bytes_in_any_batch(m, order, dtype):
    model, _, to_landmarks = problem(0, m=m, p=300, d=2)
    rows = np.asarray(to_landmarks, dtype=dtype, order=order)
    whole = project(model, rows)
    for size in (1, 2, 7, 127, 128, 129):
        pieces = [project(model, rows[i : i + size]) for i in range(0, 300, size)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_single_precision_rows_are_summed_in_double_precision():
    model, _, to_landmarks = problem(3, m=501, p=5)
    rows = to_landmarks.astype(np.float32)
    np.testing.assert_array_equal(project(model, rows), project(model, rows.astype(np.float64)))


def test_no_points_give_no_coordinates():
    model, _, _ = problem(0)
    assert project(model, np.empty((0, 20))).shape == (0, 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, 19)), r"shape \(2, 19\); it must be \(n_points, 20\)"),
        (np.ones(20), r"shape \(20,\)"),
        (np.full((2, 20), -1.0), r"squared_to_landmarks has a negative entry, -1 at \(0, 0\)"),
        (np.where(np.eye(2, 20) > 0, np.nan, 1), "2 NaN or infinite entries, first in rows 0, 1"),
        (np.where(np.eye(2, 20, 1) > 0, np.inf, 1), "2 NaN or infinite entries, first in rows 0, 1"),
        (np.full((1, 20), 1e308), r"squared_to_landmarks reaches 1e\+308 .* rescale"),
        (np.ones((2, 20), complex), "real numbers"),
        (np.ones((2, 20), object), "real numbers"),
        ([["a"] * 20], "real numbers"),
    ],
)
def test_bad_rows_are_refused(rows, message):
    model, _, _ = problem(0)
    with pytest.raises(InvalidInputError, match=message):
        project(model, rows)


def reconstruction_problem(seed, m=20, p=30, d=3, outside=1.0):
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
    model, rows = reconstruction_problem(seed)
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
    model, rows = reconstruction_problem(seed)
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
    model, rows = reconstruction_problem(seed, outside=3.0)
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


def test_a_reconstruction_has_the_same_bytes_in_any_batch():
    model, rows = reconstruction_problem(4, p=301)
    whole = restricted_reconstruction(model, rows)
    for size in (1, 7, 128):
        for first in range(0, 301, size):
            piece = restricted_reconstruction(model, rows[first : first + size])
            for name in ("coordinates", "multipliers", "objective", "ambiguous"):
                np.testing.assert_array_equal(getattr(piece, name), getattr(whole, name)[first : first + size])


@pytest.mark.parametrize("weight", [0, -1.0, np.nan, np.inf, 1e31, "blanced", None, True, [1.0]])
def test_bad_weights_are_refused_with_the_valid_ones(weight):
    model, rows = reconstruction_problem(0)
    with pytest.raises(
        InvalidInputError, match=r"diagonal_weight=.*(use .* from 1e-30 to 1e\+30|use one of 'balanced')"
    ):
        restricted_reconstruction(model, rows, weight)


def random_problem(seed):
    rng = np.random.default_rng(seed)
    shape = np.array([3, 2, 1, 1, 1])
    landmarks, point = rng.normal(size=(12, 5)) * shape, rng.normal(size=(1, 5)) * shape * rng.choice([0.2, 1, 4])
    return classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), 3), cdist(point, landmarks, "sqeuclidean")[0]


def planted_problem(inner, length):
    """A model with lam = (50, 32) and a row whose moments are c = `inner` and beta = `length`."""
    X = np.array([[5.0, 0], [-5, 0], [0, 4], [0, -4]])
    squared = cdist(X, X, "sqeuclidean")
    model = LandmarkModel(
        X, np.array([50.0, 32.0]), squared.mean(axis=1), float(squared.mean()), np.array([50.0, 32, 0, 0])
    )
    b = X @ (np.asarray(inner) / model.eigenvalues)
    return model, -2 * b + model.row_means + length - model.grand_mean / 2


HARD = [
    planted_problem((0, 0), 400.0),
    planted_problem((120, 0), 400.0),
    planted_problem((120, 1e-9), 400.0),
    planted_problem((-120, -1e-3), 400.0),
    planted_problem((0, 1e-12), 400.0),
]
problems = st.one_of(st.integers(0, 2**32 - 1).map(random_problem), st.sampled_from(HARD))


@given(problems, st.sampled_from([1.0, 0.1, "balanced"]))
def test_ends_are_the_two_answers_to_the_bit(problem, weight):
    model, row = problem
    arc = reconstruction_arc(model, row, 7, weight)
    np.testing.assert_array_equal(arc[0], project(model, [row])[0])
    np.testing.assert_array_equal(arc[-1], restricted_reconstruction(model, [row], weight).coordinates[0])


@given(problems, st.sampled_from([2, 3, 50, 400]))
def test_steps_have_equal_length_so_nothing_jumps(problem, n_steps):
    model, row = problem
    arc = reconstruction_arc(model, row, n_steps)
    assert arc.shape == (n_steps, model.n_components)
    reference = reconstruction_arc(model, row, 5000)
    total = np.linalg.norm(np.diff(reference, axis=0), axis=1).sum()
    steps = np.linalg.norm(np.diff(arc, axis=0), axis=1)
    assert (steps <= total / (n_steps - 1) * 1.001 + 1e-12).all()
    # Chords cut corners, so coarse steps may be shorter than their piece of the arc; fine ones leave little out.
    if n_steps == 400:
        assert steps.sum() >= 0.99 * total


@given(problems)
def test_every_position_solves_the_equation_for_some_multiplier(problem):
    """c / (lam + x) with one x for all coordinates, or the straight piece of the hard case along the last axis."""
    model, row = problem
    arc = reconstruction_arc(model, row, 30)
    end = arc[-1]
    inner = project(model, [row])[0] * model.eigenvalues
    multiplier = restricted_reconstruction(model, [row]).multipliers[0]
    for y in arc:
        moving = np.abs(y) > 1e-6 * np.abs(end).max()
        x = inner[moving] / y[moving] - model.eigenvalues[moving]
        on_straight_piece = np.allclose(y[:-1], end[:-1], rtol=1e-6, atol=1e-9)
        assert on_straight_piece or np.ptp(x) <= 1e-5 * model.eigenvalues[0]
        assert on_straight_piece or (min(multiplier, 0) - 1e-4 <= x.min() and x.max() <= max(multiplier, 0) + 1e-4)


def test_hard_case_takes_the_curve_and_then_the_straight_piece():
    model, row = HARD[1]
    arc = reconstruction_arc(model, row, 1001)
    np.testing.assert_allclose(arc[0], [120 / 50, 0], atol=1e-12)
    np.testing.assert_allclose(arc[-1], [120 / 18, np.sqrt(400 - 32 - (120 / 18) ** 2)], rtol=1e-10)
    corner = arc[np.argmax(arc[:, 1] > 0)]
    np.testing.assert_allclose(corner, [120 / 18, 0], atol=0.1)


@pytest.mark.parametrize("n_steps", [1, 0, 2.5, "9"])
def test_bad_numbers_of_steps_are_refused(n_steps):
    with pytest.raises(InvalidInputError, match=r"n_steps=.* at least 2"):
        reconstruction_arc(*HARD[0], n_steps)


def test_several_rows_are_refused():
    model, row = HARD[0]
    with pytest.raises(InvalidInputError, match=r"squared_to_landmarks has shape \(1, 4\); it must have 1 dimension"):
        reconstruction_arc(model, [row], 5)


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
