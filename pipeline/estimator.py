"""LandmarkIsomap: the pipeline's numerics in memory, as a scikit-learn estimator."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
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
from pipeline.numerics.extension.restricted import DiagonalWeight, check_weight, reconstruct_moments, resolved_weight
from pipeline.numerics.geodesics import each_search, rows_through_neighbors
from pipeline.numerics.graph import collapse_duplicates, neighbor_graph
from pipeline.numerics.landmarks import automatic_count, maxmin_landmarks, random_landmarks
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.numerics.neighbors import NeighborSearch, neighbors_within
from pipeline.types import AnyArray, FloatArray, IntArray

METHODS = ("isomap",)
METRICS = ("euclidean",)
SELECTIONS = ("maxmin", "random")
EXTENSIONS = ("projection", "restricted")
# Rows whose dissimilarities to the landmarks are squared at once: what an embedding needs beside its result.
ROWS_PER_CHUNK = 4096


class LandmarkIsomap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Isomap by landmarks: geodesic distances to m landmarks instead of between all n points.

    Memory grows as n * m, never as n * n. Rows that repeat exactly count as one point and get the same coordinates.
    With every point a landmark, no repeated rows and a connected graph, the result is scikit-learn's `Isomap`.

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
    n_jobs : threads of the neighbor search in up to 10 dimensions (above, BLAS has its own); the result does not
        depend on it.

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
        return self._fit(X)

    def fit_transform(self, X: ArrayLike, y: object = None) -> FloatArray:
        """Fit, and return the coordinates of the training rows."""
        return self._fit(X).embedding_

    def transform(self, X: ArrayLike) -> FloatArray:
        """Coordinates (p, n_components) of rows of X in the fitted space; each row's bytes depend on that row alone.

        With component_policy "largest", a row whose nearest training point was dropped becomes NaN like that point.
        """
        check_is_fitted(self)
        data = self._checked_data(X, reset=False)
        out = np.empty((len(data), self._space.model.n_components))
        for chunk in _chunks(len(data)):
            out[chunk] = self._space.placed(data[chunk], self._n_threads())
        return out

    @property
    def _n_features_out(self) -> int:
        return self._space.model.n_components

    def _fit(self, X: ArrayLike) -> Self:
        self._check_choices()
        seed = self._seed()
        data = self._checked_data(X, reset=True)
        checks.require_not_too_small("X", data)
        exponent = int(np.frexp(np.abs(data).max())[1])
        first_rows, node_of, _ = collapse_duplicates(np.ldexp(data, -exponent))
        nodes = np.ldexp(data[first_rows], -exponent)
        self._check_sizes(len(data), len(nodes))
        connected = self._connected_graph(nodes)
        kept = np.flatnonzero(connected.kept)
        landmarks = kept[self._chosen_landmarks(nodes[kept], seed)]
        to_landmarks, between = _geodesics(connected, landmarks, kept, data.dtype, self._n_threads())
        model = self._fitted_model(between, len(data))
        space = _Space(
            exponent=exponent,
            search=NeighborSearch(nodes[kept]),
            dropped=NeighborSearch(nodes[~connected.kept]) if len(kept) < len(nodes) else None,
            to_landmarks=to_landmarks,
            model=model,
            n_neighbors=self.n_neighbors,
            weight=resolved_weight(model, self.diagonal_weight) if self.extension == "restricted" else None,
        )
        embedded = np.full((len(nodes), self.n_components), np.nan)
        for chunk in _chunks(len(kept)):
            embedded[kept[chunk]] = space.extended(space.to_landmarks[chunk])
        # Only now does the estimator change: a fit that failed leaves the one before it as it was.
        self._space = space
        self.model_ = model
        self.embedding_ = embedded[node_of]
        self.component_labels_ = connected.labels[node_of]
        self.landmark_indices_ = first_rows[landmarks]
        self.eigenvalues_ = np.ldexp(model.eigenvalues, 2 * exponent)
        return self

    def _seed(self) -> int:
        """A whole number is the seed itself, as in a run on disk: both then choose the same landmarks."""
        state = check_random_state(self.random_state)
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(state.randint(np.iinfo(np.int32).max))

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
        check_weight(self.diagonal_weight)
        n_jobs: object = self.n_jobs
        if n_jobs is not None and (n_jobs == 0 or not isinstance(n_jobs, Integral)):
            raise InvalidInputError(f"n_jobs={self.n_jobs!r} is not a number of threads; use 1, 2, ... or -1 for all.")

    def _checked_data(self, X: ArrayLike, reset: bool) -> AnyArray:
        _refuse_other_than_numbers(X)
        data: AnyArray = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        checks.require_finite("X", data)
        checks.require_not_too_large("X", data)
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
        connected = apply_component_policy(nodes, neighbor_graph(distances, indices), self.component_policy)
        if connected.labels.any():
            warnings.warn(_component_report(connected), ComponentWarning, stacklevel=4)
        return connected

    def _chosen_landmarks(self, nodes: AnyArray, seed: int) -> IntArray:
        n, d = len(nodes), self.n_components
        where = f"the part of the graph that is embedded has {n} distinct points"
        checks.integer_in_range("n_components", d, 1, n - 1, where)
        if self.n_landmarks == "auto":
            m = automatic_count(n, d)
        else:
            m = checks.integer_in_range("n_landmarks", self.n_landmarks, d + 1, n, where)
        if self.landmark_selection == "random":
            return random_landmarks(n, m, seed)
        return maxmin_landmarks(nodes, m, seed)

    def _fitted_model(self, between: FloatArray, n_rows: int) -> LandmarkModel:
        try:
            return classical_mds(between**2, self.n_components)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} (n_samples={n_rows}, n_features={self.n_features_in_})") from error

    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))


@dataclass(frozen=True, eq=False)
class _Space:
    """A fitted space and the way into it, in units of 2^exponent of the data.

    to_landmarks (n, m) are the geodesic distances of the searched points; weight is that of restricted
    reconstruction, or None for projection.
    """

    exponent: int
    search: NeighborSearch
    dropped: NeighborSearch | None
    to_landmarks: AnyArray
    model: LandmarkModel
    n_neighbors: int
    weight: float | None

    def placed(self, rows: AnyArray, n_threads: int) -> FloatArray:
        """Coordinates of new rows (p, n_features) through their nearest training points."""
        points = np.ldexp(rows.astype(np.float64), -self.exponent)
        if np.abs(points).max() > checks.LARGEST_SIZE:
            raise InvalidInputError(
                f"X reaches {np.abs(rows).max():g} in absolute value, beyond {checks.LARGEST_SIZE:g} times the "
                "training data; its squared distances would leave double precision: drop or rescale such rows."
            )
        distances, indices = self.search.query(points, self.n_neighbors, n_threads)
        out = self.extended(rows_through_neighbors(distances, indices, self.to_landmarks))
        if self.dropped is not None:
            out[self.dropped.query(points, 1, n_threads)[0][:, 0] < distances[:, 0]] = np.nan
        return out

    def extended(self, to_landmarks: AnyArray) -> FloatArray:
        """Coordinates (p, d), at the data's own scale, of points given by their (p, m) geodesic distances."""
        moments = landmark_moments(self.model, to_landmarks.astype(np.float64) ** 2)
        if self.weight is None:
            return np.asarray(np.ldexp(project_moments(self.model, moments), self.exponent))
        return np.asarray(np.ldexp(reconstruct_moments(self.model, moments, self.weight).coordinates, self.exponent))


def _chunks(n_rows: int) -> Iterator[slice]:
    return (slice(first, first + ROWS_PER_CHUNK) for first in range(0, n_rows, ROWS_PER_CHUNK))


def _geodesics(
    connected: Connected, landmarks: IntArray, nodes: IntArray, dtype: np.dtype[Any], n_threads: int
) -> tuple[AnyArray, FloatArray]:
    """Distances of nodes to landmarks (n, m) in `dtype`, and between landmarks (m, m) in full precision.

    Filled a few landmarks at a time, so that little stands beside them.
    """
    to_landmarks = np.empty((len(nodes), len(landmarks)), dtype=dtype)
    between = np.empty((len(landmarks), len(landmarks)))

    def take(batch: IntArray, lengths: FloatArray, place_of: IntArray) -> None:
        to_landmarks[:, batch], between[batch] = lengths[place_of[nodes]], lengths[place_of[landmarks]].T

    each_search(connected.graph, landmarks, take, n_threads)
    return to_landmarks, between


def _refuse_other_than_numbers(X: ArrayLike) -> None:
    dtype = getattr(X, "dtype", None)
    kind = getattr(dtype, "kind", "f") if dtype is not None else np.asarray(X).dtype.kind
    if kind == "c":
        raise InvalidInputError(f"Complex data not supported: X has dtype {dtype}; it must hold real numbers.")
    if kind in "US":
        raise InvalidInputError("X holds text; it must hold real numbers: convert it, for example with astype(float).")


def _component_report(connected: Connected) -> str:
    sizes = np.bincount(connected.labels)
    found = f"The neighbor graph has {len(sizes)} components (largest {sizes[0]} distinct points)"
    if connected.n_bridges:
        return (
            f"{found}, joined by their {connected.n_bridges} shortest links. Distances between components are then a "
            "guess; a larger n_neighbors may connect them."
        )
    return (
        f"{found}; all but the largest are dropped, and {int((~connected.kept).sum())} distinct points become NaN. "
        "A larger n_neighbors may connect them."
    )
