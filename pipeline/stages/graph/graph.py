"""Stage 4, graph: the neighbor lists made symmetric, as CSR group by group, and its connected components.

An edge is stored with both its ends, but each group of nodes knows only its own lists. So `neighbors` also writes down
every group's edges that lead into others, by their other end, and `graph` gathers for each group those that end in it:
an exchange like that of the rows, and as groups are near in space, a small one. Zero weights are edges like any other.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.geodesics.graph import UnionFind, symmetric_csr
from pipeline.stages.stage import Cost, GroupStage, Outcome, Shape
from pipeline.store.ledger import WHOLE_BYTES, StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

LISTED_COMPONENTS = 10
EDGES_OUT = ("sources_out", "targets_out", "weights_out", "counts_out")
EdgeList = tuple[AnyArray, AnyArray, AnyArray]


def group_bounds(ordered: Outcome) -> IntArray:
    """The first node of every group, and the number of nodes."""
    return np.concatenate([[0], np.cumsum(ordered.figures["nodes_each"])]).astype(np.int64)


def kept_nodes(graph: Outcome, components: Outcome) -> BoolArray:
    """Whether each node is embedded: all of them, or those of the largest component."""
    labels = graph.ledger.read("components").read()
    return np.asarray(labels < 1) if components.figures["n_kept"] < len(labels) else np.ones(len(labels), np.bool_)


def edges_out(bounds: IntArray, group: int, neighbors: AnyArray, distances: FloatArray) -> dict[str, AnyArray]:
    """The edges of a group's neighbor lists (n, k) into other groups, sorted by the node they lead to, and how many
    lead into each group."""
    first, last = bounds[group : group + 2].tolist()
    targets = neighbors.ravel()
    out = np.flatnonzero((targets < first) | (targets >= last))
    sources = (out // neighbors.shape[1] + first).astype(np.int32)
    order = np.lexsort((sources, targets[out]))
    sources, out = sources[order], out[order]
    counts = np.diff(np.searchsorted(targets[out], bounds)).astype(np.int64)
    found = sources, targets[out], distances.ravel()[out].astype(np.float32), counts
    return dict(zip(EDGES_OUT, found, strict=True))


@dataclass(frozen=True)
class Graph(GroupStage):
    """Symmetric CSR of each group's nodes: offsets within the group, targets by number in the whole graph.

    `joined` (n,) is the lowest node that each node of the group reaches within it.
    """

    ordered: Outcome
    neighbors: Outcome
    name = "graph"
    version = 3
    reads = ("neighbors",)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        first, last = (int(bound) for bound in group_bounds(self.ordered)[partition : partition + 2])
        own = forward_edges(self.neighbors, partition, first)
        pieces = [own, *self._edges_into(partition)]
        gathered = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        offsets, targets, weights = symmetric_csr(first, last, *gathered)
        inside = (own[1] >= first) & (own[1] < last)
        sets = UnionFind(last - first)
        sets.join(own[0][inside] - first, own[1][inside] - first)
        joined = sets.lowest() + first
        arrays = {"offsets": offsets, "targets": targets, "weights": weights, "joined": joined}
        return {"n_edges": len(targets)}, ledger.write_parts(partition, arrays, WHOLE_BYTES)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        """The component of every node, 0 the largest: those of the groups, joined by the edges between them."""
        groups = sorted(figures)
        sets = UnionFind(np.concatenate([ledger.part("joined", p).read() for p in groups]))
        for p in groups:
            sets.join(*(self.neighbors.ledger.part(name, p).read() for name in EDGES_OUT[:2]))
        labels = sets.labels()
        ledger.write("components", labels)
        sizes = np.bincount(labels)
        report = {"n_components": len(sizes), "largest_components": sizes[:LISTED_COMPONENTS].tolist()}
        return {**report, "n_edges": sum(entry["n_edges"] for entry in figures.values())}, ["components"]

    def _edges_into(self, partition: int) -> list[EdgeList]:
        """The edges of every other group that end in this one."""
        counts = self.neighbors.ledger.read("counts_out").read()
        begins = counts[:, :partition].sum(axis=1)
        pieces = []
        for p in np.flatnonzero(counts[:, partition]).tolist():
            place = int(begins[p]), int(begins[p] + counts[p, partition])
            sources, targets, weights = (self.neighbors.ledger.part(name, p).read(*place) for name in EDGES_OUT[:3])
            pieces.append((sources, targets, weights))
        return pieces

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, k = shape.n_rows, shape.n_neighbors
        return Cost(max(192 * shape.rows * k, 48 * n), 1.4e-7 * n * k, 9 * n * k, shape.n_partitions)


def forward_edges(neighbors: Outcome, partition: int, first: int) -> EdgeList:
    """Sources, targets and weights of a group's own neighbor lists; weights in single precision, as paths need them."""
    targets = neighbors.ledger.part("neighbors", partition).read()
    weights = neighbors.ledger.part("distances", partition).read().astype(np.float32)
    sources = np.repeat(np.arange(first, first + len(targets), dtype=np.int32), targets.shape[1])
    return sources, targets.ravel(), weights.ravel()
