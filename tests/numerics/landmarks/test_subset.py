"""Kernel semi-least squares: the paper's formulas by brute force, exactness for the subset, greedy subsets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from benchmarks.papers.closeness import captured_trace, closeness_score, difference_scores, nystrom
from pipeline.errors import InvalidInputError
from pipeline.numerics.landmarks.subset import (
    EvaluatedSubset,
    distance_kernel,
    evaluated_places,
    gram_matrix,
    kernel_of_objects,
    semi_least_squares,
    trace_greedy,
)

seeds = st.integers(0, 2**32 - 1)


def objects(seed, n=40, p=8, dimension=15, decay=0.8):
    """Members and new objects whose directions matter less and less."""
    rng = np.random.default_rng(seed)
    both = rng.normal(size=(n + p, dimension)) * decay ** np.arange(dimension)
    return both[:n], both[n:]


def random_kernel(seed, n=30, rank=20, decay=0.75):
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, rank)) * decay ** np.arange(rank)
    return factors @ factors.T


def projected(K, subset):
    """P_RQ K by the pseudo-inverse, as [E eq. 23-24] have it."""
    return np.linalg.pinv(K[subset], rcond=1e-11) @ K[subset] @ K


def greedily(K, m, cost):
    """The best next member by definition, as often as asked for; of equally good ones the first."""
    chosen = []
    while len(chosen) < m:
        others = [r for r in range(len(K)) if r not in chosen]
        costs = np.array([cost(K, [*chosen, r]) for r in others])
        chosen.append(others[int(np.argmax(costs <= costs.min() + 1e-9 * abs(costs.min())))])
    return chosen


@given(seeds)
def test_the_kernel_of_a_distance_gives_the_distance_back(seed):
    members, new = objects(seed)
    between, apart = cdist(members, members), cdist(new, members)
    K = gram_matrix(between, 3)
    k, own = kernel_of_objects(apart, between[3], 3)
    np.testing.assert_allclose(K, (members - members[3]) @ (members - members[3]).T, atol=1e-10)
    np.testing.assert_allclose(k, (new - members[3]) @ (members - members[3]).T, atol=1e-10)
    np.testing.assert_allclose(own[:, None] - 2 * k + K.diagonal(), apart**2, atol=1e-10)


def test_a_constant_is_a_kernel_of_codes_on_a_sphere(rng):
    """[E sec. 10]: of binary codes compared by the root of Hamming's distance, the inner product of +-1/2."""
    codes = rng.integers(0, 2, (12, 20)).astype(float)
    hamming = np.abs(codes[:, None] - codes).sum(axis=2)
    K = distance_kernel(np.sqrt(hamming), np.full(12, 20 / 8), np.full(12, 20 / 8))
    np.testing.assert_allclose(K, (codes - 0.5) @ (codes - 0.5).T, atol=1e-12)


@given(seeds, st.integers(1, 20))
def test_is_the_formula_of_the_paper(seed, m):
    """[E eq. 14-15] with the pseudo-inverse, for one object at a time."""
    K = random_kernel(seed, n=34)
    Q, new = K[:30, :30], K[30:, :30]
    subset = np.random.default_rng(seed).choice(30, m, replace=False)
    expected = []
    for k, own in zip(new, K.diagonal()[30:], strict=True):
        beta = np.linalg.pinv(Q[subset], rcond=1e-13) @ k[subset]
        expected.append([own - 2 * beta @ Q[i] + Q[i, i] for i in range(30)])
    found = semi_least_squares(Q, subset).squared_distances(new[:, subset], K.diagonal()[30:])
    np.testing.assert_allclose(found, np.maximum(expected, 0), atol=1e-7 * np.abs(K).max())


@given(seeds, st.integers(1, 12))
def test_nystrom_projects_on_the_span_of_the_subset(seed, m):
    members, new = objects(seed)
    subset = np.arange(m)
    basis = np.linalg.qr(members[subset].T)[0]
    shadows = new @ basis @ basis.T
    expected = (new**2).sum(axis=1)[:, None] - 2 * shadows @ members.T + (members**2).sum(axis=1)
    found = nystrom(members @ members.T, subset).squared_distances(new @ members[subset].T, (new**2).sum(axis=1))
    np.testing.assert_allclose(found, np.maximum(expected, 0), atol=1e-7)


@pytest.mark.parametrize("approximation", [semi_least_squares, nystrom])
@given(seed=seeds, m=st.integers(2, 15))
def test_distances_to_members_of_the_subset_are_exact(approximation, seed, m):
    members, new = objects(seed)
    between, apart = cdist(members, members), cdist(new, members)
    subset = np.random.default_rng(seed).choice(40, m, replace=False)
    K = gram_matrix(between, subset[1])
    k, own = kernel_of_objects(apart[:, subset], between[subset[1], subset], 1)
    found = np.sqrt(approximation(K, subset).squared_distances(k, own)[:, subset])
    np.testing.assert_allclose(found, apart[:, subset], rtol=1e-8)


def test_as_many_members_as_dimensions_tell_all_distances():
    members, new = objects(1, dimension=6)
    K = members @ members.T
    subset = trace_greedy(K, 6)
    found = semi_least_squares(K, subset).squared_distances(new @ members[subset].T, (new**2).sum(axis=1))
    np.testing.assert_allclose(np.sqrt(found), cdist(new, members), rtol=1e-7)


def test_approximates_better_than_nystrom_and_better_with_more_members():
    """In the mean over sets of objects."""

    def closeness(approximation, m):
        differences = []
        for seed in range(20):
            members, new = objects(seed, n=80)
            K = members @ members.T
            subset = trace_greedy(K, m)
            squared = approximation(K, subset).squared_distances(new @ members[subset].T, (new**2).sum(axis=1))
            differences.append(difference_scores(np.sqrt(squared), cdist(new, members)))
        return closeness_score(differences)

    ours = [closeness(semi_least_squares, m) for m in (2, 5, 10)]
    theirs = [closeness(nystrom, m) for m in (2, 5, 10)]
    assert ours[0] < ours[1] < ours[2]
    assert all(a > b for a, b in zip(ours, theirs, strict=True))
    assert ours[2] > 0.95


def test_squares_are_never_negative_and_rows_have_the_same_bytes_in_any_batch():
    members, _ = objects(2)
    K = members @ members.T
    subset = np.arange(7)
    approximation = semi_least_squares(K, subset)
    whole = approximation.squared_distances(K[:, subset], 0.5 * K.diagonal())
    assert (whole == 0).any()
    assert (whole >= 0).all()
    for size in (1, 3, 16):
        pieces = [
            approximation.squared_distances(K[i : i + size, subset], 0.5 * K.diagonal()[i : i + size])
            for i in range(0, 40, size)
        ]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert approximation.squared_distances(np.empty((0, 7)), np.empty(0)).shape == (0, 40)


@given(seeds, st.integers(1, 6))
def test_the_criterion_is_that_of_the_paper(seed, m):
    K = random_kernel(seed)
    subset = list(range(m))
    np.testing.assert_allclose(captured_trace(K, subset), np.trace(projected(K, subset)), rtol=1e-8)


def test_the_captured_trace_is_what_distances_of_members_to_themselves_miss():
    """[E eq. 21-22]: maximizing it minimizes their sum."""
    K = random_kernel(0)
    subset = [3, 7, 20]
    weights = semi_least_squares(K, subset).weights
    to_themselves = K.diagonal() - 2 * np.einsum("ij,ji->i", K[:, subset], weights) + K.diagonal()
    np.testing.assert_allclose(to_themselves.sum(), 2 * (np.trace(K) - captured_trace(K, subset)), rtol=1e-9)


@given(seeds, st.integers(1, 8))
def test_trace_greedy_is_greedy(seed, m):
    K = random_kernel(seed, n=20)
    assert trace_greedy(K, m).tolist() == greedily(K, m, lambda K, R: -captured_trace(K, R))


def test_greedy_choices_capture_more_than_chance():
    K = random_kernel(1, n=60)
    by_chance = [np.random.default_rng(seed).choice(60, 5, replace=False) for seed in range(20)]
    assert captured_trace(K, trace_greedy(K, 5)) > max(captured_trace(K, subset) for subset in by_chance)


def test_greedy_choice_goes_on_where_little_is_left():
    """Residuals fall by ten orders of magnitude, squared by twenty: they are computed anew on the way."""
    rng = np.random.default_rng(3)
    vectors = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    eigenvalues = 10.0 ** np.linspace(0, -9, 60)
    K = (vectors * eigenvalues) @ vectors.T
    chosen = trace_greedy(K, 40)
    captured = [captured_trace(K, chosen[:m]) for m in range(1, 41)]
    assert len(set(chosen.tolist())) == 40
    assert (np.diff(captured) > -1e-12).all()
    assert eigenvalues.sum() - captured[-1] < 1.5 * eigenvalues[40:].sum()


def test_greedy_choice_ends_where_nothing_is_left_to_add():
    """Rank 4, every member three times: never more than four, never the same again."""
    members, _ = objects(4, n=10, dimension=4)
    thrice = np.repeat(members, 3, axis=0)
    chosen = trace_greedy(thrice @ thrice.T, 12)
    assert len(chosen) == 4
    assert (chosen % 3 == 0).all()
    assert len(set(chosen.tolist())) == 4


@pytest.mark.parametrize("scale", [2.0**60, 2.0**-60])
def test_the_unit_does_not_matter(scale):
    K = random_kernel(5)
    np.testing.assert_array_equal(trace_greedy(K * scale, 9), trace_greedy(K, 9))


def test_scores_by_hand():
    """[E eq. 31-32]; an object at distance 0 from a member is not compared with it."""
    exact = np.array([[1.0, 2.0, 4.0], [0.0, 5.0, 5.0], [0.0, 0.0, 0.0]])
    guess = np.array([[1.1, 2.0, 3.0], [3.0, 4.0, 5.0], [1.0, 1.0, 1.0]])
    scores = difference_scores(guess, exact)
    np.testing.assert_allclose(scores, [(0.1 + 0 + 0.25) / 3, (0.2 + 0) / 2, 0])
    np.testing.assert_allclose(closeness_score([scores[:2], scores[2:]]), 1 - (scores[0] + scores[1]) / 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: semi_least_squares(np.ones((2, 3)), [0]), r"gram has shape \(2, 3\); it must be square"),
        (lambda: semi_least_squares(np.triu(np.ones((3, 3))), [0]), r"gram is not symmetric.*up to 1;"),
        (lambda: semi_least_squares(np.eye(3) * np.nan, [0]), "gram has 9 NaN"),
        (lambda: semi_least_squares(np.eye(3), [3]), "subset has 3; row numbers run from 0 to 2"),
        (lambda: trace_greedy(np.eye(3), 4), r"n_chosen=4 is out of range; use one from 1 to 3"),
        (lambda: trace_greedy(np.eye(3), 0), r"n_chosen=0 is out of range; use one from 1 to 3"),
        (lambda: gram_matrix(1 - np.eye(3), 3), r"origin=3 is out of range; use one from 0 to 2"),
        (lambda: kernel_of_objects(np.ones((2, 3)), np.ones(3), -1), r"origin=-1 is out of range"),
        (
            lambda: semi_least_squares(np.eye(3), [0, 1]).squared_distances(np.ones((2, 3)), np.ones(2)),
            r"to_subset has shape \(2, 3\) and own \(2,\); they must be \(n_objects, 2\)",
        ),
    ],
)
def test_what_has_no_answer_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@given(seeds)
def test_an_evaluated_subset_begins_in_the_middle_and_keeps_what_was_evaluated(seed):
    members, new = objects(seed, dimension=5, decay=1.0)
    between, apart = cdist(members, members), cdist(new, members)
    places = evaluated_places(between, 7)
    assert places[0] == np.argmin((between**2).mean(axis=0))
    assert len(np.unique(places)) == len(places) <= 7
    found = EvaluatedSubset(between, places).to_landmarks(apart[:, places])
    np.testing.assert_array_equal(found[:, places], apart[:, places])
    # Six distances tell the place in five dimensions, and so all others.
    np.testing.assert_allclose(found, apart, atol=1e-6)
