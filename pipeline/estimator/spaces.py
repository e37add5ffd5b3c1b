"""What all fits in memory have in common: a model that is asked about points, and what a fit leaves behind.

Landmarks by any of the selections, from what there is to tell points apart: vectors, dissimilarities or a graph.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from pipeline.errors import InvalidInputError
from pipeline.estimator.settings import Settings
from pipeline.methods import METHODS
from pipeline.numerics import checks
from pipeline.numerics.extension.placement import Answers, weighted_answers
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.mds import LandmarkModel, Model
from pipeline.numerics.models.catalog import fitted_model
from pipeline.numerics.models.lle import LlePlacer
from pipeline.numerics.models.spectral import NystromPlacer
from pipeline.types import AnyArray, FloatArray, IntArray

# Rows whose dissimilarities to the landmarks are looked at together: what an embedding needs beside its result.
ROWS_PER_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model, the answer of it that is wanted, and the power of two that takes coordinates to the user's units."""

    answers: Answers
    wanted: str
    exponent: int

    def coordinates(self, to_landmarks: AnyArray) -> FloatArray:
        """Coordinates (p, d) of points given by their dissimilarities (p, m); a row's bytes depend on it alone."""
        d = self.answers.n_components
        first = d * self.answers.coordinates.index(self.wanted)
        found = self.answers.of(to_landmarks).coordinates[:, first : first + d]
        return np.asarray(np.ldexp(found, self.exponent))

    def embedded(self, n_points: int, to_landmarks: Callable[[slice], AnyArray]) -> FloatArray:
        """Coordinates (n, d) of all points, whose dissimilarities are had for some of them at a time."""
        out = np.empty((n_points, self.answers.n_components))
        for chunk in chunks(n_points):
            out[chunk] = self.coordinates(to_landmarks(chunk))
        return out

    @property
    def eigenvalues(self) -> FloatArray | None:
        """Those (d,) that belong to the coordinates, in the user's units, if the model has any."""
        model = self.answers.model
        if isinstance(model, LandmarkModel):
            return np.asarray(np.ldexp(model.eigenvalues, 2 * self.exponent))
        return model.eigenvalues if isinstance(model, NystromPlacer | LlePlacer) else None


class Space(Protocol):
    """A fitted space and the way into it."""

    @property
    def embedder(self) -> Embedder: ...

    @property
    def takes_edges(self) -> bool:
        """Whether new rows are edges to the training points, in a sparse matrix."""
        ...

    def placed(self, rows: Any, n_threads: int) -> FloatArray:
        """Coordinates (p, d) of new rows, in the user's units."""
        ...


@dataclass(frozen=True, eq=False)
class Fitted:
    """A space, the coordinates (n, d) and components (n,) of all rows in it, and the rows (m,) that are landmarks."""

    space: Space
    embedding: FloatArray
    landmarks: IntArray
    components: IntArray | None = None

    @property
    def model(self) -> Model:
        return self.space.embedder.answers.model


def embedder_of(
    settings: Settings, between: FloatArray, shape: tuple[int, int], exponent: int, signed: bool = False
) -> Embedder:
    """The landmarks embedded by their dissimilarities (m, m), in units of 2^exponent, of data of some shape."""
    try:
        model = fitted_model(settings.choice(exponent, signed), between)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} (n_samples={shape[0]}, n_features={shape[1]})") from error
    lengths = METHODS[settings.method].coordinates_are_lengths
    wanted = "restricted" if settings.gives_restricted else "projection"
    return Embedder(weighted_answers(model, settings.diagonal_weight), wanted, exponent if lengths else 0)


class Distinct(NamedTuple):
    """Distinct rows as points (u, D) in units of 2^exponent; the first row (u,) of each, and each row's point (n,)."""

    points: AnyArray
    first_rows: IntArray
    node_of: IntArray
    exponent: int


def distinct_points(X: AnyArray) -> Distinct:
    """The rows of X, each counted once, scaled so that every square stays within range."""
    checks.require_not_too_small("X", X)
    exponent = int(np.frexp(np.abs(X).max())[1])
    first_rows, node_of, _ = collapse_duplicates(np.ldexp(X, -exponent))
    if len(first_rows) == 1:
        raise InvalidInputError(f"all {len(X)} rows of X are identical; there is nothing to embed.")
    return Distinct(np.ldexp(X[first_rows], -exponent), first_rows, node_of, exponent)


def in_unit(rows: AnyArray, exponent: int) -> FloatArray:
    """New rows (p, D) in units of 2^exponent, those of the training data, as far as that can be squared."""
    points = np.ldexp(rows.astype(np.float64), -exponent)
    if np.abs(points).max() > checks.LARGEST_SIZE:
        raise InvalidInputError(
            f"X reaches {np.abs(rows).max():g} in absolute value, beyond {checks.LARGEST_SIZE:g} times the "
            "training data; its squared distances would leave double precision: drop or rescale such rows."
        )
    return np.asarray(points)


def chunks(n_rows: int) -> Iterator[slice]:
    return (slice(first, first + ROWS_PER_CHUNK) for first in range(0, n_rows, ROWS_PER_CHUNK))


def require_square(X: AnyArray | csr_array) -> None:
    if X.shape[0] != X.shape[1]:
        raise InvalidInputError(
            f"X has shape {X.shape}; with metric='precomputed' it must be square, a row and a column for each point."
        )
