"""The inverse map on disk: from coordinates in the space of a run back to rows like those of its data."""
