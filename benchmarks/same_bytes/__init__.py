"""Whether two versions of the code give the same bytes: `python -m benchmarks.same_bytes REV`."""
