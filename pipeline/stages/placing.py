"""A model asked about the points of a provider, group by group, whether they were fitted or are new."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipeline.numerics.extension.placement import Answer, Answers
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.mds import LandmarkModel, Moments, MomentSums
from pipeline.numerics.models.spectral import cluster_labels
from pipeline.plugins import TrustColumn
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.cost import Shape
from pipeline.stages.landmarks import CENTERS, load_answers
from pipeline.stages.providers.provider import BLOCK_BYTES, Block, Provider
from pipeline.stages.space import Space, plugin_column, trust_columns
from pipeline.stages.stage import Outcome
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

FLAGS = ("ambiguous", "component")


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
    """Everything that stages need to place points. Coordinates that are lengths scale with the data. For new rows,
    `space` is what they are placed in."""

    provider: Provider
    model: Outcome
    diagonal_weight: DiagonalWeight
    coordinates_are_lengths: bool
    partitions: RowPartitions
    space: Space | None = None
    extra_columns: tuple[str, ...] = ()

    @cached_property
    def answers(self) -> Answers:
        return load_answers(self.model.ledger, self.diagonal_weight)

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
        return (*trust_columns(self.answers), *self.extra_columns)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates: the projection, and the restricted reconstruction if the method has one."""
        return self.answers.coordinates

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

    def moments(self, batches: Iterable[AnyArray], n_points: int) -> Moments:
        """The moments of points from their dissimilarities, one batch of landmarks after the other."""
        sums = MomentSums(self.classical, n_points)
        for to_landmarks in batches:
            sums.add(to_landmarks)
        return sums.moments()

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
        columns = [self.answers.trust_in_units(answer, self.provider.exponent)]
        if not self.answers.takes_affinities:
            columns.append(np.ldexp(nearest, self.provider.exponent)[:, None])
        columns += [self._extra(plugin_column(name), answer) for name in self.extra_columns]
        return np.hstack(columns)

    def _extra(self, column: TrustColumn, answer: Answer) -> FloatArray:
        values = np.asarray(column.values(self.answers.model, answer), dtype=np.float64)
        return np.ldexp(values, column.degree * self.provider.exponent)[:, None]

    @cached_property
    def _centers(self) -> FloatArray | None:
        if CENTERS not in self.model.ledger.vouched_for(0):
            return None
        return np.asarray(self.model.ledger.read(CENTERS).read())


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
