"""The stages by which new points find their neighbors among the fitted nodes, in their order."""

from pipeline.stages.graph.partition import Assign, Order
from pipeline.stages.graph.precomputed import JoinNewNodes, LoadNewNodes
from pipeline.stages.graph.search import Search, SearchWithin

__all__ = ["Assign", "JoinNewNodes", "LoadNewNodes", "Order", "Search", "SearchWithin"]
