"""What all fits in memory share: what they are told, refused before anything is computed if it does not go together; a
model that is asked about points; and what a fit leaves behind."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pipeline import methods
from pipeline.errors import InvalidInputError
from pipeline.methods import DIRECTIONAL, DISSIMILARITIES, GRAPH, KERNELS, METHODS, METRICS, VECTORS, resolved_extension
from pipeline.numerics import checks
from pipeline.numerics.dimension import Dimension, automatic_components, automatic_rows, dimension_of_points
from pipeline.numerics.directions import require_directions, unit_points
from pipeline.numerics.extension.placement import Answers, weighted_answers
from pipeline.numerics.extension.reconstruction import DiagonalWeight, check_weight
from pipeline.numerics.geodesics.graph import POLICIES, ComponentPolicy, collapse_duplicates
from pipeline.numerics.geodesics.shortcuts import Listed
from pipeline.numerics.landmarks.sampling import automatic_count
from pipeline.numerics.landmarks.weights import NearestLandmarks, landmark_counts
from pipeline.numerics.mds import LandmarkModel, Model
from pipeline.numerics.models.catalog import Choice, fitted_model
from pipeline.numerics.models.lle import LlePlacer
from pipeline.numerics.models.metrics import gamma_in_unit
from pipeline.numerics.models.spectral import NystromPlacer
from pipeline.plugins import load
from pipeline.types import AnyArray, FloatArray, IntArray, SparseArray

# Of two rows, the number that they are to each other.
Comparing: TypeAlias = Callable[[Any, Any], Any]
PRECOMPUTED = "precomputed"
# What stands where a method has no use for a parameter; None for those that are not here.
UNUSED = {"kernel": "rbf", "shortcuts": "report", "degree": 3, "constant": 1.0, "regularization": 1e-3, "n_init": 1}
# Rows whose dissimilarities to the landmarks are looked at together: what an embedding needs beside its result.
ROWS_PER_CHUNK = 4096


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
            signed=signed,
            regularization=self.regularization,
            stress_neighbors=self.stress_neighbors,
            n_init=self.n_init,
            seed=self.seed,
        )

    def landmark_count(self, n_points: int, where: str) -> int:
        """How many landmarks are taken of so many points."""
        d = checks.integer_in_range("n_components", self.components, 1, n_points - 1, where)
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
        methods.one_of("shortcuts", self.shortcuts, methods.SHORTCUTS)
        methods.resolved_extension(self.method, self.extension)
        if not (self.is_geodesic and self.is_precomputed):
            methods.require_metric(self.method, self.metric)
        methods.require_selection(self.landmark_selection, self.input)
        methods.require_weights(self.method, self.landmark_weights)
        self._check_numbers()
        # Except n_clusters, which scikit-learn's tools set by its name.
        unused = methods.unused_settings(self.method, self.kernel, self.input) - {"n_clusters"}
        changed = {name: value for name, value in vars(self).items() if name in unused and value != UNUSED.get(name)}
        methods.refuse_unused(changed, unused, f"method={self.method!r} and metric={methods.named(self.metric)}")
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
        if self.n_components == "auto":
            methods.require_estimable(self.method, self.input, self.metric, self.kernel)
        else:
            checks.require_parameter("n_components", self.n_components)
        for name in ("degree", "constant", "regularization", "n_init"):
            checks.require_parameter(name, getattr(self, name))
        # scikit-learn's checks set n_clusters=1 wherever there is a parameter of that name.
        clusters = ("n_clusters",) if methods.uses(self.method, "n_clusters") else ()
        for name in ("gamma", "radius", "stress_neighbors", *clusters):
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


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model, the answer of it that is wanted, and the power of two that takes coordinates to the user's units."""

    answers: Answers
    wanted: str
    exponent: int

    def coordinates(self, to_landmarks: AnyArray) -> FloatArray:
        """Coordinates (p, d) of points given by their dissimilarities (p, m); a row's bytes depend on it alone."""
        d = self.answers.n_components
        first = d * self.answers.coordinates.index(self.wanted)
        found = self.answers.of(to_landmarks).coordinates[:, first : first + d]
        return np.asarray(np.ldexp(found, self.exponent))

    def embedded(self, n_points: int, to_landmarks: Callable[[slice], AnyArray]) -> FloatArray:
        """Coordinates (n, d) of all points, whose dissimilarities are had for some of them at a time."""
        out = np.empty((n_points, self.answers.n_components))
        for chunk in chunks(n_points):
            out[chunk] = self.coordinates(to_landmarks(chunk))
        return out

    @property
    def eigenvalues(self) -> FloatArray | None:
        """Those (d,) that belong to the coordinates, in the user's units, if the model has any."""
        model = self.answers.model
        if isinstance(model, LandmarkModel):
            return np.asarray(np.ldexp(model.eigenvalues, 2 * self.exponent))
        return model.eigenvalues if isinstance(model, NystromPlacer | LlePlacer) else None


@dataclass(frozen=True, eq=False)
class Space(ABC):
    """A fitted space and the way into it."""

    embedder: Embedder

    @property
    def takes_edges(self) -> bool:
        """Whether new rows are edges to the training points, in a sparse matrix."""
        return False

    @abstractmethod
    def placed(self, rows: Any, n_threads: int) -> FloatArray:
        """Coordinates (p, d) of new rows, in the user's units."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A space, the coordinates (n, d) and components (n,) of all rows in it, the rows (m,) that are landmarks, and the
    likely short circuits of a graph."""

    space: Space
    embedding: FloatArray
    landmarks: IntArray
    components: IntArray | None = None
    short_circuits: list[Listed] | None = None

    @property
    def model(self) -> Model:
        return self.space.embedder.answers.model


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


def counts_of(
    settings: Settings,
    to_landmarks: Callable[[slice], AnyArray],
    landmarks: IntArray,
    rows: IntArray,
    n_rows: IntArray,
) -> IntArray | None:
    """How many rows each landmark (m,), by its place among the points, stands for, if that is wanted: of points (u,)
    with their first `rows`, each of which is `n_rows` rows, and whose dissimilarities are had for some at a time."""
    if settings.landmark_weights == "none":
        return None
    found = []
    for chunk in chunks(len(rows)):
        lengths = to_landmarks(chunk)
        nearest = NearestLandmarks(rows[landmarks], len(lengths))
        nearest.add(lengths)
        found.append(nearest.places)
    return landmark_counts(np.concatenate(found), np.arange(len(rows)), landmarks, n_rows)


def embedder_of(
    settings: Settings,
    between: FloatArray,
    shape: tuple[int, int],
    exponent: int,
    signed: bool = False,
    weights: IntArray | None = None,
) -> Embedder:
    """The landmarks embedded by their dissimilarities (m, m), in units of 2^exponent, of data of some shape."""
    try:
        model = fitted_model(settings.choice(exponent, signed), between, weights)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} (n_samples={shape[0]}, n_features={shape[1]})") from error
    lengths = METHODS[settings.method].coordinates_are_lengths
    is_restricted = resolved_extension(settings.method, settings.extension) == "restricted"
    wanted = "restricted" if is_restricted else "projection"
    return Embedder(weighted_answers(model, settings.diagonal_weight), wanted, exponent if lengths else 0)


class Distinct(NamedTuple):
    """Distinct rows as points (u, D) in units of 2^exponent; the first row (u,) of each, and each row's point (n,)."""

    points: AnyArray
    first_rows: IntArray
    node_of: IntArray
    exponent: int


def distinct_points(X: AnyArray) -> Distinct:
    """The rows of X, each counted once, scaled so that every square stays within range."""
    checks.require_not_too_small("X", X)
    exponent = int(np.frexp(np.abs(X).max())[1])
    return _distinct(np.ldexp(X, -exponent), exponent, "are identical")


def distinct_directions(X: AnyArray, metric: str) -> Distinct:
    """The directions of the rows of X by a metric, each counted once; an error by number for those that have none."""
    require_directions("X", X, metric)
    return _distinct(unit_points(X, metric, X.dtype), 0, "have the same direction")


def _distinct(points: AnyArray, exponent: int, alike: str) -> Distinct:
    first_rows, node_of, _ = collapse_duplicates(points)
    if len(first_rows) == 1:
        raise InvalidInputError(f"all {len(points)} rows of X {alike}; there is nothing to embed.")
    return Distinct(points[first_rows], first_rows, node_of, exponent)


def in_unit(rows: AnyArray, exponent: int) -> FloatArray:
    """New rows (p, D) in units of 2^exponent, those of the training data, as far as that can be squared."""
    points = np.ldexp(rows.astype(np.float64), -exponent)
    if np.abs(points).max() > checks.LARGEST_SIZE:
        raise InvalidInputError(
            f"X reaches {np.abs(rows).max():g} in absolute value, beyond {checks.LARGEST_SIZE:g} times the "
            "training data; its squared distances would leave double precision: drop or rescale such rows."
        )
    return np.asarray(points)


def chunks(n_rows: int) -> Iterator[slice]:
    return (slice(first, first + ROWS_PER_CHUNK) for first in range(0, n_rows, ROWS_PER_CHUNK))


def require_square(X: "AnyArray | SparseArray") -> None:
    if X.shape[0] != X.shape[1]:
        raise InvalidInputError(
            f"X has shape {X.shape}; with metric='precomputed' it must be square, a row and a column for each point."
        )
