"""New rows reconstructed together, block by block [T sec. 6], and the arcs of single rows [T sec. 5].

Blocks are of consecutive rows of the source, and start anew with every grain of 4,096: so they do not depend on how the
source was cut. Rows that are not embedded are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from pipeline.numerics.extension.joint import reconstruct_moments_jointly
from pipeline.numerics.extension.reconstruction import Moments, arc_of_moments
from pipeline.numerics.geodesics.rows import bound_between, lengths_between, with_direct_ways, with_new_nodes
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.exchange import rows_in_order
from pipeline.stages.graph.connected import connected_graph
from pipeline.stages.place import Place, distances_to_landmarks
from pipeline.stages.stage import Outcome, SingleStage, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, IntArray, Json

JointDistances = Literal["paths", "bound"]
# What `place` keeps of each row for these stages.
LISTS = ("distances", "neighbors", "points")


@dataclass(frozen=True)
class Joint(Stage):
    """Coordinates `joint` of blocks of rows that also fit the distances between them: shortest paths along the graph,
    or upper bounds over the landmarks."""

    place: Place
    placed: Outcome
    partitions: RowPartitions
    block_rows: int
    between: JointDistances
    name = "joint"
    version = 2

    def settings(self) -> Json:
        return {"block_rows": self.block_rows, "between": self.between, "rows_each": self.partitions.rows_each}

    def inputs(self) -> list[str]:
        return [self.placed.ledger.digest]

    def n_partitions(self) -> int:
        return self.partitions.count

    def prepare(self, ledger: StageLedger) -> None:
        self._array(ledger)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        joint = np.full((len(rows), self.place.space.model.n_components), np.nan)
        n_blocks = 0
        for grain in self.partitions.grains(partition):
            for block, coordinates in self._of_grain(partition, grain):
                joint[block - rows.start] = coordinates
                n_blocks += 1
        self._array(ledger).write(rows.start, joint)
        return {"n_blocks": n_blocks}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        n_blocks = sum(entry["n_blocks"] for entry in figures.values())
        return {"n_blocks": n_blocks, "upper_bounds": self.between == "bound"}, ["joint"]

    def release(self) -> None:
        self.__dict__.pop("_graph", None)

    def _array(self, ledger: StageLedger) -> RowArray:
        shape = (self.partitions.n_rows, self.place.space.model.n_components)
        return ledger.create("joint", shape, np.float64, self.partitions.rows_per_chunk)

    def _of_grain(self, partition: int, grain: range) -> Iterator[tuple[IntArray, FloatArray]]:
        """Each block of a grain: its rows, and their coordinates in the user's frame."""
        lists = rows_in_order(self.placed, self.partitions, partition, grain, LISTS)
        kept = np.flatnonzero(lists["distances"][:, 0] >= 0)
        distances, neighbors, points = (lists[name][kept] for name in LISTS)
        moments = self.place.moments(distances, neighbors)
        search, first = None, 0
        if self.between == "paths":
            search, first = PathSearch(with_new_nodes(self._graph, distances, neighbors)), self._graph.n_nodes
        space = self.place.space
        for chosen in blocks_of(kept, self.block_rows):
            near, nodes = distances[chosen], neighbors[chosen]
            between = np.full((len(chosen), len(chosen)), np.inf)
            # Of a thinned graph the ways are detours, and those over a landmark may be shorter: these it has kept.
            if search is None or space.thinned:
                between = bound_between([*distances_to_landmarks(space, near, nodes)])
            if search is not None:
                between = np.minimum(between, lengths_between(search, first + int(chosen[0]), near, nodes))
            between = with_direct_ways(between, points[chosen], near[:, -1])
            mine = Moments(moments.inner[chosen], moments.beta[chosen])
            answer = reconstruct_moments_jointly(space.model, mine, between**2)
            yield kept[chosen] + grain.start, space.in_users_frame(answer.coordinates)

    @cached_property
    def _graph(self) -> PathGraph:
        stages = self.place.space.stages
        return connected_graph(stages["order"], stages["graph"], stages["components"])


def blocks_of(kept: IntArray, size: int) -> list[IntArray]:
    """Places of rows that are kept, those of each block of `size` rows of a grain together."""
    blocks = kept // size
    return [np.flatnonzero(blocks == block) for block in np.unique(blocks)]


@dataclass(frozen=True)
class Arcs(SingleStage):
    """Positions `arcs` (r, steps, d) between the two answers for some rows."""

    place: Place
    placed: Outcome
    partitions: RowPartitions
    rows: tuple[int, ...]
    n_steps: int
    name = "arcs"

    def settings(self) -> Json:
        return {"rows": list(self.rows), "n_steps": self.n_steps}

    def inputs(self) -> list[str]:
        return [self.placed.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        ledger.write("arcs", np.stack([self._arc(row) for row in self.rows]))
        ledger.write("rows", np.array(self.rows))
        return {"n_rows": len(self.rows)}, ["arcs", "rows"]

    def _arc(self, row: int) -> FloatArray:
        space, partition = self.place.space, row // self.partitions.rows_each
        lists = rows_in_order(self.placed, self.partitions, partition, range(row, row + 1), LISTS)
        if not lists["distances"][0, 0] >= 0:
            return np.full((self.n_steps, space.model.n_components), np.nan)
        moments = self.place.moments(lists["distances"], lists["neighbors"])
        return space.in_users_frame(arc_of_moments(space.model, moments, self.n_steps, space.weight))
