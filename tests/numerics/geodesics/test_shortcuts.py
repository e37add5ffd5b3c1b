"""Short circuits: planted ones are found, clean data has none, and what is listed is what can be measured."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from sklearn.datasets import load_digits, make_blobs, make_moons

from pipeline.numerics.datasets import bridged_roll, swiss_roll
from pipeline.numerics.geodesics.graph import graph_from_edges, neighbor_graph, with_edges
from pipeline.numerics.geodesics.loads import path_loads
from pipeline.numerics.geodesics.shortcuts import MOST_LISTED, all_edges, listed, short_circuits, without
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.neighbors.exact import neighbors_within

N_POINTS, N_BRIDGES = 5000, 10


def graph_of(points, n_neighbors=10):
    return neighbor_graph(*neighbors_within(np.asarray(points, dtype=np.float64), n_neighbors, 1))


def paths_of(graph):
    return PathGraph(graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data.astype(np.float32))


def found_in(graph, rows=None, seed=0):
    return short_circuits(paths_of(graph), np.arange(graph.shape[0]) if rows is None else rows, seed)


@pytest.fixture(scope="module")
def bridged():
    """A roll with points in the gap, and what is found of them."""
    graph = graph_of(bridged_roll(N_POINTS, N_BRIDGES, seed=1))
    return graph, found_in(graph)


def across_turns(sheet, graph):
    """Whether each of the edges of a graph joins points that are far from each other on the sheet."""
    starts = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    return np.linalg.norm(sheet[starts] - sheet[graph.indices], axis=1) > 10


def test_points_in_the_gap_are_found_and_nothing_else(bridged):
    _, found = bridged
    planted = set(range(N_POINTS, N_POINTS + N_BRIDGES))
    assert {int(item.starts[0]) for item in found} == planted
    assert len(found) <= MOST_LISTED


def test_without_them_paths_are_those_of_the_roll(bridged):
    graph, found = bridged
    sources = np.arange(100)
    clean, folded, cut = (
        dijkstra(each, indices=sources)[:, :N_POINTS]
        for each in (graph_of(swiss_roll(N_POINTS, 1).points), graph, without(graph, *all_edges(found)))
    )
    assert folded.mean() < 0.8 * clean.mean()
    np.testing.assert_allclose(cut, clean, rtol=0.05)


def test_the_detour_is_the_way_that_remains_without_any(bridged):
    graph, found = bridged
    cut = without(graph, *all_edges(found))
    assert graph.nnz - cut.nnz == 2 * sum(len(item.ends) for item in found)
    for item in found:
        way = dijkstra(cut, indices=int(item.starts[0]))[item.ends[0]]
        assert item.detour == pytest.approx(way, rel=1e-5)
        assert item.detour >= 5 * item.across
        assert item.lengths[0] == pytest.approx(graph[int(item.starts[0]), int(item.ends[0])], rel=1e-6)


@pytest.mark.parametrize("n_between", [2, 5])
def test_chains_of_points_are_found(n_between):
    """Whole chains: a chain of five points is joined by several edges wherever one cuts it."""
    roll = swiss_roll(N_POINTS, seed=0)
    rng, chains = np.random.default_rng(0), []
    for t, height in zip(rng.uniform(1.6 * np.pi, 2.4 * np.pi, 4), (3, 8, 13, 18), strict=True):
        ends = [np.array([u * np.cos(u), height, u * np.sin(u)]) for u in (t, t + 2 * np.pi)]
        chains += [ends[0] + (ends[1] - ends[0]) * i / (n_between + 1) for i in range(1, n_between + 1)]
    graph = graph_of(np.concatenate([roll.points, chains]))
    cut = without(graph, *all_edges(found_in(graph)))
    on_roll = csr_array(cut[:N_POINTS][:, :N_POINTS])
    assert not across_turns(roll.sheet, on_roll).any()
    clean = dijkstra(graph_of(roll.points), indices=np.arange(20))
    np.testing.assert_allclose(dijkstra(cut, indices=np.arange(20))[:, :N_POINTS], clean, rtol=0.05)


def test_single_edges_between_turns_are_found():
    roll = swiss_roll(N_POINTS, seed=3)
    graph, rng = graph_of(roll.points), np.random.default_rng(3)
    far = [(i, j) for i, j in rng.integers(N_POINTS, size=(400, 2)) if abs(roll.sheet[i, 0] - roll.sheet[j, 0]) > 40]
    starts, ends = np.array(far[:N_BRIDGES]).T
    lengths = np.linalg.norm(roll.points[starts] - roll.points[ends], axis=1)
    short = lengths < 8
    starts, ends, lengths = starts[short], ends[short], lengths[short]
    assert len(starts) >= 1
    found = found_in(with_edges(graph, starts, ends, lengths))
    pairs = {frozenset(pair) for item in found for pair in zip(item.starts.tolist(), item.ends.tolist(), strict=True)}
    assert pairs == {frozenset(pair) for pair in zip(starts.tolist(), ends.tolist(), strict=True)}


def ring(width, n_points=2000):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n_points)
    return (1 + width * rng.uniform(-1, 1, n_points))[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])


def dumbbell(n_neck=80):
    rng = np.random.default_rng(0)
    bells = rng.normal(size=(2000, 2)) * 0.5 + [[0, 0], [6, 0]] * 1000
    return np.concatenate([bells, np.column_stack([rng.uniform(0, 6, n_neck), rng.normal(size=n_neck) * 0.05])])


CLEAN = {
    "roll": lambda: swiss_roll(N_POINTS, seed=0).points,
    "noisy roll": lambda: swiss_roll(4000, 0).points + np.random.default_rng(0).normal(size=(4000, 3)) * 0.3,
    "digits": lambda: load_digits().data,
    "cloud in 2 dimensions": lambda: np.random.default_rng(0).normal(size=(2000, 2)),
    "cloud in 10 dimensions": lambda: np.random.default_rng(0).normal(size=(2000, 10)),
    "clusters": lambda: make_blobs(2000, centers=8, n_features=5, cluster_std=1.5, random_state=0)[0],
    "moons": lambda: make_moons(2000, noise=0.05, random_state=0)[0],
    "ring": lambda: ring(0.2),
    "thin ring": lambda: ring(0.01),
    "circle": lambda: ring(0.0, 300),
    "dumbbell": dumbbell,
}


@pytest.mark.parametrize("n_neighbors", [5, 10])
@pytest.mark.parametrize("name", CLEAN)
def test_clean_data_has_none(name, n_neighbors):
    assert found_in(graph_of(CLEAN[name](), n_neighbors)) == []


def test_what_alone_joins_two_parts_is_none_of_them():
    rng = np.random.default_rng(0)
    parts = rng.uniform(size=(1000, 2)) * 4 + np.repeat([[0, 0], [10, 0]], 500, axis=0)
    between = np.column_stack([np.linspace(4.4, 9.6, 4), np.full(4, 2.0)])
    graph = graph_of(np.concatenate([parts, between]))
    assert connected_components(graph)[0] == 1
    assert found_in(graph) == []


def test_nodes_may_be_numbered_in_any_way(bridged):
    graph, found = bridged
    rows = np.random.default_rng(5).permutation(graph.shape[0])
    again = found_in(csr_array(graph[rows][:, rows]), rows)
    assert listed(again, rows) == listed(found, np.arange(graph.shape[0]))


@pytest.mark.parametrize("n_bridges", [0, N_BRIDGES])
def test_the_graph_is_in_the_end_as_it_was(n_bridges):
    paths = paths_of(graph_of(bridged_roll(N_POINTS, n_bridges, seed=1)))
    weights = paths.weights.copy()
    assert len(short_circuits(paths, np.arange(paths.n_nodes), 0)) == n_bridges
    np.testing.assert_array_equal(paths.weights, weights)


def test_lists_are_in_the_users_rows_and_units(bridged):
    graph, found = bridged
    entries = listed(found, 2 * np.arange(graph.shape[0]), exponent=3)
    assert [entry.row for entry in entries] == [2 * int(item.starts[0]) for item in found]
    assert [entry.detour for entry in entries] == [8 * item.detour for item in found]
    assert [entry.share for entry in entries] == sorted((entry.share for entry in entries), reverse=True)


def test_small_graphs_have_none():
    for n_nodes in (1, 2, 3, 40):
        chain = np.arange(n_nodes - 1)
        assert found_in(graph_from_edges(n_nodes, chain, chain + 1, np.ones(n_nodes - 1))) == []


def test_edges_of_length_zero_stay_edges():
    graph = graph_from_edges(4, np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3]), np.array([0.0, 1.0, 0.0, 5.0]))
    left = without(graph, np.array([3]), np.array([0]))
    assert left.nnz == 6
    assert dijkstra(left, indices=0)[3] == 1


def test_loads_are_those_of_all_paths_that_are_followed():
    graph = graph_of(np.random.default_rng(0).normal(size=(300, 2)), 5)
    single = graph.astype(np.float32).astype(np.float64)
    sources, targets = np.arange(10), np.arange(5, 60)
    lengths, before = dijkstra(single, indices=sources, return_predecessors=True)
    counts, paths = np.zeros(300), []
    for source in sources:
        for target in targets:
            if source == target or np.isinf(lengths[source, target]):
                continue
            paths.append(lengths[source, target])
            node = before[source, target]
            while node != source:
                counts[node] += 1
                node = before[source, node]
    rows = np.random.default_rng(1).permutation(300)
    loads = path_loads(paths_of(graph), [PathSearch(paths_of(graph))], rows, sources, targets)
    searches = [PathSearch(paths_of(graph)) for _ in range(3)]
    shared = path_loads(paths_of(graph), searches, rows, sources, targets)
    assert (shared.shares.tobytes(), shared.mean_length) == (loads.shares.tobytes(), loads.mean_length)
    np.testing.assert_allclose(loads.shares * len(paths), counts, atol=1e-9)
    assert loads.mean_length == pytest.approx(np.mean(paths))
