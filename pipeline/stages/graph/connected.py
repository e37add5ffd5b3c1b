"""The graph as shortest paths see it: in memory, with its bridges, and which of its nodes are embedded."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

import numpy as np

from pipeline.numerics.geodesics.shortest_paths import PathGraph, PathSearch
from pipeline.stages.graph.graph import group_bounds
from pipeline.stages.stage import Outcome
from pipeline.types import AnyArray, BoolArray, IntArray

Csr = tuple[IntArray, IntArray, AnyArray]
Links = tuple[IntArray, IntArray, AnyArray]
NO_GRAPH = PathGraph(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
# More than a worker's share of a core, for a moment: others have nothing to do, or load the same.
LOADING_THREADS = 2


def kept_nodes(graph: Outcome, components: Outcome) -> BoolArray:
    """Whether each node is embedded: all of them, or those of the largest component."""
    labels = graph.ledger.read("components").read()
    return np.asarray(labels < 1) if components.figures["n_kept"] < len(labels) else np.ones(len(labels), np.bool_)


def connected_graph(ordered: Outcome, graph: Outcome, components: Outcome) -> PathGraph:
    """The whole graph with its bridges: 8 bytes an edge, and little of size beside it.

    Weights are rounded to single precision, as the distances made of them will be.
    """
    bounds, links = group_bounds(ordered), both_ways(components)
    groups = range(len(bounds) - 1)
    n_linked = np.diff(np.searchsorted(links[0], bounds))
    figures = graph.ledger.committed()
    begins = np.concatenate([[0], np.cumsum([figures[group]["n_edges"] + n_linked[group] for group in groups])])
    offsets, targets = np.zeros(int(bounds[-1]) + 1, np.int64), np.empty(int(begins[-1]), np.int32)
    weights = np.empty(len(targets), np.float32)

    def load(group: int) -> None:
        first, last = int(bounds[group]), int(bounds[group + 1])
        place = slice(int(begins[group]), int(begins[group + 1]))
        part = with_links(group_csr(graph, group), links, first, last)
        offsets[first + 1 : last + 1] = part[0][1:] + place.start
        targets[place], weights[place] = part[1:]

    with ThreadPoolExecutor(LOADING_THREADS) as pool:
        for _ in pool.map(load, groups):
            pass
    return PathGraph(offsets, targets, weights)


class LoadedGraph:
    """The one graph that this process holds, shared by its threads, and what they search it with."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._key, self._graph = "", NO_GRAPH
        self._free: list[PathSearch] = []

    def graph(self, ordered: Outcome, graph: Outcome, components: Outcome) -> PathGraph:
        """The graph of some stages, loaded unless it is that which is held."""
        with self._lock:
            return self._loaded(ordered, graph, components)

    @contextmanager
    def search(self, ordered: Outcome, graph: Outcome, components: Outcome) -> Iterator[PathSearch]:
        """A search in that graph, which no other thread has at the same time."""
        with self._lock:
            loaded = self._loaded(ordered, graph, components)
            search = self._free.pop() if self._free else PathSearch(loaded)
        try:
            yield search
        finally:
            with self._lock:
                if self._graph is loaded:
                    self._free.append(search)

    def drop(self) -> None:
        with self._lock:
            self._forget()

    def _loaded(self, ordered: Outcome, graph: Outcome, components: Outcome) -> PathGraph:
        key = f"{graph.ledger.store}/{components.ledger.path}"
        if self._key != key:
            self._forget()
            self._graph = connected_graph(ordered, graph, components)
            self._key = key
        return self._graph

    def _forget(self) -> None:
        self._key, self._graph = "", NO_GRAPH
        self._free.clear()


LOADED = LoadedGraph()


def group_csr(graph: Outcome, group: int) -> Csr:
    """Offsets, targets and weights of one group's nodes."""
    offsets, targets, weights = (graph.ledger.part(name, group).read() for name in ("offsets", "targets", "weights"))
    return offsets, targets, weights


def both_ways(components: Outcome) -> Links:
    """Every bridge from each of its ends, by rising start."""
    if not components.figures["n_bridges"]:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    starts, ends, lengths = (components.ledger.read(name).read() for name in ("starts", "ends", "lengths"))
    sources, targets = np.concatenate([starts, ends]), np.concatenate([ends, starts])
    order = np.lexsort((targets, sources))
    return sources[order], targets[order], np.concatenate([lengths, lengths])[order]


def with_links(csr: Csr, links: Links, first: int, last: int) -> Csr:
    """One group's CSR with the links that start at its nodes, `first` up to `last`, put behind their own edges."""
    offsets, targets, weights = csr
    mine = slice(*np.searchsorted(links[0], [first, last]))
    starts = links[0][mine] - first
    if not len(starts):
        return csr
    places = offsets[starts + 1]
    added = np.searchsorted(starts, np.arange(last - first + 1))
    return offsets + added, np.insert(targets, places, links[1][mine]), np.insert(weights, places, links[2][mine])
