"""Policies for a graph in several components, and what a user is told of them.

error    refuse
bridge   join them by the shortest links between them, a minimum spanning tree over components
largest  keep the largest; other points get no coordinates
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from pipeline.errors import DisconnectedGraphError
from pipeline.numerics import checks
from pipeline.numerics.directions import edge_lengths
from pipeline.numerics.geodesics.bridges import links_in_memory
from pipeline.numerics.geodesics.graph import Edges, component_labels, with_edges
from pipeline.numerics.neighbors.closest import NearerCounts, enough_neighbors_of
from pipeline.numerics.neighbors.products import local_portions
from pipeline.types import AnyArray, BoolArray, IntArray, Json, SparseArray

ComponentPolicy = Literal["error", "bridge", "largest"]
POLICIES: tuple[str, ...] = get_args(ComponentPolicy)
# What to do about several components, by what the edges come from: neighbors, a radius, or the user's own graph.
JOIN_OR_DROP = "or choose component_policy='bridge' (join them by the shortest links) or 'largest'"
REMEDIES = {
    "neighbors": f"Raise n_neighbors, {JOIN_OR_DROP}",
    "radius": f"Raise radius, {JOIN_OR_DROP}",
    "given": "Add the edges that are missing (there are no points to find links by), or use component_policy='largest'",
}
# Components whose sizes are listed.
LISTED = 10
# Links up to which it is told how many neighbors would do without.
MOST_COUNTED = 4096


class Connected(NamedTuple):
    """A graph on all n nodes after the policy; labels (n,) before it, 0 the largest; kept (n,), the nodes that stay;
    the links that were added, and whether they are the shortest there are."""

    graph: SparseArray
    labels: IntArray
    kept: BoolArray
    links: Edges
    exact: bool = True


NO_LINKS: Edges = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def apply_component_policy(
    points: AnyArray | None,
    graph: SparseArray,
    policy: ComponentPolicy,
    edges_from: str = "neighbors",
    metric: str = "euclidean",
) -> Connected:
    """A graph in which all kept nodes reach each other; without points no links between components can be found."""
    checks.one_of("policy", policy, POLICIES)
    labels = component_labels(graph)
    if policy == "largest" or not labels.any():
        return Connected(graph, labels, labels == 0, NO_LINKS)
    if policy == "error" or points is None:
        raise DisconnectedGraphError(disconnected_message(np.bincount(labels).tolist(), edges_from=edges_from))
    links, exact = links_in_memory(points, labels)
    added = links.ends[:, 0], links.ends[:, 1], edge_lengths(metric, links.lengths)
    return Connected(with_edges(graph, *added), labels, np.ones(len(labels), np.bool_), added, exact)


def enough_neighbors(points: AnyArray, links: Edges) -> int | None:
    """How many neighbors would be enough for the graph of points to have some links; None if it has too many."""
    starts, ends, _ = links
    if len(starts) > MOST_COUNTED:
        return None
    counts = NearerCounts((points[starts], starts), (points[ends], ends))
    for portion in local_portions(points):
        counts.add(portion)
    return enough_neighbors_of(counts.counts)


def disconnected_message(sizes: Sequence[int], n_components: int | None = None, edges_from: str = "neighbors") -> str:
    """The error message, given the sizes of all components, or of the ten largest and the number of all."""
    n_components = len(sizes) if n_components is None else n_components
    return (
        f"The {_kind(edges_from)} has {n_components} components, of sizes {_listed(sizes, n_components)}; distances "
        f"between them are undefined. {REMEDIES[edges_from]} (embed only the largest; other rows get NaN)."
    )


def components_in_words(figures: Json) -> str:
    """What became of several components: n_components, the `largest_rows`, `n_bridges` and whether they are `exact`,
    `n_dropped_rows`, `edges_from`, and what would be `enough` to connect the graph."""
    n, edges_from = figures["n_components"], figures["edges_from"]
    found = f"The {_kind(edges_from)} is in {n:,} components (rows: {_listed(figures['largest_rows'], n)})"
    if not figures["n_bridges"]:
        n_dropped = figures["n_dropped_rows"]
        return f"{found}; only the largest is embedded, the other {n_dropped:,} rows become NaN.{_enough(figures)}"
    links = "a link" if figures["n_bridges"] == 1 else f"{figures['n_bridges']:,} links"
    shortest = "the shortest" if figures["exact"] else "nearly the shortest"
    return (
        f"{found}, joined by {links}, {shortest} there {'is' if links == 'a link' else 'are'}. How far apart "
        f"components are shown is a guess.{_enough(figures)}"
    )


def _kind(edges_from: str) -> str:
    return "neighbor graph" if edges_from == "neighbors" else "graph"


def _listed(sizes: Sequence[int], n_components: int) -> str:
    return ", ".join(map(str, sizes[:LISTED])) + (", ..." if n_components > LISTED else "")


def _enough(figures: Json) -> str:
    """What would connect the graph, as a sentence."""
    edges_from, enough = figures["edges_from"], figures.get("enough")
    if edges_from == "given":
        return ""
    name = "n_neighbors" if edges_from == "neighbors" else "radius"
    if enough is None:
        return f" A larger {name} may connect them."
    return f" {name}={at_least(enough)} is enough to connect them."


def at_least(value: float) -> str:
    """A number in words that are no less than it."""
    if isinstance(value, int):
        return str(value)
    return next(said for digits in range(6, 18) if float(said := f"{value * (1 + 10.0**-digits):.{digits}g}") >= value)
