"""LandmarkIsomap: scikit-learn's answers where every point is a landmark, and its manners everywhere."""

import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.manifold import Isomap
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from pipeline import LandmarkIsomap
from pipeline.errors import ComponentWarning, DisconnectedGraphError, InvalidInputError
from pipeline.numerics.datasets import swiss_roll


def relative_difference_up_to_sign(found, expected):
    signs = np.sign((found * expected).sum(axis=0))
    return np.abs(found * signs - expected).max() / np.abs(expected).max()


@pytest.fixture(scope="module")
def roll():
    return swiss_roll(1500, seed=0).points


# The blobs of scikit-learn's checks are far apart: joining them is announced, and rightly so.
# Its array API check needs SCIPY_ARRAY_API and a second array library, and skips itself.
@pytest.mark.filterwarnings("ignore::pipeline.errors.ComponentWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [LandmarkIsomap(), LandmarkIsomap(method="mds"), LandmarkIsomap(method="mds", metric="precomputed")]
)
def test_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


class TestEveryPointALandmark:
    """Then the result is scikit-learn's Isomap, for the training data and, with only their own edges, new points."""

    def compare(self, data, n_fit, n_neighbors, n_components):
        choices = {"n_landmarks": n_fit, "random_state": 0, "new_edges": "own"}
        ours = LandmarkIsomap(n_neighbors, n_components, **choices).fit(data[:n_fit])
        theirs = Isomap(n_neighbors=n_neighbors, n_components=n_components).fit(data[:n_fit])
        assert relative_difference_up_to_sign(ours.embedding_, theirs.embedding_) <= 1e-6
        assert relative_difference_up_to_sign(ours.transform(data[n_fit:]), theirs.transform(data[n_fit:])) <= 1e-6

    @pytest.mark.parametrize(("n_neighbors", "n_components"), [(8, 2), (12, 3)])
    def test_on_a_swiss_roll(self, n_neighbors, n_components):
        self.compare(make_swiss_roll(1200, random_state=0)[0], 1000, n_neighbors, n_components)

    def test_on_digits_with_ties_jittered_away(self):
        """Pixels are whole numbers, so many distances tie and the neighbor graph is not unique; noise of 1e-6 of a gray
        level makes it so for both."""
        digits = load_digits().data
        self.compare(digits + np.random.default_rng(0).normal(scale=1e-6, size=digits.shape), 1500, 10, 5)

    def test_on_digits_as_they_are_with_ties_broken_by_row(self):
        """scikit-learn breaks ties as its search happens to (its algorithms differ by 10% here); handed distances in
        which the lower row is nearer by 1e-12, it has no choice, and agrees."""
        digits, n_fit = load_digits().data, 1500

        def distances(rows):
            return cdist(rows, digits[:n_fit]) * (1 + 1e-12 * np.arange(n_fit))

        choices = {"n_landmarks": n_fit, "random_state": 0, "new_edges": "own"}
        ours = LandmarkIsomap(10, 3, **choices).fit(digits[:n_fit])
        theirs = Isomap(n_neighbors=10, n_components=3, metric="precomputed").fit(distances(digits[:n_fit]))
        assert relative_difference_up_to_sign(ours.embedding_, theirs.embedding_) <= 1e-6
        new = digits[n_fit:]
        assert relative_difference_up_to_sign(ours.transform(new), theirs.transform(distances(new))) <= 1e-6


@pytest.mark.parametrize("selection", ["maxmin", "random"])
def test_few_landmarks_recover_the_sheet_and_place_new_points_on_it(selection):
    data = swiss_roll(4000, seed=1)
    isomap = LandmarkIsomap(10, 2, n_landmarks=150, landmark_selection=selection, random_state=0)
    isomap.fit(data.points[:3500])
    for coordinates, sheet in (
        (isomap.embedding_, data.sheet[:3500]),
        (isomap.transform(data.points[3500:]), data.sheet[3500:]),
    ):
        assert 1 - np.corrcoef(pdist(coordinates[:500]), pdist(sheet[:500]))[0, 1] ** 2 < 1e-3


def test_few_landmarks_stay_close_to_all_landmarks(roll):
    full = LandmarkIsomap(8, 2, n_landmarks=1500, random_state=0).fit_transform(roll)
    few = LandmarkIsomap(8, 2, n_landmarks=100, random_state=0).fit_transform(roll)
    assert procrustes(full, few)[2] < 0.02**2


@pytest.mark.parametrize("extension", ["projection", "restricted"])
@pytest.mark.parametrize("source", ["roll", "digits"])
def test_a_row_is_transformed_to_the_same_bytes_in_any_company(source, extension, roll):
    """Low dimension searches a tree, high dimension multiplies matrices: neither may show in a row's bytes."""
    data = roll if source == "roll" else load_digits().data[:900]
    n_fit = len(data) - 200
    isomap = LandmarkIsomap(7, 3, n_landmarks=60, extension=extension, random_state=0).fit(data[:n_fit])
    new = data[n_fit:]
    whole = isomap.transform(new)
    for i in range(0, 200, 13):
        np.testing.assert_array_equal(isomap.transform(new[i : i + 1])[0], whole[i])
    order = np.random.default_rng(0).permutation(200)
    np.testing.assert_array_equal(isomap.transform(new[order]), whole[order])


def test_threads_do_not_change_the_bytes(roll):
    one, two = (LandmarkIsomap(8, n_landmarks=50, random_state=3, n_jobs=n).fit(roll) for n in (1, 2))
    np.testing.assert_array_equal(one.embedding_, two.embedding_)
    np.testing.assert_array_equal(one.transform(roll[:99] + 0.01), two.transform(roll[:99] + 0.01))


@pytest.mark.parametrize("extension", ["projection", "restricted"])
def test_transforming_the_training_data_returns_its_embedding(roll, extension):
    isomap = LandmarkIsomap(8, n_landmarks=80, extension=extension, random_state=0).fit(roll)
    np.testing.assert_allclose(isomap.transform(roll), isomap.embedding_, rtol=1e-9, atol=1e-9)


def test_landmarks_keep_their_model_coordinates(roll):
    isomap = LandmarkIsomap(8, n_landmarks=80, random_state=0).fit(roll)
    found = isomap.embedding_[isomap.landmark_indices_]
    np.testing.assert_allclose((found**2).sum(axis=0), isomap.eigenvalues_, rtol=1e-9)
    unit = np.sqrt(isomap.eigenvalues_ / isomap.model_.eigenvalues)
    np.testing.assert_allclose(found, isomap.model_.coordinates * unit, atol=1e-9)


def test_rigid_motion_of_the_data_does_not_change_the_shape(roll):
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    plain, moved = (
        LandmarkIsomap(8, n_landmarks=100, random_state=0).fit(x).embedding_ for x in (roll, roll @ rotation + 5)
    )
    assert procrustes(plain, moved)[2] < 1e-6**2


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-3, 2.0**100])
def test_scale_by_a_power_of_two_scales_the_bytes(roll, scale):
    isomap = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(roll)
    scaled = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(roll * scale)
    np.testing.assert_array_equal(scaled.embedding_, isomap.embedding_ * scale)
    np.testing.assert_array_equal(scaled.eigenvalues_, isomap.eigenvalues_ * scale**2)
    np.testing.assert_array_equal(scaled.transform(roll[:20] * scale), isomap.transform(roll[:20]) * scale)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_extreme_scales_give_the_right_answer(roll, scale, dtype):
    plain = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(roll.astype(dtype))
    scaled = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit((roll * scale).astype(dtype))
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(scaled.embedding_ / scale, plain.embedding_, atol=tolerance * np.ptp(plain.embedding_))


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_scales_whose_squares_leave_double_precision_are_refused(roll, scale):
    with pytest.raises(InvalidInputError, match=r"X reaches .*e[+-]\d+.*from 1e-150 to 1e\+150; rescale"):
        LandmarkIsomap(8).fit(roll * scale)


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.uint8])
def test_other_number_types_are_taken_at_their_value(dtype):
    digits = load_digits().data[:600]
    expected = LandmarkIsomap(12, n_landmarks=50, random_state=0).fit_transform(digits)
    found = LandmarkIsomap(12, n_landmarks=50, random_state=0).fit_transform(digits.astype(dtype))
    np.testing.assert_array_equal(found, expected)


class TestDuplicates:
    """Rows that repeat exactly are one point."""

    def test_copies_get_the_coordinates_of_their_original(self, roll):
        order = np.random.default_rng(0).permutation(np.repeat(np.arange(400), 20))
        isomap = LandmarkIsomap(6, n_landmarks=40, random_state=0).fit(roll[:400][order])
        for row in range(0, 400, 37):
            copies = isomap.embedding_[order == row]
            assert len(np.unique(copies, axis=0)) == 1
        assert len(np.unique(order[isomap.landmark_indices_])) == 40

    def test_a_group_far_larger_than_k_does_not_cut_the_graph(self, roll):
        data = np.concatenate([roll, np.repeat(roll[:1], 500, axis=0)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            isomap = LandmarkIsomap(8, n_landmarks=100, random_state=0).fit(data)
        plain = LandmarkIsomap(8, n_landmarks=100, random_state=0).fit(roll)
        assert procrustes(plain.embedding_, isomap.embedding_[:1500])[2] < 1e-6**2

    def test_neighbors_are_counted_among_distinct_rows(self, roll):
        data = np.repeat(roll[:6], 10, axis=0)
        with pytest.raises(InvalidInputError, match=r"n_neighbors=6 .* from 1 to 5 \(X has 6 distinct rows\)"):
            LandmarkIsomap(6).fit(data)


class TestComponents:
    @pytest.fixture
    def two_islands(self, roll):
        return np.concatenate([roll[:400], roll[:90] + 1000.0])

    def test_bridge_embeds_everything_and_says_so(self, two_islands):
        with pytest.warns(
            ComponentWarning, match=r"2 components \(rows: 400, 90\), joined by a link.* n_neighbors=90 is"
        ):
            isomap = LandmarkIsomap(12, n_landmarks=60, random_state=0).fit(two_islands)
        assert np.isfinite(isomap.embedding_).all()
        apart = cdist(isomap.embedding_[:400], isomap.embedding_[400:]).min()
        assert apart > 100

    def test_largest_keeps_the_rows_and_marks_the_others(self, two_islands):
        isomap = LandmarkIsomap(12, n_landmarks=60, component_policy="largest", random_state=0)
        with pytest.warns(ComponentWarning, match="only the largest is embedded, the other 90 rows become NaN"):
            isomap.fit(two_islands)
        np.testing.assert_array_equal(isomap.component_labels_, [0] * 400 + [1] * 90)
        assert np.isfinite(isomap.embedding_[:400]).all()
        assert np.isnan(isomap.embedding_[400:]).all()
        assert (isomap.landmark_indices_ < 400).all()

    def test_largest_refuses_more_landmarks_than_it_keeps(self, two_islands):
        isomap = LandmarkIsomap(12, n_landmarks=450, component_policy="largest", random_state=0)
        with (
            pytest.warns(ComponentWarning),
            pytest.raises(InvalidInputError, match=r"n_landmarks=450 .* from 3 to 400 \(the part of the graph"),
        ):
            isomap.fit(two_islands)

    def test_error_lists_sizes_and_remedies(self, two_islands):
        with pytest.raises(DisconnectedGraphError, match=r"2 components, of sizes 400, 90; .*n_neighbors.*'bridge'"):
            LandmarkIsomap(12, component_policy="error").fit(two_islands)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors=0 is out of range; use one at least 1"),
        ({"n_neighbors": 40}, r"n_neighbors=40 is out of range; use one from 1 to 39 \(X has 40 distinct rows\)"),
        ({"n_neighbors": 2.5}, "n_neighbors=2.5 is not a whole number"),
        ({"n_components": 0}, "n_components=0 is out of range"),
        ({"n_components": 40, "n_landmarks": 41}, "n_components=40 is out of range; use one from 1 to 39"),
        ({"n_components": 30, "n_landmarks": 40}, "n_components=30 is more than the dissimilarities support"),
        ({"n_landmarks": 0}, "n_landmarks=0 is out of range; use one at least 3"),
        ({"n_landmarks": 2}, r"n_landmarks=2 is out of range; .*more than n_components"),
        ({"n_landmarks": 41}, "n_landmarks=41 is out of range; use one from 3 to 40"),
        ({"n_landmarks": "all"}, "n_landmarks='all' is not a whole number"),
        ({"method": "umap"}, "method='umap' is not known; use one of 'isomap'"),
        ({"metric": "chebyshev"}, "metric='chebyshev' does not go with method='isomap', which measures along a graph"),
        ({"landmark_selection": "best"}, "landmark_selection='best' is not known; use one of 'maxmin', 'random'"),
        ({"extension": "nystrom"}, "extension='nystrom' does not go with method='isomap'; use one of 'projection', "),
        ({"component_policy": "drop"}, "component_policy='drop' is not known; use one of 'error', 'bridge', 'largest'"),
        ({"diagonal_weight": 0}, "diagonal_weight=0 is out of range"),
        ({"diagonal_weight": "equal"}, "diagonal_weight='equal' is not"),
        ({"n_jobs": 0}, "n_jobs=0 is not a number of threads"),
        ({"n_jobs": 2.5}, "n_jobs=2.5 is not a number of threads"),
    ],
)
def test_bad_settings_are_refused_with_the_valid_range(settings, message):
    data = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(InvalidInputError, match=message):
        LandmarkIsomap(**settings).fit(data)


def spoiled(entries):
    data = np.random.default_rng(0).normal(size=(40, 3))
    for where, value in entries.items():
        data[where] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (spoiled({(7, 1): np.nan, (9, 0): np.inf}), "X has 2 NaN or infinite entries, first in rows 7, 9"),
        (np.ones((30, 4)), "all 30 rows of X are identical"),
        (np.empty((0, 3)), "0 sample"),
        (np.ones(30), "1D array"),
        (np.ones((5, 3)) * 1j, "Complex"),
        ([["a", "b"], ["c", "d"]], "X holds text"),
        (np.ones((5, 3)).astype(str), "X holds text"),
    ],
)
def test_bad_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        LandmarkIsomap().fit(data)


def test_a_misspelt_setting_is_refused():
    with pytest.raises(TypeError, match="n_neighbours"):
        LandmarkIsomap(n_neighbours=5)


def test_wrong_number_of_columns_is_refused(roll):
    isomap = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(roll)
    with pytest.raises(ValueError, match="X has 2 features, but LandmarkIsomap is expecting 3"):
        isomap.transform(roll[:, :2])


def test_restricted_reconstruction_moves_points_that_lie_off_the_data(roll):
    settings = {"n_neighbors": 8, "n_landmarks": 100, "random_state": 0}
    projected = LandmarkIsomap(**settings).fit(roll)
    restricted = LandmarkIsomap(**settings, extension="restricted", diagonal_weight="balanced").fit(roll)
    on, off = roll[:30], roll[:30] + np.array([0, 200, 0])
    near, far = (np.linalg.norm(projected.transform(x) - restricted.transform(x), axis=1) for x in (on, off))
    assert np.median(far) > 10 * np.median(near)


def test_clones_pickles_and_names_its_outputs(roll):
    isomap = LandmarkIsomap(8, n_components=3, n_landmarks=50, random_state=0).fit(roll)
    again = pickle.loads(pickle.dumps(isomap))
    np.testing.assert_array_equal(again.transform(roll[:9]), isomap.transform(roll[:9]))
    assert clone(isomap).get_params() == isomap.get_params()
    assert list(isomap.get_feature_names_out()) == [f"landmarkisomap{i}" for i in range(3)]


def test_automatic_number_of_landmarks_follows_its_rule(roll):
    assert len(LandmarkIsomap(8, random_state=0).fit(roll).landmark_indices_) == round(100 + 2 * np.sqrt(1500))
    assert len(LandmarkIsomap(8, random_state=0).fit(roll[:90]).landmark_indices_) == 90


def test_a_fit_that_fails_leaves_the_fit_before_it_as_it_was(roll):
    isomap = LandmarkIsomap(8, n_landmarks=50, component_policy="error", random_state=0).fit(roll)
    before = isomap.transform(roll[:5])
    with pytest.raises(DisconnectedGraphError):
        isomap.fit(np.concatenate([roll * 1e6, roll * 1e6 + 1e9]))
    np.testing.assert_array_equal(isomap.transform(roll[:5]), before)


def test_settings_changed_after_the_fit_wait_for_the_next_fit(roll):
    isomap = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(roll)
    before = isomap.transform(roll[:5] + 0.1)
    isomap.set_params(extension="restricted", n_neighbors=3)
    np.testing.assert_array_equal(isomap.transform(roll[:5] + 0.1), before)


def test_single_precision_noise_is_not_a_component():
    line = np.linspace(0, 1, 400, dtype=np.float32)[:, None]
    with pytest.raises(InvalidInputError, match=r"n_components=5 .* 1 positive eigenvalue;"):
        LandmarkIsomap(3, 5).fit(line)


def test_single_precision_up_to_its_largest_number(roll):
    data = (roll / np.abs(roll).max()).astype(np.float32)
    plain = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(data)
    huge = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(data * np.float32(2.0**127))
    np.testing.assert_allclose(huge.embedding_, plain.embedding_ * 2.0**127, rtol=1e-6)


@pytest.mark.parametrize("point", [[1e-200, 0, 0], [0, 0, 0], [1e-300, 1e-300, 0]])
def test_a_point_beside_the_origin_is_placed_alike_alone_and_in_company(roll, point):
    isomap = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(roll)
    np.testing.assert_array_equal(isomap.transform([point])[0], isomap.transform([point, [1.0, 1, 1]])[0])


def test_a_point_beyond_reach_is_refused_by_its_own_value(roll):
    isomap = LandmarkIsomap(8, n_landmarks=50, random_state=0).fit(roll * 1e-30)
    with pytest.raises(InvalidInputError, match=r"X reaches 1e\+140 .* times the training data"):
        isomap.transform([[1e140, 0, 0]])


def test_rows_of_dropped_components_are_not_placed_either(roll):
    data = np.concatenate([roll[:400], roll[:90] + 1000.0])
    isomap = LandmarkIsomap(12, n_landmarks=60, component_policy="largest", random_state=0)
    with pytest.warns(ComponentWarning):
        isomap.fit(data)
    again = isomap.transform(data)
    np.testing.assert_array_equal(np.isnan(again), np.isnan(isomap.embedding_))
    np.testing.assert_allclose(again, isomap.embedding_, rtol=1e-9, atol=1e-9)


def test_warning_points_at_the_callers_line(roll):
    data = np.concatenate([roll[:400], roll[:90] + 1000.0])
    with pytest.warns(ComponentWarning) as caught:
        LandmarkIsomap(12, n_landmarks=60, random_state=0).fit(data)
    assert caught[0].filename == __file__


def test_bytes_of_a_fit_do_not_depend_on_the_threads_of_the_linear_algebra(roll):
    fits = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            fits.append(LandmarkIsomap(8, n_landmarks=1200, random_state=0).fit_transform(roll))
    np.testing.assert_array_equal(*fits)


def test_works_where_no_compiled_code_can_be_cached(tmp_path):
    """A read-only install without a home, as in a container: numba then compiles in memory."""
    code = "import pipeline.numerics.compiled as c; f = c.compiled(lambda x: x + 1); print(f(1))"
    environment = {"NUMBA_CACHE_DIR": "/proc/none", "HOME": "/proc/none", "PATH": os.environ["PATH"]}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert result.stdout == "2\n", result.stderr
