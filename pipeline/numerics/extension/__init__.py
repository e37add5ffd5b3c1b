"""New points in the landmarks' space: projection, restricted reconstruction (also joint), the arc between them."""

from pipeline.numerics.extension.joint import joint_restricted_reconstruction as joint_restricted_reconstruction
from pipeline.numerics.extension.reconstruction import Reconstruction as Reconstruction
from pipeline.numerics.extension.reconstruction import reconstruction_arc as reconstruction_arc
from pipeline.numerics.extension.reconstruction import restricted_reconstruction as restricted_reconstruction
from pipeline.numerics.mds import project as project
