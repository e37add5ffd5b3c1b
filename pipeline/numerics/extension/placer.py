"""What every way of placing points has in common: dissimilarities to the landmarks in, coordinates out.

A placer is a frozen dataclass whose fields are arrays, numbers and words only, so that a run can keep it without
pickling; `place` works row by row, so that a row's bytes do not depend on the rows beside it.
"""

from typing import NamedTuple, Protocol

from pipeline.types import AnyArray, FloatArray


class Placement(NamedTuple):
    """Coordinates (p, d) of points, and a number (p,) for each that grows as it fits the landmarks less well."""

    coordinates: FloatArray
    residual: FloatArray


class Placer(Protocol):
    """Landmarks with coordinates (m, d), and a way to place other points among them."""

    @property
    def coordinates(self) -> FloatArray: ...

    @property
    def residual_degree(self) -> int:
        """The power of a length that the residual is: it scales so with the dissimilarities."""
        ...

    def place(self, to_landmarks: AnyArray) -> Placement:
        """Place points by their dissimilarities (p, m), not squared, to the landmarks."""
        ...
