"""LandmarkIsomap: the pipeline's numerics in memory, as a scikit-learn estimator, and the way back to rows of data."""

import warnings
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
import scipy
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from pipeline.errors import InexactWarning, InvalidInputError, OutsideWarning
from pipeline.estimator.base import PRECOMPUTED, Comparing, Settings, dimension_of_rows, with_components
from pipeline.estimator.direct import fit_direct
from pipeline.estimator.geodesic import fit_geodesic, require_edge_lengths
from pipeline.methods import METHODS
from pipeline.numerics import checks
from pipeline.numerics.dimension import Dimension
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.geodesics.graph import ComponentPolicy, collapse_duplicates
from pipeline.numerics.inverse import interpolant
from pipeline.numerics.inverse.interpolant import Inverted, Stencils
from pipeline.numerics.inverse.neighborhood import NOBODY
from pipeline.numerics.inverse.systems import ILL_CONDITIONED, MERGED, REGULARIZED, UNDEFINED
from pipeline.numerics.models.spectral import cluster_centers, cluster_labels
from pipeline.types import AnyArray, FloatArray

# What a fit leaves only if its method has it.
OPTIONAL = ("eigenvalues_", "component_labels_", "labels_", "short_circuits_")
# Fill distances from every embedded point beyond which a place is outside of the embedding.
OUTSIDE = 3.0
# What a caller should know of an answer that is not simply interpolated.
INEXACT = {
    MERGED: "are a mean of different rows in one place",
    REGULARIZED: "are smoothed, for embedded points nearly coincide",
    ILL_CONDITIONED: "have few right digits",
}
# From here to the caller of `inverse_transform`.
CALLER = 4


class LandmarkIsomap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Isomap and its relatives by landmarks: distances to m landmarks instead of between all n points.

    Memory grows as n * m, never as n * n; beside that a copy of X is kept for `inverse_transform`. Rows that repeat
    exactly count as one point and get the same coordinates. With every point a landmark, no repeated rows and a
    connected graph, the result is scikit-learn's `Isomap`; other methods then are its `KernelPCA`, `SpectralEmbedding`
    or `LocallyLinearEmbedding`.

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
        measured: dissimilarities (n, n), or of isomap and kernel-isomap a sparse graph (n, n) of edge lengths.
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
    shortcuts : of isomap and kernel-isomap, what to do with likely short circuits of the graph, long edges across gaps
        that many shortest paths use: "report" them (a ShortcutWarning and `short_circuits_`), or also "cut" them.
    plugins : names of modules whose plugins add methods or landmark choices.

    Attributes
    ----------
    embedding_ : (n, n_components_) coordinates of the training rows.
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
    """

    _dimension: Dimension | None
    _settings: Settings

    def __init__(
        self,
        n_neighbors: int = 5,
        n_components: int | Literal["auto"] = 2,
        *,
        n_landmarks: int | Literal["auto"] = "auto",
        landmark_selection: str = "maxmin",
        method: str = "isomap",
        extension: str = "auto",
        component_policy: ComponentPolicy = "bridge",
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
        shortcuts: str = "report",
        plugins: tuple[str, ...] = (),
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
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.constant = constant
        self.radius = radius
        self.n_clusters = n_clusters
        self.regularization = regularization
        self.stress_neighbors = stress_neighbors
        self.n_init = n_init
        self.landmark_weights = landmark_weights
        self.shortcuts, self.plugins = shortcuts, plugins

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Choose landmarks among the rows of X (n, n_features), fit their model and embed every row."""
        return self._fit(X)

    def fit_transform(self, X: ArrayLike, y: object = None) -> FloatArray:
        """Fit, and return the coordinates of the training rows."""
        return self._fit(X).embedding_

    def transform(self, X: ArrayLike) -> FloatArray:
        """Coordinates (p, n_components) of rows of X in the fitted space; each row's bytes depend on that row alone.

        With metric "precomputed" X is what new points are to the n training points: dissimilarities (p, n), or the
        lengths (p, n), sparse, of edges to them. A row that no edge leads from becomes NaN. With component_policy
        "largest", a row whose nearest training point was dropped becomes NaN like that point.
        """
        check_is_fitted(self)
        checked = self._checked_edges if self._space.takes_edges else self._checked_data
        return self._space.placed(checked(X, reset=False), int(effective_n_jobs(self.n_jobs)))

    def inverse_transform(self, X: ArrayLike) -> FloatArray:
        """Rows (p, n_features) of data at coordinates (p, n_components), by interpolation between embedded rows.

        Training rows come back from their own coordinates, to about 1e-8 of the data's size, where the embedding tells
        them apart. Rows in the same place come back as their mean (of the first 64), and an InexactWarning counts
        places where that is one of different rows, or where points so near to each other leave few right digits or
        had to be smoothed over. Places far from every embedded row raise an OutsideWarning; beyond about 1e100 times
        the embedding data is NaN. There is nothing to go back to where dissimilarities or a graph were fitted.
        """
        check_is_fitted(self)
        if self._rows is None:
            raise InvalidInputError(
                "metric='precomputed' was fitted: there are no rows of data to go back to. Fit rows of numbers, by any "
                "metric."
            )
        return data_at(X, self.embedding_, self._rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.positive_only = self._takes_proximities
        tags.input_tags.sparse = self._takes_graph
        tags.input_tags.two_d_array = not self._takes_graph
        return tags

    @property
    def intrinsic_dimension_(self) -> Dimension | None:
        check_is_fitted(self)
        if self._dimension is None and self._rows is not None:
            self._dimension = dimension_of_rows(self._settings, self._rows)
        return self._dimension

    @property
    def _n_features_out(self) -> int:
        return self._space.embedder.answers.n_components

    @property
    def _takes_proximities(self) -> bool:
        return isinstance(self.metric, str) and self.metric == PRECOMPUTED

    @property
    def _takes_graph(self) -> bool:
        return self._takes_proximities and self.method in METHODS and METHODS[self.method].geodesic

    def _fit(self, X: ArrayLike) -> Self:
        given = self.get_params(deep=False)
        del given["random_state"]
        settings = Settings(**given, seed=_seed(self.random_state))
        settings.check()
        seed = settings.seed
        data = self._checked_edges(X, reset=True) if self._takes_graph else self._checked_data(X, reset=True)
        settings, dimension = with_components(settings, data)
        if settings.is_geodesic:
            fitted = fit_geodesic(settings, data, seed, int(effective_n_jobs(self.n_jobs)))
        else:
            fitted = fit_direct(settings, data, seed)
        labels = None
        if settings.clusters is not None:
            centers = cluster_centers(fitted.model.coordinates, settings.clusters, seed)
            labels = cluster_labels(fitted.embedding, centers)
        # Only now does the estimator change: a fit that failed leaves the one before it as it was.
        self._space = fitted.space
        # Who changes X later does not mean to change what the embedding goes back to.
        is_shared = not isinstance(X, np.ndarray) or np.may_share_memory(data, X)
        self._rows = None if self._takes_proximities else (data.copy() if is_shared else data)
        self.n_components_ = settings.components
        self._dimension = dimension
        self._settings = settings
        self.model_ = fitted.model
        self.embedding_ = fitted.embedding
        self.landmark_indices_ = fitted.landmarks
        self._set_optional(fitted.space.embedder.eigenvalues, fitted.components, labels, fitted.short_circuits)
        return self

    def _set_optional(self, *values: object) -> None:
        """Set what this fit has of OPTIONAL, and remove what only a fit before it had."""
        for name, value in zip(OPTIONAL, values, strict=True):
            if value is not None:
                setattr(self, name, value)
            elif hasattr(self, name):
                delattr(self, name)

    def _checked_data(self, X: ArrayLike, reset: bool) -> AnyArray:
        _refuse_other_than_numbers(X)
        data: AnyArray = check_array(
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
            estimator=self,
            input_name="X",
        )
        checks.require_finite("X", data)
        checks.require_not_too_large("X", data)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return data

    def _checked_edges(self, X: Any, reset: bool) -> Any:
        if not scipy.sparse.issparse(X):
            raise InvalidInputError(
                f"X is a {type(X).__name__}; with metric='precomputed' and a method that measures along a graph it "
                "must be a scipy.sparse matrix of edge lengths."
            )
        edges = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        require_edge_lengths(edges)
        return edges


def _seed(random_state: Any) -> int:
    """An integer is the seed itself, as in a run on disk: both then choose the same landmarks."""
    state = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(state.randint(np.iinfo(np.int32).max))


def _refuse_other_than_numbers(X: ArrayLike) -> None:
    dtype = getattr(X, "dtype", None)
    kind = getattr(dtype, "kind", "f") if dtype is not None else np.asarray(X).dtype.kind
    if kind == "c":
        raise InvalidInputError(f"Complex data not supported: X has dtype {dtype}; it must hold real numbers.")
    if kind in "US":
        raise InvalidInputError("X holds text; it must hold real numbers: convert it, for example with astype(float).")


def data_at(coordinates: ArrayLike, embedding: FloatArray, rows: AnyArray) -> FloatArray:
    """Rows (p, D) of data at coordinates (p, d), by local cubic radial functions through the embedded rows.

    As on disk, rows that are embedded in the same place are one node of the interpolant, with the mean of their rows.
    """
    places = checks.real_array("X", coordinates, 2)
    if places.shape[1] != embedding.shape[1]:
        raise InvalidInputError(
            f"X has {places.shape[1]} columns; the embedding has {embedding.shape[1]} coordinates: give those."
        )
    found = _interpolated(places, embedding, rows)
    _warn_of_outside(found.stencils)
    _warn_of_inexact(found.stencils)
    return found.values


def _interpolated(places: AnyArray, embedding: FloatArray, rows: AnyArray) -> Inverted:
    embedded = np.flatnonzero(interpolant.usable_points(embedding))
    distinct = collapse_duplicates(embedding[embedded])
    firsts = embedded[distinct.first_rows]
    near = interpolant.nearest_nodes(embedding[firsts], places)
    found = interpolant.stencils(places, embedding[firsts], near)
    if len(firsts) == len(embedded):
        # Nothing repeats: rows are combined where they stand. The last of the numbers is that of NOBODY.
        return Inverted(found._replace(neighborhoods=np.append(firsts, NOBODY)[near]).combine(rows), found)
    needed = np.unique(near[near != NOBODY])
    members = np.flatnonzero(np.isin(distinct.node_of, needed))
    members = members[np.argsort(distinct.node_of[members], kind="stable")]
    local = np.where(near == NOBODY, NOBODY, np.searchsorted(needed, near))
    row_places = np.searchsorted(needed, distinct.node_of[members])
    means, differ = interpolant.mean_rows(rows[embedded[members]], row_places)
    return found._replace(neighborhoods=local).of_means(means, differ)


def _warn_of_outside(found: Stencils) -> None:
    """Undefined places, NaN or beyond anything that can be computed with, are outside too: their remoteness is NaN."""
    outside = np.flatnonzero(~(found.remoteness <= OUTSIDE))
    if not len(outside):
        return
    n_undefined = int(np.count_nonzero(found.flags & UNDEFINED))
    words = []
    if n_undefined:
        words.append(f"data of {n_undefined} is NaN, for they are not finite or too far away to compute with")
    if n_undefined < len(outside):
        words.append(
            f"at up to {np.nanmax(found.distance[outside]):.3g} from every embedded point data is extrapolated"
        )
    warnings.warn(
        f"{len(outside)} of {len(found.flags)} rows of X are outside of the embedding, the first {outside[0]}: "
        f"{'; '.join(words)}.",
        OutsideWarning,
        stacklevel=CALLER,
    )


def _warn_of_inexact(found: Stencils) -> None:
    counts = {words: int(np.count_nonzero(found.flags & flag)) for flag, words in INEXACT.items()}
    told = [f"{count} {words}" for words, count in counts.items() if count]
    if told:
        warnings.warn(
            f"data at {len(found.flags)} rows of X is not what interpolating gives: {', '.join(told)}.",
            InexactWarning,
            stacklevel=CALLER,
        )
