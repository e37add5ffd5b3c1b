"""One undirected graph out of edges as users list them: once or from both ends, some of them several times.

A zero weight is an edge of no length, not a missing one; nothing here adds or compares sparse matrices, which would
drop it.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.graph import graph_from_edges
from pipeline.types import AnyArray, FloatArray, IntArray

# Up to so many nodes a pair of them is one 64-bit integer.
MOST_NODES = 3_037_000_499


class Edges(NamedTuple):
    """starts (e,), ends (e,) and weights (e,) of edges."""

    starts: IntArray
    ends: IntArray
    weights: FloatArray


def undirected_graph(name: str, n_nodes: int, edges: Edges) -> csr_array:
    """Symmetric CSR graph (n, n) in double precision.

    Loops are dropped and of an edge listed several times the shortest is kept, but the two directions of an edge must
    have the same length, up to rounding.
    """
    _refuse_bad_weights(name, edges)
    proper = edges.starts != edges.ends
    if not proper.any():
        raise InvalidInputError(f"{name} has no edges between different nodes; at least one is needed.")
    lows, highs, weights = _merged(name, n_nodes, Edges(*(values[proper] for values in edges)))
    return graph_from_edges(n_nodes, lows, highs, weights)


def node_numbers(name: str, values: AnyArray, n_nodes: int) -> IntArray:
    """Whole numbers (e, ...) as nodes, if all are."""
    wrong = (values < 0) | (values >= n_nodes)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise InvalidInputError(
            f"{name} has {values[place]} in place {place[0]}; nodes are numbered from 0 to {n_nodes - 1}: subtract 1 "
            "if yours begin with 1."
        )
    return values.astype(np.int64)


def require_whole_numbers(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iu":
        raise InvalidInputError(f"{name} has dtype {dtype}; it must hold whole numbers: save astype(int).")


def edge_weights(name: str, values: AnyArray) -> FloatArray:
    """Real numbers as weights in double precision; True is an edge of length 1."""
    if values.dtype.kind == "b" and not values.all():
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(~values)} entries False, the first in place {int(np.argmin(values))}; True "
            "stands for an edge, and what is no edge must not be listed: leave those out (eliminate_zeros in scipy)."
        )
    return values.astype(np.float64)


def _refuse_bad_weights(name: str, edges: Edges) -> None:
    # Written so that NaN fails it too.
    bad = ~(edges.weights >= 0) | np.isinf(edges.weights)
    if bad.any():
        first = int(np.argmax(bad))
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(bad)} weights that are negative, NaN or infinite, the first "
            f"{edges.weights[first]:g} from node {edges.starts[first]} to {edges.ends[first]} (entry {first}); lengths "
            "must be finite and at least 0: leave out what is no edge."
        )


def _merged(name: str, n_nodes: int, edges: Edges) -> Edges:
    """Each pair of nodes once, the lower first."""
    lows, highs = np.minimum(edges.starts, edges.ends), np.maximum(edges.starts, edges.ends)
    pairs = lows * np.int64(n_nodes) + highs
    order = np.argsort(pairs, kind="stable")
    begins = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    rises = edges.starts < edges.ends
    rising = np.minimum.reduceat(np.where(rises, edges.weights, np.inf)[order], begins)
    falling = np.minimum.reduceat(np.where(rises, np.inf, edges.weights)[order], begins)
    chosen = order[begins]
    _refuse_two_lengths(name, lows[chosen], highs[chosen], rising, falling)
    return Edges(lows[chosen], highs[chosen], np.minimum(rising, falling))


def _refuse_two_lengths(name: str, lows: IntArray, highs: IntArray, rising: FloatArray, falling: FloatArray) -> None:
    both = np.flatnonzero(np.isfinite(rising) & np.isfinite(falling))
    if not len(both):
        return
    upward, downward = rising[both], falling[both]
    longest = np.maximum(upward, downward)
    difference = np.abs(upward - downward)
    difference[difference <= checks.SYMMETRY_TOLERANCE * longest + checks.ROUNDING_FLOOR * longest.max()] = 0
    worst = int(np.argmax(difference))
    if difference[worst]:
        low, high = lows[both[worst]], highs[both[worst]]
        raise InvalidInputError(
            f"{name} is not symmetric: {upward[worst]:g} from node {low} to {high} against {downward[worst]:g} from "
            f"{high} to {low}, the largest difference ({difference[worst]:g}) of {np.count_nonzero(difference)} edges; "
            "an undirected graph is needed: list each edge once, or with the same length both ways."
        )
