"""Stage 4, components: what to do with a neighbor graph in several components.

error    refuse, before anything expensive
largest  keep the largest; nothing to add
bridge   links of a minimum spanning tree over the components, by rounds of Boruvka's algorithm: each component but the
         largest finds its shortest link to the outside

The search goes through the cells. A cell's nodes lie in a ball around its center, so no link between two cells is
shorter than the gap between their balls: cells, and nodes of them, beyond the reach of a component's best link so far
are never compared, and the answer is exact. Every cell first searches the cells nearest to it. Where the rest could
cost too much, that is all: the links then join everything, but may not be the shortest.

Links are compared by (length, lower source row, higher source row), a strict order, and each is offered to both of
its ends. So every component's choice is the least of the links that were found at it, and no round closes a cycle.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from pipeline.errors import DisconnectedGraphError, InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.directions import edge_lengths
from pipeline.numerics.geodesics.graph import (
    POLICIES,
    ComponentPolicy,
    UnionFind,
    by_falling_size,
    disconnected_message,
)
from pipeline.numerics.neighbors.exact import refine_neighbors
from pipeline.stages.graph.graph import CUT
from pipeline.stages.graph.partition import OrderedNodes
from pipeline.stages.stage import Cost, Outcome, Result, Shape, SingleStage
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Cells that each cell searches in any case, the nearest that hold outsiders.
N_PROBES = 16
# Floating point operations that a round may spend on being exact: about ten minutes of one core.
WORK_BUDGET = 2e13
# What a pair of nodes costs besides two operations a column.
PAIR_WORK = 100
# Relative rounding of distances to centers, with room to spare.
MARGIN = 1e-9
NOWHERE = np.iinfo(np.int64).max
NO_BRIDGES = (
    "component_policy='bridge' needs to know how far points of different components are apart, and a graph has no "
    "points; add the edges that join them, or choose 'largest' (embed only the largest; other rows get NaN)."
)


@dataclass(frozen=True)
class Components(SingleStage):
    """Links between components: nodes `starts` and `ends`, the start of lower source row, and their `lengths`. Where
    short circuits are cut, also the ends of their edges: components are the same without them."""

    cells: Outcome | None
    ordered: Outcome
    graph: Outcome
    policy: ComponentPolicy
    edges_from: str = "neighbors"
    metric: str = "euclidean"
    shortcuts: Outcome | None = None
    name = "components"
    depends_on = ("policy",)
    reads = ("graph",)

    def inputs(self) -> list[str]:
        return [*super().inputs(), *([] if self.shortcuts is None else [self.shortcuts.ledger.digest])]

    def result(self) -> Result:
        checks.one_of("policy", self.policy, POLICIES)
        sizes, n_components = self.graph.figures["largest_components"], self.graph.figures["n_components"]
        if n_components > 1 and self.policy == "error":
            raise DisconnectedGraphError(disconnected_message(sizes, n_components, self.edges_from))
        links, exact = ShortestLinks.of(0), True
        if n_components > 1 and self.policy == "bridge":
            if self.cells is None:
                raise InvalidInputError(NO_BRIDGES)
            labels = self.graph.ledger.read("components").read()
            links, exact = spanning_links(OrderedNodes(self.cells, self.ordered), labels)
        lengths = edge_lengths(self.metric, links.lengths)
        arrays = {"starts": links.ends[:, 2], "ends": links.ends[:, 3], "lengths": lengths}
        n_kept = sizes[0] if self.policy == "largest" else self.ordered.figures["n_nodes"]
        report = {"n_components": n_components, "largest_components": sizes, "n_kept": n_kept}
        if self.shortcuts is not None:
            arrays |= {name: self.shortcuts.ledger.read(name).read() for name in CUT}
            report["n_cut"] = len(arrays[CUT[0]])
        return {**report, "n_bridges": len(links.lengths), "exact": exact}, arrays

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(shape.block + 16 * shape.n_rows, 0.02)


def spanning_links(nodes: OrderedNodes, labels: IntArray) -> "tuple[ShortestLinks, bool]":
    """Links that join all components, shortest first, and whether they are a minimum spanning tree."""
    balls = cell_balls(nodes)
    rounds, exact = [], True
    while labels.any():
        search = LinkSearch(nodes, balls, labels)
        exact = search.run() and exact
        rounds.append(search.links.chosen())
        sets = UnionFind(len(search.links.lengths))
        sets.join(*labels[rounds[-1].ends[:, 2:].T])
        labels = by_falling_size(sets.labels()[labels])
    lengths, ends = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
    order = np.lexsort((ends[:, 1], ends[:, 0], lengths))
    return ShortestLinks(lengths[order], ends[order]), exact


class Balls(NamedTuple):
    """The cells that hold nodes: their numbers, groups and sizes (c,), and balls of centers (c, D) and radii (c,)."""

    cells: IntArray
    groups: IntArray
    sizes: IntArray
    centers: FloatArray
    radii: FloatArray


def cell_balls(nodes: OrderedNodes) -> Balls:
    """One pass over the nodes, group by group."""
    sizes = np.diff(nodes.offsets)
    cells = np.flatnonzero(sizes)
    centers = nodes.center_search.points[cells]
    radii = [distances(nodes.cell(cell)[0], center).max() for cell, center in zip(cells.tolist(), centers, strict=True)]
    groups = np.searchsorted(nodes.groups, cells, side="right") - 1
    return Balls(cells, groups, sizes[cells], centers, np.array(radii))


def distances(points: AnyArray, center: FloatArray) -> FloatArray:
    """Of every point to one."""
    return np.asarray(scipy.spatial.distance.cdist(points, center[None])[:, 0])


def gaps(apart: FloatArray, radii: FloatArray | float) -> FloatArray:
    """What is left between things `apart` from each other when their radii are taken off, rounded down."""
    return np.asarray(apart - radii - MARGIN * (apart + radii))


class Members(NamedTuple):
    """Some nodes: points (p, D), source rows, components and numbers (p,)."""

    points: AnyArray
    rows: IntArray
    labels: IntArray
    numbers: IntArray

    def where(self, chosen: BoolArray | IntArray) -> "Members":
        return Members(*(part[chosen] for part in self))


class ShortestLinks(NamedTuple):
    """For every component the length (c,) of its shortest link so far and the link's ends (c, 4): rows, then nodes.

    A component without a link has NOWHERE as ends, and as length a bound that it is known to have a link within.
    """

    lengths: FloatArray
    ends: IntArray

    @classmethod
    def of(cls, n_components: int) -> "ShortestLinks":
        return cls(np.full(n_components, np.inf), np.full((n_components, 4), NOWHERE))

    def chosen(self) -> "ShortestLinks":
        """The links of all components but the largest, each once."""
        ends, places = np.unique(self.ends[1:], axis=0, return_index=True)
        return ShortestLinks(self.lengths[1:][places], ends)

    def improve(self, queries: Members, targets: Members) -> None:
        """Take in the shortest links from each component's queries to outsiders among the targets."""
        lengths, found = self.lengths[queries.labels][:, None], np.full((len(queries.rows), 1), -1)
        # Components in the place of rows: a query then leaves out its own component instead of itself.
        refine_neighbors(targets.points, targets.labels, queries.points, queries.labels, lengths, found)
        hits = np.flatnonzero(found[:, 0] >= 0)
        for component in np.unique(queries.labels[hits]):
            mine = hits[queries.labels[hits] == component]
            shortest = mine[lengths[mine, 0] == lengths[mine, 0].min()]
            self._offer(queries.where(shortest), targets.where(targets.labels != component))

    def _offer(self, starts: Members, outsiders: Members) -> None:
        """Offer the least of the links from nodes of one component to their nearest outsiders to both its ends."""
        lengths, found = np.full((len(starts.rows), 1), np.inf), np.full((len(starts.rows), 1), -1)
        refine_neighbors(outsiders.points, outsiders.rows, starts.points, starts.rows, lengths, found)
        low, high = np.minimum(starts.rows, found[:, 0]), np.maximum(starts.rows, found[:, 0])
        least = np.lexsort((high, low, lengths[:, 0]))[0]
        other = np.flatnonzero(outsiders.rows == found[least, 0])[0]
        pair = [(starts.rows[least], starts.numbers[least]), (outsiders.rows[other], outsiders.numbers[other])]
        rows, numbers = zip(*sorted(pair), strict=True)
        for component in (starts.labels[least], outsiders.labels[other]):
            if (lengths[least, 0], *rows) < (self.lengths[component], *self.ends[component, :2]):
                self.lengths[component], self.ends[component] = lengths[least, 0], (*rows, *numbers)


class LinkSearch:
    """One round: the shortest link out of every component but the largest. Cells go by their places among the balls."""

    def __init__(self, nodes: OrderedNodes, balls: Balls, labels: IntArray) -> None:
        self.nodes, self.balls, self.labels = nodes, balls, labels
        self.links = ShortestLinks.of(int(labels.max()) + 1)
        starts = nodes.offsets[balls.cells]
        highest = np.maximum.reduceat(labels, starts)
        lowest = np.minimum.reduceat(labels, starts)
        lowest_searching = np.minimum.reduceat(np.where(labels > 0, labels, labels.max()), starts)
        self._searching = np.flatnonzero(highest)
        # The one component of a cell, and the one that searches from it; of several, numbers that never agree.
        self._only = np.where(lowest == highest, highest, -1)
        self._only_searching = np.where(lowest_searching == highest, highest, -2)

    def run(self) -> bool:
        """Search; whether the links found are the shortest."""
        for cell in self._searching.tolist():
            self._bound(cell)
        for cell in self._searching.tolist():
            self._compare(cell, self._within_reach(cell, slice(N_PROBES)))
        exact = self._work_left() <= WORK_BUDGET
        if exact:
            self._search_rest()
        return exact

    def _targets(self, cell: int) -> tuple[IntArray, FloatArray]:
        """Cells that hold outsiders to what searches from a cell, and how far their centers are, nearest first.

        If the cell has outsiders to all of its own nodes, it comes first itself; if not, all of it is one component,
        and the first has outsiders to that. So the first target has a link for each component of the cell.
        """
        targets = np.flatnonzero(self._only != self._only_searching[cell])
        apart = distances(self.balls.centers, self.balls.centers[cell])[targets]
        order = np.argsort(apart, kind="stable")
        return targets[order], apart[order]

    def _bound(self, cell: int) -> None:
        """Bound the links of a cell's components by the extent of the cell and its first target together."""
        targets, apart = self._targets(cell)
        bound = (apart[0] + self.balls.radii[cell] + self.balls.radii[targets[0]]) * (1 + MARGIN)
        components = self._components(cell)
        self.links.lengths[components] = np.minimum(self.links.lengths[components], bound)

    def _gaps(self, cell: int, places: slice) -> tuple[IntArray, FloatArray]:
        """Some of a cell's targets, by their places in the order, and the gaps to them."""
        targets, apart = self._targets(cell)
        return targets[places], gaps(apart, self.balls.radii[cell] + self.balls.radii[targets])[places]

    def _within_reach(self, cell: int, places: slice) -> IntArray:
        targets, bounds = self._gaps(cell, places)
        return np.asarray(targets[bounds <= self.links.lengths[self._components(cell)].max()])

    def _components(self, cell: int) -> IntArray:
        """The component of every node that searches from a cell."""
        labels = self.labels[self._place(cell)]
        return labels[labels > 0]

    def _place(self, cell: int) -> slice:
        return slice(*self.nodes.offsets[self.balls.cells[cell] :][:2].tolist())

    def _members(self, cell: int) -> Members:
        place = self._place(cell)
        numbers = np.arange(place.start, place.stop)
        return Members(*self.nodes.cell(int(self.balls.cells[cell])), self.labels[place], numbers)

    def _compare(self, cell: int, targets: IntArray) -> None:
        """Compare a cell with others; if there are none, it need not be read."""
        if len(targets):
            members = self._members(cell)
            queries = members.where(members.labels > 0)
            for target in targets.tolist():
                self._compare_with(target, queries, cell)

    def _compare_with(self, target: int, queries: Members, cell: int) -> None:
        """Compare the nodes of two cells, but for those that are too far from the other cell's ball."""
        limits = self.links.lengths[queries.labels]
        away = gaps(distances(queries.points, self.balls.centers[target]), self.balls.radii[target])
        near = (away <= limits) & (queries.labels != self._only[target])
        if near.any():
            targets = self._members(target)
            away = gaps(distances(targets.points, self.balls.centers[cell]), self.balls.radii[cell])
            within = away <= limits[near].max()
            if within.any():
                self.links.improve(queries.where(near), targets.where(within))

    def _work_left(self) -> float:
        """Operations that comparing all further cells within reach could take, going by what is known now."""
        n_pairs = 0
        for cell in self._searching.tolist():
            targets, bounds = self._gaps(cell, slice(N_PROBES, None))
            limits = np.sort(self.links.lengths[self._components(cell)])
            n_pairs += int((len(limits) - np.searchsorted(limits, bounds)) @ self.balls.sizes[targets])
        return float(n_pairs * (2 * self.balls.centers.shape[1] + PAIR_WORK))

    def _search_rest(self) -> None:
        """Compare all further cells within reach, a pair of groups at a time: the order only decides what is read."""
        groups = self.balls.groups
        for group in np.unique(groups[self._searching]):
            mine = self._searching[groups[self._searching] == group].tolist()
            pending = np.zeros((len(mine), len(groups)), dtype=np.bool_)
            for cell, targets in zip(mine, pending, strict=True):
                targets[self._within_reach(cell, slice(N_PROBES, None))] = True
            others = np.unique(groups)
            for other in others[np.argsort(np.abs(others - group), kind="stable")]:
                for cell, targets in zip(mine, pending & (groups == other), strict=True):
                    self._compare(cell, np.flatnonzero(targets))
