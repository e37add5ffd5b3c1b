"""Nearest neighbors, exactly ranked: by trees in few dimensions, by matrix products in many, and within a radius."""

from pipeline.numerics.neighbors.exact import nearest_neighbors as nearest_neighbors
