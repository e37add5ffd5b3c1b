"""The search itself: scipy's lengths to the bit, whatever the order of nodes, the weights and the company."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from pipeline.numerics.compiled import LANES
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics import shortest_paths
from pipeline.numerics.geodesics.graph import graph_from_edges, neighbor_graph
from pipeline.numerics.geodesics.rows import _in_good_order, _is_near, nearby_order, shortest_path_rows
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.neighbors.exact import neighbors_within


def path_lengths(graph, sources):
    return PathSearch(graph).lengths(sources)


def spread(graph, starts):
    return PathSearch(graph).spread(starts)


KINDS = ["plain", "zeros", "all zero", "wild", "whole numbers", "tiny", "huge", "overflowing"]


def weights_of(kind, rng, size):
    plain = rng.uniform(0.5, 2, size=size)
    return {
        "plain": plain,
        "zeros": plain * (rng.random(size) < 0.5),
        "all zero": np.zeros(size),
        "wild": 10.0 ** rng.uniform(-150, 150, size=size),
        "whole numbers": rng.integers(0, 4, size=size).astype(float),
        "tiny": plain * 5e-324,
        "huge": plain * 1e300,
        "overflowing": plain * 4e307,
    }[kind]


def random_graph(kind, rng, n=300, n_edges=900):
    starts, ends = rng.integers(0, n, size=(2, n_edges))
    return graph_from_edges(n, starts, ends, weights_of(kind, rng, n_edges))


def paths(csr, dtype=np.float64):
    return PathGraph(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(dtype))


def roll(n, k=8):
    return neighbor_graph(*neighbors_within(swiss_roll(n, seed=3).points, k))


@pytest.fixture(scope="module")
def sheet():
    """A graph whose nodes are in no order."""
    return roll(4000)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1))
def test_lengths_are_those_of_scipy_to_the_bit(kind, seed):
    rng = np.random.default_rng(seed)
    csr = random_graph(kind, rng)
    sources = rng.integers(0, 300, size=rng.integers(1, LANES + 1))
    expected = dijkstra(csr, indices=sources)
    np.testing.assert_array_equal(path_lengths(paths(csr), sources)[:, : len(sources)].T, expected)
    np.testing.assert_array_equal(shortest_path_rows(csr, sources), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gives_up", [("_scan_together",), ("_scan_together", "_spread")])
def test_giving_up_changes_nothing(kind, gives_up, monkeypatch):
    """Where a search ends with wrong lengths and says so, the next one is asked: from each source alone, by a heap."""
    csr, sources = random_graph(kind, np.random.default_rng(5)), np.arange(LANES)
    expected = path_lengths(paths(csr), sources)
    asked = []
    for name in gives_up:
        monkeypatch.setattr(shortest_paths, name, lambda *given: given[-1].fill(-1) or False)
    for name in ("_spread", "_search_by_heap"):
        function = getattr(shortest_paths, name)
        monkeypatch.setattr(shortest_paths, name, counted(function, name, asked))
    np.testing.assert_array_equal(path_lengths(paths(csr), sources), expected)
    assert asked.count("_spread") == LANES + 1  # to learn how far apart they are, then each alone
    assert asked.count("_search_by_heap") == (LANES + 1 if "_spread" in gives_up else 0)


def counted(function, name, calls):
    def call(*given):
        calls.append(name)
        return function(*given)

    return call


@pytest.mark.parametrize(("far", "by_nearest"), [(10, [False] * 3), (0, [True] * 3)])
def test_of_sources_far_apart_nodes_wait_by_the_nearest(sheet, monkeypatch, far, by_nearest):
    asked, scan = [], shortest_paths._scan_together
    monkeypatch.setattr(shortest_paths, "FAR_APART", far)
    monkeypatch.setattr(shortest_paths, "_scan_together", lambda *given: asked.append(given[2]) or scan(*given))
    search, nearby = PathSearch(paths(sheet)), dijkstra(sheet, indices=0).argsort()
    for first in range(3):
        sources = nearby[first : first + LANES]
        np.testing.assert_array_equal(search.lengths(sources).T, dijkstra(sheet, indices=sources))
    assert asked == by_nearest


def test_what_was_given_up_is_not_tried_again(sheet, monkeypatch):
    asked, sources = [], np.arange(LANES)
    monkeypatch.setattr(shortest_paths, "_scan_together", lambda *given: asked.append(given[2]) or False)
    monkeypatch.setattr(shortest_paths, "FAR_APART", 10)
    search = PathSearch(paths(sheet))
    for _ in range(4):
        np.testing.assert_array_equal(search.lengths(sources).T, dijkstra(sheet, indices=sources))
    assert asked == [False, True]


def test_a_front_whose_length_overflows_holds_up_no_other():
    """The first source is so far from the last node that the way is beyond double precision; the second is not."""
    csr = graph_from_edges(4, np.arange(3), np.arange(1, 4), np.array([1e308, 1e308, 0.5e308]))
    for sources in ([0, 1], [1, 0]):
        np.testing.assert_array_equal(
            path_lengths(paths(csr), np.array(sources))[:, :2].T, dijkstra(csr, indices=sources)
        )
        np.testing.assert_array_equal(shortest_path_rows(csr, sources), dijkstra(csr, indices=sources))
    assert path_lengths(paths(csr), np.array([0, 1]))[3, 1] == 1.5e308


def test_sources_that_the_first_does_not_reach_are_searched_alone(sheet):
    """Whichever is the first, and whether or not nodes wait by it."""
    two = block_diag([sheet, sheet], format="csr")
    search, sources = PathSearch(paths(two)), np.array([5, 4005, 3999, 7999, 4006, 6])
    for order in (sources, sources[::-1], sources[[2, 4]]):
        np.testing.assert_array_equal(search.lengths(order)[:, : len(order)].T, dijkstra(two, indices=order))


def test_searches_that_scan_too_often_give_up_by_themselves():
    """Typical edges are long, and so are buckets; paths are made of tiny ones, for which their order is no help."""
    rng, n = np.random.default_rng(0), 3000
    starts, ends = rng.integers(0, n, size=(2, 12 * n))
    tiny = 10.0 ** rng.uniform(-12, -1, 12 * n)
    csr = graph_from_edges(n, starts, ends, np.where(np.arange(12 * n) < 3 * n, tiny, 1.0))
    assert not spread(paths(csr), np.array([0]))[2]
    sources = rng.choice(n, LANES, replace=False)
    np.testing.assert_array_equal(path_lengths(paths(csr), sources).T, dijkstra(csr, indices=sources))


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_leaves_nothing_behind_for_the_next(kind):
    """Also one that gave up, or whose sources reach only some nodes."""
    rng = np.random.default_rng(7)
    graph = paths(random_graph(kind, rng, n=400, n_edges=500))
    search = PathSearch(graph)
    for size in (8, 1, 3, 8, 5, 0, 8):
        sources = rng.integers(0, 400, size=size)
        np.testing.assert_array_equal(search.lengths(sources), path_lengths(graph, sources))
        np.testing.assert_array_equal(search.spread(sources)[1], spread(graph, sources)[1])


def test_lengths_do_not_depend_on_the_company(sheet):
    graph, sources = paths(sheet), np.random.default_rng(1).choice(4000, 24, replace=False)
    expected = dijkstra(sheet, indices=sources)
    for order in (np.arange(24), np.random.default_rng(2).permutation(24), nearby_order(graph, sources)):
        for first in range(0, 24, LANES):
            batch = order[first : first + LANES]
            np.testing.assert_array_equal(path_lengths(graph, sources[batch]).T, expected[batch])


def test_lanes_without_a_source_are_infinite(sheet):
    lengths = path_lengths(paths(sheet), np.array([7, 7, 9]))
    np.testing.assert_array_equal(lengths[:, 0], lengths[:, 1])
    assert np.isfinite(lengths[:, :3]).all()
    assert np.isinf(lengths[:, 3:]).all()
    assert np.isinf(path_lengths(paths(sheet), np.empty(0, dtype=np.int64))).all()


def test_edges_may_be_one_way(rng):
    csr = csr_array((rng.uniform(1, 2, 2000), rng.integers(0, 400, (2, 2000))), shape=(400, 400))
    csr.sum_duplicates()
    sources = np.arange(0, 400, 7)
    np.testing.assert_array_equal(shortest_path_rows(csr, sources), dijkstra(csr, indices=sources))


def test_offsets_beyond_32_bits_are_kept(sheet):
    """Where edges number more than 2^31 their offsets are 64 bits wide; those of a small graph are, too."""
    graph, _ = _in_good_order(sheet)
    assert graph.offsets.dtype == np.int64
    assert graph.targets.dtype == np.int32


def test_single_precision_weights(sheet):
    rounded = sheet.astype(np.float32)
    expected = dijkstra(rounded.astype(np.float64), indices=[1, 2])
    np.testing.assert_array_equal(path_lengths(paths(sheet, np.float32), np.array([1, 2]))[:, :2].T, expected)


def test_spreading_finds_the_nearest_start_of_every_node(sheet):
    starts = np.array([5, 1000, 3999, 5])
    lengths, nearest, final = spread(paths(sheet), starts)
    exact = dijkstra(sheet, indices=starts)
    assert final
    np.testing.assert_array_equal(lengths, exact.min(axis=0))
    np.testing.assert_array_equal(lengths, exact[nearest, np.arange(4000)])


def test_spreading_leaves_out_what_it_cannot_reach():
    csr = graph_from_edges(5, np.array([0, 3]), np.array([1, 4]), np.array([2.0, 0.0]))
    lengths, nearest, final = spread(paths(csr), np.array([1]))
    assert final
    np.testing.assert_array_equal(lengths, [2, 0, np.inf, np.inf, np.inf])
    np.testing.assert_array_equal(nearest, [0, 0, -1, -1, -1])


class TestNearbyOrder:
    def test_is_an_order(self, sheet, rng):
        for size in (1, 2, 7, 8, 9, 64, 203):
            sources = rng.choice(4000, size, replace=False)
            np.testing.assert_array_equal(np.sort(nearby_order(paths(sheet), sources)), np.arange(size))

    def test_sources_that_repeat_or_cannot_reach_each_other_are_all_there(self, rng):
        csr = graph_from_edges(30, np.arange(0, 28, 2), np.arange(1, 29, 2), np.ones(14))
        assert connected_components(csr)[0] > 10
        sources = rng.integers(0, 30, size=41)
        np.testing.assert_array_equal(np.sort(nearby_order(paths(csr), sources)), np.arange(41))

    def test_groups_are_near_along_the_graph(self, sheet):
        """Much nearer than groups drawn at random, and than groups of nearest rows in space would be."""
        sources = np.random.default_rng(0).choice(4000, 160, replace=False)
        between = dijkstra(sheet, indices=sources)[:, sources]
        order = nearby_order(paths(sheet), sources)
        assert width(between, order) < 0.4 * width(between, np.arange(160))

    def test_the_middle_one_comes_first(self, sheet):
        sources = np.random.default_rng(0).choice(4000, 160, replace=False)
        between = dijkstra(sheet, indices=sources)[:, sources]
        farthest = [
            between[np.ix_(group, group)].max(axis=1)
            for group in nearby_order(paths(sheet), sources).reshape(-1, LANES)
        ]
        # By ways across territories, which are somewhat longer than the shortest.
        assert np.mean([each[0] / each.min() for each in farthest]) < 1.15
        assert np.mean([each.max() / each.min() for each in farthest]) > 1.4


def width(between, order):
    """The mean distance within groups of LANES."""
    return np.mean([between[np.ix_(group, group)].mean() for group in order.reshape(-1, LANES)])


class TestGoodOrder:
    def test_a_graph_in_no_order_is_renumbered(self, sheet):
        graph, place_of = _in_good_order(sheet)
        assert place_of is not None
        assert _is_near(graph.offsets, graph.targets)
        dense = csr_array((graph.weights, graph.targets, graph.offsets), shape=sheet.shape).toarray()
        np.testing.assert_array_equal(dense[np.ix_(place_of, place_of)], sheet.toarray())

    def test_a_graph_in_a_good_order_is_left_alone(self):
        n = 1000
        chain = graph_from_edges(n, np.arange(n - 1), np.arange(1, n), np.ones(n - 1))
        graph, place_of = _in_good_order(chain)
        np.testing.assert_array_equal(place_of, np.arange(n))
        assert graph.weights is chain.data
