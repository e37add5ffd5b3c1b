"""Flows on a schedule: real servers and workers on loopback, stopped by the tests that start them."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.deploy import deployed, runs_of
from flows.events import emit_drift, store_slug
from flows.schedules import Target, read_targets
from flows.server import delivered
from pipeline import open_run
from pipeline.jobs.fit import fit as fit_here
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import FitSettings, job_settings

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
EVERY_STATE = list(StateType)
# A worker that looks every second, a server that lets waiting runs try again every second.
QUICK = {
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}
SETTINGS = """
source = "points.npy"
store = "run.zarr"
n_neighbors = 8
n_landmarks = 30
[cluster]
kind = "serial"
"""


@dataclass(frozen=True)
class StandIn(Target):
    """A deployment of the stand-in, which can be held."""

    @property
    def entrypoint(self) -> str:
        return "standin_flows.refit"

    def loaded(self) -> Flow:
        sys.path.insert(0, str(HERE))
        try:
            from standin_flows import refit
        finally:
            sys.path.remove(str(HERE))
        return refit


def environment(home, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, **QUICK, "PREFECT_HOME": str(home), "PYTHONPATH": paths, **more}


@contextmanager
def running(command, log, **options):
    """A program in the background, ended with all it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options)
    family = [psutil.Process(process.pid)]
    try:
        yield process
    finally:
        if process.poll() is None:
            family += family[0].children(recursive=True)
        process.terminate()
        _, alive = psutil.wait_procs(family, timeout=20)
        for survivor in alive:
            survivor.kill()
        process.wait(20)


def until(look, seconds=150, why=lambda: ""):
    """The first value that counts as true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a Prefect server, started as a user does."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    url, log = f"http://127.0.0.1:{port}/api", folder / "log"
    command = [BIN / "prefect", "server", "start", "--host", "127.0.0.1", "--port", port]
    with running(command, log, env=environment(folder)):
        until(lambda: is_healthy(url), 120, log.read_text)
        with temporary_settings({PREFECT_API_URL: url}), delivered():
            yield url


def is_healthy(url):
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def client(server):
    with get_client(sync_client=True) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a user deploys from, with data in it."""
    here = tmp_path / "here"
    here.mkdir()
    np.save(here / "points.npy", swiss_roll(500, seed=0).points)
    monkeypatch.chdir(here)
    return here


def written(folder, schedule="", tables=""):
    """A configuration with a work pool of its own: workers of other tests take nothing from it."""
    file = folder / "run.toml"
    file.write_text(f'{SETTINGS}{tables}[schedule]\nwork_pool = "{folder.parent.name}"\n{schedule}\n')
    return file


def trigpoint(folder, *arguments, **variables):
    return subprocess.run(
        [BIN / "trigpoint", *arguments],
        cwd=folder,
        env=environment(folder / "home", **variables),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@contextmanager
def working(tmp_path, url, command):
    """The worker that deploy asks for, in a folder of its own."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program, *rest = shlex.split(command)
    variables = environment(tmp_path / "worker-home", PREFECT_API_URL=url)
    with running([BIN / program, *rest], tmp_path / "worker.log", env=variables, cwd=elsewhere):
        yield


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_a_scheduled_run_fires_and_writes_its_store(server, client, folder, tmp_path):
    result = trigpoint(
        folder, "deploy", "--config", written(folder, "fit_every = 10"), "--json", PREFECT_API_URL=server
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    slug = store_slug("run.zarr")
    assert [entry["deployment"] for entry in report["deployments"]] == [f"fit/{slug}"]
    assert len(report["deployments"][0]["next"]) == 3
    assert report["worker_command"] == f"prefect worker start --pool {tmp_path.name}"
    scheduled = until(lambda: runs_of(client, slug, [StateType.SCHEDULED]))
    assert all(run.auto_scheduled for run in scheduled)
    assert not (folder / "run.zarr").exists()
    with working(tmp_path, server, report["worker_command"]):
        (run, *_) = until(lambda: runs_of(client, slug, [StateType.COMPLETED]), why=(tmp_path / "worker.log").read_text)
        # No further ones while the worker is being stopped.
        client.pause_deployment(run.deployment_id)
    assert run.auto_scheduled
    assert run.id in {one.id for one in scheduled}
    assert open_run(folder / "run.zarr").embedding("projection").shape == (500, 2)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_batches_are_extended_to_on_schedule_and_one_that_drifts_starts_the_refit(server, folder, tmp_path):
    """A whole night: a batch comes in, is placed, is not like the fitted rows, and the run is fitted again with it."""
    fit_here(job_settings(FitSettings, {}, written(folder)))
    (folder / "incoming").mkdir()
    np.save(folder / "incoming" / "monday.npy", swiss_roll(300, seed=1).points + 3.0)
    tables = '[extend]\nsource = "incoming"\noutput = "placed"\nincoming = true\n[refit]\nincoming = "incoming"\n'
    # Seldom enough: where an extension took longer than the time to the next, the refit would wait behind them all.
    file = written(folder, "extend_every = 60\nrefit_on_drift = true", tables)
    result = trigpoint(folder, "deploy", "--config", file, "--json", PREFECT_API_URL=server)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    with working(tmp_path, server, report["worker_command"]):
        log = (tmp_path / "worker.log").read_text
        until(lambda: (folder / "placed" / "monday.npy.zarr" / "manifest.json").exists(), 240, log)
        until(lambda: open_run(folder / "run.zarr").version == "2", 240, log)
    assert open_run(folder / "placed" / "monday.npy.zarr").drift["drifts"]
    assert open_run(folder / "run.zarr").n_rows == 800


def are_scheduled_at(client, slug, minutes):
    return {run.expected_start_time.minute for run in runs_of(client, slug, [StateType.SCHEDULED])} == minutes


@pytest.mark.cluster
def test_again_replaces_and_doubles_nothing(client, folder):
    slug = store_slug("run.zarr")
    before = None
    for cron in ("0 3 * * 0", "0 3 * * 0", "30 4 * * *"):
        deployed(client, *read_targets(written(folder, f'fit = "{cron}"')))
        found = client.read_deployment_by_name(f"fit/{slug}")
        assert found.id == (before or found.id)
        assert [entry.schedule.cron for entry in found.schedules] == [cron]
        assert found.global_concurrency_limit.limit == 1
        assert (found.entrypoint, found.pull_steps) == ("flows.fit.fit", [])
        before = found.id
        # The server plans new runs a moment later.
        until(partial(are_scheduled_at, client, slug, {int(cron.split()[0])}))
    names = [limit.name for limit in client.read_global_concurrency_limits(limit=200, offset=0)]
    assert names.count(f"trigpoint:{slug}") == 1
    deployed(client, *read_targets(written(folder)))
    assert client.read_deployment_by_name(f"fit/{slug}").schedules == []
    assert runs_of(client, slug, [StateType.SCHEDULED]) == []


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_two_runs_on_one_store_wait_for_each_other(server, client, folder, tmp_path):
    """Of two flows: the second is not even started before the first has ended."""
    schedule, (fit,) = read_targets(written(folder))
    held = tmp_path / "held"
    held.touch()
    other = StandIn("refit", fit.store, {"settings": {"store": fit.store}, "held_by": str(held)}, None)
    report = deployed(client, schedule, [fit, other])
    of_fit, of_other = (entry["id"] for entry in report["deployments"])
    with working(tmp_path, server, report["worker_command"]):
        log = (tmp_path / "worker.log").read_text
        first = client.create_flow_run_from_deployment(of_other)
        until(lambda: client.read_flow_run(first.id).state.is_running(), why=log)
        second = client.create_flow_run_from_deployment(of_fit)
        until(lambda: client.read_flow_run(second.id).state_name == "AwaitingConcurrencySlot", why=log)
        assert client.read_flow_run(first.id).state.is_running()
        held.unlink()
        until(lambda: client.read_flow_run(second.id).state.is_completed(), why=log)
    first, second = (client.read_flow_run(run.id) for run in (first, second))
    assert first.state.is_completed()
    assert first.end_time <= second.start_time
    assert open_run(folder / "run.zarr").published


@pytest.mark.cluster
def test_a_place_that_nobody_holds_is_given_free(client, folder):
    """As after a restart of a server that keeps its leases in memory, in the middle of a run."""
    wanted = read_targets(written(folder))
    deployed(client, *wanted)
    name = f"trigpoint:{store_slug('run.zarr')}"
    client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(active_slots=1))
    deployed(client, *wanted)
    assert client.read_global_concurrency_limit_by_name(name).active_slots == 0


@pytest.mark.cluster
def test_drift_starts_a_refit_of_that_store(client, folder):
    file = written(folder, "refit_on_drift = true", '[refit]\nincoming = "incoming"\n')
    schedule, targets = read_targets(file)
    reports = [deployed(client, schedule, targets) for _ in range(2)]
    (name,) = reports[0]["automations"]
    assert reports[1]["automations"] == [name]
    assert len(client.read_automations_by_name(name)) == 1
    (identifier,) = [entry["id"] for entry in reports[1]["deployments"] if entry["deployment"].startswith("refit/")]
    assert emit_drift("another.zarr", {"batch": "b0"})
    assert emit_drift("run.zarr", {"batch": "b1"})
    (run,) = until(lambda: runs_of(client, store_slug("run.zarr"), [StateType.SCHEDULED]))
    assert str(run.deployment_id) == identifier
    assert run.parameters["settings"] == {"store": str(folder / "run.zarr"), "incoming": str(folder / "incoming")} | {
        "cluster": {"kind": "serial"}
    }
    report = deployed(client, schedule.model_copy(update={"refit_on_drift": False}), targets)
    assert report["automations"] == []
    assert client.read_automations_by_name(name) == []


@pytest.mark.cluster
def test_what_the_file_no_longer_has_is_told(client, folder):
    schedule, (fit,) = read_targets(written(folder))
    deployed(client, schedule, [fit, StandIn("refit", fit.store, {"settings": {"store": fit.store}}, None)])
    assert deployed(client, schedule, [fit])["not_in_file"] == [f"refit/{fit.slug}"]


@pytest.mark.parametrize(
    ("schedule", "arguments", "variables", "words"),
    [
        ('fit = "nightly"', [], {}, ["fit='nightly'", "not a cron expression", "fit_every"]),
        ('fitt = "0 3 * * *"', [], {}, ["schedule.fitt", "did you mean 'schedule.fit'"]),
        ("", [], {}, ["no Prefect server is configured", "PREFECT_API_URL", "--serve"]),
        (
            "",
            ["--serve"],
            {"PREFECT_API_URL": "http://127.0.0.1:9/api"},
            ["http://127.0.0.1:9/api", "leave --serve out"],
        ),
    ],
)
def test_bad_input_is_exit_code_2_in_words(folder, schedule, arguments, variables, words):
    result = trigpoint(folder, "deploy", "--config", written(folder, schedule), *arguments, **variables)
    assert result.returncode == 2, result.stderr
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_server_that_is_not_there_is_told(folder):
    result = trigpoint(folder, "deploy", "--config", written(folder), PREFECT_API_URL="http://127.0.0.1:9/api")
    assert result.returncode == 1
    assert "http://127.0.0.1:9/api" in result.stderr
    assert "Traceback" not in result.stderr


@contextmanager
def serving(folder, log):
    """`trigpoint deploy --serve`, in a home of its own."""
    variables = environment(folder / "home")
    command = [BIN / "trigpoint", "deploy", "--config", folder / "run.toml", "--serve"]
    with running(command, log, env=variables, cwd=folder) as process:
        yield process


def family_of(process, *wanted):
    """All that a process started, which must be these programs."""
    family = psutil.Process(process.pid).children(recursive=True)
    commands = [" ".join(member.cmdline()) for member in family]
    assert all(any(name in command for command in commands) for name in wanted), commands
    return family


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_served_here_it_runs_what_is_due_and_stops_all_when_interrupted(folder, tmp_path):
    written(folder, "fit_every = 10")
    log = tmp_path / "log"
    with serving(folder, log) as process:
        until(lambda: ": Completed" in log.read_text(), 180, log.read_text)
        second = trigpoint(folder, "deploy", "--config", folder / "run.toml", "--serve")
        assert second.returncode == 2
        assert f"another `trigpoint deploy --serve` has the store {store_slug('run.zarr')}" in second.stderr
        family = family_of(process, "flows.child_process server", "flows.child_process worker")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert open_run(folder / "run.zarr").published
    words = log.read_text()
    assert f"fit/{store_slug('run.zarr')} every 10 s, on {folder / 'run.zarr'}\n  next 20" in words
    assert words.endswith("Stopping; a run under way is gone on with the next time.\n")


@pytest.mark.cluster
@pytest.mark.timeout(420)
def test_served_here_and_killed_it_leaves_no_process_and_goes_on(folder, tmp_path):
    """The run is taken for lost when it is served again; the next one goes on where it was."""
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 3)))[0]
    np.save(folder / "points.npy", swiss_roll(17_000, seed=0).points @ turned.T)
    file = written(folder, "fit_every = 10")
    # So many landmarks that it has long to go.
    file.write_text(file.read_text().replace("n_landmarks = 30", "n_landmarks = 8000\npartition_mib = 1"))
    ledger = "*/*/ledger/partition-*.json"
    log, again = tmp_path / "log", tmp_path / "again"
    with serving(folder, log) as process:
        until(lambda: list((folder / "run.zarr").glob(ledger)), 180, log.read_text)
        family = family_of(process, "flows.child_process server", "flows.child_process worker", "prefect.engine")
        process.kill()
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
    computed = set((folder / "run.zarr").glob(ledger))
    with serving(folder, again) as process:
        until(lambda: set((folder / "run.zarr").glob(ledger)) > computed, 180, again.read_text)
        family = family_of(process, "prefect.engine")
        process.terminate()
        assert process.wait(60) == 0, again.read_text()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert again.read_text().count(": Running") <= 1
