"""A model asked about the points of a provider, group by group, whether they were fitted or are new.

Embed: coordinates and trust columns of every fitted row, in one pass over the dissimilarities to the landmarks. On the
way the pass counts the distributions of the trust columns and keeps a sample of points for the quality figures.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipeline.numerics.extension.placement import Answer, Answers, weighted_answers
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.mds import LandmarkModel, Moments, MomentSums
from pipeline.numerics.models.spectral import cluster_labels
from pipeline.numerics.statistics import Sketch, merged, quantiles, sketch
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.exchange import IN_ROW_ORDER, gathered
from pipeline.stages.providers.provider import BLOCK_BYTES, Block, Lineage, Provider, calibration_of_groups
from pipeline.stages.space import CENTERS, Space, load_any_model, plugin_column
from pipeline.stages.stage import Cost, Outcome, Shape, Stage, total, written
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

FLAGS = ("ambiguous", "component")
# Entries of the sampled points' distances to the landmarks: 16 MB.
SAMPLE_ENTRIES = 4_000_000
MOST_SAMPLED = 4000
# Placing a point takes this for each landmark and component: sums, or a search of its own.
SECONDS_SUMMED, SECONDS_PLACED = 2e-9, {"stress": 6e-8, "weights": 6e-9}
SHARES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


class Placements(NamedTuple):
    """The points of a group (p,): numbers, which are placed, how many rows each stands for, coordinates (p, a d) and
    trust columns (p, t) in the user's units, flags by name; and the dissimilarities (s, m) of the sampled ones."""

    numbers: IntArray
    kept: BoolArray
    counts: IntArray
    coordinates: FloatArray
    trust: FloatArray
    flags: dict[str, AnyArray]
    sampled: BoolArray
    to_landmarks: AnyArray


class _Answered(NamedTuple):
    """The same of a block of points, as the model gives it; `nearest` is the distance to the nearest landmark."""

    numbers: IntArray
    kept: BoolArray
    answer: Answer
    nearest: FloatArray
    labels: IntArray
    sampled: BoolArray
    to_landmarks: AnyArray


@dataclass(frozen=True)
class Placing:
    """What stages need to place points: new rows in a `space`. Coordinates that are lengths scale with the data."""

    provider: Provider
    model: Outcome
    diagonal_weight: DiagonalWeight
    coordinates_are_lengths: bool
    partitions: RowPartitions
    space: Space | None = None
    extra_columns: tuple[str, ...] = ()
    spread: bool = False

    @cached_property
    def answers(self) -> Answers:
        return weighted_answers(load_any_model(self.model.ledger), self.diagonal_weight, self.spread)

    @property
    def classical(self) -> LandmarkModel:
        """The model, where it has both a projection and a restricted reconstruction."""
        model = self.answers.model
        if not isinstance(model, LandmarkModel):
            raise TypeError(f"{type(model).__name__} has no restricted reconstruction")
        return model

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the trust columns, those of plugins last."""
        return (*self.answers.trust_names, *self.extra_columns)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates: the projection, and the restricted reconstruction if the method has one."""
        return self.answers.coordinates

    @property
    def on_request(self) -> Json:
        """Settings: the trust columns that not every run has, those of plugins among them."""
        plugged_in = {"trust_columns": list(self.extra_columns)} if self.extra_columns else {}
        return {**plugged_in, **({"spread": True} if self.spread else {})}

    @property
    def flags(self) -> tuple[str, ...]:
        if not self.provider.in_row_order:
            return FLAGS
        own = ("ambiguous",) if self.answers.is_classical else ()
        return (*own, "component", *(("labels",) if self._centers is not None else ()))

    @property
    def coordinate_exponent(self) -> int:
        """The power of two that takes coordinates to the user's units."""
        return self.provider.exponent if self.coordinates_are_lengths else 0

    def group(self, group: int, sample: Callable[[IntArray], BoolArray] | None = None) -> Placements:
        """Place the points of a group; `sample` says which of them to keep the dissimilarities of."""
        blocks = [self._answered(block, sample) for block in self.provider.blocks(group, self.partitions)]
        numbers, kept, answers, nearest, labels, sampled, lengths = zip(*blocks, strict=True)
        answer, placed = self.answers.stacked(list(answers)), np.concatenate(kept)
        counts = self.provider.counts(group, len(placed))
        known = self.provider.nearest(group)
        trust = self.trust(answer, np.concatenate(nearest) if known is None else known)
        flags: dict[str, AnyArray] = {
            "ambiguous": answer.ambiguous,
            "component": self.provider.component(group, len(placed)),
            "labels": np.concatenate(labels),
        }
        return Placements(
            np.concatenate(numbers),
            placed,
            counts,
            self.in_users_frame(answer.coordinates),
            np.where(placed[:, None], trust, np.nan),
            {name: flags[name] for name in self.flags},
            np.concatenate(sampled),
            np.concatenate(lengths),
        )

    def in_users_frame(self, coordinates: FloatArray) -> FloatArray:
        """Coordinates (p, a d) in the user's units; of new rows, aligned with the published ones."""
        if self.space is not None:
            return self.space.in_users_frame(coordinates)
        return np.ldexp(coordinates, self.coordinate_exponent)

    def _answered(self, block: Block, sample: Callable[[IntArray], BoolArray] | None) -> _Answered:
        n_kept = int(block.kept.sum())
        sampled = np.zeros(len(block.kept), np.bool_) if sample is None else sample(block.numbers)
        sums, nearest, parts = self.answers.begin(n_kept), np.full(n_kept, np.inf), []
        places = np.flatnonzero(sampled[block.kept])
        for to_landmarks in block.batches:
            parts.append(to_landmarks[places])
            if self.provider.in_row_order:
                nearest = np.minimum(nearest, to_landmarks.min(axis=1))
            sums.add(to_landmarks)
        answer = sums.answer()
        centers = self._centers
        labels = np.empty(0, np.int64) if centers is None else cluster_labels(answer.coordinates, centers)
        placed = self.answers.among_others(answer, block.kept)
        return _Answered(block.numbers, block.kept, placed, nearest, labels, sampled, np.concatenate(parts, axis=1))

    def trust(self, answer: Answer, nearest: FloatArray) -> FloatArray:
        """Trust columns (p, t) in the user's units; `nearest` are distances to the nearest point."""
        extra = [plugin_column(name) for name in self.extra_columns]
        return self.answers.all_trust_in_units(answer, nearest, self.provider.exponent, extra)

    @cached_property
    def _centers(self) -> FloatArray | None:
        if CENTERS not in self.model.ledger.vouched_for(0):
            return None
        return np.asarray(self.model.ledger.read(CENTERS).read())


def moments_of(model: LandmarkModel, n_points: int, batches: Iterable[AnyArray]) -> Moments:
    """The moments of points from their dissimilarities, one batch of landmarks after the other."""
    sums = MomentSums(model, n_points)
    for to_landmarks in batches:
        sums.add(to_landmarks)
    return sums.moments()


class PlacingStage(Stage):
    """A stage that asks a model about points: their provider has a share in its digest."""

    placing: Placing

    @property
    def lineage(self) -> Lineage:
        return self.placing.provider.lineage(self.name)

    @property
    def version(self) -> int:  # type: ignore[override]  # the provider's own
        return self.lineage.version

    def settings(self) -> Json:
        return {**super().settings(), **self.lineage.settings}

    def inputs(self) -> list[str]:
        return [*self.lineage.inputs, *super().inputs()]


@dataclass(frozen=True)
class Embed(PlacingStage):
    """All that the model says of every row, in the user's units.

    Columns of `values` are the coordinates (d each: the projection and the restricted reconstruction, or the one that
    the method has), then the trust columns.
    """

    placing: Placing
    seed: int
    name = "embed"
    depends_on = ("seed",)

    def settings(self) -> Json:
        placing = self.placing
        lengths = {"lengths": placing.coordinates_are_lengths} if placing.provider.in_row_order else {}
        own = {"diagonal_weight": placing.diagonal_weight, "rows_each": placing.partitions.rows_each}
        return {**super().settings(), **own, **lengths, **placing.on_request}

    def inputs(self) -> list[str]:
        return [*super().inputs(), self.placing.model.ledger.digest]

    def n_partitions(self) -> int:
        return self.placing.provider.n_groups(self.placing.partitions)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        placing, provider = self.placing, self.placing.provider
        placed = placing.group(partition, self._sampled)
        values = {"values": np.hstack([placed.coordinates, placed.trust]), **placed.flags}
        names = provider.write(ledger, partition, placing.partitions, placed.numbers, values)
        trust, counts = placed.trust[placed.kept], placed.counts[placed.kept]
        others = self._sample(placed) | provider.calibrating(
            partition, placed.numbers, placed.trust, placing.partitions, self.seed
        )
        others["sketches"] = packed([sketch(*_known(column, counts)) for column in trust.T])
        return {"n_embedded": int(counts.sum())}, names + ledger.write_parts(partition, others)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups, placing = sorted(figures), self.placing
        arrays = {name: gathered(ledger, f"sample_{name}", groups) for name in self._sample_names}
        if placing.provider.calibrates_rows:
            arrays |= calibration_of_groups(ledger, groups)
        if not placing.provider.in_row_order:
            arrays["counts"] = np.stack([ledger.part("counts", group).read() for group in groups])
        arrays["sketches"], found = merged_sketches(gathered(ledger, "sketches", groups), placing.columns)
        report: Json = {"n_embedded": total(figures, "n_embedded")}
        report |= {"weight": placing.answers.weight, "exponent": placing.provider.exponent}
        report |= {"columns": list(placing.columns), "coordinates": list(placing.coordinates)}
        if placing.provider.in_row_order:
            report |= {IN_ROW_ORDER: True, "coordinate_exponent": placing.coordinate_exponent}
            report |= {"flags": list(placing.flags)}
        return written(ledger, {**report, "n_sampled": len(arrays["to_landmarks"]), "quantiles": found}, arrays)

    @property
    def _sample_names(self) -> tuple[str, ...]:
        """Numbers of the sampled points, their distances, and their coordinates."""
        if self.placing.provider.in_row_order:
            return ("rows", "to_landmarks", "projection")
        return ("nodes", "to_landmarks", *self.placing.coordinates)

    def _sampled(self, numbers: IntArray) -> BoolArray:
        placing = self.placing
        wanted = min(MOST_SAMPLED, max(100, SAMPLE_ENTRIES // placing.answers.n_landmarks))
        return placing.provider.sampled(numbers, placing.partitions, wanted, self.seed)

    def _sample(self, placed: Placements) -> dict[str, AnyArray]:
        """What is kept of the sampled points; coordinates in the run's units where rows do not keep their order."""
        coordinates = placed.coordinates[placed.sampled]
        if not self.placing.provider.in_row_order:
            coordinates = np.ldexp(coordinates, -self.placing.coordinate_exponent)
        answers = np.split(coordinates, len(self.placing.coordinates), axis=1)
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


def _known(values: AnyArray, counts: IntArray) -> tuple[AnyArray, IntArray]:
    known = ~np.isnan(values)
    return values[known], counts[known]


def packed(sketches: list[Sketch]) -> IntArray:
    """Sketches of several columns as one table: column, bin, count."""
    tables = [np.column_stack([np.full(len(one.bins), i), *one]) for i, one in enumerate(sketches)]
    return np.concatenate(tables).astype(np.int64)


def merged_sketches(table: IntArray, columns: tuple[str, ...]) -> tuple[IntArray, Json]:
    """Tables of `packed` on top of each other as one, and the quantiles of each column."""
    sketches = [merged([Sketch(*table[table[:, 0] == i, 1:].T)]) for i in range(len(columns))]
    found = (quantiles(one, np.array(SHARES)).tolist() for one in sketches)
    named = (dict(zip(map(str, SHARES), values, strict=True)) for values in found)
    return packed(sketches), dict(zip(columns, named, strict=True))


def placing_memory(shape: Shape) -> int:
    """Bytes that placing the points of a partition takes, fitted or new."""
    m, results = shape.n_landmarks, 8 * shape.n_values * shape.rows
    if shape.edges_from is None:
        return 4 * shape.partition_bytes + 4 * BLOCK_BYTES + 8 * m * shape.n_axes
    if shape.n_nodes:
        # Places of neighbors, and their distances to a batch of landmarks.
        lists = shape.rows * shape.n_neighbors
        return 40 * lists + 48 * min(shape.n_nodes, lists) + 5 * results
    chunk = min(shape.n_rows, shape.nodes_per_chunk)
    return 16 * shape.n_rows + 12 * chunk * m + 2048 * 24 * m + 4 * results
