"""Small linear systems in compiled loops: positive definite ones with a condition estimate, and any by elimination.

A neighborhood of 200 nodes is too small for LAPACK's blocks to pay, and these loops need no lock, no thread limit and
no exception for a singular matrix. The factor is upper triangular, A = U'U, so that everything runs along rows.
"""

import math

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray

# A pivot below this share of the largest diagonal entry is rounding.
LEAST_PIVOT = 1e-14
# Rows and columns mirrored at once: a line of the cache.
TILE = 8


@compiled
def add_rows(target: AnyArray, factor: float, coefficients: AnyArray, rows: AnyArray, first: int) -> None:
    """target += factor * coefficients (r,) @ rows[:r, first:], four rows at a time to save passes, added in order."""
    n_rows, width = len(coefficients), len(target)
    together = n_rows - n_rows % 4
    for s in range(0, together, 4):
        a, b = factor * coefficients[s], factor * coefficients[s + 1]
        c, d = factor * coefficients[s + 2], factor * coefficients[s + 3]
        row_a, row_b = rows[s, first : first + width], rows[s + 1, first : first + width]
        row_c, row_d = rows[s + 2, first : first + width], rows[s + 3, first : first + width]
        for i in range(width):
            target[i] = target[i] + a * row_a[i] + b * row_b[i] + c * row_c[i] + d * row_d[i]
    for s in range(together, n_rows):
        a, row_a = factor * coefficients[s], rows[s, first : first + width]
        for i in range(width):
            target[i] += a * row_a[i]


@compiled
def add_rows_to_both(
    target: AnyArray,
    other: AnyArray,
    factor: float,
    coefficients: AnyArray,
    others: AnyArray,
    rows: AnyArray,
    first: int,
) -> None:
    """`add_rows` to two targets of the same width, with the same bits: each row is read once for both."""
    n_rows, width = len(coefficients), len(target)
    together = n_rows - n_rows % 4
    for s in range(0, together, 4):
        a, b = factor * coefficients[s], factor * coefficients[s + 1]
        c, d = factor * coefficients[s + 2], factor * coefficients[s + 3]
        e, f, g, h = factor * others[s], factor * others[s + 1], factor * others[s + 2], factor * others[s + 3]
        row_a, row_b = rows[s, first : first + width], rows[s + 1, first : first + width]
        row_c, row_d = rows[s + 2, first : first + width], rows[s + 3, first : first + width]
        for i in range(width):
            target[i] = target[i] + a * row_a[i] + b * row_b[i] + c * row_c[i] + d * row_d[i]
            other[i] = other[i] + e * row_a[i] + f * row_b[i] + g * row_c[i] + h * row_d[i]
    for s in range(together, n_rows):
        a, e, row_a = factor * coefficients[s], factor * others[s], rows[s, first : first + width]
        for i in range(width):
            target[i] += a * row_a[i]
            other[i] += e * row_a[i]


@compiled
def inner_product(a: AnyArray, b: AnyArray) -> float:
    """Four interleaved sums, whose additions need not wait for each other."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    together = len(a) - len(a) % 4
    for i in range(0, together, 4):
        first += a[i] * b[i]
        second += a[i + 1] * b[i + 1]
        third += a[i + 2] * b[i + 2]
        fourth += a[i + 3] * b[i + 3]
    for i in range(together, len(a)):
        first += a[i] * b[i]
    return (first + second) + (third + fourth)


@compiled
def mirror(matrix: AnyArray, n: int) -> None:
    """Fill in the lower half of the leading (n, n), tile by tile, as columns are far apart in memory."""
    for first in range(0, n, TILE):
        for second in range(0, first + 1, TILE):
            for i in range(first, min(first + TILE, n)):
                for j in range(second, min(second + TILE, i)):
                    matrix[i, j] = matrix[j, i]


@compiled
def has_factor(matrix: AnyArray, n: int, added: float, factor: AnyArray) -> bool:
    """Fill in U with U'U = A + added I, A the leading (n, n) of a matrix whose upper half is given; False if it has
    none. Two rows at a time. The lower half of U is left undefined."""
    least = 0.0
    for j in range(n):
        least = max(least, LEAST_PIVOT * matrix[j, j])
    for first in range(0, n, 2):
        last = min(first + 2, n)
        for j in range(first, last):
            row, given = factor[j, first:n], matrix[j, first:n]
            for i in range(len(row)):
                row[i] = given[i]
            factor[j, j] += added
        row, rows = factor[first, first:n], factor[:first]
        if last - first == 2:
            other = factor[first + 1, first:n]
            add_rows_to_both(row, other, -1.0, rows[:, first], rows[:, first + 1], rows, first)
        else:
            add_rows(row, -1.0, rows[:, first], rows, first)
        if not _are_finished(factor, n, first, last, least):
            return False
    return True


@compiled
def _are_finished(factor: AnyArray, n: int, first: int, last: int, least: float) -> bool:
    """Finish rows from which all before `first` are subtracted; return whether their pivots are above the least."""
    for j in range(first, last):
        row = factor[j, j:n]
        add_rows(row, -1.0, factor[first:j, j], factor[first:j], j)
        if not row[0] > least:
            return False
        inverse = 1.0 / math.sqrt(row[0])
        for i in range(len(row)):
            row[i] *= inverse
    return True


@compiled
def solve(factor: AnyArray, vector: AnyArray) -> None:
    """Replace b (n,) by the solution x of U'U x = b."""
    n = len(vector)
    for j in range(n):
        vector[j] /= factor[j, j]
        value, rest, row = vector[j], vector[j + 1 :], factor[j, j + 1 : n]
        for i in range(len(rest)):
            rest[i] -= value * row[i]
    for j in range(n - 1, -1, -1):
        vector[j] = (vector[j] - inner_product(factor[j, j + 1 : n], vector[j + 1 :])) / factor[j, j]


@compiled
def norm_of_inverse(factor: AnyArray, x: AnyArray, y: AnyArray) -> float:
    """|A^-1| in the 1-norm from U'U = A by Hager's estimate: never too high, seldom below a third. x and y (n,) are
    workspace.

    From A^-1 x at one corner of the unit ball, that of the least pivot, it moves to the corner of fastest growth.
    """
    least = 0
    for j in range(1, len(x)):
        if factor[j, j] < factor[least, least]:
            least = j
    x[:] = 0.0
    x[least] = 1.0
    solve(factor, x)
    estimate = _sum_of_sizes(x)
    for i in range(len(x)):
        y[i] = 1.0 if x[i] >= 0.0 else -1.0
    solve(factor, y)
    x[:] = 0.0
    x[place_of_largest(y)] = 1.0
    solve(factor, x)
    return max(estimate, _sum_of_sizes(x))


@compiled
def norm_of(matrix: AnyArray, sums: AnyArray) -> float:
    """The 1-norm of the leading (n, n), the largest absolute column sum; sums (n,) is workspace."""
    sums[:] = 0.0
    for j in range(len(sums)):
        row = matrix[j, : len(sums)]
        for i in range(len(sums)):
            sums[i] += abs(row[i])
    return float(sums[place_of_largest(sums)])


@compiled
def _sum_of_sizes(values: AnyArray) -> float:
    even, odd = 0.0, 0.0
    for i in range(0, len(values) - 1, 2):
        even += abs(values[i])
        odd += abs(values[i + 1])
    return even + odd + (abs(values[-1]) if len(values) % 2 == 1 else 0.0)


@compiled
def place_of_largest(values: AnyArray) -> int:
    """The first place of the largest absolute value."""
    place = 0
    for i in range(1, len(values)):
        if abs(values[i]) > abs(values[place]):
            place = i
    return place


@compiled
def is_eliminated(matrix: AnyArray, rows: AnyArray) -> bool:
    """Replace (n, n) by L and U with LU its rows in the order `rows` (n,); return whether all pivots are usable."""
    n = len(rows)
    for c in range(n):
        rows[c] = c
    for c in range(n):
        pivot = c + place_of_largest(matrix[c:n, c])
        if not 0.0 < abs(matrix[pivot, c]) < math.inf:
            return False
        if pivot != c:
            rows[c], rows[pivot] = rows[pivot], rows[c]
            for j in range(n):
                matrix[c, j], matrix[pivot, j] = matrix[pivot, j], matrix[c, j]
        row = matrix[c, c + 1 : n]
        for i in range(c + 1, n):
            factor, other = matrix[i, c] / matrix[c, c], matrix[i, c + 1 : n]
            matrix[i, c] = factor
            for j in range(len(row)):
                other[j] -= factor * row[j]
    return True


@compiled
def solve_eliminated(matrix: AnyArray, rows: AnyArray, right_side: AnyArray) -> AnyArray:
    """The solution (n,) for a right side (n,), after `is_eliminated`."""
    n, solution = len(rows), np.empty(len(rows))
    for i in range(n):
        solution[i] = right_side[rows[i]] - inner_product(matrix[i, :i], solution[:i])
    for i in range(n - 1, -1, -1):
        rest = inner_product(matrix[i, i + 1 : n], solution[i + 1 :])
        solution[i] = (solution[i] - rest) / matrix[i, i]
    return solution
