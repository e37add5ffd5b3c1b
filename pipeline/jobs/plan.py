"""What a fit will take, before anything runs: tasks, memory, disk and time of each stage, and what does not fit."""

import os
from dataclasses import dataclass, replace
from typing import NamedTuple

from pipeline.errors import InvalidInputError
from pipeline.jobs.direct_fit import direct_shape
from pipeline.jobs.fit import STAGES, graph_shape, run_shape
from pipeline.jobs.refit import Refit
from pipeline.settings.jobs import ClusterSettings, FitSettings
from pipeline.sources.graphs import GraphSource
from pipeline.sources.inputs import AnySource, as_table
from pipeline.stages.costs import (
    BASE,
    MIB,
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
from pipeline.store import open_backend, run

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


def plan_refit(job: Refit) -> Plan:
    """The plan of a refit; what is published stays on the disk beside the new version."""
    plan = plan_fit(job.settings, job.source)
    return replace(plan, free_disk=free_disk(job.settings.store, beside_published=True)) if job.is_new else plan


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
