"""Stage 8 of a direct method, embed: every row placed by its dissimilarities to the landmarks, in the source's order.

On the way the pass counts the distributions of the trust columns, keeps a sample of rows for the quality figures, and
of rows that are no landmarks the trust columns: those are what new rows of the same kind look like.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.numerics.landmarks.sampling import drawn
from pipeline.numerics.statistics.distributions import Sketch, sketch
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.direct.asked import Asked, DirectAnswers
from pipeline.stages.embed import MOST_SAMPLED, SAMPLE_ENTRIES, gathered, merged_sketches, packed
from pipeline.stages.exchange import IN_ROW_ORDER
from pipeline.stages.graph.partition import EXCHANGE_BYTES
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray, Json

SAMPLE = ("rows", "to_landmarks", "projection")
# Another number than the seed of the sample for the figures of quality.
CALIBRATION_SEED = 1
CALIBRATION = ("calibration", "calibration_landmarks")


@dataclass(frozen=True)
class DirectEmbed(Stage):
    """All that the model says of every row, in the user's units: `values` are the answers (d each) and the columns of
    trust."""

    asked: DirectAnswers
    landmarks: Outcome
    partitions: RowPartitions
    seed: int
    name = "embed"
    version = 2

    def settings(self) -> Json:
        asked = self.asked
        return {
            "diagonal_weight": asked.diagonal_weight,
            "rows_each": self.partitions.rows_each,
            "seed": self.seed,
            "lengths": asked.coordinates_are_lengths,
            "direct": True,
        }

    def inputs(self) -> list[str]:
        return [*self.asked.provider.identity, self.asked.model.ledger.digest]

    def n_partitions(self) -> int:
        return self.partitions.count

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        rows = self.partitions.rows(partition)
        sampled = drawn(np.arange(rows.start, rows.stop), self.partitions.n_rows, self.seed, self._n_wanted)
        found = self.asked.ask(rows, sampled)
        names = write_answers(ledger, partition, found)
        chosen = sampled[found.rows - rows.start]
        sample: dict[str, AnyArray] = {
            "sample_rows": found.rows[chosen],
            "sample_to_landmarks": found.to_landmarks.astype(np.float32),
            "sample_projection": found.coordinates[chosen, : self.asked.answers.n_components],
            **dict(zip(CALIBRATION, self._calibrating(found), strict=True)),
            "sketches": packed([_sketch(column[np.isfinite(column)]) for column in found.trust.T]),
        }
        return {"n_embedded": len(found.rows)}, names + ledger.write_parts(partition, sample)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups, asked = sorted(figures), self.asked
        arrays = {name: gathered(ledger, f"sample_{name}", groups) for name in SAMPLE}
        like_new, landmarks = (gathered(ledger, name, groups) for name in CALIBRATION)
        arrays["calibration"] = like_new if len(like_new) else landmarks
        arrays["sketches"], quantiles = merged_sketches(gathered(ledger, "sketches", groups), asked.columns)
        for name, array in arrays.items():
            ledger.write(name, array)
        report = {"n_embedded": sum(entry["n_embedded"] for entry in figures.values()), IN_ROW_ORDER: True}
        report |= {"weight": asked.answers.weight, "exponent": asked.provider.exponent}
        report |= {"coordinate_exponent": asked.coordinate_exponent, "n_sampled": len(arrays["rows"])}
        report |= {"columns": list(asked.columns), "coordinates": list(asked.answers.coordinates)}
        return {**report, "flags": list(asked.flags), "quantiles": quantiles}, list(arrays)

    @property
    def _n_wanted(self) -> int:
        return min(MOST_SAMPLED, max(100, SAMPLE_ENTRIES // self.asked.provider.n_landmarks))

    def _calibrating(self, found: Asked) -> tuple[FloatArray, FloatArray]:
        """The trust columns of rows that are drawn to tell what is usual: of those like new ones, and of landmarks,
        which serve if every row is one."""
        chosen = drawn(found.rows, self.partitions.n_rows, self.seed + CALIBRATION_SEED)
        own = np.isin(found.rows, self._landmark_rows)
        return found.trust[chosen & ~own], found.trust[chosen & own]

    @cached_property
    def _landmark_rows(self) -> IntArray:
        return np.asarray(self.landmarks.ledger.read("rows").read())


def _sketch(values: FloatArray) -> Sketch:
    return sketch(values, np.ones(len(values), dtype=np.int64))


def write_answers(ledger: StageLedger, partition: int, found: Asked) -> list[str]:
    """Write what was said of a partition's rows, as `publish` reads it."""
    values = np.hstack([found.coordinates, found.trust])
    return ledger.write_parts(partition, {"rows": found.rows, "values": values, **found.flags}, EXCHANGE_BYTES)
