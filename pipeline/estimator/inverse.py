"""From coordinates in an embedding back to rows of data, in memory.

As on disk, rows that are embedded in the same place are one node of the interpolant, with the mean of their rows.
"""

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InexactWarning, InvalidInputError, OutsideWarning
from pipeline.numerics import checks
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.inverse.interpolant import Inverted, Stencils, mean_rows, nearest_nodes, stencils, usable_points
from pipeline.numerics.inverse.neighborhood import NOBODY
from pipeline.numerics.inverse.systems import ILL_CONDITIONED, MERGED, REGULARIZED, UNDEFINED
from pipeline.types import AnyArray, FloatArray, IntArray

# Fill distances from every embedded point beyond which a place is outside of the embedding.
OUTSIDE = 3.0
# What a caller should know of an answer that is not simply interpolated.
INEXACT = {
    MERGED: "are a mean of different rows in one place",
    REGULARIZED: "are smoothed, for embedded points nearly coincide",
    ILL_CONDITIONED: "have few right digits",
}
# From here to the caller of `inverse_transform`.
CALLER = 4


def data_at(coordinates: ArrayLike, embedding: FloatArray, rows: AnyArray) -> FloatArray:
    """Rows (p, D) of data at coordinates (p, d), by local cubic radial functions through the embedded rows."""
    places = checks.real_array("X", coordinates, 2)
    if places.shape[1] != embedding.shape[1]:
        raise InvalidInputError(
            f"X has {places.shape[1]} columns; the embedding has {embedding.shape[1]} coordinates: give those."
        )
    found = _interpolated(places, embedding, rows)
    _warn_of_outside(found.stencils)
    _warn_of_inexact(found.stencils)
    return found.values


def _interpolated(places: AnyArray, embedding: FloatArray, rows: AnyArray) -> Inverted:
    embedded = np.flatnonzero(usable_points(embedding))
    distinct = collapse_duplicates(embedding[embedded])
    firsts = embedded[distinct.first_rows]
    near = nearest_nodes(embedding[firsts], places)
    found = stencils(places, embedding[firsts], near)
    if len(firsts) == len(embedded):
        # Nothing repeats: rows are combined where they stand.
        return Inverted(
            replace(found, neighborhoods=np.where(near == NOBODY, NOBODY, firsts[near])).combine(rows), found
        )
    return _of_means(found, embedded, distinct.node_of, rows)


def _of_means(found: Stencils, embedded: IntArray, node_of: IntArray, rows: AnyArray) -> Inverted:
    """Values by the means of the rows (n, D) of nodes; node_of (e,) are those of the embedded rows (e,)."""
    near = found.neighborhoods
    needed = np.unique(near[near != NOBODY])
    members = np.flatnonzero(np.isin(node_of, needed))
    members = members[np.argsort(node_of[members], kind="stable")]
    means, differ = mean_rows(rows[embedded[members]], np.searchsorted(needed, node_of[members]))
    local = np.where(near == NOBODY, NOBODY, np.searchsorted(needed, near))
    merged = (differ[local] & (local != NOBODY)).any(axis=1) if len(needed) else np.zeros(len(near), dtype=np.bool_)
    flags = found.flags | np.where(merged, MERGED, 0).astype(np.uint8)
    return Inverted(replace(found, neighborhoods=local).combine(means), replace(found, flags=flags))


def _warn_of_outside(found: Stencils) -> None:
    """Undefined places, NaN or beyond anything that can be computed with, are outside too: their remoteness is NaN."""
    outside = np.flatnonzero(~(found.remoteness <= OUTSIDE))
    if not len(outside):
        return
    n_undefined = int(np.count_nonzero(found.flags & UNDEFINED))
    words = (
        [f"data of {n_undefined} is NaN, for they are not finite or too far away to compute with"]
        if n_undefined
        else []
    )
    if n_undefined < len(outside):
        words.append(
            f"at up to {np.nanmax(found.distance[outside]):.3g} from every embedded point data is extrapolated"
        )
    warnings.warn(
        f"{len(outside)} of {len(found.flags)} rows of X are outside of the embedding, the first {outside[0]}: "
        f"{'; '.join(words)}.",
        OutsideWarning,
        stacklevel=CALLER,
    )


def _warn_of_inexact(found: Stencils) -> None:
    counts = {words: int(np.count_nonzero(found.flags & flag)) for flag, words in INEXACT.items()}
    told = [f"{count} {words}" for words, count in counts.items() if count]
    if told:
        warnings.warn(
            f"data at {len(found.flags)} rows of X is not what interpolating gives: {', '.join(told)}.",
            InexactWarning,
            stacklevel=CALLER,
        )
