"""Rows as unit vectors and what lies between them: the definitions, exact for near points, and multiples collapse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.methods import DIRECTIONAL
from pipeline.numerics import directions
from pipeline.numerics.directions import chords_of, edge_lengths, require_directions, unit_points
from pipeline.numerics.geodesics.graph import collapse_duplicates

every_metric = pytest.mark.parametrize("metric", DIRECTIONAL)
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def defined(rows, metric):
    """What lies between rows (n, D), by the definitions."""
    if metric != "angular":
        return cdist(rows, rows, metric)
    return np.arccos(np.clip(1 - cdist(rows, rows, "cosine"), -1, 1))


@every_metric
@pytest.mark.parametrize(("dtype", "tolerance"), [(DOUBLE, 1e-9), (SINGLE, 2e-6)])
def test_lengths_of_chords_between_unit_vectors_are_those_of_the_definition(rng, metric, dtype, tolerance):
    rows = (rng.normal(size=(60, 9)) + 0.3).astype(dtype)
    units = unit_points(rows, metric, dtype)
    assert units.dtype == dtype
    found = edge_lengths(metric, cdist(units, units))
    off_diagonal = ~np.eye(60, dtype=bool)
    np.testing.assert_allclose(found[off_diagonal], defined(rows.astype(float), metric)[off_diagonal], rtol=tolerance)
    np.testing.assert_array_equal(found.diagonal(), 0)


@pytest.mark.parametrize("metric", ["euclidean", *DIRECTIONAL])
@given(chord=st.floats(1e-12, 1.999))
def test_every_chord_has_a_length_and_every_length_its_chord(metric, chord):
    lengths = edge_lengths(metric, np.array([chord]))
    np.testing.assert_allclose(chords_of(metric, lengths), chord, rtol=1e-14)


@every_metric
@given(chords=st.lists(st.floats(0, 2), min_size=2, max_size=20))
def test_longer_chords_are_not_shorter_by_any_metric(metric, chords):
    lengths = edge_lengths(metric, np.sort(chords))
    assert (np.diff(lengths) >= 0).all()


def test_arcs_add_up_where_cosines_do_not():
    angles = np.linspace(0.0, 3.0, 31)
    points = np.column_stack([np.cos(angles), np.sin(angles)])
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert edge_lengths("angular", steps).sum() == pytest.approx(3.0, rel=1e-12)
    assert edge_lengths("cosine", steps).sum() < 0.1 * (1 - math.cos(3.0))


def test_beyond_half_a_turn_everything_is_within_reach():
    opposite = np.array([2.0 + 1e-7])
    assert edge_lengths("angular", opposite)[0] == math.pi
    for radius in (math.pi, 4.0, 1e100):
        assert chords_of("angular", np.array([radius]))[0] > opposite[0]
    assert np.isposinf(edge_lengths("angular", np.array([np.inf]))[0])


def test_near_points_keep_the_digits_that_the_grid_leaves():
    """1 - cos computed as a difference would leave 5 digits of an angle of 1e-5."""
    angle = 1e-5
    units = unit_points(np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)]]), "cosine", DOUBLE)
    found = edge_lengths("cosine", np.linalg.norm(units[:1] - units[1:], axis=1))
    assert found[0] == pytest.approx(angle**2 / 2, rel=5e-5)


@every_metric
@given(
    seed=st.integers(0, 2**32 - 1),
    factor=st.floats(1e-100, 1e100) | st.sampled_from([3.0, 0.1, 7.0, 1 / 3]),
    n_columns=st.integers(2, 50),
)
def test_multiples_become_the_same_point(metric, seed, factor, n_columns):
    """Up to one in 10^5: the grid has edges, and rounding crosses one that seldom."""
    rows = np.random.default_rng(seed).normal(size=(20, n_columns))
    units = unit_points(np.concatenate([rows, factor * rows]), metric, DOUBLE)
    n_split = len(collapse_duplicates(units).first_rows) - len(collapse_duplicates(units[:20]).first_rows)
    assert n_split <= 1


@every_metric
def test_thousands_of_multiples_become_the_same_points(rng, metric):
    rows = rng.normal(size=(2000, 30))
    copies = np.concatenate([factor * rows for factor in (1.0, 3.0, 0.1, 7.0, 1e-30)])
    n_split = len(collapse_duplicates(unit_points(copies, metric, DOUBLE)).first_rows) - 2000
    assert 0 <= n_split <= 2


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float16])
def test_multiples_of_whole_numbers_become_the_same_points_in_single_precision(rng, dtype):
    rows = rng.integers(1, 40, size=(300, 12)).astype(dtype)
    units = unit_points(np.concatenate([rows, 3 * rows]), "cosine", SINGLE)
    np.testing.assert_array_equal(units[:300], units[300:])


@every_metric
def test_a_rows_bytes_do_not_depend_on_the_rows_beside_it(rng, metric, monkeypatch):
    rows = rng.normal(size=(50, 7))
    together = unit_points(rows, metric, SINGLE)
    monkeypatch.setattr(directions, "ENTRIES_AT_ONCE", 21)
    np.testing.assert_array_equal(unit_points(rows, metric, SINGLE), together)
    np.testing.assert_array_equal(unit_points(rows[13:14], metric, SINGLE), together[13:14])


def test_rows_that_are_not_finite_are_nan_and_those_without_a_direction_zeros():
    rows = np.array([[1.0, np.nan, 2.0], [np.inf, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 4.0, 0.0]])
    units = unit_points(rows, "cosine", DOUBLE)
    assert np.isnan(units[:2]).all()
    np.testing.assert_allclose(units[2:], [[0.0, 0.0, 0.0], [0.6, 0.8, 0.0]], atol=2e-10)
    np.testing.assert_array_equal(unit_points(np.full((1, 3), 0.1), "correlation", DOUBLE), 0)


def test_rows_without_a_direction_are_refused_by_number():
    rows = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 3.0]])
    require_directions("x", rows, "euclidean")
    with pytest.raises(InvalidInputError, match="x has 1 rows of zeros, first in row 1; 'angular' is not defined"):
        require_directions("x", rows, "angular")
    numbers = np.array([70, 80, 90])
    with pytest.raises(InvalidInputError, match="x has 2 rows of equal entries, first in rows 80, 90; 'correlation'"):
        require_directions("x", rows, "correlation", numbers)
