"""Products of matrices in float32: their rounding stays within the bound, and what they propose leaves nothing out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.numerics.neighbors import products
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.numerics.neighbors.products import local_portions, portions

# Points, then queries.
KINDS = {
    "random": lambda rng, d: (rng.normal(size=(200, d)), rng.normal(size=(30, d))),
    "single": lambda rng, d: tuple(rng.normal(size=(n, d)).astype(np.float32) for n in (200, 30)),
    "all alike": lambda rng, d: (np.full((200, d), 3.7) + 1e-3 * rng.random((200, 1)), np.full((30, d), 3.7)),
    "one direction": lambda rng, d: (rng.random((200, 1)) * np.ones(d), rng.random((30, 1)) * np.ones(d) / 3),
    "offset": lambda rng, d: (1e7 + rng.normal(size=(200, d)), 1e7 + rng.normal(size=(30, d))),
    "far queries": lambda rng, d: (rng.normal(size=(200, d)), 10.0 ** np.arange(30)[:, None] * rng.normal(size=d)),
    "farther queries": lambda rng, d: (rng.normal(size=(200, d)), 1e5 ** np.arange(30)[:, None] * rng.normal(size=d)),
    "outliers": lambda rng, d: (rng.normal(size=(200, d)) * 10.0 ** rng.integers(0, 9, (200, 1)), np.zeros((3, d))),
    "tiny": lambda rng, d: (1e-140 * rng.normal(size=(200, d)), 1e-140 * rng.normal(size=(30, d))),
    "huge": lambda rng, d: (1e150 * rng.uniform(-1, 1, (200, d)), 1e150 * rng.uniform(-1, 1, (30, d))),
    "tiny among huge": lambda rng, d: (1e-140 * rng.normal(size=(200, d)), 1e150 * rng.uniform(-1, 1, (30, d))),
    "hardly squared": lambda rng, d: (1e-158 * rng.normal(size=(200, d)), 1e-158 * rng.normal(size=(30, d))),
    "too small to square": lambda rng, d: (1e-170 * rng.normal(size=(200, d)), 1e-170 * rng.normal(size=(30, d))),
    "identical": lambda rng, d: (np.full((200, d), 0.1), np.full((5, d), 0.1)),
    "lattice": lambda rng, d: tuple(rng.integers(0, 2, size=(n, d)).astype(float) for n in (200, 30)),
}


def exact_terms(points, queries, center):
    """p'p - 2 q'p and q'q about a center, to 64 bits of each term."""
    p, q = (np.asarray(part, dtype=np.longdouble) - center for part in (points, queries))
    return (p**2).sum(axis=1) - 2 * q @ p.T, (q**2).sum(axis=1)


@pytest.mark.parametrize("n_columns", [11, 50, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_within_the_margin(kind, n_columns):
    points, queries = KINDS[kind](np.random.default_rng(5), n_columns)
    every = np.arange(len(queries))
    for portion in portions(points, np.arange(len(points))):
        room = portion.room(len(queries))
        among = portion.multiply(queries, every, np.full(len(queries), np.inf), room)
        np.testing.assert_array_equal(among, every)
        squares, margins, factors = room.bounds.astype(np.longdouble).T
        true, lengths = exact_terms(portion.points, queries, portion._center)
        allowed = margins * factors + products.UNDERFLOW
        assert np.isfinite(room.products).all()
        error = np.abs(room.products - true * factors[:, None])
        assert (error <= allowed[:, None]).all()
        assert (np.abs(squares - lengths) * factors <= allowed).all()


@pytest.mark.parametrize("n_columns", [11, 300])
def test_the_margin_is_not_far_beyond_what_rounding_does(n_columns):
    """Otherwise the test above would say nothing, and too many points would be looked at."""
    points, queries = KINDS["one direction"](np.random.default_rng(5), n_columns)
    (portion,) = portions(points, np.arange(len(points)))
    room = portion.room(len(queries))
    portion.multiply(queries, np.arange(len(queries)), np.full(len(queries), np.inf), room)
    true, _ = exact_terms(points, queries, portion._center)
    _, margins, factors = room.bounds.T
    error = np.abs(room.products - true * factors[:, None]).max(axis=1)
    assert (error / (margins * factors)).max() > 1e-3


def brute_force(points, rows, queries, own, k):
    """Distances summed column by column in float64, ties by row."""
    order = np.argsort(rows, kind="stable")
    squared = np.zeros((len(queries), len(points)))
    for a, b in zip(queries.T.astype(np.float64), points[order].T.astype(np.float64), strict=True):
        squared += (a[:, None] - b) ** 2
    distances = np.sqrt(squared)
    distances[own[:, None] == rows[order]] = np.inf
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, nearest, 1), rows[order][nearest]


def refined(parts, queries, own, k, among=None):
    distances, found = np.full((len(queries), k), np.inf), np.full((len(queries), k), -1)
    for portion in parts:
        portion.refine(queries, own, distances, found, among)
    return distances, found


def assert_same(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("k", [1, 7, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_those_of_brute_force(kind, k):
    rng = np.random.default_rng(6)
    points, queries = KINDS[kind](rng, 20)
    rows = rng.permutation(1000)[: len(points)]
    own = rows[: len(queries)]
    assert_same(refined(portions(points, rows), queries, own, k), brute_force(points, rows, queries, own, k))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("portion", "entries"), [(1, 1), (17, 100), (100, 1 << 18)])
def test_neither_portions_nor_blocks_nor_company_matter(kind, portion, entries, monkeypatch):
    monkeypatch.setattr(products, "PORTION", portion)
    monkeypatch.setattr(products, "BLOCK_ENTRIES", entries)
    rng = np.random.default_rng(7)
    points, queries = KINDS[kind](rng, 13)
    rows = rng.permutation(1000)[: len(points)]
    own = rows[: len(queries)]
    expected = brute_force(points, rows, queries, own, 5)
    assert_same(refined(portions(points, rows), queries, own, 5), expected)
    nobody = np.full(len(queries), -1)
    by_place = brute_force(points, np.arange(len(points)), queries, nobody, 5)
    assert_same(refined(local_portions(points), queries, nobody, 5), by_place)
    some = rng.permutation(len(queries))[:3]
    distances, found = refined(portions(points, rows), queries, own, 5, some)
    assert_same((distances[some], found[some]), [part[some] for part in expected])
    others = np.setdiff1d(np.arange(len(queries)), some)
    assert np.isinf(distances[others]).all()
    assert (found[others] == -1).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([1e-9, 1e-7, 1e-5, 1e-3]),
    exponent=st.sampled_from([-450, -60, 0, 60, 450]),
    offset=st.sampled_from([0.0, 1.0, 1e4]),
)
def test_distances_that_nearly_tie_are_told_apart(seed, spread, exponent, offset):
    """Points on a sphere about the queries: differences far below float32, or at its edge."""
    rng = np.random.default_rng(seed)
    sphere = rng.normal(size=(300, 12))
    sphere *= (1 + spread * rng.random((300, 1))) / np.linalg.norm(sphere, axis=1)[:, None]
    points, queries = (2.0**exponent * (offset + part) for part in (sphere, spread * rng.normal(size=(4, 12))))
    rows, nobody = rng.permutation(300), np.full(4, -1)
    assert_same(refined(portions(points, rows), queries, nobody, 10), brute_force(points, rows, queries, nobody, 10))


def test_points_in_clusters_far_apart_are_cut_between_them():
    """So that the bound is that of a cluster, and not of the distance between them."""
    rng = np.random.default_rng(8)
    points = np.concatenate([rng.normal(size=(3000, 20)), 1e6 + rng.normal(size=(3000, 20))])
    points = rng.permutation(points)
    parts = list(local_portions(points))
    assert max(portion._longest for portion in parts) < 20
    np.testing.assert_array_equal(np.sort(np.concatenate([portion.rows for portion in parts])), np.arange(6000))
    nobody = np.full(9, -1)
    expected = brute_force(points, np.arange(6000), points[:9], nobody, 4)
    assert_same(NeighborSearch(points).query(points[:9], 4), expected)


def test_an_outlier_is_looked_at_apart():
    rng = np.random.default_rng(9)
    points = rng.normal(size=(500, 20))
    points[[7, 90]] += 1e9
    points[300] += 1e4
    parts = list(portions(points, np.arange(500)))
    assert sorted(len(portion.points) for portion in parts) == [1, 2, 497]
    assert max(portion._longest for portion in parts) < 20


def test_portions_far_beyond_the_limits_are_not_multiplied():
    rng = np.random.default_rng(10)
    points = rng.normal(size=(300, 20))
    (portion,) = portions(points, np.arange(300))
    queries = np.array([[0.0], [3.0], [100.0]]) * np.ones(20)
    room = portion.room(3)
    near = portion.multiply(queries, np.arange(3), np.array([1.0, 20.0, 10.0]), room)
    np.testing.assert_array_equal(near, [0, 1])
