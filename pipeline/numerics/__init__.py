"""Pure functions on arrays: no settings, no storage, no cluster."""
