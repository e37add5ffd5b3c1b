"""Settings as options of a command: one option for each field, made from the field itself."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from pipeline.settings import ClusterSettings, JobSettings, fields_of, job_settings

CONFIG = Annotated[
    Path | None, typer.Option("--config", help="TOML file with any of these settings; options given here win.")
]

PREFIX = "cluster_"
CLUSTER = {PREFIX + name: field for name, field in ClusterSettings.model_fields.items()}


def takes_settings(model: type[JobSettings], *arguments: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command whose first parameter is `settings` an option for every field of a model, and --config.

    Those fields that are named come as arguments, in this order."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        plain = {name: field for name, field in fields_of(model).items() if name != "cluster"}

        def with_settings(config: Path | None = None, **values: Any) -> None:
            given = _given(values, plain)
            cluster = _given(values, CLUSTER)
            command(job_settings(model, given | ({"cluster": cluster} if cluster else {}), config), **values)

        ordered = {name: plain[name] for name in arguments} | plain | CLUSTER
        fields = [_parameter(name, field, name in arguments) for name, field in ordered.items()]
        config = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=CONFIG)
        signature = inspect.Signature([*fields, config, *(option.replace(kind=config.kind) for option in own)])
        with_settings.__signature__ = signature  # type: ignore[attr-defined]
        with_settings.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
        with_settings.__name__, with_settings.__doc__ = command.__name__, command.__doc__
        return with_settings

    return decorated


def _given(values: dict[str, Any], fields: dict[str, FieldInfo]) -> dict[str, Any]:
    """Take from a command's values those of some fields that were given, by the names of the settings."""
    taken = {name.removeprefix(PREFIX): values.pop(name) for name in fields}
    return {name: value for name, value in taken.items() if value is not None}


def _parameter(name: str, field: FieldInfo, is_argument: bool) -> inspect.Parameter:
    """Not given is None, so that the file's value or the default stands; values are checked by the model."""
    if is_argument:
        kind: Any = typer.Argument(help=field.description, metavar=name.upper(), show_default=False)
    elif field.annotation is bool:
        kind = typer.Option(help=field.description, show_default=False)
    else:
        kind = typer.Option(help=f"{field.description}{_default(field)}", metavar=_metavar(field), show_default=False)
    annotation: Any = Annotated[bool | None, kind] if field.annotation is bool else Annotated[str | None, kind]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _default(field: FieldInfo) -> str:
    return "" if field.is_required() or field.default in (None, ()) else f" [{field.default}]"


def _metavar(field: FieldInfo) -> str:
    """What may stand there: the choices, or the kind of value."""
    choices = [_named(part) for part in (get_args(field.annotation) or (field.annotation,)) if part is not type(None)]
    if get_origin(field.annotation) is Literal:
        choices = list(map(str, get_args(field.annotation)))
    elif get_origin(field.annotation) is tuple:
        choices = [_named(field.annotation)]
    return "|".join(choices)


def _named(part: Any) -> str:
    if get_origin(part) is Annotated:
        part = get_args(part)[0]
    if get_origin(part) is Literal:
        return "|".join(map(str, get_args(part)))
    return {int: "INTEGER", float: "NUMBER", str: "TEXT"}.get(part, "TEXT,TEXT,...")
