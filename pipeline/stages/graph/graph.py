"""Stage 4, graph: the neighbor lists made symmetric, as CSR group by group, and its connected components.

An edge is stored with both its ends, but each group of nodes knows only its own lists. So `neighbors` also writes down
every group's edges that lead into others, by their other end, and `graph` gathers for each group those that end in it:
an exchange like that of the rows, and as groups are near in space, a small one. Zero weights are edges like any other.

Where nodes have any number of neighbors, one stage is the graph and knows the neighbors: each group in CSR form, the
distance `nearest` (n,) of every node to the nearest other, and the neighbors of the rows that are taken as if they
were new. Its edges are there from both their ends already, so nothing is exchanged.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from pipeline.numerics.geodesics.graph import UnionFind, symmetric_csr
from pipeline.numerics.neighbors.radius import Pairs, RadiusLists, even_lists, joined_lists, joined_pairs, lists_of
from pipeline.stages.exchange import gathered
from pipeline.stages.stage import Cost, GroupStage, Outcome, Shape, Stage, total, written
from pipeline.store.ledger import WHOLE_BYTES, StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

LISTED_COMPONENTS = 10
# Neighbors of rows that are taken as if they were new, and where the list of each begins if lists are ragged.
HELD_OUT, HELD_OFFSETS = ("held_distances", "held_neighbors"), "held_offsets"
# Said by stages whose lists are of uneven length.
UNEVEN = "uneven"
# The ends of edges that are left out as short circuits.
CUT = ("cut_starts", "cut_ends")
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
    """The edges of a group's lists (n, k) into other groups, by the node they lead to, and how many lead into each."""
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
        sets = UnionFind(gathered(ledger, "joined", groups))
        for p in groups:
            sets.join(*(self.neighbors.ledger.part(name, p).read() for name in EDGES_OUT[:2]))
        labels = sets.labels()
        sizes = np.bincount(labels)
        report = {"n_components": len(sizes), "largest_components": sizes[:LISTED_COMPONENTS].tolist()}
        return written(ledger, {**report, "n_edges": total(figures, "n_edges")}, {"components": labels})

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


class UnevenGraph(Stage):
    """A stage that writes every group's part of a graph, `nodes_each` in each."""

    @property
    @abstractmethod
    def nodes_each(self) -> list[int]: ...

    def n_partitions(self) -> int:
        return len(self.nodes_each)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        """The component of every node, 0 the largest; and the lists of all rows that are taken as new."""
        labels = _component_labels(ledger, self.nodes_each)
        held = joined_lists(
            [
                RadiusLists(*(ledger.part(name, group).read() for name in (HELD_OFFSETS, *HELD_OUT[::-1])))
                for group in sorted(figures)
            ]
        )
        arrays: dict[str, AnyArray] = {"components": labels, **_held_arrays(held)}
        sizes, n_edges = np.bincount(labels), total(figures, "n_edges")
        report = {"n_components": len(sizes), "largest_components": sizes[:LISTED_COMPONENTS].tolist()}
        report |= {UNEVEN: True, "n_nodes": len(labels), "nodes_each": self.nodes_each, "n_edges": n_edges}
        return written(ledger, {**report, "mean_neighbors": n_edges / len(labels)}, arrays)


def write_group(
    ledger: StageLedger, group: int, lists: RadiusLists, nearest: FloatArray, held: RadiusLists
) -> tuple[Json, list[str]]:
    """Write one group's nodes with all their neighbors, numbers rising in each list, weights in single precision."""
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


def emptied(lists: RadiusLists, chosen: BoolArray) -> RadiusLists:
    """The lists, those that are chosen (q,) without any neighbors."""
    left = np.repeat(~chosen, lists.sizes)
    offsets = np.concatenate([[0], np.cumsum(np.where(chosen, 0, lists.sizes))])
    return RadiusLists(offsets, lists.indices[left], lists.distances[left])


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
