"""LandmarkIsomap by metrics between directions along its graph: scikit-learn's answers, and lengths on the sphere."""

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist, pdist
from sklearn.manifold import Isomap
from sklearn.neighbors import kneighbors_graph

from pipeline import LandmarkIsomap
from pipeline.errors import ComponentWarning, InvalidInputError
from pipeline.methods import DIRECTIONAL, EDGE_METRICS, METRICS

N_FIT = 450
every_metric = pytest.mark.parametrize("metric", DIRECTIONAL)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(N_FIT + 100, 8)) + 0.7


def units_of(rows, metric):
    centered = rows - rows.mean(axis=1, keepdims=True) if metric == "correlation" else rows
    return centered / np.linalg.norm(centered, axis=1, keepdims=True)


def lengths_between(rows, others, metric):
    if metric != "angular":
        return cdist(rows, others, metric)
    return np.arccos(np.clip(1 - cdist(rows, others, "cosine"), -1, 1))


def difference(found, expected):
    """The largest, relative to the largest coordinate; coordinates may have another sign."""
    signs = np.sign((found * expected).sum(axis=0))
    return np.abs(found * signs - expected).max() / np.abs(expected).max()


def both(rows, metric, **settings):
    """Our fit with every point a landmark, scikit-learn's, which takes angles as given distances, and its new rows."""
    rule = {} if settings.get("n_neighbors") is None else {"new_edges": "own"}
    ours = LandmarkIsomap(n_components=3, n_landmarks=N_FIT, metric=metric, random_state=0, **settings, **rule)
    ours.fit(rows[:N_FIT])
    named = "precomputed" if metric == "angular" else metric
    theirs = Isomap(n_components=3, metric=named, **settings)
    given = lengths_between(rows, rows[:N_FIT], metric) if metric == "angular" else rows
    return ours, theirs.fit(given[:N_FIT]), given[N_FIT:]


@every_metric
@pytest.mark.parametrize("joined_by", ["neighbors", "radius"])
def test_with_every_point_a_landmark_it_is_scikit_learns_isomap(rows, metric, joined_by):
    within = {"n_neighbors": None, "radius": 1.1 if metric == "angular" else 0.6}
    settings = {"n_neighbors": 8} if joined_by == "neighbors" else within
    ours, theirs, new = both(rows, metric, **settings)
    assert difference(ours.embedding_, theirs.embedding_) <= 1e-8
    assert difference(ours.transform(rows[N_FIT:]), theirs.transform(new)) <= 1e-8


def test_kernel_isomap_has_the_lengths_of_the_same_graph(rows):
    graph = kneighbors_graph(rows[:N_FIT], 8, mode="distance", metric="cosine")
    settings = {"method": "kernel-isomap", "n_landmarks": 60, "landmark_selection": "random", "random_state": 0}
    by_metric = LandmarkIsomap(8, metric="cosine", **settings).fit(rows[:N_FIT])
    given = LandmarkIsomap(metric="precomputed", **settings).fit(graph.maximum(graph.T))
    assert difference(by_metric.embedding_, given.embedding_) <= 1e-7


def test_paths_of_angles_are_great_circles():
    """Along a dense graph on a cap of the sphere, paths are hardly longer than arcs, and never shorter."""
    rng = np.random.default_rng(1)
    height, turn = rng.uniform(0.2, 1.0, 3000), rng.uniform(0, 2 * np.pi, 3000)
    points = np.column_stack([np.sqrt(1 - height**2) * np.cos(turn), np.sqrt(1 - height**2) * np.sin(turn), height])
    scaled = points * rng.uniform(0.1, 10.0, size=(3000, 1))
    fitted = LandmarkIsomap(20, 2, n_landmarks=40, metric="angular", random_state=0).fit(scaled)
    landmarks = points[fitted.landmark_indices_]
    great_circles = np.arccos(np.clip(points @ landmarks.T, -1, 1))
    paths = fitted._space.to_landmarks
    far = great_circles > 0.3
    ratio = paths[far] / great_circles[far]
    assert ratio.min() > 1 - 1e-6
    assert np.median(ratio) < 1.03
    assert ratio.max() < 1.3


def test_the_extension_goes_by_edges_of_the_metric(rows):
    """An independent computation: shortest paths on scikit-learn's graph, and one edge more for a new point."""
    fitted = LandmarkIsomap(8, 2, n_landmarks=50, metric="angular", random_state=0).fit(rows[:N_FIT])
    between = lengths_between(rows[:N_FIT], rows[:N_FIT], "angular")
    graph = kneighbors_graph(between, 8, mode="distance", metric="precomputed")
    paths = dijkstra(graph.maximum(graph.T), directed=False, indices=fitted.landmark_indices_).T
    np.testing.assert_allclose(fitted._space.to_landmarks, paths, rtol=1e-8, atol=1e-9)


@every_metric
def test_multiples_of_a_row_are_one_point(rows, metric):
    data = rows[:200]
    copies = np.concatenate([data, 3 * data[:40], 0.1 * data[:40], 7 * data[:40]])
    settings = {"n_neighbors": 8, "n_landmarks": 50, "metric": metric, "random_state": 0}
    alone, together = (LandmarkIsomap(**settings).fit(given) for given in (data, copies))
    np.testing.assert_array_equal(together.embedding_[:200], alone.embedding_)
    for first in (200, 240, 280):
        np.testing.assert_array_equal(together.embedding_[first : first + 40], alone.embedding_[:40])
    np.testing.assert_array_equal(together.transform(1e-7 * data), alone.embedding_)


def test_correlation_does_not_see_the_mean_of_a_row(rows):
    data = rows[:200]
    shifted = data * np.linspace(0.5, 2, 200)[:, None] + np.linspace(-9, 9, 200)[:, None]
    settings = {"n_neighbors": 8, "n_landmarks": 50, "metric": "correlation", "random_state": 0}
    one, other = (LandmarkIsomap(**settings).fit_transform(given) for given in (data, shifted))
    np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.mark.parametrize(("metric", "row", "what"), [("angular", 0.0, "zeros"), ("correlation", 7.0, "equal entries")])
def test_rows_without_a_direction_are_named(rows, metric, row, what):
    data = np.tile(rows[:200], (30, 1))
    data[[31, 5044]] = row
    with pytest.raises(InvalidInputError, match=f"X has 2 rows of {what}, first in rows 31, 5044; '{metric}'"):
        LandmarkIsomap(metric=metric).fit(data)
    fitted = LandmarkIsomap(metric=metric, random_state=0).fit(rows[:200])
    with pytest.raises(InvalidInputError, match=f"X has 2 rows of {what}, first in rows 31, 5044"):
        fitted.transform(data)


def test_rows_of_one_direction_are_nothing_to_embed(rows):
    with pytest.raises(InvalidInputError, match="all 3 rows of X have the same direction; there is nothing to embed"):
        LandmarkIsomap(metric="cosine").fit(rows[:1] * [[1.0], [2.0], [0.3]])


@every_metric
def test_a_bridge_is_as_long_as_the_metric_has_it(metric):
    rng = np.random.default_rng(2)
    blobs = np.concatenate([rng.normal(center, 0.05, size=(40, 4)) for center in (np.eye(4)[0] * 3, np.eye(4)[1] * 3)])
    with pytest.warns(ComponentWarning, match=r"2 components \(rows: 40, 40\), joined by a link, the shortest there"):
        fitted = LandmarkIsomap(5, 2, n_landmarks=80, metric=metric, random_state=0).fit(blobs)
    between = lengths_between(blobs, blobs, metric)
    lengths = fitted._space.to_landmarks[:40, fitted.landmark_indices_ >= 40]
    assert lengths.min() == pytest.approx(between[:40, 40:].min(), rel=1e-7)


def test_single_precision_keeps_its_digits(rows):
    settings = {"n_neighbors": 8, "n_landmarks": 80, "metric": "angular", "random_state": 0}
    double = LandmarkIsomap(**settings).fit(rows[:N_FIT])
    single = LandmarkIsomap(**settings).fit(rows[:N_FIT].astype(np.float32))
    assert difference(single.embedding_, double.embedding_) <= 1e-5
    # A fitted row stays where it is, whatever it is stored in.
    as_doubles = rows[:N_FIT].astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(single.transform(as_doubles), single.embedding_)


@every_metric
def test_rows_of_any_size_are_fitted_together(rows, metric):
    sizes = 10.0 ** np.linspace(-140, 140, N_FIT)[:, None]
    settings = {"n_neighbors": 8, "n_landmarks": 50, "metric": metric, "random_state": 0}
    plain, scaled = (LandmarkIsomap(**settings).fit(given) for given in (rows[:N_FIT], rows[:N_FIT] * sizes))
    np.testing.assert_allclose(scaled.embedding_, plain.embedding_, atol=1e-7)


def test_mds_measures_angles_too(rows):
    fitted = LandmarkIsomap(method="mds", n_components=3, n_landmarks=N_FIT, metric="angular").fit(rows[:N_FIT])
    angles = lengths_between(rows[:N_FIT], rows[:N_FIT], "angular")
    squared = angles**2
    centering = np.eye(N_FIT) - 1 / N_FIT
    values, vectors = np.linalg.eigh(-0.5 * centering @ squared @ centering)
    assert difference(fitted.embedding_, vectors[:, :-4:-1] * np.sqrt(values[:-4:-1])) <= 1e-7
    assert np.corrcoef(pdist(fitted.embedding_), angles[np.triu_indices(N_FIT, 1)])[0, 1] > 0.5


def test_data_comes_back_from_coordinates_as_it_was_given(rows):
    fitted = LandmarkIsomap(8, 3, n_landmarks=80, metric="cosine", random_state=0).fit(rows[:N_FIT])
    np.testing.assert_allclose(fitted.inverse_transform(fitted.embedding_[:20]), rows[:20], atol=1e-5)


@pytest.mark.parametrize("metric", sorted(set(METRICS) - set(EDGE_METRICS)))
def test_other_metrics_are_refused_along_a_graph_with_those_that_are_there(rows, metric):
    allowed = "'euclidean', 'cosine', 'angular', 'correlation', or method='mds'"
    with pytest.raises(InvalidInputError, match=f"metric='{metric}' does not go with .* use one of {allowed}"):
        LandmarkIsomap(metric=metric).fit(rows)
