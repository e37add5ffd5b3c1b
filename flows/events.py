"""What flows tell the Prefect server about a store, under names that automations can wait for."""

import hashlib
import logging
import os
import re

from prefect.context import FlowRunContext, TaskRunContext
from prefect.events import emit_event
from prefect.settings import get_current_settings

from pipeline.types import Json

DRIFT = "trigpoint.drift"
# A refit joined more components of the graph than the version before.
BRIDGES = "trigpoint.bridges"
SLUG_LETTERS, DIGEST_LETTERS = 40, 10
LOGGER = logging.getLogger(__name__)


def absolute_path(path: str) -> str:
    """The same place from any working directory; addresses stay as they are."""
    if "://" in path and not path.startswith("file://"):
        return path
    return os.path.abspath(path.removeprefix("file://"))


def store_slug(store: str) -> str:
    """A name for a store that people can read, and that no other store has: deployments and limits go by it."""
    place = absolute_path(store).rstrip("/")
    readable = re.sub(r"[^a-z0-9]+", "-", place.rpartition("/")[2].lower()).strip("-")
    digest = hashlib.sha256(place.encode()).hexdigest()[:DIGEST_LETTERS]
    return f"{readable[:SLUG_LETTERS].strip('-') or 'store'}-{digest}"


def store_resource(store: str) -> str:
    """The resource that events about a store concern."""
    return f"trigpoint.store.{store_slug(store)}"


def emit_drift(store: str, payload: Json) -> bool:
    """Tell the server that new data no longer fits the model of a store; whether that was handed on."""
    return emit(DRIFT, store, payload)


def emit(event: str, store: str, payload: Json) -> bool:
    """Tell the server of something about a store; whether that was handed on.

    Events are sent in the background. A server that is not there, or does not want them, must not fail the run.
    """
    if not _has_server():
        return False
    resource = {"prefect.resource.id": store_resource(store), "prefect.resource.name": absolute_path(store)}
    try:
        return emit_event(event, resource=resource, payload=payload) is not None
    except Exception as error:
        LOGGER.warning("the event %s of %s could not be sent: %s", event, store, error)
        return False


def _has_server() -> bool:
    """Prefect would start a server only to tell it this: one that is configured, or that a run reports to, is meant."""
    return bool(get_current_settings().api.url or FlowRunContext.get() or TaskRunContext.get())
