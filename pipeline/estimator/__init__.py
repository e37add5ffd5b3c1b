"""LandmarkIsomap and its fits in memory: the numerics of a run on disk, without its stages."""
