"""What LandmarkIsomap tells beside coordinates: tables, arcs, blocks of rows, the inverse map's errors; and what it
takes beside rows of numbers. tests/runs/test_in_memory.py compares all with runs on disk."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import kneighbors_graph

from pipeline import LandmarkIsomap, plugins
from pipeline.errors import InvalidInputError
from pipeline.estimator import base
from pipeline.estimator.table import Table
from pipeline.methods import METHODS, RADIAL_FUNCTIONS
from pipeline.plugins import TrustColumn

N_FIT = 120
CLASSICAL = ("residual", "multiplier", "gap", "nearest")
SMALL = {"n_neighbors": 8, "n_landmarks": 30, "random_state": 0}
every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(1).normal(size=(N_FIT + 30, 4)) * [3.0, 2.0, 1.0, 0.5]


@pytest.fixture(scope="module")
def fits(points):
    """A fit of each method, made when it is first asked for."""
    made = {}

    def fit_of(method):
        if method not in made:
            made[method] = LandmarkIsomap(method=method, **SMALL).fit(points[:N_FIT])
        return made[method]

    return fit_of


class TestTable:
    @pytest.fixture
    def table(self):
        return Table({"projection": np.arange(6.0).reshape(3, 2), "gap": np.ones(3), "ambiguous": np.zeros(3, bool)})

    def test_has_its_arrays_as_attributes_and_items(self, table):
        assert list(table) == ["projection", "gap", "ambiguous"]
        assert len(table) == 3
        assert list(dict(table)) == list(table)
        assert "gap" in table
        assert "residual" not in table
        assert table.gap is table["gap"]
        assert {"gap", "as_dict"} <= set(dir(table))
        with pytest.raises(AttributeError, match=r"no array 'residual'; it has projection, gap, ambiguous"):
            _ = table.residual
        with pytest.raises(KeyError):
            _ = table["residual"]

    def test_cannot_be_written_to(self, table):
        with pytest.raises(ValueError, match="read-only"):
            table.gap[0] = 2.0

    def test_is_columns_of_one_dimension_for_a_data_frame(self, table):
        columns = table.as_dict()
        assert list(columns) == ["projection_0", "projection_1", "gap", "ambiguous"]
        assert {column.shape for column in columns.values()} == {(3,)}
        np.testing.assert_array_equal(columns["projection_1"], [1.0, 3.0, 5.0])

    def test_is_a_structured_array(self, table):
        rows = table.as_structured()
        assert rows.dtype.names == tuple(table.as_dict())
        assert rows["ambiguous"].dtype == np.bool_
        assert rows[2].tolist() == (4.0, 5.0, 1.0, False)

    def test_can_be_pickled_and_shown(self, table):
        again = pickle.loads(pickle.dumps(table))
        np.testing.assert_array_equal(again.projection, table.projection)
        assert repr(table) == "Table(3 rows; projection: float64[2], gap: float64, ambiguous: bool)"


class TestFittedAndNewRows:
    @every_method
    def test_the_wanted_coordinates_are_those_of_the_embedding(self, points, fits, method):
        fitted = fits(method)
        np.testing.assert_array_equal(fitted.table_.projection, fitted.embedding_)
        np.testing.assert_array_equal(fitted.place(points).projection, fitted.transform(points))
        assert len(fitted.table_) == N_FIT
        assert {"residual", "nearest", "component"} <= set(fitted.table_)

    @every_method
    def test_a_row_does_not_depend_on_the_others(self, points, fits, method, monkeypatch):
        fitted, new = fits(method), points[N_FIT:]
        whole = fitted.place(new)
        for table, rows in ((fitted.place(new[7:8]), slice(7, 8)), (fitted.place(new[::-1]), slice(None, None, -1))):
            for name, column in dict(whole).items():
                np.testing.assert_array_equal(table[name], column[rows])
        monkeypatch.setattr(base, "ROWS_PER_CHUNK", 7)
        for name, column in dict(fitted.place(new)).items():
            np.testing.assert_array_equal(column, whole[name])

    @every_method
    def test_ranks_are_shares_and_order_rows_as_their_columns_do(self, points, fits, method):
        table = fits(method).place(points[N_FIT:])
        named = [name for name in table if name.endswith("_rank")]
        assert {name.removesuffix("_rank") for name in named} <= set(table)
        for name in named:
            ranks, values = table[name], table[name.removesuffix("_rank")]
            assert ((ranks >= 0) & (ranks <= 1)).all()
            assert (np.diff(ranks[np.argsort(values)]) >= 0).all()

    def test_rows_like_the_training_rows_have_even_ranks(self):
        rows = np.random.default_rng(0).normal(size=(3000, 3))
        ranks = LandmarkIsomap(method="mds", n_landmarks=60, random_state=0).fit(rows[:2000]).place(rows[2000:])
        for name in CLASSICAL:
            assert abs(ranks[f"{name}_rank"].mean() - 0.5) < 0.05

    def test_nearest_is_the_distance_to_the_nearest_other_row_along_a_graph(self, points, fits):
        apart = cdist(points, points[:N_FIT])
        np.testing.assert_allclose(fits("isomap").place(points[N_FIT:]).nearest, apart[N_FIT:].min(axis=1))
        np.fill_diagonal(apart[:N_FIT], np.inf)
        np.testing.assert_allclose(fits("isomap").table_.nearest, apart[:N_FIT].min(axis=1))

    def test_a_row_that_is_fitted_again_has_its_trust_columns_and_no_distance(self, points, fits):
        for method in ("isomap", "mds"):
            again, before = fits(method).place(points[:N_FIT]), fits(method).table_
            for name in ("projection", "restricted", "residual", "multiplier", "gap", "ambiguous"):
                np.testing.assert_array_equal(again[name], before[name])
        assert (fits("isomap").place(points[:N_FIT]).nearest == 0).all()

    def test_threads_do_not_change_the_bytes(self, points):
        tables = [LandmarkIsomap(**SMALL, n_jobs=n).fit(points[:N_FIT]).place(points[N_FIT:]) for n in (1, 2)]
        for name, column in dict(tables[0]).items():
            np.testing.assert_array_equal(tables[1][name], column)

    def test_coordinates_and_trust_are_in_the_users_units(self, points, fits):
        table = LandmarkIsomap(**SMALL).fit(points[:N_FIT] * 2.0**70).place(points[N_FIT:] * 2.0**70)
        plain = fits("isomap").place(points[N_FIT:])
        for name, degree in (("restricted", 1), ("residual", 2), ("multiplier", 2), ("gap", 1), ("nearest", 1)):
            np.testing.assert_array_equal(table[name], np.ldexp(plain[name], 70 * degree))
        for name in CLASSICAL:
            np.testing.assert_array_equal(table[f"{name}_rank"], plain[f"{name}_rank"])

    def test_clusters_are_labels_of_new_rows_too(self, points, fits):
        fitted = fits("spectral")
        np.testing.assert_array_equal(fitted.table_.labels, fitted.labels_)
        np.testing.assert_array_equal(fitted.place(points[:N_FIT]).labels, fitted.labels_)

    def test_a_refit_forgets_the_tables_of_the_fit_before(self, points):
        estimator = LandmarkIsomap(**SMALL).fit(points[:N_FIT])
        before = estimator.table_, estimator.place(points[N_FIT:])
        estimator.fit(points[30:])
        assert len(estimator.table_) == N_FIT
        assert not np.array_equal(estimator.table_.gap, before[0].gap)
        assert not np.array_equal(estimator.place(points[:30]).gap_rank, before[1].gap_rank)

    def test_can_be_pickled_and_cloned_before_and_after(self, points, fits):
        fitted = fits("isomap")
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.place(points).gap_rank, fitted.place(points).gap_rank)
        assert not hasattr(clone(fitted), "embedding_")

    def test_plugins_add_trust_columns(self, points, monkeypatch):
        column = TrustColumn(lambda model, answer: np.linalg.norm(answer.coordinates[:, :2], axis=1), degree=1)
        monkeypatch.setitem(plugins.LOADED.trust_columns, "from_center", column)
        fitted = LandmarkIsomap(**SMALL).fit(points[:N_FIT])
        np.testing.assert_allclose(fitted.table_.from_center, np.linalg.norm(fitted.embedding_, axis=1))
        assert "from_center_rank" in fitted.place(points[N_FIT:])


class TestArcsAndBlocks:
    @pytest.mark.parametrize("method", ["isomap", "kernel-isomap", "mds", "kernel-mds"])
    def test_arcs_lead_from_one_answer_to_the_other(self, points, method):
        fitted = LandmarkIsomap(method=method, diagonal_weight="balanced", **SMALL).fit(points[:N_FIT])
        table, arcs = fitted.place(points[N_FIT:]), fitted.reconstruction_arc(points[N_FIT:], 6)
        assert arcs.shape == (30, 6, 2)
        np.testing.assert_allclose(arcs[:, 0], table.projection, rtol=1e-12)
        np.testing.assert_allclose(arcs[:, -1], table.restricted, rtol=1e-12)
        steps = np.linalg.norm(np.diff(arcs, axis=1), axis=2)
        np.testing.assert_allclose(steps, steps.mean(axis=1, keepdims=True) * np.ones(5), rtol=0.05, atol=1e-9)

    def test_one_row_alone_is_reconstructed_as_by_itself(self, points, fits):
        for method in ("isomap", "mds"):
            alone = fits(method).joint(points[-1:])
            np.testing.assert_allclose(alone.joint, fits(method).place(points[-1:]).restricted, atol=1e-7)

    def test_what_is_given_between_new_rows_is_what_counts(self, points):
        """Vectors, their distances and their inner products are the same block."""
        rows, new = points[:N_FIT], points[N_FIT:]
        settings = {"method": "mds", "landmark_selection": "random", "n_landmarks": 30, "random_state": 0}
        expected = LandmarkIsomap(**settings).fit(rows).joint(new).joint
        by_function = LandmarkIsomap(**settings, metric=lambda a, b: np.linalg.norm(a - b)).fit(rows)
        apart = LandmarkIsomap(**settings, metric="precomputed").fit(cdist(rows, rows))
        similar = LandmarkIsomap(**settings, metric="precomputed", precomputed="similarities").fit(rows @ rows.T)
        own = (new**2).sum(axis=1)
        for found in (
            by_function.joint(new),
            apart.joint(cdist(new, rows), between=cdist(new, new)),
            similar.joint(new @ rows.T, between=new @ new.T, own_similarities=own),
        ):
            signs = np.sign((found.joint * expected).sum(axis=0))
            np.testing.assert_allclose(found.joint * signs, expected, atol=1e-6)

    @pytest.mark.parametrize("settings", [{}, {"n_neighbors": None, "radius": 6.0}, {"metric": "angular"}], ids=str)
    def test_paths_between_new_rows_are_those_of_the_graph_with_them(self, points, settings):
        """A row that is fitted already is as far from others as its own landmark rows say."""
        fitted = LandmarkIsomap(**{**SMALL, **settings, "n_landmarks": N_FIT}).fit(points[:N_FIT])
        space, chosen = fitted._space, np.array([3, 50, 77])
        places = np.array([np.flatnonzero(fitted.landmark_indices_ == row)[0] for row in chosen])
        exact = space.to_landmarks[chosen][:, places]
        np.testing.assert_allclose(space.between(points[chosen], False, 1), exact, rtol=1e-9, atol=1e-12)
        assert (space.between(points[chosen], True, 1) >= exact - 1e-9).all()

    def test_on_a_graph_new_nodes_are_joined_by_paths(self, points):
        edges = csr_array(kneighbors_graph(points[:N_FIT], 8, mode="distance"))
        fitted = LandmarkIsomap(metric="precomputed", n_landmarks=30, random_state=0).fit(edges)
        new = csr_array(([0.5, 0.7, 0.2], ([0, 0, 2], [3, 9, 3])), shape=(3, N_FIT))
        between = fitted._space.between(new, False, 1) * 2.0**fitted._space.embedder.exponent
        np.testing.assert_allclose(between, [[0.0, 0.7], [0.7, 0.0]])
        assert np.isnan(fitted.joint(new).joint[1]).all()
        assert np.isnan(fitted.reconstruction_arc(new, 3)[1]).all()
        assert fitted.place(new).component.tolist() == [0, -1, 0]
        alone = new[[1]]
        for found in (fitted.joint(alone).joint, fitted.reconstruction_arc(alone, 3), fitted.place(alone).gap_rank):
            assert np.isnan(found).all()

    @pytest.mark.parametrize("method", sorted(set(METHODS) - {"isomap", "kernel-isomap", "mds", "kernel-mds"}))
    def test_methods_with_one_answer_have_neither(self, points, fits, method):
        for call, name in ((fits(method).joint, "joint"), (fits(method).reconstruction_arc, "reconstruction_arc")):
            with pytest.raises(InvalidInputError, match=f"{name} needs both the projection and the restricted"):
                call(points[:3])

    def test_bad_input_is_refused(self, points, fits):
        with pytest.raises(InvalidInputError, match=r"between has shape \(2, 2\); X has 3 rows"):
            fits("mds").joint(points[:3], between=np.zeros((2, 2)))
        with pytest.raises(InvalidInputError, match="between='paths' is not known; use one of 'bound'"):
            fits("mds").joint(points[:3], between="paths")
        similar = LandmarkIsomap(method="mds", metric="precomputed", precomputed="similarities").fit(points @ points.T)
        with pytest.raises(InvalidInputError, match="between='bound' does not go with similarities"):
            similar.joint(points[:3] @ points.T, "bound", own_similarities=(points[:3] ** 2).sum(axis=1))
        with pytest.raises(InvalidInputError, match=r"between is not symmetric"):
            fits("isomap").joint(points[:2], between=[[0, 1.0], [2.0, 0]])
        with pytest.raises(InvalidInputError, match=r"Negative values in data: between has 2"):
            fits("isomap").joint(points[:2], between=[[0, -1.0], [-1.0, 0]])
        with pytest.raises(InvalidInputError, match="X has 1025 rows; joint takes at most 1024 together"):
            fits("mds").joint(np.ones((1025, 4)))
        with pytest.raises(InvalidInputError, match="n_steps=1 is out of range; use one from 2 to 4096"):
            fits("mds").reconstruction_arc(points[:3], 1)
        apart = LandmarkIsomap(method="mds", metric="precomputed").fit(cdist(points, points))
        with pytest.raises(InvalidInputError, match="what the new points are to each other is not known"):
            apart.joint(cdist(points[:3], points))


class TestGivenProximities:
    def test_similarities_and_their_dissimilarities_are_the_same_scaling(self, points):
        rows = points[:N_FIT]
        settings = {"method": "mds", "metric": "precomputed", "n_landmarks": 30, "random_state": 0}
        similar = LandmarkIsomap(**settings, precomputed="similarities").fit(rows @ rows.T)
        apart = LandmarkIsomap(**settings, landmark_selection="random").fit(cdist(rows, rows))
        np.testing.assert_array_equal(similar.landmark_indices_, apart.landmark_indices_)
        signs = np.sign((similar.embedding_ * apart.embedding_).sum(axis=0))
        np.testing.assert_allclose(similar.embedding_ * signs, apart.embedding_, atol=1e-8)
        new = points[N_FIT:]
        placed = similar.transform(new @ rows.T, own_similarities=(new**2).sum(axis=1))
        np.testing.assert_allclose(placed * signs, apart.transform(cdist(new, rows)), atol=1e-8)

    def test_indefinite_similarities_have_their_negative_mass(self, points):
        given = np.tanh(points @ points.T)
        fitted = LandmarkIsomap(method="mds", metric="precomputed", precomputed="similarities", n_landmarks=60)
        assert fitted.fit(given).model_.negative_mass > 0.01

    def test_landmarks_in_any_order_are_those_of_the_whole_matrix(self, points):
        apart = cdist(points, points)
        whole = LandmarkIsomap(method="mds", metric="precomputed", n_landmarks=30, random_state=0).fit(apart)
        marks = whole.landmark_indices_[::-1].copy()
        some = LandmarkIsomap(method="mds", metric="precomputed", landmark_indices=marks).fit(apart[:, marks])
        np.testing.assert_array_equal(some.landmark_indices_, marks)
        signs = np.sign((some.embedding_ * whole.embedding_).sum(axis=0))
        np.testing.assert_allclose(some.embedding_ * signs, whole.embedding_, atol=1e-9)
        np.testing.assert_allclose(some.transform(apart[:9, marks]) * signs, whole.embedding_[:9], atol=1e-9)
        assert (some.n_features_in_, len(some.embedding_)) == (30, len(points))

    def test_the_tags_say_which_matrices_are_pairwise(self, points):
        def tags(**settings):
            return LandmarkIsomap(method="mds", metric="precomputed", **settings).__sklearn_tags__().input_tags

        assert (tags().pairwise, tags().positive_only) == (True, True)
        assert (tags(precomputed="similarities").pairwise, tags(precomputed="similarities").positive_only) == (
            True,
            False,
        )
        assert not tags(landmark_indices=[1, 2]).pairwise
        similar = LandmarkIsomap(method="laplacian", metric="precomputed", precomputed="similarities", n_landmarks=40)
        scores = cross_val_score(similar, np.exp(-cdist(points, points)), scoring=_finite, cv=KFold(3))
        assert (scores == 1).all()

    @pytest.mark.parametrize(
        ("settings", "fit", "message"),
        [
            ({"precomputed": "graph"}, {}, "precomputed='graph' is not known; use one of 'dissimilarities', 'similar"),
            ({"method": "sammon", "precomputed": "similarities"}, {}, "'dissimilarities' with method='sammon'"),
            ({"metric": "euclidean", "precomputed": "similarities"}, {}, "precomputed='similarities' means nothing"),
            ({"metric": "euclidean", "landmark_indices": [0, 1, 2]}, {}, "landmark_indices=.* means nothing"),
            ({"landmark_indices": [0, 1, 2]}, {}, "landmark_indices has 3 rows of X, .* transpose it"),
            ({"landmark_indices": [0, 1, 1, 2]}, {"columns": 4}, "4 rows of X, 3 of them different"),
            ({"landmark_indices": [0, 1, 99]}, {"columns": 3}, "landmark_indices has 99; row numbers run from 0 to 39"),
            ({"landmark_indices": [0, 1, 2], "n_landmarks": 9}, {"columns": 3}, "n_landmarks=9 does not go with landm"),
            ({"landmark_indices": [0, 1]}, {"columns": 2}, "n_components=2 is out of range; use one from 1 to 1"),
            (
                {"precomputed": "similarities", "landmark_indices": [0, 1, 2]},
                {"columns": 3},
                "give them as own_sim",
            ),
            ({"precomputed": "similarities"}, {"own": np.ones(3)}, "own_similarities has 3 entries; X has 40 rows"),
            ({}, {"own": np.ones(40)}, "own_similarities mean nothing with method='mds'"),
            ({"precomputed": "similarities", "extension": "rbf"}, {}, "extension='rbf' places points by distances"),
            ({"precomputed": "similarities", "landmark_selection": "trace"}, {}, "use 'random'"),
            ({"n_evaluated": 5}, {}, "n_evaluated=5 means nothing"),
        ],
    )
    def test_what_does_not_go_together_is_refused(self, points, settings, fit, message):
        given = cdist(points[:40], points[:40])[:, : fit.get("columns", 40)]
        with pytest.raises(InvalidInputError, match=message):
            LandmarkIsomap(**{"method": "mds", "metric": "precomputed", **settings}).fit(
                given, own_similarities=fit.get("own")
            )

    def test_new_points_need_their_own_similarities(self, points):
        fitted = LandmarkIsomap(method="mds", metric="precomputed", precomputed="similarities").fit(points @ points.T)
        for call in (fitted.transform, fitted.place, fitted.joint):
            with pytest.raises(InvalidInputError, match="give them as own_similarities, one for each row"):
                call(points[:3] @ points.T)

    def test_affinities_are_not_negative(self, points):
        settings = {"method": "laplacian", "metric": "precomputed", "precomputed": "similarities"}
        with pytest.raises(InvalidInputError, match=r"Negative values in data: X has .* affinities must be at least 0"):
            LandmarkIsomap(**settings).fit(points @ points.T)
        fitted = LandmarkIsomap(**settings).fit(np.exp(-cdist(points, points)))
        with pytest.raises(InvalidInputError, match="affinities must be at least 0"):
            fitted.transform(-np.ones((2, len(points))))


def _finite(estimator, X, y=None):
    return float(np.isfinite(estimator.transform(X)).all())


class TestFewEvaluations:
    def test_a_metric_is_called_for_the_landmarks_and_a_few_of_them(self, points):
        n_calls = 0

        def metric(a, b):
            nonlocal n_calls
            n_calls += 1
            return float(np.linalg.norm(a - b))

        told = {"method": "mds", "n_landmarks": 30, "random_state": 0}
        few = LandmarkIsomap(**told, metric=metric, n_evaluated=6).fit(points[:N_FIT])
        assert n_calls == 30 * 30 + N_FIT * 5
        n_calls = 0
        placed = few.transform(points[N_FIT:])
        assert n_calls == 30 * 5
        # In four dimensions five distances tell all others.
        every = LandmarkIsomap(**told, metric=metric).fit(points[:N_FIT])
        np.testing.assert_allclose(few.embedding_, every.embedding_, atol=1e-6)
        np.testing.assert_allclose(placed, every.transform(points[N_FIT:]), atol=1e-6)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"n_evaluated": 1}, "n_evaluated=1 is out of range"),
            ({"n_evaluated": 31}, "n_evaluated=31 is out of range; use one from 2 to 30"),
            ({"n_evaluated": 5, "metric": "cityblock"}, "n_evaluated=5 means nothing with method='mds'"),
            (
                {"n_evaluated": 5, "method": "kernel-mds", "metric": "euclidean", "kernel": np.dot},
                "n_evaluated=5 means",
            ),
        ],
    )
    def test_bad_input_is_refused(self, points, settings, message):
        told = {"method": "mds", "metric": lambda a, b: float(np.linalg.norm(a - b)), "n_landmarks": 30, **settings}
        with pytest.raises(InvalidInputError, match=message):
            LandmarkIsomap(**told).fit(points[:N_FIT])


class TestInverseMap:
    @pytest.mark.parametrize("kernel", sorted(set(RADIAL_FUNCTIONS) - {"shepard"}))
    def test_every_interpolant_returns_rows_and_agrees_with_itself(self, points, fits, kernel):
        fitted = fits("mds")
        places = fitted.embedding_[:20]
        back = fitted.inverse_transform(places, kernel=kernel, n_neighbors=40)
        np.testing.assert_allclose(back, points[:20], atol=1e-4)
        table = fitted.invert(places + 0.1, kernel=kernel, n_neighbors=40)
        np.testing.assert_array_equal(
            table.values, fitted.inverse_transform(places + 0.1, kernel=kernel, n_neighbors=40)
        )

    def test_shepard_is_a_mean(self, points, fits):
        back = fits("mds").inverse_transform(fits("mds").embedding_, kernel="shepard", scale=0.3, n_neighbors=40)
        assert (back.min(axis=0) >= points[:N_FIT].min(axis=0)).all()
        assert (back.max(axis=0) <= points[:N_FIT].max(axis=0)).all()

    def test_rows_left_out_are_as_if_they_had_never_been_embedded(self, points, fits):
        """By removing each row from what is interpolated."""
        fitted = fits("mds")
        found = fitted.inverse_errors([5, 3, 77], n_neighbors=25)
        for place, row in enumerate((5, 3, 77)):
            others = LandmarkIsomap(**SMALL, method="mds").fit(points[:N_FIT])
            others._embedded = type(others._embedded)(
                np.delete(fitted.embedding_, row, axis=0), np.delete(points[:N_FIT], row, axis=0)
            )
            back = others.invert(fitted.embedding_[[row]], n_neighbors=25)
            error = np.linalg.norm(back.values[0] - points[row])
            np.testing.assert_allclose(found.error[place], error, rtol=1e-9)
            np.testing.assert_allclose(found.relative_error[place], error / np.linalg.norm(points[row]), rtol=1e-9)
            np.testing.assert_allclose(found.distance[place], back.distance[0], rtol=1e-9)
        assert len(fitted.inverse_errors()) == N_FIT

    def test_copies_are_left_out_of_their_mean(self, points):
        rows = np.concatenate([points[:N_FIT], points[:20]])
        fitted = LandmarkIsomap(**SMALL).fit(rows)
        errors = fitted.inverse_errors(n_neighbors=25).error
        # Its like is still there.
        np.testing.assert_allclose(errors[:20], 0, atol=1e-8)
        np.testing.assert_allclose(errors[N_FIT:], 0, atol=1e-8)
        assert errors[20:N_FIT].min() > 1e-3

    def test_far_places_are_outside(self, fits):
        table = fits("mds").invert([[1e3, 1e3], fits("mds").embedding_[0]], outside=2.0)
        assert table.outside.tolist() == [True, False]
        assert table.remoteness[0] > 2.0

    @pytest.mark.parametrize(
        ("told", "message"),
        [
            ({"kernel": "linear"}, "kernel='linear' is not known; use one of 'cubic'|kernel='linear'"),
            ({"scale": 2.0}, "scale=2.0 means nothing to kernel='cubic'"),
            ({"kernel": "gaussian", "scale": 0.0}, "scale=0.0 is out of range"),
            ({"n_neighbors": 0}, "n_neighbors=0 is out of range; use one from 1 to 5000"),
        ],
    )
    def test_bad_input_is_refused(self, fits, told, message):
        for call in (fits("mds").inverse_transform, fits("mds").invert):
            with pytest.raises(InvalidInputError, match=message):
                call(np.zeros((2, 2)), **told)
        with pytest.raises(InvalidInputError, match=message):
            fits("mds").inverse_errors(**told)

    def test_rows_that_are_none_are_refused(self, fits):
        with pytest.raises(InvalidInputError, match="rows has 120; row numbers run from 0 to 119"):
            fits("mds").inverse_errors([120])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "lle"}, "spread=True goes with isomap, kernel-isomap, mds and kernel-mds, placed by projection"),
        ({"extension": "rbf"}, "spread=True goes with .* not with method='isomap' and extension='rbf'; leave it out"),
        ({"n_landmarks": 3}, "n_landmarks=3 is out of range; use one from 4"),
    ],
)
def test_spread_is_refused_where_there_is_none(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        LandmarkIsomap(spread=True, **settings).fit(np.random.default_rng(0).normal(size=(50, 3)))


def test_spread_needs_a_landmark_more_than_coordinates_of_a_matrix_too():
    points = np.random.default_rng(0).normal(size=(50, 3))
    apart = np.linalg.norm(points[:, None] - points[:3], axis=2)
    mds = LandmarkIsomap(spread=True, method="mds", metric="precomputed", landmark_indices=range(3))
    with pytest.raises(InvalidInputError, match=r"spread=True needs misfits.* at least 4"):
        mds.fit(apart)
