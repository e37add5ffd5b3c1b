"""Positions on the way from one embedded point to another, in equal steps."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from pipeline.numerics.neighbors import neighbors_within
from pipeline.partitions import RowPartitions
from pipeline.sources import Source
from pipeline.stages.inverse.embedded import drawn_points
from pipeline.stages.stage import Outcome, SingleStage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

# Points that a way along the data may pass through, and how many neighbors each is joined to at first.
MOST_POINTS, FEWEST_NEIGHBORS = 4000, 10


@dataclass(frozen=True)
class Path(SingleStage):
    """Positions (steps, d) from the point of one row to that of another, both embedded: in a straight line, or along
    the data, which is the shortest way between neighbors among some embedded points."""

    source: Source
    scanned: Outcome
    partitions: RowPartitions
    rows: tuple[int, int]
    steps: int
    along: str
    seed: int
    name = "path"

    def settings(self) -> Json:
        return {"rows": list(self.rows), "steps": self.steps, "along": self.along, "seed": self.seed}

    def inputs(self) -> list[str]:
        return [str(self.scanned.figures["content"])]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        ends = np.concatenate([self.source.read(row, row + 1) for row in self.rows])
        corners = ends if self.along == "straight" else self._along_the_data(ends)
        ledger.write("positions", resampled(corners, self.steps))
        return {"length": float(_lengths(corners).sum()), "n_corners": len(corners)}, ["positions"]

    def _along_the_data(self, ends: FloatArray) -> FloatArray:
        _, points = drawn_points(self.source, self.partitions, MOST_POINTS, self.seed)
        # Once each: points in one place would have nobody but each other for neighbors.
        distinct = np.unique(np.concatenate([ends, points]), axis=0)
        first, last = (int(np.flatnonzero((distinct == end).all(axis=1))[0]) for end in ends)
        return np.asarray(distinct[shortest_way(distinct, first, last)])


def shortest_way(points: FloatArray, first: int, last: int) -> IntArray:
    """The points that the shortest way between two passes, both included: each step to one of the nearest.

    Where those do not lead there, twice as many count as near, until they do.
    """
    k = FEWEST_NEIGHBORS
    while first != last:
        apart, near = neighbors_within(points, min(k, len(points) - 1))
        begins = np.repeat(np.arange(len(points)), near.shape[1])
        graph = coo_array((apart.ravel(), (begins, near.ravel())), shape=(len(points),) * 2).tocsr()
        lengths, before = dijkstra(graph, directed=False, indices=[first], return_predecessors=True)
        if np.isfinite(lengths[0, last]):
            return _followed(before[0], first, last)
        k *= 2
    return np.array([first])


def _followed(before: AnyArray, first: int, last: int) -> IntArray:
    way = [last]
    while way[-1] != first:
        way.append(int(before[way[-1]]))
    return np.array(way[::-1])


def resampled(corners: FloatArray, steps: int) -> FloatArray:
    """Positions (steps, d) in equal steps along straight lines between corners (c, d), the ends exactly."""
    along = np.concatenate([[0.0], np.cumsum(_lengths(corners))])
    wanted = along[-1] * np.linspace(0.0, 1.0, steps)
    return np.column_stack([np.interp(wanted, along, column) for column in corners.T])


def _lengths(corners: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt((np.diff(corners, axis=0) ** 2).sum(axis=1)))
