"""Experiments of the papers repeated: the tables and pictures of docs/papers.md.

Each module runs as `TRIGPOINT_DATA=... python -m benchmarks.papers.NAME [picture.png]` and prints its table.
"""
