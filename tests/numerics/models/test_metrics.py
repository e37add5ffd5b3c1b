"""Metrics between vectors: those of scipy and the angle, exactly 0 between equal rows, each row on its own."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.methods import DIRECTIONAL, METRICS
from pipeline.numerics.models import metrics
from pipeline.numerics.models.metrics import distances, inner_products, squared_distances, squared_lengths


def angle(one, other):
    """Kahan's formula, exact for any two vectors."""
    one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
    return 2 * np.arctan2(np.linalg.norm(one - other), np.linalg.norm(one + other))


def measured(points, landmarks, metric):
    points, landmarks = points.astype(np.float64), landmarks.astype(np.float64)
    return cdist(points, landmarks, angle if metric == "angular" else metric)


every_metric = pytest.mark.parametrize("metric", METRICS)


@every_metric
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("p", "m", "n_columns"), [(1, 1, 2), (7, 3, 3), (20, 300, 5), (9, 40, 130)])
def test_equals_the_definition(rng, metric, dtype, p, m, n_columns):
    points = rng.normal(size=(p, n_columns)).astype(dtype)
    landmarks = rng.normal(size=(m, n_columns)).astype(dtype)
    found = distances(metric, points, landmarks)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, measured(points, landmarks, metric), rtol=1e-12, atol=1e-14)


@every_metric
def test_points_that_are_landmarks_have_distance_exactly_zero(rng, metric):
    landmarks = (rng.normal(size=(70, 33)) * 10.0 ** rng.integers(-8, 8, size=(70, 1))).astype(np.float32)
    found = distances(metric, landmarks.astype(np.float64), landmarks)
    np.testing.assert_array_equal(found.diagonal(), 0)
    assert np.count_nonzero(found) == 70 * 69


@every_metric
def test_a_row_has_the_same_bytes_whatever_stands_beside_it(rng, metric):
    points, landmarks = rng.normal(size=(50, 70)), rng.normal(size=(300, 70))
    together = distances(metric, points, landmarks)
    for first, last in [(0, 1), (3, 50), (17, 19)]:
        np.testing.assert_array_equal(distances(metric, points[first:last], landmarks), together[first:last])
    np.testing.assert_array_equal(distances(metric, points[::-2], landmarks), together[::-2])


@every_metric
def test_distances_to_a_landmark_do_not_depend_on_the_other_landmarks(rng, metric):
    points, landmarks = rng.normal(size=(5, 67)), rng.normal(size=(290, 67))
    np.testing.assert_array_equal(
        distances(metric, points, landmarks[280:]), distances(metric, points, landmarks)[:, 280:]
    )


@every_metric
def test_no_points_give_no_rows(rng, metric):
    assert distances(metric, np.empty((0, 4)), rng.normal(size=(6, 4))).shape == (0, 6)


@pytest.mark.parametrize("metric", DIRECTIONAL)
def test_angles_of_very_long_and_very_short_rows(metric):
    rows = np.array([[1.0, 2.0, 4.0], [3.0, 1.0, 1.0]])
    expected = measured(rows, rows, metric)
    for scale in (1e149, 1e-200, 1e-300):
        np.testing.assert_allclose(distances(metric, rows * scale, rows), expected, rtol=1e-11, atol=1e-15)


def test_small_angles_keep_their_digits():
    """1 - cos computed as a difference would leave nothing of an angle of 1e-9."""
    found = distances("cosine", [[1.0, 1e-9]], [[1.0, 0.0]])
    assert found[0, 0] == pytest.approx(0.5e-18, rel=1e-12)
    assert distances("angular", [[1.0, 1e-9]], [[1.0, 0.0]])[0, 0] == pytest.approx(1e-9, rel=1e-12)


def test_squared_distances_and_inner_products(rng):
    points, landmarks = rng.normal(size=(11, 19)), rng.normal(size=(8, 19))
    np.testing.assert_allclose(squared_distances(points, landmarks), cdist(points, landmarks, "sqeuclidean"))
    np.testing.assert_allclose(inner_products(points, landmarks), points @ landmarks.T, atol=1e-13)
    np.testing.assert_array_equal(inner_products(points, points).diagonal(), squared_lengths(points))
    np.testing.assert_array_equal(
        np.sqrt(squared_distances(points, landmarks)), distances("euclidean", points, landmarks)
    )


def test_blocks_do_not_touch_the_bytes(rng, monkeypatch):
    """The loops as plain Python, in which smaller blocks are not compiled in."""
    points, landmarks = rng.normal(size=(4, 11)), rng.normal(size=(9, 11))
    expected = distances("euclidean", points, landmarks)
    monkeypatch.setattr(metrics, "LANDMARKS_PER_BLOCK", 4)
    monkeypatch.setattr(metrics, "COLUMNS_PER_TILE", 8)
    monkeypatch.setattr(metrics, "_accumulate", metrics._accumulate.__wrapped__)
    np.testing.assert_array_equal(distances("euclidean", points, landmarks), expected)


@pytest.mark.parametrize(
    ("metric", "points", "message"),
    [
        ("sqeuclidean", np.ones((2, 3)), r"metric='sqeuclidean' is not known; use one of 'euclidean'"),
        ("euclidean", np.ones((2, 4)), r"points has 4 columns and landmarks has 3"),
        ("euclidean", np.ones((2, 0)), r"at least one column"),
        ("euclidean", [[1, np.nan, 3]], r"points has 1 NaN or infinite entries, first in row 0"),
        ("cityblock", [[1, 1e200, 3]], r"points reaches 1e\+200"),
        ("cosine", [[1, 0, 0], [0, 0, 0], [0, 0, 0]], r"points has 2 rows of zeros, first in rows 1, 2; 'cosine' is"),
        ("correlation", [[0.1, 0.1, 0.1]], r"points has 1 rows of equal entries, first in row 0; 'correlation'"),
    ],
)
def test_what_cannot_be_measured_is_refused(metric, points, message):
    landmarks = np.arange(6.0).reshape(2, 3)
    with pytest.raises(InvalidInputError, match=message):
        distances(metric, points, landmarks)


def test_landmarks_are_named_in_the_errors():
    with pytest.raises(InvalidInputError, match=r"landmarks has 1 rows of zeros, first in row 1"):
        distances("cosine", [[1.0, 2.0]], [[1.0, 1.0], [0.0, 0.0]])
