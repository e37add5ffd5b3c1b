"""What every point is to the landmarks: the interface between where distances come from and all that follows.

A provider is small enough to be sent to workers. What it gives for a point does not depend on the points beside it. It
serves a fit and an extension alike: the points are the fitted rows, or new ones.

Points come in groups, the pieces of work of `embed` and `place`. Providers that compare rows with landmarks directly
keep the order of the source: a point is a row, a group is a partition. Along a graph a point is a node, which stands
for all rows that are the same, and groups are neighborhoods in space.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from pipeline.numerics.geodesics.rows import bound_between
from pipeline.numerics.landmarks.sampling import calibrating, drawn
from pipeline.numerics.mds import Model
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.exchange import EXCHANGE_BYTES, gathered
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Memory for a block of dissimilarities: 64 MB.
BLOCK_BYTES = 1 << 26
CALIBRATION = ("calibration", "calibration_landmarks")


class Block(NamedTuple):
    """Consecutive points: their numbers (p,), which of them are placed (p,), and of those the dissimilarities (u, b)
    to one batch of landmarks after the other."""

    numbers: IntArray
    kept: BoolArray
    batches: Iterable[AnyArray]


class Lineage(NamedTuple):
    """A provider's share in the digest of a stage. Changing it orphans the results in existing stores."""

    version: int = 1
    settings: Json = {}  # noqa: RUF012  never written to
    inputs: tuple[str, ...] = ()


class HeldOut(NamedTuple):
    """Fitted points (h,) taken as if they were new: how far the nearest other is, and dissimilarities (h, 2, b) to one
    batch of landmarks after the other, over all neighbors and over one fewer."""

    nearest: FloatArray
    batches: Iterable[AnyArray]


class Neighborhood(ABC):
    """New rows of one grain that are reconstructed together: `kept` (u,) are their places in the grain."""

    kept: IntArray

    @abstractmethod
    def batches(self) -> Iterable[AnyArray]:
        """Their dissimilarities (u, b) to one batch of landmarks after the other."""

    @abstractmethod
    def between(self, chosen: IntArray) -> FloatArray:
        """Dissimilarities between some of them, given by their places in `kept`."""


class Provider(ABC):
    """Dissimilarities of points to m landmarks, in units of 2^exponent of the user's."""

    # Whether points are rows in the order of the source.
    in_row_order: ClassVar[bool]

    @property
    @abstractmethod
    def n_landmarks(self) -> int: ...

    @property
    @abstractmethod
    def exponent(self) -> int: ...

    @abstractmethod
    def lineage(self, stage: str) -> Lineage:
        """What names the provider's results in the digest of a stage."""

    @abstractmethod
    def between(self) -> FloatArray:
        """Dissimilarities (m, m) between the landmarks: symmetric, the diagonal 0."""

    @abstractmethod
    def n_groups(self, partitions: RowPartitions) -> int: ...

    @abstractmethod
    def blocks(self, group: int, partitions: RowPartitions) -> Iterator[Block]:
        """The points of a group, as many at a time as fit in memory."""

    @abstractmethod
    def counts(self, group: int, n_points: int) -> IntArray:
        """How many rows of the source each point of a group stands for."""

    @abstractmethod
    def component(self, group: int, n_points: int) -> IntArray:
        """The component of the graph that each point of a group is in."""

    def nearest(self, group: int) -> FloatArray | None:
        """How far the nearest other point is from each point of a group; None to take the nearest landmark."""
        return None

    @abstractmethod
    def write(
        self, ledger: StageLedger, group: int, partitions: RowPartitions, numbers: IntArray, arrays: dict[str, AnyArray]
    ) -> list[str]:
        """Write what is known of a group's points for the rows of the source that they stand for."""

    def sampled(self, numbers: IntArray, partitions: RowPartitions, wanted: int, seed: int) -> BoolArray:
        """Which points are in the sample for the quality figures, whatever the groups; of new rows there is none."""
        return np.zeros(len(numbers), np.bool_)

    def held_out(self) -> HeldOut | None:
        """Fitted points taken as if they were new; None where these have no neighbors to miss."""
        return None

    @property
    def calibrates_rows(self) -> bool:
        """Whether fitted rows, placed as they were, are as good as new: `embed` then keeps some to calibrate by."""
        return self.in_row_order

    def calibrating(
        self, group: int, numbers: IntArray, trust: FloatArray, partitions: RowPartitions, seed: int
    ) -> dict[str, AnyArray]:
        """Which trust columns (p, t) of a group `embed` keeps for `calibrate`."""
        return {}

    def points(self, numbers: IntArray, partitions: RowPartitions) -> AnyArray | None:
        """Coordinates (s, D) of some points; None where points have none."""
        return None

    @property
    def n_columns(self) -> int:
        """How many coordinates points have."""
        return 1

    def pairs_stage(self, embedded: Outcome, seed: int) -> Stage | None:
        """The stage that finds dissimilarities between sampled points, where they take long; None where not."""
        return None

    def apart(self, sources: IntArray, targets: IntArray, partitions: RowPartitions) -> FloatArray | None:
        """Dissimilarities (s, p) of some points to others; None where only those to landmarks are to be had."""
        return None

    def neighbor_distances(self, wanted: int, seed: int) -> FloatArray | None:
        """Distances (s, k), rising, of about so many points to the k nearest of all others; None if not known."""
        return None

    def figures(self) -> Json:
        """What is known about the quality of its dissimilarities."""
        return {}

    def warn(self) -> None:  # noqa: B027  most have nothing to warn of
        """Warn where the dissimilarities may be less good than promised."""

    def nystrom(self, model: Model, numbers: IntArray, partitions: RowPartitions) -> Json:
        """How well the landmarks explain the kernel between some points, where there is a kernel."""
        return {}

    def neighborhood(self, placed: Outcome, partitions: RowPartitions, rows: range, only_bounds: bool) -> Neighborhood:
        """New rows of one grain or less, as `place` left them, for joint reconstruction and arcs; with `only_bounds`,
        dissimilarities between them are upper bounds over the landmarks."""
        raise TypeError("fitted rows are not reconstructed together")

    def release(self) -> None:  # noqa: B027  most providers keep nothing
        """Let go of what this process keeps in memory between partitions."""


class RowProvider(Provider):
    """Compares rows with landmarks directly: points are rows, groups are partitions of the source."""

    in_row_order = True
    landmarks: Outcome

    @property
    @abstractmethod
    def identity(self) -> list[str]:
        """What names all that it gives."""

    @property
    def n_landmarks(self) -> int:
        return int(self.landmarks.figures["n_landmarks"])

    @cached_property
    def landmark_rows(self) -> IntArray:
        return np.asarray(self.landmarks.ledger.read("rows").read())

    @abstractmethod
    def read(self, start: int, stop: int) -> tuple[AnyArray, BoolArray]:
        """Dissimilarities (u, m) of the usable rows among those from `start` up to `stop`, and which are (p,)."""

    @abstractmethod
    def between_rows(self, rows: IntArray) -> FloatArray:
        """Dissimilarities (p, p) between some new rows, rising."""

    def lineage(self, stage: str) -> Lineage:
        versions, marks = {"embed": 2, "evaluate": 5, "joint": 3}, {} if stage == "joint" else {"direct": True}
        inputs = () if stage in ("calibrate", "evaluate") else tuple(self.identity)
        return Lineage(versions.get(stage, 1), marks, inputs)

    def n_groups(self, partitions: RowPartitions) -> int:
        return partitions.count

    def blocks(self, group: int, partitions: RowPartitions) -> Iterator[Block]:
        rows, step = partitions.rows(group), rows_per_block(self.n_landmarks)
        for first in rows[::step]:
            to_landmarks, usable = self.read(first, min(first + step, rows.stop))
            numbers = np.flatnonzero(usable) + first
            yield Block(numbers, np.ones(len(numbers), np.bool_), [to_landmarks])

    def counts(self, group: int, n_points: int) -> IntArray:
        return np.ones(n_points, np.int64)

    def component(self, group: int, n_points: int) -> IntArray:
        return np.zeros(n_points, np.int64)

    def write(
        self, ledger: StageLedger, group: int, partitions: RowPartitions, numbers: IntArray, arrays: dict[str, AnyArray]
    ) -> list[str]:
        return ledger.write_parts(group, {"rows": numbers, **arrays}, EXCHANGE_BYTES)

    def sampled(self, numbers: IntArray, partitions: RowPartitions, wanted: int, seed: int) -> BoolArray:
        return drawn(numbers, partitions.n_rows, seed, wanted)

    def calibrating(
        self, group: int, numbers: IntArray, trust: FloatArray, partitions: RowPartitions, seed: int
    ) -> dict[str, AnyArray]:
        """Rows that are no landmarks are as good as new; landmarks serve where every row is one."""
        like_new, landmarks = calibrating(numbers, partitions.n_rows, seed, self.landmark_rows)
        return dict(zip(CALIBRATION, (trust[like_new], trust[landmarks]), strict=True))

    def neighborhood(self, placed: Outcome, partitions: RowPartitions, rows: range, only_bounds: bool) -> Neighborhood:
        return _ComparedRows(self, rows, only_bounds)


class _ComparedRows(Neighborhood):
    def __init__(self, provider: RowProvider, rows: range, only_bounds: bool) -> None:
        self._to_landmarks, usable = provider.read(rows.start, rows.stop)
        self._provider, self._start, self._only_bounds = provider, rows.start, only_bounds
        self.kept = np.flatnonzero(usable)

    def batches(self) -> Iterable[AnyArray]:
        return [self._to_landmarks]

    def between(self, chosen: IntArray) -> FloatArray:
        if self._only_bounds:
            return bound_between([self._to_landmarks[chosen]])
        return self._provider.between_rows(self.kept[chosen] + self._start)


def calibration_of_groups(ledger: StageLedger, groups: list[int]) -> dict[str, AnyArray]:
    """What `calibrating` kept of every group, as `calibrate` reads it."""
    like_new, landmarks = (gathered(ledger, name, groups) for name in CALIBRATION)
    return {"calibration": like_new if len(like_new) else landmarks}


def rows_per_block(n_landmarks: int) -> int:
    """How many rows' dissimilarities are in memory at once."""
    return max(1, BLOCK_BYTES // (8 * n_landmarks))


class Candidates(ABC):
    """What landmarks are chosen among. `version`, `marks` and `identity` enter the digest of the stage."""

    version: ClassVar[int] = 1

    @property
    def marks(self) -> Json:
        return {}

    @property
    @abstractmethod
    def identity(self) -> list[str]: ...

    @abstractmethod
    def chosen(self, n_landmarks: int, selection: str, seed: int) -> dict[str, AnyArray]:
        """The source rows of the landmarks, `rows` (m,), and whatever else the provider needs of them."""

    def figures(self) -> Json:
        return {}


@dataclass(frozen=True)
class Measured:
    """What is known once the landmarks are chosen: all that the common stages need."""

    provider: Provider
    landmarks: Outcome
    partitions: RowPartitions
    n_components: int
