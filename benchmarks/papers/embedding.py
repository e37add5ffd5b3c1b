"""A method fitted to some rows of a data set, each of them a landmark, and asked about the other rows.

The distances between all rows are known from the start, so that fitting to many choices of rows is cheap.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.methods import METHODS
from pipeline.numerics.extension.placement import answers_of
from pipeline.numerics.geodesics.components import apply_component_policy
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.rows import rows_through_neighbors, shortest_path_rows
from pipeline.numerics.mds import Model
from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.models.metrics import Kernel, distances
from pipeline.types import AnyArray, FloatArray, IntArray


class Measured(NamedTuple):
    """Rows (n, D) of a data set and the dissimilarities (n, n) between them."""

    rows: FloatArray
    apart: FloatArray


def measured(rows: AnyArray, kernel: Kernel | None = None) -> Measured:
    """Rows with their Euclidean distances, or those that a kernel induces."""
    points = np.asarray(rows, dtype=np.float64)
    apart = kernel.dissimilarities(points, points) if kernel else distances("euclidean", points, points)
    return Measured(points, apart)


@dataclass(frozen=True)
class Studied:
    """A method with its settings, of whose components the first `skipped` say nothing.

    A graph takes new points one by one, each with edges in both directions [B sec. 2] or, if `new_edges` is "own", to
    its own nearest only, as in scikit-learn; or, if it is "all", together, and paths lead over them too [G sec. 7.3].
    """

    choice: Choice
    skipped: int = 0
    new_edges: str = "both"


def studied(method: str, n_components: int) -> Studied:
    """So many components that say something: the first one of spectral clustering is trivial."""
    skipped = 1 if method == "spectral" else 0
    return Studied(Choice(method, n_components + skipped), skipped)


@dataclass(frozen=True, eq=False)
class Embedding:
    """A method fitted to the `training` rows (m,) of a data set, by the dissimilarities (m, m) between them."""

    studied: Studied
    data: Measured
    training: IntArray
    between: FloatArray
    model: Model

    @property
    def coordinates(self) -> FloatArray:
        """Of the training rows (m, d)."""
        return self.model.coordinates[:, self.studied.skipped :]

    def to_training(self, others: IntArray) -> FloatArray:
        """Dissimilarities (p, m) of other rows to the training rows, which paths lead over [B sec. 4.3]."""
        apart = self.data.apart[np.ix_(others, self.training)]
        choice = self.studied.choice
        if not METHODS[choice.method].geodesic:
            return apart
        if self.studied.new_edges == "all":
            rows = np.concatenate([self.training, others])
            together = path_lengths(self.data.rows[rows], self.data.apart[np.ix_(rows, rows)], choice.n_neighbors)
            return together[len(self.training) :, : len(self.training)]
        if self.studied.new_edges == "own":
            nearest = nearest_columns(apart, choice.n_neighbors)
            return rows_through_neighbors(np.take_along_axis(apart, nearest, axis=1), nearest, self.between)
        within = self.data.apart[np.ix_(self.training, self.training)]
        return rows_through_neighbors(*edges_of_new(apart, within, choice.n_neighbors), self.between)

    def placed(self, others: IntArray) -> FloatArray:
        """Coordinates (p, d) of other rows by the method's extension; of two answers the projection."""
        answer = answers_of(self.model).of(self.to_training(others))
        return answer.coordinates[:, self.studied.skipped : self.studied.choice.n_components]

    @property
    def spread(self) -> float:
        """Root mean square distance of the training rows from their mean."""
        centered = self.coordinates - self.coordinates.mean(axis=0)
        return float(np.sqrt((centered**2).sum(axis=1).mean()))


def fitted(how: Studied, data: Measured, training: IntArray) -> Embedding:
    between = data.apart[np.ix_(training, training)]
    if METHODS[how.choice.method].geodesic:
        between = path_lengths(data.rows[training], between, how.choice.n_neighbors)
    return Embedding(how, data, training, between, fitted_model(how.choice, between))


def path_lengths(points: FloatArray, apart: FloatArray, n_neighbors: int) -> FloatArray:
    """Lengths (m, m) along the graph of nearest neighbors, whose pieces, if any, are joined by the shortest links."""
    others = apart.copy()
    np.fill_diagonal(others, np.inf)
    nearest = nearest_columns(others, n_neighbors)
    graph = neighbor_graph(np.take_along_axis(apart, nearest, axis=1), nearest)
    connected = apply_component_policy(points, graph, "bridge").graph
    return np.asarray(shortest_path_rows(connected, np.arange(len(points))))


def edges_of_new(apart: FloatArray, within: FloatArray, n_neighbors: int) -> tuple[FloatArray, IntArray]:
    """Lengths and ends (p, e) of the edges of new points, from their distances (p, m) to training points (m, m).

    As between training points, either of the two has to be among the nearest of the other [B sec. 2]. Where a point has
    fewer edges than another, its shortest is repeated.
    """
    others = within.copy()
    np.fill_diagonal(others, np.inf)
    reach = np.sort(others, axis=1)[:, n_neighbors - 1]
    joined = apart <= reach
    np.put_along_axis(joined, nearest_columns(apart, n_neighbors), True, axis=1)
    lengths = np.where(joined, apart, np.inf)
    ends = nearest_columns(lengths, int(joined.sum(axis=1).max()))
    repeated = ~np.take_along_axis(joined, ends, axis=1)
    ends = np.where(repeated, ends[:, :1], ends)
    return np.take_along_axis(apart, ends, axis=1), ends


def nearest_columns(apart: FloatArray, n_neighbors: int) -> IntArray:
    """The columns (p, k) with the least entries of each row, nearest first; of equal ones the first."""
    return np.argsort(apart, axis=1, kind="stable")[:, :n_neighbors]
