"""The settings of a fit that choose the method, what is measured and how; and which of them go together."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import InvalidInputError
from pipeline.methods import (
    DISSIMILARITIES,
    GRAPH,
    IMPORTABLE,
    KERNELS,
    METHODS,
    METRICS,
    OBJECTS,
    SELECTIONS,
    SIMILARITIES,
    SPECTRAL,
    VECTORS,
    has_two_answers,
    require_extension,
    require_input,
    resolved_extension,
    unused_settings,
)

MethodName = Literal[
    "isomap",
    "kernel-isomap",
    "mds",
    "kernel-mds",
    "laplacian",
    "spectral",
    "lle",
    "metric-mds",
    "nonmetric-mds",
    "sammon",
]
ExtensionName = Literal["auto", "projection", "restricted", "kernel-mapping", "rbf", "weights", "stress"]
InputName = Literal["vectors", "dissimilarities", "similarities", "objects", "graph"]
SelectionName = Literal["maxmin", "random", "kmeans", "trace", "cholesky"]
# Settings that only mean something for tables of numbers.
OF_VECTORS = ("columns", "id_column", "standardize", "pca", "missing")


class MethodSettings(BaseModel):
    """What is embedded, by which method."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: MethodName = Field("isomap", description="How the landmarks are embedded.")
    extension: ExtensionName = Field(
        "auto",
        description="How other points are placed; auto is the method's own way, with both answers if it has two.",
    )
    input: InputName = Field(
        "vectors",
        description="What the source holds: a table of numbers, landmarks x points proximities, objects for a metric "
        "of yours, or a graph of yours.",
    )
    metric: str = Field(
        "euclidean", description=f"{', '.join(METRICS)}, or a function of two objects as package.module:function."
    )
    kernel: str = Field("rbf", description=f"Of kernel-mds: {', '.join(KERNELS)}, or package.module:function.")
    gamma: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"] = Field(
        "auto", description="Of Gaussian and polynomial kernels; auto is 1 / median squared distance of landmarks."
    )
    degree: int = Field(3, ge=1, le=20, description="Of the polynomial kernel.")
    constant: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="Of the polynomial kernel: what is added to the inner product."
    )
    radius: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Join all points within this distance in the graph, instead of n_neighbors.",
    )
    landmarks_key: str | None = Field(
        None, description="Of proximities: array (or .npy file) with the point that each landmark is."
    )
    own_key: str | None = Field(
        None, description="Of similarities: array (or .npy file) with the similarity of each point to itself."
    )
    n_evaluated: int | None = Field(
        None,
        ge=2,
        description="Of objects: call the metric only for so many of the landmarks, and estimate the other distances.",
    )
    n_clusters: int | None = Field(None, ge=2, description="Of spectral: how many clusters; n_components by default.")
    regularization: float = Field(1e-3, gt=0, lt=1, description="Of lle: keeps the weights of neighbors apart.")
    stress_neighbors: int | None = Field(
        None, ge=1, description="Of sammon: fit only the distances to so many neighbors, not all."
    )
    landmark_selection: SelectionName = Field(
        "maxmin",
        description="Farthest points first, random, centers of k-means, greedily by trace or by a pivoted Cholesky "
        "decomposition, each on a sample; random where distances are evaluated one by one.",
    )

    @property
    def is_geodesic(self) -> bool:
        """Whether distances are measured along a graph."""
        return METHODS[self.method].geodesic

    @property
    def chosen_extension(self) -> str:
        return resolved_extension(self.method, self.extension)

    @property
    def two_answers(self) -> bool:
        """Whether points get both the projection and the restricted reconstruction."""
        return has_two_answers(self.method, self.extension)

    @property
    def takes_affinities(self) -> bool:
        """Whether similarities that are given are taken as they are."""
        return self.input == SIMILARITIES and self.method in SPECTRAL

    @property
    def induces_distances(self) -> bool:
        """Whether similarities that are given are taken for the dissimilarities that they induce."""
        return self.input == SIMILARITIES and not self.takes_affinities

    @property
    def evaluates(self) -> bool:
        """Whether a function of the user's is called for every landmark and point."""
        return IMPORTABLE.fullmatch(self.kernel if self.method == "kernel-mds" else self.metric) is not None

    @property
    def selection(self) -> SelectionName:
        """How landmarks are chosen: by default at random where every distance has its price."""
        by_default = "landmark_selection" not in self.model_fields_set
        return "random" if by_default and (self.evaluates or self.input == SIMILARITIES) else self.landmark_selection

    def check_choices(self) -> None:
        """Refuse choices that do not go together, before anything is opened."""
        require_input(self.method, self.input)
        resolved_extension(self.method, self.extension)
        require_extension(self.method, self.extension, self.input)
        _one_of("metric", self.metric, METRICS)
        _one_of("kernel", self.kernel, KERNELS)
        self._check_metric()
        self._check_selection()
        self._check_unused()

    def _check_metric(self) -> None:
        if self.metric != "euclidean" and (self.is_geodesic or self.method == "kernel-mds"):
            instead = "a kernel" if self.method == "kernel-mds" else "the Euclidean distance along its graph"
            raise InvalidInputError(
                f"metric={self.metric!r} does not go with method={self.method!r}, which uses {instead}; leave it out, "
                "or use method='mds'."
            )
        if self.input == OBJECTS and not self.evaluates:
            name = "kernel" if self.method == "kernel-mds" else "metric"
            raise InvalidInputError(
                f"input='objects' needs a function of two objects: {name}={getattr(self, name)!r} is none; name one as "
                "package.module:function."
            )
        if self.evaluates and self.input != OBJECTS:
            raise InvalidInputError(
                f"{'kernel' if self.method == 'kernel-mds' else 'metric'} names a function of yours, which compares "
                f"objects, and input={self.input!r}: say input='objects' (rows of numbers are objects too)."
            )
        if self.input in (DISSIMILARITIES, SIMILARITIES) and self.metric != "euclidean":
            raise InvalidInputError(
                f"metric={self.metric!r} has nothing to measure: input={self.input!r} is given; leave it out."
            )

    def _check_selection(self) -> None:
        allowed: tuple[str, ...] = SELECTIONS
        if self.evaluates or self.input == SIMILARITIES:
            allowed = ("random",)
        elif self.input == GRAPH:
            allowed = ("random", "maxmin")
        if self.selection not in allowed:
            raise InvalidInputError(
                f"landmark_selection={self.selection!r} needs distances between many points; with this input use "
                f"{' or '.join(map(repr, allowed))}."
            )

    def _check_unused(self) -> None:
        """Refuse settings that would be ignored."""
        unused = {
            "radius": not self.is_geodesic or self.input != VECTORS,
            "landmarks_key": self.input not in (DISSIMILARITIES, SIMILARITIES),
            "own_key": self.input != SIMILARITIES or self.takes_affinities,
            "n_evaluated": self.input != OBJECTS or self.method == "kernel-mds",
            **dict.fromkeys(OF_VECTORS, self.input != VECTORS),
            **dict.fromkeys(unused_settings(self.method, self.kernel, self.takes_affinities), True),
        }
        for name in (name for name, is_unused in unused.items() if is_unused):
            field = type(self).model_fields.get(name)
            if field is not None and getattr(self, name) != field.default:
                raise InvalidInputError(
                    f"{name}={getattr(self, name)!r} means nothing with method={self.method!r} and "
                    f"input={self.input!r}; leave it out."
                )


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices and not IMPORTABLE.fullmatch(value):
        raise InvalidInputError(
            f"{name}={value!r} is not known; use one of {', '.join(map(repr, choices))}, or a function as "
            "package.module:function."
        )
