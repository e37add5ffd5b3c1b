"""A study's sample of a source, and what its points are to each other: as a fit and an extension would measure it.

Rows come from blocks spread over the source, so that of a large one only some is read. Preprocessing takes its figures
from the sample, and rows that repeat count once. Landmarks of all combinations are measured together, so that each
shortest path is searched once, and the neighbors of a point once for the largest number of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.dimension import SAMPLING, rows_per_block, spread_rows
from pipeline.numerics.directions import edge_lengths, require_directions
from pipeline.numerics.geodesics.components import ComponentPolicy, Connected, apply_component_policy
from pipeline.numerics.geodesics.graph import collapse_duplicates, neighbor_graph
from pipeline.numerics.geodesics.rows import each_search, rows_through_lists, shortest_path_rows
from pipeline.numerics.landmarks.choices import choose_by_dissimilarities, chosen_rows
from pipeline.numerics.landmarks.sampling import random_landmarks
from pipeline.numerics.landmarks.weights import NearestLandmarks, landmark_counts
from pipeline.numerics.neighbors.exact import NeighborSearch, neighbors_within
from pipeline.numerics.neighbors.radius import RadiusLists
from pipeline.numerics.neighbors.takers import TakerSearch, with_takers
from pipeline.numerics.preprocessing import Preprocessing, principal_axes, scatter_matrix
from pipeline.settings import StudySettings
from pipeline.sources import Source
from pipeline.sources.inputs import AnySource, as_table
from pipeline.sources.partitions import read_rows
from pipeline.sources.proximities import ProximitySource, landmark_dissimilarities
from pipeline.stages.validate import point_dtype, usable_rows
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# What a sample may take in memory, in double precision.
MOST_BYTES = 1 << 31
# Of few rows so many are held out: one in five.
HELD_OUT_SHARE = 5
# Fewer say nothing.
LEAST_ROWS = 20
LISTED_ROWS = 5
# Selections whose landmarks are the first of a longer list.
NESTED = ("maxmin", "trace")
# Points that a study chooses among by trace, which takes a product of matrices of that size.
TRACE_CANDIDATES = 2000
# Beyond so many columns landmarks are chosen on as many principal axes, those of so many points.
FEW_COLUMNS, AXES_POINTS = 64, 1000
# From a selection, a number and a seed to places among some points.
Choose = Callable[[AnyArray, str, int, int], IntArray]
Compare = Callable[[AnyArray, AnyArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Sample:
    """What is known of distinct points, those to be held out last: vectors (s, D) in units of 2^exponent of the user's,
    or the dissimilarities (s, s) between them."""

    values: AnyArray
    n_held_out: int
    exponent: int

    @property
    def n_training(self) -> int:
        return len(self.values) - self.n_held_out


def drawn_sample(settings: StudySettings, source: AnySource) -> Sample:
    """A seeded sample in random order."""
    if isinstance(source, ProximitySource):
        return _of_proximities(settings, source)
    return _of_vectors(settings, as_table(source))


def sample_sizes(settings: StudySettings, n_points: int) -> tuple[int, int]:
    """How many of so many points are to choose landmarks among, and how many to be held out."""
    if n_points < LEAST_ROWS:
        raise InvalidInputError(f"a study needs at least {LEAST_ROWS} distinct rows, and there are {n_points}.")
    n_held_out = min(settings.held_out, n_points // HELD_OUT_SHARE)
    return min(settings.sample, n_points - n_held_out), n_held_out


def _of_vectors(settings: StudySettings, source: Source) -> Sample:
    n_rows, n_columns = source.shape
    wanted = sum(sample_sizes(settings, n_rows))
    if 8 * wanted * n_columns > MOST_BYTES:
        raise InvalidInputError(
            f"sample={settings.sample} and held_out={settings.held_out} rows of {n_columns} columns take more than "
            f"{MOST_BYTES >> 20} MiB; lower them, or choose fewer columns."
        )
    block_rows = rows_per_block(n_columns)
    rows = spread_rows(n_rows, wanted, block_rows, settings.seed)
    values = read_rows(source, rows, block_rows)
    usable = usable_rows(values)
    if settings.missing == "error" and not usable.all():
        listed = ", ".join(map(str, rows[~usable][:LISTED_ROWS]))
        raise InvalidInputError(
            f"{source.name} has NaN or infinite entries in {np.count_nonzero(~usable)} of {len(rows)} sampled rows, "
            f"first in rows {listed}; fill them, or choose missing='drop'."
        )
    preprocessing = _preprocessing(settings, source, values[usable])
    points = preprocessing.apply(values[usable])
    require_directions(source.name, points, settings.metric_of_points, rows[usable])
    distinct = collapse_duplicates(points).first_rows
    _, n_held_out = sample_sizes(settings, len(distinct))
    order = distinct[_order(len(distinct), settings.seed)]
    return Sample(points[order], n_held_out, preprocessing.result_exponent)


def _of_proximities(settings: StudySettings, source: ProximitySource) -> Sample:
    n_training, n_held_out = sample_sizes(settings, source.n_points)
    rows = random_landmarks(source.n_points, n_training + n_held_out, settings.seed)
    between = landmark_dissimilarities(source.entries(rows, rows), rows, rows, source.name)
    if not between.any():
        raise InvalidInputError(f"{source.name} is 0 between all sampled points; there is nothing to embed.")
    exponent = int(np.frexp(between.max())[1])
    order = _order(len(rows), settings.seed)
    return Sample(np.ldexp(between[np.ix_(order, order)], -exponent), n_held_out, exponent)


def _order(n_points: int, seed: int) -> IntArray:
    return np.random.default_rng([SAMPLING + 1, seed]).permutation(n_points)


def _preprocessing(settings: StudySettings, source: Source, values: AnyArray) -> Preprocessing:
    """What a fit would do to the data, with figures of a sample (s, D) of it."""
    if not len(values):
        raise InvalidInputError(
            f"all sampled rows of {source.name} have NaN or infinite entries; choose other columns."
        )
    numbers: FloatArray = values.astype(np.float64)
    checks.require_squarable(source.name, numbers)
    exponent, dtype = int(np.frexp(np.abs(numbers).max())[1]), point_dtype(source.dtype)
    if not settings.standardize and settings.pca is None:
        return Preprocessing(exponent, dtype, metric=settings.metric_of_points)
    scaled = np.ldexp(numbers, -exponent)
    constant = (scaled == scaled[0]).all(axis=0)
    center = np.where(constant, scaled[0], scaled.mean(axis=0))
    spread = np.where(constant, 1.0, scaled.std(axis=0)) if settings.standardize else None
    centered = Preprocessing(exponent, dtype, center, spread)
    if settings.pca is None:
        return replace(centered, metric=settings.metric_of_points)
    axes, _ = principal_axes(scatter_matrix(centered.apply(numbers).astype(np.float64)), settings.pca)
    return replace(centered, axes=axes, metric=settings.metric_of_points)


class Measured(NamedTuple):
    """Dissimilarities between training points that may become landmarks (u, u), of held-out points to them (h, u) and
    between held-out points (h, h); `placed` (h,) are those that an extension would place. Where landmarks are weighted,
    also of all training points to them, `training` (t, u), among which they are at `places` (u,)."""

    between: FloatArray
    to_candidates: FloatArray
    among: FloatArray
    placed: BoolArray
    training: AnyArray
    places: IntArray

    def counts(self, chosen: IntArray) -> IntArray:
        """How many training points each of some landmarks (m,) stands for."""
        rows, n_points = self.places[chosen], len(self.training)
        nearest = NearestLandmarks(rows, n_points)
        nearest.add(np.ascontiguousarray(self.training[:, chosen]))
        return landmark_counts(nearest.places, np.arange(n_points), rows, np.ones(n_points, np.int64))


class Paths:
    """Points, of which the first `n_training` may be embedded, and lengths of paths along neighbor graphs: to landmarks
    through the training points alone, as for new rows, but between held-out points through the graph of all, which is
    nearer to the truth."""

    def __init__(
        self,
        points: AnyArray,
        n_training: int,
        policy: ComponentPolicy,
        most_neighbors: int,
        n_jobs: int,
        are_counted: bool = False,
        metric: str = "euclidean",
    ) -> None:
        self._are_counted = are_counted
        self._points, self._n, self._policy, self._n_jobs = points, n_training, policy, n_jobs
        self._metric = metric
        self._lists = neighbors_within(points[:n_training], most_neighbors, n_jobs)
        self._lists_of_all = neighbors_within(points, most_neighbors, n_jobs)
        self._connected: dict[int, Connected] = {}

    def nodes(self, n_neighbors: int) -> IntArray:
        """The training points, rising, that are embedded."""
        if n_neighbors not in self._connected:
            self._connected[n_neighbors] = self._graph(self._points[: self._n], self._lists, n_neighbors)
        return np.flatnonzero(self._connected[n_neighbors].kept)

    def measured(self, n_neighbors: int, candidates: IntArray) -> Measured:
        """What is needed of some training points, rising, that may become landmarks."""
        nodes = self.nodes(n_neighbors)
        apart, places = NeighborSearch(self._points[nodes]).query(self._points[self._n :], n_neighbors, self._n_jobs)
        lists = self._joined(n_neighbors, nodes, apart, places)
        between = np.empty((len(candidates), len(candidates)))
        to_candidates = np.empty((len(apart), len(candidates)))
        counted = nodes if self._are_counted else nodes[:0]
        training = np.empty((len(counted), len(candidates)), np.float32)

        def take(batch: IntArray, lengths: FloatArray, place_of: IntArray) -> None:
            training[:, batch] = lengths[place_of[counted]]
            between[batch] = lengths[place_of[candidates]].T
            to_candidates[:, batch] = rows_through_lists(lists._replace(indices=place_of[lists.indices]), lengths)

        each_search(self._connected[n_neighbors].graph, candidates, take, self._n_jobs)
        among, reached = self._among(n_neighbors)
        placed = reached & self._nearest_are_kept(nodes, apart[:, 0])
        return Measured(between, to_candidates, among, placed, training, np.searchsorted(nodes, candidates))

    def _joined(self, n_neighbors: int, nodes: IntArray, apart: FloatArray, places: IntArray) -> RadiusLists:
        """The edges of the held-out points: to their nearest nodes, and to those that take them."""
        reach = edge_lengths(self._metric, self._lists[0][nodes, n_neighbors - 1])
        takers = TakerSearch(self._points[nodes], reach, self._metric).pairs(self._points[self._n :], self._n_jobs)
        lists = with_takers(edge_lengths(self._metric, apart), places, takers)
        return lists._replace(indices=nodes[lists.indices])

    def _among(self, n_neighbors: int) -> tuple[FloatArray, BoolArray]:
        connected = self._graph(self._points, self._lists_of_all, n_neighbors)
        held_out = np.arange(self._n, len(self._points))
        lengths = shortest_path_rows(connected.graph, held_out, self._n_jobs)[:, held_out]
        return (lengths + lengths.T) / 2, connected.kept[held_out]

    def _nearest_are_kept(self, nodes: IntArray, nearest: FloatArray) -> BoolArray:
        """Whether the nearest training point of each held-out point is embedded."""
        if len(nodes) == self._n:
            return np.ones(len(nearest), dtype=np.bool_)
        dropped = np.setdiff1d(np.arange(self._n), nodes)
        apart, _ = NeighborSearch(self._points[dropped]).query(self._points[self._n :], 1, self._n_jobs)
        return np.asarray(nearest <= apart[:, 0])

    def _graph(self, points: AnyArray, lists: tuple[FloatArray, IntArray], n_neighbors: int) -> Connected:
        distances, indices = lists
        lengths = edge_lengths(self._metric, distances[:, :n_neighbors])
        graph = neighbor_graph(lengths, indices[:, :n_neighbors])
        return apply_component_policy(points, graph, self._policy, metric=self._metric)


class Direct:
    """The same with dissimilarities that are had between any two points, computed or looked up."""

    def __init__(self, points: AnyArray, n_training: int, compare: Compare, are_counted: bool = False) -> None:
        self._points, self._n, self._compare, self._are_counted = points, n_training, compare, are_counted

    def nodes(self, _: int) -> IntArray:
        return np.arange(self._n)

    def measured(self, _: int, candidates: IntArray) -> Measured:
        landmarks, held_out = self._points[candidates], self._points[self._n :]
        between, to_candidates, among = (
            self._compare(*pair) for pair in ((landmarks, landmarks), (held_out, landmarks), (held_out, held_out))
        )
        everyone = np.ones(len(held_out), dtype=np.bool_)
        training = self._compare(self._points[: self._n if self._are_counted else 0], landmarks)
        return Measured((between + between.T) / 2, to_candidates, (among + among.T) / 2, everyone, training, candidates)


class Chooser:
    """Landmarks among training points, chosen as a fit would. What was chosen is remembered: most of it serves for
    every number of neighbors, and of some selections for every number of landmarks."""

    def __init__(self, choose: Choose, values: AnyArray, most_landmarks: int) -> None:
        self._choose, self._values, self._most = choose, values, most_landmarks
        self._known: dict[tuple[bytes, str, int, int], IntArray] = {}

    def chosen(self, nodes: IntArray, selection: str, n_landmarks: int, seed: int) -> IntArray:
        """Places (m,) of landmarks among the training points, of which only `nodes` are to be had."""
        length = min(self._most, len(nodes)) if selection in NESTED else n_landmarks
        key = (nodes.tobytes(), selection, length, seed)
        if key not in self._known:
            among = self._values[nodes] if len(nodes) < len(self._values) else self._values
            self._known[key] = nodes[self._choose(among, selection, length, seed)]
        return self._known[key][:n_landmarks]


def by_points(points: AnyArray, selection: str, n_landmarks: int, seed: int) -> IntArray:
    """Places of landmarks among points (c, D)."""
    candidates = _candidates(len(points), selection, n_landmarks, seed)
    return np.asarray(candidates[chosen_rows(selection, points[candidates], n_landmarks, seed)])


def by_dissimilarities(between: FloatArray, selection: str, n_landmarks: int, seed: int) -> IntArray:
    """Places of landmarks among points by the dissimilarities (c, c) between them."""
    if selection == "random":
        return random_landmarks(len(between), n_landmarks, seed)
    candidates = _candidates(len(between), selection, n_landmarks, seed)
    return candidates[choose_by_dissimilarities(selection, between[np.ix_(candidates, candidates)], n_landmarks, seed)]


def _candidates(n_points: int, selection: str, n_landmarks: int, seed: int) -> IntArray:
    """All points, or a sample of them for a choice by trace."""
    if selection != "trace":
        return np.arange(n_points)
    return random_landmarks(n_points, min(n_points, max(TRACE_CANDIDATES, n_landmarks)), seed)


def on_leading_axes(points: AnyArray) -> AnyArray:
    """Points (n, D) on their leading principal axes where D is large: choosing among them then takes no longer."""
    if points.shape[1] <= FEW_COLUMNS:
        return points
    center = points.mean(axis=0, dtype=np.float64)
    some = points[:AXES_POINTS] - center
    # By inner products of the points, which are fewer than columns may be.
    with threadpool_limits(1, "blas"):
        _, vectors = scipy.linalg.eigh(some @ some.T, subset_by_index=(max(0, len(some) - FEW_COLUMNS), len(some) - 1))
        # The leading ones first, made orthogonal: points in fewer dimensions have no more axes than those.
        axes, _ = np.linalg.qr(some.T @ vectors[:, ::-1])
        return np.asarray((points - center) @ axes)
