"""From coordinates in an embedding back to rows of data, in memory."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError, OutsideWarning
from pipeline.numerics import checks
from pipeline.numerics.inverse import invert
from pipeline.types import AnyArray, FloatArray

# Fill distances from every embedded point beyond which a place is outside of the embedding.
OUTSIDE = 3.0


def data_at(coordinates: ArrayLike, embedding: FloatArray, rows: AnyArray) -> FloatArray:
    """Rows (p, D) of data at coordinates (p, d), by local cubic radial functions through the embedded rows."""
    places = checks.real_array("X", coordinates, 2)
    if places.shape[1] != embedding.shape[1]:
        raise InvalidInputError(
            f"X has {places.shape[1]} columns; the embedding has {embedding.shape[1]} coordinates: give those."
        )
    checks.require_finite("X", places)
    found = invert(places, embedding, rows)
    outside = np.flatnonzero(found.stencils.remoteness > OUTSIDE)
    if len(outside):
        distances = found.stencils.distance[outside]
        warnings.warn(
            f"{len(outside)} of {len(places)} rows of X are outside of the embedding, the first {outside[0]}, at up to "
            f"{distances.max():.3g} from every embedded point: data there is extrapolated.",
            OutsideWarning,
            stacklevel=3,
        )
    return found.values
