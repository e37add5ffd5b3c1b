"""The command `trigpoint deploy`: flows on a schedule, on the Prefect server that is configured or on an embedded one.

A store has one writer at a time. The deployments of a store share one concurrency limit of the server, which a run
takes before it is started and gives back when it ends. The server does this in one transaction, and a run whose process
and worker are gone loses its place after minutes; a work queue with a limit would wait for it forever.
"""

import json
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    GlobalConcurrencyLimitCreate,
    GlobalConcurrencyLimitUpdate,
    WorkPoolCreate,
)
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.actions import RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import get_current_settings
from prefect.utilities.callables import parameter_schema
from prefect.workers.process import ProcessWorker

from flows.events import DRIFT, store_resource
from flows.schedules import ScheduleSettings, Target, described, next_times, read_targets
from flows.terminal import Say
from pipeline.errors import ClusterError, InvalidInputError
from pipeline.errors import described as fault_in_words
from pipeline.types import Json

TIMES_SHOWN = 3
ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
# Batches that drift one after the other want one refit.
DRIFT_WINDOW = timedelta(hours=1)


def run_deploy(file: Path, as_json: bool, say: Say) -> None:
    """Put what a file has to deploy on the configured server, and tell what will run when."""
    schedule, targets = read_targets(file)
    configured = get_current_settings().api.url
    if not configured:
        raise InvalidInputError(
            "no Prefect server is configured: set PREFECT_API_URL to the address of one (prefect server start), or "
            "give --serve, which starts a server and a worker here and runs until Ctrl-C."
        )
    with get_client(sync_client=True) as client:
        _require_answer(client, configured)
        report = deployed(client, schedule, targets)
    tell(report, [*summary(report), f"Start a worker, if there is none: {report['worker_command']}"], as_json, say)


def _require_answer(client: SyncPrefectClient, url: str) -> None:
    fault = client.api_healthcheck()
    if fault is not None:
        raise ClusterError(
            f"the Prefect server at PREFECT_API_URL={url} does not answer ({fault_in_words(fault)}); start it, or "
            "check the address."
        )


def tell(report: Json, lines: list[str], as_json: bool, say: Say) -> None:
    """A report for programs, or the same in lines for people."""
    say(json.dumps(report, indent=2) if as_json else "\n".join(lines))


def deployed(client: SyncPrefectClient, schedule: ScheduleSettings, targets: list[Target]) -> Json:
    """Register everything. Done again, it replaces what was there; nothing is doubled."""
    _ensure_pool(client, schedule.work_pool)
    limits = {target.slug: _ensure_limit(client, target.slug) for target in targets}
    entries = [_registered(client, schedule, target, limits[target.slug]) for target in targets]
    automations = [
        _automated(client, target, UUID(entry["id"]), schedule.refit_on_drift)
        for target, entry in zip(targets, entries, strict=True)
        if target.flow == "refit"
    ]
    return {
        "server": str(client.api_url),
        "work_pool": schedule.work_pool,
        "worker_command": f"prefect worker start --pool {_quoted(schedule.work_pool)}",
        "deployments": entries,
        "automations": [name for name in automations if name],
        "not_in_file": _others(client, targets),
    }


def summary(report: Json) -> list[str]:
    """What was registered, in lines for people."""
    lines = []
    for entry in report["deployments"]:
        lines.append(f"{entry['deployment']} {entry['schedule']}, on {entry['store']}")
        lines += [f"  next {', '.join(entry['next'])}"] * bool(entry["next"])
    lines += [f"{name}: a refit at each {DRIFT}, at most one an hour" for name in report["automations"]]
    lines += [
        f"{name} is on the server and not in this file; to remove it: prefect deployment delete {name}"
        for name in report["not_in_file"]
    ]
    return lines


def runs_of(client: SyncPrefectClient, slug: str, states: list[StateType]) -> list[FlowRun]:
    """The latest runs on a store in these states, as far as the server knows."""
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=states))),
        deployment_filter=of_store(slug),
        sort=FlowRunSort.START_TIME_DESC,
    )


def of_store(slug: str) -> DeploymentFilter:
    """The deployments of a store."""
    return DeploymentFilter(name=DeploymentFilterName(any_=[slug]))


def _quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name


def _ensure_pool(client: SyncPrefectClient, name: str) -> None:
    """A pool that is there stays as it is: its owner may have set it up."""
    template = ProcessWorker.get_default_base_job_template()
    try:
        client.create_work_pool(WorkPoolCreate(name=name, type=ProcessWorker.type, base_job_template=template))
    except ObjectAlreadyExists:
        return


def _ensure_limit(client: SyncPrefectClient, slug: str) -> UUID:
    """The limit of a store: one run at a time."""
    name = f"trigpoint:{slug}"
    try:
        found = client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        return client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=1))
    # A server that forgot who holds the place, in a restart, would never give it to anyone again.
    is_stuck = found.active_slots > 0 and not runs_of(client, slug, ACTIVE)
    changes: dict[str, Any] = {"limit": 1, "active": True} | ({"active_slots": 0} if is_stuck else {})
    client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(**changes))
    return found.id


def _registered(client: SyncPrefectClient, schedule: ScheduleSettings, target: Target, limit: UUID) -> Json:
    """One deployment. The server takes all of it from this request, the schedule too, and drops runs not yet due."""
    flow = target.loaded()
    schedules = [] if target.schedule is None else [target.schedule.model_dump(mode="json")]
    # The client's own method does not know limits that deployments share.
    answer = client.request(
        "POST",
        "/deployments/",
        json={
            "flow_id": str(client.create_flow_from_name(flow.name)),
            "name": target.slug,
            "description": f"{target.flow} of {target.store}, by trigpoint deploy.",
            "version": version("trigpoint"),
            "tags": ["trigpoint"],
            "entrypoint": target.entrypoint,
            "path": None,
            "pull_steps": [],
            "parameters": target.parameters,
            "parameter_openapi_schema": _schema(flow),
            "enforce_parameter_schema": True,
            "work_pool_name": schedule.work_pool,
            "work_queue_name": target.slug,
            "job_variables": {},
            "schedules": [{"schedule": one, "active": True} for one in schedules],
            "paused": False,
            "global_concurrency_limit_id": str(limit),
            "concurrency_options": {"collision_strategy": "ENQUEUE"},
        },
    )
    times = next_times(target.schedule, TIMES_SHOWN) if target.schedule else []
    return {
        "deployment": f"{flow.name}/{target.slug}",
        "id": answer.json()["id"],
        "store": target.store,
        "work_queue": target.slug,
        "schedule": described(target.schedule),
        "next": [time.isoformat(timespec="seconds") for time in times],
    }


def _schema(flow: "Flow[..., Any]") -> Json:
    """What the server checks parameters against. Settings as keywords are for Python: it would demand them always."""
    schema = parameter_schema(flow).model_dump(exclude_unset=True)
    schema["properties"].pop("keywords", None)
    schema["required"] = [name for name in schema.get("required", []) if name != "keywords"]
    return schema


def _automated(client: SyncPrefectClient, target: Target, deployment: UUID, wanted: bool) -> str | None:
    """Refit when the store's new data drifts, or no longer; the automation's name if there is one now."""
    name = f"trigpoint: refit {target.slug} on drift"
    found = client.read_automations_by_name(name)
    for one in found[1:] if wanted else found:
        client.delete_automation(one.id)
    if not wanted:
        return None
    automation = AutomationCore(
        name=name,
        description=f"Refits {target.store} when extend finds that new data no longer fits the model.",
        enabled=True,
        trigger=EventTrigger(
            type="event",
            expect={DRIFT},
            match={"prefect.resource.id": store_resource(target.store)},
            posture=Posture.Reactive,
            threshold=1,
            within=DRIFT_WINDOW,
        ),
        actions=[RunDeployment(type="run-deployment", source="selected", deployment_id=deployment)],
    )
    if found:  # the client sends only what is set, and the server wants all of it
        client.update_automation(found[0].id, automation)
    else:
        client.create_automation(automation)
    return name


def _others(client: SyncPrefectClient, targets: list[Target]) -> list[str]:
    """Deployments on these stores that the file does not have: of an earlier state of it, or of another file."""
    ours = {(target.loaded().name, target.slug) for target in targets}
    names = set()
    for slug in {target.slug for target in targets}:
        for found in client.read_deployments(deployment_filter=of_store(slug)):
            flow = client.read_flow(found.flow_id).name
            names |= {f"{flow}/{found.name}"} if (flow, found.name) not in ours else set()
    return sorted(names)
