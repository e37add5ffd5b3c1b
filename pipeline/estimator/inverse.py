"""From coordinates in an embedding back to data: values, and how far each row is from what the others make of it."""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InexactWarning, InvalidInputError, OutsideWarning
from pipeline.estimator.table import Table
from pipeline.methods import RADIAL_FUNCTIONS
from pipeline.numerics import checks
from pipeline.numerics.geodesics.graph import collapse_duplicates
from pipeline.numerics.inverse import interpolant
from pipeline.numerics.inverse.interpolant import MOST_ROWS_OF_NODE, Inverted, Stencils
from pipeline.numerics.inverse.neighborhood import NOBODY, Kernel
from pipeline.numerics.inverse.systems import ILL_CONDITIONED, MERGED, REGULARIZED, UNDEFINED
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

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
# Numbers of a block of queries, in weights or values: 32 MB.
BLOCK_ENTRIES = 1 << 22
MOST_NEIGHBORS = 5000


@dataclass(frozen=True)
class Interpolation:
    """A radial function of RADIAL_FUNCTIONS, its scale if it has one, and how many embedded points it is used on."""

    kernel: str = "cubic"
    scale: float | None = None
    n_neighbors: int = interpolant.N_NEIGHBORS

    def radial(self, n_components: int) -> Kernel:
        """The function; refused if it is not known, or has too large a polynomial."""
        kind, power = RADIAL_FUNCTIONS[checks.one_of("kernel", self.kernel, RADIAL_FUNCTIONS)]
        if self.scale is not None and power is not None:
            raise InvalidInputError(
                f"scale={self.scale} means nothing to kernel={self.kernel!r}; leave it out, or use 'gaussian' or "
                "'shepard'."
            )
        why = "embedded points to interpolate between"
        checks.integer_in_range("n_neighbors", self.n_neighbors, 1, MOST_NEIGHBORS, why)
        radial = Kernel(kind, power, 1.0 if self.scale is None else self.scale)
        radial.terms(n_components)
        return radial


@dataclass(frozen=True, eq=False)
class Embedded:
    """Coordinates (n, d) of rows (n, D). As on disk, rows that are embedded in the same place are one node of the
    interpolant, with the mean of their rows."""

    embedding: FloatArray
    rows: AnyArray

    @cached_property
    def which(self) -> IntArray:
        """The rows (e,) that are embedded."""
        return np.flatnonzero(interpolant.usable_points(self.embedding))

    @cached_property
    def _distinct(self) -> tuple[IntArray, IntArray]:
        found = collapse_duplicates(self.embedding[self.which])
        return self.which[found.first_rows], found.node_of

    @property
    def firsts(self) -> IntArray:
        """The first row of each node (u,)."""
        return self._distinct[0]

    @property
    def node_of(self) -> IntArray:
        """The node of each embedded row (e,)."""
        return self._distinct[1]

    @cached_property
    def points(self) -> FloatArray:
        """The places (u, d) of the nodes."""
        return np.ascontiguousarray(self.embedding[self.firsts])

    @property
    def repeats(self) -> bool:
        return len(self.firsts) < len(self.which)

    def at(self, places: FloatArray, told: Interpolation) -> Inverted:
        """Data at places (q, d)."""
        kernel, parts = told.radial(self.points.shape[1]), []
        for block in self.blocks(np.arange(len(places)), told):
            near = interpolant.nearest_nodes(self.points, places[block], told.n_neighbors)
            parts.append(self._values(interpolant.stencils(places[block], self.points, near, kernel)))
        columns = zip(*(part.stencils for part in parts), strict=True)
        return Inverted(np.concatenate([part.values for part in parts]), Stencils(*map(np.concatenate, columns)))

    def without_own(self, nodes: IntArray, told: Interpolation) -> tuple[Inverted, FloatArray]:
        """Data at some nodes (b,) as the others make it: a node that is one row leaves its place. And by what share
        (b,) of a row's deviation from the mean of several the data moves if that row is left out of the mean."""
        near = interpolant.nearest_nodes(self.points, self.points[nodes], told.n_neighbors + 1)
        sizes = self._sizes[nodes]
        near[sizes == 1, 0] = NOBODY
        found = interpolant.stencils(self.points[nodes], self.points, near, told.radial(self.points.shape[1]))
        # With m in the mean, it is off by 1 / (m - 1) of what the row is off it.
        return self._values(found), found.weights[:, 0] / np.maximum(sizes - 1, 1)

    def blocks(self, queries: IntArray, told: Interpolation) -> list[IntArray]:
        """Queries in blocks, of which weights and values fit in memory."""
        step = max(1, BLOCK_ENTRIES // max(told.n_neighbors + 1, self.rows.shape[1]))
        return [queries[first : first + step] for first in range(0, len(queries), step)]

    def _values(self, found: Stencils) -> Inverted:
        near = found.neighborhoods
        if not self.repeats:
            # Rows are combined where they stand. The last of the numbers is that of NOBODY.
            rows = np.append(self.firsts, NOBODY)[near]
            return Inverted(found._replace(neighborhoods=rows).combine(self.rows), found)
        needed = np.unique(near[near != NOBODY])
        local = np.where(near == NOBODY, NOBODY, np.searchsorted(needed, near))
        made = found._replace(neighborhoods=local).of_means(*self.means(needed))
        return Inverted(made.values, made.stencils._replace(neighborhoods=near))

    def means(self, nodes: IntArray) -> tuple[FloatArray, BoolArray]:
        """The mean row (u, D) of some nodes, rising, and whether the rows of each differ (u,)."""
        members = np.flatnonzero(np.isin(self.node_of, nodes))
        members = members[np.argsort(self.node_of[members], kind="stable")]
        return interpolant.mean_rows(self.rows[self.which[members]], np.searchsorted(nodes, self.node_of[members]))

    @cached_property
    def _sizes(self) -> IntArray:
        """How many rows make the mean of each node (u,)."""
        return np.minimum(np.bincount(self.node_of), MOST_ROWS_OF_NODE)

    @cached_property
    def in_mean(self) -> BoolArray:
        """Which of the embedded rows (e,) are among those that make the mean of their node."""
        order = np.argsort(self.node_of, kind="stable")
        chosen = np.empty(len(order), np.bool_)
        chosen[order] = interpolant.ranks_within(self.node_of[order]) < MOST_ROWS_OF_NODE
        return chosen


class LeftOut:
    """How far some rows are from what the others make of them [M eq. 16], and as a share of their size; NaN for those
    that are not embedded. Of several rows in one place each is left out of their mean; one that is alone leaves its
    place."""

    def __init__(self, embedded: Embedded, asked: IntArray, told: Interpolation) -> None:
        self._embedded, self._asked, self._told = embedded, asked, told
        names = ("error", "relative_error", "distance", "remoteness")
        self._columns: dict[str, AnyArray] = {name: np.full(len(asked), np.nan) for name in names}
        self._columns["flags"] = np.zeros(len(asked), np.uint8)
        self._measure()

    def table(self, outside: float) -> Table:
        return Table(self._columns | {"outside": self._columns["remoteness"] > outside})

    def _measure(self) -> None:
        """Rows in the same place share a query."""
        embedded = self._embedded
        places = np.full(len(embedded.embedding), NOBODY)
        places[embedded.which] = np.arange(len(embedded.which))
        known = np.flatnonzero(places[self._asked] != NOBODY)
        members = places[self._asked[known]]
        for nodes in embedded.blocks(np.unique(embedded.node_of[members]), self._told):
            here = np.flatnonzero(np.isin(embedded.node_of[members], nodes))
            self._measure_block(nodes, known[here], members[here])

    def _measure_block(self, nodes: IntArray, rows: IntArray, members: IntArray) -> None:
        """Rows by their places among those asked for, and their places among the embedded ones."""
        embedded, columns = self._embedded, self._columns
        made, weights = embedded.without_own(nodes, self._told)
        queries = np.searchsorted(nodes, embedded.node_of[members])
        values = embedded.rows[self._asked[rows]].astype(np.float64)
        predicted = made.values[queries]
        if embedded.repeats:
            shares = np.where(embedded.in_mean[members], weights[queries], 0.0)
            predicted += shares[:, None] * (embedded.means(nodes)[0][queries] - values)
        sizes = np.sqrt((values**2).sum(axis=1))
        columns["error"][rows] = np.sqrt(((values - predicted) ** 2).sum(axis=1))
        columns["relative_error"][rows] = columns["error"][rows] / np.where(sizes > 0, sizes, 1.0)
        for name in ("distance", "remoteness", "flags"):
            columns[name][rows] = getattr(made.stencils, name)[queries]


def inverted(coordinates: ArrayLike, embedded: Embedded, told: Interpolation) -> Inverted:
    """Data at coordinates (p, d)."""
    places = checks.real_array("X", coordinates, 2)
    if places.shape[1] != embedded.embedding.shape[1]:
        raise InvalidInputError(
            f"X has {places.shape[1]} columns; the embedding has {embedded.embedding.shape[1]} coordinates: give those."
        )
    return embedded.at(places, told)


def data_at(coordinates: ArrayLike, embedded: Embedded, told: Interpolation) -> FloatArray:
    """Rows (p, D) of data at coordinates (p, d), with warnings of those that are not simply interpolated."""
    found = inverted(coordinates, embedded, told)
    _warn_of_outside(found.stencils)
    _warn_of_inexact(found.stencils)
    return found.values


def table_at(coordinates: ArrayLike, embedded: Embedded, told: Interpolation, outside: float) -> Table:
    """The same without warnings, with what is known of every place."""
    found = inverted(coordinates, embedded, told)
    known = {name: getattr(found.stencils, name) for name in ("distance", "remoteness", "flags")}
    return Table({"values": found.values, **known, "outside": found.stencils.remoteness > outside})


def table_left_out(rows: ArrayLike | None, embedded: Embedded, told: Interpolation, outside: float) -> Table:
    """Leave-one-out errors of some rows of the training data, or of all."""
    n_rows = len(embedded.embedding)
    asked = np.arange(n_rows) if rows is None else checks.row_indices("rows", rows, n_rows)
    return LeftOut(embedded, asked, told).table(outside)


def _warn_of_outside(found: Stencils) -> None:
    """Undefined places, NaN or beyond anything that can be computed with, are outside too: their remoteness is NaN."""
    outside = np.flatnonzero(~(found.remoteness <= OUTSIDE))
    if not len(outside):
        return
    n_undefined = int(np.count_nonzero(found.flags & UNDEFINED))
    words = []
    if n_undefined:
        words.append(f"data of {n_undefined} is NaN, for they are not finite or too far away to compute with")
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
