"""What a TOML file deploys: the flows it has settings for, and when they run (its table `[schedule]`)."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypeAlias
from zoneinfo import ZoneInfo

from prefect import Flow
from prefect.server.schemas.schedules import CronSchedule, IntervalSchedule
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from flows.events import absolute_path, store_slug
from pipeline.errors import InvalidInputError
from pipeline.settings import (
    ExtendSettings,
    FitSettings,
    JobSettings,
    RefitSettings,
    described_faults,
    job_settings,
    read_toml,
    require_known,
)
from pipeline.types import Json

FLOWS = ("fit", "extend", "refit")
EVERY = "_every"
MODELS: dict[str, type[JobSettings]] = {"fit": FitSettings, "extend": ExtendSettings, "refit": RefitSettings}
# What the file must contain for a flow to be deployed.
NEEDED = {"fit": "source and store", "extend": "a table [extend]", "refit": "a table [refit]"}
PATHS = ("source", "store", "output", "new", "incoming")
CERTIFICATES = ("tls_ca", "tls_cert", "tls_key")
Schedule: TypeAlias = CronSchedule | IntervalSchedule


class ScheduleSettings(BaseModel):
    """When each flow runs, and on which work pool. A flow without a time is deployed for runs by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fit: str | None = Field(None, description="Cron expression of the times to fit.")
    extend: str | None = Field(None, description="Cron expression of the times to extend.")
    refit: str | None = Field(None, description="Cron expression of the times to refit.")
    fit_every: int | None = Field(None, ge=1, description="Seconds from one fit to the next, instead of a cron.")
    extend_every: int | None = Field(None, ge=1, description="Seconds from one extend to the next, instead of a cron.")
    refit_every: int | None = Field(None, ge=1, description="Seconds from one refit to the next, instead of a cron.")
    timezone: str = Field("UTC", description="Time zone of the cron expressions, such as Europe/Berlin.")
    work_pool: str = Field("trigpoint", description="Prefect's work pool that the runs go to.")
    refit_on_drift: bool = Field(False, description="Refit when new data no longer fits the model.")

    @field_validator(*(flow + EVERY for flow in FLOWS), mode="before")
    @classmethod
    def _no_truth_value(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a number of seconds is needed")  # noqa: TRY004  pydantic takes ValueErrors
        return value

    @field_validator(*FLOWS)
    @classmethod
    def _comes_round(cls, value: str | None, info: ValidationInfo) -> str | None:
        """As Prefect reads it; the time zone does not matter for that."""
        if value is None:
            return value
        try:
            next_times(CronSchedule(cron=value), 1)
        except ValidationError as error:
            raise ValueError(
                "not a cron expression; give minute, hour, day of month, month and day of week, such as '0 3 * * 0' "
                f"for Sundays at 3, or seconds as {info.field_name}{EVERY}"
            ) from error
        except Exception as error:  # of the cron library, which Prefect keeps to itself
            raise ValueError(f"no such time ever comes ({error}); check day of month and month") from error
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError("not a time zone that is known here; give a name such as UTC or Europe/Berlin") from error
        return value

    @field_validator("work_pool")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}", value):
            raise ValueError("letters, digits, spaces, dots, dashes and underscores are allowed, at most 64")
        return value

    @model_validator(mode="after")
    def _one_kind_of_time(self) -> Self:
        for flow in FLOWS:
            if getattr(self, flow) is not None and getattr(self, flow + EVERY) is not None:
                raise ValueError(f"{flow} and {flow}{EVERY} are both given; keep one of them")
        return self

    def schedule_of(self, flow: str) -> Schedule | None:
        """When a flow runs; None is only when asked to."""
        cron, seconds = getattr(self, flow), getattr(self, flow + EVERY)
        if cron is not None:
            return CronSchedule(cron=cron, timezone=self.timezone)
        if seconds is None:
            return None
        # Counted from a fixed day, so that deploying again does not shift the times.
        anchor = datetime(2020, 1, 1, tzinfo=ZoneInfo(self.timezone))
        return IntervalSchedule(interval=timedelta(seconds=seconds), anchor_date=anchor, timezone=self.timezone)


def schedule_settings(content: Mapping[str, Any]) -> ScheduleSettings:
    """The table `[schedule]` of a file; a file without one schedules nothing."""
    table = content.get("schedule", {})
    if not isinstance(table, dict):
        raise InvalidInputError(
            f"schedule={table!r} in the configuration is not a table; write [schedule] above its keys."
        )
    fields = ScheduleSettings.model_fields
    require_known(table, fields, "schedule.")
    try:
        return ScheduleSettings.model_validate(table)
    except ValidationError as error:
        raise InvalidInputError(f"[schedule] {described_faults(error, fields)}") from error


def next_times(schedule: Schedule, n_times: int) -> list[datetime]:
    """The coming times, as the server will compute them."""
    return list(asyncio.run(schedule.get_dates(n_times)))


def described(schedule: Schedule | None) -> str:
    """A schedule in words."""
    if schedule is None:
        return "only when asked to"
    if isinstance(schedule, CronSchedule):
        return f"at {schedule.cron} ({schedule.timezone})"
    return f"every {schedule.interval.total_seconds():,.0f} s"


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
    # What the file says, and not the defaults, which belong to the version that runs; but for what a change of the
    # defaults would replace or refuse unseen.
    given = _placed(settings.model_dump(mode="json", exclude_unset=True), PATHS)
    if isinstance(settings, FitSettings):
        given = {"component_policy": settings.component_policy, "on_changed_source": "version"} | given
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
