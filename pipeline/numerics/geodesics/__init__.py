"""Graphs of neighbors and shortest paths along them."""

from pipeline.numerics.geodesics.rows import shortest_path_rows as shortest_path_rows
