"""Landmark choices by name, the built-in ones and those of plugins: k-means, trace-greedy, randomly pivoted Cholesky.

| kind     | by points                          | by dissimilarities                    |
|----------|------------------------------------|---------------------------------------|
| kmeans   | points nearest to the centers      | medoids for squared dissimilarities   |
| trace    | greedy on the centered Gram matrix | the same, double-centered [E eq. 24]  |
| cholesky | pivots on exp(-gamma d^2)          | the same                              |
| maxmin   | `landmarks.sampling`               | each the farthest from those before   |

Medoids for squared dissimilarities are the k-means centers snapped to points: a mean has the least sum of squared
distances. Randomly pivoted Cholesky draws each pivot in proportion to what is left of the kernel's diagonal.

All choose among a seeded sample of candidates; duplicates count once while others are left. A choice that ends early
(coinciding centers, an exhausted kernel: the Gram matrix of points in D dimensions has rank D) continues with the
farthest from those chosen, so the number asked for is always met. The result does not depend on threads.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.methods import GAMMA_RANGE
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.geodesics.rows import farthest_nodes
from pipeline.numerics.geodesics.shortest_paths import PathGraph
from pipeline.numerics.landmarks.sampling import checked_count, farthest_points, maxmin_candidates, random_landmarks
from pipeline.numerics.landmarks.subset import trace_greedy
from pipeline.numerics.mds import double_centered
from pipeline.numerics.models.metrics import gamma_in_unit
from pipeline.numerics.neighbors.exact import nearest_neighbors
from pipeline.numerics.neighbors.spatial import kmeans
from pipeline.plugins import LOADED
from pipeline.types import AnyArray, FloatArray, IntArray

KINDS = ("kmeans", "trace", "cholesky")
KINDS_BY_DISSIMILARITIES = ("maxmin", *KINDS)
# Candidates for `trace`: their Gram matrix takes 128 MB, the choice five times that. More landmarks than this are
# chosen among that many candidates.
TRACE_CANDIDATES = 4000
# Entries of a Cholesky factor: 256 MB; at least two candidates per landmark.
FACTOR_ENTRIES = 1 << 25
# Entries of a sample for k-means: 256 MB in single precision.
SAMPLE_ENTRIES = 1 << 26
ITERATIONS = 12
# A center takes the first free one of this many nearest points.
SNAPPED_TO = 8
# A residual of the kernel's diagonal, which is 1, below this is rounding.
EXHAUSTED = 1e-10
# Candidates sampled for the automatic width.
WIDTH_SAMPLE = 64

# From the place of a candidate to squared dissimilarities (c,) of all candidates to it.
Column = Callable[[int], FloatArray]


def choose_rows(kind: str, points: ArrayLike, n_landmarks: int, seed: int, gamma: float | None = None) -> IntArray:
    """Rows of landmarks among points (n, D) by one of KINDS; for `cholesky`, gamma is by default `automatic_gamma`."""
    array = _checked_points(points)
    rows = candidate_rows(kind, len(array), array.shape[1], n_landmarks, seed)
    return np.asarray(rows[choose_by_points(kind, array[rows], n_landmarks, seed, gamma)])


def candidate_rows(kind: str, n_points: int, n_columns: int, n_landmarks: int, seed: int) -> IntArray:
    """The rows, rising, of candidates for `choose_by_points`: 50 per landmark, or as many as fit in memory."""
    rows, _ = maxmin_candidates(n_points, n_landmarks, seed)
    limits = {
        "kmeans": max(2 * n_landmarks, SAMPLE_ENTRIES // n_columns),
        "trace": max(n_landmarks, TRACE_CANDIDATES),
        "cholesky": max(2 * n_landmarks, FACTOR_ENTRIES // n_landmarks),
    }
    limit = limits[checks.one_of("kind", kind, KINDS)]
    if len(rows) > limit:
        rows = np.sort(_generator(seed).choice(rows, limit, replace=False))
    return rows


def choose_by_points(kind: str, points: ArrayLike, n_landmarks: int, seed: int, gamma: float | None = None) -> IntArray:
    """Places (m,) of landmarks among candidates (c, D)."""
    checks.one_of("kind", kind, KINDS)
    array = _checked_points(points)
    m = checked_count(len(array), n_landmarks)
    distinct = collapse_duplicates(array).first_rows
    if m >= len(distinct):
        return _with_duplicates(distinct, len(array), m)
    exponent = _exponent(array)
    candidates = np.ascontiguousarray(np.ldexp(array[distinct], -exponent))
    column = partial(_squared_from, candidates)
    if kind == "kmeans":
        chosen = _nearest_to_centers(candidates, candidates[_spread(column, len(candidates), m, seed)])
    elif kind == "trace":
        centered = candidates - candidates.mean(axis=0, dtype=np.float64)
        with threadpool_limits(1, "blas"):
            gram = centered @ centered.T
        chosen = trace_greedy(gram, m)
    else:
        chosen = _pivots(column, len(candidates), m, seed, gamma, exponent)
    return np.asarray(distinct[_continued(column, len(candidates), chosen, m)])


def choose_by_dissimilarities(
    kind: str, between: ArrayLike, n_landmarks: int, seed: int, gamma: float | None = None
) -> IntArray:
    """Places (m,) of landmarks among candidates, by the dissimilarities (c, c), not squared, between them."""
    checks.one_of("kind", kind, KINDS_BY_DISSIMILARITIES)
    apart = checks.squared_dissimilarity_matrix("between", between)
    n, m = len(apart), checked_count(len(apart), n_landmarks)
    exponent = _exponent(apart)
    squared = np.ldexp(apart, -exponent) ** 2
    distinct = np.flatnonzero(np.argmax(squared == 0, axis=1) == np.arange(n))
    if m >= len(distinct):
        return _with_duplicates(distinct, n, m)
    squared = squared[np.ix_(distinct, distinct)]
    column = squared.__getitem__
    if kind == "maxmin":
        chosen = np.array([_generator(seed).integers(len(distinct))])
    elif kind == "kmeans":
        chosen = _medoids(squared, m, seed)
    elif kind == "trace":
        chosen = trace_greedy(double_centered(squared), m)
    else:
        chosen = _pivots(column, len(squared), m, seed, gamma, exponent)
    return np.asarray(distinct[_continued(column, len(squared), chosen, m)])


def automatic_gamma(column: Column, n_candidates: int, n_landmarks: int) -> float:
    """1 / (2 s^2), s twice the median radius of a ball around a candidate that holds a landmark's share of all. Kernels
    half as wide hardly overlap, and their pivots cover the data little better than chance."""
    share = min(n_candidates - 1, -(-n_candidates // n_landmarks))
    step = -(-n_candidates // WIDTH_SAMPLE)
    squared = [np.partition(column(place), share)[share] for place in range(0, n_candidates, step)]
    return float(0.125 / max(np.median(squared), 1 / GAMMA_RANGE[1]))


def _checked_points(points: ArrayLike) -> AnyArray:
    array = checks.finite_array("points", points, 2)
    checks.require_squarable("points", array)
    return array


def _generator(seed: int) -> np.random.Generator:
    """A generator that draws differently from the one that drew the candidates."""
    return checks.generator(seed, 1)


def _exponent(array: AnyArray) -> int:
    """Exponent of the power of two near the largest number: in that unit no square or cube overflows."""
    return int(np.frexp(np.abs(array).max())[1])


def _with_duplicates(distinct: IntArray, n_candidates: int, n_landmarks: int) -> IntArray:
    """All distinct candidates, then the first of the others."""
    others = np.setdiff1d(np.arange(n_candidates), distinct)
    return np.concatenate([distinct, others])[:n_landmarks].astype(np.int64)


def _continued(column: Column, n_candidates: int, chosen: IntArray, n_landmarks: int) -> IntArray:
    """The chosen, followed by the farthest from all before, as often as needed; ties go to the lower place."""
    if len(chosen) == n_landmarks:
        return chosen
    nearest = np.full(n_candidates, np.inf)
    places = chosen.tolist()
    for i in range(n_landmarks):
        if i == len(places):
            places.append(int(nearest.argmax()))
        np.minimum(nearest, column(places[i]), out=nearest)
        nearest[places[i]] = -1.0
    return np.array(places, dtype=np.int64)


def _nearest_to_centers(points: AnyArray, start: AnyArray) -> IntArray:
    """For the center of every cluster the nearest candidate that is not taken yet; none if all near ones are taken.
    k-means starts from given centers (m, D)."""
    offset = points.mean(axis=0, dtype=np.float64)
    sample, first = (np.ascontiguousarray(array - offset, dtype=np.float32) for array in (points, start))
    centers = kmeans(sample, len(start), ITERATIONS, start=first) + offset
    _, nearest = nearest_neighbors(points, centers, min(len(points), SNAPPED_TO))
    taken: dict[int, None] = {}
    for places in nearest.tolist():
        free = next((place for place in places if place not in taken), None)
        if free is not None:
            taken[free] = None
    return np.array(list(taken), dtype=np.int64)


def _medoids(squared: FloatArray, n_landmarks: int, seed: int) -> IntArray:
    """Alternate between clusters around medoids and medoids of clusters, starting from `_spread`."""
    medoids = _spread(squared.__getitem__, len(squared), n_landmarks, seed)
    for _ in range(ITERATIONS):
        cluster_of = np.argmin(squared[medoids], axis=0)
        before = medoids.copy()
        for c in range(len(medoids)):
            members = np.flatnonzero(cluster_of == c)
            medoids[c] = members[np.argmin(squared[np.ix_(members, members)].sum(axis=1))]
        if (medoids == before).all():
            break
    return medoids


def _spread(column: Column, n_candidates: int, n_landmarks: int, seed: int) -> IntArray:
    """Places drawn in turn with probability proportional to the squared distance to those before."""
    rng = _generator(seed)
    places = [int(rng.integers(n_candidates))]
    nearest = column(places[0]).copy()
    while len(places) < n_landmarks and nearest.any():
        places.append(_drawn(nearest, rng))
        np.minimum(nearest, column(places[-1]), out=nearest)
    return np.array(places, dtype=np.int64)


def _pivots(
    column: Column, n_candidates: int, n_landmarks: int, seed: int, gamma: float | None, exponent: int
) -> IntArray:
    """Pivots until the kernel's residual is exhausted; unlike the user's gamma, columns are in units of 2^exponent."""
    if gamma is not None:
        checks.number_in_range("gamma", gamma, *GAMMA_RANGE)
    width = gamma_in_unit(gamma, exponent) or automatic_gamma(column, n_candidates, n_landmarks)
    rng, residual = _generator(seed), np.ones(n_candidates)
    factor = np.empty((n_landmarks, n_candidates))
    places: list[int] = []
    with threadpool_limits(1, "blas"):
        while len(places) < n_landmarks and residual.any():
            place, known = _drawn(residual, rng), factor[: len(places)]
            left = np.exp(-width * column(place)) - known.T @ known[:, place]
            factor[len(places)] = left / np.sqrt(left[place])
            residual -= factor[len(places)] ** 2
            residual[residual < EXHAUSTED] = 0.0
            residual[place] = 0.0
            places.append(place)
    return np.array(places, dtype=np.int64)


def _drawn(weights: FloatArray, rng: np.random.Generator) -> int:
    """A place drawn in proportion to its positive weight."""
    reached = np.cumsum(weights)
    place = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
    return min(place, int(np.flatnonzero(weights)[-1]))


@compiled
def _squared_from(points: AnyArray, place: int) -> FloatArray:
    """Squared distances (c,) of all points to one of them."""
    squared = np.empty(len(points))
    for i in range(len(points)):
        total = 0.0
        for k in range(points.shape[1]):
            difference = np.float64(points[i, k]) - np.float64(points[place, k])
            total += difference * difference
        squared[i] = total
    return squared


# Candidates whose dissimilarities are looked at: their matrix takes 128 MB.
MOST_CANDIDATES = 4096
# From points (c, D), the place of the first landmark (for choices that start from one), n_landmarks and a seed to
# places among the points.
Choose = Callable[[AnyArray, int, int, int], IntArray]
_BUILT_IN: dict[str, Choose] = {
    "random": lambda points, _, n_landmarks, seed: random_landmarks(len(points), n_landmarks, seed),
    "maxmin": lambda points, first, n_landmarks, _: farthest_points(points, first, n_landmarks),
    "kmeans": lambda points, _, n_landmarks, seed: choose_rows("kmeans", points, n_landmarks, seed),
    "trace": lambda points, _, n_landmarks, seed: choose_rows("trace", points, n_landmarks, seed),
    "cholesky": lambda points, _, n_landmarks, seed: choose_rows("cholesky", points, n_landmarks, seed),
}
CHOICES: Mapping[str, Choose] = ChainMap(_BUILT_IN, LOADED.landmark_choices)


def chosen_points(selection: str, points: AnyArray, first: int, n_landmarks: int, seed: int) -> IntArray:
    """Distinct places of landmarks among candidates (c, D)."""
    places = np.asarray(CHOICES[selection](points, first, n_landmarks, seed))
    if selection not in _BUILT_IN:
        _require_places(selection, places, len(points), n_landmarks)
    return places


def chosen_rows(selection: str, points: AnyArray, n_landmarks: int, seed: int) -> IntArray:
    """Rows of landmarks among all points (n, D); a choice that does not draw its own candidates gets a sample."""
    if selection in ("random", *KINDS):
        return chosen_points(selection, points, 0, n_landmarks, seed)
    candidates, first = maxmin_candidates(len(points), n_landmarks, seed)
    return np.asarray(candidates[chosen_points(selection, points[candidates], first, n_landmarks, seed)])


def chosen_by_dissimilarities(
    selection: str, n_points: int, between: Callable[[IntArray], FloatArray], n_landmarks: int, seed: int
) -> IntArray:
    """Rising rows of landmarks, by the dissimilarities (c, c) that `between` returns for candidate rows (c,)."""
    if n_landmarks == n_points:
        return np.arange(n_points)
    if selection == "random":
        return random_landmarks(n_points, n_landmarks, seed)
    candidates = random_landmarks(n_points, max(n_landmarks, min(n_points, MOST_CANDIDATES)), seed)
    return np.sort(candidates[choose_by_dissimilarities(selection, between(candidates), n_landmarks, seed)])


def chosen_nodes(selection: str, graph: PathGraph, nodes: IntArray, n_landmarks: int, seed: int) -> IntArray:
    """Some of the nodes of a connected graph: at random, or farthest along the graph first, from a sample."""
    if selection == "random":
        return nodes[random_landmarks(len(nodes), n_landmarks, seed)]
    places, first = maxmin_candidates(len(nodes), n_landmarks, seed)
    return np.asarray(nodes[places][farthest_nodes(graph, nodes[places], first, n_landmarks)])


def _require_places(selection: str, places: AnyArray, n_points: int, n_landmarks: int) -> None:
    whole = places.dtype.kind in "iu" and places.shape == (n_landmarks,)
    if not whole or len(np.unique(places)) < n_landmarks or not 0 <= places.min() <= places.max() < n_points:
        raise InvalidInputError(
            f"landmark_selection={selection!r} is a plugin's and did not return {n_landmarks} different whole numbers "
            f"from 0 to {n_points - 1}; correct the plugin."
        )
