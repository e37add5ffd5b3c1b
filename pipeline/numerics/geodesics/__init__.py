"""Graphs of neighbors and shortest paths along them."""

from pipeline.numerics.geodesics.rows import shortest_path_rows

__all__ = ["shortest_path_rows"]
