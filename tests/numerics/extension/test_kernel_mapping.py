"""Kernel mapping: the paper's formula, landmarks at their own coordinates, far points and duplicates with an answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension.interpolation import (
    WIDTH_FACTORS,
    interpolating_coefficients,
    kernel_mapping,
)

seeds = st.integers(0, 2**32 - 1)


def problem(seed, m=30, p=12, d=2):
    """Landmarks and points in the plane, and coordinates that bend it."""
    rng = np.random.default_rng(seed)
    landmarks, points = rng.normal(size=(m, 2)), rng.normal(size=(p, 2))

    def bend(x):
        return np.stack([x[:, 0] + 0.3 * x[:, 1] ** 2, np.sin(x[:, 1]), x[:, 0] * x[:, 1]], axis=1)[:, :d]

    return cdist(landmarks, landmarks), bend(landmarks), cdist(points, landmarks), bend(points)


def by_the_paper(between, coordinates, to_landmarks, factor):
    """[G eq. 43-51] word for word, for distances at which nothing underflows."""
    nearest = np.where(np.eye(len(between)) > 0, np.inf, between).min(axis=1)
    widths = factor * np.minimum(nearest, 3 * np.median(nearest))

    def shares(distances):
        kernel = np.exp(-(distances**2) / (2 * widths**2))
        return kernel / kernel.sum(axis=1, keepdims=True)

    return shares(to_landmarks) @ (np.linalg.pinv(shares(between)) @ coordinates)


@given(seeds, st.sampled_from([0.5, 1.0]))
def test_is_the_formula_of_the_paper(seed, factor):
    between, coordinates, to_landmarks, _ = problem(seed)
    nearest = np.where(np.eye(30) > 0, np.inf, between).min(axis=1)
    near = (to_landmarks / nearest).min(axis=1) < 10 * factor
    found = kernel_mapping(between, coordinates, factor).place(to_landmarks[near]).coordinates
    expected = by_the_paper(between, coordinates, to_landmarks[near], factor)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(coordinates).max())


@given(seeds, st.integers(2, 60), st.integers(1, 3))
def test_a_landmark_is_placed_at_its_own_coordinates(seed, m, d):
    between, coordinates, _, _ = problem(seed, m=m, d=d)
    placed = kernel_mapping(between, coordinates).place(between)
    np.testing.assert_allclose(placed.coordinates, coordinates, atol=1e-6 * np.abs(coordinates).max())
    np.testing.assert_array_equal(placed.residual, 0)


def test_points_among_the_landmarks_come_near_where_they_belong():
    between, coordinates, to_landmarks, expected = problem(1, m=400, p=200)
    inside = to_landmarks.min(axis=1) < 0.1
    placed = kernel_mapping(between, coordinates).place(to_landmarks[inside]).coordinates
    by_nearest = coordinates[to_landmarks[inside].argmin(axis=1)]
    errors = [np.linalg.norm(guess - expected[inside], axis=1).mean() for guess in (placed, by_nearest)]
    assert errors[0] < 0.6 * errors[1]


def along_a_graph(m, p, dim=30, k=5):
    """Landmarks in many dimensions and their geodesics, in which hubs are near to all; new points hang on their nearest
    landmarks."""
    rng = np.random.default_rng(0)
    landmarks, points = rng.normal(size=(m, dim)), rng.normal(size=(p, dim))
    apart, to_landmarks = cdist(landmarks, landmarks), cdist(points, landmarks)
    reach = np.sort(apart, axis=1)[:, [k]]
    between = shortest_path(np.where((apart <= reach) | (apart <= reach.T), apart, 0.0), directed=False)
    nearest = np.argsort(to_landmarks, axis=1)[:, :k]
    beyond = np.take_along_axis(to_landmarks, nearest, axis=1)
    return between, landmarks[:, :2], (beyond[:, :, None] + between[nearest]).min(axis=1), points[:, :2]


@pytest.mark.parametrize(
    ("made", "best"), [(lambda: problem(1, m=400, p=200), 1.0), (lambda: along_a_graph(200, 100), 0.5)]
)
def test_the_width_is_the_one_of_those_tried_that_places_others_best(made, best):
    between, coordinates, to_landmarks, expected = made()

    def error(factor):
        placed = kernel_mapping(between, coordinates, factor).place(to_landmarks).coordinates
        return np.mean((placed - expected) ** 2)

    assert min(WIDTH_FACTORS, key=error) == best
    assert error(None) == error(best)


@pytest.mark.parametrize("far", [1e2, 1e8, 1e150])
def test_a_far_point_goes_to_the_landmark_nearest_in_units_of_its_width(far):
    between, coordinates, _, _ = problem(2)
    placer = kernel_mapping(between, coordinates)
    row = np.full((1, 30), far)
    widest = placer.widths.argmax()
    placed = placer.place(row)
    assert np.exp(-0.5 * (far / placer.widths[widest]) ** 2) == 0
    np.testing.assert_allclose(placed.coordinates[0], placer.coefficients[widest], rtol=1e-12)
    np.testing.assert_allclose(placed.residual, far / placer.widths[widest])


def test_the_residual_is_the_least_distance_in_units_of_widths():
    between, coordinates, to_landmarks, _ = problem(3)
    placer = kernel_mapping(between, coordinates, 0.5)
    expected = (to_landmarks / placer.widths).min(axis=1)
    np.testing.assert_allclose(placer.place(to_landmarks).residual, expected, rtol=1e-14)
    nearest = np.where(np.eye(30) > 0, np.inf, between).min(axis=1)
    np.testing.assert_allclose(placer.widths, 0.5 * np.minimum(nearest, 3 * np.median(nearest)))


@pytest.mark.parametrize("away", [10.0, 1000.0])
def test_one_landmark_far_away_does_not_spoil_the_others(away):
    rng = np.random.default_rng(0)
    landmarks, points = np.vstack([rng.normal(size=(60, 2)), [[away, 0.0]]]), rng.normal(size=(200, 2))
    between, to_landmarks = cdist(landmarks, landmarks), cdist(points, landmarks)
    placed = kernel_mapping(between, landmarks).place(to_landmarks).coordinates
    without = kernel_mapping(between[:-1, :-1], landmarks[:-1]).place(to_landmarks[:, :-1]).coordinates
    errors = [np.sqrt(np.mean((found - points) ** 2)) for found in (placed, without)]
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.parametrize("moved", [0.0, 1.0])
@pytest.mark.parametrize("apart", [0.0, 1e-12])
def test_landmarks_that_coincide_share_a_place(moved, apart):
    """If their coordinates do not agree, halfway; every other landmark stays at its own."""
    between, coordinates, to_landmarks, _ = problem(4)
    twice = np.r_[np.arange(30), 0]
    between, coordinates = between[np.ix_(twice, twice)], coordinates[twice]
    between[0, 30] = between[30, 0] = apart
    coordinates[30] += moved
    placer = kernel_mapping(between, coordinates)
    placed = placer.place(between).coordinates
    np.testing.assert_allclose(placed[[0, 30]], coordinates[[0, 0]] + moved / 2, atol=1e-6)
    np.testing.assert_allclose(placed[1:30], coordinates[1:30], atol=1e-6)
    assert placer.widths.min() > 1e-3
    without = kernel_mapping(between[:30, :30], coordinates[:30]).place(to_landmarks).coordinates
    together = placer.place(to_landmarks[:, twice]).coordinates
    assert np.median(np.abs(together - without)) < 0.01


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_the_unit_of_the_dissimilarities_does_not_matter(scale):
    between, coordinates, to_landmarks, _ = problem(5)
    here = kernel_mapping(between, coordinates).place(to_landmarks)
    there = kernel_mapping(between * scale, coordinates).place(to_landmarks * scale)
    np.testing.assert_array_equal(there.coordinates, here.coordinates)
    np.testing.assert_array_equal(there.residual, here.residual)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_row_has_the_same_bytes_in_any_batch(order, dtype):
    between, coordinates, to_landmarks, _ = problem(6, m=41, p=150, d=3)
    placer = kernel_mapping(between, coordinates)
    rows = np.asarray(to_landmarks, dtype=dtype, order=order)
    whole = placer.place(rows)
    for size in (1, 7, 64):
        pieces = [placer.place(rows[i : i + size]) for i in range(0, 150, size)]
        for column, parts in zip(whole, zip(*pieces, strict=True), strict=True):
            np.testing.assert_array_equal(np.concatenate(parts), column)
    double = placer.place(rows.astype(np.float64))
    np.testing.assert_array_equal(whole.coordinates, double.coordinates)


def test_no_points_give_no_coordinates():
    between, coordinates, _, _ = problem(7)
    placed = kernel_mapping(between, coordinates).place(np.empty((0, 30), dtype=np.float32))
    assert placed.coordinates.shape == (0, 2)
    assert placed.residual.shape == (0,)


def test_a_singular_system_is_solved_by_the_shortest_least_squares_solution(rng):
    system = np.ones((4, 3)) @ rng.normal(size=(3, 4))
    values = rng.normal(size=(4, 2))
    found = interpolating_coefficients(system, values)
    np.testing.assert_allclose(found, np.linalg.pinv(system) @ values, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"between": np.ones((3, 4))}, r"between has shape \(3, 4\); it must be square"),
        ({"between": np.ones((3, 3))}, r"between has a nonzero diagonal"),
        ({"between": np.triu(np.ones((3, 3)), 1)}, r"between is not symmetric"),
        ({"between": np.zeros((3, 3))}, r"between is all zero.*at least 2 landmarks that differ"),
        ({"coordinates": np.ones((4, 2))}, r"coordinates has 4 rows and between has 3 landmarks"),
        ({"coordinates": np.full((3, 2), np.nan)}, r"coordinates has 6 NaN"),
        ({"width_factor": 0.0}, r"width_factor=0.0 is out of range; use a number from 0.01 to 100"),
    ],
)
def test_what_cannot_be_mapped_is_refused(change, message):
    given_values = {"between": 1.0 - np.eye(3), "coordinates": np.eye(3)[:, :2], **change}
    with pytest.raises(InvalidInputError, match=message):
        kernel_mapping(**given_values)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, 2)), r"to_landmarks has shape \(2, 2\); it must be \(n_points, 3\)"),
        (np.full((2, 3), -1.0), r"to_landmarks has a negative entry"),
        (np.full((2, 3), np.inf), r"to_landmarks has 6 NaN or infinite entries"),
    ],
)
def test_rows_that_are_no_dissimilarities_are_refused(rows, message):
    placer = kernel_mapping(1.0 - np.eye(3), np.eye(3)[:, :2])
    with pytest.raises(InvalidInputError, match=message):
        placer.place(rows)
