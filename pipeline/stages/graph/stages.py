"""The stages of a graph, in their order: those that lead to geodesic distances, and those of new points."""

from pipeline.stages.graph.components import Components as Components
from pipeline.stages.graph.graph import Graph as Graph
from pipeline.stages.graph.neighbors import Neighbors as Neighbors
from pipeline.stages.graph.neighbors import Probes as Probes
from pipeline.stages.graph.partition import Assign as Assign
from pipeline.stages.graph.partition import Cells as Cells
from pipeline.stages.graph.partition import Order as Order
from pipeline.stages.graph.precomputed import GivenGraph as GivenGraph
from pipeline.stages.graph.precomputed import JoinNewNodes as JoinNewNodes
from pipeline.stages.graph.precomputed import LoadGraph as LoadGraph
from pipeline.stages.graph.precomputed import LoadNewNodes as LoadNewNodes
from pipeline.stages.graph.radius import RadiusGraph as RadiusGraph
from pipeline.stages.graph.radius import RadiusProbes as RadiusProbes
from pipeline.stages.graph.reach import Reach as Reach
from pipeline.stages.graph.rows import Rows as Rows
from pipeline.stages.graph.search import Search as Search
from pipeline.stages.graph.search import SearchWithin as SearchWithin
from pipeline.stages.graph.shortcuts import Shortcuts as Shortcuts
from pipeline.stages.graph.shortcuts import to_cut as to_cut
