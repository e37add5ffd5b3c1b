"""Graphs whose nodes have any number of neighbors, and lists of these, as stages leave them for those that follow.

Such a stage is the graph and knows the neighbors: each group's nodes in CSR form as `graph` has it, the distance
`nearest` (n,) of every node to the nearest other, and the neighbors of the rows that are taken as if they were new. Its
edges are there from both their ends already, so nothing has to be exchanged between groups.
"""

from abc import abstractmethod

import numpy as np

from pipeline.numerics.geodesics.graph import UnionFind
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, even_lists, joined_lists, joined_pairs, lists_of
from pipeline.stages.graph.graph import LISTED_COMPONENTS
from pipeline.stages.graph.neighbors import HELD_OUT
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

# Said by stages whose lists are of uneven length.
UNEVEN = "uneven"
HELD_OFFSETS = "held_offsets"


class UnevenGraph(Stage):
    """A stage that writes every group's part of a graph."""

    @property
    @abstractmethod
    def nodes_each(self) -> list[int]:
        """How many nodes each group has."""

    def n_partitions(self) -> int:
        return len(self.nodes_each)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        """The component of every node, 0 the largest; and the lists of all rows that are taken as new."""
        labels = _component_labels(ledger, self.nodes_each)
        held = joined_lists([_held_part(ledger, group) for group in sorted(figures)])
        arrays: dict[str, AnyArray] = {"components": labels, **_held_arrays(held)}
        for name, values in arrays.items():
            ledger.write(name, values)
        sizes, n_edges = np.bincount(labels), sum(entry["n_edges"] for entry in figures.values())
        report = {"n_components": len(sizes), "largest_components": sizes[:LISTED_COMPONENTS].tolist()}
        report |= {UNEVEN: True, "n_nodes": len(labels), "nodes_each": self.nodes_each, "n_edges": n_edges}
        return {**report, "mean_neighbors": n_edges / len(labels)}, list(arrays)


def write_group(
    ledger: StageLedger, group: int, lists: RadiusLists, nearest: FloatArray, held: RadiusLists
) -> tuple[Json, list[str]]:
    """Write one group's nodes with all their neighbors, numbers rising within each list; what the stage says of it.

    Weights are in single precision, as paths need them.
    """
    arrays: dict[str, AnyArray] = {
        "offsets": lists.offsets,
        "targets": lists.indices.astype(np.int32),
        "weights": lists.distances.astype(np.float32),
        "nearest": nearest,
        **_held_arrays(held),
    }
    return {"n_edges": len(lists.indices)}, ledger.write_parts(group, arrays)


def write_lists(
    ledger: StageLedger, group: int, lists: RadiusLists, nearest: FloatArray, component: IntArray
) -> list[str]:
    """Write the neighbors of new points, how far the nearest is, and the component that each belongs to."""
    arrays: dict[str, AnyArray] = {
        "offsets": lists.offsets,
        "distances": lists.distances,
        "neighbors": lists.indices.astype(np.int32),
        "nearest": nearest,
        "component": component,
    }
    return ledger.write_parts(group, arrays)


def lists_of_group(searched: Outcome, group: int) -> RadiusLists:
    """The neighbors of a group's new points, whatever stage found them."""
    distances, neighbors = (searched.ledger.part(name, group).read() for name in ("distances", "neighbors"))
    if not searched.figures.get(UNEVEN):
        return even_lists(distances, neighbors)
    return RadiusLists(searched.ledger.part("offsets", group).read(), neighbors, distances)


def rising_lists(n_nodes: int, pairs: Pairs) -> RadiusLists:
    """Pairs in any order as lists in which the numbers rise, not the distances."""
    order = np.lexsort((pairs.points, pairs.queries))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(pairs.queries, minlength=n_nodes))])
    return RadiusLists(offsets, pairs.points[order], pairs.distances[order])


def nearest_in_lists(lists: RadiusLists) -> FloatArray:
    """The least distance (n,) of each list, in whatever order; infinite where it is empty."""
    nearest, full = np.full(len(lists.offsets) - 1, np.inf), lists.sizes > 0
    if full.any():
        nearest[full] = np.minimum.reduceat(lists.distances, lists.offsets[:-1][full])
    return nearest


def as_new(lists: RadiusLists, held: IntArray, others: Pairs) -> RadiusLists:
    """The neighbors that some nodes (h,) of a group would have as new points, nearest first: their own, and `others`,
    whose queries are places in `held`."""
    own = lists.of(held)
    pairs = Pairs(np.repeat(np.arange(len(held)), own.sizes), own.indices, own.distances)
    return lists_of(len(held), joined_pairs([pairs, others]))


def held_out_lists(neighbors: Outcome) -> RadiusLists:
    """The neighbors of the rows that are taken as if they were new, whatever stage found them."""
    apart, others = (neighbors.ledger.read(name).read() for name in HELD_OUT)
    if not neighbors.figures.get(UNEVEN):
        return even_lists(apart, others)
    return RadiusLists(neighbors.ledger.read(HELD_OFFSETS).read(), others, apart)


def nearest_of_nodes(neighbors: Outcome, group: int) -> FloatArray:
    """How far the nearest other node is from each of a group's nodes."""
    if neighbors.figures.get(UNEVEN):
        return np.asarray(neighbors.ledger.part("nearest", group).read())
    return np.asarray(neighbors.ledger.part("distances", group).read()[:, 0])


def _component_labels(ledger: StageLedger, nodes_each: list[int]) -> IntArray:
    sets, first = UnionFind(sum(nodes_each)), 0
    for group, n_nodes in enumerate(nodes_each):
        offsets, targets = (ledger.part(name, group).read() for name in ("offsets", "targets"))
        sources = np.repeat(np.arange(first, first + n_nodes, dtype=np.int32), np.diff(offsets))
        # The other end of an edge has it too.
        once = targets > sources
        sets.join(sources[once], targets[once])
        first += n_nodes
    return sets.labels()


def _held_arrays(held: RadiusLists) -> dict[str, AnyArray]:
    apart, others = HELD_OUT
    return {HELD_OFFSETS: held.offsets, apart: held.distances, others: held.indices.astype(np.int32)}


def _held_part(ledger: StageLedger, group: int) -> RadiusLists:
    offsets, distances, neighbors = (ledger.part(name, group).read() for name in (HELD_OFFSETS, *HELD_OUT))
    return RadiusLists(offsets, neighbors, distances)
