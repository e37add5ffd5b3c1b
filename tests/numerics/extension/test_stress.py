"""Points placed by their own stress: landmarks where they are, others at the lowest minimum, rows on their own."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits, load_iris, make_swiss_roll
from sklearn.neighbors import kneighbors_graph

from pipeline.errors import InvalidInputError
from pipeline.numerics.models.stress import metric_mds, nonmetric_mds, sammon

METHODS = {
    "metric": metric_mds,
    "nonmetric": nonmetric_mds,
    "sammon": sammon,
    "neighbors": lambda between, d: sammon(between, d, min(12, len(between) - 1)),
}
every_method = pytest.mark.parametrize("method", METHODS)


def along_a_roll(n):
    points = make_swiss_roll(n, random_state=1)[0]
    return shortest_path(kneighbors_graph(points, 8, mode="distance"), directed=False)


def dissimilarities(name, n=110):
    """(n, n), of which the first 60 are landmarks."""
    if name == "roll":
        return along_a_roll(n)
    if name == "steps":
        return np.round(along_a_roll(n) / 4)
    points = {
        "digits": load_digits().data,
        "iris": np.random.default_rng(0).permutation(np.unique(load_iris().data, axis=0)),
        "noise": np.random.default_rng(3).normal(size=(n, 8)),
    }[name][:n]
    return cdist(points, points)


M = 60
DATA = {name: dissimilarities(name) for name in ("digits", "iris", "noise", "roll", "steps")}


def fitted(method, data, d=2):
    full = DATA[data]
    return METHODS[method](full[:M, :M], d), full[M:, :M]


def size_of(placer):
    return np.sqrt((placer.coordinates**2).sum(axis=1).mean())


@every_method
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_landmarks_are_placed_where_they_are(method, data, d):
    placer, _ = fitted(method, data, d)
    found = placer.place(DATA[data][:M, :M]).coordinates
    # Five components are one more than iris has columns: its order is fitted ever better, but never exactly.
    tolerance = 1e-6 if placer.converged else 1e-5
    assert np.abs(found - placer.coordinates).max() <= tolerance * size_of(placer)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(4, 14),
    st.sampled_from(["any", "whole", "twins"]),
    st.sampled_from([*METHODS]),
)
def test_landmarks_of_any_dissimilarities_are_placed_where_they_are(seed, m, kind, method):
    """Also of those that no metric has, that tie, and that are 0 between landmarks."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.gamma(1.0, size=(m, m)), 1)
    between = upper + upper.T if kind == "any" else np.ceil(2 * (upper + upper.T))
    if kind == "twins":
        twin = rng.integers(m, size=m)
        between = (upper + upper.T)[twin][:, twin]
        between[0, 1:] = between[1:, 0] = 2.0
    placer = METHODS[method](between, 2)
    found = placer.place(between).coordinates
    assert np.abs(found - placer.coordinates).max() <= 1e-6 * size_of(placer)


def weights_by_definition(placer, between, a):
    """Sammon's weights of one point [G eq. 23], of neighbors either way [G eq. 29]."""
    weights = 1 / a if placer.kind == "sammon" else np.ones_like(a)
    if placer.n_neighbors:
        k = placer.n_neighbors
        radii = np.maximum(np.sort(a)[k - 1], np.sort(between, axis=1)[:, k])
        weights = weights * (a <= radii * (1 + 1e-6))
    return weights


def intervals_by_definition(placer, a):
    """[lower, upper] of each dissimilarity: of its knot, or on the line from one knot to the next, or beyond all."""
    if placer.kind != "nonmetric-mds":
        return np.c_[a, a]
    knots, found = placer.knots, []
    for value in a:
        k = np.searchsorted(knots, value)
        if value > knots[-1]:
            found.append([value * placer.upper[-1] / knots[-1]] * 2)
        elif value == knots[k]:
            found.append([placer.lower[k], placer.upper[k]])
        else:
            share = (value - knots[k - 1]) / (knots[k] - knots[k - 1])
            found.append([placer.upper[k - 1] + share * (placer.lower[k] - placer.upper[k - 1])] * 2)
    return np.array(found)


def own_stress(placer, between, a):
    """The sum for one point as a function of its place, with its gradient."""
    X, w = placer.coordinates, weights_by_definition(placer, between, a)
    slack = placer.stress**2 if placer.kind == "nonmetric-mds" else 0.0
    ends = intervals_by_definition(placer, a).T

    def value_and_gradient(y):
        d = np.linalg.norm(y - X, axis=1)
        c = np.clip(d, *ends)
        value = (w * ((d - c) ** 2 - slack * d**2)).sum()
        return value, 2 * (w * (1 - slack - c / np.maximum(d, 1e-300))) @ (y - X)

    return value_and_gradient


@every_method
@pytest.mark.parametrize("data", ["digits", "noise", "roll"])
def test_hardly_any_of_many_descents_ends_lower(method, data):
    """BFGS from 8 landmarks beats none of 25 points; at most one of those where stress is high."""
    placer, rows = fitted(method, data)
    rng = np.random.default_rng(5)
    n_beaten = 0
    for a, y in zip(rows[:25], placer.place(rows[:25]).coordinates, strict=True):
        objective = own_stress(placer, DATA[data][:M, :M], a)
        starts = placer.coordinates[rng.integers(M, size=8)] + 1e-3 * size_of(placer)
        lowest = min(minimize(objective, start, jac=True, method="BFGS").fun for start in starts)
        n_beaten += objective(y)[0] > lowest + 1e-7 * abs(lowest)
    assert n_beaten <= (0 if data == "roll" or method == "metric" else 1)


@every_method
@pytest.mark.parametrize("data", ["digits", "iris", "noise", "roll"])
def test_every_point_is_at_a_minimum(method, data):
    placer, rows = fitted(method, data, 3)
    rng = np.random.default_rng(6)
    for a, y in zip(rows, placer.place(rows).coordinates, strict=True):
        objective = own_stress(placer, DATA[data][:M, :M], a)
        scale = size_of(placer) * weights_by_definition(placer, DATA[data][:M, :M], a).sum()
        assert np.linalg.norm(objective(y)[1]) <= 1e-9 * scale
        nudged = [objective(y + 1e-3 * size_of(placer) * rng.normal(size=3))[0] for _ in range(5)]
        assert min(nudged) >= objective(y)[0]


@every_method
def test_the_residual_is_the_root_mean_square_misfit(method):
    placer, rows = fitted(method, "digits")
    placement = placer.place(rows)
    for a, y, residual in zip(rows, *placement, strict=True):
        w = weights_by_definition(placer, DATA["digits"][:M, :M], a)
        d = np.linalg.norm(y - placer.coordinates, axis=1)
        misfit = d - np.clip(d, *intervals_by_definition(placer, a).T)
        assert residual == pytest.approx(np.sqrt((w * misfit**2).sum() / w.sum()), rel=1e-9)


@pytest.mark.parametrize("method", ["metric", "sammon", "neighbors"])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_points_of_the_landmarks_space_are_recovered(method, d):
    rng = np.random.default_rng(d)
    landmarks, points = rng.normal(size=(30, d)), rng.normal(size=(40, d))
    placement = METHODS[method](cdist(landmarks, landmarks), d).place(cdist(points, landmarks))
    np.testing.assert_allclose(placement.residual, 0, atol=1e-9)
    np.testing.assert_allclose(cdist(placement.coordinates, placement.coordinates), cdist(points, points), atol=1e-8)


def test_points_outside_the_landmarks_plane_leave_it():
    rng = np.random.default_rng(0)
    landmarks, points = np.c_[rng.normal(size=(20, 2)), np.zeros(20)], rng.normal(size=(30, 3))
    placement = metric_mds(cdist(landmarks, landmarks), 3).place(cdist(points, landmarks))
    np.testing.assert_allclose(placement.residual, 0, atol=1e-12)
    np.testing.assert_allclose(np.abs(placement.coordinates[:, 2]), np.abs(points[:, 2]), atol=1e-9)


def test_two_landmarks_and_a_point_beyond_them():
    """Landmarks 2 apart; a point 3.5 from one and 1 from the other is best 2.25 from their middle."""
    placer = metric_mds([[0, 2], [2, 0]], 1)
    np.testing.assert_allclose(placer.coordinates, [[1], [-1]], atol=1e-15)
    placement = placer.place(np.array([[1.0, 3.5]]))
    assert placement.coordinates[0, 0] == pytest.approx(2.25, rel=1e-14)
    assert placement.residual[0] == pytest.approx(0.25, rel=1e-12)


@every_method
def test_a_row_has_the_same_bytes_in_any_batch(method):
    placer, rows = fitted(method, "digits", 3)
    rows = np.concatenate([np.asfortranarray(rows)] * 6)
    whole = placer.place(rows)
    for size in (1, 7, 256, 299):
        pieces = [placer.place(rows[i : i + size]) for i in range(0, len(rows), size)]
        np.testing.assert_array_equal(np.concatenate([piece.coordinates for piece in pieces]), whole.coordinates)
        np.testing.assert_array_equal(np.concatenate([piece.residual for piece in pieces]), whole.residual)


@every_method
def test_single_precision_gives_the_same_bytes_as_the_same_values_in_double(method):
    placer, rows = fitted(method, "iris")
    single = rows.astype(np.float32)
    for found, expected in zip(placer.place(single), placer.place(single.astype(np.float64)), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.float64


@every_method
def test_landmarks_known_in_single_precision_are_placed_where_they_are(method):
    """As from a run's store: neighbors at the k-th distance must not drop out by rounding."""
    placer, _ = fitted(method, "noise")
    found = placer.place(DATA["noise"][:M, :M].astype(np.float32)).coordinates
    # The monotone map has jumps, which rounding may cross.
    tolerance = 1e-5 if method == "nonmetric" else 1e-6
    assert np.abs(found - placer.coordinates).max() <= tolerance * size_of(placer)


@every_method
@pytest.mark.parametrize("exponent", [-300, 300])
def test_other_units_give_the_same_places(method, exponent):
    placer, rows = fitted(method, "noise")
    unit, unit_of_result = 2.0**exponent, 2.0 ** (exponent * placer.residual_degree)
    scaled = METHODS[method](DATA["noise"][:M, :M] * unit, 2).place(rows * unit)
    plain = placer.place(rows)
    np.testing.assert_array_equal(scaled.coordinates, plain.coordinates * unit_of_result)
    np.testing.assert_allclose(scaled.residual, plain.residual * unit_of_result, rtol=1e-14)


def test_no_points_give_no_places():
    placer, _ = fitted("sammon", "iris")
    coordinates, residual = placer.place(np.empty((0, M), dtype=np.float32))
    assert coordinates.shape == (0, 2)
    assert residual.shape == (0,)


@every_method
def test_a_placer_is_arrays_numbers_and_words(method):
    """So that a run can keep it; built anew from its fields it gives the same bytes."""
    placer, rows = fitted(method, "iris")
    fields = {field.name: getattr(placer, field.name) for field in dataclasses.fields(placer)}
    assert all(type(value) in (np.ndarray, float, int, str, bool) for value in fields.values())
    copy = type(placer)(**{name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in fields.items()})
    np.testing.assert_array_equal(copy.place(rows).coordinates, placer.place(rows).coordinates)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, M - 1)), rf"to_landmarks has shape \(2, {M - 1}\); it must be \(n_points, {M}\)"),
        (np.ones(M), "must have 2 dimensions"),
        (-np.ones((2, M)), "to_landmarks has a negative entry"),
        (np.full((2, M), np.nan), "NaN or infinite"),
        (np.full((2, M), 1e200), "to_landmarks, in units .* rescale"),
        (np.ones((2, M), complex), "real numbers"),
    ],
)
def test_bad_rows_are_refused(rows, message):
    placer, _ = fitted("metric", "iris")
    with pytest.raises(InvalidInputError, match=message):
        placer.place(rows)
