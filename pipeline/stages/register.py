"""Stage 9 of a refit, register: how the new coordinates are turned and moved to lie on those published before.

An embedding is known up to a rigid motion, which fitting again may choose otherwise. The landmarks of the version
before are rows of the new data under the same numbers; the motion that takes their new coordinates closest to their
published ones is applied to all rows.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics.registration import rigid_motion, rms_distance, shared_rows
from pipeline.stages.stage import Outcome, SingleStage
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

    def settings(self) -> Json:
        return {}

    def inputs(self) -> list[str]:
        return [self.landmarks.digest, self.published.digest, self.embedded.ledger.digest]

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = np.sort(self.landmarks.read("rows").read())
        onto = self.published.read("projection").take(rows)
        points = embedded_rows(self.embedded, rows, self.n_components)
        shared = shared_rows(points, onto)
        self._require_enough(int(shared.sum()), len(rows))
        points, onto = points[shared], onto[shared]
        motion = rigid_motion(points, onto)
        ledger.write("turn", motion.turn)
        ledger.write("shift", motion.shift)
        after, spread = rms_distance(motion.apply(points), onto), rms_distance(onto, onto.mean(axis=0))
        figures = {"n_shared": len(points), "rank": motion.rank, "spread": spread, "rms_after": after}
        figures |= {"rms_before": rms_distance(points, onto), "relative_rms": after / spread if spread else 0.0}
        return figures, ["turn", "shift"]

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
