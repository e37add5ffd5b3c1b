"""Embed: coordinates and trust columns of every row, in one pass over the dissimilarities to the landmarks.

On the way the pass counts the distributions of the trust columns and keeps a sample of points for the quality figures.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.statistics import Sketch, merged, quantiles, sketch
from pipeline.stages.exchange import IN_ROW_ORDER, gathered
from pipeline.stages.placing import Placements, Placing, placing_memory
from pipeline.stages.providers.provider import calibration_of_groups
from pipeline.stages.stage import Cost, Shape, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, IntArray, Json

# Entries of the sampled points' distances to the landmarks: 16 MB.
SAMPLE_ENTRIES = 4_000_000
MOST_SAMPLED = 4000
# Placing a point takes this for each landmark and component: sums, or a search of its own.
SECONDS_SUMMED, SECONDS_PLACED = 2e-9, {"stress": 6e-8, "weights": 6e-9}
SHARES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class Embed(Stage):
    """All that the model says of every row, in the user's units.

    Columns of `values` are the coordinates (d each: the projection and the restricted reconstruction, or the one that
    the method has), then the trust columns.
    """

    placing: Placing
    seed: int
    name = "embed"

    @property
    def version(self) -> int:  # type: ignore[override]  # the provider's own
        return self.placing.provider.lineage(self.name).version

    def settings(self) -> Json:
        placing = self.placing
        lengths = {"lengths": placing.coordinates_are_lengths} if placing.provider.in_row_order else {}
        own = {"diagonal_weight": placing.diagonal_weight, "rows_each": placing.partitions.rows_each, "seed": self.seed}
        extra = {"trust_columns": list(placing.extra_columns)} if placing.extra_columns else {}
        return {**own, **lengths, **extra, **placing.provider.lineage(self.name).settings}

    def inputs(self) -> list[str]:
        return [*self.placing.provider.lineage(self.name).inputs, self.placing.model.ledger.digest]

    def n_partitions(self) -> int:
        return self.placing.provider.n_groups(self.placing.partitions)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        placing, provider = self.placing, self.placing.provider
        placed = placing.group(partition, self._sampled)
        values = {"values": np.hstack([placed.coordinates, placed.trust]), **placed.flags}
        names = provider.write(ledger, partition, placing.partitions, placed.numbers, values)
        trust, counts = placed.trust[placed.kept], placed.counts[placed.kept]
        others = self._sample(placed) | provider.calibrating(placed, placing.partitions, self.seed)
        others["sketches"] = packed([_sketched(column, counts) for column in trust.T])
        return {"n_embedded": int(counts.sum())}, names + ledger.write_parts(partition, others)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups, placing = sorted(figures), self.placing
        arrays = {name: gathered(ledger, f"sample_{name}", groups) for name in self._sample_names}
        if placing.provider.in_row_order:
            arrays |= calibration_of_groups(ledger, groups)
        else:
            arrays["counts"] = np.stack([ledger.part("counts", group).read() for group in groups])
        arrays["sketches"], found = merged_sketches(gathered(ledger, "sketches", groups), placing.columns)
        for name, array in arrays.items():
            ledger.write(name, array)
        report = {"n_embedded": sum(entry["n_embedded"] for entry in figures.values())}
        report |= {"weight": placing.answers.weight, "exponent": placing.provider.exponent}
        report |= {"columns": list(placing.columns), "coordinates": list(placing.answers.coordinates)}
        if placing.provider.in_row_order:
            report |= {IN_ROW_ORDER: True, "coordinate_exponent": placing.coordinate_exponent}
            report |= {"flags": list(placing.flags)}
        return {**report, "n_sampled": len(arrays["to_landmarks"]), "quantiles": found}, list(arrays)

    @property
    def _sample_names(self) -> tuple[str, ...]:
        """Numbers of the sampled points, their distances, and their coordinates."""
        if self.placing.provider.in_row_order:
            return ("rows", "to_landmarks", "projection")
        return ("nodes", "to_landmarks", *self.placing.answers.coordinates)

    def _sampled(self, numbers: IntArray) -> BoolArray:
        placing = self.placing
        wanted = min(MOST_SAMPLED, max(100, SAMPLE_ENTRIES // placing.answers.n_landmarks))
        return placing.provider.sampled(numbers, placing.partitions, wanted, self.seed)

    def _sample(self, placed: Placements) -> dict[str, AnyArray]:
        """What is kept of the sampled points: coordinates in the user's units where rows keep their order, otherwise in
        the run's."""
        coordinates = placed.coordinates[placed.sampled]
        if not self.placing.provider.in_row_order:
            coordinates = np.ldexp(coordinates, -self.placing.coordinate_exponent)
        answers = np.split(coordinates, len(self.placing.answers.coordinates), axis=1)
        values: list[AnyArray] = [placed.numbers[placed.sampled], placed.to_landmarks.astype(np.float32), *answers]
        return {f"sample_{name}": value for name, value in zip(self._sample_names, values, strict=False)}

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m, d = shape.n_rows, shape.n_landmarks, shape.n_components
        sampled = min(min(n, MOST_SAMPLED) * m, max(SAMPLE_ENTRIES, 100 * m))
        measures = shape.edges_from is None and shape.n_axes > 0
        reading = (4e-10 * shape.n_axes if measures else 3e-9) * n * m
        placing = SECONDS_PLACED.get(shape.extension, SECONDS_SUMMED) * n * m * (1 + d)
        return Cost(
            memory=placing_memory(shape),
            seconds=reading + (1.2e-6 + 2e-7 * d) * n + placing,
            disk=(8 * shape.n_values + 25) * n + 8 * sampled,
            tasks=shape.n_partitions,
        )


def _sketched(values: AnyArray, counts: IntArray) -> Sketch:
    known = ~np.isnan(values)
    return sketch(values[known], counts[known])


def packed(sketches: list[Sketch]) -> IntArray:
    """Sketches of several columns as one table: column, bin, count."""
    tables = [np.column_stack([np.full(len(one.bins), i), *one]) for i, one in enumerate(sketches)]
    return np.concatenate(tables).astype(np.int64)


def merged_sketches(table: IntArray, columns: tuple[str, ...]) -> tuple[IntArray, Json]:
    """Tables of `packed` on top of each other as one, and the quantiles of each column."""
    sketches = [merged([Sketch(*table[table[:, 0] == i, 1:].T)]) for i in range(len(columns))]
    return packed(sketches), dict(zip(columns, map(_named_quantiles, sketches), strict=True))


def _named_quantiles(of: Sketch) -> Json:
    return dict(zip(map(str, SHARES), quantiles(of, np.array(SHARES)).tolist(), strict=True))
