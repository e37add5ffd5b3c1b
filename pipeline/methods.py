"""The registry: methods, extensions, landmark choices, metrics, kernels and parameter ranges, and which go together.

Settings, the estimator and studies all read it and hold no limits of their own. It consists of names, numbers and plain
functions; whatever computes is in `numerics`. METHODS and `landmark_choices` include what plugins add.
"""

import re
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.errors import InvalidInputError
from pipeline.plugins import LOADED

CLASSICAL = ("projection", "restricted", "kernel-mapping", "rbf")
NYSTROM = ("projection", "kernel-mapping", "rbf")
STRESS = ("stress", "kernel-mapping", "rbf")
# Extensions that work with any configuration, since they need nothing but the distances to the landmarks.
OF_DISTANCES = ("kernel-mapping", "rbf")
INPUTS = ("vectors", "dissimilarities", "similarities", "objects", "graph")
VECTORS, DISSIMILARITIES, SIMILARITIES, OBJECTS, GRAPH = INPUTS
PROXIMITIES = (VECTORS, DISSIMILARITIES, OBJECTS)
# Metrics for which only the direction of a row counts: scaling a row does not change them.
DIRECTIONAL = ("cosine", "angular", "correlation")
METRICS = ("euclidean", "cityblock", "chebyshev", *DIRECTIONAL)
# Those that edges of a neighbor graph can be measured by: all find neighbors by Euclidean distances.
EDGE_METRICS = ("euclidean", *DIRECTIONAL)
# Each kernel with the parameters it uses.
KERNELS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "rbf": ("gamma",),
    "cosine": (),
    "polynomial": ("gamma", "degree", "constant"),
}
# Radial basis functions of the inverse map: kind and power of each; those without a power have a scale.
RADIAL_FUNCTIONS: dict[str, tuple[str, int | None]] = {
    "cubic": ("power", 3),
    "power-1": ("power", 1),
    "power-5": ("power", 5),
    "power-7": ("power", 7),
    "thin-plate": ("thin_plate", 2),
    "thin-plate-4": ("thin_plate", 4),
    "thin-plate-6": ("thin_plate", 6),
    "gaussian": ("gaussian", None),
    "shepard": ("shepard", None),
}
SELECTIONS = ("maxmin", "random", "kmeans", "trace", "cholesky")
# How much landmarks count in classical scaling: alike, or by how many rows each stands for.
LANDMARK_WEIGHTS = ("none", "counts")
# Which edges a new point has: its own and those of fitted points that would take it, or only its own.
BOTH, OWN = "both", "own"
NEW_EDGES = (BOTH, OWN)
# What to do with likely short circuits of a graph.
SHORTCUTS = ("report", "cut")
# Landmark choices that get along with single distances, or with paths from single nodes.
ONE_BY_ONE, ALONG_A_GRAPH = ("random",), ("random", "maxmin")
# A function that workers can import, such as package.module:function.
IMPORTABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Range:
    """The valid range of a number, both ends included unless `above` excludes the lower one."""

    low: float
    high: float | None = None
    whole: bool = False
    above: bool = False
    about: str = ""


GAMMA_RANGE = (1e-300, 1e300)
RANGES = {
    "n_neighbors": Range(1, whole=True, about="edges of each point"),
    "n_components": Range(1, whole=True, about="coordinates of the embedding"),
    "recall": Range(0.5, 1.0, above=True),
    # The secular equation of restricted reconstruction stays within double precision.
    "diagonal_weight": Range(1e-30, 1e30),
    # Squared distances stay within double precision.
    "radius": Range(1e-150, 1e150),
    "gamma": Range(*GAMMA_RANGE),
    "degree": Range(1, 100, whole=True, about="the degree of a polynomial"),
    # With a negative constant the polynomial would not be a kernel.
    "constant": Range(0.0, 1e150),
    "n_clusters": Range(2, whole=True, about="clusters to find"),
    # Below, rounding takes over; above, all neighbors have the same weight.
    "regularization": Range(1e-12, 1e3),
    "stress_neighbors": Range(1, whole=True, about="distances of each landmark"),
    "n_init": Range(1, 1000, whole=True, about="starts of the search for the least stress"),
    "n_evaluated": Range(2, whole=True, about="landmarks that points are compared with"),
    "joint": Range(2, 1024, whole=True, about="rows reconstructed together"),
    "arc": Range(2, 4096, whole=True, about="positions on an arc, both ends included"),
}


@dataclass(frozen=True)
class Method:
    """What a method needs and allows; the first of its extensions is its default.

    A geodesic method measures along a neighbor graph, the others straight from the landmarks. Coordinates that are
    lengths scale with the data. With `takes_affinities`, similarities are used as they are; other methods use the
    distances that they induce. With `returns_by_itself`, a landmark returns to its place only by its row's own entry.

    An embedding is judged by what the method aims at: the residual `variance` of distances, their `stress`, or how well
    `neighbors` are kept.

    A plugin's method also has `fit`, which makes a model from a `catalog.Choice` and the dissimilarities (m, m) between
    landmarks, and `model`, the dataclass that a store's arrays are loaded into (None for one of the built-in classes).
    """

    extensions: tuple[str, ...]
    inputs: tuple[str, ...]
    geodesic: bool = False
    coordinates_are_lengths: bool = True
    parameters: tuple[str, ...] = ()
    takes_affinities: bool = False
    returns_by_itself: bool = False
    fit: Callable[[Any, Any], Any] | None = None
    model: type[Any] | None = None
    judged_by: str = "variance"


# Neighbors by default.
N_NEIGHBORS = 10


def fewer_neighbors(n_neighbors: int, n_points: int) -> int:
    """The number of neighbors asked for; if it is the default, no more than so many points have."""
    return max(1, min(n_neighbors, n_points - 1)) if n_neighbors == N_NEIGHBORS else n_neighbors


_ALONG_PATHS = Method(
    CLASSICAL,
    (VECTORS, GRAPH),
    geodesic=True,
    parameters=("n_neighbors", "radius", "new_edges", "shortcuts", "landmark_weights"),
)
_AFFINE = Method(
    NYSTROM, (*PROXIMITIES, SIMILARITIES), coordinates_are_lengths=False, takes_affinities=True, judged_by="neighbors"
)
_BUILT_IN = {
    "isomap": _ALONG_PATHS,
    "kernel-isomap": _ALONG_PATHS,
    "mds": Method(CLASSICAL, (*PROXIMITIES, SIMILARITIES), parameters=("landmark_weights",)),
    "kernel-mds": Method(CLASSICAL, (VECTORS, OBJECTS), parameters=("kernel", "landmark_weights")),
    "laplacian": replace(_AFFINE, parameters=("gamma",), returns_by_itself=True),
    "spectral": replace(_AFFINE, parameters=("gamma", "n_clusters")),
    "lle": Method(
        ("weights", "kernel-mapping", "rbf"),
        PROXIMITIES,
        coordinates_are_lengths=False,
        parameters=("n_neighbors", "regularization"),
        returns_by_itself=True,
        judged_by="neighbors",
    ),
    "metric-mds": Method(STRESS, PROXIMITIES, parameters=("n_init",), judged_by="stress"),
    # The order of dissimilarities says nothing about lengths.
    "nonmetric-mds": Method(STRESS, PROXIMITIES, coordinates_are_lengths=False, parameters=("n_init",)),
    "sammon": Method(STRESS, PROXIMITIES, parameters=("stress_neighbors", "n_init"), judged_by="stress"),
}
# Built-in names come first in a lookup: a plugin cannot replace them.
METHODS: Mapping[str, Method] = ChainMap(_BUILT_IN, LOADED.methods)
EXTENSIONS = tuple(dict.fromkeys(name for method in _BUILT_IN.values() for name in method.extensions))
# Settings that only some methods, kernels or inputs use.
OF_METHODS = {
    *("kernel", "radius", "new_edges", "shortcuts", *KERNELS["polynomial"]),
    *("n_clusters", "regularization", "stress_neighbors", "n_init"),
}
OF_VECTORS = ("columns", "exclude", "id_column", "standardize", "pca", "missing")


def landmark_choices() -> tuple[str, ...]:
    """All names of landmark choices, those of plugins last."""
    return (*SELECTIONS, *(name for name in LOADED.landmark_choices if name not in SELECTIONS))


def one_of(name: str, value: object, choices: Collection[str], otherwise: str = "") -> str:
    """`value` if it is one of `choices`; otherwise an error that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name}={value!r} is not known; use one of {listed(choices)}{otherwise}.")
    return value


def method_named(name: str) -> Method:
    """A method by its name."""
    return METHODS[one_of("method", name, METHODS, ", or name the plugin that adds it in plugins")]


def uses(method: str, parameter: str) -> bool:
    """Whether a method itself has a parameter."""
    return parameter in METHODS[method].parameters


def resolved_extension(method: str, extension: str) -> str:
    """The extension that is meant; one that the method does not have is refused."""
    allowed = METHODS[method].extensions
    return allowed[0] if extension == "auto" else _allowed("extension", extension, method, allowed)


def require_input(method: str, given: str) -> None:
    """Refuse a kind of input that a method cannot use."""
    _allowed("input", given, method, METHODS[method].inputs)


def takes_affinities(method: str, given: str) -> bool:
    """Whether a method takes the similarities that are given as they are."""
    return given == SIMILARITIES and METHODS[method].takes_affinities


def _allowed(name: str, value: str, method: str, allowed: Collection[str]) -> str:
    if value not in allowed:
        raise InvalidInputError(f"{name}={value!r} does not go with method={method!r}; use one of {listed(allowed)}.")
    return value


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


def require_metric(method: str, metric: object, given: str = VECTORS) -> None:
    """Refuse a metric that the method cannot measure by, or where nothing is left to measure."""
    if isinstance(metric, str) and metric == "euclidean":
        return
    if uses(method, "kernel"):
        raise InvalidInputError(
            f"metric={named(metric)} does not go with method={method!r}, which uses a kernel; leave it out, or use "
            "method='mds'."
        )
    if given in (DISSIMILARITIES, SIMILARITIES, GRAPH):
        raise InvalidInputError(
            f"metric={named(metric)} has nothing to measure: input={given!r} is given; leave it out."
        )
    if METHODS[method].geodesic and metric not in EDGE_METRICS:
        raise InvalidInputError(
            f"metric={named(metric)} does not go with method={method!r}, which measures along a graph; use one of "
            f"{listed(EDGE_METRICS)}, or method='mds'."
        )


def compares_by(method: str) -> str:
    """The setting that says how a method compares two objects."""
    return "kernel" if uses(method, "kernel") else "metric"


def require_function(method: str, value: str, given: str) -> None:
    """Refuse objects without a function that compares them, and such a function for any other input."""
    name, is_function = compares_by(method), IMPORTABLE.fullmatch(value) is not None
    if given == OBJECTS and not is_function:
        raise InvalidInputError(
            f"input='objects' needs a function of two objects, and {name}={value!r} is not one; name it as "
            "package.module:function."
        )
    if is_function and given != OBJECTS:
        raise InvalidInputError(
            f"{name}={value!r} is a function of two objects, and input={given!r}: use input='objects' (rows of numbers "
            "are objects too)."
        )


def selections_for(given: str, one_by_one: bool = False) -> tuple[str, ...]:
    """The landmark choices for a kind of input; `one_by_one` if each distance costs a call of the user's function."""
    if one_by_one or given == SIMILARITIES:
        return ONE_BY_ONE
    if given == GRAPH:
        return ALONG_A_GRAPH
    return landmark_choices() if given in (VECTORS, OBJECTS) else SELECTIONS


def require_selection(selection: str, given: str, one_by_one: bool = False) -> None:
    """Refuse a landmark choice that needs more than the input offers."""
    allowed = selections_for(given, one_by_one)
    if selection not in allowed:
        raise InvalidInputError(
            f"landmark_selection={selection!r} needs distances between many points; with this input use "
            f"{' or '.join(map(repr, allowed))}."
        )


def require_weights(method: str, landmark_weights: str) -> None:
    """Refuse weights of landmarks for methods other than classical scaling."""
    one_of("landmark_weights", landmark_weights, LANDMARK_WEIGHTS)
    if landmark_weights != "none" and not uses(method, "landmark_weights"):
        takes = [name for name in METHODS if uses(name, "landmark_weights")]
        raise InvalidInputError(
            f"landmark_weights={landmark_weights!r} does not go with method={method!r}: weights belong to classical "
            f"scaling, as centers and axes are weighted; leave it out, or use {listed(takes)}."
        )


def require_new_edges(new_edges: str, radius: float | None) -> None:
    """Refuse a choice where there is none: within a radius every edge is there from both its ends."""
    one_of("new_edges", new_edges, NEW_EDGES)
    if new_edges != BOTH and radius is not None:
        raise InvalidInputError(
            f"new_edges={new_edges!r} means nothing with radius={radius:g}, where edges have no direction; leave it "
            "out."
        )


def publishes_both(method: str, extension: str) -> bool:
    """Whether points get both the projection and the restricted reconstruction."""
    chosen = resolved_extension(method, extension)
    return METHODS[method].extensions == CLASSICAL and chosen in ("projection", "restricted")


def require_spread(method: str, extension: str) -> None:
    """Refuse the column `spread` for points that are not placed by least squares."""
    if not publishes_both(method, extension):
        raise InvalidInputError(
            f"spread=True goes with isomap, kernel-isomap, mds and kernel-mds, placed by projection or restricted, "
            f"not with method={method!r} and extension={resolved_extension(method, extension)!r}; leave it out."
        )


def require_estimable(method: str, given: str, metric: object, kernel: object) -> None:
    """Refuse an automatic number of components where the data's own dimension is not known or not what counts."""
    why = None
    if given != VECTORS or callable(metric) or (uses(method, "kernel") and callable(kernel)):
        why = "it is estimated from Euclidean distances between rows of numbers, and here there are none"
    elif (metric in DIRECTIONAL and not METHODS[method].geodesic) or (uses(method, "kernel") and kernel in DIRECTIONAL):
        why = "it is estimated from Euclidean distances, and here the lengths of rows do not matter"
    elif uses(method, "n_clusters"):
        why = "this method has as many components as there are clusters to be found"
    if why is not None:
        raise InvalidInputError(f"n_components='auto' does not go with method={method!r} here: {why}; use a number.")


def unused_settings(method: str, kernel: object, given: str) -> set[str]:
    """The settings that a method would ignore, with a kernel (a name or a function) and a kind of input."""
    chosen = METHODS[method]
    of_input = {
        "landmarks_key": given in (DISSIMILARITIES, SIMILARITIES),
        "own_key": given == SIMILARITIES and not chosen.takes_affinities,
        "n_evaluated": given == OBJECTS and not uses(method, "kernel"),
        **dict.fromkeys(OF_VECTORS, given == VECTORS),
    }
    of_kernel = KERNELS.get(kernel, ()) if uses(method, "kernel") and isinstance(kernel, str) else ()
    used = {*chosen.parameters, *of_kernel, *(name for name, is_used in of_input.items() if is_used)}
    if given == SIMILARITIES and chosen.takes_affinities:
        used -= {"gamma"}
    if given != VECTORS:
        used -= {"radius", "new_edges"}
    return {*OF_METHODS, *of_input} - used


def refuse_unused(given: Mapping[str, object], unused: Collection[str], context: str) -> None:
    """Refuse settings, given with values that are not their defaults, that would be ignored."""
    for name, value in given.items():
        if name in unused:
            raise InvalidInputError(f"{name}={value!r} means nothing with {context}; leave it out.")


def named(value: object) -> str:
    """A name or a function as an error shows it."""
    return repr(value) if isinstance(value, str) else getattr(value, "__name__", repr(value))


def listed(choices: Collection[str]) -> str:
    """Choices as an error lists them."""
    return ", ".join(map(repr, choices))
