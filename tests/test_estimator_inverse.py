"""Back from coordinates to data with the estimator."""

import numpy as np
import pytest

from pipeline import LandmarkIsomap
from pipeline.datasets import swiss_roll
from pipeline.errors import InvalidInputError, OutsideWarning


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


def test_direct_methods_go_back_too(roll):
    mds = LandmarkIsomap(method="mds", n_components=3, n_landmarks=50, random_state=0).fit(roll[:400])
    np.testing.assert_allclose(mds.inverse_transform(mds.embedding_[:20]), roll[:20], atol=1e-7)


def test_wrong_places_are_refused(isomap, roll):
    with pytest.raises(InvalidInputError, match="X has 3 columns; the embedding has 2 coordinates"):
        isomap.inverse_transform(roll[:5])
    with pytest.raises(InvalidInputError, match="NaN"):
        isomap.inverse_transform(np.full((2, 2), np.nan))
    apart = np.linalg.norm(roll[:60, None] - roll[:60], axis=2)
    given = LandmarkIsomap(method="mds", metric="precomputed", n_landmarks=30).fit(apart)
    with pytest.raises(InvalidInputError, match="no rows of data to go back to"):
        given.inverse_transform(given.embedding_)
