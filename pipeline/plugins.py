"""What plugins add, by kind and name: methods, landmark choices, source formats, trust columns, store backends.

A plugin is a module with a function `register(plugins)`. It is named by an entry point of the group `trigpoint.plugins`
or by the user's setting `plugins`, never by a store; `load` imports and calls it, here and on every worker alike.
Importing a plugin must change nothing: only `register` adds to the tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pipeline.errors import InvalidInputError

GROUP = "trigpoint.plugins"


@dataclass(frozen=True)
class TrustColumn:
    """A column beside the built-in trust columns: `values(model, answer)` gives one number a point, in the run's
    units; `degree` is the power of a length that it is (0 for numbers without a unit)."""

    values: Callable[[Any, Any], Any]
    degree: int = 0


@dataclass
class Plugins:
    """Tables of what was added. Each is read beside the table of built-in entries, by the module that has that.

    - methods: name -> `pipeline.methods.Method` with `fit`
    - landmark_choices: name -> function (points (c, D), first, n_landmarks, seed) -> places (m,)
    - source_formats: suffix -> function (path, key, columns, id_column) -> `pipeline.sources.Source`
    - trust_columns: name -> TrustColumn
    - backends: scheme of a URL -> function (url) -> `pipeline.store.backend.Backend`
    """

    methods: dict[str, Any] = field(default_factory=dict)
    landmark_choices: dict[str, Callable[..., Any]] = field(default_factory=dict)
    source_formats: dict[str, Callable[..., Any]] = field(default_factory=dict)
    trust_columns: dict[str, TrustColumn] = field(default_factory=dict)
    backends: dict[str, Callable[..., Any]] = field(default_factory=dict)


LOADED = Plugins()


def load(names: Iterable[str] = ()) -> Plugins:
    """Everything that installed plugins and those in the named modules add; each is registered once."""
    for name in (*_installed(), *((names,) if isinstance(names, str) else names)):
        _register(name)
    return LOADED


def loaded() -> tuple[str, ...]:
    """The modules whose plugins are registered, for a worker to load the same ones."""
    return tuple(_REGISTERED)


_REGISTERED: dict[str, None] = {}


@cache
def _installed() -> tuple[str, ...]:
    return tuple(entry.value for entry in entry_points(group=GROUP))


def _register(name: str) -> None:
    if name in _REGISTERED:
        return
    try:
        register = import_module(name).register
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"plugins={name!r} cannot be loaded: {error}; name an importable module that has a function `register`."
        ) from error
    register(LOADED)
    _REGISTERED[name] = None
