"""Trees over portions of points give the exact neighbors, ties by label; boxes reach what they must.

The order of points within cells: near ones near each other, and nothing depends on other cells.

Cells that may hold a near point, by planes between centers: none that does is left out, most others are.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.numerics.neighbors.exact import LabelledTree, NeighborSearch, refine_neighbors
from pipeline.numerics.neighbors.spatial import box_gaps, cell_boxes, curve_places, reaching, within_reach


def empty(n, k):
    return np.full((n, k), np.inf), np.full((n, k), -1, dtype=np.int64)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 120),
    k=st.integers(1, 8),
    n_axes=st.integers(1, 4),
    levels=st.sampled_from([1, 2, 4, None]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_portions_in_any_order_give_what_looking_at_all_gives(seed, n, k, n_axes, levels, dtype):
    """With few levels nearly all distances tie."""
    rng = np.random.default_rng(seed)
    points = (rng.normal(size=(n, n_axes)) if levels is None else rng.integers(0, levels, (n, n_axes))).astype(dtype)
    labels = rng.permutation(n)
    expected, lists = empty(n, k), empty(n, k)
    refine_neighbors(points, labels, points, labels, *expected)
    for portion in np.array_split(rng.permutation(n), rng.integers(1, min(n, 4) + 1)):
        LabelledTree(points[portion], labels[portion]).refine(points, labels, *lists)
    np.testing.assert_array_equal(lists[1], expected[1])
    np.testing.assert_array_equal(lists[0], expected[0])


def test_more_ties_than_the_tree_is_asked_for_at_first():
    """Points on a circle: every one of them ties."""
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    ring = np.round(np.column_stack([np.cos(angles), np.sin(angles)]) * 2**20) * 0 + [3.0, 4.0]
    labels = np.random.default_rng(0).permutation(400)
    lists = empty(1, 5)
    LabelledTree(ring, labels).refine(np.zeros((1, 2)), np.array([-5]), *lists)
    np.testing.assert_array_equal(lists[0], np.full((1, 5), 5.0))
    np.testing.assert_array_equal(lists[1], [[0, 1, 2, 3, 4]])


def test_boxes_are_the_least_around_each_cell():
    points = np.array([[0.0, 5], [2, 1], [7, 7]], dtype=np.float32)
    boxes = cell_boxes(points, np.array([2, 0, 1]))
    np.testing.assert_array_equal(boxes[0], [[0, 1], [2, 5]])
    np.testing.assert_array_equal(boxes[1], [[np.inf, np.inf], [-np.inf, -np.inf]])
    np.testing.assert_array_equal(boxes[2], [[7, 7], [7, 7]])


@given(seed=st.integers(0, 2**32 - 1), limit=st.floats(0, 3))
def test_every_point_within_its_limit_of_a_box_is_marked_and_no_other(seed, limit):
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 4, size=(40, 3))
    sizes = np.array([10, 0, 25, 5])
    homes = cell_boxes(points, sizes)
    boxes = np.sort(rng.uniform(0, 8, size=(6, 2, 3)), axis=1)
    limits = limit * rng.random(40)
    outside = np.maximum(0, np.maximum(boxes[:, 0] - points[:, None], points[:, None] - boxes[:, 1]))
    away = np.linalg.norm(outside, axis=2).min(axis=1)
    marked = reaching(points, limits, sizes, homes, boxes)
    clear = np.abs(away - limits) > 1e-6
    np.testing.assert_array_equal(marked[clear], (away <= limits)[clear])


def test_what_is_at_the_limit_is_within_it():
    points, boxes = np.zeros((1, 2)), np.array([[[3.0, 4.0], [9.0, 9.0]]])
    assert reaching(points, np.array([5.0]), np.array([1]), cell_boxes(points, np.array([1])), boxes).all()
    assert not reaching(points, np.array([4.999]), np.array([1]), cell_boxes(points, np.array([1])), boxes).any()


@pytest.mark.parametrize(("limit", "gap"), [(5.0, 25.0), (4.9, np.inf), (np.inf, 25.0)])
def test_gaps_to_boxes_beyond_the_limit_are_infinite(limit, gap):
    home, other = np.array([[[0.0, 0.0], [1.0, 1.0]]]), np.array([[[4.0, 5.0], [8.0, 8.0]]])
    np.testing.assert_array_equal(box_gaps(home, np.array([limit]), other), [gap])


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


KINDS = {
    "random": lambda rng: rng.normal(size=(3000, 12)),
    "sheet": lambda rng: rng.uniform(-1, 1, (3000, 2)) @ rng.normal(size=(2, 15)) + 0.01 * rng.normal(size=(3000, 15)),
    "lattice": lambda rng: rng.integers(0, 2, size=(3000, 12)).astype(float),
    "tiny": lambda rng: 1e-60 * rng.normal(size=(3000, 12)),
    "offset": lambda rng: 1e8 + rng.normal(size=(3000, 12)),
}


def pieces(kind):
    """Points, centers, the cell of each point, and of some queries their cells in order and distances to them."""
    rng = np.random.default_rng(3)
    points = KINDS[kind](rng)
    centers = np.unique(points[rng.choice(len(points), 60, replace=False)], axis=0).astype(np.float64)
    search = NeighborSearch(centers)
    cells = search.query(points, 1)[1][:, 0]
    return points, centers, cells, search.query(points[:200], len(centers))


def alike(limits, probes):
    """The same limit for all cells that a query probes."""
    return np.broadcast_to(limits[:, None], probes.shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 20])
def test_no_cell_with_a_point_within_the_limit_is_left_out(kind, k):
    points, centers, cells, (apart, probes) = pieces(kind)
    distances, found = NeighborSearch(points).query(points[:200], k)
    reached = within_reach(centers, probes, apart, alike(distances[:, -1], probes))
    for i in range(200):
        assert np.isin(cells[found[i]], probes[i, reached[i]]).all()


def test_points_at_the_limit_itself_are_within_reach():
    """On a lattice with centers on it, many points are midway between centers and tie."""
    points, centers, cells, (apart, probes) = pieces("lattice")
    for limit in (0.0, 1.0, np.sqrt(2.0)):
        reached = within_reach(centers, probes, apart, np.full(probes.shape, limit))
        for i in range(200):
            near = np.linalg.norm(points - points[i], axis=1) <= limit
            assert np.isin(cells[near], probes[i, reached[i]]).all()


def test_points_on_the_plane_midway_are_within_reach_however_distances_are_rounded():
    """The query is on the line from its own center to the other, the point on the plane between them: nothing spare."""
    rng = np.random.default_rng(4)
    n_there = 0
    for _ in range(300):
        home, step = rng.normal(size=(2, 12))
        centers, point = np.stack([home, home + step]), home + step / 2
        query = home + step * rng.uniform(0, 0.49)
        apart, probes = NeighborSearch(centers).query(query[None], 2)
        limit = NeighborSearch(query[None]).query(point[None], 1)[0][:, 0]
        if NeighborSearch(centers).query(point[None], 1)[1][0, 0] == 1:
            n_there += 1
            assert within_reach(centers, probes, apart, alike(limit, probes)).all()
    assert n_there > 50


def test_most_cells_of_a_sheet_are_out_of_reach():
    points, centers, _, (apart, probes) = pieces("sheet")
    distances, _ = NeighborSearch(points).query(points[:200], 10)
    reached = within_reach(centers, probes, apart, alike(distances[:, -1], probes))
    assert reached.mean() < 0.2
    assert reached[:, 0].all()


def test_without_a_limit_all_cells_are_within_reach():
    _, centers, _, (apart, probes) = pieces("random")
    assert within_reach(centers, probes, apart, np.full(probes.shape, np.inf)).all()
