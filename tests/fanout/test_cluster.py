"""Where the workers are: started here, or found at an address, with TLS; what is not there is said in words."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import dask
import psutil
import pytest
import yaml
from distributed import LocalCluster, Security
from scripted import Scripted

from pipeline.errors import ClusterError, InvalidInputError
from pipeline.fanout import cluster as clusters
from pipeline.fanout.cluster import CONFIG
from pipeline.fanout.execution import executor
from pipeline.settings import ClusterSettings, fit_settings
from pipeline.stages.stage import run_stage, serially
from pipeline.store import lease
from pipeline.store.ledger import made_with
from pipeline.store.local import LocalBackend

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def stage(tmp_path):
    (tmp_path / "marks").mkdir()
    return Scripted(tmp_path / "marks", 20)


def ran(stage, root, execute):
    with lease.acquire(LocalBackend(root)) as held:
        return run_stage(held, stage, execute).figures


@contextmanager
def someone_elses(**options):
    """A cluster that runs already."""
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50, **options
    ) as running:
        yield running


def test_serial_needs_no_workers():
    with executor(ClusterSettings(kind="serial")) as execute:
        assert execute is serially


@pytest.mark.cluster
def test_a_running_scheduler_is_used_and_left_running(stage, tmp_path):
    with someone_elses() as running:
        with executor(ClusterSettings(kind="address", address=running.scheduler_address)) as execute:
            assert ran(stage, tmp_path / "run", execute) == {"total": sum(range(20))}
        assert running.status.name == "running"


@pytest.mark.cluster
def test_workers_at_an_address_may_be_reached_with_tls(stage, tmp_path):
    security = Security.temporary()
    files = {"tls_ca": security.tls_ca_file, "tls_cert": security.tls_client_cert, "tls_key": security.tls_client_key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = {name: str(tmp_path / name) for name in files}
    with someone_elses(security=security, protocol="tls://") as running:
        assert running.scheduler_address.startswith("tls://")
        settings = ClusterSettings(kind="address", address=running.scheduler_address, **paths)
        with executor(settings) as execute:
            assert ran(stage, tmp_path / "run", execute) == {"total": sum(range(20))}
        with pytest.raises(InvalidInputError, match=r"cluster\.tls_key='nowhere' is not a file"):  # noqa: SIM117
            with executor(settings.model_copy(update={"tls_key": "nowhere"})):
                pass


def test_a_scheduler_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):  # noqa: SIM117
        with executor(ClusterSettings(kind="address", address="tcp://127.0.0.1:9")):
            pass


def test_workers_with_other_libraries_are_refused(monkeypatch):
    with someone_elses() as running:
        monkeypatch.setitem(made_with(), "numpy", "9.9")
        with pytest.raises(ClusterError, match=r"the worker at tcp://.* has numpy .* \(here 9\.9\)"):  # noqa: SIM117
            with executor(ClusterSettings(kind="address", address=running.scheduler_address)):
                pass


def test_too_few_workers_are_told():
    with someone_elses() as running:
        settings = ClusterSettings(kind="address", address=running.scheduler_address, n_workers=2, wait_seconds=1)
        with pytest.raises(ClusterError, match="has 1 workers after 1 s, not 2; start some"):  # noqa: SIM117
            with executor(settings):
                pass


@contextmanager
def ended(process):
    """A process that is ended at the latest here."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def dask_command(*arguments):
    command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ("scheduler", "the connection to the Dask scheduler at .* was lost"),
        ("workers", "no workers are left at .* for 2 s"),
    ],
)
def test_a_cluster_that_dies_is_told_and_what_is_complete_is_kept(stage, tmp_path, victim, words):
    """Real processes of a scheduler and a worker, one of them killed in the middle of a stage."""
    with ended(
        dask_command("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
    ) as scheduler:
        line = next(line for line in scheduler.stderr if "Scheduler at:" in line)
        address = re.search(r"tcp://[0-9.:]+", line).group()
        worker = dask_command(
            "dask_worker", address, "--nthreads", "1", "--no-nanny", "--dashboard-address", "127.0.0.1:0"
        )
        with ended(worker):
            # Only then do the seconds of waiting count.
            assert any("Registered to" in line for line in worker.stderr)
            processes = {"scheduler": scheduler, "workers": worker}
            settings = ClusterSettings(kind="address", address=address, wait_seconds=2)
            with executor(settings) as execute, lease.acquire(LocalBackend(tmp_path / "run")) as held:

                def killing(work, partitions, computed):
                    def at_the_third(partition):
                        computed(partition)
                        if partition == 3:
                            processes[victim].send_signal(signal.SIGKILL)

                    execute(work, partitions, at_the_third)

                with pytest.raises(ClusterError, match=words + ".*what is complete is kept"):
                    run_stage(held, stage, killing)
    assert ran(stage, tmp_path / "run", serially) == {"total": sum(range(20))}
    assert all(stage.n_calls()[partition] == 1 for partition in range(4))


@pytest.mark.cluster
def test_nothing_listens_beyond_this_machine():
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        me = psutil.Process()
        processes = [me, *me.children(recursive=True)]
        listening = [c.laddr.ip for p in processes for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert len(listening) >= 5  # a scheduler, two nannies, two workers
        assert set(listening) == {"127.0.0.1"}
        assert execute.n_threads() == 2


@pytest.mark.cluster
def test_workers_have_one_thread_of_everything_and_dasks_memory_rules_off():
    with executor(ClusterSettings(kind="local", n_workers=1, threads_per_worker=2, memory_mib=600)) as execute:
        found = execute.client.run(settings_of_a_worker)
    (found,) = found.values()
    assert found == {
        "threads": {"1"},
        "memory": [False, False, False, 0.95],
        "limit": 600 << 20,
        "sigint": signal.SIG_IGN,
    }


def settings_of_a_worker(dask_worker):
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    keys = ("target", "spill", "pause", "terminate")
    return {
        "threads": {os.environ.get(name) for name in names},
        "memory": [dask.config.get(f"distributed.worker.memory.{key}") for key in keys],
        "limit": dask_worker.memory_manager.memory_limit,
        "sigint": signal.getsignal(signal.SIGINT),
    }


def test_the_file_for_clusters_says_the_same():
    file = yaml.safe_load((ROOT / "infra" / "dask.yaml").read_text())
    for key, value in CONFIG.items():
        found = file
        for part in key.split("."):
            found = found[part]
        assert found == value, key


class TestSettings:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"kind": "slurmm"}, "cluster.kind='slurmm': .*'auto', 'serial', 'local' or 'address'"),
            ({"kind": "address"}, "kind='address' needs the address of a Dask scheduler"),
            ({"address": "tcp://127.0.0.1:1"}, "address='tcp://127.0.0.1:1' does not go with kind='auto'"),
            ({"kind": "local", "address": "127.0.0.1:1"}, "address='127.0.0.1:1' does not go with kind='local'"),
            ({"kind": "serial", "n_workers": 2}, "n_workers=2 does not go with kind='serial'"),
            ({"kind": "address", "address": "tcp://10.0.0.1:1"}, "is another machine and not encrypted: use tls://"),
            ({"kind": "address", "address": "tls://10.0.0.1:1", "tls_ca": "x"}, "needs tls_cert, tls_key"),
            ({"kind": "address", "address": "tcp://localhost:1", "memory_mib": 512}, "memory_mib=512 does not go with"),
            ({"n_worker": 2}, r"setting 'cluster\.n_worker' is not known; did you mean 'cluster\.n_workers'\?"),
            ({"n_workers": 0}, r"cluster\.n_workers=0: .*greater than or equal to 1"),
            ({"n_workers": True}, r"cluster\.n_workers=True: .*a number is needed"),
        ],
    )
    def test_that_do_not_fit_together_are_named(self, wrong, message):
        with pytest.raises(InvalidInputError, match=message):
            fit_settings({"source": "x.npy", "store": "run", "cluster": wrong})

    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://localhost:8786", "tcp://[::1]:80", "127.0.3.4:1"])
    def test_may_name_this_machine_without_tls(self, address):
        assert ClusterSettings(kind="address", address=address).address == address

    def test_may_allow_a_network_of_ones_own(self):
        assert ClusterSettings(kind="address", address="tcp://10.0.0.1:1", allow_unencrypted=True)

    def test_are_a_table_of_the_file_and_options_win(self, tmp_path):
        (tmp_path / "run.toml").write_text('source = "x"\nstore = "y"\n[cluster]\nkind = "local"\nn_workers = 3\n')
        settings = fit_settings({"cluster": {"n_workers": "5"}}, tmp_path / "run.toml")
        assert (settings.cluster.kind, settings.cluster.n_workers) == ("local", 5)
