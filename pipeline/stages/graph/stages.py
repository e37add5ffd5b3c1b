"""The stages of a graph, in their order: those that lead to geodesic distances, and those of new points."""

from pipeline.stages.graph.components import Components
from pipeline.stages.graph.graph import Graph
from pipeline.stages.graph.neighbors import Neighbors, Probes
from pipeline.stages.graph.partition import Assign, Cells, Order
from pipeline.stages.graph.precomputed import GivenGraph, LoadGraph
from pipeline.stages.graph.radius import RadiusGraph, RadiusProbes
from pipeline.stages.graph.rows import Rows
from pipeline.stages.graph.search import JoinNewNodes, LoadNewNodes, Search, SearchWithin

__all__ = [
    "Assign",
    "Cells",
    "Components",
    "GivenGraph",
    "Graph",
    "JoinNewNodes",
    "LoadGraph",
    "LoadNewNodes",
    "Neighbors",
    "Order",
    "Probes",
    "RadiusGraph",
    "RadiusProbes",
    "Rows",
    "Search",
    "SearchWithin",
]
