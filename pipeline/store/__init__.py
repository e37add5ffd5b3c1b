"""A run on disk: checked arrays, small JSON objects, the ledger of what is complete. Nothing else sees zarr."""
