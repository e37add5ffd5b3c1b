"""Preprocessing of rows: an exact scale, centering, standardization, principal axes and directions; and the moments of
columns that it is made of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from pipeline.methods import DIRECTIONAL
from pipeline.numerics.compiled import compiled
from pipeline.numerics.directions import unit_points
from pipeline.types import AnyArray, FloatArray, IntArray

# Columns dominate all distances if so few carry more than this share of the variance.
DOMINATING, MOST_DOMINATING = 0.99, 3


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """rows -> ((rows 2^-exponent - center) / spread) axes, in `dtype`; each of the last three steps is optional.
    Scaling by a power of two is exact and keeps every square within range. By a metric of DIRECTIONAL the results are
    then unit vectors; unscaled rows become the same ones, so these are not scaled."""

    exponent: int
    dtype: np.dtype[Any]
    center: FloatArray | None = None
    spread: FloatArray | None = None
    axes: FloatArray | None = None
    metric: str = "euclidean"

    @property
    def result_exponent(self) -> int:
        """The power of two that takes results back to the user's units; 0 for standardized data and directions."""
        return self.exponent if self.spread is None and self.metric not in DIRECTIONAL else 0

    def apply(self, rows: AnyArray) -> AnyArray:
        if self.metric in DIRECTIONAL:
            values = rows if self.center is None else self._centered(rows.astype(np.float64))
            return unit_points(values, self.metric, self.dtype)
        values = rows.astype(self.dtype)
        return self._scaled(values) if self.center is None else self._centered(values).astype(self.dtype)

    def _scaled(self, values: AnyArray) -> AnyArray:
        return np.asarray(np.ldexp(values, -self.exponent))

    def _centered(self, values: AnyArray) -> FloatArray:
        centered: FloatArray = self._scaled(values) - self.center
        if self.spread is not None:
            centered /= self.spread
        return centered if self.axes is None else fixed_order_product(centered, self.axes)


def fixed_order_product(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """rows (p, D) times matrix (D, q), each entry summed over D in order: a row's bytes do not depend on other rows."""
    return _product(np.ascontiguousarray(rows), np.ascontiguousarray(matrix))


@compiled
def _product(rows: AnyArray, matrix: AnyArray) -> FloatArray:
    out = np.zeros((len(rows), matrix.shape[1]))
    for i in range(len(rows)):
        for j in range(len(matrix)):
            for k in range(matrix.shape[1]):
                out[i, k] += rows[i, j] * matrix[j, k]
    return out


def scatter_matrix(centered: FloatArray) -> FloatArray:
    """Sum (D, D) over rows of their outer products, on one thread: the bytes depend on the number of threads."""
    with threadpool_limits(1, "blas"):
        return np.asarray(centered.T @ centered)


def principal_axes(scatter: FloatArray, n_axes: int) -> tuple[FloatArray, float]:
    """The first axes (D, n_axes) of a scatter matrix, largest entries positive, and their share of the variance."""
    with threadpool_limits(1, "blas"):
        values, vectors = scipy.linalg.eigh(scatter)
    axes = vectors[:, ::-1][:, :n_axes]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(n_axes)])
    total = float(values.sum())
    return axes * signs, float(values[::-1][:n_axes].sum()) / total if total > 0 else 0.0


def column_ranges(rows: AnyArray) -> FloatArray:
    """Least and greatest value (2, D) of each column."""
    values = rows.astype(np.float64)
    return np.stack([values.min(axis=0, initial=np.inf), values.max(axis=0, initial=-np.inf)])


def column_moments(rows: AnyArray) -> FloatArray:
    """Mean and sum of squared deviations (2, D) of each column; zeros for no rows."""
    if not len(rows):
        return np.zeros((2, rows.shape[1]))
    values = rows.astype(np.float64)
    mean = values.mean(axis=0)
    return np.stack([mean, ((values - mean) ** 2).sum(axis=0)])


def merged_moments(first: FloatArray, n_first: int, second: FloatArray, n_second: int) -> FloatArray:
    """The moments of two sets of rows together, without the cancellation of sums of squares."""
    n = n_first + n_second
    shift = second[0] - first[0]
    mean = first[0] + shift * (n_second / n)
    return np.stack([mean, first[1] + second[1] + shift**2 * (n_first * n_second / n)])


def dominating_columns(deviations: FloatArray) -> tuple[IntArray, float]:
    """The fewest columns that carry more than `DOMINATING` of all variance, and their share of it.

    There are none among fewer than three columns that vary, and no more than `MOST_DOMINATING`, or a tenth of these
    columns if that is less: among more, it is usual that some vary more than others.

    deviations: sum of squared deviations (D,) of each column.
    """
    none, n_varying = np.empty(0, np.int64), int(np.count_nonzero(deviations))
    if n_varying < 3 or not np.isfinite(deviations).all():
        return none, 0.0
    order = np.argsort(-deviations, kind="stable")[: max(1, min(MOST_DOMINATING, n_varying // 10))]
    # Relative to the largest, whose square may be near the end of the range.
    relative = deviations / deviations[order[0]]
    shares = np.cumsum(relative[order]) / relative.sum()
    n_found = int(np.searchsorted(shares, DOMINATING, side="right")) + 1
    return (order[:n_found], float(shares[n_found - 1])) if n_found <= len(order) else (none, 0.0)
