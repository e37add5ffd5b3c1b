"""New rows along a graph: the edges by which they reach its nodes, and the shortest paths that go on from there."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.estimator.base import Fitted, Reached, Space, chunks
from pipeline.estimator.direct import exact_dissimilarities
from pipeline.numerics import checks
from pipeline.numerics.checks import Entries
from pipeline.numerics.geodesics.rows import bound_between, lengths_between, rows_through_lists, with_new_nodes
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.landmarks.sampling import calibrating, drawn
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, lists_of
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, SparseArray


class Entry(ABC):
    """How new rows reach the nodes (u,) that are embedded. Lengths are in units of 2^exponent of the user's."""

    @property
    def calibrates_rows(self) -> bool:
        """Whether nodes have the edges that they would have as new rows."""
        return False

    def check(self, rows: Any) -> None:  # noqa: B027  some take any row
        """Refuse new rows that cannot be placed."""

    @abstractmethod
    def reached(self, rows: Any, n_threads: int) -> tuple[RadiusLists, BoolArray, IntArray]:
        """The edges of those rows that reach a node, the shortest first; which rows these are (p,); and the component
        (p,) of the node nearest to each."""

    @abstractmethod
    def with_edges(self, between: FloatArray, rows: Any, lists: RadiusLists) -> FloatArray:
        """Lengths (v, v) between new rows that have these edges, with edges between rows that would be neighbors."""

    @abstractmethod
    def nearest(self, graph: SparseArray, n_threads: int) -> FloatArray:
        """How long the edge to the nearest other is for every node (u,)."""

    @abstractmethod
    def as_new(self, graph: SparseArray, nodes: IntArray, repeated: BoolArray, n_threads: int) -> RadiusLists:
        """The edges that some nodes (h,) would have as new rows. One that is several rows has its like beside it."""


@dataclass(frozen=True, eq=False)
class GivenEdges(Entry):
    """New rows have the edges (p, n) that they come with, to nodes (n,) that have a place among those embedded, -1 if
    they have none, and a component."""

    exponent: int
    place_of: IntArray
    components: IntArray

    def reached(self, rows: SparseArray, n_threads: int) -> tuple[RadiusLists, BoolArray, IntArray]:
        """A row without edges is in no component, which is -1."""
        edges, n_rows = rows.tocoo(), int(rows.shape[0])
        starts, nodes = (part.astype(np.int64) for part in edges.coords)
        every = lists_of(n_rows, Pairs(starts, nodes, np.ldexp(edges.data.astype(np.float64), -self.exponent)))
        pairs = Pairs(np.repeat(np.arange(n_rows), every.sizes), every.indices, every.distances)
        lists = lists_of(n_rows, pairs.where(self.place_of[every.indices] >= 0))
        kept, component = lists.sizes > 0, np.full(n_rows, -1)
        # That of the nearest node, of the nearest embedded one if there is one.
        for found in (every, lists):
            joined = found.sizes > 0
            component[joined] = self.components[found.indices[found.offsets[:-1][joined]]]
        lists = lists.of(np.flatnonzero(kept))
        return lists._replace(indices=self.place_of[lists.indices]), kept, component

    def nearest(self, graph: SparseArray, n_threads: int) -> FloatArray:
        return np.asarray(np.minimum.reduceat(graph.data, graph.indptr[:-1]))

    def with_edges(self, between: FloatArray, rows: SparseArray, lists: RadiusLists) -> FloatArray:
        """There are no edges between new rows."""
        return between

    def as_new(self, graph: SparseArray, nodes: IntArray, repeated: BoolArray, n_threads: int) -> RadiusLists:
        """All edges of the graph."""
        own = RadiusLists(graph.indptr.astype(np.int64), graph.indices.astype(np.int64), graph.data).of(nodes)
        return lists_of(len(nodes), Pairs(np.repeat(np.arange(len(nodes)), own.sizes), own.indices, own.distances))


@dataclass(frozen=True, eq=False)
class GeodesicSpace(Space):
    """How new rows reach the nodes (k,) that are embedded, the path lengths (k, m) of these to the landmarks, the graph
    between them, and which of them (k,) are several rows."""

    entry: Entry
    to_landmarks: AnyArray
    graph: SparseArray
    repeated: BoolArray

    @property
    def takes_edges(self) -> bool:
        return isinstance(self.entry, GivenEdges)

    def check(self, rows: Any) -> None:
        self.entry.check(rows)

    def reached(self, rows: Any, n_threads: int) -> Reached:
        lists, kept, component = self.entry.reached(rows, n_threads)
        nearest = lists.distances[lists.offsets[:-1]]
        return Reached(kept, rows_through_lists(lists, self.to_landmarks), component, nearest)

    def between(self, rows: Any, only_bounds: bool, n_threads: int) -> FloatArray:
        """By shortest paths along the graph, or over a landmark; or by the edge between two rows that would be
        neighbors of each other."""
        lists, kept, _ = self.entry.reached(rows, n_threads)
        if only_bounds:
            apart = bound_between([rows_through_lists(lists, self.to_landmarks)])
        else:
            apart = self._along_paths(lists)
        return self.entry.with_edges(apart, rows[kept], lists)

    def _along_paths(self, lists: RadiusLists) -> FloatArray:
        graph = PathGraph(self.graph.indptr.astype(np.int64), self.graph.indices, self.graph.data)
        return lengths_between(PathSearch(with_new_nodes(graph, lists)), graph.n_nodes, lists)

    def between_as_given(self, given: FloatArray, rows: Any) -> FloatArray:
        return np.asarray(np.ldexp(exact_dissimilarities(Entries("between", given)), -self.embedder.exponent))

    def nearest_of_points(self, n_threads: int) -> FloatArray:
        """To the nearest other row, which is at no distance where several rows are the same."""
        return np.where(self.repeated, 0.0, self.entry.nearest(self.graph, n_threads))

    def trust_as_new(self, fitted: Fitted, seed: int, n_threads: int) -> FloatArray:
        """Rows that are left out of the graph, so that paths to them go through their neighbors."""
        if self.entry.calibrates_rows:
            return self._trust_of_rows(fitted, seed, n_threads)
        places = fitted.place_of[drawn(np.arange(len(fitted.place_of)), len(fitted.place_of), seed)]
        nodes, embedder = places[places >= 0], self.embedder
        parts = []
        for chunk in chunks(len(nodes)):
            lists = self.entry.as_new(self.graph, nodes[chunk], self.repeated[nodes[chunk]], n_threads)
            answer = embedder.answers.of(rows_through_lists(lists, self.to_landmarks))
            columns = embedder.columns(answer, lists.distances[lists.offsets[:-1]])
            parts.append(np.stack([columns[name] for name in embedder.trust_names], axis=1))
        return np.concatenate(parts)

    def _trust_of_rows(self, fitted: Fitted, seed: int, n_threads: int) -> FloatArray:
        """The columns of rows as they are, which is what they would have as new ones; of landmarks, whose distances to
        themselves are 0, only where every row is one."""
        rows = np.flatnonzero(fitted.place_of >= 0)
        like_new, landmarks = calibrating(rows, len(fitted.place_of), seed, fitted.landmarks)
        columns = self.embedder.columns(fitted.answer, self.nearest_of_points(n_threads))
        trust = np.stack([columns[name] for name in self.embedder.trust_names], axis=1)
        return np.asarray(trust[fitted.place_of[rows[like_new if like_new.any() else landmarks]]])


def require_edge_lengths(X: SparseArray) -> None:
    """Refuse edges (p, n) whose lengths are none."""
    # Written so that NaN fails it too.
    bad = np.flatnonzero(~((X.data >= 0) & (X.data <= checks.LARGEST_SIZE)))
    if len(bad):
        row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
        raise InvalidInputError(
            f"X has {len(bad)} weights that are negative, NaN, infinite or above {checks.LARGEST_SIZE:g}, the first "
            f"{X.data[bad[0]]:g} from row {row} to node {X.indices[bad[0]]}; lengths must be finite and at least 0: "
            "leave out what is no edge."
        )
