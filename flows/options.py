"""Settings as options of a command, one option per field, and help that lists options in groups."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from pipeline.settings import EXECUTION, ClusterSettings, JobSettings, fields_of, job_settings

CONFIG = Annotated[
    Path | None,
    typer.Option("--config", metavar="PATH", help="TOML file with settings; options and arguments override it."),
]
ARGUMENTS, OTHER, REQUIRED = "Arguments", "Options", "[required, here or in --config]"
# Sections that come after all others, in this order.
LAST = (EXECUTION, OTHER)
# Settings that name a file, a folder or a URL.
PATHS = ("source", "store", "output", "coordinates", "new", "incoming", "tls_ca", "tls_cert", "tls_key")

PREFIX = "cluster_"
CLUSTER = {PREFIX + name: field for name, field in ClusterSettings.model_fields.items()}


class GroupedCommand(TyperCommand):
    """A command whose help has a section for each group of options: each `rich_help_panel`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments in brackets unless they are required."""
        arguments = self._sections(ctx)[ARGUMENTS]
        return ["[OPTIONS]", *(name if text.endswith(REQUIRED) else f"[{name}]" for name, text in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections = self._sections(ctx)
        for title in sorted(
            filter(sections.get, sections), key=lambda title: LAST.index(title) if title in LAST else -1
        ):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def _sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Names and texts of all parameters by the titles of their sections."""
        sections: dict[str, list[tuple[str, str]]] = {ARGUMENTS: []}
        for param in self.get_params(ctx):
            name, text = param.get_help_record(ctx) or ("", "")
            if param.param_type_name == "argument":
                # Without the type that Typer adds.
                sections[ARGUMENTS].append((name.partition(" ")[0], text))
            else:
                sections.setdefault(getattr(param, "rich_help_panel", None) or OTHER, []).append((name, text))
        return sections


def takes_settings(model: type[JobSettings], *arguments: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command whose first parameter is `settings` an option for every field of a model, and --config.

    The fields named in `arguments` become arguments, in this order.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        plain = {name: field for name, field in fields_of(model).items() if name not in ("cluster", *model.refused)}

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
    """Remove the values of some fields from a command's values; return those given, by the names of the settings."""
    taken = {name.removeprefix(PREFIX): values.pop(name) for name in fields}
    return {name: value for name, value in taken.items() if value is not None}


def _parameter(name: str, field: FieldInfo, is_argument: bool) -> inspect.Parameter:
    """A parameter that is None if not given, so that the file or the default decides; the model checks values."""
    text, group = f"{field.description}{_default(field)}", _group(field)
    if is_argument:
        kind: Any = typer.Argument(help=text, metavar=name.upper(), show_default=False)
    elif field.annotation is bool:
        kind = typer.Option(help=text, show_default=False, rich_help_panel=group)
    else:
        metavar = _metavar(name.removeprefix(PREFIX), field)
        complete = _completion(field)
        kind = typer.Option(
            help=text, metavar=metavar, show_default=False, rich_help_panel=group, autocompletion=complete
        )
    annotation: Any = Annotated[bool | None, kind] if field.annotation is bool else Annotated[str | None, kind]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _group(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["group"]) if isinstance(extra, dict) else OTHER


def _default(field: FieldInfo) -> str:
    """As Typer writes it."""
    if field.is_required():
        return f"  {REQUIRED}"
    is_plain = field.default is None or field.default is False or field.default == ()
    return "" if is_plain else f"  [default: {field.default}]"


def _completion(field: FieldInfo) -> Callable[[str], list[str]] | None:
    """What a shell offers for an option that has choices."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else field.examples
    if not choices:
        return None
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def _metavar(name: str, field: FieldInfo) -> str:
    """The choices of an option, or the kind of value it takes."""
    kind = _kind(field.annotation)
    return kind.replace("TEXT", "PATH") if name in PATHS else kind


def _kind(part: Any) -> str:
    origin, parts = get_origin(part), get_args(part)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin is tuple:
        return ",".join("..." if one is Ellipsis else _kind(one) for one in parts)
    if parts:
        return "|".join(_kind(one) for one in parts if one is not type(None))
    return {int: "INTEGER", float: "NUMBER"}.get(part, "TEXT")
