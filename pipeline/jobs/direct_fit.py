"""The stages of a method that measures straight from the landmarks, in their order."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.errors import InvalidInputError
from pipeline.methods import METHODS, SIMILARITIES, VECTORS, uses
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.models.catalog import Choice
from pipeline.numerics.models.kernels import gamma_in_unit
from pipeline.settings.jobs import FitSettings
from pipeline.sources import Source
from pipeline.sources.inputs import AnySource, as_table, comparison_of, n_columns, n_points, partitions_of
from pipeline.sources.objects import ObjectSource
from pipeline.sources.partitions import RowPartitions
from pipeline.sources.proximities import ProximitySource
from pipeline.stages.costs import DirectShape
from pipeline.stages.direct.asked import DirectAnswers
from pipeline.stages.direct.embed import DirectEmbed
from pipeline.stages.direct.evaluate import DirectCalibrate, DirectEvaluate
from pipeline.stages.direct.landmarks import DirectLandmarks
from pipeline.stages.direct.model import DirectModel
from pipeline.stages.preprocess import Axes, PreparedSource
from pipeline.stages.providers.estimated import EstimatedRows, Subset
from pipeline.stages.providers.objects import Compare, ComparedRows, ObjectLandmarks, ScanObjects
from pipeline.stages.providers.proximities import GivenLandmarks, GivenRows, ScanProximities
from pipeline.stages.providers.vectors import KernelChoice, Provider, VectorRows
from pipeline.stages.publish import Publish
from pipeline.stages.stage import Outcome, Stage
from pipeline.stages.validate import Validate

Runner = Callable[[Stage], Outcome]


@dataclass(frozen=True)
class Measured:
    """What is known once the landmarks are chosen; `data` where rows are vectors."""

    provider: Provider
    landmarks: Outcome
    partitions: RowPartitions
    data: PreparedSource | None = None


def direct_chain(
    settings: FitSettings, source: AnySource, done: Runner, registration: Callable[[Outcome], Stage] | None
) -> None:
    """Every stage after the other. `registration` is that of a refit."""
    measured = _measured(settings, source, done)
    provider, cut, d = measured.provider, measured.partitions, settings.n_components
    choice = method_choice(settings, provider.exponent)
    n_clusters = (settings.n_clusters or d) if uses(settings.method, "n_clusters") else None
    model = done(DirectModel(provider, choice, n_clusters, settings.seed))
    lengths = METHODS[settings.method].coordinates_are_lengths
    asked = DirectAnswers(provider, model, settings.diagonal_weight, lengths)
    embedded = done(DirectEmbed(asked, measured.landmarks, cut, settings.seed))
    done(DirectCalibrate(embedded))
    euclidean = measured.data if settings.metric == "euclidean" else None
    vectors = provider if isinstance(provider, VectorRows) else None
    done(DirectEvaluate(model, embedded, euclidean, vectors, cut, settings.n_neighbors, settings.seed))
    turned = None if registration is None else done(registration(embedded))
    columns, coordinates, flags = (tuple(embedded.figures[name]) for name in ("columns", "coordinates", "flags"))
    done(Publish(embedded, cut, d, columns, turned, coordinates, flags))


def method_choice(settings: FitSettings, exponent: int = 0) -> Choice:
    """The method and what it is told, for dissimilarities in units of 2^exponent of the user's."""
    gamma = gamma_in_unit(told_gamma(settings), exponent)
    kernel = settings.evaluates and uses(settings.method, "kernel")
    return Choice(
        method=settings.method,
        n_components=settings.n_components,
        extension=settings.extension if settings.extension == "auto" else settings.chosen_extension,
        n_neighbors=settings.n_neighbors
        if uses(settings.method, "n_neighbors") and not settings.is_geodesic
        else Choice.n_neighbors,
        gamma=gamma if uses(settings.method, "gamma") else None,
        affinity=settings.takes_affinities,
        signed=settings.induces_distances or kernel,
        regularization=settings.regularization,
        stress_neighbors=settings.stress_neighbors,
    )


def landmark_count(settings: FitSettings, n_distinct: int, where: str) -> int:
    """How many landmarks, now that it is known how many points there are to choose from."""
    d = settings.n_components
    if d > n_distinct - 1:
        raise InvalidInputError(
            f"n_components={d} is out of range; use at most {n_distinct - 1} ({n_distinct} {where})."
        )
    if settings.n_landmarks == "auto":
        return automatic_count(n_distinct, d)
    if settings.n_landmarks > n_distinct:
        raise InvalidInputError(
            f"n_landmarks={settings.n_landmarks} is out of range; use one from {d + 1} to {n_distinct} ({n_distinct} "
            f"{where})."
        )
    return settings.n_landmarks


def least_landmarks(settings: FitSettings, n_landmarks: int) -> int:
    """With how many landmarks a fit is content where points repeat: with all that were asked for, if any number was."""
    return settings.n_components + 1 if settings.n_landmarks == "auto" else n_landmarks


def planned_landmarks(settings: FitSettings, source: AnySource) -> int:
    """How many landmarks there will be, as far as can be told before the data is read."""
    if isinstance(source, ProximitySource) and settings.landmarks_key is not None:
        return source.n_landmarks
    return landmark_count(settings, n_points(source), "points are embedded")


def direct_shape(settings: FitSettings, source: AnySource) -> DirectShape:
    """What the costs of a fit depend on, as far as can be told before the data is read."""
    m = planned_landmarks(settings, source)
    return DirectShape(
        n_rows=n_points(source),
        n_columns=settings.pca or n_columns(source),
        source_itemsize=getattr(getattr(source, "dtype", None), "itemsize", 8),
        rows_each=partitions_of(source, m, settings.partition_mib).rows_each,
        n_landmarks=m,
        n_components=settings.n_components,
        n_answers=1 + settings.two_answers,
        method=settings.method,
        extension=settings.chosen_extension,
        measured=settings.input == VECTORS,
        n_evaluated=evaluated_count(settings.n_evaluated or m, m) if settings.evaluates else 0,
        has_subset=settings.n_evaluated is not None,
        finds_axes=settings.pca is not None,
    )


def _measured(settings: FitSettings, source: AnySource, done: Runner) -> Measured:
    if isinstance(source, ProximitySource):
        return _given(settings, source, done)
    if isinstance(source, ObjectSource):
        return _compared(settings, source, done)
    return _vectors(settings, as_table(source), done)


def _vectors(settings: FitSettings, source: Source, done: Runner) -> Measured:
    cut = partitions_of(source, planned_landmarks(settings, source), settings.partition_mib)
    data = prepared(settings, source, done(Validate(source, cut, settings.missing)), done)
    usable = int(data.validated.figures["n_rows"] - data.validated.figures["n_dropped_rows"])
    m = landmark_count(settings, usable, "rows are embedded")
    landmarks = done(DirectLandmarks(data, cut, m, least_landmarks(settings, m), settings.selection, settings.seed))
    return Measured(VectorRows(data, landmarks, settings.metric, kernel_choice(settings)), landmarks, cut, data)


def kernel_choice(settings: FitSettings) -> KernelChoice | None:
    """The kernel on vectors that is asked for."""
    if not uses(settings.method, "kernel"):
        return None
    return KernelChoice(settings.kernel, told_gamma(settings), settings.degree, settings.constant)


def told_gamma(settings: FitSettings) -> float | None:
    return None if settings.gamma == "auto" else settings.gamma


def prepared(settings: FitSettings, source: Source, validated: Outcome, done: Runner) -> PreparedSource:
    """The validated source with the preprocessing that is asked for."""
    if settings.pca is None:
        return PreparedSource(source, validated, settings.standardize)
    axes = done(Axes(source, validated, settings.standardize, settings.pca))
    return PreparedSource(source, validated, settings.standardize, axes)


def _given(settings: FitSettings, source: ProximitySource, done: Runner) -> Measured:
    m, similar = planned_landmarks(settings, source), settings.input == SIMILARITIES
    cut = partitions_of(source, m, settings.partition_mib)
    landmarks = done(GivenLandmarks(source, settings.landmarks_key, m, settings.selection, similar, settings.seed))
    affinity, zero_own = settings.takes_affinities, METHODS[settings.method].zero_is_itself
    scanned = done(ScanProximities(source, landmarks, cut, similar, affinity))
    provider = GivenRows(source, scanned, landmarks, similar, affinity, settings.own_key, zero_own=zero_own)
    return Measured(provider, landmarks, cut)


def _compared(settings: FitSettings, source: ObjectSource, done: Runner) -> Measured:
    m, comparison = planned_landmarks(settings, source), comparison_of(settings)
    cut = partitions_of(source, m, settings.partition_mib)
    scanned = done(ScanObjects(source, cut))
    landmarks = done(ObjectLandmarks(source, scanned, m, least_landmarks(settings, m), settings.seed))
    subset = None
    if settings.n_evaluated is not None:
        subset = done(
            Subset(landmarks, comparison, evaluated_count(settings.n_evaluated, landmarks.figures["n_landmarks"]))
        )
    compared = done(Compare(source, scanned, landmarks, comparison, subset))
    provider = ComparedRows(compared, landmarks, comparison.is_kernel, source.name)
    return Measured(provider if subset is None else EstimatedRows(provider, subset), landmarks, cut)


def evaluated_count(n_evaluated: int, n_landmarks: int) -> int:
    """How many landmarks every row is compared with."""
    if n_evaluated > n_landmarks:
        raise InvalidInputError(
            f"n_evaluated={n_evaluated} is out of range; there are {n_landmarks} landmarks: use at most so many."
        )
    return n_evaluated
