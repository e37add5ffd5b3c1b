"""The Prefect server that a run reports to: the configured one, or one embedded for as long as the run takes."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import httpx
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, get_current_settings, temporary_settings

from flows.child_process import LOOPBACK
from pipeline.errors import ClusterError

START_SECONDS = 120
STOP_SECONDS = 10
LINES_SHOWN = 5
DELIVERY_SECONDS = 5
# Set when Prefect has something left to send that it cannot; it would keep the process from ending for minutes.
UNDELIVERED = Event()
NEVER = Event()


@contextmanager
def prefect_server(say: Callable[[str], None]) -> Iterator[str]:
    """The address of a server that runs report to within this context."""
    configured = get_current_settings().api.url
    if configured:
        say(f"Prefect server: {configured}")
        with delivered():
            yield configured
        return
    with embedded_server(say) as server, reporting_to(server):
        say(f"Prefect's pages, for as long as this runs: {server.pages}")
        yield server.url


class EmbeddedServer(NamedTuple):
    """The address of a server of ours, and its folder."""

    url: str
    home: str

    @property
    def pages(self) -> str:
        return self.url.removesuffix("/api")


@contextmanager
def embedded_server(say: Callable[[str], None], given_up: Event = NEVER) -> Iterator[EmbeddedServer]:
    """A server that runs for as long as this lasts, unless it is given up before it is there."""
    with tempfile.TemporaryDirectory() as folder:
        home = _writable_home(Path(folder), say)
        with _spoken_to_directly(), _embedded(home, Path(folder) / "server.log", given_up) as url:
            yield EmbeddedServer(url, str(home))


@contextmanager
def reporting_to(server: EmbeddedServer) -> Iterator[None]:
    """Runs in here report to a server of ours."""
    with temporary_settings({PREFECT_API_URL: server.url, PREFECT_HOME: server.home}), delivered():
        yield


@contextmanager
def _spoken_to_directly() -> Iterator[None]:
    """Prefect's clients would send what is meant for this machine to a proxy, if the environment names one."""
    before = {name: os.environ.get(name) for name in ("NO_PROXY", "no_proxy")}
    for name, value in before.items():
        os.environ[name] = f"{value},{LOOPBACK}" if value else LOOPBACK
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def delivered() -> Iterator[None]:
    """Logs and events are sent in the background; wait for them, but not long: the server may be gone."""
    try:
        yield
    finally:
        for service in (APILogWorker, EventsWorker):
            outcome: Any = service.drain_all(timeout=DELIVERY_SECONDS)
            if outcome and outcome[1]:
                UNDELIVERED.set()


def _writable_home(spare: Path, say: Callable[[str], None]) -> Path:
    """Prefect's folder, or a temporary one where it cannot be written: the server would only fail, without a word."""
    home = Path(get_current_settings().home)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            return home
    except OSError as error:
        say(
            f"{home} cannot be written ({error.strerror}): Prefect's record of this run is not kept. PREFECT_HOME "
            "names another folder."
        )
        return spare


@contextmanager
def _embedded(home: Path, log: Path, given_up: Event) -> Iterator[str]:
    port = _free_port()
    url = f"http://{LOOPBACK}:{port}/api"
    environment = {"PREFECT_HOME": str(home), "PREFECT_SERVER_UI_API_URL": url}
    process = child("server", str(port), log=log, environment=environment)
    try:
        _wait_until_healthy(url, process, log, given_up)
        yield url
    finally:
        _stop(process)


def child(kind: str, *arguments: str, log: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process of `flows.child_process` that writes to a log, in our environment with some of its own.

    Without the settings that keep Prefect's words from the terminal: there they go to the log.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_LOGGING_HANDLERS")}
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.child_process", kind, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**ours, **environment},
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(url: str, process: "subprocess.Popen[bytes]", log: Path, given_up: Event) -> None:
    deadline = time.monotonic() + START_SECONDS
    with httpx.Client(trust_env=False) as client:
        while not _healthy(client, url):
            if given_up.is_set():
                raise ClusterError("the embedded Prefect server was given up.")
            if process.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(
                    f"the embedded Prefect server did not start: {last_words(log)}. Start one with `prefect server "
                    "start` and set PREFECT_API_URL, or run with --cluster-kind serial, which needs none."
                )
            time.sleep(0.05)


def _healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-LINES_SHOWN:]) or "it said nothing"


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
