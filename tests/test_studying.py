"""A study of a sample: what it measures, what it shares, what it recommends and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph

from pipeline import LandmarkIsomap
from pipeline.errors import InvalidInputError
from pipeline.jobs.fit import checked_source, plan_fit
from pipeline.jobs.study import study, tried_landmarks
from pipeline.jobs.study_spaces import (
    Chooser,
    Direct,
    Paths,
    by_points,
    drawn_sample,
    on_leading_axes,
    read_rows,
    spread_rows,
)
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.statistics import measure_of
from pipeline.settings import StudySettings, fit_settings, job_settings
from pipeline.sources import open_source

SMALL = {"source": "memory", "component_policy": "bridge", "landmarks": "20", "repeats": 2, "selections": "random"}


def settings_of(**given):
    return job_settings(StudySettings, SMALL | given)


def studied(points, **given):
    return study(settings_of(**given), data=points)


def split(points, **given):
    """Training points and held-out points of the study, in the run's units."""
    settings = settings_of(**given)
    sample = drawn_sample(settings, checked_source(settings, points))
    return sample.values[: sample.n_training], sample.values[sample.n_training :]


@pytest.fixture(scope="module")
def roll():
    return swiss_roll(400, seed=0).points


@pytest.fixture(scope="module")
def compared(roll):
    """Two selections, three numbers of landmarks, two of neighbors."""
    return studied(roll, selections="maxmin,random", landmarks="10,40,160", neighbors="7,12")


def true_distances(method, train, held_out):
    if method not in ("isomap", "kernel-isomap"):
        return cdist(held_out, held_out, "cityblock" if method == "mds" else "euclidean")
    graph = kneighbors_graph(np.vstack([train, held_out]), 8, mode="distance")
    rows = np.arange(len(train), len(train) + len(held_out))
    return shortest_path(graph.maximum(graph.T), directed=False, indices=rows)[:, rows]


@pytest.mark.parametrize(
    ("method", "selection", "options"),
    [
        ("isomap", "maxmin", {}),
        ("isomap", "random", {"extension": "restricted", "diagonal_weight": "balanced"}),
        ("isomap", "kmeans", {"extension": "rbf"}),
        ("kernel-isomap", "cholesky", {}),
        ("mds", "trace", {"metric": "cityblock"}),
        ("laplacian", "maxmin", {}),
        ("lle", "random", {}),
        ("metric-mds", "random", {}),
    ],
)
def test_it_measures_what_the_estimator_does_with_the_held_out_points(roll, method, selection, options):
    """Fitted on the training points and asked to transform the others, with the landmarks of the same seeds."""
    train, held_out = split(roll)
    found = studied(roll, method=method, selections=selection, n_neighbors=8, **options)
    errors = []
    for seed in range(2):
        model = LandmarkIsomap(
            8, n_landmarks=20, method=method, landmark_selection=selection, random_state=seed, **options
        )
        coordinates = model.fit(train).transform(held_out)
        errors.append(measure_of(method)(true_distances(method, train, held_out), coordinates))
    (trial,) = found.trials
    assert trial.n_neighbors == (8 if method in ("isomap", "kernel-isomap", "lle") else None)
    np.testing.assert_allclose(trial.errors, errors, rtol=1e-5)


def test_each_trial_is_what_a_study_of_it_alone_would_find(roll, compared):
    """Sharing paths, neighbors and choices changes nothing."""
    assert len(compared.trials) == 12
    for trial in compared.trials[::5]:
        (alone,) = studied(
            roll, selections=trial.selection, landmarks=trial.n_landmarks, neighbors=trial.n_neighbors
        ).trials
        assert alone == trial


def test_costs_are_those_of_the_plan(roll, compared):
    for trial in compared.trials:
        told = {"n_landmarks": trial.n_landmarks, "n_neighbors": trial.n_neighbors}
        settings = fit_settings({"source": "x", "store": "run.zarr", "landmark_selection": trial.selection, **told})
        assert trial.seconds == pytest.approx(sum(plan_fit(settings, open_source(roll)).seconds.values()))
        assert trial.n_evaluations == trial.n_landmarks * len(roll)


def test_the_recommendation_is_among_the_good_and_the_best_among_them(compared):
    assert compared.recommended in compared.close
    assert compared.best in compared.close
    assert all(trial.error.bound > compared.limit for trial in compared.trials if trial not in compared.close)
    assert 0 < len(compared.close) < len(compared.trials)


def test_a_number_of_neighbors_with_shortcuts_has_the_larger_error_and_is_not_recommended():
    """A roll of few points: sixty neighbors of one reach across to the next sheet, eight do not."""
    found = studied(swiss_roll(900, seed=1).points, neighbors="8,60", landmarks="50,100")
    errors = {k: min(t.error.value for t in found.trials if t.n_neighbors == k) for k in (8, 60)}
    assert errors[60] > 20 * errors[8]
    assert found.recommended.n_neighbors == 8


def test_few_landmarks_are_not_enough_where_components_are_many(rng):
    """Points in twelve dimensions: the error falls until more landmarks than a few per component are there."""
    points = rng.normal(size=(1000, 12)) * np.linspace(3, 1, 12)
    told = {"method": "mds", "n_components": 10, "repeats": 3}
    found = studied(points, landmarks="12,24,200", **told)
    errors = [trial.error.value for trial in found.trials]
    assert errors[0] > errors[1] > errors[2]
    assert found.still_falling
    assert not studied(points, landmarks="700,800", **told).still_falling


@pytest.mark.parametrize("n_components", [2, 6])
def test_automatic_landmarks_are_as_good_as_twice_as_many(rng, n_components):
    """A curved surface in noise, measured straight and along a graph; its third axis is clearly the shortest."""
    points = np.hstack([swiss_roll(700, seed=2, height=10.0).points, rng.normal(0, 0.3, (700, 5))])
    m = automatic_count(560, n_components)
    told = {"n_components": n_components, "landmarks": [m, 2 * m], "selections": "maxmin,random"}
    along, straight = studied(points, n_neighbors=10, **told), studied(points, method="mds", **told)
    assert m in {trial.n_landmarks for trial in along.close} & {trial.n_landmarks for trial in straight.close}


def test_the_same_settings_give_the_same_study_and_another_seed_another(roll):
    first, again, other = (studied(roll, seed=seed, n_neighbors=8) for seed in (3, 3, 4))
    assert first == again
    assert first.trials[0].errors != other.trials[0].errors


def test_units_of_the_data_change_nothing_but_the_width_of_a_kernel(roll):
    kernel = {"method": "kernel-mds", "selections": "kmeans"}
    plain, scaled = (studied(roll * 2.0**power, **kernel) for power in (0, 40))
    assert [trial.errors for trial in plain.trials] == [trial.errors for trial in scaled.trials]
    assert scaled.gamma == plain.gamma * 2.0**-80
    given = studied(roll * 2.0**40, **kernel, gamma=scaled.gamma)
    assert [trial.errors for trial in given.trials] == [trial.errors for trial in plain.trials]
    assert given.gamma is None


def test_preprocessing_is_that_of_a_fit(roll, rng):
    """Of a sample that is everything, standardized columns are those standardized before; axes turn nothing."""
    crooked = roll * [1e3, 1, 1e-3] + 7
    by_hand = (roll - roll.mean(axis=0)) / roll.std(axis=0)
    told, done = (studied(crooked, standardize=True, method="mds"), studied(by_hand, method="mds"))
    np.testing.assert_allclose(told.trials[0].errors, done.trials[0].errors, rtol=1e-9)
    turned = studied(crooked, standardize=True, pca=3, method="mds")
    np.testing.assert_allclose(turned.trials[0].errors, done.trials[0].errors, rtol=1e-9)


def test_rows_that_repeat_count_once(roll):
    repeated = np.repeat(roll[:300], 3, axis=0)
    found = studied(repeated, n_neighbors=8)
    assert (found.n_rows, found.n_training, found.n_held_out) == (900, 240, 60)


def test_missing_rows_are_refused_or_left_out(roll):
    broken = roll.copy()
    broken[[5, 17]] = np.nan
    with pytest.raises(InvalidInputError, match=r"2 of 400 sampled rows, first in rows 5, 17; .*missing='drop'"):
        studied(broken)
    found = studied(broken, missing="drop", n_neighbors=8)
    assert found.n_training + found.n_held_out == 398
    with pytest.raises(InvalidInputError, match="all sampled rows"):
        studied(np.full((100, 3), np.nan), missing="drop")


def islands(rng, sizes):
    """Round clouds far apart."""
    return np.vstack([rng.normal((100 * i, 0), 1, (size, 2)) for i, size in enumerate(sizes)])


def test_neighbors_that_leave_the_graph_in_pieces_are_left_out_in_words(rng):
    points = islands(rng, (100, 100))
    found = studied(points, component_policy="error", neighbors="10,100")
    assert {trial.n_neighbors for trial in found.trials} == {100}
    assert len(found.left_out) == 1
    assert found.left_out[0].startswith("10 neighbors: The neighbor graph has 2 components")
    with pytest.raises(InvalidInputError, match=r"nothing can be compared\. 10 neighbors: The neighbor graph has 2"):
        studied(points, component_policy="error", neighbors="10")


def test_of_the_largest_component_only_its_own_points_count(rng):
    """The same as a study of that component alone would measure, up to which of its points are held out."""
    points = islands(rng, (300, 40))
    found = studied(points, component_policy="largest", n_neighbors=8, landmarks="20,200,260")
    assert {trial.n_landmarks for trial in found.trials} == {20, 200}
    assert "so few points are embedded" in found.left_out[0]
    assert all(trial.error.value < 0.05 for trial in found.trials)
    bridged = studied(points, component_policy="bridge", n_neighbors=8, landmarks="20,200")
    assert found.trials[0].errors != bridged.trials[0].errors


def test_what_cannot_be_fitted_is_left_out_and_the_rest_compared(roll):
    found = studied(roll, method="lle", neighbors="5,30", landmarks="20,60")
    assert [(trial.n_neighbors, trial.n_landmarks) for trial in found.trials] == [(5, 20), (5, 60), (30, 60)]
    assert found.left_out[0].startswith("20 landmarks by random, 30 neighbors: n_neighbors=30 is out of range")


@pytest.fixture
def matrix(tmp_path, roll):
    np.save(tmp_path / "matrix.npy", cdist(roll, roll))
    return str(tmp_path / "matrix.npy")


def test_dissimilarities_that_are_given_are_those_of_the_points(roll, matrix):
    told = {"method": "mds", "selections": "random,maxmin,kmeans,trace,cholesky"}
    given = study(settings_of(source=matrix, input="dissimilarities", **told))
    vectors = studied(roll, **told)
    assert (given.n_training, given.n_held_out) == (vectors.n_training, vectors.n_held_out)
    np.testing.assert_allclose(given.trials[0].errors, vectors.trials[0].errors, rtol=1e-6)
    assert len(given.trials) == 5
    assert max(trial.error.value for trial in given.trials) < 3 * max(trial.error.value for trial in vectors.trials)


def test_a_matrix_that_is_not_square_is_refused(tmp_path):
    np.save(tmp_path / "wide.npy", np.ones((30, 90)))
    with pytest.raises(InvalidInputError, match="landmarks x points"):
        study(settings_of(source=str(tmp_path / "wide.npy"), input="dissimilarities", method="mds"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"landmarks": "20,x"}, "landmarks='x': Input should be a valid integer"),
        ({"landmarks": "2"}, "landmarks=2 is out of range; use ones from 3 to 4000"),
        ({"landmarks": "20,5000"}, "landmarks=5000 is out of range; .*raise sample"),
        ({"landmarks": [True]}, "landmarks='True'"),
        ({"landmarks": 1.5}, "a list is needed"),
        ({"neighbors": "0"}, "neighbors='0': Input should be greater"),
        ({"neighbors": "5", "method": "mds"}, "neighbors means nothing with method='mds'"),
        ({"selections": "maxmin,best"}, "selections='best' is not known; use one of 'maxmin'"),
        ({"sample": 10}, "sample=10: Input should be greater than or equal to 50"),
        ({"held_out": True}, "held_out=True: a number is needed"),
        ({"landmark": "20"}, "did you mean 'landmarks'"),
        ({"radius": 1.0}, "radius=1.0 cannot be studied on a sample"),
        ({"input": "graph"}, "input='graph' does not go with a study"),
        ({"input": "similarities", "method": "mds"}, "input='similarities' does not go with a study"),
        ({"input": "dissimilarities", "method": "mds", "landmarks_key": "l"}, "landmarks_key does not go with a study"),
    ],
)
def test_bad_choices_are_refused_before_anything_is_opened(given, words):
    with pytest.raises(InvalidInputError, match=words):
        settings_of(**given)


@pytest.mark.parametrize(
    ("n_rows", "given", "words"),
    [
        (400, {"landmarks": "20,321"}, "landmarks=321 is out of range; use one from 3 to 320"),
        (400, {"neighbors": "5,320"}, "neighbors=320 is out of range; use one from 1 to 319"),
        (400, {"n_components": 350, "landmarks": "360"}, "landmarks=360 is out of range"),
        (19, {}, "at least 20 distinct rows, and there are 19"),
    ],
)
def test_what_the_sample_has_no_room_for_is_refused_with_the_range(roll, n_rows, given, words):
    with pytest.raises(InvalidInputError, match=words):
        studied(roll[:n_rows], **given)


def test_rows_that_all_repeat_leave_too_few(roll):
    with pytest.raises(InvalidInputError, match="at least 20 distinct rows, and there are 10"):
        studied(np.repeat(roll[:10], 20, axis=0))


def test_single_choices_of_a_fit_are_studied_where_no_list_is_given():
    plain = job_settings(StudySettings, {"source": "x"})
    assert plain.tried_neighbors == (5, 10, 20)
    assert len(plain.tried_selections) == 5
    assert plain.tried_landmarks == ()
    single = {"source": "x", "n_neighbors": 7, "n_landmarks": 90, "landmark_selection": "trace"}
    told = job_settings(StudySettings, single)
    assert (told.tried_neighbors, told.tried_landmarks, told.tried_selections) == ((7,), (90,), ("trace",))
    lists = job_settings(StudySettings, single | {"neighbors": "9,3", "landmarks": "80,30", "selections": "random"})
    assert (lists.tried_neighbors, lists.tried_landmarks, lists.tried_selections) == ((3, 9), (30, 80), ("random",))
    assert job_settings(StudySettings, {"source": "x", "method": "mds"}).tried_neighbors == ()


@given(st.integers(20, 10_000), st.integers(1, 19), st.integers(10_000, 10**8))
def test_numbers_of_landmarks_that_are_tried_fit_the_sample_and_have_those_of_auto_among_them(sample, d, n_rows):
    settings = job_settings(StudySettings, {"source": "x", "n_components": d})
    sizes = tried_landmarks(settings, sample, n_rows)
    assert sizes == tuple(sorted(set(sizes)))
    assert sizes[-1] <= sample
    assert sizes[0] > d
    auto = automatic_count(n_rows, d)
    assert auto in sizes or auto > sample // 2


@given(st.integers(1, 3_000_000), st.integers(1, 500), st.integers(1, 4096), st.integers(0, 5))
def test_rows_are_spread_over_the_source_and_each_drawn_once(n_rows, n_wanted, block_rows, seed):
    rows = spread_rows(n_rows, n_wanted, block_rows, seed)
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < n_rows
    n_to_be_had = min(n_rows, 256 * block_rows)
    assert len(rows) == min(n_wanted, n_to_be_had)
    if n_wanted >= 400:
        assert np.histogram(rows, bins=4, range=(0, n_rows))[0].min() > len(rows) / 8 or len(rows) < 100


class Counting:
    """A source that keeps what is read of it."""

    shape = (5000, 2)

    def __init__(self):
        self.reads = []

    def read(self, start, stop):
        self.reads.append((start, stop))
        return np.arange(start, stop)[:, None] * [1, 2]


@pytest.mark.parametrize("block_rows", [1, 7, 512, 10_000])
def test_rows_are_read_in_blocks_and_come_in_order(block_rows):
    source, rows = Counting(), spread_rows(5000, 300, 512, 0)
    np.testing.assert_array_equal(read_rows(source, rows, block_rows), rows[:, None] * [1, 2])
    assert all(stop - start <= block_rows for start, stop in source.reads)


def test_choices_are_made_once_for_all_numbers_of_neighbors_and_nested_ones_for_all_of_landmarks(roll):
    calls = []

    def choose(points, selection, n_landmarks, seed):
        calls.append((selection, n_landmarks, seed))
        return by_points(points, selection, n_landmarks, seed)

    chooser, everything = Chooser(choose, roll, 30), np.arange(len(roll))
    for _ in range(2):
        for selection in ("maxmin", "trace", "kmeans"):
            for m in (10, 30):
                places = chooser.chosen(everything, selection, m, 0)
                assert len(np.unique(places)) == m
                np.testing.assert_array_equal(places, by_points(roll, selection, m, 0))
    assert calls == [("maxmin", 30, 0), ("trace", 30, 0), ("kmeans", 10, 0), ("kmeans", 30, 0)]
    some = everything[::2]
    assert np.isin(chooser.chosen(some, "maxmin", 10, 0), some).all()


def test_many_columns_are_chosen_among_on_their_leading_axes(rng):
    flat = rng.normal(size=(1500, 3)) @ rng.normal(size=(3, 200)) + 5
    reduced = on_leading_axes(flat)
    assert reduced.shape == (1500, 64)
    np.testing.assert_allclose(cdist(reduced, reduced), cdist(flat, flat), rtol=1e-6, atol=1e-5)
    np.testing.assert_array_equal(on_leading_axes(flat[:, :64]), flat[:, :64])


@pytest.mark.parametrize("kind", ["direct", "paths"])
def test_landmarks_of_a_study_count_by_the_training_points_nearest_to_them(kind):
    points = swiss_roll(400, seed=0).points
    if kind == "direct":
        space = Direct(points, 300, cdist, are_counted=True)
    else:
        space = Paths(points, 300, "bridge", 8, 1, are_counted=True)
    candidates = np.arange(0, 300, 10)
    measured = space.measured(8, candidates)
    chosen = np.array([3, 0, 17, 25])
    expected = np.bincount(measured.training[:, chosen].argmin(axis=1), minlength=4)
    np.testing.assert_array_equal(measured.counts(chosen), expected)
    assert measured.training.shape == (300, 30)
    between = measured.training[candidates]
    np.testing.assert_allclose(between, measured.between, rtol=1e-6, atol=1e-6)


def test_a_study_counts_with_the_weights_that_it_is_told():
    """Most points are in one place, which farthest-first landmarks do not show."""
    rng = np.random.default_rng(0)
    points = np.vstack([rng.normal(size=(1500, 6)), 6 * rng.normal(size=(100, 6))])
    told = {"method": "mds", "selections": "maxmin"}
    plain, weighted = (studied(points, **told, landmark_weights=way).trials[0] for way in ("none", "counts"))
    assert plain.errors != weighted.errors
