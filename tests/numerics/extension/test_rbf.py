"""Cubic radial basis functions on dissimilarities: scipy's interpolant, linear parts reproduced, landmarks met."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RBFInterpolator
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import project
from pipeline.numerics.extension.interpolation import leave_one_out_error, rbf_extension
from pipeline.numerics.mds import classical_mds

seeds = st.integers(0, 2**32 - 1)


def bent(x):
    return np.stack([x[:, 0] + 0.3 * x[:, 1] ** 2, np.sin(x[:, 1]), x[:, 0] * x[:, 1]], axis=1)


def problem(seed, m=40, p=12, dimension=2, spread=1.0):
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(m, dimension)), spread * rng.normal(size=(p, dimension))
    return landmarks, points, cdist(landmarks, landmarks), cdist(points, landmarks)


def along_a_spiral(seed, m, p):
    """A strip wound up, its geodesic distances, and coordinates that are no linear function of the strip's."""
    rng = np.random.default_rng(seed)
    strip = rng.random((m + p, 2)) * [10.0, 2.0]
    curved = np.stack([np.cos(strip[:, 0] / 3), np.sin(strip[:, 0] / 3), strip[:, 1] ** 2 / 4], axis=1)
    # Not Euclidean: path lengths on a graph are never the straight ones.
    apart = cdist(strip, strip) * (1 + 0.03 * np.abs(np.sin(np.add.outer(strip[:, 0], strip[:, 0]))))
    apart = np.minimum(apart, apart.T)
    np.fill_diagonal(apart, 0.0)
    return apart[:m, :m], curved[:m], apart[m:, :m], curved[m:]


@given(seeds, st.integers(2, 4))
def test_is_the_interpolant_of_points_that_only_their_distances_tell_of(seed, dimension):
    """[M eq. 14] in the data itself, by scipy."""
    landmarks, points, between, to_landmarks = problem(seed, dimension=dimension)
    values = bent(landmarks)
    expected = RBFInterpolator(landmarks, values, kernel="cubic", degree=1)(points)
    found = rbf_extension(between, values, n_axes=dimension).place(to_landmarks).coordinates
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


@given(seeds)
def test_few_axes_are_the_interpolant_of_principal_components(seed):
    landmarks, _, between, to_landmarks = problem(seed, dimension=6)
    values = bent(landmarks)
    model = classical_mds(between**2, 3)
    expected = RBFInterpolator(model.coordinates, values, kernel="cubic")(project(model, to_landmarks**2))
    found = rbf_extension(between, values, n_axes=3).place(to_landmarks).coordinates
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


@given(seeds, st.integers(2, 60))
def test_a_landmark_is_placed_at_its_own_coordinates(seed, m):
    landmarks, _, between, _ = problem(seed, m=m, dimension=3)
    values = bent(landmarks)
    placed = rbf_extension(between, values).place(between)
    np.testing.assert_allclose(placed.coordinates, values, atol=1e-8 * np.abs(values).max())
    np.testing.assert_array_equal(placed.residual, 0)


@pytest.mark.parametrize("n_axes", [None, 2, 5, 20])
def test_landmarks_are_met_on_dissimilarities_that_no_euclidean_space_has(n_axes):
    between, values, _, _ = along_a_spiral(0, 120, 0)
    placed = rbf_extension(between, values, n_axes).place(between)
    np.testing.assert_allclose(placed.coordinates, values, atol=1e-8 * np.abs(values).max())


@given(seeds, st.sampled_from([1.0, 1e3]))
def test_linear_functions_are_reproduced_however_far_away(seed, spread):
    rng = np.random.default_rng(seed)
    landmarks, points, between, to_landmarks = problem(seed, dimension=3, spread=spread)
    slopes, constant = rng.normal(size=(3, 2)), rng.normal(size=2)
    found = rbf_extension(between, landmarks @ slopes + constant, n_axes=3).place(to_landmarks).coordinates
    np.testing.assert_allclose(found, points @ slopes + constant, atol=1e-8 * spread**2)


@given(seeds)
def test_of_classical_scaling_it_is_the_projection(seed):
    between, _, to_landmarks, _ = along_a_spiral(seed, 40, 10)
    model = classical_mds(between**2, 2)
    placer = rbf_extension(between, model.coordinates)
    assert placer.n_axes == 2
    found = placer.place(to_landmarks).coordinates
    np.testing.assert_allclose(found, project(model, to_landmarks**2), atol=1e-7)


@given(seeds, st.integers(1, 3), st.integers(5, 15))
def test_leave_one_out_error_is_that_of_refitting_without_each_landmark(seed, q, m):
    rng = np.random.default_rng(seed)
    positions, values = rng.normal(size=(m, q)), rng.normal(size=(m, 2))
    missed = [
        RBFInterpolator(np.delete(positions, i, 0), np.delete(values, i, 0), kernel="cubic")(positions[i : i + 1])[0]
        - values[i]
        for i in range(m)
        if m >= q + 2
    ]
    expected = np.sqrt(np.mean(np.square(missed)))
    np.testing.assert_allclose(leave_one_out_error(positions, values), expected, rtol=1e-6)


def test_too_few_landmarks_for_leaving_one_out_have_no_error_to_compare():
    assert leave_one_out_error(np.eye(3, 2), np.eye(3)) == np.inf


def test_axes_that_matter_are_found(rng):
    """Noise in ten more dimensions, none of which the coordinates depend on."""
    plane = rng.normal(size=(150, 2))
    landmarks = np.hstack([plane, 0.05 * rng.normal(size=(150, 10))])
    assert rbf_extension(cdist(landmarks, landmarks), bent(plane)).n_axes == 2


def test_held_out_points_come_nearer_than_by_cubes_of_the_dissimilarities_themselves():
    """The formulation that one falls back on without positions: |d|^3 and a constant."""
    between, values, to_landmarks, expected = along_a_spiral(3, 100, 100)
    system = np.block([[between**3, np.ones((100, 1))], [np.ones((1, 100)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.vstack([values, np.zeros((1, 3))]))
    by_cubes = to_landmarks**3 @ solution[:100] + solution[100]
    placed = rbf_extension(between, values).place(to_landmarks).coordinates
    errors = [np.sqrt(np.mean((guess - expected) ** 2)) for guess in (placed, by_cubes)]
    assert errors[0] < 0.05
    assert errors[0] < 0.2 * errors[1]


@pytest.mark.parametrize("moved", [0.0, 1.0])
def test_landmarks_that_coincide_share_a_place_and_change_nothing_else(moved):
    landmarks, _, _, _ = problem(4)
    twice = np.r_[np.arange(40), 0, 0]
    values = bent(landmarks)[twice]
    values[41] += 3 * moved
    between = cdist(landmarks[twice], landmarks[twice])
    placer = rbf_extension(between, values, n_axes=2)
    shared = values[0] + moved
    np.testing.assert_allclose(placer.place(between).coordinates[[0, 40, 41]], [shared] * 3, atol=1e-8)
    single = bent(landmarks)
    single[0] = shared
    expected = RBFInterpolator(landmarks, single, kernel="cubic")(landmarks + 0.1)
    found = placer.place(cdist(landmarks + 0.1, landmarks[twice])).coordinates
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_landmarks_as_good_as_coinciding_have_an_answer():
    """Too near for the system to tell them apart, too far to be one."""
    landmarks, _, _, _ = problem(5, m=30)
    landmarks = np.vstack([landmarks, landmarks[:3] + 1e-6])
    values = bent(landmarks)
    between = cdist(landmarks, landmarks)
    placed = rbf_extension(between, values).place(between).coordinates
    np.testing.assert_allclose(placed, values, atol=1e-5)


def test_the_residual_is_the_distance_to_the_nearest_landmark_in_units_of_their_spacing():
    landmarks, _, between, to_landmarks = problem(6)
    spacing = np.where(np.eye(40) > 0, np.inf, between).min(axis=1).mean()
    residual = rbf_extension(between, bent(landmarks)).place(to_landmarks).residual
    np.testing.assert_allclose(residual, to_landmarks.min(axis=1) / spacing, rtol=1e-14)


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_the_unit_of_the_dissimilarities_does_not_matter(scale):
    landmarks, _, between, to_landmarks = problem(7, dimension=3)
    here = rbf_extension(between, bent(landmarks)).place(to_landmarks)
    there = rbf_extension(between * scale, bent(landmarks)).place(to_landmarks * scale)
    np.testing.assert_allclose(there.coordinates, here.coordinates, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(there.residual, here.residual)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_row_has_the_same_bytes_in_any_batch(order, dtype):
    landmarks, _, between, to_landmarks = problem(8, m=41, p=300, dimension=3)
    placer = rbf_extension(between, bent(landmarks))
    rows = np.asarray(to_landmarks, dtype=dtype, order=order)
    whole = placer.place(rows)
    for size in (1, 7, 127, 128, 129):
        pieces = [placer.place(rows[i : i + size]) for i in range(0, 300, size)]
        for column, parts in zip(whole, zip(*pieces, strict=True), strict=True):
            np.testing.assert_array_equal(np.concatenate(parts), column)
    np.testing.assert_array_equal(whole.coordinates, placer.place(rows.astype(np.float64)).coordinates)


def test_single_precision_rows_move_a_point_by_no_more_than_their_rounding():
    landmarks, _, between, to_landmarks = problem(9, m=200, p=100, dimension=3, spread=0.5)
    placer = rbf_extension(between, bent(landmarks))
    single, double = (placer.place(to_landmarks.astype(dtype)).coordinates for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(single, double, atol=2e-6)


def test_no_points_give_no_coordinates():
    landmarks, _, between, _ = problem(10)
    placed = rbf_extension(between, bent(landmarks)).place(np.empty((0, 40), dtype=np.float32))
    assert placed.coordinates.shape == (0, 3)
    assert placed.residual.shape == (0,)


@pytest.mark.parametrize("n_axes", [0, 3, True, 1.5])
def test_axes_that_there_are_not_are_refused(n_axes):
    landmarks, _, between, _ = problem(11)
    with pytest.raises(InvalidInputError, match=r"n_axes=.*from 1 to 2 \(the landmarks have 2 axes\)"):
        rbf_extension(between, bent(landmarks), n_axes)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, 4)), r"to_landmarks has shape \(2, 4\); it must be \(n_points, 40\)"),
        (np.full((2, 40), -1.0), "to_landmarks has a negative entry"),
        (np.full((2, 40), np.nan), "to_landmarks has 80 NaN"),
    ],
)
def test_rows_that_are_no_dissimilarities_are_refused(rows, message):
    landmarks, _, between, _ = problem(12)
    with pytest.raises(InvalidInputError, match=message):
        rbf_extension(between, bent(landmarks)).place(rows)
