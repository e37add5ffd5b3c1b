"""What one neighborhood's system takes in memory, made once and used for neighborhood after neighborhood."""

from typing import NamedTuple

import numpy as np

from pipeline.numerics.inverse_kernels import Terms
from pipeline.numerics.inverse_nodes import Nodes, room_for_nodes
from pipeline.types import FloatArray, IntArray


class Room(NamedTuple):
    """What one neighborhood takes, up to k nodes with up to r polynomials of c terms; see the table in inverse_systems.

    triangle (r, r) and sources (r,) say how polynomials were made of monomials; turned (d, k) are the nodes'
    coordinates along the directions (d, d) in which they spread. whole (k + r, k + r), its rows (k + r,), right side
    and solution are those of the whole system, where that is solved as it stands: memory that is not touched otherwise.
    The last five are those of one query.
    """

    nodes: Nodes
    directions: FloatArray
    turned: FloatArray
    monomials: FloatArray
    sources: IntArray
    triangle: FloatArray
    basis: FloatArray
    crossed: FloatArray
    images: FloatArray
    matrix: FloatArray
    factor: FloatArray
    whole: FloatArray
    whole_rows: IntArray
    right_side: FloatArray
    solution: FloatArray
    place: FloatArray
    terms: FloatArray
    fixed: FloatArray
    weights: FloatArray
    spare: FloatArray


class Facts(NamedTuple):
    """Of one neighborhood: distinct nodes, polynomials kept, size; the fill distance, and the length that the kernel
    goes by, in units of the size; tau, condition, flags; rounding: what is left in weights of the rounding of a right
    side of size 1; whether the whole system is solved."""

    n_nodes: int
    n_terms: int
    unit: float
    fill_distance: float
    length: float
    tau: float
    condition: float
    flags: int
    rounding: float
    is_whole: bool


def room_for(k: int, d: int, terms: Terms) -> Room:
    c = len(terms.parents)
    r = min(k, c)
    return Room(
        nodes=room_for_nodes(k, d),
        directions=np.empty((d, d)),
        turned=np.empty((d, k)),
        monomials=np.empty((c, k)),
        sources=np.empty(r, dtype=np.int64),
        triangle=np.empty((r, r)),
        basis=np.empty((r, k)),
        crossed=np.empty((r, r)),
        images=np.empty((r, k)),
        matrix=np.empty((k, k)),
        factor=np.empty((k, k)),
        whole=np.empty((k + r, k + r)),
        whole_rows=np.empty(k + r, dtype=np.int64),
        right_side=np.empty(k + r),
        solution=np.empty(k + r),
        place=np.empty(d),
        terms=np.empty(c),
        fixed=np.empty(r),
        weights=np.empty(k),
        spare=np.empty(k),
    )
