"""The flow: the same bytes on any workers and after any death, every stage a task, faults in words."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.testing.utilities import prefect_test_harness

from flows import fit
from pipeline import open_run
from pipeline.errors import ComponentWarning, DisconnectedGraphError, InvalidInputError, StageError
from pipeline.fanout.cluster import CONFIG
from pipeline.fanout.execution import executor
from pipeline.jobs import fit as fitting
from pipeline.jobs.fit import fit as fit_here
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import ClusterSettings, fit_settings
from pipeline.stages.landmarks import Landmarks
from pipeline.stages.publish import PUBLISHED

COMMAND = Path(sys.executable).with_name("trigpoint")
SMALL = {"n_neighbors": 8, "n_landmarks": 200, "partition_mib": 1}
OPTIONS = ("--n-neighbors", "8", "--n-landmarks", "200", "--partition-mib", "1")
LOCAL = ("--cluster-kind", "local")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Rows wide enough that a partition of the least size holds only some of them."""
    path = tmp_path_factory.mktemp("source") / "roll.npy"
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 3)))[0]
    np.save(path, swiss_roll(17_000, seed=0).points @ turned.T)
    return path


@pytest.fixture(scope="module")
def serial(source):
    """What a fit in one process gives."""
    store = source.with_name("serial.zarr")
    fit_here(fit_settings({**SMALL, "source": str(source), "store": str(store)}))
    return published(store)


def published(store):
    opened = open_run(store)
    return {name: opened.embedding(name).tobytes() for name in PUBLISHED} | {"quality": opened.quality}


@pytest.mark.parametrize(
    ("n_workers", "n_threads"), [(2, 1), *(pytest.param(*some, marks=pytest.mark.cluster) for some in ((1, 1), (2, 2)))]
)
def test_any_workers_give_the_bytes_of_the_serial_run(source, serial, tmp_path, n_workers, n_threads):
    settings = fit_settings({**SMALL, "source": str(source), "store": str(tmp_path / "run")})
    with executor(ClusterSettings(kind="local", n_workers=n_workers, threads_per_worker=n_threads)) as execute:
        fit_here(settings, execute=execute)
    assert published(tmp_path / "run") == serial


@pytest.mark.cluster
@pytest.mark.parametrize("stage", ["assign", "neighbors", "rows", "embed", "publish"])
def test_a_worker_killed_in_the_middle_changes_nothing(source, serial, tmp_path, stage):
    settings = fit_settings({**SMALL, "source": str(source), "store": str(tmp_path / "run")})
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        killed = []

        def killing(work, partitions, computed):
            def after_the_first(partition):
                computed(partition)
                if work.stage.name == stage and not killed:
                    killed.append(worker_pids(execute)[0])
                    os.kill(killed[0], signal.SIGKILL)

            execute(work, partitions, after_the_first)

        fit_here(settings, execute=killing)
    assert killed
    assert published(tmp_path / "run") == serial
    assert not list((tmp_path / "run").rglob("*.partial"))


@pytest.mark.faults
def test_a_worker_that_hangs_is_given_up(source, serial, tmp_path, monkeypatch):
    monkeypatch.setitem(CONFIG, "distributed.scheduler.worker-ttl", "3s")
    settings = fit_settings({**SMALL, "source": str(source), "store": str(tmp_path / "run")})
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        stopped = []

        def stopping(work, partitions, computed):
            def after_the_first(partition):
                computed(partition)
                if work.stage.name == "neighbors" and not stopped:
                    stopped.append(worker_pids(execute)[0])
                    os.kill(stopped[0], signal.SIGSTOP)

            execute(work, partitions, after_the_first)

        fit_here(settings, execute=stopping)
    assert stopped
    assert published(tmp_path / "run") == serial


def worker_pids(execute):
    return list(execute.client.run(os.getpid).values())


def wait_for(process, root, pattern):
    """Until the process has written such a file."""
    deadline = time.monotonic() + 120
    while not list(root.glob(pattern)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def started():
    """Start a fit, on workers unless told: the command, and its process, which ends with the test."""
    processes = []

    def start(source, store, *more, where=LOCAL, **options):
        command = [COMMAND, "fit", source, "--store", store, *OPTIONS, *where, *more]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        processes.append(subprocess.Popen(command, start_new_session=True, **options))
        return command, processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal: where tests run in the background it is ignored, also by what they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ended(process):
    """What a process and all it started said, once they have ended."""
    family = psutil.Process(process.pid).children(recursive=True)
    out, err = process.communicate(timeout=120)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    return out, err


@pytest.mark.cluster
def test_a_killed_flow_leaves_no_process_and_goes_on_where_it_was(source, serial, started, tmp_path):
    store = tmp_path / "run"
    command, process = started(source, store)
    wait_for(process, store, "rows/*/ledger/partition-00000000.json")
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # the server and two workers
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=200, check=True)
    computed = json.loads(again.stdout)["computed"]
    assert computed["neighbors"] == computed["order"] == 0
    assert 0 < computed["rows"] < 25
    assert published(store) == serial
    assert not list(store.rglob("*.partial"))


@pytest.mark.cluster
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("where", [LOCAL, ("--cluster-kind", "auto")], ids=["workers", "threads"])
def test_interrupted_it_stops_everything_and_says_how_to_go_on(source, started, tmp_path, where):
    store = tmp_path / "run"
    # So many landmarks that it has long to go.
    _, process = started(source, store, "--n-landmarks", "3000", where=where)
    wait_for(process, store, "rows/*/ledger/partition-00000000.json")
    # As a terminal does it: to every process of the group.
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert re.fullmatch(r"trigpoint: stopped; what is complete is kept\. To go on: .*trigpoint fit .*\n", err), err
    assert "publish" not in out
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert json.loads((store / "lease" / "00000001.json").read_text())["released"]


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_a_lost_server_is_told_and_nothing_is_lost(source, serial, started, tmp_path):
    store = tmp_path / "run"
    _, process = started(source, store)
    wait_for(process, store, "neighbors/*/ledger/partition-00000000.json")
    (server,) = [p for p in psutil.Process(process.pid).children() if "flows.child_process" in p.cmdline()]
    server.kill()
    _, err = ended(process)
    assert process.returncode == 1
    assert "trigpoint: the Prefect server failed or was lost" in err
    assert "what is complete is kept: run the same command again." in err
    assert "Traceback" not in err
    again = [COMMAND, "fit", source, "--store", store, *OPTIONS, "--cluster-kind", "serial"]
    subprocess.run(again, check=True, capture_output=True, timeout=100)
    assert published(store) == serial


@pytest.mark.cluster
def test_workers_short_of_memory_are_told_with_figures(tmp_path):
    """A partition that takes more than a worker has; found by its workers' deaths, not by the plan."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60_000, 300)))
    options = ("--partition-mib", "512", "--anyway", "--cluster-memory-mib", "400", "--cluster-n-workers", "2", *LOCAL)
    command = [COMMAND, "fit", tmp_path / "x.npy", "--store", tmp_path / "run", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 1, result.stderr
    assert re.search(r"stage \w+, partition 0: ended every worker that tried it", result.stderr)
    assert re.search(r"workers have 400 MiB each; the stage is predicted to need [0-9,]+ MiB", result.stderr)
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def server():
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.mark.usefixtures("server")
class TestTasks:
    @pytest.fixture
    def keywords(self, source, tmp_path):
        return {**SMALL, "source": str(source), "store": str(tmp_path / "run"), "cluster": {"kind": "serial"}}

    def runs(self):
        """The latest flow run, its task runs by name, its artifacts by key and its logs."""
        with get_client(sync_client=True) as client:
            (run,) = client.read_flow_runs(limit=1, sort=FlowRunSort.START_TIME_DESC)
            tasks = client.read_task_runs()
            artifacts = client.request("POST", "/artifacts/filter", json={}).json()
        mine = {task.name: task for task in tasks if task.flow_run_id == run.id}
        return run, mine, {a["key"]: a for a in artifacts if a["flow_run_id"] == str(run.id)}

    def test_every_stage_is_one_and_figures_and_picture_are_artifacts(self, keywords, serial):
        report = fit(**keywords)
        assert published(keywords["store"]) == serial
        run, tasks, artifacts = self.until(lambda: self.runs(), lambda found: len(found[1]) == len(report["computed"]))
        assert run.state.is_completed()
        assert set(tasks) == set(report["computed"])
        assert {"figure": "rows", "value": "17,000"} in json.loads(artifacts["fit-figures"]["data"])
        assert artifacts["fit-picture"]["data"].startswith("data:image/png;base64,iVBOR")

    def test_a_settings_object_does_as_well_and_nothing_is_computed_twice(self, keywords):
        settings = fit_settings(keywords)
        assert fit(settings)["n_computed"] > 0
        assert fit(settings)["n_computed"] == 0

    @pytest.mark.parametrize("kind", [("--cluster-kind", "serial"), (), (*LOCAL, "--cluster-n-workers", "1")])
    def test_a_command_opens_its_source_once_and_plans_once(self, trigpoint, source, tmp_path, monkeypatch, kind):
        """In this process, on threads of it, and as a flow that is handed the prepared job."""
        counts = Counter()
        for name in ("open_input", "plan_fit"):
            real = getattr(fitting, name)

            def counted(*arguments, name=name, real=real):
                counts[name] += 1
                return real(*arguments)

            monkeypatch.setattr(fitting, name, counted)
        code, _, errors = trigpoint("fit", source, "--store", tmp_path / "run", *OPTIONS, *kind)
        assert (code, errors) == (0, "")
        assert counts == {"open_input": 1, "plan_fit": 1}

    def test_settings_and_keywords_at_once_are_refused(self, keywords):
        with pytest.raises(InvalidInputError, match="settings are given, and n_components besides"):
            fit(fit_settings(keywords), n_components=3)

    def test_what_passes_is_tried_again_by_prefect(self, keywords, monkeypatch):
        calls = []
        real = Landmarks.run_partition

        def flaky(self, ledger, partition):
            calls.append(partition)
            if len(calls) == 1:
                raise OSError(errno.EIO, "Input/output error")
            return real(self, ledger, partition)

        monkeypatch.setattr(Landmarks, "run_partition", flaky)
        monkeypatch.setattr("flows.tasks.RETRY_SECONDS", 0)
        fit(**keywords)
        assert len(calls) == 2
        _, tasks, _ = self.until(lambda: self.runs(), lambda found: found[1].get("landmarks"))
        assert tasks["landmarks"].run_count == 2

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"n_landmarks": 1}, InvalidInputError, "n_landmarks=1 is out of range"),
            ({"n_neighbours": 5}, InvalidInputError, "did you mean 'n_neighbors'"),
            ({"cluster": {"memory_mib": 256}}, InvalidInputError, "MiB of memory in a worker, which has 256"),
            ({"source": "nowhere.npy"}, InvalidInputError, "nowhere.npy does not exist"),
        ],
    )
    def test_bad_input_is_refused_as_it_is(self, keywords, change, error, message):
        with pytest.raises(error, match=message):
            fit(**{**keywords, **change})

    def test_bad_data_is_not_tried_again(self, keywords, tmp_path):
        np.save(tmp_path / "holes.npy", np.array([[0.0], [np.nan]] * 40))
        with pytest.raises(InvalidInputError, match="40 NaN or infinite entries"):
            fit(**{**keywords, "source": str(tmp_path / "holes.npy"), "n_landmarks": 10})
        _, tasks, _ = self.until(lambda: self.runs(), lambda found: found[1].get("validate"))
        assert tasks["validate"].run_count == 1

    def test_a_graph_in_pieces_ends_it_or_is_joined_as_the_policy_says(self, keywords, tmp_path):
        np.save(tmp_path / "two.npy", np.vstack([np.arange(40.0)[:, None], np.arange(5000.0, 5040)[:, None]]))
        small = {**keywords, "source": str(tmp_path / "two.npy"), "n_neighbors": 3, "n_landmarks": 10}
        small["n_components"] = 1
        with pytest.raises(DisconnectedGraphError, match="2 components, of sizes 40, 40"):
            fit(**small, component_policy="error")
        run, tasks, _ = self.until(lambda: self.runs(), lambda found: found[1].get("shortcuts"))
        assert run.state.is_failed()
        assert {task.run_count for task in tasks.values()} == {1}
        assert "components" not in tasks
        with pytest.warns(ComponentWarning, match=r"rows: 40, 40\), joined by a link"):
            report = fit(**small)
        assert report["figures"]["components"]["n_bridges"] == 1
        _, tasks, artifacts = self.until(lambda: self.runs(), lambda found: found[1].get("publish"))
        assert {"pieces", "links", "connecting", "components"} <= set(tasks)
        assert {"figure": "components of the graph", "value": "2"} in json.loads(artifacts["fit-figures"]["data"])

    def test_a_bug_is_told_with_stage_and_partition(self, keywords, monkeypatch):
        def bug(self, ledger, partition):
            raise ZeroDivisionError("division by zero")

        monkeypatch.setattr(Landmarks, "run_partition", bug)
        with pytest.raises(StageError, match="stage landmarks, partition 0: ZeroDivisionError: division by zero"):
            fit(**keywords)

    def until(self, look, enough):
        """What is seen once it is enough: the server records runs in the background."""
        deadline = time.monotonic() + 120
        while not enough(found := look()):
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found


WATCHING = """
import os, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
    elif event == "socket.getaddrinfo":
        address = arguments[:2]
    else:
        return
    with open(os.environ["SEEN_ADDRESSES"], "a") as file:
        file.write(repr(address) + "\\n")

sys.addaudithook(watch)
"""


@pytest.mark.cluster
def test_nothing_leaves_the_machine_and_nothing_listens_beyond_it(source, started, tmp_path):
    """Every address that any process of a run asks for, by a hook that each interpreter loads when it starts."""
    (tmp_path / "sitecustomize.py").write_text(WATCHING)
    seen = tmp_path / "addresses"
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "SEEN_ADDRESSES": str(seen)}
    _, process = started(source, tmp_path / "run", stdout=subprocess.DEVNULL, env=environment)
    wait_for(process, tmp_path / "run", "rows/*/ledger/partition-00000000.json")
    me = psutil.Process(process.pid)
    sockets = [socket for p in (me, *me.children(recursive=True)) for socket in p.net_connections("inet")]
    listening = [socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN]
    assert len(listening) >= 6  # the Prefect server, a scheduler, two nannies and their workers
    assert set(listening) <= {"127.0.0.1", "::1"}
    _, err = ended(process)
    assert process.returncode == 0, err
    addresses = {line.strip() for line in seen.read_text().splitlines()}
    assert any("127.0.0.1" in address for address in addresses)
    elsewhere = [a for a in addresses if not re.match(r"\('?(127\.0\.0\.1|::1|localhost|None)\b|'|b'", a)]
    assert not elsewhere


# The command, for which everything is long.
AT_ONCE = """
import sys
import pipeline.fanout.growing
pipeline.fanout.growing.SHORT_SECONDS = 0.0
from flows.cli import main
main()
"""


@pytest.mark.cluster
def test_a_long_run_begins_here_and_goes_on_as_a_flow_on_workers(source, tmp_path):
    """Enough landmarks that the server is there before the last stage."""
    store, alone = tmp_path / "run", tmp_path / "alone"
    told = ["--n-neighbors", "8", "--n-landmarks", "3000", "--partition-mib", "1"]
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    command = [sys.executable, "-c", AT_ONCE, "fit", str(source), "--store", str(store), *told]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starting a Prefect server and workers beside it" in done.stdout
    assert "workers are there, after" in done.stdout
    settings = {"n_neighbors": 8, "n_landmarks": 3000, "partition_mib": 1}
    fit_here(fit_settings({"source": str(source), "store": str(alone), **settings}))
    np.testing.assert_array_equal(open_run(store).embedding(), open_run(alone).embedding())
