"""How many components there are to be, if the data is to say: found before landmarks are counted and chosen."""

from dataclasses import dataclass

from pipeline.numerics.dimension import (
    AUTOMATIC_BYTES,
    AUTOMATIC_ROWS,
    automatic_components,
    automatic_rows,
    described_dimension,
    dimension_of_points,
    rows_per_block,
)
from pipeline.sources.partitions import read_rows
from pipeline.stages.stage import Cost, Result, Shape, SingleStage
from pipeline.stages.validate import PreparedSource, usable_rows
from pipeline.types import Json


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
