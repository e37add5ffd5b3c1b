"""Shortest paths: those of an independent algorithm, to the bit the same in any batch.

Distances between new points: the least way over fitted points only, or directly where they would be neighbors.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from pipeline.errors import InvalidInputError
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.graph import graph_from_edges, neighbor_graph
from pipeline.numerics.geodesics.rows import (
    bound_between,
    each_search,
    lengths_between,
    rows_through_neighbors,
    shortest_path_rows,
    with_direct_ways,
    with_new_nodes,
)
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.neighbors.exact import nearest_neighbors, neighbors_within
from pipeline.numerics.neighbors.radius import even_lists

ROUNDING = {"rtol": 1e-12, "atol": 0}


def floyd_warshall(n, starts, ends, weights):
    lengths = np.full((n, n), np.inf)
    np.minimum.at(lengths, (np.r_[starts, ends], np.r_[ends, starts]), np.r_[weights, weights])
    np.fill_diagonal(lengths, 0.0)
    for via in range(n):
        lengths = np.minimum(lengths, lengths[:, via, None] + lengths[via])
    return lengths


def bellman_ford(n, starts, ends, weights, source):
    lengths = np.full(n, np.inf)
    lengths[source] = 0.0
    for _ in range(n):
        for i, j, w in zip(np.r_[starts, ends], np.r_[ends, starts], np.r_[weights, weights], strict=True):
            lengths[j] = min(lengths[j], lengths[i] + w)
    return lengths


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 14),
    n_edges=st.integers(1, 40),
    scales=st.sampled_from([(1.0,), (0.0, 1.0), (0.0,), (1e-12, 1.0, 1e12), (0.0, 1e-12, 1e-6, 1.0, 1e6, 1e12)]),
)
def test_equals_floyd_warshall(seed, n, n_edges, scales):
    rng = np.random.default_rng(seed)
    starts, ends = rng.integers(0, n, size=(2, n_edges))
    weights = rng.choice(scales, size=n_edges) * rng.uniform(0.5, 2, size=n_edges)
    found = shortest_path_rows(graph_from_edges(n, starts, ends, weights), np.arange(n))
    np.testing.assert_allclose(found, floyd_warshall(n, starts, ends, weights), **ROUNDING)


def test_equals_bellman_ford_on_a_larger_sparse_graph(rng):
    n = 120
    starts, ends = rng.integers(0, n, size=(2, 130))
    weights = 10.0 ** rng.uniform(-12, 12, size=130) * (rng.random(130) > 0.2)
    found = shortest_path_rows(graph_from_edges(n, starts, ends, weights), [3, 77])
    for row, source in zip(found, (3, 77), strict=True):
        np.testing.assert_allclose(row, bellman_ford(n, starts, ends, weights, source), **ROUNDING)


def test_nodes_without_a_path_are_infinitely_far():
    rows = shortest_path_rows(graph_from_edges(4, np.array([0]), np.array([2]), np.array([1.5])), [0, 3])
    np.testing.assert_array_equal(rows, [[0, np.inf, 1.5, np.inf], [np.inf, np.inf, np.inf, 0]])
    alone = shortest_path_rows(csr_array((3, 3)), [1])
    np.testing.assert_array_equal(alone, [[np.inf, 0, np.inf]])


def test_single_precision_weights_are_added_in_double_precision():
    n = 5000
    weights = np.full(n - 1, 0.1, dtype=np.float32)
    rows = shortest_path_rows(graph_from_edges(n, np.arange(n - 1), np.arange(1, n), weights), [0])
    in_double = np.r_[0.0, np.cumsum(weights, dtype=np.float64)]
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[0], in_double.astype(np.float32))
    assert (rows[0, 1:] != np.cumsum(weights, dtype=np.float32)).any()


@pytest.mark.parametrize(
    ("weights", "result"), [(np.float64, np.float64), (np.int64, np.float64), (np.uint8, np.float64)]
)
def test_other_weights_give_double_precision(weights, result):
    graph = graph_from_edges(3, np.array([0, 1]), np.array([1, 2]), np.array([200, 100]).astype(weights))
    rows = shortest_path_rows(graph, [0])
    assert rows.dtype == result
    np.testing.assert_array_equal(rows, [[0, 200, 300]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_source_has_the_same_row_in_any_batch(rng, dtype):
    points = rng.normal(size=(200, 3))
    distances, indices = neighbors_within(points, 5)
    graph = neighbor_graph(distances.astype(dtype), indices)
    sources = rng.permutation(200)[:40]
    together = shortest_path_rows(graph, sources)
    for rows in np.split(rng.permutation(40), [1, 12]):
        np.testing.assert_array_equal(shortest_path_rows(graph, sources[rows]), together[rows])
    for n_jobs in (2, 5):
        np.testing.assert_array_equal(shortest_path_rows(graph, sources, n_jobs), together)


def test_sources_may_repeat(rng):
    graph = neighbor_graph(*neighbors_within(rng.normal(size=(20, 2)), 4))
    rows = shortest_path_rows(graph, np.array([4, 1, 4], dtype=np.uint16))
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[:2], shortest_path_rows(graph, [4, 1]))


def test_the_graph_is_left_as_it_was(rng):
    graph = neighbor_graph(*neighbors_within(rng.integers(0, 3, size=(30, 2)), 4))
    before = [part.copy() for part in (graph.data, graph.indices, graph.indptr)]
    shortest_path_rows(graph, [0, 5])
    for part, copy in zip((graph.data, graph.indices, graph.indptr), before, strict=True):
        np.testing.assert_array_equal(part, copy)


PAIR = graph_from_edges(2, np.array([0]), np.array([1]), np.array([1.0]))


@pytest.mark.parametrize(
    ("graph", "sources", "message"),
    [
        (PAIR, [2], r"sources has 2; row numbers run from 0 to 1"),
        (PAIR, [0, -1], r"sources has -1; row numbers run from 0 to 1"),
        (PAIR, [], r"sources has shape \(0,\)"),
        (PAIR, 0, r"sources has shape \(\)"),
        (PAIR, [[0]], r"sources has shape \(1, 1\)"),
        (PAIR, [0.0], r"sources has .*dtype float64"),
        (PAIR, [True], r"sources has .*dtype bool"),
        (PAIR.toarray(), [0], r"graph is a ndarray"),
        (csr_array((2, 3)), [0], r"graph has shape \(2, 3\); it must be square"),
        (csr_array([[0.0, -1.0], [1.0, 0.0]]), [0], r"graph has 1 weights that are negative, NaN or infinite"),
        (csr_array([[0.0, np.nan], [1.0, 0.0]]), [0], r"graph has 1 weights that are negative, NaN or infinite"),
    ],
)
def test_bad_sources_and_graphs_are_refused(graph, sources, message):
    with pytest.raises(InvalidInputError, match=message):
        shortest_path_rows(graph, sources)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_new_points_go_through_the_best_neighbor(rng, dtype):
    distances, indices = rng.random((30, 4)), rng.integers(0, 50, size=(30, 4))
    to_landmarks = np.where(rng.random((50, 7)) < 0.3, np.inf, rng.random((50, 7))).astype(dtype)
    found = rows_through_neighbors(distances, indices, to_landmarks)
    expected = (distances[:, :, None] + to_landmarks[indices].astype(np.float64)).min(axis=1)
    assert np.isinf(expected).any()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected.astype(dtype))


def graph_and_rows_as_new_points(points, k, dtype):
    """Landmark rows (n, m) of all points, and the same computed as if every point were new."""
    graph = neighbor_graph(*neighbors_within(points, k))
    to_landmarks = np.ascontiguousarray(shortest_path_rows(graph, np.arange(0, len(points), 9)).T).astype(dtype)
    return to_landmarks, rows_through_neighbors(*nearest_neighbors(points, points, k + 1), to_landmarks)


@pytest.mark.parametrize("seed", range(5))
def test_a_training_point_as_a_new_point_gets_its_own_row(seed):
    own, as_new = graph_and_rows_as_new_points(np.random.default_rng(seed).normal(size=(150, 3)), 6, np.float64)
    np.testing.assert_array_equal(as_new, own)


def test_a_training_point_as_a_new_point_gets_its_own_row_up_to_the_precision_stored(rng):
    own, as_new = graph_and_rows_as_new_points(rng.normal(size=(150, 3)), 6, np.float32)
    np.testing.assert_allclose(as_new, own, rtol=1e-6)


def test_a_new_point_on_a_line_is_as_far_as_the_line_is_long():
    points = np.arange(0.0, 20.0, 2.0)[:, None]
    to_landmarks = shortest_path_rows(neighbor_graph(*neighbors_within(points, 2)), [0, 9]).T
    found = rows_through_neighbors(*nearest_neighbors(points, [[7.0], [20.0]], 2), np.ascontiguousarray(to_landmarks))
    np.testing.assert_array_equal(found, [[7, 11], [20, 2]])


def test_a_fault_on_the_way_is_raised_and_nobody_waits_for_ever(rng):
    graph = neighbor_graph(*neighbors_within(rng.normal(size=(200, 3)), 6))

    def full(*_):
        raise MemoryError("no room for rows")

    with pytest.raises(MemoryError, match="no room for rows"):
        each_search(graph, np.arange(60), full)


@pytest.fixture
def problem():
    points = swiss_roll(820, seed=3).points
    fitted, new = points[:800], points[800:]
    graph = neighbor_graph(*neighbors_within(fitted, 7))
    return graph, new, *nearest_neighbors(fitted, new, 7)


def test_lengths_go_over_fitted_points_only(problem):
    graph, new, distances, neighbors = problem
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data)
    lists = even_lists(distances, neighbors)
    found = lengths_between(PathSearch(with_new_nodes(paths, lists)), 800, lists)
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
