"""`trigpoint deploy --serve`: an embedded server and a worker, for as long as this process runs."""

import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.settings import get_current_settings
from prefect.states import Crashed

from flows.deploy import ACTIVE, deployed, runs_of, summary, tell
from flows.schedules import read_targets
from flows.server import child, last_words, prefect_server
from flows.terminal import Say, aside
from pipeline.errors import ClusterError, InvalidInputError

STOP_SECONDS, LAST_SECONDS = 30, 5
WATCH_SECONDS = 2
TOLD = [StateType.RUNNING, StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]
# Of the one who serves; runs look after themselves.
QUERY_SECONDS = "5"


def run_served(file: Path, as_json: bool, say: Say) -> None:
    """Deploy what a file has on an embedded server and run what is due, until interrupted; then stop everything."""
    schedule, targets = read_targets(file)
    configured = get_current_settings().api.url
    if configured:
        raise InvalidInputError(
            f"--serve starts a server of its own, but PREFECT_API_URL={configured!r} names one: leave --serve out and "
            "start a worker, or unset PREFECT_API_URL."
        )
    slugs, tell_aside = sorted({target.slug for target in targets}), aside(as_json, say)
    with ExitStack() as stack:
        stack.enter_context(_until_terminated())
        for slug in slugs:
            stack.enter_context(_served_once(slug))
        tell_aside("Starting a Prefect server and a worker; some ten seconds, the first time more.")
        url = stack.enter_context(prefect_server(tell_aside))
        client = stack.enter_context(get_client(sync_client=True))
        _settle(client, slugs)
        report = deployed(client, schedule, targets)
        stack.callback(_pause, client, slugs, [UUID(entry["id"]) for entry in report["deployments"]])
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "worker.log"
        worker = stack.enter_context(_worker(url, schedule.work_pool, slugs, log))
        tell(report, [*summary(report), "Runs are started from here until Ctrl-C."], as_json, say)
        stack.callback(tell_aside, "Stopping; a run under way is gone on with the next time.")
        _watch(client, slugs, worker, log, tell_aside)


@contextmanager
def _until_terminated() -> Iterator[None]:
    """Ctrl-C, and the signal of a service manager, end this context and nothing more."""

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    # Both by name: started in the background by a shell, a process ignores Ctrl-C's signal otherwise.
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _served_once(slug: str) -> Iterator[None]:
    """Refuse a second server for one store: each would take the other's runs for remains."""
    path = Path(tempfile.gettempdir()) / f"trigpoint-serve-{os.getuid()}-{slug}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InvalidInputError(
            f"another `trigpoint deploy --serve` has the store {slug} on this machine; stop it first, or put both into "
            "one file."
        ) from error
    finally:
        os.close(descriptor)


@contextmanager
def _worker(url: str, pool: str, slugs: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker for the queues of these stores; it and the runs that it started end with this context."""
    environment = {
        "PREFECT_API_URL": url,
        "PREFECT_HOME": str(get_current_settings().home),
        "PREFECT_WORKER_QUERY_SECONDS": os.environ.get("PREFECT_WORKER_QUERY_SECONDS", QUERY_SECONDS),
    }
    process = child("worker", pool, *slugs, log=log, environment=environment)
    try:
        yield process
    finally:
        _stop_with_runs(process)


def _stop_with_runs(leader: "subprocess.Popen[bytes]") -> None:
    """End a process and all that it started; those that do not go by themselves are killed.

    Runs are not of its group, and one that is killed cannot end them.
    """
    family = _started_by(leader)
    _signal_group(leader.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        leader.wait(STOP_SECONDS)
    family += _started_by(leader)
    _signal_group(leader.pid, signal.SIGKILL)
    leader.wait()
    for survivor in psutil.wait_procs(set(family), timeout=LAST_SECONDS)[1]:
        survivor.kill()


def _started_by(leader: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    try:
        family: list[psutil.Process] = psutil.Process(leader.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return family


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _settle(client: SyncPrefectClient, slugs: list[str]) -> None:
    """Close what an earlier server left: runs that nobody computes any more, and times that were missed."""
    for slug in slugs:
        for run in runs_of(client, slug, ACTIVE):
            client.set_flow_run_state(run.id, Crashed(message="The worker was stopped; the next run goes on."))
        # The server gives them out by the page.
        while missed := [run for run in runs_of(client, slug, [StateType.SCHEDULED]) if run.auto_scheduled]:
            for run in missed:
                client.delete_flow_run(run.id)


def _pause(client: SyncPrefectClient, slugs: list[str], deployments: list[UUID]) -> None:
    """While nobody serves them, times pass without leaving runs behind."""
    for identifier in deployments:
        client.update_deployment(identifier, DeploymentUpdate(paused=True))
    _settle(client, slugs)


def _watch(
    client: SyncPrefectClient, slugs: list[str], worker: "subprocess.Popen[bytes]", log: Path, say: Say
) -> NoReturn:
    """Tell how runs begin and end, until interrupted or the worker is lost."""
    seen = {run.id: run.state_name for slug in slugs for run in runs_of(client, slug, TOLD)}
    while worker.poll() is None:
        time.sleep(WATCH_SECONDS)
        for run in [run for slug in slugs for run in runs_of(client, slug, TOLD)]:
            if seen.get(run.id) != run.state_name:
                seen[run.id] = run.state_name
                say(f"{datetime.now():%Y-%m-%d %H:%M:%S} {run.name} of {_deployment_of(client, run)}: {_ended(run)}")
    raise ClusterError(f"the Prefect worker ended: {last_words(log)}. Run the same command again.")


def _deployment_of(client: SyncPrefectClient, run: FlowRun) -> str:
    return f"{client.read_flow(run.flow_id).name}/{run.work_queue_name}"


def _ended(run: FlowRun) -> str:
    """How a run stands; of a fault also why."""
    why = run.state.message if run.state and run.state_type in (StateType.FAILED, StateType.CRASHED) else None
    return f"{run.state_name}. {why}" if why else str(run.state_name)
