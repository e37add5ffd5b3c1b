"""Stages 6 and 8 of an extension, place: distances to the landmarks over fitted neighbors, then coordinates and trust.

The distances of all new points to all landmarks are never there at once: a batch of landmarks at a time, those of the
neighbors are read, each new point takes the least sum over its own, and the sums that both answers need are updated.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.numerics.extension.placement import Answer
from pipeline.numerics.extension.reconstruction import Moments, MomentSums
from pipeline.numerics.neighbors.radius import RadiusLists, even_lists, rows_through_lists
from pipeline.numerics.statistics.distributions import compared, gap_counts
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.embed import with_nearest
from pipeline.stages.exchange import write_in_row_order
from pipeline.stages.graph.ragged import lists_of_group, nearest_of_nodes
from pipeline.stages.graph.rows import row_batches
from pipeline.stages.space import FittedSpace
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

# Not compared with the distribution that rows like the training rows have: the multiplier says the same as the gap.
NOT_WATCHED = ("multiplier",)


def ranks_of(columns: Iterable[str]) -> tuple[str, ...]:
    """The names of the columns that say where those rank."""
    return tuple(f"{name}_rank" for name in columns)


@dataclass(frozen=True)
class Place(Stage):
    """The answers and trust columns of new rows, with their ranks; and how the batch compares with the fit's rows.

    Columns of `values` are the answers (d each), those of trust and their ranks.
    """

    space: FittedSpace
    ordered: Outcome
    searched: Outcome
    partitions: RowPartitions
    level: float
    keeps_lists: bool = False
    name = "place"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each, "level": self.level, "keeps_lists": self.keeps_lists}

    def inputs(self) -> list[str]:
        return [self.searched.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.ordered.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        component = self.searched.ledger.part("component", partition).read()
        kept = np.ones(len(component), np.bool_) if self.space.kept is None else component < 1
        known = answered_through(self.space, lists_of_group(self.searched, partition).of(np.flatnonzero(kept)))
        result = self.space.answers.among_others(known, kept)
        nearest = nearest_of_nodes(self.searched, partition)
        trust = with_nearest(self.space.answers, result, nearest, self.space.exponent)
        trust[~kept] = np.nan
        coordinates = self.space.in_users_frame(result.coordinates)
        nodes = {
            "values": np.hstack([coordinates, trust, ranks_among(self.space.calibration, trust)]),
            "ambiguous": result.ambiguous,
            "component": component,
        }
        if self.keeps_lists:
            points = self.ordered.ledger.part("points", partition).read()
            distances, neighbors = (
                self.searched.ledger.part(name, partition).read() for name in ("distances", "neighbors")
            )
            reached = np.where(kept[:, None], distances, np.nan)
            nodes |= {"distances": reached, "neighbors": neighbors, "points": points}
        names = write_in_row_order(ledger, partition, self.ordered, self.partitions, nodes)
        counts = np.bincount(self.ordered.ledger.part("node_of", partition).read(), minlength=len(component))
        names += write_watched(ledger, partition, self.space.calibration, trust[kept], counts[kept])
        return {"n_placed": int(counts[kept].sum())}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups = sorted(figures)
        counts = np.stack([ledger.part("counts", group).read() for group in groups])
        ledger.write("counts", counts)
        n_placed = sum(entry["n_placed"] for entry in figures.values())
        margins = self.space.stages["calibrate"].figures["margins"]
        drift = drift_of(ledger, groups, self.space.calibration, margins, self.level)
        return {"n_placed": n_placed, "drift": drift}, ["counts"]

    def moments(self, distances: FloatArray, neighbors: AnyArray) -> Moments:
        """What both answers need of points with these neighbors (p, k)."""
        return moments_through(self.space, distances, neighbors)


def ranks_among(calibration: Mapping[str, FloatArray], trust: FloatArray) -> FloatArray:
    """For each trust column, the share of rows like the training rows that do not exceed it."""
    ranks = np.empty_like(trust)
    for i, reference in enumerate(calibration.values()):
        ranks[:, i] = np.searchsorted(reference, trust[:, i], side="right") / len(reference)
    ranks[np.isnan(trust)] = np.nan
    return ranks


def write_watched(
    ledger: StageLedger, partition: int, calibration: Mapping[str, FloatArray], trust: FloatArray, weights: IntArray
) -> list[str]:
    """Count where the watched columns of some rows fall among those of rows like the training rows."""
    counts = {
        f"counts_{name}": gap_counts(reference, trust[:, i], weights)
        for i, (name, reference) in enumerate(calibration.items())
        if name not in NOT_WATCHED
    }
    return ledger.write_parts(partition, counts)


def drift_of(
    ledger: StageLedger,
    groups: list[int],
    calibration: Mapping[str, FloatArray],
    margins: Mapping[str, float],
    level: float,
) -> Json:
    """How all rows that were counted compare with rows like the training rows."""
    totals = {
        name: np.sum([ledger.part(f"counts_{name}", group).read() for group in groups], axis=0)
        for name in calibration
        if name not in NOT_WATCHED
    }
    return compared(calibration, totals, margins, level)


def answered_through(space: FittedSpace, lists: RadiusLists) -> Answer:
    """What is said of new points with these neighbors."""
    sums = space.answers.begin(len(lists.sizes))
    for to_landmarks in ways_to_landmarks(space, lists):
        sums.add(to_landmarks)
    return sums.answer()


def moments_through(space: FittedSpace, distances: FloatArray, neighbors: AnyArray) -> Moments:
    """The moments of new points with these neighbors (p, k)."""
    sums = MomentSums(space.model, len(distances))
    for to_landmarks in distances_to_landmarks(space, distances, neighbors):
        sums.add(to_landmarks)
    return sums.moments()


def distances_to_landmarks(space: FittedSpace, distances: FloatArray, neighbors: AnyArray) -> Iterator[AnyArray]:
    """Distances (p, b) of new points with these neighbors (p, k) to each batch of landmarks in turn."""
    return ways_to_landmarks(space, even_lists(distances, neighbors))


def ways_to_landmarks(space: FittedSpace, lists: RadiusLists) -> Iterator[AnyArray]:
    """Distances (p, b) of new points with these neighbors to each batch of landmarks in turn."""
    nodes, places = np.unique(lists.indices, return_inverse=True)
    for batch in row_batches(space.stages["rows"]):
        yield rows_through_lists(lists._replace(indices=places), batch.take(nodes))
