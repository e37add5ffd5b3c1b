"""Preprocessing of rows: an exact scale, centering, standardization and principal axes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, FloatArray


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """rows -> ((rows 2^-exponent - center) / spread) axes, in `dtype`; each of the last three steps is optional.
    Scaling by a power of two is exact and keeps every square within range."""

    exponent: int
    dtype: np.dtype[Any]
    center: FloatArray | None = None
    spread: FloatArray | None = None
    axes: FloatArray | None = None

    @property
    def result_exponent(self) -> int:
        """The power of two that takes results back to the user's units; 0 for standardized data."""
        return self.exponent if self.spread is None else 0

    def apply(self, rows: AnyArray) -> AnyArray:
        values: AnyArray = np.ldexp(rows.astype(self.dtype), -self.exponent)
        if self.center is None:
            return values
        values = values - self.center
        if self.spread is not None:
            values /= self.spread
        if self.axes is not None:
            values = fixed_order_product(values, self.axes)
        return values.astype(self.dtype)


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
