"""Landmarks by k-means, trace and pivoted Cholesky: distinct, repeatable, by their definitions, better than chance."""

from functools import partial

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from benchmarks.papers.closeness import captured_trace
from pipeline.errors import InvalidInputError
from pipeline.numerics.landmarks import choices as landmark_choice
from pipeline.numerics.landmarks.choices import (
    KINDS,
    KINDS_BY_DISSIMILARITIES,
    automatic_gamma,
    candidate_rows,
    choose_by_dissimilarities,
    choose_by_points,
    choose_rows,
)
from pipeline.numerics.landmarks.sampling import maxmin_candidates, random_landmarks

kmeans_landmarks, trace_landmarks, pivoted_cholesky_landmarks = CHOICES = [partial(choose_rows, kind) for kind in KINDS]


def in_three_ways(kind, points, m, seed):
    """By points in double and in single precision, and by the distances between them."""
    chosen = [] if kind == "maxmin" else [choose_by_points(kind, p, m, seed) for p in (points, points.astype("f4"))]
    return [*chosen, choose_by_dissimilarities(kind, cdist(points, points), m, seed)]


def farthest_first(between, chosen, m):
    """The greedy choice by definition, from some that are chosen already."""
    chosen = list(chosen)
    while len(chosen) < m:
        nearest = between[:, chosen].min(axis=1)
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    return chosen


@pytest.mark.parametrize("kind", KINDS_BY_DISSIMILARITIES)
@given(data=st.data())
def test_exactly_as_many_as_asked_for_and_no_value_twice_while_others_are_left(kind, data):
    n, width = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 3))
    points = data.draw(arrays(np.float64, (n, width), elements=st.integers(0, 2).map(float)))
    m = data.draw(st.integers(1, n))
    for chosen in in_three_ways(kind, points, m, data.draw(st.integers(0, 2**63))):
        assert chosen.dtype == np.int64
        assert len(set(chosen.tolist())) == len(chosen) == m
        assert 0 <= chosen.min() <= chosen.max() < n
        assert len(np.unique(points[chosen], axis=0)) == min(m, len(np.unique(points, axis=0)))


@pytest.mark.parametrize("kind", KINDS_BY_DISSIMILARITIES)
def test_points_whose_squared_distances_vanish_are_as_good_as_equal(kind):
    points = np.r_[0.0, 1e-170, 2e-170, 3e-170, 1.0][:, None]
    for seed in range(5):
        chosen = [choose_by_dissimilarities(kind, cdist(points, points), 4, seed)]
        chosen += [] if kind == "maxmin" else [choose_by_points(kind, points, 4, seed)]
        for places in chosen:
            assert len(set(places.tolist())) == 4
            assert 4 in places


@pytest.mark.parametrize("gamma", [1e-300, 1e-5, 1e5, 1e300])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_kernels_of_any_width_choose_as_many_as_asked_for(rng, gamma, scale):
    points = scale * rng.normal(size=(30, 2))
    assert len(set(pivoted_cholesky_landmarks(points, 20, 0, gamma).tolist())) == 20


@pytest.mark.parametrize("kind", KINDS_BY_DISSIMILARITIES)
def test_the_same_on_any_number_of_threads_and_in_any_unit(kind, rng):
    points = rng.normal(size=(400, 5))
    between = cdist(points, points)
    once = in_three_ways(kind, points, 30, 7)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        with threadpool_limits(2):
            again = in_three_ways(kind, points, 30, 7)
    finally:
        faiss.omp_set_num_threads(threads)
    np.testing.assert_array_equal(again, once)
    for scale in (2.0**400, 2.0**-400):
        np.testing.assert_array_equal(choose_by_dissimilarities(kind, between * scale, 30, 7), once[-1])
        if kind != "maxmin":
            np.testing.assert_array_equal(choose_by_points(kind, points * scale, 30, 7), once[0])


@pytest.mark.parametrize("choose", CHOICES)
def test_rows_of_many_points_are_chosen_among_candidates(choose, rng):
    points = rng.normal(size=(1000, 3))
    chosen = [choose(points, 6, seed) for seed in (0, 0, 1)]
    assert len(set(chosen[0].tolist())) == 6
    np.testing.assert_array_equal(chosen[0], chosen[1])
    assert set(chosen[0].tolist()) != set(chosen[2].tolist())
    candidates, _ = maxmin_candidates(1000, 6, 0)
    assert len(candidates) == 300
    assert np.isin(chosen[0], candidates).all()


@pytest.mark.parametrize(
    ("kind", "constant", "value", "expected"),
    [
        ("kmeans", "SAMPLE_ENTRIES", 600, 200),
        ("kmeans", "SAMPLE_ENTRIES", 6, 20),
        ("trace", "TRACE_CANDIDATES", 40, 40),
        ("trace", "TRACE_CANDIDATES", 4, 10),
        ("cholesky", "FACTOR_ENTRIES", 500, 50),
        ("cholesky", "FACTOR_ENTRIES", 50, 20),
    ],
)
def test_candidates_fit_in_memory_and_are_enough(monkeypatch, kind, constant, value, expected):
    monkeypatch.setattr(landmark_choice, constant, value)
    rows = candidate_rows(kind, 1000, 3, 10, 5)
    assert len(rows) == expected
    assert (np.diff(rows) > 0).all()
    assert np.isin(rows, maxmin_candidates(1000, 10, 5)[0]).all()
    points = np.random.default_rng(0).normal(size=(1000, 3))
    assert len(set(choose_by_points(kind, points[rows], 10, 5).tolist())) == 10


def test_maxmin_is_farthest_first(rng):
    between = cdist(*[rng.normal(size=(60, 3))] * 2) ** 1.5
    for seed in range(3):
        chosen = choose_by_dissimilarities("maxmin", between, 20, seed)
        assert chosen.tolist() == farthest_first(between, chosen[:1], 20)
    assert len({int(choose_by_dissimilarities("maxmin", between, 2, seed)[0]) for seed in range(20)}) > 8


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_trace_adds_most_to_the_captured_trace(seed, m):
    """[E eq. 24] by brute force on the centered Gram matrix, by points and by distances."""
    points = np.random.default_rng(seed).normal(size=(25, 8)) * 0.7 ** np.arange(8)
    centered = points - points.mean(axis=0)
    chosen: list[int] = []
    while len(chosen) < m:
        traces = [
            captured_trace(centered @ centered.T, [*chosen, row]) if row not in chosen else 0 for row in range(25)
        ]
        chosen.append(int(np.argmax(traces)))
    for found in in_three_ways("trace", points, m, seed):
        assert found.tolist() == chosen


def test_an_exhausted_trace_goes_on_with_the_farthest(rng):
    """In the plane two points, or three, span everything."""
    points = rng.normal(size=(50, 2))
    between = cdist(points, points)
    for chosen in in_three_ways("trace", points, 12, 0):
        assert chosen.tolist() == farthest_first(between, chosen[:2], 12)


@pytest.mark.parametrize("gamma", [0.05, 1.0])
def test_pivots_are_drawn_by_what_earlier_ones_leave_of_the_kernel(monkeypatch, rng, gamma):
    """The residual against Schur complements of the whole kernel, and the draw by its largest entry."""
    points = rng.normal(size=(40, 2))
    seen = []

    def largest(weights, _):
        seen.append(weights.copy())
        return int(weights.argmax())

    monkeypatch.setattr(landmark_choice, "_drawn", largest)
    chosen = pivoted_cholesky_landmarks(points, 8, 0, gamma)
    np.testing.assert_array_equal(chosen, choose_by_dissimilarities("cholesky", cdist(points, points), 8, 0, gamma))
    kernel = np.exp(-gamma * cdist(points, points, "sqeuclidean"))
    for i in range(1, 8):
        S = chosen[:i]
        left = kernel - kernel[:, S] @ np.linalg.solve(kernel[np.ix_(S, S)], kernel[S])
        np.testing.assert_allclose(seen[i], left.diagonal(), atol=1e-8)


def test_draws_are_in_proportion_to_the_residual():
    """Two points as one, and one far from them: 2/3 of first draws fall on the pair, then always on the other."""
    points = np.array([[0.0], [1e-6], [100.0]])
    chosen = np.array([pivoted_cholesky_landmarks(points, 2, seed, 1.0) for seed in range(300)])
    assert ((chosen == 2).sum(axis=1) == 1).all()
    # Expected 100 times with a standard deviation of 8.
    assert abs(np.count_nonzero(chosen[:, 0] == 2) - 100) < 35


def test_an_exhausted_kernel_goes_on_with_the_farthest(rng):
    """So wide that the kernel of all points has a numerical rank of a few."""
    points = rng.normal(size=(60, 1))
    chosen = pivoted_cholesky_landmarks(points, 30, 0, gamma=1e-3)
    between = cdist(points, points)
    rests = [farthest_first(between, chosen[:n], 30) == chosen.tolist() for n in range(1, 30)]
    assert any(rests)
    assert len(set(chosen.tolist())) == 30
    assert rests.index(True) < 10


def test_the_automatic_width_follows_the_spacing_of_landmarks():
    """On a line of 1,000 points a landmark's share of them lies within half its spacing on either side."""
    points = np.arange(1000.0)

    def spacing(m):
        return 1 / np.sqrt(2 * automatic_gamma(lambda place: (points - points[place]) ** 2, 1000, m))

    assert spacing(10) == pytest.approx(100, rel=0.1)
    assert spacing(100) == pytest.approx(10, rel=0.1)


def blobs(rng, n_blobs=6, size=20):
    centers = 100 * np.stack([np.arange(n_blobs), np.arange(n_blobs) % 2], axis=1)
    return (centers[:, None] + rng.normal(size=(n_blobs, size, 2))).reshape(-1, 2)


def test_centers_and_medoids_are_the_points_nearest_to_the_means(rng):
    points = blobs(rng)
    from_mean = np.linalg.norm(points.reshape(6, 20, 2) - points.reshape(6, 20, 2).mean(axis=1, keepdims=True), axis=2)
    least, from_mean = from_mean.min(axis=1), from_mean.ravel()

    def found_all(chosen):
        chosen = np.sort(chosen)
        one_each = (chosen // 20).tolist() == list(range(6))
        # Centers are in single precision.
        return one_each and (from_mean[chosen] < least + 1e-4).all()

    between = cdist(points, points)
    assert all(found_all(choose_by_dissimilarities("kmeans", between, 6, seed)) for seed in range(10))
    assert all(found_all(kmeans_landmarks(points, 6, seed)) for seed in range(10))


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_medoids_have_the_least_sum_of_squares_in_their_clusters(seed, m):
    points = np.random.default_rng(seed).normal(size=(60, 2))
    squared = cdist(points, points, "sqeuclidean")
    chosen = choose_by_dissimilarities("kmeans", np.sqrt(squared), m, seed)
    cluster_of = squared[chosen].argmin(axis=0)
    improvable = 0
    for c in range(m):
        members = np.flatnonzero(cluster_of == c)
        sums = squared[np.ix_(members, members)].sum(axis=1)
        assert chosen[c] in members
        improvable += sums[members == chosen[c]][0] > sums.min() * (1 + 1e-9)
    # Only if twelve rounds were not enough.
    assert improvable <= 1


def mean_over_seeds(figure, choose):
    return np.mean([figure(choose(seed)) for seed in range(8)])


@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_better_than_chance_at_what_they_are_for(kind, rng):
    """Points along a curve, most of them at one end; figures in the mean over seeds."""
    along = rng.random(800) ** 3
    points = np.stack([np.cos(6 * along), np.sin(6 * along), 3 * along], axis=1) + 0.02 * rng.normal(size=(800, 3))
    between = cdist(points, points)
    kernel = np.exp(-between / 2)

    def missed(rows):
        """For k-means the mean squared distance to the nearest landmark, for others what a kernel has left."""
        if kind == "kmeans":
            return (between[:, rows].min(axis=1) ** 2).mean()
        if kind == "trace":
            return np.trace(kernel) - captured_trace(kernel, rows)
        return np.trace(kernel - kernel[:, rows] @ np.linalg.solve(kernel[np.ix_(rows, rows)], kernel[rows]))

    by_kernel = np.sqrt(2 - 2 * kernel)
    by_chance = mean_over_seeds(missed, lambda seed: random_landmarks(800, 12, seed))
    chosen = mean_over_seeds(missed, lambda seed: choose_by_dissimilarities(kind, by_kernel, 12, seed))
    assert chosen < 0.8 * by_chance
    if kind != "trace":
        assert mean_over_seeds(missed, lambda seed: choose_by_points(kind, points, 12, seed)) < 0.8 * by_chance


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kmeans_landmarks(np.eye(3), 4, 0), r"n_landmarks=4 is out of range; use one from 1 to 3"),
        (lambda: trace_landmarks(np.full((3, 2), np.nan), 1, 0), "points has 6 NaN"),
        (lambda: trace_landmarks(np.eye(3), 1, -1), "seed=-1 is out of range"),
        (lambda: pivoted_cholesky_landmarks(np.eye(3), 2, 0, 0.0), r"gamma=0.0 is out of range"),
        (lambda: choose_by_points("maxmin", np.eye(3), 1, 0), r"kind='maxmin' is not known; use one of 'kmeans'"),
        (lambda: candidate_rows("best", 5, 1, 1, 0), r"kind='best' is not known"),
        (lambda: choose_by_dissimilarities("best", np.eye(3), 1, 0), r"kind='best' is not known; use one of 'maxmin'"),
        (lambda: choose_by_dissimilarities("trace", np.eye(3), 1, 0), "between has a nonzero diagonal"),
        (lambda: choose_by_dissimilarities("trace", 1 - np.eye(3), 0, 0), "n_landmarks=0 is out of range"),
    ],
)
def test_what_cannot_be_chosen_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
