"""Nodes that are new to a graph of the user's: a sparse matrix of new nodes x fitted nodes, the lengths of their edges.

It is what scipy.sparse.save_npz writes of one, in compressed rows, compressed columns or coordinates, or a Zarr group
with the same arrays. A zero that is stored is an edge of no length, not a missing one.
"""

import os
from collections.abc import Mapping

import numpy as np

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.sources.graph_edges import Edges, edge_weights, node_numbers
from pipeline.sources.graph_layouts import list_of_numbers, require_length, whole
from pipeline.sources.matrices import Rows
from pipeline.sources.named_arrays import ArrayPlace, Url, holds_several, places_in, readable
from pipeline.sources.opening import local_path
from pipeline.types import IntArray, Json

REMEDY = (
    "use what scipy.sparse.save_npz writes of a matrix of new nodes x fitted nodes in format csr, csc or coo, an entry "
    "for each edge and its length"
)


def open_new_nodes(url: Url, n_fitted: int) -> "NewNodes":
    """The new nodes in a .npz file or a Zarr group, given how many nodes were fitted."""
    path = local_path(os.fspath(url))
    with readable(path):
        if not holds_several(path):
            raise InvalidInputError(f"source {path} holds no edges of new nodes; {REMEDY}.")
        return NewNodes(str(path), places_in(path), n_fitted)


class NewNodes:
    """A sparse matrix on disk, opened without reading its entries."""

    def __init__(self, name: str, places: Mapping[str, ArrayPlace], n_fitted: int) -> None:
        self.name = name
        absent = [array for array in ("shape", "data") if array not in places]
        if absent:
            raise InvalidInputError(f"{name} has no array {' and no '.join(absent)}; {REMEDY}.")
        self.n_nodes, self.n_fitted = self._checked_shape(whole(list_of_numbers(places["shape"])).tolist(), n_fitted)
        self._format, numbers = _layout(name, places)
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


def _layout(name: str, places: Mapping[str, ArrayPlace]) -> tuple[str, tuple[str, str]]:
    """The format of a sparse matrix, and the names of the two arrays that say where its entries are."""
    stored: Rows | None = places["format"].rows() if "format" in places else None
    saved = "csr" if stored is None else str(np.asarray(stored.read(0, 1)).astype(str).ravel()[0])
    arrays = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "coo": ("row", "col")}.get(saved)
    if arrays is None or not set(arrays) <= places.keys():
        raise InvalidInputError(f"{name} is a matrix in format {saved!r}, or lacks some of it; {REMEDY}.")
    return saved, arrays
