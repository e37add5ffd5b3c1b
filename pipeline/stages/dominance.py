"""Columns that carry nearly all of the variance, as one in another unit may: distances hardly depend on the others."""

import math
import warnings

import numpy as np

from pipeline.errors import ScaleWarning
from pipeline.methods import DIRECTIONAL, VECTORS, compares_by
from pipeline.numerics.preprocessing import dominating_columns
from pipeline.settings import FitSettings
from pipeline.stages.stage import Outcome
from pipeline.types import Json


def dominance(settings: FitSettings, column_names: list[str], validated: Outcome) -> Json | None:
    """The columns that dominate all distances and their share of the variance; None if there are none, or if the
    settings are such that the scale of columns does not count or was taken care of."""
    directional = getattr(settings, compares_by(settings.method)) in DIRECTIONAL
    if settings.input != VECTORS or settings.standardize or settings.pca is not None or directional:
        return None
    deviations = validated.ledger.read("moments").read()[1]
    low, high = validated.ledger.read("ranges").read()
    # What is computed for a constant column is rounding error.
    columns, share = dominating_columns(np.where(low == high, 0.0, deviations))
    if not len(columns):
        return None
    return {"columns": [column_names[column] for column in columns], "share": share, "n_columns": len(column_names)}


def warn_of_dominance(found: Json | None) -> None:
    if found is not None:
        warnings.warn(dominance_in_words(found), ScaleWarning, stacklevel=3)


def dominance_in_words(found: Json) -> str:
    """Which columns dominate, and the remedy."""
    # Rounded down, since it is never all.
    share = math.floor(found["share"] * 1e4) / 1e4
    names = ", ".join(map(repr, found["columns"]))
    carries = "Column {} carries" if len(found["columns"]) == 1 else "Columns {} carry"
    return (
        f"{carries.format(names)} {share:.2%} of the variance of all {found['n_columns']} columns, so that "
        "distances hardly depend on the others. If that is only because of different units, fit with --standardize "
        "(standardize=True)."
    )
