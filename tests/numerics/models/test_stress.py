"""Scaling by stress: the papers' figures, derivatives, minima no worse than another program's or than the start."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import isotonic_regression
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import rankdata
from sklearn.datasets import load_digits, load_iris, make_s_curve
from sklearn.manifold import MDS
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics.mds import classical_mds
from pipeline.numerics.models.monotone import MonotoneStress
from pipeline.numerics.models.smacof import WeightedStress, minimize
from pipeline.numerics.models.stress import metric_mds, nonmetric_mds, sammon

seeds = st.integers(0, 2**32 - 1)
METHODS = {
    "metric": metric_mds,
    "nonmetric": nonmetric_mds,
    "sammon": sammon,
    "neighbors": lambda between, d, **starts: sammon(between, d, min(5, len(between) - 1), **starts),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def data_sets():
    digits = load_digits().data
    return {
        "iris": np.unique(load_iris().data, axis=0)[::4],
        "digits": digits[:40],
        "curve": make_s_curve(30, random_state=0)[0],
        "noise": np.random.default_rng(0).normal(size=(40, 6)),
    }


DATA = {name: cdist(points, points) for name, points in data_sets().items()}


def random_dissimilarities(seed, m, kind):
    """Euclidean, Euclidean with duplicates, none of a metric, or whole numbers that tie and are often 0."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m, 3))
    if kind == "euclidean":
        return cdist(points, points)
    if kind == "duplicates":
        points = points[rng.integers(max(2, m // 2), size=m)]
        points[0] += 1
        return cdist(points, points)
    values = np.abs(rng.normal(size=m * (m - 1) // 2)) + 1e-3
    values = values if kind == "no metric" else np.floor(3 * values)
    values[0] += 1
    return squareform(values)


kinds = st.sampled_from(["euclidean", "duplicates", "no metric", "whole numbers"])


def stress_by_definition(method, between, X, n_neighbors=5):
    """[G eq. 16, 21, 25, 29], pair by pair; f of [G eq. 21] fitted to the distances, and divided by these."""
    pairs = [(i, j) for i in range(len(X)) for j in range(i)]
    delta = np.array([between[pair] for pair in pairs])
    d = np.array([np.sqrt(((X[i] - X[j]) ** 2).sum()) for i, j in pairs])
    if method == "metric":
        return np.sqrt(((delta - d) ** 2).sum() / (delta**2).sum())
    if method == "nonmetric":
        order = np.lexsort((d, delta))
        return np.sqrt(((d[order] - isotonic_regression(d[order]).x) ** 2).sum() / (d**2).sum())
    counts = np.ones(len(pairs), dtype=bool)
    if method == "neighbors":
        # Ties with the k-th nearest count; no landmark of these data is at distance 0 from another.
        radii = np.sort(between, axis=1)[:, n_neighbors] * (1 + 1e-6)
        counts = np.array([between[i, j] <= max(radii[i], radii[j]) for i, j in pairs])
    return ((delta - d) ** 2 / delta)[counts].sum() / delta[counts].sum()


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("method", METHODS)
def test_figures_are_those_of_the_papers(method, data):
    between = DATA[data]
    scaled = METHODS[method](between, 2)
    assert scaled.stress == pytest.approx(stress_by_definition(method, between, scaled.coordinates), rel=1e-9)
    assert scaled.converged
    assert scaled.stress < scaled.start_stress


def test_raw_stress_is_the_numerator():
    between = DATA["noise"]
    scaled = metric_mds(between, 2)
    misfit = ((squareform(between) - pdist(scaled.coordinates)) ** 2).sum()
    assert scaled.raw_stress == pytest.approx(misfit, rel=1e-10)
    assert sammon(between, 2).raw_stress == pytest.approx(sammon(between, 2).stress * squareform(between).sum())
    ranked = nonmetric_mds(between, 2)
    assert ranked.raw_stress == pytest.approx(ranked.stress**2 * (pdist(ranked.coordinates) ** 2).sum())


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_metric_stress_is_no_higher_than_that_of_scikit_learn(data, d):
    between = DATA[data]
    other = MDS(d, metric="precomputed", init="classical_mds", n_init=1, max_iter=1000, eps=1e-9).fit(between)
    assert metric_mds(between, d).raw_stress <= other.stress_ * (1 + 1e-9) + 1e-20


@pytest.mark.parametrize("data", DATA)
def test_metric_stress_is_no_higher_than_that_of_random_starts(data):
    between = DATA[data]
    other = MDS(2, metric="precomputed", init="random", n_init=4, max_iter=300, random_state=0).fit(between)
    assert metric_mds(between, 2).raw_stress <= other.stress_ * (1 + 1e-9)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("d", [2, 3])
def test_nonmetric_stress_is_no_higher_than_that_of_scikit_learn(data, d):
    """From the same start; it divides by the sum of squared distances too, as stress-1 does."""
    between = DATA[data]
    other = MDS(d, metric="precomputed", metric_mds=False, init="random", n_init=1, eps=1e-9)
    other.fit(between, init=classical_mds(squareform(rankdata(squareform(between))) ** 2, d).coordinates)
    assert nonmetric_mds(between, d).stress <= other.stress_ * (1 + 1e-9)


def weighted_problem(seed, m=7, d=3):
    rng = np.random.default_rng(seed)
    weights = squareform(rng.uniform(0, 2, size=m * (m - 1) // 2) * (rng.random(m * (m - 1) // 2) > 0.2))
    return random_dissimilarities(seed, m, "whole numbers"), weights, rng.normal(size=(d, m)), rng.normal(size=(d, m))


@given(seeds)
def test_derivatives_are_those_of_finite_differences(seed):
    targets, weights, X, direction = weighted_problem(seed)
    objective, h = WeightedStress(targets, weights), 1e-6
    point, after, before = objective.at(X), objective.at(X + h * direction), objective.at(X - h * direction)
    slope = (after.value - before.value) / (2 * h)
    assert np.vdot(point.gradient, direction) == pytest.approx(slope, rel=1e-6, abs=1e-6)
    expected = (after.gradient - before.gradient) / (2 * h)
    np.testing.assert_allclose(point.curvature(direction), expected, rtol=1e-5, atol=1e-4)


@given(seeds)
def test_the_gradient_of_a_point_sums_over_the_other_points_only(seed):
    """[G eq. 26] without its sum over i."""
    targets, weights, X, _ = weighted_problem(seed)
    gradient = WeightedStress(targets, weights).at(X).gradient
    for i in range(7):
        d = np.linalg.norm(X - X[:, [i]], axis=0)
        others = np.arange(7) != i
        factor = (weights[i] * (targets[i] - d))[others] / d[others]
        expected = -2 * (factor * (X[:, [i]] - X[:, others])).sum(axis=1)
        np.testing.assert_allclose(gradient[:, i], expected, rtol=1e-9, atol=1e-9)


@given(seeds)
def test_the_guttman_transform_is_that_of_the_pseudo_inverse_and_never_raises_the_stress(seed):
    targets, weights, X, _ = weighted_problem(seed)
    point = WeightedStress(targets, weights).at(X)
    V = np.diag(weights.sum(axis=1)) - weights
    ratio = weights * targets / np.where(np.eye(7) > 0, 1, cdist(X.T, X.T))
    transform = np.linalg.pinv(V, rcond=1e-10) @ (np.diag(ratio.sum(axis=1)) - ratio) @ X.T
    moved = X + point.preconditioned(point.gradient)
    within = np.linalg.pinv(V, rcond=1e-10) @ V
    np.testing.assert_allclose(within @ moved.T, transform, atol=1e-8)
    assert WeightedStress(targets, weights).at(moved).value <= point.value * (1 + 1e-12)


@every_method
@pytest.mark.parametrize("data", ["iris", "noise"])
def test_no_single_landmark_can_be_nudged_to_less_stress(method, data):
    between = DATA[data]
    name = next(name for name in METHODS if METHODS[name] is method)
    X = method(between, 2).coordinates
    lowest, size = stress_by_definition(name, between, X), np.sqrt((X**2).sum(axis=1).mean())
    rng = np.random.default_rng(1)
    for i in rng.integers(len(X), size=12):
        moved = X.copy()
        moved[i] += 1e-3 * size * rng.normal(size=2)
        assert stress_by_definition(name, between, moved) > lowest


@given(seeds, st.integers(3, 14), st.integers(1, 3), kinds, st.sampled_from(list(METHODS)))
@settings(max_examples=100)
def test_stress_is_never_above_that_of_the_classical_start(seed, m, d, kind, method):
    scaled = METHODS[method](random_dissimilarities(seed, m, kind), min(d, m - 1))
    assert scaled.stress <= scaled.start_stress
    assert np.isfinite(scaled.coordinates).all()


@given(seeds, st.integers(3, 12), st.integers(1, 3), kinds, st.sampled_from(list(METHODS)))
def test_the_answer_is_centered_along_its_principal_axes_with_fixed_signs(seed, m, d, kind, method):
    X = METHODS[method](random_dissimilarities(seed, m, kind), min(d, m - 1)).coordinates
    size = np.linalg.norm(X)
    np.testing.assert_allclose(X.sum(axis=0), 0, atol=1e-10 * size)
    gram = X.T @ X
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-10 * size**2)
    assert (np.diff(np.diag(gram)) <= 1e-10 * size**2).all()
    assert (X.max(axis=0) >= -X.min(axis=0) * (1 - 1e-6) - 1e-10 * size).all()


@given(seeds, st.integers(5, 20), st.integers(1, 3), st.sampled_from(["metric", "sammon"]))
def test_euclidean_configurations_are_recovered(seed, m, d, method):
    points = np.random.default_rng(seed).normal(size=(m, d))
    points -= points.mean(axis=0)
    scaled = METHODS[method](cdist(points, points), d)
    assert scaled.stress < 1e-12
    rotation, _ = orthogonal_procrustes(scaled.coordinates, points)
    np.testing.assert_allclose(scaled.coordinates @ rotation, points, atol=1e-6)


def test_nonmetric_scaling_sees_only_the_order():
    points = np.random.default_rng(2).normal(size=(40, 2))
    between = cdist(points, points)
    scaled = nonmetric_mds(between**3, 2)
    assert scaled.start_stress > 0.05
    assert scaled.stress < 1e-3
    found = scaled.coordinates / np.linalg.norm(scaled.coordinates)
    points = (points - points.mean(axis=0)) / np.linalg.norm(points - points.mean(axis=0))
    rotation, _ = orthogonal_procrustes(found, points)
    assert np.linalg.norm(found @ rotation - points) < 0.02


INCREASING = {
    "exponential": lambda between: np.expm1(2 * between / between.max() * 10),
    "square": np.square,
    "tiny": lambda between: np.ldexp(between, -300),
    "ranks": lambda between: np.unique(between, return_inverse=True)[1].reshape(between.shape).astype(float),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("n_init", [1, 3])
@pytest.mark.parametrize("change", INCREASING.values(), ids=INCREASING)
def test_nonmetric_scaling_is_a_function_of_the_order(data, n_init, change):
    # Values that differ in their last bits only would become equal.
    between = DATA[data].round(9)
    changed = change(between)
    one, other = (nonmetric_mds(values, 2, n_init) for values in (between, changed))
    assert (one.stress, one.start_stress, one.n_iterations) == (other.stress, other.start_stress, other.n_iterations)
    np.testing.assert_array_equal(one.coordinates, other.coordinates)
    np.testing.assert_array_equal(one.place(between).coordinates, other.place(changed).coordinates)


def test_classical_scaling_of_an_increasing_function_would_lead_elsewhere():
    """The two minima of [MATH section 10] that a start from the dissimilarities themselves leads to."""
    between = DATA["noise"]
    starts = [classical_mds(values**2, 3).coordinates.T for values in (between, np.expm1(2 * between))]
    ends = [minimize(MonotoneStress(between), np.ascontiguousarray(start)).point.value for start in starts]
    assert np.sqrt(ends[1]) > 1.02 * np.sqrt(ends[0])


def test_nonmetric_scaling_has_a_unit_of_its_own():
    placer = nonmetric_mds(DATA["digits"], 2)
    assert (placer.coordinates**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-12)
    assert placer.residual_degree == 0


@every_method
@pytest.mark.parametrize("data", DATA)
def test_more_starts_never_end_with_more_stress(method, data):
    scaled = [method(DATA[data], 2, n_init=n_init) for n_init in (1, 2, 5)]
    assert scaled[0].stress >= scaled[1].stress >= scaled[2].stress
    assert len({one.start_stress for one in scaled}) == 1


@pytest.mark.parametrize(("method", "data"), [("metric", "noise"), ("nonmetric", "curve"), ("sammon", "digits")])
def test_more_starts_find_lower_minima(method, data):
    plain, several = (METHODS[method](DATA[data], 2, n_init=n_init).stress for n_init in (1, 8))
    assert several < plain * (1 - 1e-4)


def test_starts_after_the_first_follow_the_seed():
    found = [nonmetric_mds(DATA["curve"], 2, n_init=8, seed=seed).coordinates for seed in (0, 0, 1)]
    np.testing.assert_array_equal(found[0], found[1])
    first = [nonmetric_mds(DATA["curve"], 2, seed=seed).coordinates for seed in (0, 1)]
    np.testing.assert_array_equal(first[0], first[1])
    assert not np.array_equal(found[0], found[2])


@every_method
def test_more_components_than_positive_eigenvalues_do_no_harm(method):
    cycle = np.array([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0.0]])
    assert classical_mds(cycle**2, 1).n_positive == 2
    scaled = method(cycle, 3)
    assert scaled.coordinates.shape == (4, 3)
    assert scaled.stress <= method(cycle, 2).stress * (1 + 1e-9) + 1e-12


def test_landmarks_that_coincide_in_the_start_come_apart():
    """Two ends of a cross whose second arm classical scaling leaves out of one component."""
    points = np.array([[2.0, 0], [-2, 0], [0, 1], [0, -1]])
    scaled = metric_mds(cdist(points, points), 1)
    assert abs(scaled.coordinates[2, 0] - scaled.coordinates[3, 0]) > 0.1
    assert scaled.stress < 0.9 * scaled.start_stress


def test_parts_that_no_neighbors_connect_keep_their_places():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(8, 2)), rng.normal(size=(8, 2)) + np.array([50, 0])])
    for n_init in (1, 10):
        X = sammon(cdist(points, points), 2, 3, n_init).coordinates
        apart, expected = (np.linalg.norm(Y[:8].mean(axis=0) - Y[8:].mean(axis=0)) for Y in (X, points))
        assert apart == pytest.approx(expected, rel=1e-3)


def test_with_every_pair_a_neighbor_sammons_mapping_is_the_plain_one():
    assert sammon(DATA["noise"], 2, 39).stress == pytest.approx(sammon(DATA["noise"], 2).stress, rel=1e-12)


@every_method
def test_duplicates_come_to_one_place(method):
    points = np.random.default_rng(4).normal(size=(20, 4))
    points[7] = points[3]
    X = method(cdist(points, points), 2).coordinates
    np.testing.assert_allclose(X[7], X[3], atol=1e-7 * np.abs(X).max())


@every_method
def test_rescaling_by_a_power_of_two_rescales_the_bits(method):
    between = DATA["curve"]
    plain = method(between, 2)
    for exponent in (-400, 3, 400):
        scaled = method(np.ldexp(between, exponent), 2)
        grown = exponent * plain.residual_degree
        np.testing.assert_array_equal(scaled.coordinates, np.ldexp(plain.coordinates, grown))
        placed, before = scaled.place(np.ldexp(between, exponent)), plain.place(between)
        np.testing.assert_array_equal(placed.residual, np.ldexp(before.residual, grown))
        assert scaled.stress == plain.stress


@every_method
def test_threads_of_linear_algebra_do_not_change_the_bytes(method):
    between = DATA["digits"]
    answers = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, "blas"):
            answers.append(method(between, 3, n_init=2).coordinates)
    np.testing.assert_array_equal(*answers)


def test_a_descent_says_when_it_has_not_converged(monkeypatch):
    monkeypatch.setattr("pipeline.numerics.models.smacof.MAX_NEWTON_STEPS", 1)
    between = DATA["digits"]
    X = np.random.default_rng(0).normal(size=(2, len(between)))
    assert not minimize(WeightedStress(between, np.ones((1, len(between)))), X).converged


@every_method
@pytest.mark.parametrize(
    ("between", "message"),
    [
        (np.ones((3, 2)), "it must be square"),
        (np.zeros((3, 3)), "between is all zero"),
        (-DATA["noise"], "between has a negative entry"),
        (DATA["noise"] * np.nan, "NaN or infinite"),
        (np.triu(DATA["noise"]), "between is not symmetric"),
        (DATA["noise"] * 1e200, "rescale"),
    ],
)
def test_bad_dissimilarities_are_refused(method, between, message):
    with pytest.raises(InvalidInputError, match=message):
        method(between, 2)


@pytest.mark.parametrize("value", [0, 40, 2.5, True])
def test_bad_numbers_are_refused(value):
    with pytest.raises(InvalidInputError, match="n_components"):
        metric_mds(DATA["noise"], value)
    with pytest.raises(InvalidInputError, match="n_neighbors"):
        sammon(DATA["noise"], 2, value)


@pytest.mark.parametrize("value", [0, 2.5, True])
@pytest.mark.parametrize("method", [metric_mds, nonmetric_mds, sammon])
def test_a_number_of_starts_that_is_none_is_refused(method, value):
    with pytest.raises(InvalidInputError, match="n_init"):
        method(DATA["noise"], 2, n_init=value)


def test_sammons_mapping_converges_on_hardly_more_neighbors_than_coordinates():
    """Twice as many neighbors as coordinates only just hold points in their places: a descent takes many steps."""
    X = np.random.default_rng(0).normal(size=(150, 30))
    between = np.linalg.norm(X[:, None] - X, axis=2)
    scaled = sammon(between, 10, 20)
    assert scaled.converged
    placed = scaled.place(between).coordinates
    np.testing.assert_allclose(placed, scaled.coordinates, atol=1e-9 * np.abs(scaled.coordinates).max())
