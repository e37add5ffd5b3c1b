"""The graph as shortest paths see it: in memory, with its bridges, and which of its nodes are embedded."""

import numpy as np

from pipeline.numerics.shortest_paths import PathGraph
from pipeline.stages.graph import group_bounds
from pipeline.stages.stage import Outcome
from pipeline.types import AnyArray, BoolArray, IntArray

Csr = tuple[IntArray, IntArray, AnyArray]
Links = tuple[IntArray, IntArray, AnyArray]


def kept_nodes(graph: Outcome, components: Outcome) -> BoolArray:
    """Whether each node is embedded: all of them, or those of the largest component."""
    labels = graph.ledger.read("components").read()
    return np.asarray(labels < 1) if components.figures["n_kept"] < len(labels) else np.ones(len(labels), np.bool_)


def connected_graph(ordered: Outcome, graph: Outcome, components: Outcome) -> PathGraph:
    """The whole graph with its bridges: 8 bytes an edge, and nothing of size beside it.

    Weights are rounded to single precision, as the distances made of them will be.
    """
    bounds = group_bounds(ordered)
    links = both_ways(components)
    n_nodes, n_edges = int(bounds[-1]), int(graph.figures["n_edges"]) + len(links[0])
    offsets, targets = np.zeros(n_nodes + 1, np.int64), np.empty(n_edges, np.int32)
    weights = np.empty(n_edges, np.float32)
    begin = 0
    for group in range(len(bounds) - 1):
        first, last = int(bounds[group]), int(bounds[group + 1])
        part = with_links(group_csr(graph, group), links, first, last)
        end = begin + len(part[1])
        offsets[first + 1 : last + 1] = part[0][1:] + begin
        targets[begin:end], weights[begin:end] = part[1:]
        begin = end
    return PathGraph(offsets, targets, weights)


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
