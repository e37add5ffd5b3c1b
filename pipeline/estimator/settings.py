"""What an estimator is told, and which of it goes together: refused before anything is computed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

from pipeline import methods
from pipeline.errors import InvalidInputError
from pipeline.methods import DISSIMILARITIES, GRAPH, KERNELS, METHODS, METRICS, VECTORS, resolved_extension
from pipeline.numerics import checks
from pipeline.numerics.extension.reconstruction import DiagonalWeight, check_weight
from pipeline.numerics.geodesics.graph import POLICIES, ComponentPolicy
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.models.catalog import Choice
from pipeline.numerics.models.metrics import gamma_in_unit
from pipeline.plugins import load

# Of two rows, the number that they are to each other.
Comparing: TypeAlias = Callable[[Any, Any], Any]
PRECOMPUTED = "precomputed"
# What stands where a method has no use for a parameter; None for those that are not here.
UNUSED = {"kernel": "rbf", "degree": 3, "constant": 1.0, "regularization": 1e-3}


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of an estimator, as they are documented there."""

    n_neighbors: int
    n_components: int
    n_landmarks: int | str
    landmark_selection: str
    method: str
    extension: str
    component_policy: ComponentPolicy
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
    plugins: tuple[str, ...]

    @property
    def is_geodesic(self) -> bool:
        """Whether distances are measured along a graph."""
        return METHODS[self.method].geodesic

    @property
    def is_precomputed(self) -> bool:
        return isinstance(self.metric, str) and self.metric == PRECOMPUTED

    @property
    def function(self) -> Comparing | None:
        """The function of the user's that compares rows, if there is one."""
        compares = getattr(self, methods.compares_by(self.method))
        return None if isinstance(compares, str) else compares

    @property
    def gives_restricted(self) -> bool:
        return resolved_extension(self.method, self.extension) == "restricted"

    @property
    def clusters(self) -> int | None:
        """How many clusters are to be found."""
        if not methods.uses(self.method, "n_clusters"):
            return None
        return self.n_components if self.n_clusters is None else self.n_clusters

    def choice(self, exponent: int, signed: bool = False) -> Choice:
        """The method and what it is told, for dissimilarities in units of 2^exponent of the user's."""
        return Choice(
            method=self.method,
            n_components=self.n_components,
            extension=self.extension,
            n_neighbors=self.n_neighbors,
            gamma=self.gamma_in_unit(exponent),
            signed=signed,
            regularization=self.regularization,
            stress_neighbors=self.stress_neighbors,
        )

    def gamma_in_unit(self, exponent: int) -> float | None:
        """gamma for lengths in units of 2^exponent; None if it is to be found from the landmarks."""
        return gamma_in_unit(self.gamma, exponent)

    def landmark_count(self, n_points: int, where: str) -> int:
        """How many landmarks are taken of so many points."""
        d = checks.integer_in_range("n_components", self.n_components, 1, n_points - 1, where)
        if self.n_landmarks == "auto":
            return automatic_count(n_points, d)
        return checks.integer_in_range("n_landmarks", self.n_landmarks, d + 1, n_points, where)

    def check(self) -> None:
        """Refuse what is not known, out of range, or does not go together."""
        load(self.plugins)
        methods.method_named(self.method)
        _named_or_function("metric", self.metric, (*METRICS, PRECOMPUTED))
        _named_or_function("kernel", self.kernel, KERNELS)
        methods.one_of("landmark_selection", self.landmark_selection, methods.landmark_choices())
        methods.one_of("component_policy", self.component_policy, POLICIES)
        methods.resolved_extension(self.method, self.extension)
        if not (self.is_geodesic and self.is_precomputed):
            methods.require_metric(self.method, self.metric)
        methods.require_selection(self.landmark_selection, self.input)
        self._check_numbers()
        self._check_unused()
        check_weight(self.diagonal_weight)

    @property
    def input(self) -> str:
        """The kind of input that a run on disk would have; a function compares vectors here."""
        if not self.is_precomputed:
            return VECTORS
        return GRAPH if self.is_geodesic else DISSIMILARITIES

    def _check_numbers(self) -> None:
        # As in scikit-learn, radius and n_neighbors=None may be given together.
        if self.radius is None or self.n_neighbors is not None:
            checks.require_parameter("n_neighbors", self.n_neighbors)
        for name in ("n_components", "degree", "constant", "regularization"):
            checks.require_parameter(name, getattr(self, name))
        # scikit-learn's checks set n_clusters=1 wherever there is a parameter of that name.
        clusters = ("n_clusters",) if methods.uses(self.method, "n_clusters") else ()
        for name in ("gamma", "radius", "stress_neighbors", *clusters):
            if getattr(self, name) is not None:
                checks.require_parameter(name, getattr(self, name))
        if self.n_landmarks != "auto":
            low = self.n_components + 1
            checks.integer_in_range("n_landmarks", self.n_landmarks, low, None, "more than n_components, or 'auto'")
        n_jobs: object = self.n_jobs
        if n_jobs is not None and (n_jobs == 0 or not isinstance(n_jobs, Integral)):
            raise InvalidInputError(f"n_jobs={self.n_jobs!r} is not a number of threads; use 1, 2, ... or -1 for all.")

    def _check_unused(self) -> None:
        """Refuse parameters that would be ignored, except n_clusters, which scikit-learn's tools set by its name."""
        unused = methods.unused_settings(self.method, self.kernel, self.input) - {"n_clusters"}
        changed = {name: value for name, value in vars(self).items() if name in unused and value != UNUSED.get(name)}
        methods.refuse_unused(changed, unused, f"method={self.method!r} and metric={methods.named(self.metric)}")


def _named_or_function(name: str, value: object, choices: Collection[str]) -> None:
    if not callable(value):
        methods.one_of(name, value, choices, ", or a function of two rows")
