"""LandmarkIsomap: the pipeline's numerics in memory, as a scikit-learn estimator."""

import warnings
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.errors import ComponentWarning, InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.components import POLICIES, ComponentPolicy, Connected, apply_component_policy
from pipeline.numerics.extension.moments import landmark_moments
from pipeline.numerics.extension.projection import project_moments
from pipeline.numerics.extension.restricted import DiagonalWeight, reconstruct_moments, resolved_weight
from pipeline.numerics.geodesics import rows_through_neighbors, shortest_path_rows
from pipeline.numerics.graph import collapse_duplicates, neighbor_graph
from pipeline.numerics.landmarks import maxmin_landmarks, random_landmarks
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.numerics.neighbors import nearest_neighbors, neighbors_within
from pipeline.types import AnyArray, FloatArray, IntArray

METHODS = ("isomap",)
METRICS = ("euclidean",)
SELECTIONS = ("maxmin", "random")
EXTENSIONS = ("projection", "restricted")
# Rows whose dissimilarities to the landmarks are squared at once: what an embedding needs beside its result.
ROWS_PER_CHUNK = 4096


class LandmarkIsomap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Isomap by landmarks: geodesic distances to m landmarks instead of between all n points.

    Memory grows as n * m, never as n * n, and with every point a landmark the result is scikit-learn's `Isomap`.
    Rows that repeat exactly count as one point and get the same coordinates.

    Parameters
    ----------
    n_neighbors : neighbors of each point in the graph, counting distinct points.
    n_components : coordinates of the embedding.
    n_landmarks : how many landmarks; "auto" takes 100 + 2 sqrt(n), at least 4 (n_components + 1), at most n.
    landmark_selection : "maxmin" (farthest points first, on a sample) or "random".
    method : "isomap".
    extension : how points get coordinates from their distances to the landmarks: "projection" or "restricted", the
        global minimizer of restricted reconstruction.
    component_policy : when the neighbor graph is not connected, "bridge" joins its components by the shortest links,
        "largest" embeds only the largest (other rows become NaN), "error" refuses.
    metric : "euclidean".
    diagonal_weight : weight of a point's squared length in restricted reconstruction, a number or "balanced" (the
        number of landmarks).
    random_state : seed of the choice of landmarks.
    n_jobs : threads of the neighbor search; the result does not depend on it.

    Attributes
    ----------
    embedding_ : (n, n_components) coordinates of the training rows.
    landmark_indices_ : (m,) rows of the training data that serve as landmarks.
    eigenvalues_ : (n_components,) eigenvalues of the landmarks' centered Gram matrix.
    model_ : the landmark model, with its whole spectrum and `negative_mass`.
    component_labels_ : (n,) component of each row in the neighbor graph before the policy, 0 the largest.
    n_features_in_ : number of columns of the training data.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> X, _ = make_swiss_roll(2000, random_state=0)
    >>> isomap = LandmarkIsomap(n_neighbors=8, n_landmarks=200, random_state=0).fit(X[:1500])
    >>> isomap.transform(X[1500:]).shape
    (500, 2)
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        n_components: int = 2,
        *,
        n_landmarks: int | Literal["auto"] = "auto",
        landmark_selection: Literal["maxmin", "random"] = "maxmin",
        method: Literal["isomap"] = "isomap",
        extension: Literal["projection", "restricted"] = "projection",
        component_policy: ComponentPolicy = "bridge",
        metric: Literal["euclidean"] = "euclidean",
        diagonal_weight: DiagonalWeight = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.n_landmarks = n_landmarks
        self.landmark_selection = landmark_selection
        self.method = method
        self.extension = extension
        self.component_policy = component_policy
        self.metric = metric
        self.diagonal_weight = diagonal_weight
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Choose landmarks among the rows of X (n, n_features), fit their model and embed every row."""
        self._check_choices()
        data = self._checked_data(X, reset=True)
        self._unit = _working_unit(data)
        first_rows, node_of, _ = collapse_duplicates(data)
        nodes = data[first_rows] / self._unit
        self._check_sizes(len(data), len(nodes))
        connected = self._connected_graph(nodes)
        kept = np.flatnonzero(connected.kept)
        landmarks = kept[self._chosen_landmarks(nodes[kept])]
        rows = shortest_path_rows(connected.graph, landmarks)
        self.model_ = self._fitted_model(rows[:, landmarks], len(data))
        self._nodes = nodes[kept]
        self._to_landmarks = np.ascontiguousarray(rows[:, kept].T)
        embedded = np.full((len(nodes), self.n_components), np.nan)
        embedded[kept] = self._extended(self._to_landmarks)
        self.embedding_ = embedded[node_of]
        self.component_labels_ = connected.labels[node_of]
        self.landmark_indices_ = first_rows[landmarks]
        self.eigenvalues_ = self.model_.eigenvalues * self._unit**2
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Coordinates (p, n_components) of rows of X in the fitted space; each row's bytes depend on that row alone."""
        check_is_fitted(self)
        data = self._checked_data(X, reset=False) / self._unit
        out = np.empty((len(data), self.model_.n_components))
        for chunk in _chunks(len(data)):
            distances, indices = nearest_neighbors(self._nodes, data[chunk], self.n_neighbors, self._n_threads())
            out[chunk] = self._extended(rows_through_neighbors(distances, indices, self._to_landmarks))
        return out

    def fit_transform(self, X: ArrayLike, y: object = None) -> FloatArray:
        """Fit, and return the coordinates of the training rows."""
        return self.fit(X, y).embedding_

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_components

    def _check_choices(self) -> None:
        checks.one_of("method", self.method, METHODS)
        checks.one_of("metric", self.metric, METRICS)
        checks.one_of("landmark_selection", self.landmark_selection, SELECTIONS)
        checks.one_of("extension", self.extension, EXTENSIONS)
        checks.one_of("component_policy", self.component_policy, POLICIES)
        checks.integer_in_range("n_neighbors", self.n_neighbors, 1, None, "edges of each point")
        checks.integer_in_range("n_components", self.n_components, 1, None, "coordinates of the embedding")
        if self.n_landmarks != "auto":
            low = self.n_components + 1
            checks.integer_in_range("n_landmarks", self.n_landmarks, low, None, "more than n_components, or 'auto'")
        if self.diagonal_weight != "balanced":
            checks.positive_number("diagonal_weight", self.diagonal_weight)

    def _checked_data(self, X: ArrayLike, reset: bool) -> AnyArray:
        data: AnyArray = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        checks.require_finite("X", data)
        checks.require_squarable("X", data)
        return data

    def _check_sizes(self, n_rows: int, n_nodes: int) -> None:
        if n_nodes == 1:
            raise InvalidInputError(f"all {n_rows} rows of X are identical; there is nothing to embed.")
        distinct = f"X has {n_nodes} distinct rows"
        checks.integer_in_range("n_neighbors", self.n_neighbors, 1, n_nodes - 1, distinct)
        checks.integer_in_range("n_components", self.n_components, 1, n_nodes - 1, distinct)
        if self.n_landmarks != "auto":
            checks.integer_in_range("n_landmarks", self.n_landmarks, self.n_components + 1, n_nodes, distinct)

    def _connected_graph(self, nodes: AnyArray) -> Connected:
        distances, indices = neighbors_within(nodes, self.n_neighbors, self._n_threads())
        graph = neighbor_graph(distances.astype(nodes.dtype), indices)
        connected = apply_component_policy(nodes, graph, self.component_policy)
        if connected.labels.any():
            warnings.warn(_component_report(connected), ComponentWarning, stacklevel=3)
        return connected

    def _chosen_landmarks(self, nodes: AnyArray) -> IntArray:
        n, d = len(nodes), self.n_components
        if self.n_landmarks == "auto":
            m = min(n, max(4 * (d + 1), round(100 + 2 * np.sqrt(n))))
        else:
            where = f"the largest component has {n} distinct points"
            m = checks.integer_in_range("n_landmarks", self.n_landmarks, d + 1, n, where)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if self.landmark_selection == "random":
            return random_landmarks(n, m, seed)
        return maxmin_landmarks(nodes, m, seed)

    def _fitted_model(self, between: AnyArray, n_rows: int) -> LandmarkModel:
        try:
            return classical_mds(between.astype(np.float64) ** 2, self.n_components)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} (n_samples={n_rows}, n_features={self.n_features_in_})") from error

    def _extended(self, to_landmarks: AnyArray) -> FloatArray:
        """Coordinates (p, d), at the data's own scale, of points given by their (p, m) geodesic distances."""
        out = np.empty((len(to_landmarks), self.model_.n_components))
        for chunk in _chunks(len(to_landmarks)):
            moments = landmark_moments(self.model_, to_landmarks[chunk].astype(np.float64) ** 2)
            if self.extension == "restricted":
                weight = resolved_weight(self.model_, self.diagonal_weight)
                out[chunk] = reconstruct_moments(self.model_, moments, weight).coordinates
            else:
                out[chunk] = project_moments(self.model_, moments)
        return out * self._unit

    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))


def _chunks(n_rows: int) -> Iterator[slice]:
    return (slice(first, first + ROWS_PER_CHUNK) for first in range(0, n_rows, ROWS_PER_CHUNK))


def _working_unit(data: AnyArray) -> float:
    """A scale at which squares neither overflow nor vanish; a power of two, so that rescaling is exact."""
    largest = float(np.abs(data).max())
    return float(np.ldexp(1.0, int(np.frexp(largest)[1]))) if largest > 0 else 1.0


def _component_report(connected: Connected) -> str:
    sizes = np.bincount(connected.labels)
    done = (
        f"joined by their {connected.n_bridges} shortest links"
        if connected.n_bridges
        else f"all but the largest dropped, {int((~connected.kept).sum())} distinct points become NaN"
    )
    return (
        f"The neighbor graph has {len(sizes)} components (largest {sizes[0]} distinct points), {done}. "
        "Distances between components are then a guess; a larger n_neighbors may connect them."
    )
