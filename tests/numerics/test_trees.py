"""Trees over portions of points give the exact neighbors, ties by label; boxes reach what they must."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.numerics.neighbors.exact import refine_neighbors
from pipeline.numerics.neighbors.spatial import LabelledTree, box_gaps, cell_boxes, reaching


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
