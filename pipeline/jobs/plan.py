"""What a fit will take, before anything runs: tasks, memory, disk and time of each stage, and what does not fit."""

import os
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.errors import InvalidInputError
from pipeline.jobs.measured import evaluated_count, planned_landmarks
from pipeline.methods import VECTORS
from pipeline.numerics.landmarks.sampling import MAXMIN_CANDIDATES_PER_LANDMARK, automatic_count
from pipeline.numerics.neighbors.spatial import cell_count, sample_size
from pipeline.settings import ClusterSettings, FitSettings
from pipeline.sources.graphs import GraphSource
from pipeline.sources.inputs import AnySource, as_table, n_columns, n_points, partitions_of
from pipeline.sources.source import Source
from pipeline.stages.costs import (
    BASE,
    MIB,
    DirectShape,
    RunShape,
    direct_bytes,
    direct_memory,
    direct_seconds,
    direct_tasks,
    machine_memory,
    stage_bytes,
    stage_peaks,
    stage_seconds,
    stage_tasks,
)
from pipeline.stages.graph.rows import landmarks_per_batch, nodes_per_chunk
from pipeline.stages.preprocess import point_dtype
from pipeline.store import open_backend, run

# Every stage that a fit along a graph may have, in order; others have some of them.
STAGES = (
    *("validate", "axes", "cells", "assign", "order", "probes", "neighbors", "graph", "components", "landmarks"),
    *("rows", "model", "embed", "calibrate", "evaluate", "publish"),
)
# How many neighbors a plan counts on within a radius.
WITHIN_RADIUS = 30
# A thread that computes shortest paths keeps the others of its process waiting.
ONE_THREAD = ("rows",)


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
    """What a fit will take on `n_workers` workers of `worker_memory` bytes each (None: not known)."""

    stages: tuple[StagePlan, ...]
    n_workers: int
    n_threads: int
    worker_memory: int | None
    free_disk: int

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
        return [*self._memory_problems(), *self._disk_problems()]

    def require_feasible(self) -> None:
        """Refuse what does not fit."""
        if problems := self.problems():
            raise InvalidInputError(" ".join(problems))

    def _memory_problems(self) -> list[str]:
        limit = self.worker_memory
        over = [stage for stage in self.stages if limit is not None and stage.memory > limit]
        if not over or limit is None:
            return []
        worst = max(over, key=lambda stage: stage.memory)
        return [
            f"stage {worst.stage} needs {worst.memory / MIB:,.0f} MiB of memory in a worker, which has "
            f"{limit / MIB:,.0f}: start fewer workers (cluster.n_workers), give them more (cluster.memory_mib), lower "
            "partition_mib, or fit on fewer rows."
        ]

    def _disk_problems(self) -> list[str]:
        if self.disk <= self.free_disk:
            return []
        return [
            f"the store needs {self.disk / MIB:,.0f} MiB of disk, where {self.free_disk / MIB:,.0f} are free: choose "
            "another place, fewer landmarks, or free some (`trigpoint gc` deletes results of earlier settings)."
        ]


class Costs(NamedTuple):
    """Of each stage by name: pieces of work, bytes of memory, seconds of one core, bytes on disk."""

    tasks: dict[str, int]
    peaks: dict[str, int]
    seconds: dict[str, float]
    disk: dict[str, int]


def costs_of(settings: FitSettings, source: AnySource) -> Costs:
    """What the stages of a fit take, by arithmetic."""
    if not settings.is_geodesic:
        direct = direct_shape(settings, source)
        return Costs(direct_tasks(direct), direct_memory(direct), direct_seconds(direct), direct_bytes(direct))
    shape = graph_shape(settings, source) if isinstance(source, GraphSource) else run_shape(settings, as_table(source))
    return Costs(stage_tasks(shape), stage_peaks(shape), stage_seconds(shape), stage_bytes(shape))


def run_shape(settings: FitSettings, source: Source) -> RunShape:
    """What the costs of a fit depend on; rows count as distinct until they have been looked at, and how
    many neighbors a radius gives is a guess."""
    n, columns = source.shape
    m = automatic_count(n, settings.n_components) if settings.n_landmarks == "auto" else settings.n_landmarks
    candidates = min(n, MAXMIN_CANDIDATES_PER_LANDMARK * m) if settings.selection != "random" else 0
    return RunShape(
        n_rows=n,
        n_columns=columns,
        source_itemsize=source.dtype.itemsize,
        n_axes=settings.pca or columns,
        finds_axes=settings.pca is not None,
        point_itemsize=point_dtype(source.dtype).itemsize,
        rows_each=partitions_of(source, m, settings.partition_mib).rows_each,
        n_cells=cell_count(n),
        cell_sample=sample_size(n, settings.pca or columns),
        n_neighbors=settings.n_neighbors if settings.radius is None else WITHIN_RADIUS,
        n_landmarks=m,
        landmark_candidates=candidates,
        batch=landmarks_per_batch(m),
        nodes_per_chunk=nodes_per_chunk(m, partitions_of(source, m, settings.partition_mib).rows_each),
        n_components=settings.n_components,
        edges_from="neighbors" if settings.radius is None else "radius",
    )


def graph_shape(settings: FitSettings, source: GraphSource) -> RunShape:
    """The same of a fit on a graph of the user's, of which edges may be listed from one end only."""
    n, m = source.n_nodes, planned_landmarks(settings, source)
    rows_each = partitions_of(source, m, settings.partition_mib).rows_each
    nothing = dict.fromkeys(("n_columns", "source_itemsize", "n_axes", "point_itemsize", "n_cells", "cell_sample"), 0)
    return RunShape(
        n_rows=n,
        finds_axes=False,
        rows_each=rows_each,
        n_neighbors=-(-2 * source.n_edges // n),
        n_landmarks=m,
        landmark_candidates=0,
        batch=landmarks_per_batch(m),
        nodes_per_chunk=nodes_per_chunk(m, rows_each),
        n_components=settings.n_components,
        edges_from="given",
        **nothing,
    )


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


def plan_fit(settings: FitSettings, source: AnySource) -> Plan:
    """The plan of a fit; nothing is read of the source but its shape."""
    cluster = settings.cluster
    n_workers = workers_of(cluster)
    tasks, peaks, seconds, disk = costs_of(settings, source)
    stages = []
    for stage in sorted(tasks, key=STAGES.index) if settings.is_geodesic else tasks:
        threads = 1 if stage in ONE_THREAD else cluster.threads_per_worker
        rounds = -(-tasks[stage] // (n_workers * threads))
        memory = BASE + cluster.threads_per_worker * (peaks[stage] - BASE)
        stages.append(StagePlan(stage, tasks[stage], memory, disk[stage], seconds[stage] * rounds / tasks[stage]))
    return Plan(
        tuple(stages), n_workers, cluster.threads_per_worker, memory_of_worker(cluster), free_disk(settings.store)
    )


def workers_of(cluster: ClusterSettings) -> int:
    if cluster.kind == "serial":
        return 1
    return cluster.n_workers or (cores() if cluster.kind == "local" else 1)


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
