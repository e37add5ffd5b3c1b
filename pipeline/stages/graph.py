"""Stage 4, graph: the neighbor lists made symmetric, as CSR group by group, and its connected components.

An edge is stored with both its ends, but each group of nodes knows only its own lists. So `edges` writes every group's
edges sorted by their other end, and `graph` gathers for each group the slices that end in it: an exchange like that
of the rows, and again nothing reads groups x groups whole. Zero weights are edges like any other.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.components import UnionFind
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, IntArray, Json

LISTED_COMPONENTS = 10


def group_bounds(ordered: Outcome) -> IntArray:
    """The first node of every group, and the number of nodes."""
    return np.concatenate([[0], np.cumsum(ordered.figures["nodes_each"])]).astype(np.int64)


@dataclass(frozen=True)
class Edges(Stage):
    """Each group's edges, sorted by the node they lead to."""

    ordered: Outcome
    neighbors: Outcome
    name = "edges"

    def settings(self) -> Json:
        return {}

    def inputs(self) -> list[str]:
        return [self.neighbors.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.ordered.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        bounds = group_bounds(self.ordered)
        sources, targets, weights = forward_edges(self.neighbors, partition, int(bounds[partition]))
        order = np.lexsort((sources, targets))
        counts = np.diff(np.searchsorted(targets[order], bounds)).astype(np.int64)
        edges = {"sources": sources[order], "targets": targets[order], "weights": weights[order]}
        return {"n_edges": len(targets)}, ledger.write_parts(partition, {**edges, "counts": counts})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        counts = np.stack([ledger.part("counts", p).read() for p in sorted(figures)])
        ledger.write("counts", counts)
        return {"n_edges": sum(entry["n_edges"] for entry in figures.values())}, ["counts"]


@dataclass(frozen=True)
class Graph(Stage):
    """Symmetric CSR of each group's nodes: offsets within the group, targets by number in the whole graph."""

    ordered: Outcome
    neighbors: Outcome
    edges: Outcome
    name = "graph"

    def settings(self) -> Json:
        return {}

    def inputs(self) -> list[str]:
        return [self.neighbors.ledger.digest, self.edges.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.ordered.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        first, last = (int(bound) for bound in group_bounds(self.ordered)[partition : partition + 2])
        pieces = [forward_edges(self.neighbors, partition, first), *self._reverse_edges(partition)]
        sources, targets, weights = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        order = np.lexsort((weights, targets, sources))
        sources, targets, weights = sources[order], targets[order], weights[order]
        # Both directions of an edge have the same weight to the bit; the first of equals is kept.
        fresh = np.ones(len(sources), dtype=np.bool_)
        fresh[1:] = (np.diff(sources) != 0) | (np.diff(targets) != 0)
        offsets = np.searchsorted(sources[fresh], np.arange(first, last + 1)).astype(np.int64)
        arrays = {"offsets": offsets, "targets": targets[fresh], "weights": weights[fresh]}
        return {"n_edges": int(fresh.sum())}, ledger.write_parts(partition, arrays)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        """The component of every node, 0 the largest; 16 bytes a node in memory, the edges a group at a time."""
        bounds = group_bounds(self.ordered)
        sets = UnionFind(int(bounds[-1]))
        for p in sorted(figures):
            offsets = ledger.part("offsets", p).read()
            sources = np.repeat(np.arange(bounds[p], bounds[p + 1]), np.diff(offsets))
            sets.join(sources, ledger.part("targets", p).read())
        labels = sets.labels()
        ledger.write("components", labels)
        sizes = np.bincount(labels)
        report = {"n_components": len(sizes), "largest_components": sizes[:LISTED_COMPONENTS].tolist()}
        return {**report, "n_edges": sum(entry["n_edges"] for entry in figures.values())}, ["components"]

    def _reverse_edges(self, partition: int) -> list[tuple[IntArray, IntArray, AnyArray]]:
        """The edges of every group that end in this one, turned around."""
        counts = self.edges.ledger.read("counts").read()
        begins = counts[:, :partition].sum(axis=1)
        pieces = []
        for p in range(self.n_partitions()):
            place = int(begins[p]), int(begins[p] + counts[p, partition])
            sources, targets, weights = (
                self.edges.ledger.part(name, p).read(*place) for name in ("sources", "targets", "weights")
            )
            pieces.append((targets, sources, weights))
        return pieces


def forward_edges(neighbors: Outcome, partition: int, first: int) -> tuple[IntArray, IntArray, AnyArray]:
    """Sources, targets and weights of a group's own neighbor lists."""
    targets = neighbors.ledger.part("neighbors", partition).read()
    weights = neighbors.ledger.part("distances", partition).read()
    sources = np.repeat(np.arange(first, first + len(targets), dtype=np.int64), targets.shape[1])
    return sources, targets.ravel(), weights.ravel()
