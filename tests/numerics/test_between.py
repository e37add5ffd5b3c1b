"""Distances between new points: the least way over fitted points only, or directly where they would be neighbors."""

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra

from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.rows import bound_between, lengths_between, with_direct_ways, with_new_nodes
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.neighbors.exact import nearest_neighbors, neighbors_within


@pytest.fixture
def problem():
    points = swiss_roll(820, seed=3).points
    fitted, new = points[:800], points[800:]
    graph = neighbor_graph(*neighbors_within(fitted, 7))
    return graph, new, *nearest_neighbors(fitted, new, 7)


def test_lengths_go_over_fitted_points_only(problem):
    graph, new, distances, neighbors = problem
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data)
    search = PathSearch(with_new_nodes(paths, distances, neighbors))
    found = lengths_between(search, 800, distances, neighbors)
    among = dijkstra(graph)
    for i in range(len(new)):
        for j in range(len(new)):
            ways = distances[i][:, None] + among[np.ix_(neighbors[i], neighbors[j])] + distances[j]
            assert found[i, j] == pytest.approx(0.0 if i == j else ways.min(), rel=1e-12)
    np.testing.assert_array_equal(found, found.T)


def test_the_bound_is_one(problem):
    graph, _, distances, neighbors = problem
    rows = dijkstra(graph, indices=np.arange(0, 800, 40)).T
    to_landmarks = (distances[:, :, None] + rows[neighbors]).min(axis=1)
    bound = bound_between([to_landmarks[:, :8], to_landmarks[:, 8:]])
    expected = (to_landmarks[:, None] + to_landmarks).min(axis=2)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_array_equal(bound, expected)
    among = dijkstra(graph)
    exact = (distances[0][:, None] + among[np.ix_(neighbors[0], neighbors[1])] + distances[1]).min()
    assert bound[0, 1] >= exact


def test_points_within_reach_of_each_other_take_the_direct_way():
    points = np.array([[0.0], [0.1], [5.0]])
    between = np.array([[0.0, 0.8, 6.0], [0.8, 0.0, 6.1], [6.0, 6.1, 0.0]])
    found = with_direct_ways(between, points, np.array([0.3, 0.05, 0.3]))
    np.testing.assert_allclose(found, [[0, 0.1, 6], [0.1, 0, 6.1], [6, 6.1, 0]])
