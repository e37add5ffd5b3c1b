"""Graphs of the user's own, whose weights are lengths: undirected, in a .npz file or a Zarr group; and new nodes.

A graph is opened without reading its edges, if the number of nodes is noted with them. Loaded it is held in memory as a
whole: 16 bytes for each direction of an edge, and while it is loaded about 100 bytes for each edge listed.

| layout | arrays | number of nodes |
|---|---|---|
| compressed rows or columns | `indptr`, `indices`, `data` | one less than the entries of `indptr` |
| coordinates | `row`, `col`, `data` | `shape` |
| pairs | `edges` (e, 2), weights in `w` or `weights` | `n_nodes`, `shape`, the length of `xy`, `nodes` and the like |

The first two are what scipy.sparse.save_npz writes; rows or columns makes no difference to an undirected graph. Without
weights every edge has length 1; where nothing notes the number of nodes, the highest listed is the last. New nodes are
a sparse matrix of new nodes x fitted nodes in one of the first two.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.numerics.geodesics.graph import undirected_graph
from pipeline.sources.arrays import Rows
from pipeline.sources.opening import ArrayPlace, Url, holds_several, local_path, places_in, readable
from pipeline.types import AnyArray, FloatArray, IntArray, Json, SparseArray

# Up to so many nodes a pair of them is one 64-bit integer.
MOST_NODES = 3_037_000_499

# Arrays with an entry for each node, the first of which that is there tells how many there are.
NODE_ARRAYS = ("nodes", "xy", "xyz", "X", "points", "positions", "coordinates", "labels", "names")
REMEDY = (
    "use what scipy.sparse.save_npz writes, or a .npz file or Zarr group with the arrays indptr, indices and data, or "
    "row, col and data, or edges (e, 2) and optionally w"
)
NEW_NODES_REMEDY = (
    "use what scipy.sparse.save_npz writes of a matrix of new nodes x fitted nodes in format csr, csc or coo, an entry "
    "for each edge and its length"
)
Places: TypeAlias = Mapping[str, ArrayPlace]


def open_graph(url: Url, key: str | None = None) -> "GraphSource":
    """The graph in a .npz file or a Zarr group.

    key: the array of edges if it is not called `edges`, or the group of a Zarr group in which the arrays are.
    """
    path = _path_of_several(url, f"graph; {REMEDY}")
    with readable(path):
        return GraphSource(path, key)


def open_new_nodes(url: Url, n_fitted: int) -> "NewNodes":
    """The new nodes in a .npz file or a Zarr group, given how many nodes were fitted."""
    path = _path_of_several(url, f"edges of new nodes; {NEW_NODES_REMEDY}")
    with readable(path):
        return NewNodes(str(path), places_in(path), n_fitted)


def _path_of_several(url: Url, wanted: str) -> Path:
    path = local_path(url)
    with readable(path):
        if not holds_several(path):
            raise InvalidInputError(f"source {path} holds no {wanted}.")
    return path


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
        _require_whole_numbers(self._edges.name, self._edges.dtype)

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
            _require_whole_numbers(rows.name, rows.dtype)
        self.n_edges = self._second.shape[0]

    def highest_node(self) -> int:
        return int(_whole(self._second).max(initial=-1))

    @abstractmethod
    def starts_and_ends(self, n_starts: int, n_ends: int) -> tuple[IntArray, IntArray]: ...

    def fingerprint(self) -> Json:
        return dict(zip(self.arrays, (self._first.fingerprint(), self._second.fingerprint()), strict=True))


class CoordinateLayout(SparseLayout):
    """The arrays `row` (e,) and `col` (e,)."""

    arrays = ("row", "col")

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        _require_length(self._second, self._first.shape[0], self._first.name)

    def highest_node(self) -> int:
        return max(int(_whole(self._first).max(initial=-1)), super().highest_node())

    def starts_and_ends(self, n_starts: int, n_ends: int) -> tuple[IntArray, IntArray]:
        starts = _node_numbers(self._first.name, _whole(self._first), n_starts)
        return starts, _node_numbers(self._second.name, _whole(self._second), n_ends)


class CompressedLayout(SparseLayout):
    """The arrays `indptr` (n + 1,), where the entries of each row or column begin, and `indices` (e,)."""

    arrays = ("indptr", "indices")

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self.n_nodes = self._first.shape[0] - 1

    def starts_and_ends(self, n_starts: int, n_ends: int) -> tuple[IntArray, IntArray]:
        # Unsigned numbers would not fall.
        offsets = _whole(self._first).astype(np.int64)
        is_whole = len(offsets) == n_starts + 1 and offsets[0] == 0 and offsets[-1] == self.n_edges
        if not is_whole or (np.diff(offsets) < 0).any():
            raise InvalidInputError(
                f"{self._first.name} is damaged: it must rise from 0 to {self.n_edges}, the length of indices, in "
                f"{n_starts + 1} entries."
            )
        starts = np.repeat(np.arange(n_starts), np.diff(offsets))
        return starts, _node_numbers(self._second.name, _whole(self._second), n_ends)


SPARSE_FORMATS: dict[str, type[SparseLayout]] = {
    "csr": CompressedLayout,
    "csc": CompressedLayout,
    "coo": CoordinateLayout,
}


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
            _require_length(self._weights, self.n_edges, f"the list of edges of {self.name}")
        self.n_nodes = self._checked_nodes(_noted_nodes(self.name, places, attributes))

    def load(self) -> SparseArray:
        """The graph (n, n) with each edge in both directions, weights in double precision, without loops.

        An edge of weight 0 is stored as such. Of an edge that is listed several times the shortest is kept.
        """
        with readable(self._path):
            starts, ends = self._layout.starts_and_ends(self.n_nodes, self.n_nodes)
            weights = np.ones(self.n_edges) if self._weights is None else _edge_weights(self._weights)
        _refuse_bad_weights(self.name, Edges(starts, ends, weights))
        if not (starts != ends).any():
            raise InvalidInputError(f"{self.name} has no edges between different nodes; at least one is needed.")
        return undirected_graph(self.name, self.n_nodes, starts, ends, weights)

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


class NewNodes:
    """A sparse matrix on disk, opened without reading its entries."""

    def __init__(self, name: str, places: Places, n_fitted: int) -> None:
        self.name = name
        absent = [array for array in ("shape", "data") if array not in places]
        if absent:
            raise InvalidInputError(f"{name} has no array {' and no '.join(absent)}; {NEW_NODES_REMEDY}.")
        shape = _whole(places["shape"].numbers()).tolist()
        if len(shape) != 2 or shape[1] != n_fitted:
            raise InvalidInputError(
                f"{name} has shape {tuple(shape)}; it must have a row for each new node and a column for each of the "
                f"{n_fitted} nodes that were fitted."
            )
        self.n_nodes, self.n_fitted = int(shape[0]), n_fitted
        if not self.n_nodes:
            raise EmptySourceError(f"{name} has no rows.")
        saved = _saved_format(places) or "csr"
        layout = SPARSE_FORMATS.get(saved)
        if layout is None or not places.keys() >= set(layout.arrays):
            raise InvalidInputError(f"{name} is a matrix in format {saved!r}, or lacks some of it; {NEW_NODES_REMEDY}.")
        self._layout, self._by_columns = layout(places), saved == "csc"
        self._weights = places["data"].numbers()
        _require_length(self._weights, self._layout.n_edges, f"the list of edges of {name}")

    def load(self) -> Edges:
        """Every edge: new node, fitted node, length."""
        if self._by_columns:
            ends, starts = self._layout.starts_and_ends(self.n_fitted, self.n_nodes)
        else:
            starts, ends = self._layout.starts_and_ends(self.n_nodes, self.n_fitted)
        edges = Edges(starts, ends, _edge_weights(self._weights))
        _refuse_bad_weights(self.name, edges, "lengths", "new node")
        return edges

    def fingerprint(self) -> Json:
        """Something cheap that changes when the edges may have changed."""
        arrays = [*self._layout.fingerprint().values(), self._weights.fingerprint()]
        return {"kind": "new nodes", "shape": [self.n_nodes, self.n_fitted], "arrays": arrays}


def digest_of_graph(graph: SparseArray) -> str:
    """What names the content of a loaded graph."""
    digest = hashlib.sha256(repr(graph.shape).encode())
    for values, dtype in ((graph.indptr, np.int64), (graph.indices, np.int64), (graph.data, np.float64)):
        digest.update(np.ascontiguousarray(values, dtype).data)
    return digest.hexdigest()


def _arrays_and_attributes(path: Path, key: str | None) -> tuple[dict[str, ArrayPlace], Json]:
    """The arrays that `key` chooses, by the names that layouts have for them, and what is noted about them."""
    from pipeline.store.foreign import group_attributes

    places = places_in(path)
    below = {name.removeprefix(f"{key}/"): place for name, place in places.items() if name.startswith(f"{key}/")}
    if key is None or below:
        return (below or places), group_attributes(path / (key or ""))
    if key in places:
        others = {name: place for name, place in places.items() if name not in ("indptr", "row")}
        return {**others, "edges": places[key]}, group_attributes(path)
    raise InvalidInputError(f"key={key!r} is not in {path}; it holds {', '.join(map(repr, places)) or 'nothing'}.")


def _layout(name: str, places: Places) -> SparseLayout | PairLayout:
    saved = _saved_format(places)
    if saved not in (None, *SPARSE_FORMATS):
        raise InvalidInputError(
            f"{name} is a sparse matrix in format {saved!r}; {', '.join(SPARSE_FORMATS)} are read: save its tocsr()."
        )
    for layout in (CompressedLayout, CoordinateLayout, PairLayout):
        if places.keys() >= set(layout.arrays):
            return layout(places)
    listed = ", ".join(map(repr, places)) or "nothing"
    raise InvalidInputError(f"{name} holds {listed}, which is no graph; {REMEDY}.")


def _saved_format(places: Places) -> str | None:
    """What scipy calls the layout of a sparse matrix, if that is noted."""
    rows = places["format"].rows() if "format" in places else None
    return str(rows.read(0, 1).astype(str).ravel()[0]) if rows and rows.dtype.kind in "US" else None


def _weights(name: str, places: Places, candidates: tuple[str, ...]) -> Rows | None:
    found = [candidate for candidate in candidates if candidate in places]
    if len(found) > 1:
        raise InvalidInputError(f"{name} holds both {' and '.join(found)}; leave out one of them.")
    return places[found[0]].numbers() if found else None


def _noted_nodes(name: str, places: Places, attributes: Json) -> int | None:
    for noted in ("n_nodes", "shape"):
        if noted in attributes:
            return _single_number(name, noted, attributes[noted])
        if noted in places:
            rows = places[noted].rows()
            _require_whole_numbers(rows.name, rows.dtype)
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


def _require_whole_numbers(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iu":
        raise InvalidInputError(f"{name} has dtype {dtype}; it must hold whole numbers: save astype(int).")


def _edge_weights(rows: Rows) -> FloatArray:
    """Real numbers as weights in double precision; True is an edge of length 1."""
    values = _whole(rows)
    if values.dtype.kind == "b" and not values.all():
        raise InvalidInputError(
            f"{rows.name} has {np.count_nonzero(~values)} entries False, the first in place {int(np.argmin(values))}; "
            "True stands for an edge, and what is no edge must not be listed: leave those out (eliminate_zeros in "
            "scipy)."
        )
    return values.astype(np.float64)


def _require_length(rows: Rows, n_edges: int, beside: str) -> None:
    if rows.shape[0] != n_edges:
        raise InvalidInputError(
            f"{rows.name} has {rows.shape[0]} entries and {beside} has {n_edges}; they must be as many."
        )


def _whole(rows: Rows) -> AnyArray:
    return rows.read(0, rows.shape[0])


def _refuse_bad_weights(name: str, edges: Edges, weights: str = "weights", start: str = "node") -> None:
    # Written so that NaN fails it too.
    bad = ~(edges.weights >= 0) | np.isinf(edges.weights)
    if bad.any():
        first = int(np.argmax(bad))
        raise InvalidInputError(
            f"{name} has {np.count_nonzero(bad)} {weights} that are negative, NaN or infinite, the first "
            f"{edges.weights[first]:g} from {start} {edges.starts[first]} to {edges.ends[first]} (entry {first}); "
            "lengths must be finite and at least 0: leave out what is no edge."
        )
