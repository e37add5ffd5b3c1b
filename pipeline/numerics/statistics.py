"""Quality of an embedding in figures that need no n x n matrix; distributions in little memory; a test for drift.

A sketch counts numbers in bins 1/128 of a power of two wide, the leading bits of a double. Counts of any batches add up
to exactly the same sketch in any order; a quantile read from it is within 0.4% of one of the numbers around it.

The drift test is the two-sample test of Kolmogorov and Smirnov in batches: a column of new rows is counted into the
gaps between the reference values and onto the values themselves. Counts add up, and the greatest difference of the two
distributions follows exactly: only the batch's rises between reference values, so extremes are at or just before them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.neighbors.products import insert
from pipeline.types import AnyArray, FloatArray, IntArray

NORMAL_95 = 1.959963984540054
# Sampled points whose distances to all others are in memory at once.
RANKED_TOGETHER = 64


class Estimate(NamedTuple):
    """A mean over sampled points with its 95% confidence interval."""

    value: float
    low: float
    high: float


def residual_variance(to_landmarks: ArrayLike, coordinates: ArrayLike, landmark_coordinates: ArrayLike) -> FloatArray:
    """1 - r^2 of (p, m) dissimilarities against embedded distances, for the first 1, 2, ..., d components; the elbow
    suggests how many components the data needs."""
    dissimilarities, points, landmarks = _checked_embedding(to_landmarks, coordinates, landmark_coordinates)
    squared = np.zeros(dissimilarities.shape)
    out = np.empty(points.shape[1])
    for k in range(points.shape[1]):
        squared += (points[:, k, None] - landmarks[:, k]) ** 2
        out[k] = 1.0 - _correlation(dissimilarities, np.sqrt(squared)) ** 2
    return out


def normalized_stress(to_landmarks: ArrayLike, coordinates: ArrayLike, landmark_coordinates: ArrayLike) -> float:
    """sqrt(sum (delta - ||y - x||)^2 / sum delta^2) over all pairs of a point and a landmark."""
    dissimilarities, points, landmarks = _checked_embedding(to_landmarks, coordinates, landmark_coordinates)
    if not dissimilarities.any():
        raise InvalidInputError("to_landmarks are all zero; stress relative to them is undefined.")
    misfit = dissimilarities - scipy.spatial.distance.cdist(points, landmarks)
    # No BLAS norm: its bytes depend on the number of threads.
    return float(np.sqrt((misfit**2).sum() / (dissimilarities**2).sum()))


def trustworthiness(
    points: ArrayLike, coordinates: ArrayLike, n_neighbors: int, sample_size: int = 1000, seed: int = 0
) -> Estimate:
    """How few of a point's neighbors in the embedding are far in the data, on a sample of points (1 is best)."""
    original, embedded = _checked_pair(points, coordinates)
    return _rank_agreement(original, embedded, n_neighbors, sample_size, seed)


def continuity(
    points: ArrayLike, coordinates: ArrayLike, n_neighbors: int, sample_size: int = 1000, seed: int = 0
) -> Estimate:
    """How few of a point's neighbors in the data are far in the embedding, on a sample of points (1 is best)."""
    original, embedded = _checked_pair(points, coordinates)
    return _rank_agreement(embedded, original, n_neighbors, sample_size, seed)


def neighbor_recall(found: IntArray, exact: IntArray) -> float:
    """Share of the exact neighbors (p, k) that an approximate search found."""
    if found.shape != exact.shape or exact.ndim != 2 or exact.size == 0:
        raise InvalidInputError(
            f"found has shape {found.shape} and exact {exact.shape}; both must be the same (n_points, n_neighbors)."
        )
    hits = sum(len(np.intersect1d(a, b)) for a, b in zip(found, exact, strict=True))
    return hits / exact.size


def _checked_embedding(
    to_landmarks: ArrayLike, coordinates: ArrayLike, landmark_coordinates: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    dissimilarities = _checked("to_landmarks", to_landmarks)
    points = _checked("coordinates", coordinates)
    landmarks = _checked("landmark_coordinates", landmark_coordinates)
    expected = (len(points), len(landmarks))
    if dissimilarities.shape != expected or points.shape[1] != landmarks.shape[1]:
        raise InvalidInputError(
            f"to_landmarks has shape {dissimilarities.shape}, coordinates {points.shape} and landmark_coordinates "
            f"{landmarks.shape}; they must be (p, m), (p, d) and (m, d)."
        )
    return dissimilarities, points, landmarks


def _checked(name: str, values: ArrayLike) -> FloatArray:
    array = checks.finite_array(name, values, 2)
    checks.require_not_too_large(name, array)
    return array.astype(np.float64)


def _checked_pair(points: ArrayLike, coordinates: ArrayLike) -> tuple[FloatArray, FloatArray]:
    original, embedded = _checked("points", points), _checked("coordinates", coordinates)
    if len(original) != len(embedded):
        raise InvalidInputError(
            f"points has {len(original)} rows and coordinates {len(embedded)}; they must be the same points."
        )
    return original, embedded


def _correlation(a: FloatArray, b: FloatArray) -> float:
    a, b = a - a.mean(), b - b.mean()
    sizes = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / sizes) if sizes > 0 else 0.0


def _rank_agreement(truth: FloatArray, seen: FloatArray, n_neighbors: int, sample_size: int, seed: int) -> Estimate:
    """1 minus the normalized excess of the ranks in `truth` of each sampled point's k nearest in `seen`."""
    n = len(truth)
    k = checks.integer_in_range("n_neighbors", n_neighbors, 1, (n - 1) // 2, f"fewer than half of the {n} points")
    size = min(n, checks.integer_in_range("sample_size", sample_size, 2, None, "an interval needs two points"))
    sample = np.sort(np.random.default_rng(seed).choice(n, size, replace=False))
    distance = scipy.spatial.distance
    excess = np.concatenate(
        [
            _excess_ranks(distance.cdist(truth[rows], truth), distance.cdist(seen[rows], seen), rows, k)
            for rows in np.split(sample, range(RANKED_TOGETHER, size, RANKED_TOGETHER))
        ]
    )
    scores = 1.0 - excess * (2.0 / (k * (2 * n - 3 * k - 1)))
    # Finite-population correction: no uncertainty is left if all points were sampled.
    spread = float(scores.std(ddof=1)) / np.sqrt(size) * np.sqrt((n - size) / max(n - 1, 1))
    value = float(scores.mean())
    return Estimate(value, max(0.0, value - NORMAL_95 * spread), min(1.0, value + NORMAL_95 * spread))


@compiled
def _excess_ranks(in_truth: AnyArray, in_view: AnyArray, rows: AnyArray, k: int) -> IntArray:
    """By how much, in sum, the ranks in truth of a point's k nearest in view exceed k; ties go to the lower place."""
    excess = np.empty(len(rows), dtype=np.int64)
    nearest, apart, ranks = np.empty(k, np.int64), np.empty(k), np.empty(k, np.int64)
    for i in range(len(rows)):
        apart[:] = np.inf
        for j in range(in_view.shape[1]):
            if j != rows[i] and in_view[i, j] < apart[k - 1]:
                insert(apart, nearest, in_view[i, j], j)
        ranks[:] = 1
        for j in range(in_truth.shape[1]):
            if j == rows[i]:
                continue
            for t in range(k):
                value = in_truth[i, nearest[t]]
                ranks[t] += in_truth[i, j] < value or (in_truth[i, j] == value and j < nearest[t])
        excess[i] = np.maximum(ranks - k, 0).sum()
    return excess


Measure = Callable[[FloatArray, FloatArray], float]
# Nearest points whose loss is counted.
NEIGHBORHOOD = 10
# An error is as good as the best if it exceeds it by at most this share, or by an amount that nobody would see.
TOLERANCE, NEGLIGIBLE = 0.05, 0.001
# Costs that differ by at most this share are about the same.
ABOUT = 0.1


class MeanError(NamedTuple):
    """The mean of repeated measurements and its standard error."""

    value: float
    standard_error: float

    @property
    def bound(self) -> float:
        """The mean plus one standard error: what is only good by luck should not win."""
        return self.value + self.standard_error


def unexplained_variance(true: FloatArray, coordinates: FloatArray) -> float:
    """1 - r^2 of dissimilarities (p, p) against distances between coordinates (p, d); 1 unless they rise together."""
    return _unexplained(*_pairs(true, coordinates))


def unexplained_order(true: FloatArray, coordinates: FloatArray) -> float:
    """1 - r^2 of the ranks of dissimilarities (p, p) and of distances between coordinates (p, d)."""
    return _unexplained(*map(scipy.stats.rankdata, _pairs(true, coordinates)))


def lost_neighbors(true: FloatArray, coordinates: FloatArray) -> float:
    """Share of each point's 10 nearest that are not among its 10 nearest by coordinates."""
    apart, embedded = map(scipy.spatial.distance.squareform, _pairs(true, coordinates))
    k = min(NEIGHBORHOOD, len(apart) - 1)
    return 1.0 - neighbor_recall(_nearest(embedded, k), _nearest(apart, k))


# Measures that are fair to methods that do not reproduce distances.
_MEASURES: dict[str, Measure] = {
    "nonmetric-mds": unexplained_order,
    **dict.fromkeys(("laplacian", "spectral", "lle"), lost_neighbors),
}


def measure_of(method: str) -> Measure:
    """The measure that is fair to a method."""
    return _MEASURES.get(method, unexplained_variance)


def estimated(errors: Sequence[float]) -> MeanError:
    """The mean of errors of several repeats; the standard error of a single one is unknown and counts as 0."""
    values = np.asarray(errors, dtype=np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return MeanError(float(values.mean()), spread / float(np.sqrt(len(values))))


def good_enough(least: float) -> float:
    """The largest error that is as good as the least."""
    return least + max(TOLERANCE * least, NEGLIGIBLE)


def recommended(estimates: Sequence[MeanError], costs: Sequence[float]) -> int:
    """The place of the cheapest of those as good as the best; of several that cost about the same, the best."""
    bounds, price = np.array([estimate.bound for estimate in estimates]), np.asarray(costs, dtype=np.float64)
    close = bounds <= good_enough(float(bounds.min()))
    affordable = close & (price <= (1 + ABOUT) * price[close].min())
    return min(np.flatnonzero(affordable).tolist(), key=lambda place: (bounds[place], price[place]))


def _pairs(true: FloatArray, coordinates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """True and embedded distances (p (p - 1) / 2,) of the pairs of points."""
    apart, points = checks.finite_array("true", true, 2), checks.finite_array("coordinates", coordinates, 2)
    if apart.shape != (len(points), len(points)) or len(points) < 3:
        raise InvalidInputError(
            f"true has shape {apart.shape} and coordinates {points.shape}; they must be (p, p) and (p, d), p > 2."
        )
    distance = scipy.spatial.distance
    return distance.squareform(apart.astype(np.float64), checks=False), distance.pdist(points)


def _unexplained(true: FloatArray, embedded: FloatArray) -> float:
    return 1.0 - max(0.0, min(1.0, _correlation(true, embedded))) ** 2


def _nearest(apart: FloatArray, k: int) -> IntArray:
    """The k nearest others (p, k) of each point; ties go to the lower place."""
    without_itself = apart.copy()
    np.fill_diagonal(without_itself, np.inf)
    return np.argsort(without_itself, axis=1, kind="stable")[:, :k]


# Bits of a double's 52-bit fraction that a bin's number leaves out.
DROPPED_BITS = 45
MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)


class Sketch(NamedTuple):
    """Bins (b,), rising, and how many numbers (b,) fell into each."""

    bins: IntArray
    counts: IntArray


def sketch(values: FloatArray, weights: IntArray) -> Sketch:
    """The sketch of finite numbers, each counted `weights` times."""
    # Integers in the same order as the doubles; adding 0 makes -0 and +0 the same.
    ordered = _flipped((np.asarray(values, dtype=np.float64) + 0.0).view(np.int64))
    return _added(ordered >> DROPPED_BITS, weights)


def merged(sketches: list[Sketch]) -> Sketch:
    """The sketch of all the numbers together."""
    return _added(np.concatenate([s.bins for s in sketches]), np.concatenate([s.counts for s in sketches]))


def quantiles(of: Sketch, shares: FloatArray) -> FloatArray:
    """For each share, the number that this share of all numbers does not exceed."""
    reached = np.cumsum(of.counts)
    places = np.searchsorted(reached, np.asarray(shares) * reached[-1])
    bins = of.bins[np.minimum(places, len(of.bins) - 1)]
    middle = _flipped((bins << DROPPED_BITS) + (1 << (DROPPED_BITS - 1))).view(np.float64)
    # The bin that holds 0 reaches up to the least normal double.
    return np.asarray(np.where(bins == 0, 0.0, middle))


def _added(bins: IntArray, counts: IntArray) -> Sketch:
    # There are at most 2^19 bins, few enough to count in an array.
    low = int(bins.min(initial=0))
    total = np.zeros(int(bins.max(initial=0)) - low + 1, dtype=np.int64)
    np.add.at(total, bins - low, counts)
    hit = np.flatnonzero(total)
    return Sketch(hit + low, total[hit])


def _flipped(bits: AnyArray) -> IntArray:
    """Reverse the order of negative doubles, whose bits grow with their size; its own inverse."""
    return np.asarray(np.where(bits < 0, bits ^ MAGNITUDE, bits))


FAR_SHARE = 0.99
# With more values in both samples, the least p-value is negligible.
FEW = 20


class TwoSampleTest(NamedTuple):
    """The greatest difference between two distributions, and the probability of as much by chance."""

    statistic: float
    p_value: float


def gap_counts(reference: FloatArray, values: FloatArray, weights: IntArray) -> IntArray:
    """How many values, each counted `weights` times, are below, at and between the rising reference values (s,).
    Returns (2 s + 1,): below the first, at it, between it and the second, and so on; 0 for repeated ones."""
    left = np.searchsorted(reference, values, side="left")
    at = (left < len(reference)) & (reference[np.minimum(left, len(reference) - 1)] == values)
    return np.bincount(2 * left + at, weights=weights, minlength=2 * len(reference) + 1).astype(np.int64)


def largest_gap(reference: FloatArray, counts: IntArray) -> float:
    """The two-sample Kolmogorov-Smirnov statistic of a batch, given by its `gap_counts`; 0 for an empty batch."""
    n_batch, n_reference = int(counts.sum()), len(reference)
    if not n_batch:
        return 0.0
    reached = np.cumsum(counts) / n_batch
    # The batch's counts are at the first of equal reference values.
    first = np.unique(reference, return_index=True)[1]
    at, before = reached[2 * first + 1], reached[2 * first]
    up_to = np.append(first[1:], n_reference) / n_reference
    return float(max(np.abs(at - up_to).max(), np.abs(before - first / n_reference).max()))


def two_sample_test(reference: FloatArray, counts: IntArray, margin: float = 0.0) -> TwoSampleTest:
    """Test a batch as in `largest_gap`. Distributions that differ by up to `margin` count as the same; otherwise
    meaningless differences would be significant in a large batch."""
    n_batch, n_reference = int(counts.sum()), len(reference)
    if not n_batch:
        return TwoSampleTest(0.0, 1.0)
    statistic = largest_gap(reference, counts)
    effective = max(1, round(n_batch * n_reference / (n_batch + n_reference)))
    beyond = float(scipy.stats.kstwo.sf(max(0.0, statistic - margin), effective))
    # The probability that one sample lies wholly beyond the other by chance; not small for a few values.
    fewer = min(n_batch, n_reference)
    least = 2.0 / math.comb(n_batch + n_reference, fewer) if fewer <= FEW else 0.0
    return TwoSampleTest(statistic, min(1.0, max(beyond, least)))


def compared(
    references: Mapping[str, FloatArray], counts: Mapping[str, IntArray], margins: Mapping[str, float], level: float
) -> dict[str, Any]:
    """Test every column of a batch, given by `gap_counts`, against its reference values; the batch drifts if any column
    does. `level` is the false-alarm rate of all columns together."""
    columns = {}
    for name, found in counts.items():
        reference = references[name]
        test = two_sample_test(reference, found, margins[name])
        far = int(np.searchsorted(reference, np.quantile(reference, FAR_SHARE), side="right"))
        beyond = float(found[2 * far :].sum() / max(1, found.sum()))
        drifts = bool(test.p_value < level / len(counts))
        columns[name] = {**test._asdict(), "margin": margins[name], "share_beyond_99": beyond, "drifts": drifts}
    return {"level": level, "columns": columns, "drifts": any(entry["drifts"] for entry in columns.values())}


def ranks_of(columns: Iterable[str]) -> tuple[str, ...]:
    """Names of the columns that say where trust columns rank among those of the training rows."""
    return tuple(f"{name}_rank" for name in columns)


def ranks_among(calibration: Mapping[str, FloatArray], trust: FloatArray) -> FloatArray:
    """For each trust column, the share of rows like the training rows that do not exceed it."""
    ranks = np.empty_like(trust)
    for i, reference in enumerate(calibration.values()):
        ranks[:, i] = np.searchsorted(reference, trust[:, i], side="right") / len(reference)
    ranks[np.isnan(trust)] = np.nan
    return ranks
