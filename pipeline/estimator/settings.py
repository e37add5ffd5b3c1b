"""What an estimator is told, and which of it goes together: refused before anything is computed."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from pipeline.errors import InvalidInputError
from pipeline.methods import GAMMA_RANGE, KERNELS, METHODS, METRICS, SELECTIONS, resolved_extension, unused_settings
from pipeline.numerics import checks
from pipeline.numerics.extension.reconstruction import DiagonalWeight, check_weight
from pipeline.numerics.geodesics.graph import POLICIES, ComponentPolicy
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.models.catalog import Choice
from pipeline.numerics.models.kernels import Kernel, gamma_in_unit
from pipeline.numerics.models.lle import REGULARIZATION_RANGE

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
    random_state: Any
    n_jobs: int | None
    kernel: str | Comparing
    gamma: float | None
    degree: int
    constant: float
    radius: float | None
    n_clusters: int | None
    regularization: float
    stress_neighbors: int | None

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
        compares = self.kernel if self.method == "kernel-mds" else self.metric
        return None if isinstance(compares, str) else compares

    @property
    def gives_restricted(self) -> bool:
        return resolved_extension(self.method, self.extension) == "restricted"

    @property
    def clusters(self) -> int | None:
        """How many clusters are to be found."""
        if self.method != "spectral":
            return None
        return self.n_components if self.n_clusters is None else self.n_clusters

    @property
    def n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    def seed(self) -> int:
        """A whole number is the seed itself, as in a run on disk: both then choose the same landmarks."""
        state = check_random_state(self.random_state)
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(state.randint(np.iinfo(np.int32).max))

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
        checks.one_of("method", self.method, tuple(METHODS))
        _named_or_function("metric", self.metric, (*METRICS, PRECOMPUTED))
        _named_or_function("kernel", self.kernel, KERNELS)
        checks.one_of("landmark_selection", self.landmark_selection, SELECTIONS)
        checks.one_of("component_policy", self.component_policy, POLICIES)
        resolved_extension(self.method, self.extension)
        self._check_metric()
        self._check_selection()
        self._check_numbers()
        self._check_numbers_of_methods()
        self._check_unused()
        check_weight(self.diagonal_weight)

    def _check_metric(self) -> None:
        allowed = ("euclidean", PRECOMPUTED) if self.is_geodesic else ("euclidean",)
        if (self.is_geodesic or self.method == "kernel-mds") and self.metric not in allowed:
            instead = "a kernel" if self.method == "kernel-mds" else "the Euclidean distance along its graph"
            raise InvalidInputError(
                f"metric={named(self.metric)} does not go with method={self.method!r}, which uses {instead}; leave it "
                "out, or use method='mds'."
            )

    def _check_selection(self) -> None:
        allowed = ("random", "maxmin") if self.is_geodesic and self.is_precomputed else SELECTIONS
        if self.landmark_selection not in allowed:
            raise InvalidInputError(
                f"landmark_selection={self.landmark_selection!r} needs distances between many points; with this input "
                f"use {' or '.join(map(repr, allowed))}."
            )

    def _check_numbers(self) -> None:
        # As in scikit-learn, a radius may stand beside n_neighbors=None.
        if self.radius is None or self.n_neighbors is not None:
            checks.integer_in_range("n_neighbors", self.n_neighbors, 1, None, "edges of each point")
        checks.integer_in_range("n_components", self.n_components, 1, None, "coordinates of the embedding")
        if self.n_landmarks != "auto":
            low = self.n_components + 1
            checks.integer_in_range("n_landmarks", self.n_landmarks, low, None, "more than n_components, or 'auto'")
        n_jobs: object = self.n_jobs
        if n_jobs is not None and (n_jobs == 0 or not isinstance(n_jobs, Integral)):
            raise InvalidInputError(f"n_jobs={self.n_jobs!r} is not a number of threads; use 1, 2, ... or -1 for all.")

    def _check_numbers_of_methods(self) -> None:
        if self.gamma is not None:
            checks.number_in_range("gamma", self.gamma, *GAMMA_RANGE)
        if self.radius is not None:
            checks.number_in_range("radius", self.radius, checks.SMALLEST_SIZE, checks.LARGEST_SIZE)
        if self.n_clusters is not None:
            checks.integer_in_range("n_clusters", self.n_clusters, 1, None, "clusters to find")
        if self.stress_neighbors is not None:
            checks.integer_in_range("stress_neighbors", self.stress_neighbors, 1, None, "distances of each landmark")
        checks.number_in_range("regularization", self.regularization, *REGULARIZATION_RANGE)
        Kernel("polynomial", degree=self.degree, constant=self.constant)

    def _check_unused(self) -> None:
        """Refuse settings that would be ignored; but for n_clusters, which scikit-learn's tools set wherever it is."""
        unused = {
            "radius": not self.is_geodesic or self.is_precomputed,
            **dict.fromkeys(unused_settings(self.method, self.kernel) - {"n_clusters"}, True),
        }
        for name in (name for name, is_unused in unused.items() if is_unused):
            if getattr(self, name) != UNUSED.get(name):
                raise InvalidInputError(
                    f"{name}={getattr(self, name)!r} means nothing with method={self.method!r} and "
                    f"metric={named(self.metric)}; leave it out."
                )


def named(value: str | Comparing) -> str:
    """A name or a function as an error shows it."""
    return repr(value) if isinstance(value, str) else getattr(value, "__name__", repr(value))


def _named_or_function(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not callable(value) and (not isinstance(value, str) or value not in choices):
        raise InvalidInputError(
            f"{name}={value!r} is not known; use one of {', '.join(map(repr, choices))}, or a function of two rows."
        )
