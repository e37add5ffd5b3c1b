"""The settings of every job as frozen pydantic models, filled from keywords, a TOML file or the command line.

One TOML file serves all commands: the settings of a fit are at its top level, those of other commands in tables of
their names; `store`, `partition_mib`, `plugins` and `[cluster]` at the top level apply to all.
"""

import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipeline.errors import InvalidInputError
from pipeline.settings.base import EXECUTION, TLS_FILES, ClusterSettings, JobSettings
from pipeline.settings.fit import FitSettings, MethodSettings
from pipeline.settings.jobs import ExtendSettings, InvertSettings, RefitSettings, StudySettings

__all__ = [
    "EXECUTION",
    "TLS_FILES",
    "ClusterSettings",
    "ExtendSettings",
    "FitSettings",
    "InvertSettings",
    "JobSettings",
    "MethodSettings",
    "RefitSettings",
    "Settings",
    "StudySettings",
    "described_faults",
    "fields_of",
    "fit_settings",
    "job_settings",
    "read_toml",
    "require_known",
]

# Keys at the top level that apply to every command.
COMMON = ("store", "partition_mib", "cluster", "plugins")
OTHER_TABLES = ("extend", "refit", "invert", "schedule", "study")
Settings = TypeVar("Settings", bound=JobSettings)


def fields_of(model: type[JobSettings]) -> dict[str, FieldInfo]:
    """The fields of a command's settings: its own, then those of the method, then those of all commands."""
    fields = model.model_fields
    shared = [name for part in (MethodSettings, JobSettings) for name in part.model_fields if name in fields]
    return {name: field for name, field in fields.items() if name not in shared} | {n: fields[n] for n in shared}


def fit_settings(given: Mapping[str, Any], file: Path | None = None) -> FitSettings:
    """Settings of a fit from keywords, over those of a TOML file if there is one."""
    return job_settings(FitSettings, given, file)


def job_settings(model: type[Settings], given: Mapping[str, Any], file: Path | None = None) -> Settings:
    """Settings of a command from keywords, over those of a TOML file if there is one."""
    from_file = _of_file(model, read_toml(file)) if file else {}
    values = {**from_file, **given}
    if isinstance(from_file.get("cluster"), dict) and isinstance(given.get("cluster"), dict):
        values["cluster"] = {**from_file["cluster"], **given["cluster"]}
    fields = fields_of(model)
    require_known(values, fields)
    if isinstance(values.get("cluster"), dict):
        require_known(values["cluster"], ClusterSettings.model_fields, "cluster.")
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        raise InvalidInputError(described_faults(error, {*fields, *ClusterSettings.model_fields})) from error
    settings.check_choices()
    return settings


def _of_file(model: type[JobSettings], content: dict[str, Any]) -> dict[str, Any]:
    """The settings in a TOML file that apply to one command."""
    table, for_a_fit = model.table, {name: value for name, value in content.items() if name not in OTHER_TABLES}
    if table is None:
        return for_a_fit
    own = content.get(table, {})
    if not isinstance(own, dict):
        raise InvalidInputError(f"{table}={own!r} in the configuration is not a table; write [{table}] above its keys.")
    common = for_a_fit if issubclass(model, FitSettings) else COMMON
    return {**{name: content[name] for name in common if name in content}, **own}


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"config={str(file)!r} cannot be read: {error.strerror}; check the path.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"config={str(file)!r} is not TOML: {error}.") from error


def require_known(names: Iterable[str], known: Iterable[str], prefix: str = "") -> None:
    """Refuse a setting that does not exist, with the nearest one that does."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
            hint = f"did you mean {prefix + near[0]!r}?" if near else f"known are {', '.join(known)}."
            raise InvalidInputError(f"setting {prefix + name!r} is not known; {hint}")


def described_faults(error: ValidationError, fields: Collection[str]) -> str:
    """Each wrong setting with its value and what is expected; for a union of types, what each of them expects."""
    expected: dict[str, list[str]] = {}
    for entry in error.errors():
        name = ".".join(str(part) for part in entry["loc"] if part in fields)
        messages = expected.setdefault(name, [])
        messages.append(_expectation(entry) if messages else _introduced(name, entry))
    return "; ".join(", or ".join(messages) for messages in expected.values()).removesuffix(".") + "."


def _introduced(name: str, entry: ErrorDetails) -> str:
    """A fault after its setting's name and value, unless the message names its settings itself."""
    if entry["type"] == "missing":
        return f"Missing argument {name.upper()}"
    message = _expectation(entry)
    of_several = entry["type"] == "value_error" and isinstance(entry["input"], dict)
    return message if of_several or message.startswith(f"{name}=") else f"{name}={entry['input']!r}: {message}"


def _expectation(entry: ErrorDetails) -> str:
    """What pydantic expects of a value, with limits such as 1e-300 not written out digit by digit."""
    limits = [value for name, value in entry.get("ctx", {}).items() if name in ("ge", "gt", "le", "lt")]
    if limits and isinstance(limits[0], float):
        return f"{entry['msg'].rpartition(' ')[0]} {limits[0]:g}"
    return entry["msg"].removeprefix("Value error, ")
