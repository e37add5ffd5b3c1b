"""The user's data as blocks of rows, whatever holds it: files, folders, arrays in memory or computed on demand."""

from pipeline.sources.opening import open_source
from pipeline.sources.source import Source

__all__ = ["Source", "open_source"]
