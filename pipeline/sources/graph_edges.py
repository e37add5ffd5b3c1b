"""Edges in the layouts that files list them in, made one undirected graph.

A zero that is stored is an edge of no length, not a missing one; nothing here adds or compares sparse matrices, which
would drop it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.geodesics.graph import graph_from_edges
from pipeline.sources.arrays import Rows
from pipeline.sources.opening import ArrayPlace
from pipeline.types import AnyArray, FloatArray, IntArray, Json, SparseArray

# Up to so many nodes a pair of them is one 64-bit integer.
MOST_NODES = 3_037_000_499
Places: TypeAlias = Mapping[str, ArrayPlace]


class Edges(NamedTuple):
    """starts (e,), ends (e,) and weights (e,) of edges."""

    starts: IntArray
    ends: IntArray
    weights: FloatArray


class PairLayout:
    """The array `edges` (e, 2)."""

    arrays = ("edges",)
    weight_names: tuple[str, ...] = ("w", "weights")
    n_nodes: int | None = None

    def __init__(self, places: Places) -> None:
        # As a matrix: pairs are often stored column by column.
        self._edges = places["edges"].matrix()
        self.n_edges = self._edges.shape[0] if self._edges.shape else 0
        if len(self._edges.shape) != 2 or self._edges.shape[1] != 2:
            raise InvalidInputError(
                f"{self._edges.name} has shape {self._edges.shape}; edges must have shape (e, 2), two nodes for each: "
                "weights belong into an array of their own, w."
            )
        require_whole_numbers(self._edges.name, self._edges.dtype)

    def highest_node(self) -> int:
        return int(self._pairs().max(initial=-1))

    def starts_and_ends(self, n_starts: int, n_ends: int) -> tuple[IntArray, IntArray]:
        pairs = _node_numbers(self._edges.name, self._pairs(), n_starts)
        return pairs[:, 0], pairs[:, 1]

    def fingerprint(self) -> Json:
        return {"edges": self._edges.fingerprint()}

    def _pairs(self) -> AnyArray:
        return self._edges.pick(slice(0, self.n_edges), slice(0, 2))


class SparseLayout(ABC):
    """The layouts of sparse matrices: two arrays of whole numbers, the second with an entry for each edge."""

    arrays: ClassVar[tuple[str, str]]
    weight_names: tuple[str, ...] = ("data",)
    n_nodes: int | None = None

    def __init__(self, places: Places) -> None:
        self._first, self._second = (places[name].numbers() for name in self.arrays)
        for rows in (self._first, self._second):
            require_whole_numbers(rows.name, rows.dtype)
        self.n_edges = self._second.shape[0]

    def highest_node(self) -> int:
        return int(whole(self._second).max(initial=-1))

    @abstractmethod
    def starts_and_ends(self, n_starts: int, n_ends: int) -> tuple[IntArray, IntArray]: ...

    def fingerprint(self) -> Json:
        return dict(zip(self.arrays, (self._first.fingerprint(), self._second.fingerprint()), strict=True))


class CoordinateLayout(SparseLayout):
    """The arrays `row` (e,) and `col` (e,)."""

    arrays = ("row", "col")

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        require_length(self._second, self._first.shape[0], self._first.name)

    def highest_node(self) -> int:
        return max(int(whole(self._first).max(initial=-1)), super().highest_node())

    def starts_and_ends(self, n_starts: int, n_ends: int) -> tuple[IntArray, IntArray]:
        starts = _node_numbers(self._first.name, whole(self._first), n_starts)
        return starts, _node_numbers(self._second.name, whole(self._second), n_ends)


class CompressedLayout(SparseLayout):
    """The arrays `indptr` (n + 1,), where the entries of each row or column begin, and `indices` (e,)."""

    arrays = ("indptr", "indices")

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self.n_nodes = self._first.shape[0] - 1

    def starts_and_ends(self, n_starts: int, n_ends: int) -> tuple[IntArray, IntArray]:
        # Unsigned numbers would not fall.
        offsets = whole(self._first).astype(np.int64)
        is_whole = len(offsets) == n_starts + 1 and offsets[0] == 0 and offsets[-1] == self.n_edges
        if not is_whole or (np.diff(offsets) < 0).any():
            raise InvalidInputError(
                f"{self._first.name} is damaged: it must rise from 0 to {self.n_edges}, the length of indices, in "
                f"{n_starts + 1} entries."
            )
        starts = np.repeat(np.arange(n_starts), np.diff(offsets))
        return starts, _node_numbers(self._second.name, whole(self._second), n_ends)


def _node_numbers(name: str, values: AnyArray, n_nodes: int) -> IntArray:
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


def edge_weights(rows: Rows) -> FloatArray:
    """Real numbers as weights in double precision; True is an edge of length 1."""
    values = whole(rows)
    if values.dtype.kind == "b" and not values.all():
        raise InvalidInputError(
            f"{rows.name} has {np.count_nonzero(~values)} entries False, the first in place {int(np.argmin(values))}; "
            "True stands for an edge, and what is no edge must not be listed: leave those out (eliminate_zeros in "
            "scipy)."
        )
    return values.astype(np.float64)


def require_length(rows: Rows, n_edges: int, beside: str) -> None:
    if rows.shape[0] != n_edges:
        raise InvalidInputError(
            f"{rows.name} has {rows.shape[0]} entries and {beside} has {n_edges}; they must be as many."
        )


def whole(rows: Rows) -> AnyArray:
    return rows.read(0, rows.shape[0])


def refuse_bad_weights(name: str, edges: Edges, weights: str = "weights", start: str = "node") -> None:
    # Written so that NaN fails it too.
    bad = ~(edges.weights >= 0) | np.isinf(edges.weights)
    if bad.any():
        first = int(np.argmax(bad))
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(bad)} {weights} that are negative, NaN or infinite, the first "
            f"{edges.weights[first]:g} from {start} {edges.starts[first]} to {edges.ends[first]} (entry {first}); "
            "lengths must be finite and at least 0: leave out what is no edge."
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


def undirected_graph(name: str, n_nodes: int, edges: Edges) -> SparseArray:
    """Symmetric CSR graph (n, n) in double precision, without loops.

    Of an edge listed several times the shortest is kept, but both directions must have the same length up to rounding.
    """
    proper = edges.starts != edges.ends
    if not proper.any():
        raise InvalidInputError(f"{name} has no edges between different nodes; at least one is needed.")
    lows, highs, weights = _merged(name, n_nodes, Edges(*(values[proper] for values in edges)))
    return graph_from_edges(n_nodes, lows, highs, weights)
