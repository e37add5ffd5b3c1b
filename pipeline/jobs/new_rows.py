"""New rows in the space of a fitted run, made a provider by their own stages."""

from pipeline.jobs.batches import AnyBatch, fitted_settings, own_key_of
from pipeline.jobs.choices import cut_rows, kernel_choice
from pipeline.jobs.job import Runner
from pipeline.methods import SIMILARITIES
from pipeline.settings import ExtendSettings
from pipeline.sources.graphs import NewNodes
from pipeline.sources.inputs import as_table, comparison_of, partitions_of
from pipeline.sources.objects import ObjectSource
from pipeline.sources.partitions import RowPartitions
from pipeline.sources.proximities import ProximitySource
from pipeline.sources.source import Source
from pipeline.stages.graph import stages as graph
from pipeline.stages.place import ranks_of
from pipeline.stages.providers.geodesic import SearchedRows
from pipeline.stages.providers.objects import Compare, ComparedRows, EstimatedRows, ScanObjects
from pipeline.stages.providers.provider import Provider
from pipeline.stages.providers.proximities import PrecomputedRows, ScanProximities
from pipeline.stages.providers.vectors import VectorRows
from pipeline.stages.space import GraphSpace, Space
from pipeline.stages.validate import ReplayedSource, ValidateBatch, point_dtype


def new_rows(settings: ExtendSettings, space: Space, source: AnyBatch, done: Runner) -> tuple[Provider, RowPartitions]:
    """Run the stages up to what every new row is to the landmarks."""
    if isinstance(space, GraphSpace):
        if isinstance(source, NewNodes):
            return _new_nodes(settings, space, source, done)
        return _searched(settings, space, as_table(source), done)
    if isinstance(source, NewNodes):
        raise TypeError("new nodes come to runs on a graph only")
    cut = partitions_of(source, space.answers.n_landmarks, settings.partition_mib)
    if isinstance(source, ProximitySource):
        return _precomputed(settings, space, source, cut, done), cut
    if isinstance(source, ObjectSource):
        return _compared(space, source, cut, done), cut
    return _vectors(settings, space, as_table(source), cut, done), cut


def published_columns(space: Space) -> tuple[str, ...]:
    """Names of the trust columns of new rows, and of their ranks."""
    return (*space.columns, *ranks_of(space.columns))


def _precomputed(
    settings: ExtendSettings, space: Space, source: ProximitySource, cut: RowPartitions, done: Runner
) -> Provider:
    told, landmarks = fitted_settings(space), space.stages["landmarks"]
    similar, affinity = told.input == SIMILARITIES, told.takes_affinities
    scanned = done(ScanProximities(source, landmarks, cut, similar, affinity))
    own_key = own_key_of(settings, told)
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
    row_bytes = bytes_of_new_row(source.shape[1] * source.dtype.itemsize, space)
    cut = cut_rows(source.shape[0], row_bytes, settings.partition_mib)
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
    cut = cut_rows(source.n_nodes, bytes_of_new_row(0, space), settings.partition_mib)
    joined = done(graph.JoinNewNodes(space, done(graph.LoadNewNodes(source, settings.missing)), cut))
    return SearchedRows(space, joined, joined), cut


def bytes_of_new_row(own: int, space: GraphSpace) -> int:
    """Bytes that a new row counts, of which `own` are its data: its neighbors and results may take more."""
    results = len(space.answers.coordinates) * space.answers.n_components + len(published_columns(space))
    return own + 12 * space.n_neighbors + 8 * results
