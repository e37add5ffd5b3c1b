"""A Prefect server that starts beside a job under way, so that a short one needs none and a long one waits for none."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from flows.terminal import Say
from pipeline.stages.stage import Outcome

if TYPE_CHECKING:
    from flows.server import EmbeddedServer

# Where Prefect finds its settings, in a working directory.
SETTINGS_FILES = ("prefect.toml", ".env", "pyproject.toml")


def may_have_server() -> bool:
    """Whether a Prefect server is configured. Prefect takes seconds to load, and is only asked where it might be."""
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    by_environment = any(name in os.environ for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"))
    by_file = (home / "profiles.toml").is_file() or any(map(_names_prefect, SETTINGS_FILES))
    if not by_environment and not by_file:
        return False
    from prefect.settings import get_current_settings

    return bool(get_current_settings().api.url)


def _names_prefect(file: str) -> bool:
    path = Path(file)
    return path.is_file() and (file == "prefect.toml" or "prefect" in path.read_text(errors="replace").lower())


class ServerReady(Exception):  # noqa: N818  not an error: the job goes on as a flow
    """Raised between two stages, once there is a server to tell of the rest."""


class ServerBeside:
    """A server that is started when `start` is called; a context at whose end it is ended."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._starter: threading.Thread | None = None
        self._server: EmbeddedServer | None = None
        self._fault: Exception | None = None
        self._given_up = threading.Event()
        self.computed: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A job that is done waits for no server.
        self._given_up.set()
        if self._starter is not None:
            self._starter.join()

    def start(self) -> None:
        self._say("This will take a while: starting a Prefect server and workers beside it.")
        self._starter = threading.Thread(target=self._start, daemon=True)
        self._starter.start()

    def around(self, stage: str, run_one: Callable[[], Outcome]) -> Outcome:
        """Run a stage, unless there is a server by now."""
        if self._server is not None:
            raise ServerReady
        if self._fault is not None:
            self._say(f"{self._fault} Going on without one.")
            self._fault = None
        outcome = run_one()
        self.computed[stage] = self.computed.get(stage, 0) + outcome.n_computed
        return outcome

    @contextmanager
    def told(self) -> Iterator[None]:
        """What runs in here reports to the server."""
        from flows.server import reporting_to

        assert self._server is not None
        with reporting_to(self._server):
            yield

    def _start(self) -> None:
        """Keep the server for as long as it is wanted: it ends with the thread that started it."""
        begun = time.monotonic()
        try:
            from flows.server import embedded_server

            with embedded_server(self._say, self._given_up) as server:
                # The flow is to find it loaded.
                import flows

                _ = flows.fit
                took = time.monotonic() - begun
                self._say(f"Prefect's pages, for as long as this runs: {server.pages} (there after {took:.1f} s)")
                self._server = server
                self._given_up.wait()
        except Exception as error:
            self._fault = error
