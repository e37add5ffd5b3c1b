"""What the settings of a fit come to before anything runs: its method, kernel, landmarks and partitions, and a plan.

The plan has tasks, memory, disk and time of each stage, and says what does not fit.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.errors import InvalidInputError
from pipeline.methods import VECTORS, uses
from pipeline.numerics import checks
from pipeline.numerics.extension.spread import require_spare_landmark
from pipeline.numerics.landmarks.sampling import MAXMIN_CANDIDATES_PER_LANDMARK, automatic_count
from pipeline.numerics.models.catalog import Choice
from pipeline.numerics.models.metrics import gamma_in_unit
from pipeline.numerics.neighbors.spatial import cell_count, sample_size
from pipeline.settings import ClusterSettings, FitSettings
from pipeline.sources.graphs import GraphSource
from pipeline.sources.inputs import AnySource, as_table, n_columns, n_points, partitions_of, row_bytes
from pipeline.sources.partitions import RowPartitions, automatic_bytes
from pipeline.sources.proximities import ProximitySource
from pipeline.stages.graph.rows import landmarks_per_batch, nodes_per_chunk
from pipeline.stages.providers.vectors import KernelChoice
from pipeline.stages.stage import BASE, MIB, Cost, Shape, machine_memory
from pipeline.stages.validate import point_dtype
from pipeline.store import open_backend, run

# How many neighbors a plan counts on within a radius, and how many components where the data is to say.
WITHIN_RADIUS, COMPONENTS = 30, 10
# A thread that computes shortest paths keeps the others of its process waiting.
ONE_THREAD = ("rows",)


def method_choice(settings: FitSettings, exponent: int = 0) -> Choice:
    """The method and its parameters, for dissimilarities in units of 2^exponent of the user's."""
    kernel = settings.evaluates and uses(settings.method, "kernel")
    own_neighbors = uses(settings.method, "n_neighbors") and not settings.is_geodesic
    return Choice(
        method=settings.method,
        n_components=settings.components,
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


def assumed(settings: FitSettings, source: AnySource) -> FitSettings:
    """The settings with the number of components that a plan counts on, where it is not known before the data is."""
    if settings.n_components != "auto":
        return settings
    return settings.with_components(min(COMPONENTS, settings.most_components(n_points(source), n_columns(source))))


def landmark_count(settings: FitSettings, n_distinct: int, where: str) -> int:
    """How many landmarks, now that it is known how many points there are to choose from."""
    why = f"{n_distinct} {where}"
    d = checks.integer_in_range("n_components", settings.components, 1, n_distinct - 1, why)
    if settings.n_landmarks == "auto":
        return automatic_count(n_distinct, d)
    return checks.integer_in_range("n_landmarks", settings.n_landmarks, d + 1 + settings.spread, n_distinct, why)


def planned_landmarks(settings: FitSettings, source: AnySource) -> int:
    """How many landmarks there will be, as far as can be told before the data is read."""
    if isinstance(source, ProximitySource) and settings.landmarks_key is not None:
        if settings.spread:
            require_spare_landmark(source.n_landmarks, settings.components)
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


@dataclass(frozen=True)
class StagePlan:
    """What one stage will take: memory of a worker and disk in bytes, time in seconds."""

    stage: str
    n_tasks: int
    memory: int
    disk: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What a fit will take on `n_workers` workers of `worker_memory` bytes each (None: not known). `assumptions` are
    about what only the data can tell."""

    stages: tuple[StagePlan, ...]
    n_workers: int
    n_threads: int
    worker_memory: int | None
    free_disk: int
    assumptions: tuple[str, ...] = ()

    @property
    def disk(self) -> int:
        return sum(stage.disk for stage in self.stages)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of a worker, for each stage."""
        return {stage.stage: stage.memory for stage in self.stages}

    @property
    def seconds(self) -> dict[str, float]:
        """Of each stage, in order."""
        return {stage.stage: stage.seconds for stage in self.stages}

    @property
    def longest_task(self) -> float:
        """Seconds of the longest piece of work."""
        threads = self.n_workers * self.n_threads
        return max(stage.seconds / -(-stage.n_tasks // threads) for stage in self.stages)

    def problems(self) -> list[str]:
        """What does not fit, each with what to do about it."""
        found = []
        worst, limit = max(self.stages, key=lambda stage: stage.memory), self.worker_memory
        if limit is not None and worst.memory > limit:
            found.append(
                f"stage {worst.stage} needs {worst.memory / MIB:,.0f} MiB of memory in a worker, which has "
                f"{limit / MIB:,.0f}: start fewer workers (cluster.n_workers), give them more (cluster.memory_mib), "
                "lower partition_mib, or fit on fewer rows."
            )
        if self.disk > self.free_disk:
            found.append(
                f"the store needs {self.disk / MIB:,.0f} MiB of disk, where {self.free_disk / MIB:,.0f} are free: "
                "choose another place, fewer landmarks, or free some (`trigpoint gc` deletes results of earlier "
                "settings)."
            )
        return found

    def require_feasible(self) -> None:
        """Refuse what does not fit."""
        if problems := self.problems():
            raise InvalidInputError(" ".join(problems))


def fit_shape(settings: FitSettings, source: AnySource) -> Shape:
    """What the costs of a fit depend on; rows count as distinct, and how many neighbors a radius gives is a guess."""
    n, m, d = n_points(source), planned_landmarks(settings, source), settings.components
    cut = partitions_of(source, m, settings.partition_mib)
    shape = Shape(
        n_rows=n,
        rows_each=cut.rows_each,
        n_components=d,
        n_values=(1 + settings.two_answers) * d + 4 + settings.spread,
        row_bytes=row_bytes(source, m),
        n_columns=n_columns(source),
        n_landmarks=m,
        method=settings.method,
        extension=settings.chosen_extension,
        n_init=settings.n_init,
        n_evaluated=evaluated_count(settings.n_evaluated or m, m) if settings.evaluates else 0,
    )
    if settings.input == VECTORS:
        itemsize = point_dtype(as_table(source).dtype).itemsize
        shape = replace(shape, n_axes=settings.pca or shape.n_columns, point_itemsize=itemsize)
    return _with_graph(shape, settings, source) if settings.is_geodesic else shape


def _with_graph(shape: Shape, settings: FitSettings, source: AnySource) -> Shape:
    n, m = shape.n_rows, shape.n_landmarks
    shape = replace(shape, landmarks_each=landmarks_per_batch(m), nodes_per_chunk=nodes_per_chunk(m, shape.rows_each))
    if isinstance(source, GraphSource):
        # Edges may be listed from one end only.
        return replace(shape, edges_from="given", n_neighbors=-(-2 * source.n_edges // n))
    candidates = min(n, MAXMIN_CANDIDATES_PER_LANDMARK * m) if settings.selection != "random" else 0
    return replace(
        shape,
        edges_from="neighbors" if settings.radius is None else "radius",
        n_neighbors=settings.n_neighbors if settings.radius is None else WITHIN_RADIUS,
        n_cells=cell_count(n),
        cell_sample=sample_size(n, shape.n_axes),
        landmark_candidates=candidates,
    )


def planned(costs: Mapping[str, Cost], cluster: ClusterSettings, store: str) -> Plan:
    """The plan of stages that take so much on one core, for where they will run."""
    n_workers, n_threads = workers_of(cluster), cluster.threads_per_worker
    stages = []
    for stage, cost in costs.items():
        rounds = -(-cost.tasks // (n_workers * (1 if stage in ONE_THREAD else n_threads)))
        memory = BASE + n_threads * cost.memory
        stages.append(StagePlan(stage, cost.tasks, memory, cost.disk, cost.seconds * rounds / cost.tasks))
    return Plan(tuple(stages), n_workers, n_threads, memory_of_worker(cluster), free_disk(store))


def workers_of(cluster: ClusterSettings) -> int:
    if cluster.kind == "serial":
        return 1
    return cluster.n_workers or (1 if cluster.kind == "address" else cores())


def memory_of_worker(cluster: ClusterSettings) -> int | None:
    """Bytes that a worker may take; None where only the cluster knows."""
    if cluster.kind == "address":
        return None
    if cluster.memory_mib:
        return cluster.memory_mib * MIB
    return machine_memory() // workers_of(cluster)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_disk(store: str, beside_published: bool = False) -> int:
    """Bytes that a store may take: what is free where it is, and what the latest command has left there.

    With `beside_published`, without what is published of that.
    """
    place = open_backend(store, read_only=True)
    return place.free_bytes() + sum(place.size(path) for path in run.journaled_paths(place, beside_published))
