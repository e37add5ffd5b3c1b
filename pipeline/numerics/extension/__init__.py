"""New points in the landmarks' space: projection, restricted reconstruction alone or jointly, and the arc between
them."""

from pipeline.numerics.extension.reconstruction import (
    Reconstruction,
    joint_restricted_reconstruction,
    reconstruction_arc,
    restricted_reconstruction,
)
from pipeline.numerics.mds import project

__all__ = [
    "Reconstruction",
    "joint_restricted_reconstruction",
    "project",
    "reconstruction_arc",
    "restricted_reconstruction",
]
