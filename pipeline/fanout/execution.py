"""Where partitions are computed: in this process, on workers started here, or on a cluster that runs already.

Dask is loaded once there are to be workers.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from pipeline.fanout.growing import Growing, threads_within
from pipeline.jobs.plan import memory_of_worker, workers_of
from pipeline.settings import ClusterSettings
from pipeline.stages.stage import Execute, machine_memory, serially


@contextmanager
def executor(
    settings: ClusterSettings,
    peaks: Mapping[str, int] | None = None,
    notice: Callable[[str], None] = lambda _: None,
    longest_task: float = 0.0,
    planned: Mapping[str, float] | None = None,
    when_long: Callable[[], None] = lambda: None,
) -> Iterator[Execute]:
    """Computes the partitions of stages for as long as this lasts.

    peaks: bytes of memory that each stage is predicted to need, for the words when a worker has less.
    notice: told what happens to workers.
    longest_task: seconds; a worker may be silent while it computes, and is given up only after several times that.
    planned: seconds of each stage, to tell short runs from long ones; when_long: called once a run proves long.
    """

    def workers() -> AbstractContextManager[Execute]:
        from pipeline.fanout.cluster import dask_workers

        return dask_workers(settings, peaks or {}, notice, longest_task)

    if settings.kind == "serial":
        yield serially
    elif settings.kind == "auto":
        n_each = settings.threads_per_worker
        memory = min(machine_memory(), workers_of(settings) * (memory_of_worker(settings) or machine_memory()))
        n_threads = threads_within(memory, workers_of(settings) * n_each, peaks or {}, n_each)
        growing = Growing(workers, n_threads, planned or {}, notice, when_long)
        try:
            yield growing
        finally:
            growing.close()
    else:
        with workers() as execute:
            yield execute
