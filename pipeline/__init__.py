"""Landmark Isomap and its relatives for datasets too big to embed any other way."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.estimator.landmark_isomap import LandmarkIsomap
    from pipeline.results.run import open_run

__all__ = ["LandmarkIsomap", "open_run"]

_HOMES = {"LandmarkIsomap": "pipeline.estimator.landmark_isomap", "open_run": "pipeline.results.run"}


def __getattr__(name: str) -> object:
    # The numerical stack takes a second to import; a command that only prints its help must not wait for it.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
