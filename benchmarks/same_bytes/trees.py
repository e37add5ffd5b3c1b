"""Where a version of the code has its entry points: the only file that knows the layout of the packages.

A name is looked for in each of its homes, the newest layout first. The tree is whichever `pipeline` is imported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

Told = Mapping[str, object]

SETTINGS = ("pipeline.settings", "pipeline.settings.jobs", "pipeline.config")
HOMES: dict[str, tuple[str, ...]] = {
    "METHODS": ("pipeline.settings.methods", "pipeline.methods"),
    "fit_settings": ("pipeline.settings.fit", *SETTINGS),
    "job_settings": SETTINGS,
    "ExtendSettings": ("pipeline.settings.extend", *SETTINGS),
    "RefitSettings": ("pipeline.settings.refit", *SETTINGS),
    "InvertSettings": ("pipeline.settings.invert", *SETTINGS, "pipeline.invert_settings"),
    "StudySettings": ("pipeline.settings.study", *SETTINGS, "pipeline.study_settings"),
    "checked_source": ("pipeline.jobs.fit", "pipeline.jobs.inputs", "pipeline.fitting"),
    "fit": ("pipeline.jobs.fit", "pipeline.fitting"),
    "plan_fit": ("pipeline.jobs.fit", "pipeline.jobs.plan", "pipeline.plan"),
    "extend": ("pipeline.jobs.extend", "pipeline.extending"),
    "extend_batches": ("pipeline.jobs.extend", "pipeline.extending"),
    "refit": ("pipeline.jobs.refit", "pipeline.refitting"),
    "invert": ("pipeline.jobs.invert", "pipeline.inverting"),
    "export_model": ("pipeline.jobs.portable", "pipeline.portable"),
    "study": ("pipeline.jobs.study", "pipeline.jobs.study.study", "pipeline.studying"),
    "LandmarkIsomap": ("pipeline",),
    "open_run": ("pipeline",),
}
SERIAL = {"cluster": {"kind": "serial"}}


@cache
def found(name: str) -> Any:
    """What is called so in this tree."""
    for home in HOMES[name]:
        value = getattr(_module(home), name, None)
        # A module may be called as its function is: pipeline.jobs.fit.fit.
        if value is not None and not hasattr(value, "__path__") and type(value).__name__ != "module":
            return value
    raise LookupError(f"{name} is in none of {', '.join(HOMES[name])}: add its home to {__file__}.")


def _module(home: str) -> Any:
    """The module, or None if the tree has none of that name; what a module fails to import is an error."""
    try:
        return import_module(home)
    except ModuleNotFoundError as error:
        if error.name is not None and (home == error.name or home.startswith(f"{error.name}.")):
            return None
        raise


def root() -> Path:
    """The folder that `pipeline` is imported from."""
    return Path(str(import_module("pipeline").__file__)).parent.parent


def methods() -> Mapping[str, Any]:
    """The methods by name, each with `inputs`, `extensions` and `geodesic`."""
    return dict(found("METHODS"))


def plan(told: Told) -> dict[str, Any]:
    """Of each stage of a fit what is expected: tasks, bytes of memory and disk, seconds."""
    settings = _fit_settings(told)
    planned = found("plan_fit")(settings, found("checked_source")(settings))
    return {stage.stage: asdict(stage) for stage in planned.stages}


def fit(told: Told, data: object | None = None) -> None:
    found("fit")(_fit_settings(told), data=data)


def extend(told: Told) -> None:
    found("extend")(_settings("ExtendSettings", told))


def extend_batches(told: Told) -> Iterator[str]:
    """The folder of each batch's results."""
    for output, _ in found("extend_batches")(_settings("ExtendSettings", told)):
        yield str(output)


def refit(told: Told) -> None:
    found("refit")(_settings("RefitSettings", told))


def invert(told: Told, queries: object | None = None) -> None:
    found("invert")(_settings("InvertSettings", told), queries=queries)


def export_model(store: str, model: str, anchors: int | None) -> None:
    found("export_model")(store, model, anchors)


def study(told: Told) -> dict[str, Any]:
    """What a study says, but for the words in which it says what it left out."""
    done = found("study")(found("job_settings")(found("StudySettings"), {**SERIAL, **told}))
    return {**asdict(done), "left_out": len(done.left_out), "recommended": asdict(done.recommended)}


def estimator(told: Told) -> Any:
    return found("LandmarkIsomap")(**told)


def open_run(store: str, version: str | None = None) -> Any:
    return found("open_run")(store, version)


def _fit_settings(told: Told) -> Any:
    return found("fit_settings")({**SERIAL, **told})


def _settings(model: str, told: Told) -> Any:
    return found("job_settings")(found(model), {**SERIAL, **told})
