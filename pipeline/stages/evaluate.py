"""Calibrate and evaluate: what new rows like the training rows look like, and how good the embedding is."""

from dataclasses import dataclass

import numpy as np

from pipeline.numerics.agreement import Pairs, residual_variances, stress
from pipeline.numerics.dimension import Dimension, described_dimension, dimension_of_points, intrinsic_dimension
from pipeline.numerics.extension.placement import answers_of
from pipeline.numerics.landmarks.sampling import MOST_HELD_OUT
from pipeline.numerics.mds import LandmarkModel, Model
from pipeline.numerics.models.further import MOST_EMBEDDED_AGAIN, further
from pipeline.numerics.statistics import (
    continuity,
    gap_counts,
    largest_gap,
    trustworthiness,
)
from pipeline.stages.embed import MOST_SAMPLED, SAMPLE_ENTRIES, Placing, PlacingStage
from pipeline.stages.exchange import IN_ROW_ORDER
from pipeline.stages.graph.pairs import lengths_of
from pipeline.stages.graph.partition import GROUPS_IN_MEMORY
from pipeline.stages.space import load_any_model, spectrum_figures
from pipeline.stages.stage import Cost, Outcome, Result, Shape, SingleStage
from pipeline.types import AnyArray, FloatArray, IntArray, Json

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Memory for the sampled points in double precision: 128 MB.
SAMPLE_BYTES = 1 << 27
# Sampled points that distances to all others are compared from, where it takes no search.
N_SOURCES = 64
# Points that a kernel is compared between.
MOST_COMPARED = 500
# Points whose nearest neighbors say how many dimensions the data has.
MOST_IN_DIMENSION = 20_000


@dataclass(frozen=True)
class Calibrate(PlacingStage, SingleStage):
    """Each trust column of training rows taken as if they were new, in the user's units, in ascending order.

    Along a graph whose new points have only their own edges, those of fitted points would not do: they reach the
    landmarks over edges of others too. Nor is a point that is left out quite like a new one, so the columns are also
    found with one neighbor fewer: how far that moves their distributions is the margin within which a batch counts as
    like the training rows.
    """

    placing: Placing
    embedded: Outcome
    name = "calibrate"

    def settings(self) -> Json:
        own = {} if self.placing.provider.in_row_order else {"diagonal_weight": self.placing.diagonal_weight}
        return {**own, **self.placing.on_request, **super().settings()}

    def inputs(self) -> list[str]:
        read = self.embedded if self.placing.provider.calibrates_rows else self.placing.model
        return [*super().inputs(), read.ledger.digest]

    def result(self) -> Result:
        placing = self.placing
        figures, arrays = calibrated(placing.columns, *self._columns_as_new())
        units = {"weight": placing.answers.weight, "exponent": placing.provider.exponent}
        scale = {"coordinate_exponent": placing.coordinate_exponent} if placing.provider.in_row_order else {}
        return {**figures, **units, **scale}, arrays

    def _columns_as_new(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Trust columns (h, t) of fitted rows taken as if they were new; of some over their own neighbors, and over one
        fewer."""
        placing, held = self.placing, self.placing.provider.held_out()
        if held is None:
            return self._kept, self._kept, self._kept
        both = [placing.answers.begin(len(held.nearest)) for _ in range(2)]
        for lengths in held.batches:
            for way, sums in enumerate(both):
                sums.add(np.ascontiguousarray(lengths[:, way]))
        own, fewer = (placing.trust(sums.answer(), held.nearest) for sums in both)
        return self._kept if placing.provider.calibrates_rows else own, own, fewer

    @property
    def _kept(self) -> FloatArray:
        """Those that `embed` has kept of rows that are as good as new."""
        return np.asarray(self.embedded.ledger.read("calibration").read())

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m, d = min(shape.n_rows, MOST_HELD_OUT), shape.n_landmarks, shape.n_components
        if shape.edges_from is None:
            return Cost(seconds=0.02)
        each = 8 * (12 * d + 4 * shape.n_neighbors + 24)
        return Cost(MOST_HELD_OUT * each, 0.02 + (5e-9 + 1e-9 * d) * n * m, 32 * n)


def calibrated(names: tuple[str, ...], columns: FloatArray, own: FloatArray, fewer: FloatArray) -> Result:
    """The trust columns (h, t) of rows taken as new, in ascending order, with their quantiles and margins.

    `own` and `fewer` are the columns that rows have over their own neighbors and over one fewer.
    """
    margins, found, arrays = {}, {}, {}
    ordered = (np.sort(values, axis=0).T for values in (columns, own, fewer))
    for name, column, all_, other in zip(names, *ordered, strict=True):
        arrays[name] = np.ascontiguousarray(column)
        counts = gap_counts(all_, other, np.ones(len(other), dtype=np.int64))
        margins[name] = largest_gap(all_, counts)
        found[name] = dict(zip(map(str, SHARES), np.quantile(column, SHARES).tolist(), strict=True))
    return {"n_rows": len(columns), "quantiles": found, "margins": margins}, arrays


@dataclass(frozen=True)
class Evaluate(PlacingStage, SingleStage):
    """Figures of quality on the sample that `embed` kept. Trustworthiness and continuity are those of the sample as a
    data set of its own, and None where points have no coordinates; figures of distances are None for affinities."""

    placing: Placing
    embedded: Outcome
    n_neighbors: int
    seed: int
    pairs: Outcome | None = None
    name = "evaluate"
    depends_on = ("n_neighbors", "seed")
    reads = ("embedded",)

    def inputs(self) -> list[str]:
        return [*super().inputs(), *([] if self.pairs is None else [self.pairs.ledger.digest])]

    def result(self) -> Result:
        provider, model = self.placing.provider, load_any_model(self.placing.model.ledger)
        projection = self.embedded.ledger.read("projection").read()
        figures = {"sample_size": len(projection), **self._lengths(model, projection)}
        figures |= {**provider.figures(), **spectrum_figures(model)}
        every = slice(None, None, self._stride(MOST_COMPARED))
        figures |= provider.nystrom(model, self._numbers[every], self.placing.partitions)
        figures["intrinsic_dimension"] = described_dimension(self._dimension())
        return {**figures, **self._neighborhoods(projection)}, {}

    def _dimension(self) -> Dimension | None:
        """By the neighbors that a graph is made of; without a graph, by those within the sample."""
        provider = self.placing.provider
        distances = provider.neighbor_distances(MOST_IN_DIMENSION, self.seed)
        if distances is not None:
            return intrinsic_dimension(distances)
        points = provider.points(self._numbers[self._every], self.placing.partitions)
        return None if points is None else dimension_of_points(points, self.n_neighbors)

    @property
    def _every(self) -> slice:
        """Sampled points that fit in memory: a stride, since neighboring numbers are neighbors in space."""
        return slice(None, None, self._stride(max(1, SAMPLE_BYTES // (8 * self.placing.provider.n_columns))))

    @property
    def _numbers(self) -> IntArray:
        """The sampled points."""
        name = "rows" if self.embedded.figures.get(IN_ROW_ORDER) else "nodes"
        return np.asarray(self.embedded.ledger.read(name).read())

    def _stride(self, most: int) -> int:
        """Take every n-th point, so that at most so many are left."""
        return -(-int(self.embedded.figures["n_sampled"]) // most) or 1

    def _lengths(self, model: Model, projection: AnyArray) -> Json:
        if answers_of(model).takes_affinities:
            return {"residual_variance": None, "normalized_stress": None}
        lengths = self.embedded.ledger.read("to_landmarks").read().astype(np.float64)
        unscaled = np.ldexp(projection, -int(self.embedded.figures.get("coordinate_exponent", 0)))
        sources, apart = self._sources()
        if apart is None:
            seen = Pairs(lengths.T, model.coordinates, unscaled, len(lengths))
        else:
            seen = Pairs(apart, unscaled[sources], unscaled[self._targets], self._n_points)
        variances, misfit = residual_variances(seen), stress(seen)
        return self._beyond(model, lengths, sources, apart) | {
            "measured_from": "landmarks" if apart is None else "points",
            "n_sources": len(seen.lengths),
            "residual_variance": [estimate.value for estimate in variances],
            "residual_variance_95": [list(estimate[1:]) for estimate in variances],
            "normalized_stress": misfit.value,
            "normalized_stress_95": list(misfit[1:]),
        }

    def _sources(self) -> tuple[IntArray, FloatArray | None]:
        """Places of some sampled points in the sample, and dissimilarities (s, p) of each to all; None for these where
        only those to landmarks are known."""
        if self.pairs is not None:
            return lengths_of(self.pairs)
        every = np.arange(int(self.embedded.figures["n_sampled"]))[self._every]
        chosen = np.random.default_rng(self.seed).choice(len(every), min(N_SOURCES, len(every)), replace=False)
        sources, numbers = every[np.sort(chosen)], self._numbers
        return sources, self.placing.provider.apart(numbers[sources], numbers[every], self.placing.partitions)

    @property
    def _targets(self) -> slice:
        """Which of the sample sources are compared with."""
        return slice(None) if self.pairs is not None else self._every

    @property
    def _n_points(self) -> int:
        """How many points sources were drawn from."""
        return self.placing.partitions.n_rows if self.pairs is None else int(self.pairs.figures["n_points"])

    def _beyond(self, model: Model, lengths: FloatArray, sources: IntArray, apart: FloatArray | None) -> Json:
        """Residual variance of classical models with more components than are fitted, as far as the landmarks have
        them."""
        if not isinstance(model, LandmarkModel):
            return {}
        larger, found = further(model, self.placing.provider.between, lengths), list[float]()
        if larger is not None:
            of_landmarks, coordinates = larger
            seen = Pairs(lengths.T, of_landmarks, coordinates, len(lengths))
            if apart is not None:
                seen = Pairs(apart, coordinates[sources], coordinates[self._targets], self._n_points)
            found = [estimate.value for estimate in residual_variances(seen)[model.n_components :]]
        return {"residual_variance_beyond": found}

    def _neighborhoods(self, projection: AnyArray) -> Json:
        provider, every = self.placing.provider, self._every
        numbers, coordinates = self._numbers[every], projection[every]
        k = min(self.n_neighbors, (len(numbers) - 1) // 2)
        points = provider.points(numbers, self.placing.partitions) if k >= 1 else None
        if points is None:
            return {"trustworthiness": None, "continuity": None}
        return {
            "trustworthiness": trustworthiness(points, coordinates, k, seed=self.seed)._asdict(),
            "continuity": continuity(points, coordinates, k, seed=self.seed)._asdict(),
        }

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n, m, axes = min(shape.n_rows, MOST_SAMPLED), shape.n_landmarks, shape.n_axes
        sampled = min(n, max(100, SAMPLE_ENTRIES // m))
        points = GROUPS_IN_MEMORY * shape.block if shape.edges_from else 3 * shape.partition_bytes
        stored = shape.n_neighbors if shape.edges_from == "neighbors" else 0
        reading = 8 * (shape.rows + 6 * min(shape.n_rows, MOST_IN_DIMENSION)) * stored
        embedded = min(m, MOST_EMBEDDED_AGAIN)
        seconds = 0.3 + 3.5e-10 * n**2 * axes + 4e-9 * shape.n_rows * stored + 1e-10 * embedded**3
        return Cost(max(points + reading + 8 * sampled * (5 * m + 4 * axes), 40 * embedded**2), seconds)
