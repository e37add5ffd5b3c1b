"""The order of points within cells: near ones near each other, and nothing depends on other cells."""

import numpy as np
import pytest

from pipeline.numerics.neighbors.spatial import curve_places


def test_points_near_on_the_curve_are_near_in_space(rng):
    points = rng.uniform(size=(4000, 3))
    order = np.argsort(curve_places(points, np.zeros(4000, dtype=np.int64), 1))
    along = np.linalg.norm(np.diff(points[order], axis=0), axis=1).mean()
    at_random = np.linalg.norm(np.diff(points, axis=0), axis=1).mean()
    assert along < 0.2 * at_random


def test_a_place_depends_on_the_points_of_its_own_cell_alone(rng):
    points = rng.normal(size=(60, 2))
    cells = rng.integers(0, 4, size=60)
    whole = curve_places(points, cells, 4)
    for cell in range(4):
        mine = cells == cell
        np.testing.assert_array_equal(curve_places(points[mine], np.zeros(mine.sum(), dtype=np.int64), 1), whole[mine])


@pytest.mark.parametrize("n_axes", [1, 2, 3, 7, 10])
def test_the_bits_of_all_coordinates_take_turns_the_highest_first(n_axes):
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * n_axes, indexing="ij")).reshape(n_axes, -1).T
    places = curve_places(corners, np.zeros(len(corners), dtype=np.int64), 1)
    assert len(set(places.tolist())) == len(corners)
    assert places.min() == 0
    assert places.max() == 2 ** (n_axes * min(16, 60 // n_axes)) - 1


def test_cells_without_extent_and_many_dimensions_have_no_curve(rng):
    same = np.ones((5, 3), dtype=np.float32)
    np.testing.assert_array_equal(curve_places(same, np.zeros(5, dtype=np.int64), 1), np.zeros(5))
    wide = rng.normal(size=(5, 11))
    np.testing.assert_array_equal(curve_places(wide, np.zeros(5, dtype=np.int64), 1), np.zeros(5))
