"""How well data comes back: each row from all others [M eq. 16].

A point that is left out has neighbors of its own, so it takes a system of its own: `leave_one_out` is `invert` at every
point, from its nearest others. Where all points are the nodes of one system, no refit is needed (Rippa): with G the
block of the system's inverse that belongs to the nodes, the row that the others predict for node i is off by
(G X)_i / G_ii. `shared_leave_one_out` has it from the factor M = U'U of inverse_systems: G = Pi M^-1 Pi.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve
from threadpoolctl import threadpool_limits

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.inverse.interpolant import CUBIC, Stencils, checked_length, finite_rows, stencils
from pipeline.numerics.inverse.kernels import Kernel
from pipeline.numerics.inverse.neighborhoods import N_NEIGHBORS, Room, other_nodes, room_for
from pipeline.numerics.inverse.systems import prepare
from pipeline.types import AnyArray, FloatArray, IntArray

# What is left of a node beside the polynomials, below which the others do not determine those without it.
LEAST_SHARE = 1e-8


@dataclass(frozen=True, eq=False)
class LeftOut:
    """errors (n,): Euclidean distances of rows from what others predict, NaN where there is no saying; sizes (n,) of
    the rows; what they were predicted by."""

    errors: FloatArray
    sizes: FloatArray
    stencils: Stencils

    @property
    def mean(self) -> float:
        """E_avg [M eq. 16], over the rows of which there is an error; NaN if there are none."""
        known = self.errors[np.isfinite(self.errors)]
        return float(known.mean()) if len(known) else np.nan

    @property
    def relative(self) -> FloatArray:
        """Errors as shares of the rows' sizes; the paper's rows are of size 1. A row of zeros keeps its error."""
        return self.errors / np.where(self.sizes > 0, self.sizes, 1.0)


def leave_one_out(
    points: ArrayLike,
    values: ArrayLike,
    n_neighbors: int = N_NEIGHBORS,
    kernel: Kernel = CUBIC,
    fill_distance: float | None = None,
) -> LeftOut:
    """What each row of data (n, D) is missed by, interpolated at its point (n, d) from the nearest others."""
    nodes, rows = _checked(points, values)
    found = stencils(nodes, nodes, other_nodes(nodes, n_neighbors), kernel, fill_distance, finite_rows(rows))
    errors, sizes = np.empty((2, len(rows)))
    _fill_errors(rows, found.combine(rows), errors, sizes)
    return LeftOut(errors, sizes, found)


def shared_leave_one_out(
    points: ArrayLike, values: ArrayLike, kernel: Kernel = CUBIC, fill_distance: float | None = None
) -> FloatArray:
    """Errors (n,) of rows (n, D), each predicted from all others, by a single factorization of n nodes.

    The kernel's scale stays that of all nodes together. Only of nodes without which the others do not determine the
    polynomial a new system is solved; one of several that coincide is predicted by the others' mean.
    """
    nodes, rows = (array.astype(np.float64, copy=False) for array in _checked(points, values))
    for name, array in (("points", nodes), ("values", rows)):
        checks.require_finite(name, array)
    if kernel.kind == "shepard":
        raise InvalidInputError("kind='shepard' solves no system that could be shared; use leave_one_out.")
    terms = kernel.terms(nodes.shape[1])
    room, everyone = room_for(len(nodes), nodes.shape[1], terms), np.arange(len(nodes))
    facts = prepare(nodes, everyone, kernel.radial(), terms, checked_length(fill_distance), room)
    n, basis = facts.n_nodes, room.basis[: facts.n_terms, : facts.n_nodes]
    errors, shares = _closed_form(rows, room, n, basis)
    needed = np.flatnonzero((room.nodes.counts[room.nodes.node_of] == 1) & (shares <= LEAST_SHARE))
    if len(needed) and len(nodes) > 1:
        others = np.array([np.delete(everyone, i) for i in needed])
        length = facts.length * facts.unit if np.isfinite(facts.length) else None
        predicted = stencils(nodes[needed], nodes, others, kernel, length).combine(rows)
        errors[needed] = np.sqrt(((rows[needed] - predicted) ** 2).sum(axis=1))
    return errors


def _closed_form(rows: FloatArray, room: Room, n: int, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Errors (n,) by Rippa's formula, and what is left of each node beside the polynomials; both of points."""
    node_of, counts = room.nodes.node_of, room.nodes.counts[:n]
    means = _means(rows, node_of, counts)
    # On one thread: the bytes of a product depend on how many threads share it.
    with threadpool_limits(1, "blas"):
        projector = np.eye(n) - basis.T @ basis
        inverse = projector @ cho_solve((room.factor[:n, :n], False), projector, check_finite=False)
        with np.errstate(divide="ignore", invalid="ignore"):
            missed = inverse @ means / inverse.diagonal()[:, None]
    several = counts[node_of] > 1
    # Of m that coincide one is off the mean of all by (m - 1) / m of what it is off that of the others.
    factors = counts[node_of] / np.maximum(counts[node_of] - 1, 1)
    off = np.where(several[:, None], (rows - means[node_of]) * factors[:, None], missed[node_of])
    return np.sqrt((off**2).sum(axis=1)), projector.diagonal()[node_of]


def _means(rows: FloatArray, node_of: IntArray, counts: IntArray) -> FloatArray:
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, node_of, rows)
    return np.asarray(sums / counts[:, None])


@compiled
def _fill_errors(rows: AnyArray, predicted: AnyArray, errors: AnyArray, sizes: AnyArray) -> None:
    for i in range(len(rows)):
        missed, size = 0.0, 0.0
        for c in range(rows.shape[1]):
            value = np.float64(rows[i, c])
            missed += (value - predicted[i, c]) ** 2
            size += value * value
        errors[i], sizes[i] = np.sqrt(missed), np.sqrt(size)


def _checked(points: ArrayLike, values: ArrayLike) -> tuple[AnyArray, AnyArray]:
    nodes, rows = (checks.real_array(name, given, 2) for name, given in (("points", points), ("values", values)))
    if len(rows) != len(nodes):
        raise InvalidInputError(f"values has {len(rows)} rows and points {len(nodes)}; give one for each.")
    return nodes, rows
