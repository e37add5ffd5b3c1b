"""Stage 4, components: what to do with a neighbor graph in several components.

error    refuse, before anything expensive
largest  keep the largest; nothing to add
bridge   the links of a minimum spanning tree over the components, which earlier stages have found
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.errors import ComponentWarning, DisconnectedGraphError
from pipeline.numerics import checks
from pipeline.numerics.directions import edge_lengths
from pipeline.numerics.geodesics.components import (
    LISTED,
    POLICIES,
    ComponentPolicy,
    components_in_words,
    disconnected_message,
)
from pipeline.stages.graph.bridges import tree_of
from pipeline.stages.graph.graph import CUT
from pipeline.stages.stage import Cost, Outcome, Result, Shape, SingleStage
from pipeline.types import AnyArray, IntArray, Json


def require_joinable(graph: Outcome, policy: ComponentPolicy, edges_from: str) -> bool:
    """Whether links are to be found between the components of a graph; refuse those that the policy refuses."""
    checks.one_of("policy", policy, POLICIES)
    sizes, n_components = graph.figures["largest_components"], graph.figures["n_components"]
    if n_components == 1 or policy == "largest":
        return False
    if policy == "error" or edges_from == "given":
        raise DisconnectedGraphError(disconnected_message(sizes, n_components, edges_from))
    return True


@dataclass(frozen=True)
class Components(SingleStage):
    """Links between components: nodes `starts` and `ends`, the start of lower source row, and their `lengths`. Where
    short circuits are cut, also the ends of their edges: components are the same without them."""

    ordered: Outcome
    graph: Outcome
    policy: ComponentPolicy
    links: Outcome | None = None
    edges_from: str = "neighbors"
    metric: str = "euclidean"
    shortcuts: Outcome | None = None
    exponent: int = 0
    name = "components"
    reads = ("graph",)

    def settings(self) -> Json:
        # Of a graph in one piece the policy says nothing.
        return {"policy": self.policy if self.graph.figures["n_components"] > 1 else "error"}

    def inputs(self) -> list[str]:
        further = [outcome.ledger.digest for outcome in (self.links, self.shortcuts) if outcome is not None]
        return [*super().inputs(), *further]

    def result(self) -> Result:
        sizes, n_components = self.graph.figures["largest_components"], self.graph.figures["n_components"]
        arrays: dict[str, AnyArray] = {"starts": NO_NODES, "ends": NO_NODES, "lengths": np.empty(0)}
        if self.links is not None:
            tree = tree_of(self.links)
            starts, ends = tree.ends[:, 2:].T
            arrays = {"starts": starts, "ends": ends, "lengths": edge_lengths(self.metric, tree.lengths)}
        n_kept = sizes[0] if self.policy == "largest" else self.ordered.figures["n_nodes"]
        report = {"n_components": n_components, "largest_components": sizes, "n_kept": n_kept}
        if n_components > 1:
            rows = self._rows_each()
            n_dropped = int(rows[1:].sum()) if self.policy == "largest" else 0
            report |= {"largest_rows": np.sort(rows)[::-1][:LISTED].tolist(), "n_dropped_rows": n_dropped}
            report["edges_from"] = self.edges_from
            if self.links is not None and self.edges_from == "radius":
                report["enough"] = float(np.ldexp(arrays["lengths"].max(), self.exponent))
        if self.shortcuts is not None:
            arrays |= {name: self.shortcuts.ledger.read(name).read() for name in CUT}
            report["n_cut"] = len(arrays[CUT[0]])
        exact = self.links is None or self.links.figures["exact"]
        return {**report, "n_bridges": len(arrays["lengths"]), "exact": exact}, arrays

    def _rows_each(self) -> IntArray:
        """How many rows each component has."""
        labels, first = self.graph.ledger.read("components").read(), 0
        counts = np.zeros(self.graph.figures["n_components"], np.int64)
        for group, n_nodes in enumerate(self.ordered.figures["nodes_each"]):
            node_of = self.ordered.ledger.part("node_of", group).read()
            counts += np.bincount(labels[node_of + first], minlength=len(counts))
            first += n_nodes
        return counts

    @staticmethod
    def cost(shape: Shape) -> Cost:
        return Cost(shape.block + 16 * shape.n_rows, 0.02)


NO_NODES = np.empty(0, np.int64)


def component_figures(stages: Mapping[str, Json]) -> Json | None:
    """What `components_in_words` takes, of the figures of stages by name; None for a graph in one piece or none."""
    found = stages.get("components", {})
    if found.get("n_components", 1) == 1:
        return None
    known = {"edges_from": "neighbors", "largest_rows": found["largest_components"]}
    return {**known, **found, **stages.get("connecting", {})}


def warn_of_components(figures: Json | None) -> None:
    if figures is not None:
        warnings.warn(components_in_words(figures), ComponentWarning, stacklevel=3)
