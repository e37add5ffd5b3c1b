"""How many dimensions data has near each point, by the distances to nearest neighbors, with 95% intervals; and how many
components `n_components="auto"` takes: the estimate by the two nearest neighbors of a sample, rounded.

In d dimensions the number of points within a distance r grows like r^d, as long as the density hardly changes among the
neighbors. T_j is the distance of a point to its j-th nearest neighbor.

two_nearest [Facco et al. 2017]: log(T_2 / T_1) of all points is exponentially distributed with rate d. The largest
tenth is left out, as the paper does, and known only to be larger than the rest: the maximum-likelihood estimate from
the r least of n values x is (r - 1) / (sum of these + (n - r) x_r), which is unbiased, and 2 d times the denominator
follows a chi-square distribution with 2 r degrees of freedom. (The paper fits a line to the same values instead.)

maximum_likelihood [Levina & Bickel 2004]: log(T_k / T_j), j < k, are k - 1 such values of each point. Inverse estimates
are averaged over points, not estimates [MacKay & Ghahramani 2005]. More neighbors make for less noise and reach
farther, where curvature and edges matter: the estimate is lower than the dimension, the more so the higher this is and
the fewer points there are. The interval comes from the spread of the points' means.

Neighborhoods overlap, so points tell less than as many independent ones would: for the intervals, each counts as
1 / OVERLAP. They are about chance only, not about the bias of either estimate.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy

from pipeline.errors import InvalidInputError
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.numerics.statistics import NORMAL_95, Estimate
from pipeline.types import AnyArray, FloatArray, IntArray

KEPT_SHARE = 0.9
LEAST_POINTS = 20
POINTS_PER_BLOCK = 1024
# Variance of an estimate relative to that from neighborhoods that do not overlap: 1.4 to 1.7 for two_nearest, 1.5 to
# 2.1 for maximum_likelihood, seen in samples of 1,000 points of planes and spheres.
OVERLAP = 2.0
# The sample that says how many components there are to be: of so many rows and at most 256 MB, from so many blocks.
AUTOMATIC_ROWS, AUTOMATIC_BYTES = 10_000, 1 << 28
MOST_BLOCKS, BLOCK_ROWS, BLOCK_BYTES = 256, 4096, 1 << 25
# Not the seed of anything else that is drawn.
SAMPLING = 7


class Dimension(NamedTuple):
    """Both estimates, from the distances to the nearest neighbors of so many points."""

    two_nearest: Estimate
    maximum_likelihood: Estimate
    n_points: int


def described_dimension(found: Dimension | None) -> dict[str, Any] | None:
    """As figures of a run are stored."""
    if found is None:
        return None
    two, likelihood, n_points = found
    return {"two_nearest": two._asdict(), "maximum_likelihood": likelihood._asdict(), "n_points": n_points}


def automatic_components(found: Dimension | None, n_rows: int, most: int) -> int:
    """How many components to take for an estimate from a sample of so many rows: the nearest whole number, at least 1
    and no more than `most`. The sample's neighbors are farther apart than those of all rows, so noise weighs less."""
    if found is None:
        raise InvalidInputError(
            f"n_components='auto' needs an estimate of the intrinsic dimension, and {n_rows} rows give none: at least "
            f"{LEAST_POINTS} distinct rows are needed, whose neighbors are not all equally far; use a number."
        )
    return min(most, max(1, math.floor(found.two_nearest.value + 0.5)))


def automatic_rows(n_rows: int, n_columns: int, seed: int) -> IntArray:
    """The rows, rising, of a source of this shape that the automatic number of components is found from."""
    wanted = max(LEAST_POINTS, min(AUTOMATIC_ROWS, AUTOMATIC_BYTES // (8 * n_columns)))
    return spread_rows(n_rows, wanted, rows_per_block(n_columns), seed)


def rows_per_block(n_columns: int) -> int:
    """How many rows of so many columns are read together when a sample is drawn."""
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES // (8 * n_columns)))


def spread_rows(n_rows: int, n_wanted: int, block_rows: int, seed: int) -> IntArray:
    """Rows, rising, drawn from blocks that are spread over all: one at random in each of up to 256 equal parts."""
    rng = np.random.default_rng([SAMPLING, seed])
    n_blocks = min(MOST_BLOCKS, -(-n_rows // block_rows))
    bounds = (np.arange(n_blocks + 1) * n_rows) // n_blocks
    blocks = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        start = first + int(rng.integers(max(1, last - first - block_rows + 1)))
        blocks.append(np.arange(start, min(start + block_rows, last)))
    pool = np.concatenate(blocks)
    return np.sort(rng.choice(pool, min(len(pool), n_wanted), replace=False))


def dimension_of_points(points: AnyArray, n_neighbors: int) -> Dimension | None:
    """Estimate by the nearest neighbors among points (n, D), of which those that repeat count once."""
    distinct = points[collapse_duplicates(points).first_rows]
    k = min(max(2, n_neighbors), len(distinct) - 1)
    return intrinsic_dimension(_nearest_distances(distinct, k)) if k >= 2 else None


def intrinsic_dimension(distances: AnyArray) -> Dimension | None:
    """Estimate by distances (p, k) of points to their k >= 2 nearest, rising. Points at distance 0 of another do not
    count; None if too few are left, or if all neighbors of each are equally far."""
    if distances.ndim != 2 or distances.shape[1] < 2:
        raise InvalidInputError(f"distances has shape {distances.shape}; it must be (n_points, at least 2).")
    usable = np.asarray(distances[distances[:, 0] > 0], dtype=np.float64)
    if len(usable) < LEAST_POINTS:
        return None
    ratios = np.sort(np.log(usable[:, 1] / usable[:, 0]))
    means = np.log(usable[:, -1:] / usable[:, :-1]).mean(axis=1)
    if ratios[_n_kept(len(ratios)) - 1] == 0:
        return None
    return Dimension(_by_ratios(ratios), _by_means(means), len(usable))


def _n_kept(n_points: int) -> int:
    return int(KEPT_SHARE * n_points)


def _by_ratios(ratios: FloatArray) -> Estimate:
    """From the rising log(T_2 / T_1) (p,)."""
    n_kept = _n_kept(len(ratios))
    total = float(ratios[:n_kept].sum() + (len(ratios) - n_kept) * ratios[n_kept - 1])
    low, high = (float(scipy.special.chdtri(2 * n_kept / OVERLAP, 1 - share)) for share in (0.025, 0.975))
    return Estimate((n_kept - 1) / total, low * OVERLAP / (2 * total), high * OVERLAP / (2 * total))


def _by_means(means: FloatArray) -> Estimate:
    """From each point's mean (p,) of log(T_k / T_j)."""
    mean = float(means.mean())
    factor = math.exp(NORMAL_95 * math.sqrt(OVERLAP / len(means)) * float(means.std(ddof=1)) / mean)
    return Estimate(1 / mean, 1 / (mean * factor), factor / mean)


def _nearest_distances(points: AnyArray, n_neighbors: int) -> FloatArray:
    """Distances (n, k) of each of different points (n, D) to its k nearest others, rising."""
    search = NeighborSearch(points)
    out = np.empty((len(points), n_neighbors))
    for first in range(0, len(points), POINTS_PER_BLOCK):
        part = slice(first, first + POINTS_PER_BLOCK)
        out[part] = search.query(points[part], n_neighbors + 1)[0][:, 1:]
    return out
