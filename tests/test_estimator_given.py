"""LandmarkIsomap on what is given instead of vectors and metrics: functions of two rows, dissimilarities, graphs."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, csr_matrix, save_npz
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold
from sklearn.neighbors import kneighbors_graph
from sklearn.utils import get_tags

from pipeline import LandmarkIsomap, open_run
from pipeline.errors import ComponentWarning, DisconnectedGraphError, InvalidInputError
from pipeline.jobs.fit import fit
from pipeline.methods import DISSIMILARITIES, METHODS
from pipeline.settings import fit_settings

TAKERS = [name for name, method in METHODS.items() if DISSIMILARITIES in method.inputs]
N_FIT, N_LANDMARKS = 90, 25


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(1).normal(size=(N_FIT + 20, 3)) * [3.0, 2.0, 1.0]


@pytest.fixture(scope="module")
def apart(points):
    """Distances of all points to those that are fitted."""
    return cdist(points, points[:N_FIT])


def estimator(**settings):
    return LandmarkIsomap(
        8, **{"n_landmarks": N_LANDMARKS, "landmark_selection": "random", "random_state": 0, **settings}
    )


def assert_same(found, expected, new, expected_new, tolerance=1e-9):
    size = np.abs(expected.embedding_).max()
    np.testing.assert_array_equal(found.landmark_indices_, expected.landmark_indices_)
    np.testing.assert_allclose(found.embedding_, expected.embedding_, rtol=0, atol=tolerance * size)
    np.testing.assert_allclose(found.transform(new), expected.transform(expected_new), rtol=0, atol=tolerance * size)


def assert_same_as_on_disk(found, source, store, **settings):
    few = {"n_landmarks": N_LANDMARKS, "seed": 0, "landmark_selection": found.landmark_selection}
    fit(fit_settings({"source": str(source), "store": str(store), **few, **settings}))
    expected = open_run(store).embedding("projection")
    up_to_sign = found.embedding_ * np.sign((found.embedding_ * expected).sum(axis=0))
    np.testing.assert_allclose(up_to_sign, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


class TestFunctions:
    @pytest.mark.parametrize("method", TAKERS)
    def test_a_metric_gives_what_its_name_does_and_is_called_once_for_every_row_and_landmark(self, points, method):
        n_calls = 0

        def cityblock(one, other):
            nonlocal n_calls
            n_calls += 1
            return np.abs(one - other).sum()

        found = estimator(method=method, metric=cityblock).fit(points[:N_FIT])
        assert n_calls == N_FIT * N_LANDMARKS
        expected = estimator(method=method, metric="cityblock").fit(points[:N_FIT])
        assert_same(found, expected, points[N_FIT:], points[N_FIT:])
        np.testing.assert_array_equal(found.transform(points[:N_FIT]), found.embedding_)

    def test_a_kernel_gives_what_its_name_does(self, points):
        def rbf(one, other):
            return 1e40 * np.exp(-0.1 * ((one - other) ** 2).sum())

        found = estimator(method="kernel-mds", kernel=rbf).fit(points[:N_FIT])
        expected = estimator(method="kernel-mds", kernel="rbf", gamma=0.1).fit(points[:N_FIT])
        np.testing.assert_allclose(found.embedding_, 1e20 * expected.embedding_, rtol=0, atol=1e11)
        np.testing.assert_allclose(
            found.transform(points[N_FIT:]), 1e20 * expected.transform(points[N_FIT:]), atol=1e11
        )
        np.testing.assert_allclose(found.eigenvalues_, 1e40 * expected.eigenvalues_)

    def test_a_similarity_that_is_no_kernel_has_its_negative_mass_reported(self, points):
        found = estimator(method="kernel-mds", kernel=lambda one, other: np.tanh(one @ other - 1)).fit(points[:N_FIT])
        assert found.model_.negative_mass > 0.01
        np.testing.assert_array_equal(found.transform(points[:N_FIT]), found.embedding_)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"metric": lambda one, other: -1.0},
                r"metric=<lambda> gives -1.0 for the rows \[.*\] and \[.*\] of X; it",
            ),
            ({"metric": lambda one, other: np.nan}, "gives nan for the rows .* it must be finite and at least 0"),
            ({"metric": lambda one, other: 1e200}, r"gives 1e\+200 for the rows .* and of a size up to 1e\+150"),
            ({"metric": lambda one, other: None}, "metric=<lambda> gives None for the rows .* it must be finite and"),
            ({"metric": lambda one, other: one[0] > other[0]}, r"metric is not symmetric: 1 at \(\d+, \d+\) against 0"),
            ({"metric": lambda one, other: 1.0}, r"metric has a nonzero diagonal, 1 at \(\d+, \d+\)"),
            ({"metric": lambda one, other: 0.0}, "the metric of X is 0 everywhere"),
            ({"kernel": lambda one, other: np.inf, "method": "kernel-mds"}, "kernel=<lambda> gives inf .* be finite"),
            ({"kernel": lambda one, other: one[0], "method": "kernel-mds"}, "kernel is not symmetric: .* largest dev"),
            ({"metric": max, "method": "isomap"}, "metric=max does not go with method='isomap', which measures along"),
        ],
    )
    def test_what_is_none_is_refused(self, points, settings, message):
        with pytest.raises(InvalidInputError, match=message):
            estimator(**{"method": "mds", **settings}).fit(points[:N_FIT])


class TestDissimilarities:
    @pytest.mark.parametrize("method", TAKERS)
    def test_give_what_measuring_does(self, points, apart, method):
        found = estimator(method=method, metric="precomputed").fit(apart[:N_FIT])
        expected = estimator(method=method).fit(points[:N_FIT])
        assert_same(found, expected, apart[N_FIT:], points[N_FIT:])
        np.testing.assert_array_equal(found.transform(apart[:N_FIT]), found.embedding_)
        assert found.n_features_in_ == N_FIT

    def test_more_neighbors_than_landmarks_are_refused_by_their_name(self, apart):
        with pytest.raises(InvalidInputError, match=r"stress_neighbors=600 is out of range; .* the 25 landmarks"):
            estimator(method="sammon", metric="precomputed", stress_neighbors=600).fit(apart[:N_FIT])

    @pytest.mark.parametrize("method", TAKERS)
    def test_may_have_rounding_on_the_diagonal(self, apart, method):
        exact = estimator(method=method, metric="precomputed").fit(apart[:N_FIT])
        rounded = estimator(method=method, metric="precomputed").fit(apart[:N_FIT] + 1e-6 * np.eye(N_FIT))
        np.testing.assert_array_equal(rounded.embedding_, exact.embedding_)

    @pytest.mark.parametrize("scale", [1e30, 1e-30])
    def test_coordinates_are_in_their_units(self, apart, scale):
        plain, scaled = (
            estimator(method="mds", metric="precomputed").fit(lengths[:N_FIT]) for lengths in (apart, apart * scale)
        )
        np.testing.assert_allclose(scaled.embedding_ / scale, plain.embedding_, atol=1e-9)
        np.testing.assert_allclose(scaled.transform(apart * scale) / scale, plain.transform(apart), atol=1e-9)

    @pytest.mark.parametrize("selection", ["maxmin", "kmeans", "trace", "cholesky"])
    def test_have_landmarks_by_every_selection(self, apart, selection):
        found = estimator(method="mds", metric="precomputed", landmark_selection=selection).fit(apart[:N_FIT])
        assert len(np.unique(found.landmark_indices_)) == N_LANDMARKS
        # Any thoughtful choice leaves no point as far from all landmarks as chance does.
        by_chance = estimator(method="mds", metric="precomputed").fit(apart[:N_FIT])
        far, farther = (apart[:N_FIT, fit.landmark_indices_].min(axis=1).mean() for fit in (found, by_chance))
        assert far < farther

    @pytest.mark.parametrize("selection", ["random", "maxmin", "trace"])
    def test_are_embedded_as_on_disk(self, tmp_path, apart, selection):
        found = estimator(method="mds", metric="precomputed", landmark_selection=selection).fit(apart[:N_FIT])
        np.save(tmp_path / "apart.npy", apart[:N_FIT])
        assert_same_as_on_disk(found, tmp_path / "apart.npy", tmp_path / "run", method="mds", input="dissimilarities")

    def test_rounding_is_forgiven(self, apart):
        noisy = apart[:N_FIT] * (1 + 1e-7 * np.random.default_rng(0).normal(size=(N_FIT, N_FIT)))
        found = estimator(method="mds", metric="precomputed").fit(noisy)
        expected = estimator(method="mds", metric="precomputed").fit(apart[:N_FIT])
        np.testing.assert_allclose(found.embedding_, expected.embedding_, atol=1e-4)

    @pytest.mark.parametrize(
        ("where", "value", "message"),
        [
            ((7, 3), 99.0, r"X is not symmetric: .*\(3, 7\).*\(7, 3\), the largest deviation \(9\d"),
            ((5, 5), 2.0, r"X has a nonzero diagonal, 2 at \(5, 5\)"),
            ((4, 6), -1.0, r"Negative values in data: X has 1, the lowest -1 at \(4, 6\)"),
            ((4, 6), np.nan, "X has 1 NaN or infinite entries, first in row 4"),
        ],
    )
    def test_what_are_none_are_refused_with_the_place(self, apart, where, value, message):
        wrong = apart[:N_FIT].copy()
        wrong[where] = value
        with pytest.raises(InvalidInputError, match=message):
            estimator(method="mds", metric="precomputed").fit(wrong)

    def test_other_shapes_are_refused(self, apart):
        with pytest.raises(InvalidInputError, match=r"X has shape \(90, 50\); .* must be square"):
            estimator(method="mds", metric="precomputed").fit(apart[:N_FIT, :50])
        with pytest.raises(InvalidInputError, match="X is 0 everywhere"):
            estimator(method="mds", metric="precomputed").fit(np.zeros((N_FIT, N_FIT)))
        fitted = estimator(method="mds", metric="precomputed").fit(apart[:N_FIT])
        with pytest.raises(ValueError, match="X has 50 features, but LandmarkIsomap is expecting 90"):
            fitted.transform(apart[N_FIT:, :50])
        with pytest.raises(InvalidInputError, match="Negative values in data"):
            fitted.transform(-apart[N_FIT:])


def neighbor_edges(points, new=None):
    """Lengths of the edges to the 8 nearest fitted points, those of equal points stored as zeros."""
    if new is None:
        return csr_array(kneighbors_graph(points, 8, mode="distance"))
    lengths = cdist(new, points)
    nearest = np.argsort(lengths, axis=1)[:, :8]
    places = np.repeat(np.arange(len(new)), 8), nearest.ravel()
    return csr_array((lengths[places], places), shape=lengths.shape)


class TestGraphs:
    @pytest.mark.parametrize("method", ["isomap", "kernel-isomap"])
    def test_of_neighbors_gives_what_points_do(self, points, method):
        fitted, new = points[:N_FIT], points[N_FIT:]
        found = estimator(method=method, metric="precomputed").fit(neighbor_edges(fitted))
        expected = estimator(method=method, new_edges="own").fit(fitted)
        assert_same(found, expected, neighbor_edges(fitted, new), new)
        np.testing.assert_array_equal(found.component_labels_, 0)

    @pytest.mark.parametrize("selection", ["random", "maxmin"])
    def test_are_embedded_as_on_disk(self, tmp_path, points, selection):
        edges = neighbor_edges(points[:N_FIT])
        found = estimator(metric="precomputed", landmark_selection=selection).fit(edges)
        save_npz(tmp_path / "edges.npz", edges)
        assert_same_as_on_disk(found, tmp_path / "edges.npz", tmp_path / "run", input="graph")

    def test_an_edge_of_no_length_leads_to_the_point_itself(self, points):
        found = estimator(metric="precomputed").fit(neighbor_edges(points[:N_FIT]))
        zeros = neighbor_edges(points[:N_FIT], points[:N_FIT])
        assert (zeros.data == 0).sum() == N_FIT
        np.testing.assert_array_equal(found.transform(zeros), found.embedding_)

    @pytest.mark.parametrize("kind", [csr_matrix, coo_array])
    def test_may_list_edges_once_or_twice_with_loops_in_any_format(self, points, kind):
        once = neighbor_edges(points[:N_FIT])
        both = once.maximum(once.T) + csr_array(np.eye(N_FIT))
        upper = both.toarray() * np.triu(np.ones((N_FIT, N_FIT)))
        expected = estimator(metric="precomputed").fit(once).embedding_
        for edges in (both, csr_array(upper)):
            np.testing.assert_array_equal(estimator(metric="precomputed").fit(kind(edges)).embedding_, expected)

    def test_farthest_landmarks_are_so_along_the_graph(self):
        """On a path the ends are the farthest, and then the middle."""
        path = coo_array((np.ones(40), (np.arange(40), np.arange(1, 41))), shape=(41, 41))
        found = LandmarkIsomap(n_components=1, metric="precomputed", n_landmarks=4, random_state=0).fit(path)
        first, *others = found.landmark_indices_.tolist()
        assert {0, 40} <= {first, *others}
        np.testing.assert_allclose(np.abs(np.diff(found.embedding_[:, 0])), 1.0)

    @pytest.mark.parametrize("scale", [1e30, 1e-30])
    def test_coordinates_are_in_the_units_of_lengths(self, points, scale):
        edges, new = neighbor_edges(points[:N_FIT]), neighbor_edges(points[:N_FIT], points[N_FIT:])
        plain = estimator(metric="precomputed").fit(edges)
        scaled = estimator(metric="precomputed").fit(edges * scale)
        np.testing.assert_allclose(scaled.embedding_ / scale, plain.embedding_, atol=1e-9)
        np.testing.assert_allclose(scaled.transform(new * scale) / scale, plain.transform(new), atol=1e-9)

    def test_a_row_without_edges_becomes_nan_and_others_do_not_notice(self, points):
        found = estimator(metric="precomputed").fit(neighbor_edges(points[:N_FIT]))
        new = neighbor_edges(points[:N_FIT], points[N_FIT:])
        placed = found.transform(new)
        alone = new.copy().tolil()
        alone[3] = 0
        again = found.transform(csr_array(alone))
        assert np.isnan(again[3]).all()
        np.testing.assert_array_equal(np.delete(again, 3, axis=0), np.delete(placed, 3, axis=0))

    def test_in_pieces_can_only_be_reduced_to_the_largest(self, points):
        both = np.concatenate([points[:60], points[60:N_FIT] + 1000])
        edges = neighbor_edges(both)
        for policy in ("bridge", "error"):
            with pytest.raises(DisconnectedGraphError, match=r"2 components, of sizes 60, 30; .*policy='largest'"):
                estimator(metric="precomputed", component_policy=policy).fit(edges)
        with pytest.warns(ComponentWarning, match="only the largest is embedded, the other 30 rows become NaN"):
            found = estimator(metric="precomputed", component_policy="largest").fit(edges)
        np.testing.assert_array_equal(np.isnan(found.embedding_).all(axis=1), found.component_labels_ > 0)
        np.testing.assert_array_equal(found.transform(neighbor_edges(both, both)), found.embedding_)

    def test_what_is_none_is_refused_with_the_place(self, points):
        edges = neighbor_edges(points[:N_FIT])
        edges = csr_array(edges.maximum(edges.T))
        with pytest.raises(InvalidInputError, match=r"X is a ndarray; .* matrix of edge lengths"):
            estimator(metric="precomputed").fit(edges.toarray())
        with pytest.raises(InvalidInputError, match=r"X has shape \(50, 90\); .* must be square"):
            estimator(metric="precomputed").fit(edges[:50])
        start, end = 4, int(edges.indices[edges.indptr[4]])
        for value, message in (
            (-1.0, rf"1 weights that are negative, NaN.* the first -1 from row {start} to node {end}"),
            (77.0, rf"X is not symmetric: 77 from node {start} to {end} against .* from {end} to {start}, the largest"),
        ):
            wrong = edges.copy()
            wrong.data[wrong.indptr[4]] = value
            with pytest.raises(InvalidInputError, match=message):
                estimator(metric="precomputed").fit(wrong)
        with pytest.raises(InvalidInputError, match="landmark_selection='kmeans' needs distances between many points"):
            estimator(metric="precomputed", landmark_selection="kmeans").fit(edges)
        with pytest.raises(InvalidInputError, match="squared_dissimilarities are all zero"):
            estimator(metric="precomputed").fit(edges * 0.0)


@pytest.mark.parametrize(
    ("settings", "pairwise", "sparse"),
    [
        ({}, False, False),
        ({"metric": "precomputed"}, True, True),
        ({"method": "mds", "metric": "precomputed"}, True, False),
        ({"method": "mds", "metric": rbf_kernel}, False, False),
    ],
)
def test_tags_say_what_goes_in(settings, pairwise, sparse):
    tags = get_tags(LandmarkIsomap(**settings)).input_tags
    assert (tags.pairwise, tags.positive_only, tags.sparse, tags.two_d_array) == (
        pairwise,
        pairwise,
        sparse,
        not sparse,
    )


def test_proximities_can_be_split_as_scikit_learn_splits_them(apart):
    fitted, left_out = next(KFold(3).split(np.arange(N_FIT)))
    found = estimator(method="mds", metric="precomputed").fit(apart[np.ix_(fitted, fitted)])
    assert found.transform(apart[np.ix_(left_out, fitted)]).shape == (30, 2)
