"""A real scheduler and worker with infra/dask.yaml and the commands of compose.yaml."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from distributed import Client
from distributed.security import Security
from infra_files import IMAGE_ROOT, INFRA, ROOT, services
from infra_processes import clean_environment, running, wait_for

LOOPBACK = ["--host=127.0.0.1", "--dashboard-address=127.0.0.1:0"]


@dataclass(frozen=True)
class Cluster:
    address: str
    certificates: Path
    processes: tuple[int, ...]

    def client(self) -> Client:
        return self.client_as(self.certificates)

    def client_as(self, member: Path) -> Client:
        """One that trusts the cluster and shows a certificate of its own."""
        own = security(self.certificates, member)
        return Client(self.address, security=own, timeout="5s", set_as_default=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    make_certificates(folder / "certificates")
    environment = dask_environment(folder)
    described, logs = folder / "scheduler.json", (folder / "scheduler.log", folder / "worker.log")
    with running(scheduler_command(described), environment, logs[0]) as scheduler:
        address = wait_for(lambda: address_in(described), scheduler, logs[0], seconds=60)
        with running(worker_command(address, folder), environment, logs[1]) as worker:
            cluster = Cluster(address, folder / "certificates", (scheduler.pid, worker.pid))
            with cluster.client() as client:
                client.wait_for_workers(1, timeout=60)
            yield cluster


def make_certificates(folder: Path) -> None:
    command = [sys.executable, str(INFRA / "certificates.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def dask_environment(folder: Path) -> dict[str, str]:
    """That of the service, with the certificates of the test."""
    config = services()["dask-worker"]["environment"]["DASK_CONFIG"].replace(IMAGE_ROOT, str(ROOT))
    tls = yaml.safe_load((INFRA / "dask.yaml").read_text())["distributed"]["comm"]["tls"]
    files = dict(certificate_variables("DASK_DISTRIBUTED__COMM__TLS", tls, folder))
    assert len(files) == 7
    return clean_environment(folder, DASK_CONFIG=config, **files)


def certificate_variables(prefix: str, settings: dict[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        name = f"{prefix}__{key.upper().replace('-', '_')}"
        if isinstance(value, dict):
            yield from certificate_variables(name, value, folder)
        elif isinstance(value, str) and value.startswith("/certificates/"):
            yield name, str(folder) + value


def scheduler_command(described: Path) -> list[str]:
    return [*services()["dask-scheduler"]["command"], *LOOPBACK, "--port=0", f"--scheduler-file={described}"]


def worker_command(address: str, folder: Path) -> list[str]:
    command = services()["dask-worker"]["command"]
    assert command[2] == "tls://dask-scheduler:8786"
    return [*command[:2], address, *command[3:], *LOOPBACK, f"--local-directory={folder / 'scratch'}"]


def address_in(described: Path) -> str | None:
    """A file that is there may still be written."""
    try:
        return json.loads(described.read_text())["address"]
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def security(authority: Path, member: Path) -> Security:
    return Security(
        tls_ca_file=str(authority / "ca.pem"),
        tls_client_cert=str(member / "cert.pem"),
        tls_client_key=str(member / "key.pem"),
        require_encryption=True,
    )


@pytest.fixture
def client(cluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


def on_worker(client: Client, function, *arguments):
    (value,) = client.run(function, *arguments).values()
    return value


def test_the_scheduler_gives_up_on_silent_workers_and_deadly_tasks(client):
    effective = client.run_on_scheduler(
        lambda dask_scheduler: (dask_scheduler.worker_ttl, dask_scheduler.allowed_failures)
    )
    assert effective == (60, 3)


def test_a_worker_is_never_paused_and_ended_when_too_large(client):
    def fractions(dask_worker):
        manager = dask_worker.memory_manager
        return manager.memory_target_fraction, manager.memory_spill_fraction, manager.memory_pause_fraction

    def terminate():
        import dask

        return dask.config.get("distributed.worker.memory.terminate")

    assert on_worker(client, fractions) == (False, False, False)
    assert on_worker(client, terminate) == 0.95
    assert on_worker(client, lambda dask_worker: dask_worker.memory_manager.memory_limit) == 4 * 10**9


def test_libraries_in_a_worker_have_one_thread(client):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        assert on_worker(client, os.getenv, name) == "1", name
    assert on_worker(client, os.getenv, "MALLOC_TRIM_THRESHOLD_") == str(256 << 20)


def test_every_member_speaks_tls(client):
    assert client.scheduler.address.startswith("tls://127.0.0.1:")
    assert on_worker(client, lambda dask_worker: dask_worker.address).startswith("tls://127.0.0.1:")
    assert client.submit(sum, [20, 22]).result(timeout=60) == 42


def test_a_client_without_encryption_is_refused(cluster):
    with pytest.raises(OSError, match=r"closed|Timed out"):
        Client(cluster.address.replace("tls://", "tcp://"), timeout="2s", set_as_default=False)


def test_a_client_with_a_certificate_of_another_authority_is_refused(cluster, tmp_path):
    make_certificates(tmp_path / "strangers")
    with pytest.raises(OSError, match=r"closed|Timed out"):
        cluster.client_as(tmp_path / "strangers")


def test_every_socket_listens_on_loopback(cluster):
    listening = [
        connection.laddr.ip
        for pid in cluster.processes
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    # Scheduler, nanny and worker, and the pages of scheduler and worker.
    assert len(listening) >= 5
    assert set(listening) == {"127.0.0.1"}
