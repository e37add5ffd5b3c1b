"""The methods by name, and what goes with each: words only, for settings, the estimator and the stages alike."""

import re
from dataclasses import dataclass

from pipeline.errors import InvalidInputError

CLASSICAL = ("projection", "restricted", "kernel-mapping", "rbf")
NYSTROM = ("projection", "kernel-mapping", "rbf")
STRESS = ("stress", "kernel-mapping", "rbf")
VECTORS, DISSIMILARITIES, SIMILARITIES, OBJECTS, GRAPH = (
    "vectors",
    "dissimilarities",
    "similarities",
    "objects",
    "graph",
)
INPUTS = (VECTORS, DISSIMILARITIES, SIMILARITIES, OBJECTS, GRAPH)
PROXIMITIES = (VECTORS, DISSIMILARITIES, OBJECTS)
METRICS = ("euclidean", "cityblock", "chebyshev", "cosine", "correlation")
KERNELS = ("linear", "rbf", "cosine", "polynomial")
SELECTIONS = ("maxmin", "random", "kmeans", "trace", "cholesky")
# A function that workers can import, such as package.module:function.
IMPORTABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Method:
    """What a method needs and allows. The first of its extensions is its own.

    A geodesic one measures along a neighbor graph, the others straight from the landmarks. Where coordinates are
    lengths, they scale with the data.
    """

    extensions: tuple[str, ...]
    inputs: tuple[str, ...]
    geodesic: bool = False
    coordinates_are_lengths: bool = True


METHODS = {
    "isomap": Method(CLASSICAL, (VECTORS, GRAPH), geodesic=True),
    "kernel-isomap": Method(CLASSICAL, (VECTORS, GRAPH), geodesic=True),
    "mds": Method(CLASSICAL, (*PROXIMITIES, SIMILARITIES)),
    "kernel-mds": Method(CLASSICAL, (VECTORS, OBJECTS)),
    "laplacian": Method(NYSTROM, (*PROXIMITIES, SIMILARITIES), coordinates_are_lengths=False),
    "spectral": Method(NYSTROM, (*PROXIMITIES, SIMILARITIES), coordinates_are_lengths=False),
    "lle": Method(("weights", "kernel-mapping", "rbf"), PROXIMITIES, coordinates_are_lengths=False),
    "metric-mds": Method(STRESS, PROXIMITIES),
    "nonmetric-mds": Method(STRESS, PROXIMITIES),
    "sammon": Method(STRESS, PROXIMITIES),
}
EXTENSIONS = tuple(dict.fromkeys(name for method in METHODS.values() for name in method.extensions))


def resolved_extension(method: str, extension: str) -> str:
    """The extension that is meant; one that the method does not have is refused with those that it has."""
    allowed = METHODS[method].extensions
    if extension == "auto":
        return allowed[0]
    if extension not in allowed:
        raise InvalidInputError(
            f"extension={extension!r} does not go with method={method!r}; use one of {', '.join(map(repr, allowed))}."
        )
    return extension


def require_input(method: str, given: str) -> None:
    """Refuse a kind of input that a method has no use for."""
    allowed = METHODS[method].inputs
    if given not in allowed:
        raise InvalidInputError(
            f"input={given!r} does not go with method={method!r}; use one of {', '.join(map(repr, allowed))}."
        )


def has_two_answers(method: str, extension: str) -> bool:
    """Whether points get both the projection and the restricted reconstruction."""
    own = METHODS[method].extensions
    return own is CLASSICAL and resolved_extension(method, extension) in ("projection", "restricted")
