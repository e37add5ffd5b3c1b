"""Connected components of the neighbor graph, and what to do when there are several.

error    refuse, listing their sizes and the remedies
bridge   join them by the shortest links between them (a minimum spanning tree over components)
largest  keep the largest; the points of the others get no coordinates
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from pipeline.errors import DisconnectedGraphError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.graph import graph_from_edges, with_edges
from pipeline.numerics.neighbors import NeighborSearch
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

ComponentPolicy = Literal["error", "bridge", "largest"]
POLICIES: tuple[str, ...] = get_args(ComponentPolicy)
# Nearest neighbors among which an outsider is looked for before a component gets a search of its own.
MAX_SHARED_NEIGHBORS = 65


Link = tuple[float, int, int]
NO_LINK: Link = (np.inf, -1, -1)


class Connected(NamedTuple):
    """A graph on all n nodes after the policy; labels (n,) before it, 0 the largest; kept (n,) nodes that stay."""

    graph: csr_array
    labels: IntArray
    kept: BoolArray
    n_bridges: int


def component_labels(graph: csr_array) -> IntArray:
    """The component of every node, numbered by falling size, then by first node."""
    _, labels = connected_components(graph, directed=False)
    return by_falling_size(labels)


def by_falling_size(labels: AnyArray) -> IntArray:
    """Components renumbered by falling size, then by first node, given numbers that rise with the first node."""
    sizes = np.bincount(labels)
    order = np.argsort(-sizes, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(sizes))
    return np.asarray(number[labels], dtype=np.int64)


class UnionFind:
    """Components of a graph whose edges come in portions; each set is known by its lowest node."""

    def __init__(self, nodes: int | AnyArray) -> None:
        """Of so many nodes, each by itself; or of sets that are known, given by some lower node of each node's."""
        self._parents = np.arange(nodes, dtype=np.int64) if isinstance(nodes, int) else nodes.astype(np.int64)

    def join(self, starts: AnyArray, ends: AnyArray) -> None:
        """Bring in edges."""
        _join(self._parents, starts, ends)

    def lowest(self) -> IntArray:
        """The lowest node of every node's set."""
        _flatten(self._parents)
        return self._parents

    def labels(self) -> IntArray:
        """The component of every node, numbered by falling size, then by first node."""
        parents = self.lowest()
        # Sets are numbered by their lowest nodes, which are the nodes that are their own.
        return by_falling_size((np.cumsum(parents == np.arange(len(parents))) - 1)[parents])


@compiled
def _root(parents: AnyArray, node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@compiled
def _join(parents: AnyArray, starts: AnyArray, ends: AnyArray) -> None:
    for i in range(len(starts)):
        a, b = _root(parents, starts[i]), _root(parents, ends[i])
        parents[max(a, b)] = min(a, b)


@compiled
def _flatten(parents: AnyArray) -> None:
    for node in range(len(parents)):
        parents[node] = _root(parents, node)


def apply_component_policy(points: AnyArray, graph: csr_array, policy: ComponentPolicy) -> Connected:
    """A graph in which all kept nodes reach each other."""
    checks.one_of("policy", policy, POLICIES)
    labels = component_labels(graph)
    everything = np.ones(len(labels), dtype=np.bool_)
    if not labels.any():
        return Connected(graph, labels, everything, 0)
    if policy == "error":
        raise DisconnectedGraphError(disconnected_message(np.bincount(labels).tolist()))
    if policy == "largest":
        return Connected(graph, labels, labels == 0, 0)
    starts, ends, lengths = shortest_bridges(points, labels)
    return Connected(with_edges(graph, starts, ends, lengths), labels, everything, len(starts))


def shortest_bridges(points: AnyArray, labels: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Links (starts, ends, lengths) of a minimum spanning tree over components, by rounds of Boruvka's algorithm.

    In a round every component but the largest finds its shortest link to the outside. Links are compared by
    (length, lower row, higher row), a strict order, so that no round closes a cycle.
    """
    links: list[Link] = []
    current = labels
    while current.any():
        links.extend(sorted(set(_shortest_links(points, current))))
        lengths, low, high = (np.array(column) for column in zip(*links, strict=True))
        joined = graph_from_edges(len(labels), *_merged_edges(labels, low, high), np.zeros(len(labels) + len(links)))
        current = component_labels(joined)
    return low, high, lengths


def _merged_edges(labels: IntArray, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    """Edges that join every node to the first of its component, and the links."""
    _, first = np.unique(labels, return_index=True)
    return np.concatenate([np.arange(len(labels)), starts]), np.concatenate([first[labels], ends])


def _shortest_links(points: AnyArray, labels: IntArray) -> list[Link]:
    """The shortest link out of every component but the largest.

    All components search together for as long as a few neighbors may show an outsider. What is then left of a
    component, points whose known neighbors are all insiders and nearer than its best link, searches the outside alone.
    """
    best: list[Link] = [NO_LINK] * (int(labels.max()) + 1)
    pending = np.flatnonzero(labels)
    k = 5
    search = NeighborSearch(points)
    while len(pending) and k <= min(MAX_SHARED_NEIGHBORS, len(points)):
        distances, indices = search.query(points[pending], k)
        outside = labels[indices] != labels[pending, None]
        seen = outside.any(axis=1)
        nearest = outside.argmax(axis=1)[:, None]
        lengths, ends = (np.take_along_axis(part, nearest, 1).ravel() for part in (distances, indices))
        _improve(best, labels, pending[seen], ends[seen], lengths[seen])
        limits = np.array([link[0] for link in best])[labels[pending]]
        pending = pending[~seen & (distances[:, -1] <= limits)]
        k = 4 * k - 3
    for component in np.unique(labels[pending]):
        inside, others = pending[labels[pending] == component], np.flatnonzero(labels != component)
        distances, indices = NeighborSearch(points[others]).query(points[inside], 1)
        _improve(best, labels, inside, others[indices.ravel()], distances.ravel())
    return best[1:]


def _improve(best: list[Link], labels: IntArray, starts: IntArray, ends: IntArray, lengths: FloatArray) -> None:
    for i, j, length in zip(starts.tolist(), ends.tolist(), lengths.tolist(), strict=True):
        best[labels[i]] = min(best[labels[i]], (length, min(i, j), max(i, j)))


def disconnected_message(sizes: Sequence[int], n_components: int | None = None) -> str:
    """What a refusal says, given the sizes of components, largest first: of all, or of ten and their number."""
    n_components = len(sizes) if n_components is None else n_components
    listed = ", ".join(map(str, sizes[:10])) + (", ..." if n_components > 10 else "")
    return (
        f"The neighbor graph has {n_components} components, of sizes {listed}; distances between them are undefined. "
        "Raise n_neighbors, or choose component_policy='bridge' (join them by the shortest links) or 'largest' (embed "
        "only the largest; other rows get NaN)."
    )
