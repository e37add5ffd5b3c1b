"""Neighbors: those of brute force to the bit, however the queries are batched and whichever search proposes them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.errors import InvalidInputError
from pipeline.numerics.neighbors import exact as neighbors
from pipeline.numerics.neighbors import products
from pipeline.numerics.neighbors.exact import NeighborSearch, nearest_neighbors, neighbors_within


def brute_force(reference, queries, k, skip_itself=False):
    """All distances, summed feature by feature in float64; a stable sort breaks ties by row."""
    reference, queries = np.asarray(reference, dtype=np.float64), np.asarray(queries, dtype=np.float64)
    squared = np.zeros((len(queries), len(reference)))
    for a, b in zip(queries.T, reference.T, strict=True):
        squared += (a[:, None] - b) ** 2
    if skip_itself:
        np.fill_diagonal(squared, np.inf)
    distances = np.sqrt(squared)
    indices = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, indices, 1), indices


def assert_same(found, expected):
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])


KINDS = {
    "random": lambda rng: rng.normal(size=(150, 3)),
    "line": lambda rng: rng.normal(size=(150, 1)),
    "lattice": lambda _: np.stack(np.meshgrid(*[np.arange(5.0)] * 3), axis=-1).reshape(-1, 3),
    "duplicates": lambda rng: rng.integers(0, 3, size=(150, 2)).astype(float),
    "identical": lambda _: np.full((60, 4), 0.1),
    "offset": lambda rng: 1e6 + rng.normal(size=(150, 3)),
    "wide": lambda rng: rng.normal(size=(150, 40)),
    "wide lattice": lambda rng: rng.integers(0, 2, size=(150, 40)).astype(float),
    "wide duplicates": lambda rng: np.repeat(rng.normal(size=(5, 40)), 30, axis=0),
    "wide offset": lambda rng: 1e6 + rng.normal(size=(150, 40)),
    "wide outlier": lambda rng: rng.normal(size=(150, 40)) + 1e8 * (np.arange(150) == 100)[:, None],
    "float32": lambda rng: rng.normal(size=(150, 3)).astype(np.float32),
    "wide float32": lambda rng: (1e3 + rng.normal(size=(150, 40))).astype(np.float32),
    "integers": lambda rng: rng.integers(-4, 4, size=(150, 3)),
    "wide integers": lambda rng: rng.integers(0, 3, size=(150, 40)).astype(np.uint8),
    "columns first": lambda rng: np.asfortranarray(rng.normal(size=(150, 3))),
    "every other row": lambda rng: rng.normal(size=(300, 40))[::2],
}


def dataset(kind):
    return KINDS[kind](np.random.default_rng(7))


@pytest.mark.parametrize("kind", KINDS)
def test_equals_brute_force_with_ties_by_row(kind):
    points = dataset(kind)
    n = len(points)
    reference, queries = points[: n - 20], points[n - 50 :]
    for k in (1, 6, len(reference)):
        found = nearest_neighbors(reference, queries, k)
        assert found[0].dtype == np.float64
        assert found[1].dtype == np.int64
        assert_same(found, brute_force(reference, queries, k))


@pytest.mark.parametrize("kind", ["random", "lattice", "duplicates", "offset", "wide", "wide lattice", "wide outlier"])
def test_both_searches_propose_the_same_answer(kind):
    points = dataset(kind)
    assert_same(
        NeighborSearch(points, use_tree=True).query(points, 8), NeighborSearch(points, use_tree=False).query(points, 8)
    )


@given(st.data())
def test_both_searches_equal_brute_force_on_small_lattices(data):
    n, p, d = (data.draw(st.integers(1, high)) for high in (12, 4, 4))
    coordinate = st.integers(-2, 2).map(float)
    reference, queries = (data.draw(arrays(np.float64, (rows, d), elements=coordinate)) for rows in (n, p))
    k = data.draw(st.integers(1, n))
    expected = brute_force(reference, queries, k)
    assert_same(NeighborSearch(reference, use_tree=True).query(queries, k), expected)
    assert_same(NeighborSearch(reference, use_tree=False).query(queries, k), expected)


@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-20, 20), offset=st.sampled_from([0.0, 1.0, 1e8]))
def test_both_searches_equal_brute_force_when_distances_nearly_tie(seed, exponent, offset):
    rng = np.random.default_rng(seed)
    sphere = rng.normal(size=(200, 8))
    sphere /= np.linalg.norm(sphere, axis=1)[:, None]
    reference = offset + 2.0**exponent * sphere
    queries = offset + np.array([[0.0], [1e-9]]) * np.ones(8)
    expected = brute_force(reference, queries, 10)
    assert_same(NeighborSearch(reference, use_tree=True).query(queries, 10), expected)
    assert_same(NeighborSearch(reference, use_tree=False).query(queries, 10), expected)


@pytest.mark.parametrize("kind", ["random", "lattice", "offset", "wide", "wide lattice", "wide offset", "wide float32"])
def test_a_query_has_the_same_answer_in_any_company(kind, monkeypatch):
    points = dataset(kind)
    together = nearest_neighbors(points, points, 5)
    order = np.random.default_rng(1).permutation(len(points))
    for rows in (*np.split(order, [1, 2, 9, 60]), order):
        assert_same(nearest_neighbors(points, points[rows], 5), [part[rows] for part in together])
    assert_same(nearest_neighbors(points, points, 5, n_jobs=2), together)
    monkeypatch.setattr(products, "PORTION", 37)
    monkeypatch.setattr(products, "BLOCK_ENTRIES", 7 * 37)
    assert_same(nearest_neighbors(points, points, 5), together)


@pytest.mark.parametrize("kind", ["random", "wide"])
@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_rescaling_by_a_power_of_two_rescales_the_bits(kind, scale):
    points = dataset(kind)
    distances, indices = nearest_neighbors(points, points, 4)
    assert_same(nearest_neighbors(points * scale, points * scale, 4), (distances * scale, indices))


@pytest.mark.parametrize("kind", ["random", "wide"])
@pytest.mark.parametrize("scale", [2.0**490, 2.0**-490])
def test_values_whose_squares_just_fit_are_ranked_right(kind, scale):
    points = dataset(kind)
    distances, indices = nearest_neighbors(points * scale, points * scale, 4)
    expected = brute_force(points, points, 4)
    np.testing.assert_array_equal(indices, expected[1])
    np.testing.assert_allclose(distances / scale, expected[0], rtol=1e-9)


@pytest.mark.parametrize("reference_scale", [1e-140, 1.0, 1e140])
@pytest.mark.parametrize("query_scale", [1e-140, 1e-6, 1.0, 1e4, 1e9, 1e140])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_queries_at_any_scale_beside_the_reference_equal_brute_force(reference_scale, query_scale, dtype):
    reference, queries = dataset("wide")[:100], dataset("wide")[100:]
    if dtype == np.float32:
        reference_scale, query_scale = reference_scale ** (1 / 7), query_scale ** (1 / 7)
    reference, queries = (reference_scale * reference).astype(dtype), (query_scale * queries).astype(dtype)
    for k in (1, 6, 50):
        assert_same(nearest_neighbors(reference, queries, k), brute_force(reference, queries, k))


@pytest.mark.parametrize("kind", ["random", "wide"])
@pytest.mark.parametrize("scale", [2.0**600, 2.0**-600])
def test_values_whose_squares_do_not_fit_are_refused(kind, scale):
    points = dataset(kind)
    with pytest.raises(InvalidInputError, match=r"reference reaches .*; rescale it"):
        nearest_neighbors(points * scale, points * scale, 4)


@pytest.mark.parametrize("kind", ["random", "wide"])
def test_a_query_next_to_the_origin_has_the_same_answer_alone_and_in_company(kind):
    points = dataset(kind)
    queries = np.concatenate([np.full((1, points.shape[1]), 1e-200), points])
    together = nearest_neighbors(points, queries, 4)
    assert_same(nearest_neighbors(points, queries[:1], 4), [part[:1] for part in together])


@pytest.mark.parametrize(
    "kind", ["random", "lattice", "duplicates", "identical", "wide", "wide duplicates", "integers"]
)
@pytest.mark.parametrize("k", [1, 4, 29])
def test_neighbors_within_leaves_out_only_the_point_itself(kind, k):
    points = dataset(kind)
    found = neighbors_within(points, k)
    assert not (found[1] == np.arange(len(points))[:, None]).any()
    assert_same(found, brute_force(points, points, k, skip_itself=True))


def test_neighbors_within_reaches_all_other_points():
    points = dataset("duplicates")[:9]
    assert_same(neighbors_within(points, 8, n_jobs=2), brute_force(points, points, 8, skip_itself=True))


GOOD = np.random.default_rng(0).normal(size=(6, 2))
HOLED = np.where(np.arange(12).reshape(6, 2) == 5, np.nan, GOOD)


@pytest.mark.parametrize(
    ("reference", "queries", "k", "message"),
    [
        (GOOD, GOOD, 0, r"n_neighbors=0 .*from 1 to 6 \(reference has 6 points\)"),
        (GOOD, GOOD, 7, r"n_neighbors=7 .*from 1 to 6"),
        (GOOD, GOOD, -1, r"n_neighbors=-1 .*from 1 to 6"),
        (GOOD, GOOD, True, r"n_neighbors=True .*from 1 to 6"),
        (GOOD, GOOD, 2.5, r"n_neighbors=2\.5 .*from 1 to 6"),
        (GOOD, np.ones((3, 4)), 1, r"queries has 4 columns and reference 2"),
        (HOLED, GOOD, 1, r"reference has 1 NaN or infinite entries, first in row 2;"),
        (GOOD, HOLED, 1, r"queries has 1 NaN or infinite entries, first in row 2;"),
        (GOOD, np.where(np.isnan(HOLED), -np.inf, GOOD), 1, r"queries has 1 NaN or infinite"),
        (GOOD + 0j, GOOD, 1, r"reference has dtype complex128"),
        (GOOD, GOOD.astype(str), 1, r"queries has dtype <U"),
        (GOOD.astype(object), GOOD, 1, r"reference has dtype object"),
        (np.empty((0, 2)), GOOD, 1, r"reference has shape \(0, 2\); it is empty"),
        (GOOD, np.empty((3, 0)), 1, r"queries has shape \(3, 0\); it is empty"),
        (GOOD, GOOD[0], 1, r"queries has shape \(2,\); it must have 2 dimensions"),
    ],
)
def test_bad_arguments_are_named(reference, queries, k, message):
    with pytest.raises(InvalidInputError, match=message):
        nearest_neighbors(reference, queries, k)


@pytest.mark.parametrize(
    ("points", "k", "message"),
    [
        (GOOD, 0, r"n_neighbors=0 .*from 1 to 5"),
        (GOOD, 6, r"n_neighbors=6 .*from 1 to 5 \(there are 6 points and a point is not its own neighbor\)"),
        (GOOD, np.True_, r"n_neighbors=.*from 1 to 5"),
        (GOOD[0], 1, r"points has shape \(2,\)"),
        (HOLED, 1, r"has 1 NaN or infinite entries, first in row 2;"),
    ],
)
def test_bad_arguments_of_neighbors_within_are_named(points, k, message):
    with pytest.raises(InvalidInputError, match=message):
        neighbors_within(points, k)


@pytest.mark.parametrize("kind", KINDS)
def test_refining_in_any_portions_ends_with_the_nearest_of_all(kind):
    points = dataset(kind)
    rng = np.random.default_rng(3)
    rows = rng.permutation(len(points)) + 1000
    queries, own = points[:40], rows[:40]
    k = 6
    distances, found = np.full((40, k), np.inf), np.full((40, k), -1, dtype=np.int64)
    for portion in np.array_split(rng.permutation(len(points)), 7):
        neighbors.refine_neighbors(points[portion], rows[portion], queries, own, distances, found)
    by_row = np.argsort(rows)
    expected_distances, expected = brute_force(points[by_row], queries, len(points))
    for i in range(40):
        others = expected[i][rows[by_row][expected[i]] != own[i]]
        np.testing.assert_array_equal(found[i], rows[by_row][others[:k]])
        np.testing.assert_array_equal(distances[i], expected_distances[i][rows[by_row][expected[i]] != own[i]][:k])
