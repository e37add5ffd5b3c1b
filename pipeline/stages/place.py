"""Place: coordinates and trust columns of new rows, and whether they are like the rows of the fit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.numerics.statistics import compared, gap_counts
from pipeline.stages.exchange import IN_ROW_ORDER
from pipeline.stages.placing import Placing
from pipeline.stages.space import Space
from pipeline.stages.stage import Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, IntArray, Json

# Not tested for drift: the multiplier says the same as the gap.
NOT_WATCHED = ("multiplier",)


def ranks_of(columns: Iterable[str]) -> tuple[str, ...]:
    """Names of the columns that say where trust columns rank among those of the training rows."""
    return tuple(f"{name}_rank" for name in columns)


@dataclass(frozen=True)
class Place(Stage):
    """Columns of `values` are the coordinates (d each), the trust columns and their ranks."""

    space: Space
    placing: Placing
    level: float
    name = "place"

    def settings(self) -> Json:
        own = {"rows_each": self.placing.partitions.rows_each, "level": self.level}
        return {**own, **self.placing.provider.lineage(self.name).settings}

    def inputs(self) -> list[str]:
        return inputs_of_new_rows(self.placing, self.space, self.name)

    def n_partitions(self) -> int:
        return self.placing.provider.n_groups(self.placing.partitions)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        provider, placed = self.placing.provider, self.placing.group(partition)
        ranks = ranks_among(self.space.calibration, placed.trust)
        arrays = {"values": np.hstack([placed.coordinates, placed.trust, ranks]), **placed.flags}
        arrays |= provider.lists(partition, placed.kept)
        names = provider.write(ledger, partition, self.placing.partitions, placed.numbers, arrays)
        trust, counts = placed.trust[placed.kept], placed.counts[placed.kept]
        names += write_watched(ledger, partition, self.space.calibration, trust, counts)
        return {"n_placed": int(counts.sum())}, names

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups, margins = sorted(figures), self.space.stages["calibrate"].figures["margins"]
        n_placed = sum(entry["n_placed"] for entry in figures.values())
        drift = drift_of(ledger, groups, self.space.calibration, margins, self.level)
        report = {"n_placed": n_placed, "drift": drift}
        if self.placing.provider.in_row_order:
            return {**report, IN_ROW_ORDER: True}, []
        ledger.write("counts", np.stack([ledger.part("counts", group).read() for group in groups]))
        return report, ["counts"]


def inputs_of_new_rows(placing: Placing, space: Space, stage: str) -> list[str]:
    """What a stage of new rows reads: where the provider has not read the space itself, also the space."""
    own = list(placing.provider.lineage(stage).inputs)
    return [*own, *space.identity] if placing.provider.in_row_order else own


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
