"""LandmarkIsomap: the pipeline's numerics in memory, as a scikit-learn estimator, and the way back to rows of data."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from pipeline.estimator.base import Fitted
from pipeline.estimator.direct import fit_direct
from pipeline.estimator.geodesic import fit_geodesic
from pipeline.estimator.given import fit_given
from pipeline.estimator.inputs import checked_data, checked_edges, seed_of
from pipeline.estimator.inverse import Embedded
from pipeline.estimator.results import FittedResults
from pipeline.estimator.settings import PRECOMPUTED, Comparing, Settings, with_components
from pipeline.methods import DISSIMILARITIES, METHODS
from pipeline.numerics.dimension import Dimension
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.geodesics.components import ComponentPolicy
from pipeline.numerics.models.spectral import cluster_centers, cluster_labels
from pipeline.types import FloatArray

# What a fit leaves only if its method has it.
OPTIONAL = ("eigenvalues_", "component_labels_", "labels_", "short_circuits_")


class LandmarkIsomap(FittedResults):
    """Isomap and its relatives by landmarks: distances to m landmarks instead of between all n points.

    Memory grows as n * m, never as n * n; beside that a copy of X is kept for `inverse_transform`, and the graph. Rows
    that repeat exactly count as one point and get the same coordinates. With every point a landmark, no repeated rows
    and a connected graph, the result is scikit-learn's `Isomap`; other methods then are its `KernelPCA`,
    `SpectralEmbedding` or `LocallyLinearEmbedding`.

    Parameters
    ----------
    n_neighbors : neighbors of each point in the graph, counting distinct points; of lle, of each landmark among these.
    n_components : coordinates of the embedding; "auto" takes the intrinsic dimension of (a sample of) the rows by the
        two-nearest-neighbors estimate, rounded, at least 1 and below the number of landmarks.
    n_landmarks : how many landmarks; "auto" takes 100 + 2 sqrt(n), at least 40 (n_components + 1), at most n.
    landmark_selection : "maxmin" (farthest points first), "random", "kmeans", "trace" or "cholesky"; all but random on
        a sample, by Euclidean distance (along a graph of angles that of unit vectors), unless distances are given.
    method : "isomap", "kernel-isomap" (along a graph), "mds", "kernel-mds", "laplacian", "spectral", "lle",
        "metric-mds", "nonmetric-mds" or "sammon" (straight from the landmarks).
    extension : how points get coordinates from their distances to the landmarks. "auto" is the method's own way; of the
        first four "projection", or else "restricted", the global minimizer of restricted reconstruction. All methods
        have "kernel-mapping" and "rbf".
    component_policy : when the neighbor graph is not connected, "bridge" joins its components by the shortest links,
        "largest" embeds only the largest (other rows become NaN), "error" refuses.
    metric : "euclidean", "cosine" (1 - cos), "angular" (the angle, whose lengths add up along paths) or "correlation";
        of direct methods also "cityblock", "chebyshev" or a function of two rows. "precomputed" if X is what would be
        measured: dissimilarities (n, n), or of isomap and kernel-isomap a sparse graph (n, n) of edge lengths; see
        precomputed and landmark_indices.
    diagonal_weight : weight of a point's squared length in restricted reconstruction, a number or "balanced" (the
        number of landmarks).
    random_state : seed of the choice of landmarks, of clusters and of random starts.
    n_jobs : threads of the neighbor search in up to 10 dimensions (above, BLAS has its own); the result does not
        depend on it.
    kernel : of kernel-mds "rbf", "linear", "cosine", "polynomial" or a function of two rows.
    gamma : of the rbf and polynomial kernels and of the affinities exp(-gamma d^2) of laplacian and spectral; None
        takes 1 / median squared distance between landmarks.
    degree, constant : of the polynomial kernel (gamma x.y + constant)^degree.
    radius : of isomap and kernel-isomap, join all points within this distance by the metric instead of n_neighbors.
    n_clusters : of spectral; None takes n_components.
    regularization : of lle, share of the trace that is added to the diagonal of a neighborhood's Gram matrix.
    stress_neighbors : of sammon, fit only the distances between so many nearest neighbors.
    n_init : of metric-mds, nonmetric-mds and sammon, number of starts, the first classical and the others random; the
        one that ends with the least stress is kept.
    landmark_weights : of isomap, kernel-isomap, mds and kernel-mds, how much landmarks count: "none" (all the same), or
        "counts" (by the number of training rows nearest to each, so that dense parts of the data keep their weight).
    precomputed : what X has with metric "precomputed" where there is no graph: "dissimilarities" or "similarities", of
        which mds makes distances, while laplacian and spectral take them as affinities; their landmarks are random.
    landmark_indices : with metric "precomputed", rows (m,) of X that are the landmarks; X then is (n, m), a column for
        each of these in their order, and in `transform` (p, m).
    n_evaluated : if metric is a function, call it for so many of the landmarks only and estimate the distances to the
        others by kernel semi-least squares; None calls it for all.
    spread : also compute the column `spread` of the tables, a standard error of each row's projection; of
        isomap, kernel-isomap, mds and kernel-mds, by projection or restricted.
    new_edges : of isomap and kernel-isomap, the edges of a new row: "both", to its nearest neighbors and to all points
        that would take it for one of theirs, as if the graph had been made with it; or "own", only to its nearest
        neighbors, as in scikit-learn.
    shortcuts : of isomap and kernel-isomap, what to do with likely short circuits of the graph, long edges across gaps
        that many shortest paths use: "report" them (a ShortcutWarning and `short_circuits_`), or also "cut" them.
    plugins : names of modules whose plugins add methods or landmark choices.

    Attributes
    ----------
    embedding_ : (n, n_components_) coordinates of the training rows.
    table_ : what a run publishes of the training rows, by name: both coordinates of the classical methods, `projection`
        and `restricted`; trust columns, as far as the method has them (`residual`, `multiplier`, `gap`, `nearest`);
        `ambiguous`, `component`, `labels`. Computed when it is first asked for; `place` has the same of new rows.
    quality_ : how good the embedding is, by the names of a run's figures (`residual_variance` between points with 1, 2,
        ... components, `normalized_stress`, `trustworthiness`, `continuity`), and what they come to: a `verdict` in
        words and its `level`, good, fair or poor. Computed when it is first asked for.
    n_components_ : number of coordinates.
    intrinsic_dimension_ : estimates `two_nearest` and `maximum_likelihood` of the dimension of the training rows, each
        with `value`, `low` and `high` (95%); computed when it is first asked for unless n_components is "auto". None
        where X is precomputed or too few rows are distinct.
    landmark_indices_ : (m,) rows of the training data that serve as landmarks.
    eigenvalues_ : (n_components,) those that belong to the coordinates, where the model has any: of the landmarks'
        centered Gram matrix, of their normalized kernel, or of lle's.
    model_ : the landmark model; a classical one with its whole spectrum and `negative_mass`.
    component_labels_ : (n,) component of each row in the graph before the policy, 0 the largest; if there is a graph.
    labels_ : (n,) cluster of each row; of spectral.
    short_circuits_ : those found, at most 30, the most used first, each by its shortest edge: `row` and `other` at its
        ends, `length`, `detour` (the way that remains without), `share` of the paths, `n_edges`; if there is a graph.
    n_features_in_ : number of columns of the training data.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> X, _ = make_swiss_roll(2000, random_state=0)
    >>> isomap = LandmarkIsomap(n_neighbors=8, n_landmarks=200, random_state=0).fit(X[:1500])
    >>> isomap.transform(X[1500:]).shape
    (500, 2)
    >>> isomap.place(X[1500:]).residual_rank.shape
    (500,)
    """

    def __init__(
        self,
        n_neighbors: int = 10,
        n_components: int | Literal["auto"] = 2,
        *,
        n_landmarks: int | Literal["auto"] = "auto",
        landmark_selection: str = "maxmin",
        method: str = "isomap",
        extension: str = "auto",
        component_policy: ComponentPolicy = "bridge",
        shortcuts: str = "report",
        new_edges: str = "both",
        metric: str | Comparing = "euclidean",
        diagonal_weight: DiagonalWeight = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        kernel: str | Comparing = "rbf",
        gamma: float | None = None,
        degree: int = 3,
        constant: float = 1.0,
        radius: float | None = None,
        n_clusters: int | None = None,
        regularization: float = 1e-3,
        stress_neighbors: int | None = None,
        n_init: int = 1,
        landmark_weights: str = "none",
        precomputed: str = DISSIMILARITIES,
        landmark_indices: ArrayLike | None = None,
        n_evaluated: int | None = None,
        spread: bool = False,
        plugins: tuple[str, ...] = (),
    ) -> None:
        self.n_neighbors, self.radius = n_neighbors, radius
        self.component_policy, self.shortcuts, self.new_edges = component_policy, shortcuts, new_edges
        self.n_components, self.n_landmarks, self.landmark_selection = n_components, n_landmarks, landmark_selection
        self.method, self.extension, self.diagonal_weight = method, extension, diagonal_weight
        self.metric, self.precomputed, self.landmark_indices = metric, precomputed, landmark_indices
        self.kernel, self.gamma, self.degree, self.constant = kernel, gamma, degree, constant
        self.n_clusters, self.regularization, self.stress_neighbors = n_clusters, regularization, stress_neighbors
        self.n_init, self.n_evaluated, self.landmark_weights = n_init, n_evaluated, landmark_weights
        self.spread, self.random_state, self.n_jobs, self.plugins = spread, random_state, n_jobs, plugins

    def fit(self, X: ArrayLike, y: object = None, *, own_similarities: ArrayLike | None = None) -> Self:
        """Choose landmarks among the rows of X (n, n_features), fit their model and embed every row. Where distances
        are made of similarities, `own_similarities` (n,) are those of the points to themselves; without them they are
        on the diagonal of a square X."""
        return self._fit(X, own_similarities)

    def fit_transform(self, X: ArrayLike, y: object = None, *, own_similarities: ArrayLike | None = None) -> FloatArray:
        """Fit, and return the coordinates of the training rows."""
        return self._fit(X, own_similarities).embedding_

    def transform(self, X: ArrayLike, *, own_similarities: ArrayLike | None = None) -> FloatArray:
        """Coordinates (p, n_components) of rows of X in the fitted space; each row's bytes depend on that row alone.

        With metric "precomputed" X is what new points are to the n training points: proximities (p, n), with
        landmark_indices those (p, m) to the landmarks, or the lengths (p, n), sparse, of edges to training points. A
        row that no edge leads from becomes NaN. With component_policy "largest", a row whose nearest training point was
        dropped becomes NaN like that point. Where distances are made of similarities, `own_similarities` (p,) are those
        of the new points to themselves.
        """
        return self._space.placed(self._new_rows(X, own_similarities), self._n_threads)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._takes_proximities and self.landmark_indices is None
        tags.input_tags.positive_only = self._takes_proximities and self.precomputed == DISSIMILARITIES
        tags.input_tags.sparse = self._takes_graph
        tags.input_tags.two_d_array = not self._takes_graph
        return tags

    @property
    def _n_features_out(self) -> int:
        return self._space.embedder.answers.n_components

    @property
    def _takes_proximities(self) -> bool:
        return isinstance(self.metric, str) and self.metric == PRECOMPUTED

    @property
    def _takes_graph(self) -> bool:
        return self._takes_proximities and self.method in METHODS and METHODS[self.method].geodesic

    def _fit(self, X: ArrayLike, own_similarities: ArrayLike | None) -> Self:
        given = self.get_params(deep=False)
        del given["random_state"]
        settings = Settings(**given, seed=seed_of(self.random_state))
        settings.check()
        data = (checked_edges if self._takes_graph else checked_data)(self, X, reset=True)
        if not settings.induces_distances:
            settings.refuse_own_similarities(own_similarities)
        settings, dimension = with_components(settings, data)
        if settings.is_geodesic:
            fitted = fit_geodesic(settings, data, settings.seed, self._n_threads)
        elif settings.is_given:
            fitted = fit_given(settings, data, own_similarities, settings.seed)
        else:
            fitted = fit_direct(settings, data, settings.seed)
        self._keep(settings, fitted, dimension)
        # Who changes X later does not mean to change what the embedding goes back to.
        is_shared = not isinstance(X, np.ndarray) or np.may_share_memory(data, X)
        rows = None if self._takes_proximities else (data.copy() if is_shared else data)
        self._embedded = None if rows is None else Embedded(self.embedding_, rows)
        return self

    def _keep(self, settings: Settings, fitted: Fitted, dimension: Dimension | None) -> None:
        """Only now does the estimator change: a fit that failed leaves the one before it as it was."""
        embedding, centers, labels = fitted.embedding, None, None
        if settings.clusters is not None:
            centers = cluster_centers(fitted.model.coordinates, settings.clusters, settings.seed)
            labels = cluster_labels(embedding, centers)
        self._settings, self._fitted, self._centers, self._dimension = settings, fitted, centers, dimension
        self._table = self._calibration = self._quality = None
        self.n_components_ = settings.components
        self.model_ = fitted.model
        self.embedding_ = embedding
        self.landmark_indices_ = fitted.landmarks
        self._set_optional(fitted.space.embedder.eigenvalues, fitted.components, labels, fitted.short_circuits)

    def _set_optional(self, *values: object) -> None:
        """Set what this fit has of OPTIONAL, and remove what only a fit before it had."""
        for name, value in zip(OPTIONAL, values, strict=True):
            if value is not None:
                setattr(self, name, value)
            elif hasattr(self, name):
                delattr(self, name)
