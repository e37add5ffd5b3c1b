"""Publish: the results in the user's row order, every row of the source, by the inverse of the exchange.

Each partition of the source gathers from every group the slice that is its own. Rows that take no part in the embedding
are NaN: `component` is -1 where the source had missing entries, above 0 where the component policy dropped the row.

Register, before it in a refit: an embedding is known up to a rigid motion, which fitting again may choose otherwise.
The landmarks of the version before are rows of the new data under the same numbers; the motion that takes their new
coordinates closest to their published ones is applied to all rows.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension.placement import TRUST
from pipeline.numerics.registration import rigid_motion, rms_distance, shared_rows
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.exchange import Column, PublishingStage, gather_rows
from pipeline.stages.space import registered
from pipeline.stages.stage import Cost, Outcome, Result, Shape, SingleStage, total
from pipeline.store.ledger import StageLedger
from pipeline.types import FloatArray, IntArray, Json


@dataclass(frozen=True)
class Register(SingleStage):
    """Arrays `turn` (d, d) and `shift` (d,) in the user's units: x goes to x @ turn + shift.

    `landmarks` and `published` are the results of those stages in the version to register to.
    """

    landmarks: StageLedger
    published: StageLedger
    embedded: Outcome
    n_components: int
    name = "register"

    def inputs(self) -> list[str]:
        return [self.landmarks.digest, self.published.digest, self.embedded.ledger.digest]

    def result(self) -> Result:
        rows = np.sort(self.landmarks.read("rows").read())
        onto = self.published.read("projection").take(rows)
        points = embedded_rows(self.embedded, rows, self.n_components)
        shared = shared_rows(points, onto)
        self._require_enough(int(shared.sum()), len(rows))
        points, onto = points[shared], onto[shared]
        motion = rigid_motion(points, onto)
        after, spread = rms_distance(motion.apply(points), onto), rms_distance(onto, onto.mean(axis=0))
        figures = {"n_shared": len(points), "rank": motion.rank, "spread": spread, "rms_after": after}
        figures |= {"rms_before": rms_distance(points, onto), "relative_rms": after / spread if spread else 0.0}
        return figures, {"turn": motion.turn, "shift": motion.shift}

    def _require_enough(self, n_shared: int, n_landmarks: int) -> None:
        if n_shared <= self.n_components:
            raise InvalidInputError(
                f"only {n_shared} of the {n_landmarks} landmarks of the published version have coordinates in the new "
                f"fit; {self.n_components + 1} are needed to turn it onto the published ones: the neighbor graph has "
                "other components now, so leave out the new rows that changed it, or fit into a new store."
            )


def embedded_rows(embedded: Outcome, rows: IntArray, n_components: int) -> FloatArray:
    """The projection (r, d) of some source rows, rising; NaN where one takes no part in the embedding."""
    found = np.full((len(rows), n_components), np.nan)
    for group in embedded.ledger.complete():
        held = embedded.ledger.part("rows", group).read()  # rising
        places = np.searchsorted(held, rows)
        here = np.flatnonzero(places < len(held))
        here = here[held[places[here]] == rows[here]]
        found[here] = embedded.ledger.part("values", group).take(places[here])[:, :n_components]
    return found


COORDINATES = ("projection", "restricted")
FLAG_COLUMNS = {"ambiguous": Column(np.bool_, 0), "component": Column(np.int64, -1), "labels": Column(np.int64, -1)}
FLAGS = ("ambiguous", "component")
PUBLISHED = (*COORDINATES, *TRUST, *FLAGS)


@dataclass(frozen=True)
class Publish(PublishingStage):
    """Arrays named in `coordinates`, `columns` and `flags`, a row for each row of the source.

    `embedded` has the coordinates and columns side by side in `values`; a registration turns the coordinates.
    """

    embedded: Outcome
    partitions: RowPartitions
    n_components: int
    columns: tuple[str, ...] = TRUST
    registration: Outcome | None = None
    coordinates: tuple[str, ...] = COORDINATES
    flags: tuple[str, ...] = FLAGS
    name = "publish"
    version = 3

    def inputs(self) -> list[str]:
        registration = [] if self.registration is None else [self.registration.ledger.digest]
        return [self.embedded.ledger.digest, *registration]

    @property
    def published(self) -> dict[str, Column]:
        coordinates = dict.fromkeys(self.coordinates, Column(shape=(self.n_components,)))
        return coordinates | dict.fromkeys(self.columns, Column()) | {name: FLAG_COLUMNS[name] for name in self.flags}

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        width = len(self.coordinates) * self.n_components
        values = np.full((len(rows), width + len(self.columns)), np.nan)
        flags = {name: FLAG_COLUMNS[name].unanswered(len(rows)) for name in self.flags}
        gather_rows(self.embedded, self.partitions, partition, {"values": values, **flags})
        coordinates = values[:, :width]
        if self.registration is not None:
            coordinates = registered(self.registration.ledger, coordinates)
        results = dict(zip(self.coordinates, np.split(coordinates, len(self.coordinates), axis=1), strict=True))
        results |= {name: values[:, width + i] for i, name in enumerate(self.columns)}
        self.publish(ledger, rows, {**results, **flags})
        return {"n_embedded": int(np.isfinite(values[:, 0]).sum())}, []

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        return {"n_rows": self.partitions.n_rows, "n_embedded": total(figures, "n_embedded")}, list(self.published)

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, d = shape.n_rows, shape.n_components
        memory = 3 * 8 * shape.n_values * shape.rows
        return Cost(memory, 0.1 + (4e-7 + 1.5e-7 * d) * n, 8 * shape.n_values * n, shape.n_partitions)
