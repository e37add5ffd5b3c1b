"""An extension: new rows in the space of a fitted run, in a store of their own.

The run is only read, and by the digests of one published state: what is published meanwhile does not affect an
extension under way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Unpack

from pipeline.errors import InvalidInputError
from pipeline.jobs.batches import AnyBatch, batches_with_results, checked_batch, fitted_settings
from pipeline.jobs.job import Done, Job, Runner, Way, opened_run
from pipeline.jobs.measured import bytes_of_new_row, new_rows
from pipeline.jobs.slimming import require_extendable
from pipeline.methods import METHODS, method_named
from pipeline.settings import ExtendSettings
from pipeline.sources.graphs import NewNodes
from pipeline.sources.inputs import described_source
from pipeline.sources.partitions import GRAIN_ROWS, LARGEST_BYTES, RowPartitions
from pipeline.stages.embed import FLAGS, Placing
from pipeline.stages.graph.stages import Assign, JoinNewNodes, LoadNewNodes, Order, Search
from pipeline.stages.place import JOINT, Arcs, Joint, Place
from pipeline.stages.providers.proximities import ScanBetween
from pipeline.stages.publish import Publish
from pipeline.stages.space import GraphSpace, Space, graph_space, row_space
from pipeline.stages.stage import Cost, Outcome, Shape, Stage, Watch, costs_of
from pipeline.stages.validate import Validate
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.types import Json

# Every stage that an extension may have, in order.
PLACED: tuple[type[Stage], ...] = (Place, Joint, Arcs, Publish)
SEARCHED: tuple[type[Stage], ...] = (Validate, Assign, Order, Search)
EXTENDING: tuple[type[Stage], ...] = (*SEARCHED, ScanBetween, *PLACED)
STAGES = tuple(stage.name for stage in EXTENDING)


def opened_space(settings: ExtendSettings) -> Space:
    """The space that an extension goes into."""
    return published_space(*opened_run(settings.store, run.FIT, run.MODEL, version=settings.version))


def published_space(store: Backend, manifest: Json) -> Space:
    """The space of a published run, whatever its provider."""
    require_extendable(store, manifest)
    is_geodesic = method_named(manifest["settings"].get("method", "isomap")).geodesic
    return graph_space(store, manifest) if is_geodesic else row_space(store, manifest)


@dataclass(frozen=True)
class ExtendJob(Job):
    """An extension whose space and new rows are open and checked; `mark` is kept with the results."""

    settings: ExtendSettings
    space: Space
    source: AnyBatch | None
    mark: Json | None = None
    kind: ClassVar[str] = run.EXTENSION

    def stages(self, done: Runner) -> None:
        chain(self.settings, self.space, self.source, done)

    def manifest(self, outcomes: dict[str, Outcome]) -> Json:
        settings, space, source = self.settings, self.space, self.source
        id_column = settings.id_column or space.settings["id_column"]
        joint = dict.fromkeys(JOINT, Joint.name) if settings.joint and source is not None else {}
        names = (*space.answers.coordinates, *space.published_columns, *_flags(space))
        return {
            "settings": {
                "id_column": id_column if getattr(source, "has_ids", False) else None,
                "missing": settings.missing,
                "level": settings.level,
            },
            "source": _described(source),
            "arrays": dict.fromkeys(names, "publish") | joint,
            "space": space.identity,
            "batch": self.mark,
        }


def prepare_extend(
    settings: ExtendSettings, data: object | None = None, mark: Json | None = None, space: Space | None = None
) -> ExtendJob:
    """Open and check the run and the new rows; `data` is an array to take for the source, `space` the run if it is
    open already."""
    space = space or opened_space(settings)
    return ExtendJob(settings.output, settings, space, checked_batch(settings, space, data), mark)


def extend(
    settings: ExtendSettings, watch: Watch | None = None, data: object | None = None, **way: Unpack[Way]
) -> Done:
    """Place new rows, and say whether they are like the fitted ones."""
    return prepare_extend(settings, data).run(watch, **way)


def extend_batches(
    settings: ExtendSettings, watch: Watch | None = None, **way: Unpack[Way]
) -> Iterator[tuple[str, Done]]:
    """Extend to the source, or with `incoming` to every batch in it that was not done yet; each with its output.

    One batch that cannot be read does not keep the others waiting: what is wrong is raised at the end.
    """
    if not settings.incoming:
        yield settings.output, extend(settings, watch, **way)
        return
    problems = []
    for batch in batches_with_results(settings.source, settings.output):
        if batch.is_done:
            if batch.has_changed:
                problems.append(
                    f"{batch.source} has changed since it was extended to; give it another name, or delete "
                    f"{batch.output} to have it done again."
                )
            continue
        paths = {"source": str(batch.source), "output": str(batch.output), "incoming": False}
        (watch or Watch()).began(f"{batch.source.name} -> {batch.output}")
        try:
            done = prepare_extend(settings.model_copy(update=paths), mark=batch.mark).run(watch, **way)
        except InvalidInputError as error:
            problems.append(str(error))
        else:
            yield str(batch.output), done
    if problems:
        raise InvalidInputError(" ".join(problems))


def memory_of_extension(settings: ExtendSettings, space: Space) -> dict[str, int]:
    """Bytes that each stage has in memory at most, whatever the number of new rows."""
    partition_bytes = LARGEST_BYTES if settings.partition_mib == "auto" else settings.partition_mib << 20
    costs = extension_costs(space, partition_bytes)
    return {stage: cost.peak for stage, cost in costs.items()}


def extension_costs(space: Space, partition_bytes: int) -> dict[str, Cost]:
    """What each stage takes for one partition of new rows."""
    n_columns, d = int(space.source["n_columns"]), space.answers.n_components
    shape = Shape(
        n_rows=1,
        rows_each=1,
        n_components=d,
        n_values=2 * d + 8 + 2 * space.answers.has_spread,
        row_bytes=partition_bytes,
        n_columns=n_columns,
        n_axes=n_columns,
        n_landmarks=space.answers.n_landmarks,
    )
    if not isinstance(space, GraphSpace):
        return costs_of((Validate, ScanBetween, *PLACED), shape)
    row = 0 if space.is_precomputed else n_columns * space.point_dtype.itemsize
    rows = max(GRAIN_ROWS, partition_bytes // bytes_of_new_row(row, space))
    shape = replace(shape, n_rows=rows, rows_each=rows, row_bytes=row)
    shape = replace(shape, edges_from="given", n_nodes=space.n_nodes, n_neighbors=space.edges_each)
    if space.is_precomputed:
        return costs_of((LoadNewNodes, JoinNewNodes, *PLACED), shape)
    n_axes, n_cells = int(space.stages["order"].figures["n_columns"]), int(space.stages["cells"].figures["n_cells"])
    points = replace(shape, n_axes=n_axes, point_itemsize=space.point_dtype.itemsize, n_cells=n_cells)
    return costs_of((*SEARCHED, *PLACED), points)


def chain(settings: ExtendSettings, space: Space, source: AnyBatch | None, done: Runner) -> None:
    """Every stage of an extension after the other."""
    if source is None:
        done(_publish(space, space.stages["model"], RowPartitions(0, 1)))
        return
    provider, cut = new_rows(settings, space, source, done)
    lengths = METHODS[fitted_settings(space).method].coordinates_are_lengths
    columns = space.extra_columns, space.answers.has_spread
    placing = Placing(provider, space.stages["model"], space.weight, lengths, cut, space, *columns)
    placed = done(Place(space, placing, settings.level))
    if settings.joint:
        done(Joint(space, placing, placed, settings.joint, settings.joint_distances))
    if settings.arc and settings.arc_rows:
        done(Arcs(space, placing, placed, settings.arc_rows, settings.arc))
    done(_publish(space, placed, cut))


def _publish(space: Space, placed: Outcome, cut: RowPartitions) -> Publish:
    answers, columns = space.answers, space.published_columns
    return Publish(placed, cut, answers.n_components, columns, None, answers.coordinates, _flags(space))


def _flags(space: Space) -> tuple[str, ...]:
    """The flags of new rows, whether there are any or none."""
    if isinstance(space, GraphSpace):
        return FLAGS
    clusters = "centers" in space.stages["model"].ledger.vouched_for(0)
    return (*(("ambiguous",) * space.answers.is_classical), "component", *(("labels",) * clusters))


def _described(source: AnyBatch | None) -> Json:
    if source is None:
        return {"name": "", "n_rows": 0}
    if isinstance(source, NewNodes):
        return {"name": Path(source.name).name, "n_rows": source.n_nodes, "n_columns": 0, "column_names": []}
    return described_source(source)
