"""What the settings of a fit come to: the method and its kernel, how many landmarks, and how rows are cut."""

from pipeline.errors import InvalidInputError
from pipeline.methods import uses
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.models.catalog import Choice
from pipeline.numerics.models.metrics import gamma_in_unit
from pipeline.settings import FitSettings
from pipeline.sources.inputs import AnySource, n_points
from pipeline.sources.partitions import RowPartitions, automatic_bytes
from pipeline.sources.proximities import ProximitySource
from pipeline.stages.providers.vectors import KernelChoice


def method_choice(settings: FitSettings, exponent: int = 0) -> Choice:
    """The method and its parameters, for dissimilarities in units of 2^exponent of the user's."""
    kernel = settings.evaluates and uses(settings.method, "kernel")
    own_neighbors = uses(settings.method, "n_neighbors") and not settings.is_geodesic
    return Choice(
        method=settings.method,
        n_components=settings.n_components,
        extension=settings.extension if settings.extension == "auto" else settings.chosen_extension,
        n_neighbors=settings.n_neighbors if own_neighbors else Choice.n_neighbors,
        gamma=gamma_in_unit(_gamma(settings), exponent) if uses(settings.method, "gamma") else None,
        affinity=settings.takes_affinities,
        signed=settings.induces_distances or kernel,
        regularization=settings.regularization,
        stress_neighbors=settings.stress_neighbors,
        n_init=settings.n_init,
        seed=settings.seed if settings.n_init > 1 else Choice.seed,
    )


def kernel_choice(settings: FitSettings) -> KernelChoice | None:
    """The kernel on vectors that is asked for."""
    if not uses(settings.method, "kernel"):
        return None
    return KernelChoice(settings.kernel, _gamma(settings), settings.degree, settings.constant)


def _gamma(settings: FitSettings) -> float | None:
    return None if settings.gamma == "auto" else settings.gamma


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


def planned_landmarks(settings: FitSettings, source: AnySource) -> int:
    """How many landmarks there will be, as far as can be told before the data is read."""
    if isinstance(source, ProximitySource) and settings.landmarks_key is not None:
        return source.n_landmarks
    return landmark_count(settings, n_points(source), "points are embedded")


def evaluated_count(n_evaluated: int, n_landmarks: int) -> int:
    """How many landmarks every row is compared with."""
    if n_evaluated > n_landmarks:
        raise InvalidInputError(
            f"n_evaluated={n_evaluated} is out of range; use at most {n_landmarks}, the number of landmarks."
        )
    return n_evaluated


def cut_rows(n_rows: int, row_bytes: int, partition_mib: int | str) -> RowPartitions:
    """Rows of so many bytes, cut as the settings say."""
    each = automatic_bytes(n_rows * row_bytes) if partition_mib == "auto" else int(partition_mib) << 20
    return RowPartitions.of_bytes(n_rows, row_bytes, each)
