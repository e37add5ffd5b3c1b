"""Points that take queries for their neighbors: exactly those whose radius reaches, whatever the batches and limits."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline.numerics.directions import edge_lengths, unit_points
from pipeline.numerics.neighbors import takers
from pipeline.numerics.neighbors.exact import NeighborSearch, neighbors_within
from pipeline.numerics.neighbors.radius import Pairs
from pipeline.numerics.neighbors.takers import TakerSearch, nearest_takers, with_takers


def sorted_pairs(pairs):
    order = np.lexsort((pairs.points, pairs.queries))
    return Pairs(*(column[order] for column in pairs))


def brute_force(points, radii, queries):
    """Summed in the same order, so that what is at the radius itself is decided alike."""
    distances, every = NeighborSearch(points).query(queries, len(points))
    near = distances <= radii[every]
    return sorted_pairs(Pairs(np.nonzero(near)[0], every[near], distances[near]))


def assert_same(one, other):
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


KINDS = {
    "plane": lambda rng: rng.normal(size=(900, 2)),
    "line": lambda rng: np.column_stack([rng.uniform(size=900), np.zeros((900, 2))]),
    "boxes": lambda rng: rng.normal(size=(900, 10)),
    "products": lambda rng: rng.normal(size=(900, 40)),
    "single": lambda rng: rng.normal(size=(900, 40)).astype(np.float32),
    "lattice": lambda rng: rng.integers(0, 3, size=(900, 12)).astype(float) + 1e-3 * rng.integers(0, 2, size=(900, 12)),
    "outliers": lambda rng: rng.normal(size=(900, 20)) * np.where(rng.uniform(size=(900, 1)) < 0.02, 1e4, 1.0),
    "offset": lambda rng: 1e6 + rng.normal(size=(900, 30)),
    "tiny": lambda rng: 1e-60 * rng.normal(size=(900, 15)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_are_found_and_no_others(kind, rng):
    points = np.unique(KINDS[kind](rng), axis=0)
    known, queries = points[: 2 * len(points) // 3], points[len(points) // 3 :]
    radii = neighbors_within(known, 7)[0][:, -1].copy()
    assert_same(sorted_pairs(TakerSearch(known, radii).pairs(queries)), brute_force(known, radii, queries))


@pytest.mark.parametrize("n_columns", [3, 30])
def test_batches_and_threads_change_nothing(n_columns, rng, monkeypatch):
    points, queries = rng.normal(size=(500, n_columns)), rng.normal(size=(300, n_columns))
    radii = neighbors_within(points, 10)[0][:, -1].copy()
    expected = sorted_pairs(TakerSearch(points, radii).pairs(queries))
    monkeypatch.setattr(takers, "QUERIES_AT_ONCE", 37)
    monkeypatch.setattr(takers, "PAIRS_AT_ONCE", 1)
    assert_same(sorted_pairs(TakerSearch(points, radii).pairs(queries, n_threads=3)), expected)


@pytest.mark.parametrize("n_columns", [2, 25])
def test_a_point_taken_as_new_has_the_edges_that_the_graph_gives_it(n_columns, rng):
    points = rng.normal(size=(400, n_columns))
    distances, neighbors = neighbors_within(points, 6)
    found = TakerSearch(points, distances[:, -1].copy()).pairs(points)
    joined = {(taker, point) for taker in range(400) for point in neighbors[taker]} | {(i, i) for i in range(400)}
    assert set(zip(found.points.tolist(), found.queries.tolist(), strict=True)) == joined


def test_radii_of_nothing_and_of_everything(rng):
    points, queries = rng.normal(size=(50, 3)), rng.normal(size=(20, 3))
    assert not len(TakerSearch(points, np.zeros(50)).pairs(queries).queries)
    assert len(TakerSearch(points, np.full(50, 1e3)).pairs(queries).queries) == 1000
    assert not len(TakerSearch(points, np.ones(50)).pairs(queries[:0]).queries)


@pytest.mark.parametrize("metric", ["cosine", "angular", "correlation"])
def test_reach_by_an_angle_is_that_of_the_lengths(metric, rng):
    points = unit_points(rng.normal(size=(300, 14)), metric, np.float64)
    queries = unit_points(rng.normal(size=(100, 14)), metric, np.float64)
    lengths = edge_lengths(metric, neighbors_within(points, 5)[0])
    reach = lengths[:, -1].copy()
    found = TakerSearch(points, reach, metric).pairs(queries)
    expected = edge_lengths(metric, cdist(queries, points)) <= reach
    assert sorted(zip(found.queries, found.points, strict=True)) == list(zip(*np.nonzero(expected), strict=True))


class TestLists:
    def lists(self, rng, n_columns=4, k=5):
        points, queries = rng.normal(size=(200, n_columns)), rng.normal(size=(60, n_columns))
        queries[0] = points[3]
        radii = neighbors_within(points, k)[0][:, -1].copy()
        own = NeighborSearch(points).query(queries, k)
        return points, queries, radii, own, TakerSearch(points, radii).pairs(queries)

    def test_each_has_its_nearest_and_its_takers_once_and_sorted(self, rng):
        points, queries, radii, (distances, neighbors), pairs = self.lists(rng)
        found, apart = with_takers(distances, neighbors, pairs), cdist(queries, points)
        for i in range(60):
            place = slice(*found.offsets[i : i + 2])
            joined = set(neighbors[i].tolist()) | set(np.flatnonzero(apart[i] <= radii * (1 + 1e-12)).tolist())
            assert sorted(found.indices[place].tolist()) == sorted(joined)
            assert (np.diff(found.distances[place]) >= 0).all()
            np.testing.assert_array_equal(found.indices[place][:5], neighbors[i])
        assert (found.indices[0], found.distances[0]) == (3, 0.0)

    def test_the_order_of_takers_changes_nothing_and_repeated_ones_count_once(self, rng):
        *_, (distances, neighbors), pairs = self.lists(rng)
        expected = with_takers(distances, neighbors, pairs)
        order = rng.permutation(np.repeat(np.arange(len(pairs.queries)), 2))
        assert_same(with_takers(distances, neighbors, Pairs(*(column[order] for column in pairs))), expected)

    def test_of_very_many_the_nearest_are_kept(self, rng, monkeypatch):
        points, queries, _, (distances, neighbors), _ = self.lists(rng)
        pairs = TakerSearch(points, np.full(200, 1e3)).pairs(queries)
        every, nearest = NeighborSearch(points).query(queries, takers.MOST_EDGES_PER_NEIGHBOR * 5)
        monkeypatch.setattr(takers, "MOST_EDGES", 1)
        found = with_takers(distances, neighbors, pairs)
        np.testing.assert_array_equal(found.distances.reshape(60, -1), every)
        np.testing.assert_array_equal(found.indices.reshape(60, -1), nearest)

    def test_of_very_many_others_are_dropped_before_that(self, rng, monkeypatch):
        points, queries, _, (distances, neighbors), _ = self.lists(rng)
        pairs = TakerSearch(points, np.full(200, 1e3)).pairs(queries)
        monkeypatch.setattr(takers, "MOST_EDGES", 1)
        fewer = nearest_takers(pairs, 5)
        assert np.bincount(fewer.queries).tolist() == [takers.MOST_EDGES_PER_NEIGHBOR * 5] * 60
        assert_same(with_takers(distances, neighbors, fewer), with_takers(distances, neighbors, pairs))

    def test_nearest_that_tie_in_another_order_are_not_listed_twice(self):
        """On disk ties among the nearest go to the lower row, not to the lower number."""
        found = with_takers(
            np.array([[0.5, 1.0, 1.0]]), np.array([[9, 7, 2]]), Pairs(*map(np.array, ([0, 0], [2, 7], [1.0, 1.0])))
        )
        np.testing.assert_array_equal(found.indices, [9, 7, 2])
