"""Figures of quality, distributions and drift."""
