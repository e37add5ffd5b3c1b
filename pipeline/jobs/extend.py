"""An extension: new rows in the space of a fitted run, in a store of their own.

The run is only read, and by the digests of one published state: what is published meanwhile does not touch an extension
that is under way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeAlias

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.jobs.direct_extend import (
    direct_extension,
    direct_flags,
    direct_space,
    is_direct,
    open_direct_batch,
    require_two_answers,
    require_use_of_own_key,
)
from pipeline.jobs.fit import Around, Runner, at_once, publish, require_apart, run_stages
from pipeline.jobs.incoming import batches_with_results
from pipeline.methods import VECTORS
from pipeline.settings.jobs import ExtendSettings
from pipeline.sources import Source, open_source
from pipeline.sources.graphs import NewNodes, open_new_nodes
from pipeline.sources.inputs import AnySource, as_table, described_source, n_columns, n_points
from pipeline.sources.partitions import GRAIN_ROWS, LARGEST_BYTES, RowPartitions, automatic_bytes
from pipeline.stages.costs import direct_peaks, extension_peaks, new_node_peaks
from pipeline.stages.direct.space import DirectSpace
from pipeline.stages.graph.partition import Assign, Order
from pipeline.stages.graph.precomputed import JoinNewNodes, LoadNewNodes
from pipeline.stages.graph.search import Search, SearchWithin
from pipeline.stages.joint import Arcs, Joint
from pipeline.stages.place import Place, ranks_of
from pipeline.stages.preprocess import ReplayedSource, ValidateBatch
from pipeline.stages.publish import FLAGS, Publish
from pipeline.stages.space import FittedSpace, any_fitted_space
from pipeline.stages.stage import Execute, Outcome, Stage, Watch, serially
from pipeline.store import lease, run
from pipeline.types import Json

# Every stage that an extension may have, in order.
STAGES = tuple(stage.name for stage in (ValidateBatch, Assign, Order, Search, Place, Joint, Arcs, Publish))


@dataclass(frozen=True)
class Extended:
    """What an extension came to: the outcomes of its stages by name."""

    outcomes: dict[str, Outcome]

    @property
    def n_computed(self) -> int:
        """Partitions that this call had to compute."""
        return sum(outcome.n_computed for outcome in self.outcomes.values())

    @property
    def drift(self) -> Json | None:
        """How the batch compares with the fitted rows; None for one without rows."""
        return dict(self.outcomes["place"].figures["drift"]) if "place" in self.outcomes else None


AnySpace: TypeAlias = FittedSpace | DirectSpace
AnyBatch: TypeAlias = AnySource | NewNodes


def opened_space(settings: ExtendSettings) -> AnySpace:
    """The space that an extension goes into."""
    store = run.open_store(settings.store)
    kind = run.kind_of(store)
    if kind not in (run.FIT, run.MODEL):
        raise InvalidInputError(f"store={settings.store!r} holds {run.KINDS[kind]}; name the run itself.")
    manifest = run.published_manifest(store, settings.version)
    return direct_space(store, manifest) if is_direct(manifest) else any_fitted_space(store, manifest)


def extend(
    settings: ExtendSettings,
    watch: Watch | None = None,
    take_over: bool = False,
    data: object | None = None,
    execute: Execute = serially,
    around: Around = at_once,
    mark: Json | None = None,
) -> Extended:
    """Place new rows, and say whether they are like the fitted ones.

    `data` is an array to take for the source; `mark` is kept with the results.
    """
    space = opened_space(settings)
    source = checked_batch(settings, space, data)
    store = run.create_run(settings.output, run.EXTENSION)

    def stages(run_one: Runner) -> dict[str, Outcome]:
        return chain(settings, space, source, run_one)

    with lease.acquire(store, take_over) as held:
        outcomes = run_stages(store, held, stages, watch, execute, around)
        publish(held, {**_manifest(settings, space, source), "batch": mark}, outcomes)
    return Extended(outcomes)


def extend_batches(
    settings: ExtendSettings,
    watch: Watch | None = None,
    take_over: bool = False,
    execute: Execute = serially,
    around: Around = at_once,
) -> Iterator[tuple[str, Extended]]:
    """Extend to the source, or with `incoming` to every batch in it that was not done yet; each with its output.

    One batch that cannot be read does not keep the others waiting: what is wrong is told at the end.
    """
    if not settings.incoming:
        yield settings.output, extend(settings, watch, take_over, execute=execute, around=around)
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
        try:
            done = extend(settings.model_copy(update=paths), watch, take_over, None, execute, around, batch.mark)
        except InvalidInputError as error:
            problems.append(str(error))
        else:
            yield str(batch.output), done
    if problems:
        raise InvalidInputError(" ".join(problems))


def memory_of_extension(settings: ExtendSettings) -> dict[str, int]:
    """Bytes that each stage has in memory at most, whatever the number of new rows."""
    space = opened_space(settings)
    if isinstance(space, DirectSpace):
        return direct_peaks(_partition_bytes(settings), int(space.source["n_columns"]), space.answers.n_landmarks)
    columns, d, k = int(space.source["n_columns"]), space.answers.n_components, space.n_neighbors
    if space.is_given:
        return new_node_peaks(_partition_bytes(settings) // _row_bytes(0, space), k, d, space.n_nodes)
    return extension_peaks(
        rows_each=max(
            GRAIN_ROWS, _partition_bytes(settings) // _row_bytes(columns * space.point_dtype.itemsize, space)
        ),
        n_columns=columns,
        n_axes=int(space.stages["order"].figures["n_columns"]),
        itemsize=space.point_dtype.itemsize,
        n_neighbors=k,
        n_components=d,
        n_cells=int(space.stages["cells"].figures["n_cells"]),
        n_nodes=space.n_nodes,
    )


def _partition_bytes(settings: ExtendSettings) -> int:
    return LARGEST_BYTES if settings.partition_mib == "auto" else settings.partition_mib << 20


def checked_batch(settings: ExtendSettings, space: AnySpace, data: object | None = None) -> AnyBatch | None:
    """The new rows; None if there are none, which is no error: a night without new data comes to every schedule."""
    require_two_answers(settings, space)
    require_use_of_own_key(settings, space)
    _require_even_lists(settings, space)
    require_apart("output", settings.output, settings.store)
    given = settings.source if data is None else data
    if data is None:
        require_apart("output", settings.output, settings.source)
    try:
        source = _opened_batch(settings, space, given)
    except EmptySourceError:
        return None
    if isinstance(source, NewNodes):
        return source
    fitted = int(space.source["n_columns"])
    if n_columns(source) != fitted:
        raise InvalidInputError(
            f"{source.name} has {n_columns(source)} columns; the run was fitted on {fitted}: give the same columns in "
            "the same order."
        )
    outside = [row for row in settings.arc_rows or () if not 0 <= row < n_points(source)]
    if outside:
        raise InvalidInputError(
            f"arc_rows={outside[0]} is out of range; {source.name} has rows 0 to {n_points(source) - 1}."
        )
    return source


def _require_even_lists(settings: ExtendSettings, space: AnySpace) -> None:
    """Refuse what takes lists of neighbors that are all of the same length."""
    if isinstance(space, FittedSpace) and (space.is_given or space.radius is not None):
        for name in ("joint", "arc"):
            if getattr(settings, name) is not None:
                raise InvalidInputError(
                    f"{name}={getattr(settings, name)} is only there for runs with n_neighbors; {settings.store!r} was "
                    "fitted by a radius or on a graph: leave it out."
                )


def _opened_batch(settings: ExtendSettings, space: AnySpace, data: object) -> AnyBatch:
    if isinstance(space, FittedSpace) and space.is_given:
        return open_new_nodes(settings.source, space.n_nodes)
    if isinstance(space, DirectSpace) and space.settings["input"] != VECTORS:
        return open_direct_batch(settings, space)
    return batch_source(settings, space, data)


def batch_source(settings: ExtendSettings, space: AnySpace, data: object) -> Source:
    """The new rows, opened as the fit opened its own as far as they allow it.

    Array, ids and columns of the fit are looked for first. Columns are found by their names, whatever their order;
    where either side has no names, they are counted.
    """
    given = space.settings.get("input", VECTORS)
    if given != VECTORS:
        raise InvalidInputError(
            f"{settings.store} was fitted with input={given!r}, which new rows of numbers cannot be joined to; fit old "
            "and new data together into a new store."
        )
    first: InvalidInputError | None = None
    for key, id_column, columns in _ways_to_open(settings, space):
        try:
            return open_source(data, key, columns, id_column)
        except EmptySourceError:
            raise
        except InvalidInputError as error:
            first = first or error
    raise first or InvalidInputError(f"{settings.source} cannot be opened.")


def _ways_to_open(
    settings: ExtendSettings, space: AnySpace
) -> Iterator[tuple[str | None, str | None, list[str] | None]]:
    fitted, names = space.settings, list(space.source["column_names"])
    numbered = names == [str(number) for number in range(len(names))]
    named = fitted["columns"] or (None if numbered else names)
    keys = (settings.key,) if settings.key is not None else dict.fromkeys((fitted["key"], None))
    ids = (settings.id_column,) if settings.id_column is not None else dict.fromkeys((fitted["id_column"], None))
    for key, id_column in product(keys, ids):
        yield key, id_column, named
    if named is not None and not fitted["columns"]:
        # A table without names has as many columns, or is refused for that.
        yield settings.key, settings.id_column, None


def chain(settings: ExtendSettings, space: AnySpace, source: AnyBatch | None, run_one: Runner) -> dict[str, Outcome]:
    """Every stage of an extension after the other; the outcomes by the stages' names."""
    outcomes: dict[str, Outcome] = {}

    def done(stage: Stage) -> Outcome:
        outcomes[stage.name] = run_one(stage)
        return outcomes[stage.name]

    if isinstance(space, DirectSpace):
        direct_extension(settings, space, _no_new_nodes(source), done)
    elif source is None:
        done(_publish(space, space.stages["model"], RowPartitions(0, 1)))
    elif isinstance(source, NewNodes):
        _over_their_edges(settings, space, source, done)
    else:
        _along_the_graph(settings, space, as_table(source), done)
    return outcomes


def _no_new_nodes(source: AnyBatch | None) -> AnySource | None:
    """What comes to a run without a graph."""
    if isinstance(source, NewNodes):
        raise TypeError(f"{source.name} has edges to the nodes of a graph")
    return source


def _over_their_edges(settings: ExtendSettings, space: FittedSpace, source: NewNodes, done: Runner) -> None:
    """New nodes of a graph of the user's."""
    cut = _cut(settings, space, source.n_nodes, 0)
    joined = done(JoinNewNodes(space, done(LoadNewNodes(source, settings.missing)), cut))
    done(_publish(space, done(Place(space, joined, joined, cut, settings.level)), cut))


def _along_the_graph(settings: ExtendSettings, space: FittedSpace, source: Source, done: Runner) -> None:
    """New points."""
    cut = batch_partitions(settings, space, source)
    fitted = space.stages
    validated = done(ValidateBatch(source, cut, settings.missing, space.exponent_of_source))
    standardize = bool(space.settings["standardize"])
    data = ReplayedSource(source, fitted["validate"], standardize, fitted.get("axes"), validated, space.point_dtype)
    ordered = done(Order(done(Assign(data, cut, fitted["cells"])), cut.count, cut.rows_each))
    searched = done(Search(space, ordered) if space.radius is None else SearchWithin(space, ordered))
    place = Place(space, ordered, searched, cut, settings.level, keeps_lists=bool(settings.joint or settings.arc))
    placed = done(place)
    if settings.joint:
        done(Joint(place, placed, cut, settings.joint, settings.joint_distances))
    if settings.arc and settings.arc_rows:
        done(Arcs(place, placed, cut, settings.arc_rows, settings.arc))
    done(_publish(space, placed, cut))


def _publish(space: FittedSpace, placed: Outcome, cut: RowPartitions) -> Publish:
    answers = space.answers
    return Publish(placed, cut, answers.n_components, published_columns(space), coordinates=answers.coordinates)


def published_columns(space: AnySpace) -> tuple[str, ...]:
    """The trust columns of new rows, and their ranks."""
    return (*space.columns, *ranks_of(space.columns))


def batch_partitions(settings: ExtendSettings, space: FittedSpace, source: Source) -> RowPartitions:
    """How new rows are cut: a row counts with its neighbors and its results, which may take more than its own."""
    return _cut(settings, space, source.shape[0], source.shape[1] * source.dtype.itemsize)


def _cut(settings: ExtendSettings, space: FittedSpace, n_rows: int, own: int) -> RowPartitions:
    row_bytes = _row_bytes(own, space)
    each = automatic_bytes(n_rows * row_bytes) if settings.partition_mib == "auto" else settings.partition_mib << 20
    return RowPartitions.of_bytes(n_rows, row_bytes, each)


def _row_bytes(own: int, space: FittedSpace) -> int:
    results = len(space.answers.coordinates) * space.answers.n_components + len(published_columns(space))
    return own + 12 * space.n_neighbors + 8 * results


def _manifest(settings: ExtendSettings, space: AnySpace, source: AnyBatch | None) -> Json:
    has_ids = bool(getattr(source, "has_ids", False))
    flags = direct_flags(space) if isinstance(space, DirectSpace) else FLAGS
    id_column = (settings.id_column or space.settings["id_column"]) if has_ids else None
    joint = {"joint": "joint"} if settings.joint and source is not None else {}
    return {
        "settings": {"id_column": id_column, "missing": settings.missing, "level": settings.level},
        "source": _described(source),
        "arrays": dict.fromkeys((*space.answers.coordinates, *published_columns(space), *flags), "publish") | joint,
        "space": space.identity,
    }


def _described(source: AnyBatch | None) -> Json:
    if source is None:
        return {"name": "", "n_rows": 0}
    if isinstance(source, NewNodes):
        return {"name": Path(source.name).name, "n_rows": source.n_nodes, "n_columns": 0, "column_names": []}
    return described_source(source)
