"""Geodesic distances as a provider: of fitted nodes from the stage `rows`, of new points through their neighbors.

The distances of all points to all landmarks are never in memory at once: a batch of landmarks at a time, the lengths of
a block of nodes are read; each new point takes the least sum over its neighbors.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pipeline.errors import RecallWarning
from pipeline.methods import BOTH
from pipeline.numerics.directions import chords_of
from pipeline.numerics.geodesics.rows import (
    bound_between,
    lengths_between,
    nearby_order,
    rows_through_lists,
    with_direct_ways,
    with_new_nodes,
)
from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.numerics.landmarks.choices import chosen_nodes, chosen_points
from pipeline.numerics.landmarks.sampling import calibrating, drawn, maxmin_candidates
from pipeline.numerics.neighbors.radius import RadiusLists
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.exchange import lists_in_order, rows_in_order, write_in_row_order, write_lists_in_row_order
from pipeline.stages.graph.graph import (
    UNEVEN,
    emptied,
    group_bounds,
    held_out_lists,
    kept_nodes,
    lists_of_group,
    nearest_of_nodes,
)
from pipeline.stages.graph.pairs import Pairs
from pipeline.stages.graph.partition import OrderedNodes
from pipeline.stages.graph.rows import LOADED, between_landmarks, connected_graph, row_batches
from pipeline.stages.providers.provider import (
    CALIBRATION,
    Block,
    Candidates,
    HeldOut,
    Lineage,
    Neighborhood,
    Provider,
)
from pipeline.stages.space import GraphSpace
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Below this share of true neighbors a fit warns.
PROMISED_RECALL = 0.99


class _Grouped(Provider):
    """Points are nodes in groups of cells; `ordered` says which rows each stands for, `rows` how far landmarks are."""

    in_row_order = False
    ordered: Outcome
    rows: Outcome

    @property
    def n_landmarks(self) -> int:
        return int(self.rows.figures["n_landmarks"])

    def between(self) -> FloatArray:
        return np.asarray(between_landmarks(self.rows))

    def n_groups(self, partitions: RowPartitions) -> int:
        return len(self.ordered.figures["nodes_each"])

    def counts(self, group: int, n_points: int) -> IntArray:
        return np.bincount(self.ordered.ledger.part("node_of", group).read(), minlength=n_points)

    def write(
        self, ledger: StageLedger, group: int, partitions: RowPartitions, numbers: IntArray, arrays: dict[str, AnyArray]
    ) -> list[str]:
        return write_in_row_order(ledger, group, self.ordered, partitions, arrays)


@dataclass(frozen=True)
class GeodesicRows(_Grouped):
    """Fitted nodes. Without `cells` nodes are no points. `neighbors` and `graph` are one stage for ragged lists."""

    cells: Outcome | None
    ordered: Outcome
    neighbors: Outcome
    graph: Outcome
    components: Outcome
    landmarks: Outcome
    rows: Outcome
    unit: int
    metric: str = "euclidean"
    reach: Outcome | None = None

    @property
    def exponent(self) -> int:
        return self.unit

    def lineage(self, stage: str) -> Lineage:
        rows, as_new = self.rows.ledger.digest, {"new_edges": BOTH} if self.calibrates_rows else {}
        of_stages = {
            "weights": Lineage(1, {}, (rows,)),
            "model": Lineage(1, {}, (rows,)),
            "embed": Lineage(3, {"exponent": self.unit, **as_new}, (self.neighbors.ledger.digest, rows)),
            "calibrate": Lineage(1, {"exponent": self.unit, **as_new}, (rows,)),
            "evaluate": Lineage(4, {}, (self.ordered.ledger.digest,)),
        }
        return of_stages[stage]

    def blocks(self, group: int, partitions: RowPartitions) -> Iterator[Block]:
        first, last = (int(bound) for bound in group_bounds(self.ordered)[group : group + 2])
        for start, stop in chunk_ranges(first, last, self.rows.figures["nodes_per_chunk"]):
            kept = self._kept[start:stop]
            yield Block(np.arange(start, stop), kept, self._lengths(start, stop, kept))

    def _lengths(self, start: int, stop: int, kept: BoolArray) -> Iterator[AnyArray]:
        for batch in row_batches(self.rows):
            lengths = batch.read(start, stop)
            yield lengths if kept.all() else lengths[kept]

    def component(self, group: int, n_points: int) -> IntArray:
        first, last = (int(bound) for bound in group_bounds(self.ordered)[group : group + 2])
        return np.asarray(self.graph.ledger.read("components").read(first, last))

    def nearest(self, group: int) -> FloatArray | None:
        """To the nearest other row, which is at no distance where several rows are the same."""
        distances = nearest_of_nodes(self.neighbors, group)
        return np.where(self.counts(group, len(distances)) > 1, 0.0, distances)

    def sampled(self, numbers: IntArray, partitions: RowPartitions, wanted: int, seed: int) -> BoolArray:
        masks: dict[tuple[int, int], BoolArray] = self.__dict__.setdefault("_sample_masks", {})
        if (wanted, seed) not in masks:
            masks[wanted, seed] = self._sample_mask(wanted, seed)
        return masks[wanted, seed][numbers]

    def _sample_mask(self, wanted: int, seed: int) -> BoolArray:
        """Which of all nodes are sampled: drawn by number, so that groups do not matter."""
        mask, kept = np.zeros(len(self._kept), np.bool_), np.flatnonzero(self._kept)
        mask[np.random.default_rng(seed).choice(kept, min(len(kept), wanted), replace=False)] = True
        return mask

    def held_out(self) -> HeldOut | None:
        batches = [self.rows.ledger.part("held_out", batch) for batch in range(self.rows.figures["n_batches"])]
        # Rows of components that are not embedded reach no landmark.
        kept = np.isfinite(batches[0].read()[:, 0, 0])
        lists = held_out_lists(self.neighbors)
        return HeldOut(lists.distances[lists.offsets[:-1][kept]], (batch.read()[kept] for batch in batches))

    @property
    def calibrates_rows(self) -> bool:
        """With edges in both directions a fitted row has exactly those that it would have as a new one."""
        return self.reach is not None

    def calibrating(
        self, group: int, numbers: IntArray, trust: FloatArray, partitions: RowPartitions, seed: int
    ) -> dict[str, AnyArray]:
        if not self.calibrates_rows:
            return {}
        rows, node_of = (self.ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
        rows, node_of = (part[self._kept[numbers[node_of]]] for part in (rows, node_of))
        landmarks = self.landmarks.ledger.read("rows").read()
        like_new, own = calibrating(rows, partitions.n_rows, seed, landmarks)
        return dict(zip(CALIBRATION, (trust[node_of[like_new]], trust[node_of[own]]), strict=True))

    def points(self, numbers: IntArray, partitions: RowPartitions) -> AnyArray | None:
        return None if self.cells is None else OrderedNodes(self.cells, self.ordered).nodes(numbers)[0]

    @property
    def n_columns(self) -> int:
        return 1 if self.cells is None else int(self.ordered.figures["n_columns"])

    def pairs_stage(self, embedded: Outcome, seed: int) -> Stage | None:
        return Pairs(self.ordered, self.graph, self.components, embedded, self.n_landmarks, seed)

    def neighbor_distances(self, wanted: int, seed: int) -> FloatArray | None:
        """Of nodes drawn by their first rows, so that the sample does not depend on how rows are cut."""
        if self.neighbors.figures.get(UNEVEN):
            return None
        bounds, n_rows, parts = group_bounds(self.ordered), int(self.ordered.figures["n_rows"]), []
        for group in range(len(bounds) - 1):
            rows = self.ordered.ledger.part("first", group).read()
            chosen = drawn(rows, n_rows, seed, wanted) & self._kept[int(bounds[group]) : int(bounds[group + 1])]
            parts.append(self.neighbors.ledger.part("distances", group).read()[chosen])
        distances = np.concatenate(parts)
        # Of unit vectors, the chords grow as the balls around a point do.
        return chords_of(self.metric, distances) if distances.shape[1] >= 2 else None

    def figures(self) -> Json:
        return {name: value for name, value in self.neighbors.figures.items() if name == "recall"}

    def warn(self) -> None:
        figures = self.neighbors.figures
        if figures.get("recall", 1.0) < PROMISED_RECALL:
            warnings.warn(
                f"The neighbor search finds {figures['recall']:.1%} of the true neighbors, audited on "
                f"{figures['audited']} points; below {PROMISED_RECALL:.0%} the graph may lack edges that matter. Raise "
                "recall; 1 searches exactly.",
                RecallWarning,
                stacklevel=3,
            )

    @cached_property
    def _kept(self) -> BoolArray:
        return kept_nodes(self.graph, self.components)


@dataclass(frozen=True)
class SearchedRows(_Grouped):
    """New points with the neighbors that `search` found among the fitted nodes."""

    fitted: GraphSpace
    ordered: Outcome
    searched: Outcome
    keeps_lists: bool = False

    @property
    def rows(self) -> Outcome:  # type: ignore[override]  # those of the fit
        return self.fitted.stages["rows"]

    @property
    def exponent(self) -> int:
        return self.fitted.exponent

    def lineage(self, stage: str) -> Lineage:
        if stage == "place":
            return Lineage(1, {"keeps_lists": 2 if self.keeps_lists else False}, (self.searched.ledger.digest,))
        return Lineage({"joint": 3}.get(stage, 1))

    def blocks(self, group: int, partitions: RowPartitions) -> Iterator[Block]:
        kept = self._embedded(group)
        lists = lists_of_group(self.searched, group).of(np.flatnonzero(kept))
        yield Block(np.arange(len(kept)), kept, ways_to_landmarks(self.fitted, lists))

    def _embedded(self, group: int) -> BoolArray:
        """Whether each point of a group is placed: those of components that were dropped are not."""
        component = self.searched.ledger.part("component", group).read()
        return np.ones(len(component), np.bool_) if self.fitted.kept is None else component < 1

    def component(self, group: int, n_points: int) -> IntArray:
        return np.asarray(self.searched.ledger.part("component", group).read())

    def nearest(self, group: int) -> FloatArray | None:
        return nearest_of_nodes(self.searched, group)

    def write(
        self, ledger: StageLedger, group: int, partitions: RowPartitions, numbers: IntArray, arrays: dict[str, AnyArray]
    ) -> list[str]:
        """With edges and points beside them, if rows are to be reconstructed together; who is not placed has no
        edges."""
        if not self.keeps_lists:
            return super().write(ledger, group, partitions, numbers, arrays)
        points = {} if self.fitted.is_precomputed else {"points": self.ordered.ledger.part("points", group).read()}
        names = super().write(ledger, group, partitions, numbers, {**arrays, **points})
        lists = emptied(lists_of_group(self.searched, group), ~self._embedded(group))
        return names + write_lists_in_row_order(ledger, group, self.ordered, lists)

    def neighborhood(self, placed: Outcome, partitions: RowPartitions, rows: range, only_bounds: bool) -> Neighborhood:
        return _NearNewRows(self, placed, partitions, rows, only_bounds)

    @cached_property
    def graph(self) -> PathGraph:
        stages = self.fitted.stages
        return connected_graph(stages.get("order", stages["graph"]), stages["graph"], stages["components"])

    def release(self) -> None:
        self.__dict__.pop("graph", None)


class _NearNewRows(Neighborhood):
    """Shortest paths between new rows along the graph, or upper bounds over the landmarks."""

    def __init__(
        self, provider: SearchedRows, placed: Outcome, partitions: RowPartitions, rows: range, only_bounds: bool
    ) -> None:
        lists = lists_in_order(placed, partitions, rows)
        self.kept = np.flatnonzero(lists.sizes)
        self._lists, self._space = lists.of(self.kept), provider.fitted
        self._points: AnyArray | None = None
        if not provider.fitted.is_precomputed:
            self._points = rows_in_order(placed, partitions, rows, ["points"])["points"][self.kept]
        self._provider, self._only_bounds = provider, only_bounds

    def batches(self) -> Iterator[AnyArray]:
        return ways_to_landmarks(self._space, self._lists)

    @cached_property
    def _search(self) -> PathSearch:
        return PathSearch(with_new_nodes(self._provider.graph, self._lists))

    def between(self, chosen: IntArray) -> FloatArray:
        lists = self._lists.of(chosen)
        apart = np.full((len(chosen), len(chosen)), np.inf)
        # Paths along a thinned graph are detours; those over a landmark, which it has kept, may be shorter.
        if self._only_bounds or self._space.thinned:
            apart = bound_between([*ways_to_landmarks(self._space, lists)])
        if not self._only_bounds:
            first = self._provider.graph.n_nodes + int(chosen[0])
            apart = np.minimum(apart, lengths_between(self._search, first, lists))
        if self._points is None:
            return apart
        return with_direct_ways(apart, self._points[chosen], self._space.reach_of_new(lists), self._space.metric)


def ways_to_landmarks(space: GraphSpace, lists: RadiusLists) -> Iterator[AnyArray]:
    """Distances (p, b) of new points with these neighbors to each batch of landmarks in turn."""
    nodes, places = np.unique(lists.indices, return_inverse=True)
    for batch in row_batches(space.stages["rows"]):
        yield rows_through_lists(lists._replace(indices=places), batch.take(nodes))


def chunk_ranges(first: int, last: int, chunk: int) -> list[tuple[int, int]]:
    """Nodes `first` up to `last`, cut where the stored chunks of their distances end."""
    edges = range((first // chunk + 1) * chunk, last, chunk)
    return list(pairwise([first, *edges, last]))


@dataclass(frozen=True)
class NodeCandidates(Candidates):
    """Nodes of the graph; landmarks near each other along the graph come together, as searching from them wants it.

    They are drawn by source row, not by number, so for the same seed they are those of `LandmarkIsomap`. Without cells
    there are no points, and the farthest ones are those along the graph.
    """

    cells: Outcome | None
    ordered: Outcome
    graph: Outcome
    components: Outcome
    version = 3

    @property
    def identity(self) -> list[str]:
        return [self.ordered.ledger.digest, self.components.ledger.digest]

    def chosen(self, n_landmarks: int, selection: str, seed: int) -> dict[str, AnyArray]:
        groups = range(len(self.ordered.figures["nodes_each"]))
        rows = np.concatenate([self.ordered.ledger.part("first", group).read() for group in groups])
        kept = np.flatnonzero(kept_nodes(self.graph, self.components))
        nodes = self._chosen(_by_row(kept, rows[kept]), n_landmarks, selection, seed)
        nodes = nodes[nearby_order(self._connected, nodes)]
        return {"nodes": nodes, "rows": rows[nodes]}

    @property
    def _connected(self) -> PathGraph:
        """Held on to: `rows`, which follows, needs it next and lets go of it."""
        return LOADED.graph(self.ordered, self.graph, self.components)

    def _chosen(self, nodes: IntArray, n_landmarks: int, selection: str, seed: int) -> IntArray:
        """Landmarks among nodes given in the order of their source rows; all but random ones from a sample."""
        if selection == "random" or self.cells is None:
            return chosen_nodes(selection, self._connected, nodes, n_landmarks, seed)
        places, first = maxmin_candidates(len(nodes), n_landmarks, seed)
        candidates = nodes[places]
        order = np.argsort(candidates)
        points, _ = OrderedNodes(self.cells, self.ordered).nodes(candidates[order])
        in_row_order = np.empty_like(order)
        in_row_order[order] = np.arange(len(order))
        return candidates[chosen_points(selection, points[in_row_order], first, n_landmarks, seed)]


def _by_row(nodes: IntArray, rows: IntArray) -> IntArray:
    """Nodes in the order of their source rows, each of which is there once; a place for each is faster than sorting."""
    places = np.full(int(rows.max(initial=-1)) + 1, -1)
    places[rows] = nodes
    return places[places >= 0]
