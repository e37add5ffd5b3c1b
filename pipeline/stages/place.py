"""Stages 6 and 8 of an extension, place: distances to the landmarks over fitted neighbors, then coordinates and trust.

The distances of all new points to all landmarks are never there at once: a batch of landmarks at a time, those of the
neighbors are read, each new point takes the least sum over its own, and the sums that both answers need are updated.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.numerics.drift import compared, gap_counts
from pipeline.numerics.extension.moments import Moments, MomentSums
from pipeline.numerics.geodesics import rows_through_neighbors
from pipeline.numerics.trust import TRUST, among_others, placed_by_moments, trust_columns
from pipeline.partitions import RowPartitions
from pipeline.stages.exchange import write_in_row_order
from pipeline.stages.rows import row_batches
from pipeline.stages.space import FittedSpace
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

RANKS = tuple(f"{name}_rank" for name in TRUST)
# Columns whose distribution in a batch is compared with that of rows like the training rows. The multiplier says the
# same as the gap.
WATCHED = ("residual", "gap", "nearest")


@dataclass(frozen=True)
class Place(Stage):
    """Both answers and trust columns of new rows, with their ranks; and how the batch compares with the fit's rows.

    Columns of `values` are the projection (d), the restricted reconstruction (d), those of TRUST and of RANKS.
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
        part = self.searched.ledger.part
        distances, component = part("distances", partition).read(), part("component", partition).read()
        kept = np.ones(len(component), np.bool_) if self.space.kept is None else component < 1
        neighbors = part("neighbors", partition).read()
        moments = self.moments(distances[kept], neighbors[kept])
        known = placed_by_moments(self.space.model, moments, self.space.weight)
        result = among_others(known, kept, self.space.model)
        trust = trust_columns(result, distances[:, 0], self.space.exponent)
        trust[~kept] = np.nan
        coordinates = [self.space.in_users_frame(answer) for answer in (result.projection, result.restricted)]
        nodes = {
            "values": np.hstack([*coordinates, trust, self._ranks(trust)]),
            "ambiguous": result.ambiguous,
            "component": component,
        }
        if self.keeps_lists:
            points = self.ordered.ledger.part("points", partition).read()
            reached = np.where(kept[:, None], distances, np.nan)
            nodes |= {"distances": reached, "neighbors": neighbors, "points": points}
        names = write_in_row_order(ledger, partition, self.ordered, self.partitions, nodes)
        counts = np.bincount(self.ordered.ledger.part("node_of", partition).read(), minlength=len(component))
        watched = {f"counts_{name}": self._counts(name, trust[kept], counts[kept]) for name in WATCHED}
        return {"n_placed": int(counts[kept].sum())}, names + ledger.write_parts(partition, watched)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups = sorted(figures)
        counts = np.stack([ledger.part("counts", group).read() for group in groups])
        ledger.write("counts", counts)
        totals = {
            name: np.sum([ledger.part(f"counts_{name}", group).read() for group in groups], axis=0) for name in WATCHED
        }
        n_placed = sum(entry["n_placed"] for entry in figures.values())
        margins = self.space.stages["calibrate"].figures["margins"]
        return {"n_placed": n_placed, "drift": compared(self.space.calibration, totals, margins, self.level)}, [
            "counts"
        ]

    def moments(self, distances: FloatArray, neighbors: AnyArray) -> Moments:
        """What both answers need of points with these neighbors (p, k)."""
        return moments_through(self.space, distances, neighbors)

    def _ranks(self, trust: FloatArray) -> FloatArray:
        """For each trust column, the share of rows like the training rows that do not exceed it."""
        ranks = np.empty_like(trust)
        for i, name in enumerate(TRUST):
            reference = self.space.calibration[name]
            ranks[:, i] = np.searchsorted(reference, trust[:, i], side="right") / len(reference)
        ranks[np.isnan(trust)] = np.nan
        return ranks

    def _counts(self, name: str, trust: FloatArray, weights: IntArray) -> IntArray:
        return gap_counts(self.space.calibration[name], trust[:, TRUST.index(name)], weights)


def moments_through(space: FittedSpace, distances: FloatArray, neighbors: AnyArray) -> Moments:
    """The moments of new points with these neighbors (p, k)."""
    sums = MomentSums(space.model, len(distances))
    for to_landmarks in distances_to_landmarks(space, distances, neighbors):
        sums.add(to_landmarks)
    return sums.moments()


def distances_to_landmarks(space: FittedSpace, distances: FloatArray, neighbors: AnyArray) -> Iterator[AnyArray]:
    """Distances (p, b) of new points with these neighbors (p, k) to each batch of landmarks in turn."""
    nodes, places = np.unique(neighbors, return_inverse=True)
    places = places.reshape(neighbors.shape)
    for batch in row_batches(space.stages["rows"]):
        yield rows_through_neighbors(distances, places, batch.take(nodes))
