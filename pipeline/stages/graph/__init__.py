"""Stages that only geodesic distances need: cells, neighbors, the graph, its components, paths along it."""
