"""What a TOML file has to deploy: the flows that it has settings for, each with its parameters and its times."""

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from prefect import Flow

from flows.events import absolute_path, store_slug
from flows.schedules import EVERY, FLOWS, Schedule, ScheduleSettings, schedule_settings
from pipeline.errors import InvalidInputError
from pipeline.settings import ExtendSettings, FitSettings, JobSettings, RefitSettings, job_settings, read_toml
from pipeline.types import Json

MODELS: dict[str, type[JobSettings]] = {"fit": FitSettings, "extend": ExtendSettings, "refit": RefitSettings}
# What has to stand in the file, for a flow to be deployed.
NEEDED = {"fit": "source and store", "extend": "a table [extend]", "refit": "a table [refit]"}
PATHS = ("source", "store", "output", "new", "incoming")
CERTIFICATES = ("tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True)
class Target:
    """One flow on one store, as it is to run."""

    flow: str
    store: str
    parameters: Json
    schedule: Schedule | None

    @property
    def slug(self) -> str:
        """The name of the deployment and of its work queue; with that of the flow, no other has it."""
        return store_slug(self.store)

    @property
    def entrypoint(self) -> str:
        """The flow of the installed package, wherever a worker starts it."""
        return f"flows.{self.flow}.{self.flow}"

    def loaded(self) -> "Flow[..., Any]":
        loaded: Flow[..., Any] = getattr(import_module(f"flows.{self.flow}"), self.flow)
        return loaded


def read_targets(file: Path) -> tuple[ScheduleSettings, list[Target]]:
    """What a file has to deploy, and how."""
    content = read_toml(file)
    schedule = schedule_settings(content)
    present = {
        "fit": "source" in content and "store" in content,
        "extend": "extend" in content,
        "refit": "refit" in content,
    }
    wanted = [flow for flow in FLOWS if present[flow]]
    if not wanted:
        either = ", or ".join(f"{what} ({flow})" for flow, what in NEEDED.items())
        raise InvalidInputError(f"config={str(file)!r} has nothing to deploy; give it {either}.")
    _require_deployed(schedule, present)
    return schedule, [_target(flow, file, schedule) for flow in wanted]


def _require_deployed(schedule: ScheduleSettings, present: dict[str, bool]) -> None:
    """Refuse times of flows that the file has no settings for."""
    times = [(name, flow) for flow in FLOWS for name in (flow, flow + EVERY)]
    for name, flow in [*times, ("refit_on_drift", "refit")]:
        value = getattr(schedule, name)
        if value and not present[flow]:
            raise InvalidInputError(
                f"[schedule] {name}={value!r}: the file has no settings of {flow}; give it {NEEDED[flow]}, or leave "
                f"{name} out."
            )


def _target(flow: str, file: Path, schedule: ScheduleSettings) -> Target:
    settings = job_settings(MODELS[flow], {}, file)
    # What the file says, and not the defaults, which belong to the version that runs.
    given = _placed(settings.model_dump(mode="json", exclude_unset=True), PATHS)
    if "cluster" in given:
        given["cluster"] = _placed(given["cluster"], CERTIFICATES)
    return Target(flow, given["store"], {"settings": given}, schedule.schedule_of(flow))


def _placed(given: Json, names: tuple[str, ...]) -> Json:
    """The same settings with paths that do not depend on the working directory."""
    return {name: _absolute(name, value) if name in names else value for name, value in given.items()}


def _absolute(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_absolute(name, entry) for entry in value]
    if not isinstance(value, str):
        return value
    if re.match(r"[a-z0-9+.-]+://[^/]*@", value):
        # Not shown: it is a secret, and the server would keep it.
        raise InvalidInputError(f"{name} has credentials in its address; leave them out and set them for the worker.")
    return absolute_path(value)
