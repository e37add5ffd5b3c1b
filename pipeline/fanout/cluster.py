"""Dask workers that are started here, and those of a cluster that runs already."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security

from pipeline.errors import ClusterError, InvalidInputError, described
from pipeline.fanout.rounds import Fanout
from pipeline.jobs.plan import memory_of_worker, workers_of
from pipeline.settings import TLS_FILES, ClusterSettings
from pipeline.stages.stage import Execute
from pipeline.store.ledger import RECORDED, made_with

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 30
# Tasks keep nothing in Dask's own storage: nothing can be spilled, and a worker paused for memory would never go on.
# Dask would have every array of some size given back to the system at once, and the next one's pages made anew, which
# doubles the time of some stages; workers give memory back at the end of each stage instead.
TIME_TO_LIVE = "distributed.scheduler.worker-ttl"
CONFIG: dict[str, Any] = {
    TIME_TO_LIVE: "60s",
    "distributed.scheduler.allowed-failures": 3,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.nanny.pre-spawn-environ": {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), 1),
        "MALLOC_MMAP_THRESHOLD_": 32 << 20,
        "MALLOC_TRIM_THRESHOLD_": 256 << 20,
    },
}
# Of the workers that are started here only. Nannies start lost workers again; the cluster must not give them up before.
# Dask looks after itself so often that it takes a tenth of a core from the work; a third of that does as well.
LOCAL_CONFIG = {
    "distributed.worker.preload": ["pipeline.fanout.worker"],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "250ms",
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.disk": False,
    "distributed.deploy.lost-worker-timeout": "1 day",
}


@contextmanager
def dask_workers(
    settings: ClusterSettings, peaks: Mapping[str, int], notice: Callable[[str], None], longest_task: float
) -> Iterator[Execute]:
    """Workers that compute the partitions of stages for as long as this lasts; see `executor`."""
    is_remote = settings.kind == "address"
    connected = _remote_client(settings) if is_remote else _local_client(settings, longest_task)
    with _quiet(), connected as client:
        yield Fanout(client, settings.wait_seconds, peaks, notice)


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own words on lost connections would come between ours."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _local_client(settings: ClusterSettings, longest_task: float) -> Iterator[Client]:
    """Workers that only this machine can reach."""
    patience = {TIME_TO_LIVE: f"{5 * longest_task:.0f}s"} if 5 * longest_task > 60 else {}
    configuration = dask.config.set({**CONFIG, **LOCAL_CONFIG, **patience})
    with configuration, _started(settings) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def _started(settings: ClusterSettings) -> LocalCluster:
    try:
        return LocalCluster(
            n_workers=workers_of(settings),
            threads_per_worker=settings.threads_per_worker,
            memory_limit=memory_of_worker(settings),
            host=LOOPBACK,
            dashboard_address=f"{LOOPBACK}:0",
            silence_logs=logging.CRITICAL,
        )
    except (RuntimeError, OSError) as error:
        raise ClusterError(
            f"the workers cannot be started: {described(error)}; lower cluster.n_workers, or use kind='serial'."
        ) from error


@contextmanager
def _remote_client(settings: ClusterSettings) -> Iterator[Client]:
    """The scheduler at an address, with as many workers as are asked for."""
    security = _security(settings)
    try:
        client = Client(settings.address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {settings.address}: {error}; start it, or correct cluster.address."
        ) from error
    with client:
        _wait_for_workers(client, settings)
        _compare_libraries(client)
        yield client


def _wait_for_workers(client: Client, settings: ClusterSettings) -> None:
    wanted = settings.n_workers or 1
    try:
        client.wait_for_workers(wanted, timeout=settings.wait_seconds)
    except TimeoutError as error:
        raise ClusterError(
            f"the scheduler at {settings.address} has {len(client.nthreads())} workers after "
            f"{settings.wait_seconds} s, not {wanted}; start some, or lower cluster.n_workers."
        ) from error


def _compare_libraries(client: Client) -> None:
    """Other versions may compute other bytes, and another trigpoint may not understand what it is sent."""
    try:
        others = client.run(made_with)
    except Exception as error:
        raise ClusterError(f"the workers cannot run trigpoint: {described(error)}; install it there.") from error
    mine = made_with()
    for address, theirs in others.items():
        differing = [name for name in RECORDED if theirs.get(name) != mine[name]]
        if differing:
            listed = ", ".join(f"{name} {theirs.get(name)} (here {mine[name]})" for name in differing)
            raise ClusterError(f"the worker at {address} has {listed}; install the same versions from the lock.")


def _security(settings: ClusterSettings) -> Security | None:
    if not (settings.address or "").startswith("tls://"):
        return None
    files = {name: str(getattr(settings, name)) for name in TLS_FILES}
    for name, file in files.items():
        if not Path(file).is_file():
            raise InvalidInputError(f"cluster.{name}={file!r} is not a file; check the path.")
    return Security(
        tls_ca_file=files["tls_ca"],
        tls_client_cert=files["tls_cert"],
        tls_client_key=files["tls_key"],
        require_encryption=True,
    )
