"""New rows in the space of a fitted run: opened as the fit opened its own, and made a provider by their own stages."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import TypeAlias

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.jobs.job import Runner, require_apart
from pipeline.jobs.measured import kernel_choice
from pipeline.methods import OBJECTS, SIMILARITIES, VECTORS
from pipeline.settings import ExtendSettings, FitSettings
from pipeline.sources.graphs import NewNodes, open_new_nodes
from pipeline.sources.inputs import AnySource, as_table, comparison_of, n_columns, n_points, partitions_of
from pipeline.sources.objects import ObjectSource, open_objects
from pipeline.sources.opening import open_source
from pipeline.sources.partitions import RowPartitions, automatic_bytes
from pipeline.sources.proximities import (
    ProximitySource,
    is_file_of_its_own,
    open_proximities,
    require_own_similarities,
)
from pipeline.sources.source import Source
from pipeline.stages.graph import extension as graph
from pipeline.stages.graph.space import GraphSpace
from pipeline.stages.place import ranks_of
from pipeline.stages.preprocess import ReplayedSource, ValidateBatch, point_dtype
from pipeline.stages.providers.estimated import EstimatedRows
from pipeline.stages.providers.geodesic import SearchedRows
from pipeline.stages.providers.objects import Compare, ComparedRows, ScanObjects
from pipeline.stages.providers.provider import Provider
from pipeline.stages.providers.proximities import PrecomputedRows, ScanProximities, rows_of_landmarks
from pipeline.stages.providers.vectors import VectorRows
from pipeline.stages.space import Space

AnyBatch: TypeAlias = AnySource | NewNodes
# What objects are, by whether they are texts.
KINDS = {True: "texts", False: "rows of numbers"}


def fitted_settings(space: Space) -> FitSettings:
    """The settings of the fit, with placeholders for its paths. They are not checked again: a later version may refuse
    what an earlier one ignored."""
    # Plugins are the user's to name, never a store's, and how landmarks were chosen no longer matters.
    told = {name: value for name, value in space.settings.items() if name not in ("plugins", "landmark_selection")}
    return FitSettings.model_validate({**told, "source": "fitted", "store": "fitted"})


def checked_batch(settings: ExtendSettings, space: Space, data: object | None = None) -> AnyBatch | None:
    """The new rows; None if there are none, which is no error: a night without new data comes to every schedule."""
    _require_two_answers(settings, space)
    _require_use_of_own_key(settings, space)
    _require_even_lists(settings, space)
    require_apart("output", settings.output, settings.store)
    if data is None:
        require_apart("output", settings.output, settings.source)
    try:
        source = _opened(settings, space, settings.source if data is None else data)
    except EmptySourceError:
        return None
    if not isinstance(source, NewNodes):
        _require_fitting(settings, space, source)
    return source


def batch_source(settings: ExtendSettings, space: Space, data: object) -> Source:
    """New vectors, opened as the fit opened its own as far as they allow it.

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


def new_rows(settings: ExtendSettings, space: Space, source: AnyBatch, done: Runner) -> tuple[Provider, RowPartitions]:
    """Run the stages up to what every new row is to the landmarks."""
    if isinstance(source, NewNodes):
        return _new_nodes(settings, _along_a_graph(space), source, done)
    if isinstance(space, GraphSpace):
        return _searched(settings, space, as_table(source), done)
    cut = partitions_of(source, space.answers.n_landmarks, settings.partition_mib)
    if isinstance(source, ProximitySource):
        return _precomputed(settings, space, source, cut, done), cut
    if isinstance(source, ObjectSource):
        return _compared(space, source, cut, done), cut
    return _vectors(settings, space, as_table(source), cut, done), cut


def published_columns(space: Space) -> tuple[str, ...]:
    """Names of the trust columns of new rows, and of their ranks."""
    return (*space.columns, *ranks_of(space.columns))


def _require_fitting(settings: ExtendSettings, space: Space, source: AnySource) -> None:
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


def _require_even_lists(settings: ExtendSettings, space: Space) -> None:
    """Refuse what needs neighbor lists of the same length."""
    if isinstance(space, GraphSpace) and (space.is_precomputed or space.radius is not None):
        for name in ("joint", "arc"):
            if getattr(settings, name) is not None:
                raise InvalidInputError(
                    f"{name}={getattr(settings, name)} is only there for runs with n_neighbors; {settings.store!r} was "
                    "fitted by a radius or on a graph: leave it out."
                )


def _require_use_of_own_key(settings: ExtendSettings, space: Space) -> None:
    """Refuse similarities of points to themselves where nothing is computed from them."""
    if settings.own_key is None:
        return
    told = fitted_settings(space)
    if not told.induces_distances:
        raise InvalidInputError(
            f"own_key={settings.own_key!r} means nothing for the fitted run, of method={told.method!r} and "
            f"input={told.input!r}; leave it out."
        )


def _require_two_answers(settings: ExtendSettings, space: Space) -> None:
    """Refuse what only models with a projection and a restricted reconstruction have."""
    for name in ("joint", "arc"):
        if getattr(settings, name) is not None and not space.answers.is_classical:
            told = fitted_settings(space)
            raise InvalidInputError(
                f"{name}={getattr(settings, name)} does not go with the fitted run: method={told.method!r} with "
                f"extension={told.chosen_extension!r} places points in one way only; {name} needs both the projection "
                "and the restricted reconstruction, which isomap, kernel-isomap, mds and kernel-mds have."
            )


def _opened(settings: ExtendSettings, space: Space, data: object) -> AnyBatch:
    if isinstance(space, GraphSpace) and space.is_precomputed:
        return open_new_nodes(settings.source, space.n_nodes)
    if isinstance(space, GraphSpace) or space.settings["input"] == VECTORS:
        return batch_source(settings, space, data)
    told = fitted_settings(space)
    if told.input == OBJECTS:
        _require_same_function(settings, space, told)
    if settings.key is None and told.key is not None:
        with suppress(InvalidInputError):
            return _opened_as_fitted(settings, space, told, told.key)
    return _opened_as_fitted(settings, space, told, settings.key)


def _ways_to_open(settings: ExtendSettings, space: Space) -> Iterator[tuple[str | None, str | None, list[str] | None]]:
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


def _opened_as_fitted(settings: ExtendSettings, space: Space, told: FitSettings, key: str | None) -> AnySource:
    if told.input == OBJECTS:
        source = open_objects(settings.source, key)
        _require_same_kind(source, bool(space.stages["landmarks"].figures["is_text"]))
        return source
    proximities = open_proximities(settings.source, key)
    rows_of_landmarks(proximities, space.stages["landmarks"])
    if told.induces_distances:
        require_own_similarities(proximities, _own_key(settings, told))
    return proximities


def _require_same_kind(source: ObjectSource, fitted_is_text: bool) -> None:
    """Refuse texts for a run of numbers, and numbers for a run of texts."""
    if source.is_text != fitted_is_text:
        here, there = (KINDS[is_text] for is_text in (source.is_text, fitted_is_text))
        raise InvalidInputError(
            f"{source.name} holds {here}, and the run was fitted on {there}: give objects of the same kind (key names "
            "the array or the column that holds them)."
        )


def _require_same_function(settings: ExtendSettings, space: Space, told: FitSettings) -> None:
    """Refuse a function that was edited since the fit: new rows would be measured by another than the landmarks."""
    comparison = comparison_of(told)
    fitted = space.stages["rows"].figures.get("source") if "rows" in space.stages else None
    if fitted is None:
        raise InvalidInputError(
            f"store={settings.store!r} was made by an earlier version, which did not keep what extending to objects "
            "needs; run the fit again, and export a model of it again."
        )
    if "" not in (fitted, comparison.source) and fitted != comparison.source:
        raise InvalidInputError(
            f"{comparison} was edited since the run was fitted, and new rows cannot be measured by another function: "
            "put its file back as it was, or fit again, which calls it for every row."
        )


def _own_key(settings: ExtendSettings, told: FitSettings) -> str | None:
    """The array of the new points' similarities to themselves; without a name, one beside them that is called as the
    fit's was. A file of the fit's, and the diagonal of a matrix of fitted x new points, say nothing of new points."""
    if settings.own_key is not None or told.own_key is None:
        return settings.own_key
    return None if is_file_of_its_own(told.own_key) else told.own_key


def _precomputed(
    settings: ExtendSettings, space: Space, source: ProximitySource, cut: RowPartitions, done: Runner
) -> Provider:
    told, landmarks = fitted_settings(space), space.stages["landmarks"]
    similar, affinity = told.input == SIMILARITIES, told.takes_affinities
    scanned = done(ScanProximities(source, landmarks, cut, similar, affinity))
    own_key = _own_key(settings, told)
    return PrecomputedRows(source, scanned, landmarks, similar, affinity, own_key, space.exponent)


def _compared(space: Space, source: ObjectSource, cut: RowPartitions, done: Runner) -> Provider:
    comparison, fitted = comparison_of(fitted_settings(space)), space.stages
    landmarks, subset = fitted["landmarks"], fitted.get("subset")
    scanned = done(ScanObjects(source, cut))
    compared = done(Compare(source, scanned, landmarks, comparison, subset, has_landmarks=False))
    rows = fitted.get("rows")
    values = ComparedRows(compared, landmarks, comparison.is_kernel, source.name, space.exponent, rows)
    return values if subset is None else EstimatedRows(values, subset, has_landmarks=False)


def _vectors(settings: ExtendSettings, space: Space, source: Source, cut: RowPartitions, done: Runner) -> Provider:
    told, data = fitted_settings(space), _replayed(settings, space, source, cut, done)
    return VectorRows(data, space.stages["landmarks"], told.metric, kernel_choice(told))


def _replayed(
    settings: ExtendSettings, space: Space, source: Source, cut: RowPartitions, done: Runner
) -> ReplayedSource:
    """New vectors with the preprocessing of the fit."""
    fitted, standardize = space.stages, bool(space.settings["standardize"])
    validated = done(ValidateBatch(source, cut, settings.missing, space.exponent_of_source))
    dtype = point_dtype(fitted["validate"].figures["dtype"])
    return ReplayedSource(source, fitted["validate"], standardize, fitted.get("axes"), validated, dtype)


def _searched(
    settings: ExtendSettings, space: GraphSpace, source: Source, done: Runner
) -> tuple[Provider, RowPartitions]:
    """New points that look for their neighbors among the fitted ones."""
    cut = _cut(settings, space, source.shape[0], source.shape[1] * source.dtype.itemsize)
    data = _replayed(settings, space, source, cut, done)
    assigned = done(graph.Assign(data, cut, space.stages["cells"]))
    ordered = done(graph.Order(assigned, cut.count, cut.rows_each))
    search = graph.Search if space.radius is None else graph.SearchWithin
    keeps_lists = bool(settings.joint or settings.arc)
    return SearchedRows(space, ordered, done(search(space, ordered)), keeps_lists), cut


def _new_nodes(
    settings: ExtendSettings, space: GraphSpace, source: NewNodes, done: Runner
) -> tuple[Provider, RowPartitions]:
    """New nodes of a graph of the user's, each with its edges."""
    cut = _cut(settings, space, source.n_nodes, 0)
    joined = done(graph.JoinNewNodes(space, done(graph.LoadNewNodes(source, settings.missing)), cut))
    return SearchedRows(space, joined, joined), cut


def _along_a_graph(space: Space) -> GraphSpace:
    if not isinstance(space, GraphSpace):
        raise TypeError("new nodes come to runs on a graph only")
    return space


def _cut(settings: ExtendSettings, space: GraphSpace, n_rows: int, own: int) -> RowPartitions:
    """How new rows are cut: a row counts with its neighbors and its results, which may take more than its own."""
    row_bytes = bytes_of_new_row(own, space)
    each = automatic_bytes(n_rows * row_bytes) if settings.partition_mib == "auto" else settings.partition_mib << 20
    return RowPartitions.of_bytes(n_rows, row_bytes, each)


def bytes_of_new_row(own: int, space: GraphSpace) -> int:
    """Bytes of a new row, of which `own` are its data, with its neighbors and results."""
    results = len(space.answers.coordinates) * space.answers.n_components + len(published_columns(space))
    return own + 12 * space.n_neighbors + 8 * results
