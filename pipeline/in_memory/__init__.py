"""Fits of data that fits into memory, for the estimator: the numerics of a run on disk, without its stages."""
