"""How well distances in an embedding agree with those it was made from, over pairs of a few points and many.

Each of the few (sources) is seen from all the others (targets). Intervals are by the jackknife: figures without one
source at a time say how much hangs on which were drawn, on a logarithmic scale, by Student's t.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy

from pipeline.numerics.compiled import LANES
from pipeline.numerics.statistics import Estimate
from pipeline.types import FloatArray

# A figure (...) of sums (..., t).
Figure: TypeAlias = Callable[[FloatArray], FloatArray]
# Figures are not told apart below this.
LEAST = 1e-15
TWO_SIDED_95 = 0.975
# Degrees of freedom that are not counted: with one, intervals of few sources held 90.5% of what they said on digits.
LOST = 3


# Landmarks for each point that paths are followed from, and batches of points at most. Few points are far apart, and
# searching from each takes up to three times as long as from a landmark among many.
LANDMARKS_EACH, MOST_BATCHES = 60, 8


def n_sources_along_paths(n_landmarks: int) -> int:
    """How many points paths are followed from, a batch at least."""
    return LANES * max(1, min(MOST_BATCHES, n_landmarks // (LANDMARKS_EACH * LANES)))


class Pairs(NamedTuple):
    """Dissimilarities (s, p) of s sources to p targets, and the coordinates of both: (s, d) and (p, d). `n_points` are
    all that sources were drawn from."""

    lengths: FloatArray
    of_sources: FloatArray
    of_targets: FloatArray
    n_points: int


def residual_variances(pairs: Pairs) -> list[Estimate]:
    """1 - r^2 between dissimilarities and embedded distances, with the first 1, 2, ..., d components."""
    squared, found = np.zeros(pairs.lengths.shape), []
    known = pairs.lengths - pairs.lengths.mean()
    for own, others in zip(pairs.of_sources.T, pairs.of_targets.T, strict=True):
        squared += (own[:, None] - others) ** 2
        found.append(_estimated(_unexplained, _correlation_sums(known, np.sqrt(squared)), pairs.n_points, most=1.0))
    return found


def stress(pairs: Pairs) -> Estimate:
    """sqrt(sum (delta - ||y - x||)^2 / sum delta^2)."""
    misfit = pairs.lengths - scipy.spatial.distance.cdist(pairs.of_sources, pairs.of_targets)
    sums = np.stack([(misfit**2).sum(axis=1), (pairs.lengths**2).sum(axis=1)], axis=1)
    return _estimated(lambda total: np.sqrt(total[..., 0] / np.maximum(total[..., 1], LEAST)), sums, pairs.n_points)


def _correlation_sums(x: FloatArray, y: FloatArray) -> FloatArray:
    """What a correlation is made of, (s, 6), for each source."""
    y = y - y.mean()
    columns = [np.full(len(x), float(x.shape[1])), *(part.sum(axis=1) for part in (x, y, x * x, y * y, x * y))]
    return np.stack(columns, axis=1)


def _unexplained(sums: FloatArray) -> FloatArray:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    sizes = np.maximum(xx - x * x / n, 0.0) * np.maximum(yy - y * y / n, 0.0)
    shared = (xy - x * y / n) ** 2
    return np.clip(1.0 - np.where(sizes > 0, shared / np.where(sizes > 0, sizes, 1.0), 0.0), 0.0, 1.0)


def _estimated(figure: Figure, sums: FloatArray, n_points: int, most: float = np.inf) -> Estimate:
    """A figure of sums over all sources, `most` at most, with its interval."""
    total, n_sources = sums.sum(axis=0), len(sums)
    value = float(figure(total))
    if n_sources < 2:
        return Estimate(value, 0.0, most)
    without = np.log(np.maximum(figure(total - sums), LEAST))
    # No uncertainty is left if all points were seen from.
    spread = np.sqrt((n_sources - 1) / n_sources * ((without - without.mean()) ** 2).sum())
    spread *= np.sqrt(max(0.0, 1.0 - n_sources / n_points))
    away = float(np.exp(scipy.special.stdtrit(max(1, n_sources - LOST), TWO_SIDED_95) * spread))
    return Estimate(value, value / away, min(most, value * away))
