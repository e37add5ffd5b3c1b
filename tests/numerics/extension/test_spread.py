"""The spread of a point's coordinates: the formula against leaving landmarks out, and against known errors."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr
from sklearn.datasets import load_digits

from pipeline import LandmarkIsomap
from pipeline.errors import InvalidInputError
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension.placement import answers_of
from pipeline.numerics.extension.spread import spread_of
from pipeline.numerics.mds import MomentSums, classical_mds
from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.registration import rigid_motion


def spreads(model, to_landmarks):
    """The spread of points, from the column that the placement gives."""
    answers = answers_of(model, spread=True)
    assert answers.columns == ("residual", "multiplier", "gap", "spread")
    return answers.of(to_landmarks).trust[:, 3]


def fits(model, to_landmarks):
    """By plain weighted least squares with an intercept: terms (p, m), factors (m, d + 1), coefficients (p, d + 1)."""
    terms = -0.5 * (to_landmarks.astype(np.float64) ** 2 - model.row_means)
    factors = np.column_stack([model.coordinates, np.ones(model.n_landmarks)])
    w = np.ones(model.n_landmarks) if model.weights is None else model.weights
    return terms, factors, w, np.linalg.solve(factors.T * w @ factors, factors.T @ (terms * w).T).T


def left_out(model, to_landmarks, groups):
    """The spread (p,) when each group of landmarks in turn is left out of the least-squares fit."""
    terms, factors, _, full = fits(model, to_landmarks)
    n, total = groups.max() + 1, np.zeros(len(terms))
    for group in range(n):
        kept = groups != group
        found = np.linalg.lstsq(factors[kept], terms[:, kept].T, rcond=None)[0].T
        total += ((found - full)[:, :-1] ** 2).sum(axis=1)
    return np.sqrt((n - 1) / n * total)


@pytest.fixture
def problem(rng):
    """Landmarks and points of six dimensions, embedded in three."""
    landmarks, points = rng.normal(size=(60, 6)), rng.normal(size=(300, 6))
    return classical_mds(cdist(landmarks, landmarks) ** 2, 3), cdist(points, landmarks)


class TestFormula:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_is_the_standard_error_of_least_squares(self, rng, weighted):
        landmarks, points = rng.normal(size=(40, 6)), rng.normal(size=(50, 6))
        weights = rng.uniform(0.2, 3, 40) if weighted else None
        model, lengths = classical_mds(cdist(landmarks, landmarks) ** 2, 3, weights=weights), cdist(points, landmarks)
        terms, factors, w, found = fits(model, lengths)
        np.testing.assert_allclose(found[:, :3], answers_of(model).of(lengths).coordinates[:, :3], atol=1e-10)
        inverse = np.linalg.inv(factors.T * w @ factors)
        moves = inverse @ (factors.T * w)
        squares = ((terms - found @ factors.T) ** 2 * w).sum(axis=1)
        freedom = np.trace(np.diag(w) - np.diag(w) @ factors @ moves)
        expected = np.sqrt(squares / freedom * (moves[:-1] ** 2).sum())
        np.testing.assert_allclose(spreads(model, lengths), expected, rtol=1e-8)

    def test_is_what_leaving_out_tenths_gives_on_average(self, rng):
        """Where misfits do not depend on the landmark."""
        points, landmarks = rng.normal(size=(400, 2)), rng.normal(size=(200, 2))
        model = classical_mds(cdist(landmarks, landmarks) ** 2, 2)
        squared = cdist(points, landmarks) ** 2 + 50 + rng.normal(size=(400, 200))
        lengths = np.sqrt(squared)
        found = [left_out(model, lengths, rng.permutation(np.arange(200) % 10)) ** 2 for _ in range(20)]
        ratio = np.mean(found, axis=0) / spreads(model, lengths) ** 2
        assert np.median(ratio) == pytest.approx(1, abs=0.05)
        assert np.quantile(np.abs(ratio - 1), 0.9) < 0.25

    def test_is_zero_for_euclidean_distances_of_as_many_dimensions(self, rng):
        landmarks, points = rng.normal(size=(30, 2)), 3 * rng.normal(size=(50, 2))
        model = classical_mds(cdist(landmarks, landmarks) ** 2, 2)
        assert spreads(model, cdist(points, landmarks)).max() < 1e-6

    def test_is_the_size_of_errors_that_do_not_depend_on_the_landmark(self, rng):
        """Squared distances with independent errors: the root mean square error is the mean spread."""
        landmarks, point = rng.normal(size=(80, 2)), rng.normal(size=(1, 2))
        model = classical_mds(cdist(landmarks, landmarks) ** 2, 2)
        exact = cdist(point, landmarks) ** 2 + 20
        noisy = np.sqrt(exact + rng.normal(size=(4000, 80)))
        place = answers_of(model).of(np.sqrt(exact)).coordinates[:, :2]
        errors = answers_of(model).of(noisy).coordinates[:, :2] - place
        rms = np.sqrt((errors**2).sum(axis=1).mean())
        assert np.sqrt((spreads(model, noisy) ** 2).mean()) == pytest.approx(rms, rel=0.03)


class TestInvariance:
    def test_the_other_columns_and_coordinates_have_the_same_bytes_with_it(self, problem):
        model, lengths = problem
        without, with_it = answers_of(model).of(lengths), answers_of(model, spread=True).of(lengths)
        assert without.coordinates.tobytes() == with_it.coordinates.tobytes()
        assert without.trust.tobytes() == np.ascontiguousarray(with_it.trust[:, :3]).tobytes()

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_bytes_depend_neither_on_other_rows_nor_on_batches_of_landmarks(self, problem, dtype):
        model, lengths = problem[0], problem[1].astype(dtype)
        whole, one = spreads(model, lengths), spreads(model, lengths[137:138])
        assert whole[137:138].tobytes() == one.tobytes()
        sums = MomentSums(model, len(lengths), with_squares=True)
        for first in range(0, 60, 8):
            sums.add(np.ascontiguousarray(lengths[:, first : first + 8]))
        assert spread_of(model, sums.moments()).tobytes() == whole.tobytes()

    def test_scales_with_the_dissimilarities(self, problem):
        model, lengths = problem
        assert answers_of(model, spread=True).degrees[3] == 1
        between = cdist(model.coordinates, model.coordinates)
        found = [spreads(classical_mds((scale * between) ** 2, 2), scale * lengths) for scale in (1.0, 4.0)]
        np.testing.assert_allclose(found[1], 4 * found[0], rtol=1e-9)

    def test_weights_that_are_equal_do_not_matter(self, problem):
        model, lengths = problem
        between = cdist(model.coordinates, model.coordinates) ** 2
        found = [spreads(classical_mds(between, 2, weights=weights), lengths) for weights in (None, np.full(60, 7.0))]
        np.testing.assert_allclose(found[0], found[1], rtol=1e-9)

    def test_an_added_constant_scales_it_as_it_scales_coordinates(self, rng):
        """Kernel Isomap: leaving landmarks out of its fit moves coordinates by as much."""
        points = rng.normal(size=(300, 4))
        between = cdist(points, points, "cityblock")
        model = fitted_model(Choice("kernel-isomap", 2), between[:100, :100])
        assert model.constant > 0.1
        shifted = between[100:, :100] + model.constant
        groups = [left_out(model, shifted, rng.permutation(np.arange(100) % 10)) ** 2 for _ in range(20)]
        factors = model.eigenvalues / (model.eigenvalues - model.constant**2 / 2)
        expected = np.sqrt(np.mean(groups, axis=0)) * factors.mean()
        assert np.median(spreads(model, between[100:, :100]) / expected) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("n", "k", "m", "noise"), [(4000, 10, 200, 0.1), (4000, 15, 200, 0.1)])
def test_ranks_rows_of_a_noisy_roll_by_their_true_errors(n, k, m, noise):
    """The error is the distance from where the row is on the flat sheet, after the best rigid motion. Noise of standard
    deviation .1 in each coordinate; points are about .8 apart."""
    for seed in range(3):
        roll = swiss_roll(n, seed)
        points = roll.points + noise * np.random.default_rng(seed + 100).normal(size=roll.points.shape)
        isomap = LandmarkIsomap(k, 2, n_landmarks=m, random_state=seed).fit(points)
        placed = rigid_motion(isomap.embedding_, roll.sheet).apply(isomap.embedding_)
        errors = np.linalg.norm(placed - roll.sheet, axis=1)
        found = spreads(isomap.model_, isomap._space.to_landmarks)
        assert spearmanr(found, errors)[0] >= 0.5


def test_ranks_digits_by_how_far_they_are_from_where_all_rows_as_landmarks_put_them():
    digits = load_digits().data
    whole = LandmarkIsomap(10, 5, n_landmarks=len(digits), random_state=0).fit(digits).embedding_
    isomap = LandmarkIsomap(10, 5, n_landmarks=300, random_state=0).fit(digits)
    placed = rigid_motion(isomap.embedding_, whole).apply(isomap.embedding_)
    found = spreads(isomap.model_, isomap._space.to_landmarks)
    assert spearmanr(found, np.linalg.norm(placed - whole, axis=1))[0] >= 0.4


class TestBadInput:
    def test_as_many_landmarks_as_fit_exactly_are_refused(self, rng):
        landmarks = rng.normal(size=(3, 2))
        model = classical_mds(cdist(landmarks, landmarks) ** 2, 2)
        with pytest.raises(InvalidInputError, match=r"n_landmarks=3 .* use n_landmarks of at least 4, or leave"):
            spreads(model, cdist(landmarks, landmarks))

    def test_moments_without_squares_have_none(self, problem):
        model, lengths = problem
        sums = MomentSums(model, len(lengths))
        sums.add(lengths)
        with pytest.raises(TypeError, match="without squares"):
            spread_of(model, sums.moments())
