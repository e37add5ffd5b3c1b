"""The stages that lead to geodesic distances, in their order."""

from pipeline.stages.graph.components import Components
from pipeline.stages.graph.graph import Graph
from pipeline.stages.graph.neighbors import Neighbors, Probes
from pipeline.stages.graph.partition import Assign, Cells, Order
from pipeline.stages.graph.precomputed import GivenGraph, LoadGraph
from pipeline.stages.graph.radius import RadiusGraph, RadiusProbes
from pipeline.stages.graph.rows import Rows

__all__ = [
    "Assign",
    "Cells",
    "Components",
    "GivenGraph",
    "Graph",
    "LoadGraph",
    "Neighbors",
    "Order",
    "Probes",
    "RadiusGraph",
    "RadiusProbes",
    "Rows",
]
