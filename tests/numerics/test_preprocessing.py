"""Preprocessing of rows: what scikit-learn does, with bytes that depend on each row alone."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.preprocessing import (
    Preprocessing,
    dominating_columns,
    fixed_order_product,
    principal_axes,
    scatter_matrix,
)


@pytest.fixture
def table(rng):
    return rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6)) + 3


def test_scaling_by_a_power_of_two_is_exact(table):
    found = Preprocessing(5, np.dtype(np.float64)).apply(table)
    np.testing.assert_array_equal(found * 32, table)


def test_standardizing_and_rotating_equal_scikit_learn(table):
    scaler = StandardScaler().fit(table)
    standardized = scaler.transform(table)
    axes, explained = principal_axes(scatter_matrix(standardized), 3)
    done = Preprocessing(0, np.dtype(np.float64), scaler.mean_, scaler.scale_, axes)
    reference = PCA(3).fit(standardized)
    expected = reference.transform(standardized)
    found = done.apply(table)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-10)
    assert explained == pytest.approx(reference.explained_variance_ratio_.sum())
    assert done.result_exponent == 0
    assert Preprocessing(7, np.dtype(np.float64), scaler.mean_).result_exponent == 7


def test_rows_alone_have_the_same_bytes(table):
    axes, _ = principal_axes(scatter_matrix(table - table.mean(axis=0)), 4)
    done = Preprocessing(2, np.dtype(np.float32), table.mean(axis=0) / 4, None, axes)
    whole = done.apply(table)
    assert whole.dtype == np.float32
    for i in (0, 17, 499):
        assert done.apply(table[i : i + 1]).tobytes() == whole[i : i + 1].tobytes()


def test_the_product_is_the_matrix_product(rng):
    a, b = rng.normal(size=(30, 9)), rng.normal(size=(9, 4))
    np.testing.assert_allclose(fixed_order_product(a, b), a @ b, rtol=1e-12)


def test_axes_point_where_their_largest_entry_is_positive(table):
    axes, _ = principal_axes(scatter_matrix(table), 6)
    assert (axes[np.abs(axes).argmax(axis=0), range(6)] > 0).all()


@pytest.mark.parametrize(
    ("deviations", "columns"),
    [
        ([1.0, 400.0, 1.0], [1]),
        ([1.0, 190.0, 1.0], []),
        ([0.0, 400.0, 1.0], []),
        ([0.0, 400.0, 0.0, 0.0], []),
        ([0.0, 0.0, 0.0], []),
        ([1.0, 1.0, 1.0, 1.0], []),
        ([400.0, 400.0, *[0.1] * 17], []),
        ([400.0, 700.0, *[0.1] * 18], [1, 0]),
        ([400.0, 700.0, 300.0, *[0.1] * 40], [1, 0, 2]),
        ([400.0, 700.0, 300.0, 500.0, *[0.1] * 60], []),
        ([1e307, 1e307, 1e300], []),
        ([1e308, 1e300, 1e300], [0]),
        ([np.inf, 1.0, 1.0], []),
    ],
)
def test_columns_dominate_if_few_carry_nearly_all_of_the_variance(deviations, columns):
    found, share = dominating_columns(np.array(deviations))
    assert found.tolist() == columns
    assert (share > 0.99) == bool(columns)


@pytest.mark.parametrize("name", ["digits", "iris", "diabetes", "wine", "breast_cancer"])
def test_only_tables_of_different_units_have_columns_that_dominate(name):
    rows = getattr(datasets, f"load_{name}")().data
    found, _ = dominating_columns(((rows - rows.mean(axis=0)) ** 2).sum(axis=0))
    assert found.tolist() == {"wine": [12], "breast_cancer": [23, 3]}.get(name, [])


def test_sheets_have_no_columns_that_dominate():
    for rows in (swiss_roll(2000, seed=0).points, datasets.make_s_curve(2000, random_state=0)[0]):
        assert not len(dominating_columns(rows.var(axis=0))[0])
