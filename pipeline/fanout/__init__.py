"""The partitions of a stage on a Dask cluster; the only package that knows Dask."""
