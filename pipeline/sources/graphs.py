"""Nodes that are new to a graph of the user's: a sparse matrix of new nodes x fitted nodes, the lengths of their edges.

It is what scipy.sparse.save_npz writes of one, in compressed rows, compressed columns or coordinates, or a Zarr group
with the same arrays. A zero that is stored is an edge of no length, not a missing one.

A graph of the user's own, whose weights are lengths: undirected, read from a .npz file or a Zarr group.

It is opened without reading its edges, if the number of nodes is noted with them. Loaded it is held in memory as a
whole: 16 bytes for each direction of an edge, and while it is loaded about 100 bytes for each edge listed.

| layout | arrays | number of nodes |
|---|---|---|
| compressed rows or columns | `indptr`, `indices`, `data` | one less than the entries of `indptr` |
| coordinates | `row`, `col`, `data` | `shape` |
| pairs | `edges` (e, 2), weights in `w` or `weights` | `n_nodes`, `shape`, the length of `xy`, `nodes` and the like |

The first two are what scipy.sparse.save_npz writes; rows or columns makes no difference to an undirected graph. Without
weights every edge has length 1; where nothing notes the number of nodes, the highest listed is the last.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.sources.arrays import Rows
from pipeline.sources.graph_edges import (
    MOST_NODES,
    CompressedLayout,
    CoordinateLayout,
    Edges,
    Layout,
    PairLayout,
    edge_weights,
    list_of_numbers,
    node_numbers,
    require_length,
    require_whole_numbers,
    undirected_graph,
    whole,
)
from pipeline.sources.opening import ArrayPlace, Url, holds_several, local_path, places_in, readable
from pipeline.types import IntArray, Json

SPARSE_FORMATS = ("csr", "csc", "coo")
# Arrays with an entry for each node, the first of which that is there tells how many there are.
NODE_ARRAYS = ("nodes", "xy", "xyz", "X", "points", "positions", "coordinates", "labels", "names")
REMEDY = (
    "use what scipy.sparse.save_npz writes, or a .npz file or Zarr group with the arrays indptr, indices and data, or "
    "row, col and data, or edges (e, 2) and optionally w"
)


def open_graph(url: Url, key: str | None = None) -> "GraphSource":
    """The graph in a .npz file or a Zarr group.

    key: the array of edges if it is not called `edges`, or the group of a Zarr group in which the arrays are.
    """
    path = local_path(os.fspath(url))
    with readable(path):
        if not holds_several(path):
            raise InvalidInputError(f"source {path} holds no graph; {REMEDY}.")
        return GraphSource(path, key)


class GraphSource:
    """A graph on disk. `n_edges` counts edges as they are listed: those listed from both ends count twice."""

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.name = str(path) if key is None else f"{path}[{key}]"
        self._path = path
        places, attributes = _arrays_and_attributes(path, key)
        self._layout = _layout(self.name, places)
        self._weights = _weights(self.name, places, self._layout.weight_names)
        self.n_edges = self._layout.n_edges
        if self._weights is not None:
            require_length(self._weights, self.n_edges, f"the list of edges of {self.name}")
        self.n_nodes = self._checked_nodes(_noted_nodes(self.name, places, attributes))

    def load(self) -> csr_array:
        """The graph (n, n) with each edge in both directions, weights in double precision, without loops.

        An edge of weight 0 is stored as such. Of an edge that is listed several times the shortest is kept.
        """
        with readable(self._path):
            starts, ends = self._layout.starts_and_ends(self.n_nodes)
            weights = np.ones(self.n_edges)
            if self._weights is not None:
                weights = edge_weights(self._weights.name, whole(self._weights))
        return undirected_graph(self.name, self.n_nodes, Edges(starts, ends, weights))

    def fingerprint(self) -> Json:
        """Something cheap that changes when the graph may have changed."""
        weights = None if self._weights is None else self._weights.fingerprint()
        return {"kind": "graph", "n_nodes": self.n_nodes, "edges": self._layout.fingerprint(), "weights": weights}

    def _checked_nodes(self, noted: int | None) -> int:
        stored = self._layout.n_nodes
        if None not in (stored, noted) and stored != noted:
            raise InvalidInputError(f"{self.name} notes {noted} nodes, but its indptr is for {stored}; mend either.")
        n_nodes = noted if stored is None else stored
        if n_nodes is None:
            n_nodes = self._layout.highest_node() + 1
        if not 1 <= n_nodes <= MOST_NODES:
            raise InvalidInputError(
                f"{self.name} has {n_nodes} nodes; there must be from 1 to {MOST_NODES}, numbered from 0 on."
            )
        return n_nodes


def digest_of_graph(graph: csr_array) -> str:
    """What names the content of a loaded graph."""
    digest = hashlib.sha256(repr(graph.shape).encode())
    for values, dtype in ((graph.indptr, np.int64), (graph.indices, np.int64), (graph.data, np.float64)):
        digest.update(np.ascontiguousarray(values, dtype).data)
    return digest.hexdigest()


def _arrays_and_attributes(path: Path, key: str | None) -> tuple[dict[str, ArrayPlace], Json]:
    """The arrays that `key` chooses, by the names that layouts have for them, and what is noted about them."""
    places = places_in(path)
    below = {name.removeprefix(f"{key}/"): place for name, place in places.items() if name.startswith(f"{key}/")}
    if key is None or below:
        return (below or places), _attributes(path / (key or ""))
    if key in places:
        others = {name: place for name, place in places.items() if name not in ("indptr", "row")}
        return {**others, "edges": places[key]}, _attributes(path)
    raise InvalidInputError(f"key={key!r} is not in {path}; it holds {', '.join(map(repr, places)) or 'nothing'}.")


def _attributes(path: Path) -> Json:
    if not path.is_dir():
        return {}
    from pipeline.store.foreign import group_attributes

    return group_attributes(path)


def _layout(name: str, places: Mapping[str, ArrayPlace]) -> Layout:
    _refuse_other_formats(name, places)
    if {"indptr", "indices"} <= places.keys():
        return CompressedLayout(places)
    if {"row", "col"} <= places.keys():
        return CoordinateLayout(places)
    if "edges" in places:
        return PairLayout(places)
    listed = ", ".join(map(repr, places)) or "nothing"
    raise InvalidInputError(f"{name} holds {listed}, which is no graph; {REMEDY}.")


def _refuse_other_formats(name: str, places: Mapping[str, ArrayPlace]) -> None:
    rows = places["format"].rows() if "format" in places else None
    if rows is None or rows.dtype.kind not in "US":
        return
    saved = str(rows.read(0, 1).astype(str).ravel()[0])
    if saved not in SPARSE_FORMATS:
        raise InvalidInputError(
            f"{name} is a sparse matrix in format {saved!r}; {', '.join(SPARSE_FORMATS)} are read: save its tocsr()."
        )


def _weights(name: str, places: Mapping[str, ArrayPlace], candidates: tuple[str, ...]) -> Rows | None:
    found = [candidate for candidate in candidates if candidate in places]
    if len(found) > 1:
        raise InvalidInputError(f"{name} holds both {' and '.join(found)}; leave out one of them.")
    return list_of_numbers(places[found[0]]) if found else None


def _noted_nodes(name: str, places: Mapping[str, ArrayPlace], attributes: Json) -> int | None:
    for noted in ("n_nodes", "shape"):
        if noted in attributes:
            return _single_number(name, noted, attributes[noted])
        if noted in places:
            rows = places[noted].rows()
            require_whole_numbers(rows.name, rows.dtype)
            return _single_number(name, noted, rows.read(0, rows.shape[0] if rows.shape else 1).tolist())
    for noted in NODE_ARRAYS:
        if noted in places:
            shape = places[noted].matrix().shape
            return shape[0] if shape else None
    return None


def _single_number(name: str, noted: str, value: Any) -> int:
    """The number of nodes in a note of it, or of the shape of a square matrix."""
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) not in (1, 2) or not all(type(number) is int for number in numbers) or len(set(numbers)) != 1:
        raise InvalidInputError(
            f"{noted} of {name} is {value}; it must be the number of nodes, or the shape of a square matrix."
        )
    return int(numbers[0])


NEW_NODES_REMEDY = (
    "use what scipy.sparse.save_npz writes of a matrix of new nodes x fitted nodes in format csr, csc or coo, an entry "
    "for each edge and its length"
)


def open_new_nodes(url: Url, n_fitted: int) -> "NewNodes":
    """The new nodes in a .npz file or a Zarr group, given how many nodes were fitted."""
    path = local_path(os.fspath(url))
    with readable(path):
        if not holds_several(path):
            raise InvalidInputError(f"source {path} holds no edges of new nodes; {NEW_NODES_REMEDY}.")
        return NewNodes(str(path), places_in(path), n_fitted)


class NewNodes:
    """A sparse matrix on disk, opened without reading its entries."""

    def __init__(self, name: str, places: Mapping[str, ArrayPlace], n_fitted: int) -> None:
        self.name = name
        absent = [array for array in ("shape", "data") if array not in places]
        if absent:
            raise InvalidInputError(f"{name} has no array {' and no '.join(absent)}; {NEW_NODES_REMEDY}.")
        self.n_nodes, self.n_fitted = self._checked_shape(whole(list_of_numbers(places["shape"])).tolist(), n_fitted)
        self._format, numbers = _new_layout(name, places)
        self._numbers = [list_of_numbers(places[array]) for array in numbers]
        self._weights = list_of_numbers(places["data"])
        require_length(self._numbers[-1], self._weights.shape[0], self._weights.name)

    @property
    def n_edges(self) -> int:
        return int(self._weights.shape[0])

    def load(self) -> Edges:
        """Every edge: new node, fitted node, length."""
        starts, ends = self._starts_and_ends()
        weights = edge_weights(self._weights.name, whole(self._weights))
        # Written so that NaN fails it too.
        bad = ~(weights >= 0) | np.isinf(weights)
        if bad.any():
            first = int(np.argmax(bad))
            raise InvalidInputError(
                f"{self.name} has {np.count_nonzero(bad)} lengths that are negative, NaN or infinite, the first "
                f"{weights[first]:g} from new node {starts[first]} to node {ends[first]}; lengths must be finite and "
                "at least 0: leave out what is no edge."
            )
        return Edges(starts, ends, weights)

    def fingerprint(self) -> Json:
        """Something cheap that changes when the edges may have changed."""
        arrays = [rows.fingerprint() for rows in (*self._numbers, self._weights)]
        return {"kind": "new nodes", "shape": [self.n_nodes, self.n_fitted], "arrays": arrays}

    def _checked_shape(self, shape: list[int], n_fitted: int) -> tuple[int, int]:
        if len(shape) != 2 or shape[1] != n_fitted:
            raise InvalidInputError(
                f"{self.name} has shape {tuple(shape)}; it must have a row for each new node and a column for each of "
                f"the {n_fitted} nodes that were fitted."
            )
        if shape[0] == 0:
            raise EmptySourceError(f"{self.name} has no rows.")
        return int(shape[0]), int(shape[1])

    def _starts_and_ends(self) -> tuple[IntArray, IntArray]:
        first, second = (whole(rows) for rows in self._numbers)
        if self._format == "coo":
            return self._checked(0, first, self.n_nodes), self._checked(1, second, self.n_fitted)
        by_rows = self._format == "csr"
        n_major, n_minor = (self.n_nodes, self.n_fitted) if by_rows else (self.n_fitted, self.n_nodes)
        offsets = first.astype(np.int64)
        if len(offsets) != n_major + 1 or offsets[0] != 0 or offsets[-1] != len(second) or (np.diff(offsets) < 0).any():
            raise InvalidInputError(
                f"{self._numbers[0].name} is damaged: it must have {n_major + 1} entries that rise from 0 to "
                f"{len(second)}, the length of indices."
            )
        major = np.repeat(np.arange(n_major), np.diff(offsets))
        minor = self._checked(1, second, n_minor)
        return (major, minor) if by_rows else (minor, major)

    def _checked(self, which: int, numbers: IntArray, n: int) -> IntArray:
        return node_numbers(self._numbers[which].name, numbers, n)


def _new_layout(name: str, places: Mapping[str, ArrayPlace]) -> tuple[str, tuple[str, str]]:
    """The format of a sparse matrix, and the names of the two arrays that say where its entries are."""
    stored: Rows | None = places["format"].rows() if "format" in places else None
    saved = "csr" if stored is None else str(np.asarray(stored.read(0, 1)).astype(str).ravel()[0])
    arrays = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "coo": ("row", "col")}.get(saved)
    if arrays is None or not set(arrays) <= places.keys():
        raise InvalidInputError(f"{name} is a matrix in format {saved!r}, or lacks some of it; {NEW_NODES_REMEDY}.")
    return saved, arrays
