"""Back from coordinates to data with the estimator."""

import numpy as np
import pytest

from pipeline import LandmarkIsomap
from pipeline.errors import InexactWarning, InvalidInputError, OutsideWarning
from pipeline.estimator.inverse import Embedded, Interpolation, data_at
from pipeline.numerics.datasets import swiss_roll


@pytest.fixture(scope="module")
def roll():
    return swiss_roll(1500, seed=0).points


@pytest.fixture(scope="module")
def isomap(roll):
    return LandmarkIsomap(10, 2, n_landmarks=150, random_state=0).fit(roll)


def test_embedded_rows_come_back_from_their_coordinates(isomap, roll):
    back = isomap.inverse_transform(isomap.embedding_[:200])
    np.testing.assert_allclose(back, roll[:200], rtol=0, atol=1e-8 * np.abs(roll).max())


@pytest.mark.filterwarnings("ignore::pipeline.errors.OutsideWarning")  # a few new rows lie in holes
def test_rows_between_the_embedded_ones_come_back_near_where_they_were(isomap, roll):
    new = swiss_roll(1700, seed=0).points[1500:]
    back = isomap.inverse_transform(isomap.transform(new))
    errors = np.linalg.norm(back - new, axis=1)
    # The roll's sheet is about 90 long, and rows are about 1 apart.
    assert np.median(errors) < 0.5


def test_a_row_does_not_depend_on_the_others(isomap):
    places = isomap.embedding_[:50] + 0.1
    whole = isomap.inverse_transform(places)
    np.testing.assert_array_equal(isomap.inverse_transform(places[17:18]), whole[17:18])


def test_what_is_far_outside_is_said_to_be(isomap):
    far = np.array([[1e3, 1e3], isomap.embedding_[0]])
    with pytest.warns(OutsideWarning, match="1 of 2 rows of X are outside of the embedding, the first 0"):
        assert isomap.inverse_transform(far).shape == (2, 3)


@pytest.mark.parametrize("far", [1e120, 1e160])
def test_what_is_too_far_away_to_compute_with_is_outside_too(isomap, far):
    with pytest.warns(OutsideWarning, match=r"2 of 3 rows .* the first 1: data of 1 is NaN.*; at up to 1\.[0-9]*e\+03"):
        back = isomap.inverse_transform([isomap.embedding_[0], [1e3, 1e3], [far, 0.0]])
    np.testing.assert_array_equal(np.isnan(back).all(axis=1), [False, False, True])


def test_rows_that_repeat_are_one_neighbor(isomap, roll):
    """Else the 200 nearest would all be copies of one row."""
    repeated = LandmarkIsomap(10, 2, n_landmarks=150, random_state=0).fit(np.repeat(roll, 250, axis=0)[: 250 * 700])
    once = LandmarkIsomap(10, 2, n_landmarks=150, random_state=0).fit(roll[:700])
    places = once.embedding_[:40] + 0.1
    np.testing.assert_array_equal(repeated.embedding_[::250], once.embedding_)
    np.testing.assert_array_equal(repeated.inverse_transform(places), once.inverse_transform(places))


def test_different_rows_in_one_place_are_their_mean_and_told(roll):
    by_angle = LandmarkIsomap(method="mds", metric="cosine", n_components=3, n_landmarks=50, random_state=0)
    by_angle.fit(np.concatenate([roll[:100], 3 * roll[:2]]))
    with pytest.warns(InexactWarning, match="data at 3 rows of X .*: 3 are a mean of different rows in one place"):
        back = by_angle.inverse_transform(by_angle.embedding_[[0, 1, 5]])
    np.testing.assert_allclose(back, roll[[0, 1, 5]] * [[2], [2], [1]], atol=1e-6)


def test_of_many_rows_in_one_place_the_first_are_taken_as_on_disk():
    places = np.repeat(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [100, 1, 1], axis=0)
    rows = np.concatenate([np.zeros(63), [64.0], np.full(36, 1e6), [5.0, 7.0]])[:, None]
    with pytest.warns(InexactWarning):
        np.testing.assert_allclose(
            data_at(places[[0, 100, 101]], Embedded(places, rows), Interpolation()), [[1.0], [5.0], [7.0]], atol=1e-12
        )


def test_rows_without_a_place_are_passed_by():
    places = np.array([[np.nan, np.nan], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = data_at(places[1:], Embedded(places, np.array([[9.0], [1.0], [2.0], [3.0]])), Interpolation())
    np.testing.assert_allclose(found, [[1.0], [2.0], [3.0]], atol=1e-12)


def test_points_that_nearly_coincide_are_told():
    rng = np.random.default_rng(0)
    points, rows = rng.normal(size=(80, 3)), rng.normal(size=(80, 2))
    points[1] = points[0] + [1e-6, 0, 0]
    with pytest.warns(InexactWarning, match="80 have few right digits"):
        data_at(points, Embedded(points, rows), Interpolation())


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_data_that_is_changed_after_the_fit_still_comes_back_as_it_was(dtype):
    data = np.random.default_rng(0).integers(0, 1000, size=(60, 3)).astype(dtype)
    expected = data[:5].astype(float)
    mds = LandmarkIsomap(method="mds", n_components=3, n_landmarks=30, random_state=0).fit(data)
    data[:] = 0
    np.testing.assert_allclose(mds.inverse_transform(mds.embedding_[:5]), expected, atol=1e-5)


def test_direct_methods_go_back_too(roll):
    mds = LandmarkIsomap(method="mds", n_components=3, n_landmarks=50, random_state=0).fit(roll[:400])
    np.testing.assert_allclose(mds.inverse_transform(mds.embedding_[:20]), roll[:20], atol=1e-7)


def test_places_that_are_no_numbers_have_no_data_and_others_are_answered(isomap):
    places = isomap.embedding_[:4].copy()
    places[1], places[2, 0] = np.nan, np.inf
    expected = isomap.inverse_transform(isomap.embedding_[:4])
    with pytest.warns(OutsideWarning, match="2 of 4"):
        found = isomap.inverse_transform(places)
    assert np.isnan(found[1:3]).all()
    np.testing.assert_array_equal(found[[0, 3]], expected[[0, 3]])


def test_wrong_places_are_refused(isomap, roll):
    with pytest.raises(InvalidInputError, match="X has 3 columns; the embedding has 2 coordinates"):
        isomap.inverse_transform(roll[:5])
    apart = np.linalg.norm(roll[:60, None] - roll[:60], axis=2)
    given = LandmarkIsomap(method="mds", metric="precomputed", n_landmarks=30).fit(apart)
    with pytest.raises(InvalidInputError, match="no rows of data to go back to"):
        given.inverse_transform(given.embedding_)
