"""What a user starts: the Prefect flows, the command line and the demonstration.

`from flows import fit, extend` gives the flows. They are imported when asked for: a command that only prints its help
must not wait for Prefect.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.extend import extend
    from flows.fit import fit
    from flows.invert import invert
    from flows.refit import refit

__all__ = ["extend", "fit", "invert", "refit"]

# Before Prefect reads them: nothing about a run leaves the machine, and a first start may take long.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")


class _Package(ModuleType):
    """Flows go by the names of their modules; importing such a module must not put it in the flow's place."""

    def __setattr__(self, name: str, value: object) -> None:
        is_flow = name in __all__ and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if is_flow else value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module(f"{__name__}.{name}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
