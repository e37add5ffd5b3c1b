"""What a fit in memory is told: the parameters of an estimator, refused before anything is computed if they are out of
range or do not go together."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from pipeline import methods
from pipeline.errors import InvalidInputError
from pipeline.methods import DIRECTIONAL, DISSIMILARITIES, GRAPH, KERNELS, METHODS, METRICS, SIMILARITIES, VECTORS
from pipeline.numerics import checks
from pipeline.numerics.dimension import Dimension, automatic_components, automatic_rows, dimension_of_points
from pipeline.numerics.directions import unit_points
from pipeline.numerics.extension.reconstruction import DiagonalWeight, check_weight
from pipeline.numerics.geodesics.components import POLICIES, ComponentPolicy
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.models.catalog import Choice
from pipeline.numerics.models.metrics import gamma_in_unit
from pipeline.plugins import load
from pipeline.types import AnyArray

# Of two rows, the number that they are to each other.
Comparing: TypeAlias = Callable[[Any, Any], Any]
PRECOMPUTED = "precomputed"
# What may be precomputed where there is no graph.
GIVEN = (DISSIMILARITIES, SIMILARITIES)
# What stands where a method has no use for a parameter; None for those that are not here.
UNUSED = {
    **{"kernel": "rbf", "shortcuts": "report", "new_edges": "both"},
    **{"degree": 3, "constant": 1.0, "regularization": 1e-3, "n_init": 1},
}


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of an estimator, as they are documented there."""

    n_neighbors: int
    n_components: int | str
    n_landmarks: int | str
    landmark_selection: str
    method: str
    extension: str
    component_policy: ComponentPolicy
    shortcuts: str
    new_edges: str
    metric: str | Comparing
    diagonal_weight: DiagonalWeight
    n_jobs: int | None
    kernel: str | Comparing
    gamma: float | None
    degree: int
    constant: float
    radius: float | None
    n_clusters: int | None
    regularization: float
    stress_neighbors: int | None
    n_init: int
    landmark_weights: str
    precomputed: str
    landmark_indices: Any
    n_evaluated: int | None
    spread: bool
    # Of random starts.
    seed: int
    plugins: tuple[str, ...]

    @property
    def is_geodesic(self) -> bool:
        """Whether distances are measured along a graph."""
        return METHODS[self.method].geodesic

    @property
    def metric_of_points(self) -> str:
        """What points are prepared for: the metric of edges along a graph."""
        return str(self.metric) if self.is_geodesic else "euclidean"

    @property
    def is_precomputed(self) -> bool:
        return isinstance(self.metric, str) and self.metric == PRECOMPUTED

    @property
    def function(self) -> Comparing | None:
        """The function of the user's that compares rows, if there is one."""
        compares = getattr(self, methods.compares_by(self.method))
        return None if isinstance(compares, str) else compares

    @property
    def is_given(self) -> bool:
        """Whether proximities are given, and no graph."""
        return self.is_precomputed and not self.is_geodesic

    @property
    def takes_affinities(self) -> bool:
        """Whether similarities are used as they are."""
        return methods.takes_affinities(self.method, self.input)

    @property
    def induces_distances(self) -> bool:
        """Whether similarities are turned into the distances that they induce."""
        return self.input == SIMILARITIES and not self.takes_affinities

    @property
    def selection(self) -> str:
        """The choice of landmarks: similarities do not say how far apart points are, so by default at random."""
        is_default = self.landmark_selection == "maxmin"
        return "random" if is_default and self.input == SIMILARITIES else self.landmark_selection

    @property
    def clusters(self) -> int | None:
        """How many clusters are to be found."""
        if not methods.uses(self.method, "n_clusters"):
            return None
        return self.components if self.n_clusters is None else self.n_clusters

    @property
    def components(self) -> int:
        """The number of components, once it is known."""
        return int(self.n_components)

    def choice(self, exponent: int, signed: bool = False) -> Choice:
        """The method and what it is told, for dissimilarities in units of 2^exponent of the user's."""
        return Choice(
            method=self.method,
            n_components=self.components,
            extension=self.extension,
            n_neighbors=self.n_neighbors,
            gamma=gamma_in_unit(self.gamma, exponent),
            affinity=self.takes_affinities,
            signed=signed,
            regularization=self.regularization,
            stress_neighbors=self.stress_neighbors,
            n_init=self.n_init,
            seed=self.seed,
        )

    def refuse_own_similarities(self, own: object) -> None:
        """Refuse similarities of points to themselves where nothing uses them."""
        if own is not None:
            raise InvalidInputError(
                f"own_similarities mean nothing with {self._context}; leave them out: only mds makes distances of "
                "similarities (metric='precomputed', precomputed='similarities')."
            )

    def landmark_count(self, n_points: int, where: str) -> int:
        """How many landmarks are taken of so many points."""
        d = checks.integer_in_range("n_components", self.components, 1, n_points - 1, where)
        if self.n_landmarks == "auto":
            return automatic_count(n_points, d)
        return checks.integer_in_range("n_landmarks", self.n_landmarks, d + 1 + self.spread, n_points, where)

    def check(self) -> None:
        """Refuse what is not known, out of range, or does not go together."""
        load(self.plugins)
        methods.method_named(self.method)
        _named_or_function("metric", self.metric, (*METRICS, PRECOMPUTED))
        _named_or_function("kernel", self.kernel, KERNELS)
        methods.one_of("landmark_selection", self.landmark_selection, methods.landmark_choices())
        methods.one_of("component_policy", self.component_policy, POLICIES)
        methods.one_of("shortcuts", self.shortcuts, methods.SHORTCUTS)
        methods.require_new_edges(self.new_edges, self.radius)
        methods.resolved_extension(self.method, self.extension)
        if not (self.is_geodesic and self.is_precomputed):
            methods.require_metric(self.method, self.metric)
        self._check_given()
        methods.require_selection(self.selection, self.input)
        methods.require_extension(self.method, self.extension, self.input)
        methods.require_weights(self.method, self.landmark_weights)
        self._check_numbers()
        unused = self._unused()
        changed = {name: value for name, value in vars(self).items() if name in unused and value != UNUSED.get(name)}
        methods.refuse_unused(changed, unused, self._context)
        check_weight(self.diagonal_weight)
        if self.spread:
            methods.require_spread(self.method, self.extension)

    @property
    def input(self) -> str:
        """The kind of input that a run on disk would have; a function compares vectors here."""
        if not self.is_precomputed:
            return VECTORS
        return GRAPH if self.is_geodesic else self.precomputed

    @property
    def _context(self) -> str:
        return f"method={self.method!r} and metric={methods.named(self.metric)}"

    def _check_given(self) -> None:
        if not self.is_given:
            told = {} if self.precomputed == DISSIMILARITIES else {"precomputed": self.precomputed}
            told |= {} if self.landmark_indices is None else {"landmark_indices": self.landmark_indices}
            methods.refuse_unused(told, told, self._context)
            return
        allowed = [given for given in GIVEN if given in METHODS[self.method].inputs]
        methods.one_of("precomputed", self.precomputed, allowed, f" with method={self.method!r}")

    def _unused(self) -> set[str]:
        """What would be ignored, except n_clusters, which scikit-learn's tools set by its name."""
        unused = methods.unused_settings(self.method, self.kernel, self.input) - {"n_clusters"}
        calls_metric = self.function is not None and methods.compares_by(self.method) == "metric"
        return unused - {"n_evaluated"} if calls_metric else unused

    def _check_numbers(self) -> None:
        # As in scikit-learn, radius and n_neighbors=None may be given together.
        if self.radius is None or self.n_neighbors is not None:
            checks.require_parameter("n_neighbors", self.n_neighbors)
        if self.n_components == "auto":
            methods.require_estimable(self.method, self.input, self.metric, self.kernel)
        else:
            checks.require_parameter("n_components", self.n_components)
        for name in ("degree", "constant", "regularization", "n_init"):
            checks.require_parameter(name, getattr(self, name))
        # scikit-learn's checks set n_clusters=1 wherever there is a parameter of that name.
        clusters = ("n_clusters",) if methods.uses(self.method, "n_clusters") else ()
        for name in ("gamma", "radius", "stress_neighbors", "n_evaluated", *clusters):
            if getattr(self, name) is not None:
                checks.require_parameter(name, getattr(self, name))
        if self.n_landmarks != "auto":
            low = 2 if self.n_components == "auto" else self.components + 1
            checks.integer_in_range("n_landmarks", self.n_landmarks, low, None, "more than n_components, or 'auto'")
        n_jobs: object = self.n_jobs
        if n_jobs is not None and (n_jobs == 0 or not isinstance(n_jobs, Integral)):
            raise InvalidInputError(f"n_jobs={self.n_jobs!r} is not a number of threads; use 1, 2, ... or -1 for all.")


def _named_or_function(name: str, value: object, choices: Collection[str]) -> None:
    if not callable(value):
        methods.one_of(name, value, choices, ", or a function of two rows")


def with_components(settings: Settings, X: AnyArray) -> tuple[Settings, Dimension | None]:
    """The settings with the number of components that the rows of X are found to need, and the estimate that says so;
    None where a number is given."""
    if settings.n_components != "auto":
        return settings, None
    found = dimension_of_rows(settings, X)
    most = min(len(X) - 1, X.shape[1], *([] if settings.n_landmarks == "auto" else [int(settings.n_landmarks) - 1]))
    return replace(settings, n_components=automatic_components(found, len(X), max(1, most))), found


def dimension_of_rows(settings: Settings, X: AnyArray) -> Dimension | None:
    """The intrinsic dimension of the rows of X, or of their directions, by the sample that a run on disk would take."""
    n_rows, n_columns = X.shape
    rows = X[automatic_rows(n_rows, n_columns, settings.seed)]
    metric, n_neighbors = settings.metric_of_points, settings.n_neighbors or 2
    if metric in DIRECTIONAL:
        return dimension_of_points(unit_points(rows, metric, X.dtype), n_neighbors)
    return dimension_of_points(np.ldexp(rows, -int(np.frexp(np.abs(X).max())[1])), n_neighbors)
