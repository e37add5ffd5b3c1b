"""An inversion: from coordinates in the space of a fitted run back to its data, in a store of its own.

The run is only read, and by the digests of one published state. Its embedded points are indexed once, in the output;
every query then finds its nearest there, and takes from the source of the run only the rows that belong to those.
"""

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import ClassVar, Unpack

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.jobs.batches import data_paths, fitted_sources, is_scanned
from pipeline.jobs.job import Done, Job, Runner, Way, opened_run, require_apart
from pipeline.jobs.plan import cut_rows
from pipeline.methods import RADIAL_FUNCTIONS, VECTORS
from pipeline.numerics.inverse.neighborhood import Kernel
from pipeline.numerics.neighbors.spatial import cell_count, sample_size
from pipeline.settings import InvertSettings
from pipeline.sources import Source, open_source
from pipeline.sources.arrays import joined
from pipeline.sources.partitions import MANY_PARTITIONS, RowPartitions
from pipeline.stages.graph.stages import Assign, Cells, Order, Probes
from pipeline.stages.inverse.invert import BLOCK_BYTES, ERRORS, JUDGED, OUTSIDE, Invert, LeaveOut, PublishInverted
from pipeline.stages.inverse.neighborhoods import (
    AssignQueries,
    Gather,
    Index,
    OrderQueries,
    SearchEmbedded,
    needs_probes,
)
from pipeline.stages.inverse.points import (
    CheckUnchanged,
    DrawPoints,
    Path,
    ScaledQueries,
    ScanPoints,
    ScanQueries,
    StoredSource,
)
from pipeline.stages.space import published_stages
from pipeline.stages.stage import BASE, SEARCH, Outcome, Watch
from pipeline.stages.validate import PreparedSource
from pipeline.store import run
from pipeline.types import Json

# Every stage that an inversion may have, in order.
STAGES = tuple(
    stage.name
    for stage in (
        *(CheckUnchanged, ScanPoints, Cells, Assign, Order, Probes, DrawPoints, Path),
        *(ScanQueries, AssignQueries, OrderQueries, SearchEmbedded, Gather, Invert, LeaveOut, PublishInverted),
    )
)
# Settings that a manifest keeps.
TOLD = {"n_neighbors", "kernel", "scale", "outside", "id_column"}
# Queries that are worth being sent to a worker.
FEWEST_TOGETHER = 256
EMBEDDED = np.dtype(np.float64)


@dataclass(frozen=True)
class InvertJob(Job):
    """An inversion whose run, data and queries are open and checked.

    `points` are the embedded points of the run, `data` the rows that were fitted, `validated` their scan; they are
    `unchanged` if they are in the files that were fitted, untouched. `queries` are the user's, if there are any.
    """

    settings: InvertSettings
    kernel: Kernel
    points: StoredSource
    data: Source
    validated: Outcome
    unchanged: bool
    queries: Source | None
    kind: ClassVar[str] = run.INVERSION

    @property
    def n_queries(self) -> int:
        if self.queries is not None:
            return self.queries.shape[0]
        return self.settings.steps if self.settings.path else self.points.shape[0]

    @property
    def n_results(self) -> int:
        """Numbers that a query gets."""
        return 1 + len(JUDGED) + (len(ERRORS) if self.settings.leave_one_out else self.data.shape[1])

    @property
    def index_partitions(self) -> RowPartitions:
        return self._cut(self.points.shape[0], 8 * self.points.shape[1])

    @property
    def query_partitions(self) -> RowPartitions:
        return self._cut(self.n_queries, 8 * (self.points.shape[1] + self.n_results))

    @property
    def group_rows(self) -> int:
        """How many queries are searched for together: each counts with its neighbors and what is made of them.

        Each takes a millisecond or more, so that there should be groups for all workers.
        """
        each = 8 * (self.points.shape[1] + self.n_results + self.data.shape[1]) + 24 * self.settings.n_neighbors
        n_asked = min(self.n_queries, self.settings.sample or self.n_queries)
        return min(self._cut(self.n_queries, each).rows_each, max(FEWEST_TOGETHER, n_asked // MANY_PARTITIONS))

    @property
    def source_partitions(self) -> RowPartitions:
        n, n_columns = self.data.shape
        return self._cut(n, n_columns * self.data.dtype.itemsize)

    def _cut(self, n_rows: int, row_bytes: int) -> RowPartitions:
        return cut_rows(n_rows, row_bytes, self.settings.partition_mib)

    def stages(self, done: Runner) -> None:
        if not self.unchanged:
            done(CheckUnchanged(self.data, self.validated))
        index = self._indexed(done)
        queries, cut, leaves_out = self._asked(index, done), self.query_partitions, self.settings.leave_one_out
        placed = ScaledQueries(queries, index.points, batch=done(ScanQueries(queries, cut)), fitted_dtype=EMBEDDED)
        ordered = done(OrderQueries(done(AssignQueries(placed, cut, index.cells)), cut.count, self.group_rows))
        rows, n_columns = self.source_partitions, self.data.shape[1]
        searched = done(SearchEmbedded(index, ordered, rows, self.settings.n_neighbors, leaves_out))
        gathered = done(Gather(self.data, str(self.validated.figures["content"]), rows, searched))
        invert_stage = LeaveOut if leaves_out else Invert
        inverted = done(invert_stage(index, ordered, searched, gathered, rows.count, cut, n_columns, self.kernel))
        done(PublishInverted(inverted, cut, None if leaves_out else n_columns, self.settings.outside))

    def _indexed(self, done: Runner) -> Index:
        """The embedded points, ordered by cells."""
        cut, seed, recall = self.index_partitions, self.settings.seed, self.settings.recall
        scanned = done(ScanPoints(self.points, cut, "drop"))
        points = PreparedSource(self.points, scanned)
        cells = done(Cells(points, cut, seed))
        ordered, probes = done(Order(done(Assign(points, cut, cells)), cut.count, cut.rows_each)), None
        if needs_probes(ordered) and recall < 1:
            probes = done(Probes(cells, ordered, self.settings.n_neighbors, seed, recall))
        return Index(scanned, cells, ordered, probes)

    def _asked(self, index: Index, done: Runner) -> Source:
        """What is asked for: points of the user's, of a path, or embedded ones."""
        settings, known = self.settings, (self.points, index.points, self.index_partitions, self.settings.seed)
        if self.queries is not None:
            return self.queries
        if settings.path is not None:
            path = Path(*known, settings.path, settings.steps, settings.along)
            return StoredSource(done(path).ledger, "positions")
        if settings.sample is None:
            return self.points
        drawn = done(DrawPoints(*known, settings.sample))
        return self.points.drawn(int(drawn.figures["limit"]), settings.seed)

    def manifest(self, outcomes: dict[str, Outcome]) -> Json:
        own = ERRORS if self.settings.leave_one_out else ("values",)
        name = "" if self.queries is None else FilePath(self.queries.name).name
        return {
            "settings": self.settings.model_dump(mode="json", include=TOLD),
            "source": {"name": name, "n_rows": self.n_queries, "n_columns": self.points.shape[1]},
            "arrays": dict.fromkeys((*own, *JUDGED, OUTSIDE), "publish"),
            "space": [outcomes["points"].ledger.digest, str(self.validated.figures["content"])],
        }


def invert(
    settings: InvertSettings,
    watch: Watch | None = None,
    data: object | None = None,
    queries: object | None = None,
    **way: Unpack[Way],
) -> Done:
    """The data at queries, or how well it comes back at embedded points.

    `data` is an array to take for the source of the run, `queries` one for the coordinates.
    """
    return prepare_invert(settings, data, queries).run(watch, **way)


def prepare_invert(settings: InvertSettings, data: object | None = None, queries: object | None = None) -> InvertJob:
    """Open and check everything that an inversion needs."""
    store, manifest = opened_run(settings.store, run.FIT, version=settings.version)
    _require_vectors(settings, manifest)
    validated = published_stages(store, manifest, ["validate"], ())["validate"]
    points = StoredSource(run.published_ledger(store, manifest, "publish"), "projection")
    rows = _fitted_source(settings, manifest, validated, data)
    kernel = Kernel(*RADIAL_FUNCTIONS[settings.kernel], settings.scale or 1.0)
    kernel.terms(points.shape[1])
    _require_fitting(settings, points, rows)
    unchanged = is_scanned(rows, validated, manifest["settings"])
    asked = _opened_queries(settings, points, queries)
    return InvertJob(settings.output, settings, kernel, points, rows, validated, unchanged, asked)


def _require_vectors(settings: InvertSettings, manifest: Json) -> None:
    kind = manifest["settings"].get("input", VECTORS)
    if kind != VECTORS:
        raise InvalidInputError(
            f"store={settings.store!r} was fitted on {kind}: there are no rows of numbers to go back to; invert runs "
            "that were fitted on vectors."
        )


def _fitted_source(settings: InvertSettings, manifest: Json, validated: Outcome, data: object | None) -> Source:
    """The data of the run where it was, or where it is told to be now."""
    if data is not None:
        told = manifest["settings"]
        source = open_source(data, None, told["columns"], told["id_column"], told.get("exclude"))
    else:
        paths = data_paths(settings.store, manifest, settings.source)
        for path in paths:
            require_apart("output", settings.output, path)
        source = joined(fitted_sources(settings.store, manifest, paths))
    fitted = int(manifest["source"]["n_rows"]), int(manifest["source"]["n_columns"]), validated.figures["dtype"]
    found = *source.shape, source.dtype.str
    if found != fitted:
        raise InvalidInputError(
            f"the data of the run has changed: it had {fitted[0]} rows and {fitted[1]} columns of {fitted[2]}, now "
            f"{source.name} has {found[0]} and {found[1]} of {found[2]}; put it back, or name the place it was moved "
            "to as source."
        )
    return source


def _require_fitting(settings: InvertSettings, points: Source, data: Source) -> None:
    """Refuse a path, images and an output that do not go with the run."""
    require_apart("output", settings.output, settings.store)
    for row in settings.path or ():
        if row >= points.shape[0]:
            raise InvalidInputError(f"path={row} is out of range; the run has rows 0 to {points.shape[0] - 1}.")
        if not np.isfinite(points.read(row, row + 1)).all():
            raise InvalidInputError(f"path={row}: that row takes no part in the embedding; choose another.")
    if settings.image_shape is not None:
        n_rows, n_columns, _ = settings.image_shape
        if n_rows * n_columns != data.shape[1]:
            raise InvalidInputError(
                f"image={settings.image!r} has {n_rows * n_columns} pixels; the data has {data.shape[1]} columns: give "
                "rows and columns whose product that is."
            )


def _opened_queries(settings: InvertSettings, points: Source, queries: object | None) -> Source | None:
    if queries is None:
        if settings.coordinates is None:
            return None
        require_apart("output", settings.output, settings.coordinates)
        queries = settings.coordinates
    source = open_source(queries, settings.key, settings.columns, settings.id_column)
    if source.shape[1] != points.shape[1]:
        raise InvalidInputError(
            f"{source.name} has {source.shape[1]} columns; the run has {points.shape[1]} coordinates: give one column "
            "for each, as `trigpoint export` writes them (choose some with columns)."
        )
    return source


def memory_of_inversion(job: InvertJob) -> dict[str, int]:
    """Bytes that each stage has in memory at most."""
    (n, d), (_, n_columns) = job.points.shape, job.data.shape
    # To leave a row out, one neighbor more is looked for.
    k = min(n, job.settings.n_neighbors + job.settings.leave_one_out)
    n_terms = len(job.kernel.terms(d).parents)
    cells, block = 16 * cell_count(n) * d, 8 * d * min(n, job.index_partitions.rows_each)
    n_asked, group = (min(job.n_queries, rows) for rows in (job.query_partitions.rows_each, job.group_rows))
    asked = 8 * d * n_asked
    # A partition of the data is a grain at least, however wide its rows are.
    data = min(n, job.source_partitions.rows_each) * n_columns * job.data.dtype.itemsize
    # Copies of the rows that are combined at once: a block, or what a single query needs if that is more.
    combined = 6 * min(8 * n * n_columns, max(BLOCK_BYTES, 8 * k * n_columns))
    # A system's matrix and factor, what goes with its polynomials, and the whole of it.
    system = 16 * k * k + 24 * k * n_terms + 8 * (k + min(k, n_terms)) ** 2
    inverted = 4 * block + 64 * group * k + 24 * group * n_columns + 8 * n + combined + system
    parts = {
        **dict.fromkeys(("check", "gather"), 3 * data),
        **dict.fromkeys(("points", "sample", "path"), 4 * block + 4096 * d * 24),
        "cells": 12 * sample_size(n, d) * d + 3 * block,
        "assign": 5 * block + SEARCH + cells,
        "order": 9 * block,
        "probes": 3 * block + SEARCH + cells,
        "validate": 3 * asked,
        "query_cells": 5 * asked + SEARCH + cells,
        "query_order": 9 * 8 * d * group,
        "search": 4 * block + SEARCH + cells + max(48 * group * k, 40 * n),
        **dict.fromkeys(("invert", "leave_out"), inverted),
        "publish": 3 * 8 * job.n_results * n_asked,
    }
    return {name: BASE + part for name, part in parts.items()}
