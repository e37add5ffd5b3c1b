"""Stage 4, shortcuts: likely short circuits of the graph, listed, and to be left out by later stages if so asked.

Like everything that follows paths it holds the whole graph, and works on it in one piece.
"""

import warnings
from dataclasses import dataclass

import numpy as np

from pipeline.errors import ShortcutWarning
from pipeline.numerics.geodesics.shortcuts import all_edges, listed, nodes_reached, short_circuits, warning_of
from pipeline.stages.graph.graph import CUT
from pipeline.stages.graph.rows import connected_graph
from pipeline.stages.stage import Cost, Outcome, Result, Shape, SingleStage
from pipeline.types import IntArray

# What the search holds for each node beside the graph.
SEARCHED_NODE = 72


@dataclass(frozen=True)
class Shortcuts(SingleStage):
    """The ends of all edges of short circuits, numbers of nodes; figures list the most used, in the user's units."""

    ordered: Outcome
    graph: Outcome
    exponent: int
    seed: int
    name = "shortcuts"
    depends_on = ("exponent", "seed")
    reads = ("graph",)

    def result(self) -> Result:
        rows = first_rows(self.ordered)
        found = short_circuits(connected_graph(self.ordered, self.graph, None), rows, self.seed)
        starts, ends = all_edges(found)
        described = [item._asdict() for item in listed(found, rows, self.exponent)]
        return {"n_found": len(found), "n_edges": len(starts), "listed": described}, dict(
            zip(CUT, (starts, ends), strict=True)
        )

    @staticmethod
    def cost(shape: Shape) -> Cost:
        n = shape.n_rows
        # One round; each that finds something takes as long again.
        seconds = 0.1 + 1.5e-8 * nodes_reached(n) * (shape.graph // n) / 8
        return Cost(shape.graph + SEARCHED_NODE * n, seconds)


def first_rows(ordered: Outcome) -> IntArray:
    """The first source row (n,) of every node."""
    groups = range(len(ordered.figures["nodes_each"]))
    return np.concatenate([ordered.ledger.part("first", group).read() for group in groups])


def to_cut(found: Outcome, shortcuts: str) -> Outcome | None:
    """The stage whose edges later ones are to leave out, if there are any; a user is warned of them. Without any, later
    stages are as if nothing had been looked for."""
    n_found, is_cut = int(found.figures["n_found"]), shortcuts == "cut"
    if n_found:
        warnings.warn(warning_of(n_found, is_cut, "--shortcuts cut"), ShortcutWarning, stacklevel=3)
    return found if is_cut and n_found else None
