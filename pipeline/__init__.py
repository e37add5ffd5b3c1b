"""Landmark Isomap and its relatives for datasets too big to embed any other way."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.estimator import LandmarkIsomap

__all__ = ["LandmarkIsomap"]


def __getattr__(name: str) -> object:
    # The numerical stack takes a second to import; a command that only prints its help must not wait for it.
    if name == "LandmarkIsomap":
        from pipeline.estimator import LandmarkIsomap

        return LandmarkIsomap
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
