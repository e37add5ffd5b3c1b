"""The settings of every job, as frozen models."""
