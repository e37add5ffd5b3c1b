"""The methods by name, and what goes with each: words only, for settings, the estimator and the stages alike."""

import re
from dataclasses import dataclass

from pipeline.errors import InvalidInputError

CLASSICAL = ("projection", "restricted", "kernel-mapping", "rbf")
NYSTROM = ("projection", "kernel-mapping", "rbf")
STRESS = ("stress", "kernel-mapping", "rbf")
# Extensions of any configuration, which only need the distances to the landmarks.
OF_DISTANCES = ("kernel-mapping", "rbf")
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
GAMMA_RANGE = (1e-300, 1e300)
KERNELS = ("linear", "rbf", "cosine", "polynomial")
# Settings that one method alone has, and all that not every method has.
OWNERS = {"regularization": "lle", "n_clusters": "spectral", "stress_neighbors": "sammon"}
OF_METHODS = {"kernel", "gamma", "degree", "constant", *OWNERS}
# Methods that turn dissimilarities into affinities, and take similarities for those.
SPECTRAL = ("laplacian", "spectral")
# Methods that know a landmark from a point beside it by a dissimilarity of exactly 0 to itself.
ZERO_IS_ITSELF = ("laplacian", "lle")
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


def require_extension(method: str, extension: str, given: str) -> None:
    """Refuse an extension by distances where similarities are given: those between landmarks need not be distances."""
    if given != SIMILARITIES or resolved_extension(method, extension) not in OF_DISTANCES:
        return
    allowed = [name for name in METHODS[method].extensions if name not in OF_DISTANCES]
    raise InvalidInputError(
        f"extension={extension!r} places points by distances, and input='similarities' has none: use "
        f"{' or '.join(map(repr, allowed))}, or give the distances sqrt(s_ii - 2 s_ij + s_jj) with "
        "input='dissimilarities'."
    )


def unused_settings(method: str, kernel: object, affinities: bool = False) -> set[str]:
    """Which settings of methods and kernels would be ignored by a method, with a kernel by name or a function, and on
    affinities as they are given."""
    by_kernel = method == "kernel-mds"
    used = {"kernel"} if by_kernel else set()
    if (method in SPECTRAL and not affinities) or (by_kernel and kernel in ("rbf", "polynomial")):
        used |= {"gamma"}
    if by_kernel and kernel == "polynomial":
        used |= {"degree", "constant"}
    return OF_METHODS - used - {name for name, owner in OWNERS.items() if owner == method}


def has_two_answers(method: str, extension: str) -> bool:
    """Whether points get both the projection and the restricted reconstruction."""
    own = METHODS[method].extensions
    return own is CLASSICAL and resolved_extension(method, extension) in ("projection", "restricted")
