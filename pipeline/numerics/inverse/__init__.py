"""From coordinates in an embedding back to data, by local interpolation."""
