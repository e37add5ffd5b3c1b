"""Agreement of distances seen from a few points: as over all pairs, with intervals that hold what they promise."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import linregress
from sklearn.datasets import load_digits

from pipeline.numerics.agreement import Pairs, n_sources_along_paths, residual_variances, stress
from pipeline.numerics.datasets import swiss_roll


def embedded(kind):
    """Points and coordinates that show them more or less well."""
    rng = np.random.default_rng(0)
    if kind == "digits":
        points = load_digits().data[:1000]
        left, sizes, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
        return points, (left * sizes)[:, :3]
    if kind == "roll":
        return swiss_roll(1000, seed=0).points, swiss_roll(1000, seed=0).sheet
    points = rng.normal(size=(1000, 2)) * [5, 1]
    return points, points + 0.3 * rng.normal(size=points.shape)


def pairs_from(points, coordinates, sources):
    apart = cdist(points[sources], points)
    return Pairs(apart, coordinates[sources], coordinates, len(points))


def test_over_all_pairs_it_is_the_plain_figure():
    points, coordinates = embedded("digits")
    seen = pairs_from(points, coordinates, np.arange(len(points)))
    for k, estimate in enumerate(residual_variances(seen), 1):
        r = linregress(seen.lengths.ravel(), cdist(coordinates[:, :k], coordinates[:, :k]).ravel()).rvalue
        assert estimate.value == pytest.approx(1 - r**2, rel=1e-9)
        assert estimate.low == pytest.approx(estimate.value) == estimate.high
    misfit = seen.lengths - cdist(coordinates, coordinates)
    plain = np.sqrt((misfit**2).sum() / (seen.lengths**2).sum())
    assert stress(seen).value == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("kind", ["digits", "roll", "noisy"])
@pytest.mark.parametrize("n_sources", [8, 32])
def test_intervals_hold_the_figure_of_all_pairs_as_often_as_they_say(kind, n_sources):
    points, coordinates = embedded(kind)
    everything = pairs_from(points, coordinates, np.arange(len(points)))
    truth = residual_variances(everything)[-1].value, stress(everything).value
    hits = np.zeros((200, 2), bool)
    for seed in range(200):
        sources = np.random.default_rng(seed).choice(len(points), n_sources, replace=False)
        seen = pairs_from(points, coordinates, sources)
        for i, estimate in enumerate((residual_variances(seen)[-1], stress(seen))):
            hits[seed, i] = estimate.low <= truth[i] <= estimate.high
    # 95% are promised; a binomial of 200 has 91% in all but one case in a hundred.
    assert (hits.mean(axis=0) >= 0.91).all()


def test_a_perfect_embedding_misses_nothing_and_a_constant_one_everything():
    points, _ = embedded("noisy")
    assert residual_variances(pairs_from(points, 3 * points, np.arange(8)))[-1].value < 1e-12
    assert residual_variances(pairs_from(points, 0 * points, np.arange(8)))[-1][:] == (1.0, 1.0, 1.0)
    one = residual_variances(pairs_from(points, points[:, :1], np.array([3])))[0]
    assert (one.low, one.high) == (0.0, 1.0)


@pytest.mark.parametrize(("n_landmarks", "n_sources"), [(3, 8), (300, 8), (1000, 16), (3840, 64), (100_000, 64)])
def test_paths_are_followed_from_as_many_points_as_a_tenth_of_the_time_allows(n_landmarks, n_sources):
    assert n_sources_along_paths(n_landmarks) == n_sources
