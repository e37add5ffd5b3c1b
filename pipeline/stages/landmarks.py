"""Landmarks: chosen among what the provider has to choose from, weighted if that is asked for, and embedded on one
node. How many components there are to be, if the data is to say, is found before landmarks are counted and chosen."""

from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from pipeline.numerics.dimension import (
    AUTOMATIC_BYTES,
    AUTOMATIC_ROWS,
    automatic_components,
    automatic_rows,
    described_dimension,
    dimension_of_points,
    rows_per_block,
)
from pipeline.numerics.landmarks.weights import NOWHERE, NearestLandmarks, landmark_counts
from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.models.spectral import cluster_centers
from pipeline.sources.partitions import RowPartitions, read_rows
from pipeline.stages.graph.partition import GROUPS_IN_MEMORY
from pipeline.stages.providers.provider import BLOCK_BYTES, Block, Candidates, Provider
from pipeline.stages.space import CENTERS, described_model, method_revision
from pipeline.stages.stage import Cost, Outcome, Result, Shape, SingleStage, Stage, total, written
from pipeline.stages.validate import PreparedSource, usable_rows
from pipeline.store.backend import digest_of
from pipeline.store.ledger import StageLedger
from pipeline.types import IntArray, Json


@dataclass(frozen=True)
class AutomaticComponents(SingleStage):
    """`n_components`: the intrinsic dimension of a sample of the rows, rounded, and no more than `most`. Beside it are
    both estimates, by `n_neighbors` neighbors."""

    data: PreparedSource
    n_neighbors: int
    most: int
    seed: int
    name = "dimension"
    depends_on = ("n_neighbors", "most", "seed")

    def inputs(self) -> list[str]:
        return self.data.identity

    def result(self) -> Result:
        n_rows, n_columns = self.data.source.shape
        rows = automatic_rows(n_rows, n_columns, self.seed)
        points = read_rows(self.data, rows, rows_per_block(n_columns))
        points = points[usable_rows(points)]
        found = dimension_of_points(points, self.n_neighbors) if len(points) else None
        n_components = automatic_components(found, len(points), self.most)
        figures: Json = {"n_components": n_components, "intrinsic_dimension": described_dimension(found)}
        return figures, {}

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n = min(shape.n_rows, AUTOMATIC_ROWS)
        sampled = min(8 * n * shape.n_axes, AUTOMATIC_BYTES)
        reading = 8 * shape.row_bytes * rows_per_block(max(1, shape.n_columns))
        return Cost(4 * sampled + reading, 0.1 + 2e-10 * n**2 * shape.n_axes)


@dataclass(frozen=True)
class Landmarks(SingleStage):
    """Source rows `rows` (m,) of the landmarks, and whatever else the provider keeps of them."""

    candidates: Candidates
    n_landmarks: int
    selection: str
    seed: int
    name = "landmarks"
    depends_on = ("n_landmarks", "selection", "seed")

    @property
    def version(self) -> int:  # type: ignore[override]  # the candidates' own
        return self.candidates.version

    def settings(self) -> Json:
        return {**super().settings(), **self.candidates.marks}

    def inputs(self) -> list[str]:
        return self.candidates.identity

    def result(self) -> Result:
        arrays = self.candidates.chosen(self.n_landmarks, self.selection, self.seed)
        return {"n_landmarks": len(arrays["rows"]), **self.candidates.figures()}, arrays

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m, k = shape.n_rows, shape.n_landmarks, shape.n_neighbors
        point = shape.n_axes * shape.point_itemsize
        if shape.edges_from is None:
            among = 50 * 16 * m * shape.n_axes + 3 * shape.partition_bytes
            seconds = 0.1 + 4e-9 * shape.source + 3e-8 * m * m * max(1, shape.n_axes)
            return Cost(among, seconds, 8 * m * (shape.n_axes + 1))
        if shape.edges_from == "given":
            return Cost(shape.graph + 32 * n, 0.1 + 3e-7 * n * (k + 3))
        among = 32 * n + 2 * shape.landmark_candidates * point + GROUPS_IN_MEMORY * shape.block
        choosing = 4e-9 * shape.points + 6e-10 * shape.landmark_candidates * m * shape.n_axes
        return Cost(max(among, shape.graph + 32 * n), 0.1 + 3e-7 * n + 4e-8 * n * k + choosing)


@dataclass(frozen=True)
class LandmarkCounts(Stage):
    """How many rows each landmark stands for, `counts` (m,): those that it is nearest to, by the dissimilarities that
    rows are placed by. `content` is their digest: how rows are cut does not matter to the model."""

    provider: Provider
    landmarks: Outcome
    partitions: RowPartitions
    name = "weights"

    def settings(self) -> Json:
        return {"rows_each": self.partitions.rows_each, **self.provider.lineage(self.name).settings}

    def inputs(self) -> list[str]:
        return [*self.provider.lineage(self.name).inputs, self.landmarks.ledger.digest]

    def n_partitions(self) -> int:
        return self.provider.n_groups(self.partitions)

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        blocks = self.provider.blocks(partition, self.partitions)
        points, nearest = (np.concatenate(of_blocks) for of_blocks in zip(*map(self._nearest, blocks), strict=True))
        counts = landmark_counts(nearest, points, self._points, self.provider.counts(partition, len(points)))
        return {"n_counted": int(counts.sum())}, ledger.write_parts(partition, {"counts": counts})

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        counts = np.zeros(len(self._points), np.int64)
        for partition in figures:
            counts += ledger.part("counts", partition).read()
        report = {"content": digest_of(counts.tobytes()), "n_counted": total(figures, "n_counted")}
        return written(ledger, {**report, "least": int(counts.min()), "most": int(counts.max())}, {"counts": counts})

    def release(self) -> None:
        self.provider.release()

    def _nearest(self, block: Block) -> tuple[IntArray, IntArray]:
        """The points of a block (p,), and the landmark nearest to each, NOWHERE for points that are not placed."""
        found = NearestLandmarks(self._rows, int(block.kept.sum()))
        for to_landmarks in block.batches:
            found.add(to_landmarks)
        nearest = np.full(len(block.kept), NOWHERE)
        nearest[block.kept] = found.places
        return block.numbers, nearest

    @cached_property
    def _rows(self) -> IntArray:
        return np.asarray(self.landmarks.ledger.read("rows").read())

    @cached_property
    def _points(self) -> IntArray:
        """The landmarks' numbers among the provider's points."""
        return self._rows if self.provider.in_row_order else np.asarray(self.landmarks.ledger.read("nodes").read())

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m, measures = shape.n_rows, shape.n_landmarks, shape.edges_from is None and shape.n_axes > 0
        reading = 4e-10 * shape.n_axes if measures else 3e-9
        blocks = 3 * shape.partition_bytes + 3 * BLOCK_BYTES + 8 * m * shape.n_axes
        return Cost(
            memory=blocks + 32 * shape.rows,
            seconds=(reading + 1e-9) * n * m,
            disk=8 * m * (shape.n_partitions + 1),
            tasks=shape.n_partitions,
        )


# Settings of a model that earlier states of this version did not have, with what they took for granted.
DEFAULTS = asdict(Choice("", 0))
# Extensions that were made in another way by earlier states of this version.
REVISIONS = {"kernel-mapping": 2}
# What methods that iterate over all pairs of landmarks take for each pair.
SECONDS_PER_PAIR = {"metric-mds": 4e-5, "nonmetric-mds": 2e-4, "sammon": 4e-5}


@dataclass(frozen=True)
class Model(SingleStage):
    """The landmarks' coordinates and what extending to other points needs, in the run's units; with `n_clusters`, also
    the centers (c, d) of clusters among them. Where rows are `counted`, landmarks weigh as many as they stand for."""

    provider: Provider
    choice: Choice
    n_clusters: int | None
    seed: int
    counted: Outcome | None = None
    name = "model"

    def settings(self) -> Json:
        clusters = {} if self.n_clusters is None else {"n_clusters": self.n_clusters, "seed": self.seed}
        return {**described_choice(self.choice), **clusters, **self.provider.lineage(self.name).settings}

    def inputs(self) -> list[str]:
        counted = [] if self.counted is None else [str(self.counted.figures["content"])]
        return [*self.provider.lineage(self.name).inputs, *counted]

    def result(self) -> Result:
        weights = None if self.counted is None else self.counted.ledger.read("counts").read()
        model = fitted_model(self.choice, self.provider.between(), weights)
        figures, arrays = described_model(model)
        if self.n_clusters is not None:
            arrays[CENTERS] = cluster_centers(model.coordinates, self.n_clusters, self.seed)
        return figures | method_revision(self.choice.method), arrays

    @staticmethod
    def cost(shape: Shape) -> Cost:
        m, d = shape.n_landmarks, shape.n_components
        copies, decomposing = (12, 2e-10) if shape.edges_from is None else (5, 1e-10)
        searching = SECONDS_PER_PAIR.get(shape.method, 0.0) * m * m * shape.n_init
        kept = 4 * d if shape.extension in ("projection", "restricted") else m
        return Cost(8 * copies * m * m, 0.05 + decomposing * m**3 + searching, 8 * m * kept)


def described_choice(choice: Choice) -> Json:
    """What a model's digest depends on: the method, and whatever is not as it would be anyway."""
    always = ("method", "n_components")
    told = {name: value for name, value in asdict(choice).items() if name in always or value != DEFAULTS[name]}
    revision = {"revision": REVISIONS[choice.extension]} if choice.extension in REVISIONS else {}
    return told | revision | method_revision(choice.method)
