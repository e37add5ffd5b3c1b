"""All points within a radius, against comparing everything with everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.neighbors import NearestNeighbors

from pipeline.errors import InvalidInputError
from pipeline.numerics.geodesics.rows import rows_through_lists, rows_through_neighbors, rows_with_and_without_last
from pipeline.numerics.neighbors import radius as module
from pipeline.numerics.neighbors.radius import (
    RadiusSearch,
    even_lists,
    joined_lists,
)


def by_comparing(reference, queries, radius):
    """The lists of every query, each a list of (distance, row)."""
    lists = []
    for query in queries.astype(np.float64):
        differences = reference.astype(np.float64) - query
        apart = np.sqrt(np.array([sum(value * value for value in row.tolist()) for row in differences]))
        rows = np.flatnonzero(apart <= radius)
        lists.append(sorted(zip(apart[rows].tolist(), rows.tolist(), strict=True)))
    return lists


def as_lists(found):
    pairs = list(zip(found.distances.tolist(), found.indices.tolist(), strict=True))
    return [pairs[begin:end] for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@pytest.mark.parametrize("n_columns", [1, 3, 10, 11, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lists_are_those_of_comparing_everything(n_columns, dtype):
    rng = np.random.default_rng(n_columns)
    reference, queries = (rng.normal(size=(n, n_columns)).astype(dtype) for n in (300, 60))
    radius = 1.3 * np.sqrt(n_columns)
    found = RadiusSearch(reference).lists(queries, radius)
    assert as_lists(found) == by_comparing(reference, queries, radius)
    assert found.offsets.dtype == found.indices.dtype == np.int64
    assert 60 < len(found.indices) < 60 * 300


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.sampled_from([2, 12]), st.data())
def test_on_a_lattice_ties_go_to_the_lower_row_and_the_border_belongs_to_the_ball(radius, n_columns, data):
    entries = st.integers(-2, 2).map(float)
    reference = data.draw(arrays(np.float64, (30, n_columns), elements=entries))
    assert as_lists(RadiusSearch(reference).lists(reference[:7], radius)) == by_comparing(
        reference, reference[:7], radius
    )


@pytest.mark.parametrize("n_columns", [2, 15])
def test_a_query_that_is_a_point_has_itself_first(n_columns):
    points = np.random.default_rng(0).normal(size=(200, n_columns))
    found = RadiusSearch(points).lists(points, 1e-6)
    np.testing.assert_array_equal(found.indices, np.arange(200))
    np.testing.assert_array_equal(found.distances, 0.0)


def test_queries_far_from_everything_have_empty_lists():
    points = np.random.default_rng(0).normal(size=(50, 3))
    found = RadiusSearch(points).lists(np.array([[0.0, 0, 0], [1e9, 0, 0], [0.0, 0, 0]]), 100.0)
    assert np.diff(found.offsets).tolist() == [50, 0, 50]
    assert RadiusSearch(points).lists(np.empty((0, 3)), 1.0).offsets.tolist() == [0]


@pytest.mark.parametrize("n_columns", [3, 20])
def test_outliers_and_an_origin_far_away_change_nothing(n_columns):
    rng = np.random.default_rng(1)
    points = rng.normal(size=(500, n_columns)) + 1e6
    points[::50] *= 1e4
    reach = 1.1 * np.sqrt(n_columns)
    assert as_lists(RadiusSearch(points).lists(points[:40], reach)) == by_comparing(points, points[:40], reach)


@pytest.mark.parametrize("n_columns", [2, 12])
def test_batches_and_threads_give_the_same_bytes(n_columns, monkeypatch):
    points = np.random.default_rng(2).normal(size=(3000, n_columns))
    reach = 0.5 * np.sqrt(n_columns)
    whole = RadiusSearch(points).lists(points, reach)
    monkeypatch.setattr(module, "QUERIES_AT_ONCE", 128)
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 64)
    monkeypatch.setattr(module, "PORTION", 100)
    for found in (RadiusSearch(points).lists(points, reach, n_threads=2), _in_two(points, reach)):
        for part, same in zip(whole, found, strict=True):
            assert part.tobytes() == same.tobytes()


def _in_two(points, reach):
    search = RadiusSearch(points)
    return joined_lists([search.lists(points[:1700], reach), search.lists(points[1700:], reach)])


def test_ways_over_lists_of_one_length_are_those_over_a_table_of_neighbors():
    rng = np.random.default_rng(5)
    distances, indices = np.sort(rng.random((40, 6)), axis=1), rng.integers(0, 90, (40, 6))
    distances[:5, :2] = 0.0
    known = rng.random((90, 8)).astype(np.float32)
    lists = even_lists(distances, indices)
    for found, expected in (
        (lists, (distances, indices)),
        (lists.of(np.arange(40)[::-3]), (distances[::-3], indices[::-3])),
    ):
        assert rows_through_lists(found, known).tobytes() == rows_through_neighbors(*expected, known).tobytes()


def test_ways_with_and_without_the_last_neighbor_are_those_over_both_tables():
    rng = np.random.default_rng(6)
    distances, indices = np.sort(rng.random((40, 6)), axis=1), rng.integers(0, 90, (40, 6))
    distances[:5, :2], distances[5:8] = 0.0, 0.0
    known = rng.random((90, 8))
    both = rows_with_and_without_last(even_lists(distances, indices), known)
    for found, table in zip(
        np.moveaxis(both, 1, 0), ((distances, indices), (distances[:, :5], indices[:, :5])), strict=True
    ):
        assert found.tobytes() == rows_through_neighbors(*table, known.astype(np.float32)).tobytes()


def test_an_empty_list_leads_nowhere_and_a_single_neighbor_is_never_left_out():
    points = np.array([[0.0], [1.0], [1.5], [9.0]])
    lists = RadiusSearch(points).lists(np.array([[5.0], [8.5], [0.9]]), 0.7)
    known = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_allclose(rows_through_lists(lists, known), [[np.inf, np.inf], [6.5, 7.5], [2.1, 3.1]])
    both = rows_with_and_without_last(lists, known)
    np.testing.assert_array_equal(both[:, 0], rows_through_lists(lists, known))
    assert lists.sizes.tolist() == [0, 1, 2]
    np.testing.assert_allclose(both[:, 1], [[np.inf, np.inf], [6.5, 7.5], [2.1, 3.1]])
    assert lists.of(np.array([2, 0])).indices.tolist() == [1, 2]


def test_numbers_agree_with_scikit_learn():
    points = np.random.default_rng(3).normal(size=(400, 5))
    found = RadiusSearch(points).lists(points, 1.3)
    graph = NearestNeighbors(radius=1.3).fit(points).radius_neighbors_graph(points, mode="distance")
    np.testing.assert_array_equal(np.diff(found.offsets), np.diff(graph.indptr))
    np.testing.assert_allclose(found.distances.sum(), graph.sum(), rtol=1e-12)


@pytest.mark.parametrize("n_columns", [2, 12])
def test_lists_that_would_not_fit_are_refused_with_the_mean(n_columns):
    points = np.random.default_rng(4).normal(size=(300, n_columns))
    with pytest.raises(
        InvalidInputError, match=r"radius=1000 gives each of 300 points more than \d\d\d neighbors on average.*smaller"
    ):
        RadiusSearch(points).lists(points, 1000.0, most=80_000)
