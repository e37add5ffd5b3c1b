"""The embedded points in cells, as a fit keeps its data, and the nearest of them to any others."""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.trees import FEW_DIMENSIONS
from pipeline.stages.neighbors import NO_GROUP, enough_neighbors_among
from pipeline.stages.ordered import NODE_BITS, OrderedNodes
from pipeline.stages.partition import Assign, Order
from pipeline.stages.search import exact_neighbors
from pipeline.stages.stage import Outcome
from pipeline.types import AnyArray, FloatArray, IntArray

# Up to so many points all cells that may hold a near one are searched, whatever the dimension.
SEARCHED_EXACTLY = 200_000


@dataclass(frozen=True)
class AssignQueries(Assign):
    """The cell of every query."""

    name = "query_cells"


@dataclass(frozen=True)
class OrderQueries(Order):
    """Queries cell by cell; those in the same place are one."""

    name = "query_order"


@dataclass(frozen=True)
class Index:
    """The stages that ordered the embedded points; `probes` says how many cells to search, where not all are."""

    points: Outcome
    cells: Outcome
    ordered: Outcome
    probes: Outcome | None = None

    @property
    def identity(self) -> list[str]:
        return [self.ordered.ledger.digest, *([] if self.probes is None else [self.probes.ledger.digest])]

    @property
    def exponent(self) -> int:
        """The power of two that takes lengths to the user's units."""
        return int(np.frexp(self.points.figures["largest"])[1])

    @property
    def n_nodes(self) -> int:
        """How many embedded points there are, counting those in one place as one."""
        return int(self.ordered.figures["n_nodes"])

    def opened(self) -> OrderedNodes:
        """The nodes, to be read. Not to be kept: it reads ahead, and cannot be sent to workers."""
        return OrderedNodes(self.cells, self.ordered)

    def nearest(self, points: AnyArray, own_cells: IntArray, k: int) -> tuple[FloatArray, IntArray]:
        """Distances (p, k) and numbers (p, k) of the nodes nearest to points, which come cell by cell."""
        nodes = self.opened()
        if points.shape[1] <= FEW_DIMENSIONS:
            distances, found = exact_neighbors(nodes, points, own_cells, k)
        else:
            nobody = np.full(len(points), -1)
            n_probes = nodes.n_cells if self.probes is None else int(self.probes.figures["n_probes"])
            distances, found = enough_neighbors_among(nodes, NO_GROUP, points, nobody, own_cells, n_probes, k)
        return distances, found & NODE_BITS


def needs_probes(ordered: Outcome) -> bool:
    """Whether searching exactly would take too long."""
    return bool(ordered.figures["n_columns"] > FEW_DIMENSIONS and ordered.figures["n_nodes"] > SEARCHED_EXACTLY)
