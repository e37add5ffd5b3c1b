"""The ways in which a file lists the edges of a graph: pairs of nodes, coordinates, or compressed rows or columns."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.sources.graph_edges import node_numbers, require_whole_numbers
from pipeline.sources.matrices import Rows
from pipeline.sources.named_arrays import ArrayPlace
from pipeline.types import AnyArray, IntArray, Json


class Layout(Protocol):
    """`n_edges` entries, each from one node to another; `n_nodes` if the layout itself says how many there are."""

    weight_names: tuple[str, ...]
    n_edges: int
    n_nodes: int | None

    def highest_node(self) -> int:
        """The highest number of a node that is listed, -1 if there is none; this reads them all."""
        ...

    def starts_and_ends(self, n_nodes: int) -> tuple[IntArray, IntArray]: ...

    def fingerprint(self) -> Json: ...


class PairLayout:
    """The array `edges` (e, 2)."""

    weight_names: tuple[str, ...] = ("w", "weights")
    n_nodes: int | None = None

    def __init__(self, places: Mapping[str, ArrayPlace]) -> None:
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

    def starts_and_ends(self, n_nodes: int) -> tuple[IntArray, IntArray]:
        pairs = node_numbers(self._edges.name, self._pairs(), n_nodes)
        return pairs[:, 0], pairs[:, 1]

    def fingerprint(self) -> Json:
        return {"edges": self._edges.fingerprint()}

    def _pairs(self) -> AnyArray:
        return self._edges.pick(slice(0, self.n_edges), slice(0, 2))


class CoordinateLayout:
    """The arrays `row` (e,) and `col` (e,)."""

    weight_names: tuple[str, ...] = ("data",)
    n_nodes: int | None = None

    def __init__(self, places: Mapping[str, ArrayPlace]) -> None:
        self._rows, self._columns = (_whole_numbers(places[name]) for name in ("row", "col"))
        self.n_edges = self._rows.shape[0]
        require_length(self._columns, self.n_edges, self._rows.name)

    def highest_node(self) -> int:
        return max(int(whole(numbers).max(initial=-1)) for numbers in (self._rows, self._columns))

    def starts_and_ends(self, n_nodes: int) -> tuple[IntArray, IntArray]:
        starts = node_numbers(self._rows.name, whole(self._rows), n_nodes)
        return starts, node_numbers(self._columns.name, whole(self._columns), n_nodes)

    def fingerprint(self) -> Json:
        return {"row": self._rows.fingerprint(), "col": self._columns.fingerprint()}


class CompressedLayout:
    """The arrays `indptr` (n + 1,), where the entries of each row or column begin, and `indices` (e,)."""

    weight_names: tuple[str, ...] = ("data",)

    def __init__(self, places: Mapping[str, ArrayPlace]) -> None:
        self._offsets, self._indices = (_whole_numbers(places[name]) for name in ("indptr", "indices"))
        self.n_nodes: int | None = self._offsets.shape[0] - 1
        self.n_edges = self._indices.shape[0]

    def highest_node(self) -> int:
        return int(whole(self._indices).max(initial=-1))

    def starts_and_ends(self, n_nodes: int) -> tuple[IntArray, IntArray]:
        # Unsigned numbers would not fall.
        offsets = whole(self._offsets).astype(np.int64)
        if offsets[0] != 0 or offsets[-1] != self.n_edges or (np.diff(offsets) < 0).any():
            raise InvalidInputError(
                f"{self._offsets.name} is damaged: it must rise from 0 to {self.n_edges}, the length of indices."
            )
        starts = np.repeat(np.arange(n_nodes), np.diff(offsets))
        return starts, node_numbers(self._indices.name, whole(self._indices), n_nodes)

    def fingerprint(self) -> Json:
        return {"indptr": self._offsets.fingerprint(), "indices": self._indices.fingerprint()}


def list_of_numbers(place: ArrayPlace) -> Rows:
    """An array of one dimension, of real numbers."""
    rows = place.rows()
    if rows.dtype.kind not in "fiub":
        raise InvalidInputError(f"{rows.name} has dtype {rows.dtype}; it must hold real numbers.")
    if len(rows.shape) != 1:
        raise InvalidInputError(f"{rows.name} has shape {rows.shape}; it must have 1 dimension.")
    return rows


def require_length(rows: Rows, n_edges: int, beside: str) -> None:
    if rows.shape[0] != n_edges:
        raise InvalidInputError(
            f"{rows.name} has {rows.shape[0]} entries and {beside} has {n_edges}; they must be as many."
        )


def whole(rows: Rows) -> AnyArray:
    return rows.read(0, rows.shape[0])


def _whole_numbers(place: ArrayPlace) -> Rows:
    rows = list_of_numbers(place)
    require_whole_numbers(rows.name, rows.dtype)
    return rows
