"""The source of a fit, whatever it holds: opened, its size told, described."""

from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.methods import DISSIMILARITIES, GRAPH, OBJECTS, SIMILARITIES, VECTORS, uses
from pipeline.settings import FitSettings
from pipeline.sources import Source, open_source
from pipeline.sources.graphs import GraphSource, open_graph
from pipeline.sources.objects import Comparison, ObjectSource, open_objects
from pipeline.sources.partitions import RowPartitions, automatic_bytes
from pipeline.sources.proximities import ProximitySource, landmark_points, open_proximities, require_own_similarities
from pipeline.types import Json

AnySource: TypeAlias = Source | ProximitySource | ObjectSource | GraphSource
OTHERS = (ProximitySource, ObjectSource, GraphSource)


def open_input(settings: FitSettings, data: object | None = None) -> AnySource:
    """What `settings.source` names, opened as the kind of input that it is to be; `data` are vectors in its stead."""
    if data is not None and settings.input != VECTORS:
        raise InvalidInputError(
            f"data is an array, and input={settings.input!r} is read from a file: save it, and name it as the source."
        )
    if settings.input in (DISSIMILARITIES, SIMILARITIES):
        return _proximities(settings)
    if settings.input == OBJECTS:
        comparison_of(settings)  # refused, if it cannot be had, before anything is read
        return open_objects(settings.source, settings.key)
    if settings.input == GRAPH:
        return open_graph(settings.source, settings.key)
    given = settings.source if data is None else data
    return open_source(given, settings.key, settings.columns, settings.id_column, settings.exclude)


def as_table(source: AnySource) -> Source:
    """A source of vectors, where nothing else can come."""
    if isinstance(source, OTHERS):
        raise TypeError(f"{source.name} is no table of numbers")
    return source


def comparison_of(settings: FitSettings) -> Comparison:
    """The user's function that the settings name, as it is where the command runs."""
    if uses(settings.method, "kernel"):
        return Comparison.named(settings.kernel, is_kernel=True)
    return Comparison.named(settings.metric)


def _proximities(settings: FitSettings) -> ProximitySource:
    source = open_proximities(settings.source, settings.key)
    if settings.landmarks_key is None and not source.is_square:
        raise InvalidInputError(
            f"{source.name} has shape {source.shape}, landmarks x points: name with landmarks_key an array that says "
            "which point each of its rows is."
        )
    if settings.landmarks_key is not None and settings.n_landmarks not in ("auto", source.n_landmarks):
        raise InvalidInputError(
            f"n_landmarks={settings.n_landmarks} does not go with landmarks_key: {source.name} has "
            f"{source.n_landmarks} rows, each a landmark; leave it out."
        )
    # What is kept with the matrix is soon looked at, before anything is computed.
    if settings.landmarks_key is not None:
        landmark_points(source, settings.landmarks_key)
    if settings.induces_distances and not (settings.own_key is None and source.is_square):
        require_own_similarities(source, settings.own_key)
    return source


def n_points(source: AnySource) -> int:
    """How many points are to be embedded."""
    if isinstance(source, ProximitySource):
        return source.n_points
    if isinstance(source, ObjectSource):
        return source.n_rows
    return source.n_nodes if isinstance(source, GraphSource) else source.shape[0]


def n_columns(source: AnySource) -> int:
    """How many numbers describe a point; 0 where none do."""
    if isinstance(source, ObjectSource):
        return source.n_columns or 0
    return 0 if isinstance(source, ProximitySource | GraphSource) else source.shape[1]


def size_in_words(source: AnySource) -> str:
    """How much is to be embedded, as it is used: rows and columns, and the shape of an array that was flattened."""
    if isinstance(source, GraphSource):
        return f"{source.n_nodes:,} nodes"
    if not n_columns(source):
        return f"{n_points(source):,} {'texts' if isinstance(source, ObjectSource) else 'points'}"
    shape = getattr(source, "flattened_from", None)
    flattened = "" if shape is None else f", flattened from {' x '.join(f'{size:,}' for size in shape)}"
    width = n_columns(source)
    return f"{n_points(source):,} rows x {width:,} column{'s' * (width != 1)}{flattened}"


def row_bytes(source: AnySource, n_landmarks: int) -> int:
    """Bytes that a point's share of a partition counts: its own, or what it is to the landmarks."""
    if isinstance(source, OTHERS):
        return 8 * n_landmarks
    return int(source.shape[1] * np.dtype(source.dtype).itemsize)


def partitions_of(source: AnySource, n_landmarks: int, partition_mib: int | str) -> RowPartitions:
    """How the points are cut."""
    each_row, n = row_bytes(source, n_landmarks), n_points(source)
    size = automatic_bytes(n * each_row) if partition_mib == "auto" else int(partition_mib) << 20
    return RowPartitions.of_bytes(n, each_row, size)


def described_source(source: AnySource) -> Json:
    """What a manifest says of the data."""
    names = [] if isinstance(source, OTHERS) else source.column_names
    return {
        "name": Path(source.name).name,
        "n_rows": n_points(source),
        "n_columns": n_columns(source),
        "column_names": names,
    }
