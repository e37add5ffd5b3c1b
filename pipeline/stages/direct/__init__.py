"""Stages of methods that measure straight from the landmarks: rows stay in the order of the source."""
