"""What a fitted estimator tells of rows beside their coordinates, and the way back to rows of data."""

from typing import Any

from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pipeline.errors import InvalidInputError
from pipeline.estimator.base import Fitted, Space
from pipeline.estimator.given import GivenRows, own_similarities_of
from pipeline.estimator.inputs import checked_data, checked_edges
from pipeline.estimator.inverse import OUTSIDE, Embedded, Interpolation, data_at, table_at, table_left_out
from pipeline.estimator.placing import arcs_of_new, calibration_of, joint_table, table_of_fitted, table_of_new
from pipeline.estimator.quality import quality_of
from pipeline.estimator.settings import Settings, dimension_of_rows
from pipeline.estimator.table import Table
from pipeline.numerics.dimension import Dimension
from pipeline.numerics.inverse.interpolant import N_NEIGHBORS
from pipeline.types import AnyArray, FloatArray


class FittedResults(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Results of `LandmarkIsomap`, computed from what a fit keeps when they are asked for."""

    n_jobs: int | None
    embedding_: FloatArray
    _settings: Settings
    _fitted: Fitted
    # Of spectral.
    _centers: FloatArray | None
    _dimension: Dimension | None
    _table: Table | None
    _quality: dict[str, Any] | None
    _calibration: dict[str, FloatArray] | None
    # Embedded rows of data; None where there are none.
    _embedded: Embedded | None

    @property
    def table_(self) -> Table:
        check_is_fitted(self)
        if self._table is None:
            self._table = table_of_fitted(self._fitted, self._centers, self._n_threads)
        return self._table

    @property
    def quality_(self) -> dict[str, Any]:
        check_is_fitted(self)
        if self._quality is None:
            self._quality = quality_of(self._settings, self._fitted, self._embedded, self._n_threads)
        return self._quality

    @property
    def intrinsic_dimension_(self) -> Dimension | None:
        check_is_fitted(self)
        if self._dimension is None and self._embedded is not None:
            self._dimension = dimension_of_rows(self._settings, self._embedded.rows)
        return self._dimension

    def place(self, X: Any, *, own_similarities: ArrayLike | None = None) -> Table:
        """All that is known of new rows, X as for `transform`: what `trigpoint extend` publishes, by the same names.

        The table has both coordinates of the classical methods, `projection` and `restricted`; the trust columns
        `residual`, `multiplier`, `gap` and `nearest`, as far as the method has them; for each its rank, such as
        `residual_rank`, the share of about 20,000 training rows taken as if they were new whose value does not exceed
        that of the row; and `ambiguous`, `component` and `labels`. The first call places these training rows.
        """
        rows = self._new_rows(X, own_similarities)
        if self._calibration is None:
            self._calibration = calibration_of(self._fitted, self._settings.seed, self._n_threads)
        return table_of_new(self._space, rows, self._calibration, self._centers, self._n_threads)

    def reconstruction_arc(self, X: Any, n_steps: int = 9, *, own_similarities: ArrayLike | None = None) -> FloatArray:
        """Positions (p, n_steps, n_components) on the arcs of new rows, X as for `transform`: evenly spaced by length,
        from the projection to the restricted reconstruction. Of classical methods; NaN for rows without a place."""
        rows = self._new_rows(X, own_similarities)
        return arcs_of_new(self._space, rows, n_steps, self._n_threads)

    def joint(
        self, X: Any, between: ArrayLike | str | None = None, *, own_similarities: ArrayLike | None = None
    ) -> Table:
        """New rows, X as for `transform`, reconstructed together, so that they also fit what they are to each other.

        That is computed where rows of numbers or a graph were fitted: by the metric, kernel or function, or as shortest
        paths. Where proximities were fitted, or to use others, give `between` (p, p): dissimilarities, or similarities
        where those were fitted. With "bound" it is the shortest way over a landmark, an upper bound, which there is not
        for similarities.

        The table has the coordinates `joint`, `ambiguous`, and whether the joint minimum is `certified` to be global.
        Of classical methods, for up to 1,024 rows; time grows faster than their number (half a second for 128).
        """
        rows = self._new_rows(X, own_similarities)
        return joint_table(self._space, rows, between, self._n_threads)

    def inverse_transform(
        self, X: ArrayLike, *, kernel: str = "cubic", scale: float | None = None, n_neighbors: int = N_NEIGHBORS
    ) -> FloatArray:
        """Rows (p, n_features) of data at coordinates (p, n_components), by interpolation between embedded rows.

        kernel is a radial function: "cubic", "power-1", "power-5", "power-7", "thin-plate", "thin-plate-4",
        "thin-plate-6", "gaussian" or "shepard"; scale is of the last two, in units of 1 / fill distance of the
        neighborhood, 1 by default; n_neighbors are the embedded points to interpolate between.

        Training rows come back from their own coordinates, to about 1e-8 of the data's size, where the embedding tells
        them apart. Rows in the same place come back as their mean (of the first 64), and an InexactWarning counts
        places where that is one of different rows, or where points so near to each other leave few right digits or
        had to be smoothed over. Places far from every embedded row raise an OutsideWarning; beyond about 1e100 times
        the embedding data is NaN. There is nothing to go back to where dissimilarities or a graph were fitted.
        """
        return data_at(X, self._data, Interpolation(kernel, scale, n_neighbors))

    def invert(
        self,
        X: ArrayLike,
        *,
        kernel: str = "cubic",
        scale: float | None = None,
        n_neighbors: int = N_NEIGHBORS,
        outside: float = OUTSIDE,
    ) -> Table:
        """`inverse_transform` without warnings, as a table with the arrays of `trigpoint invert`: `values` (p,
        n_features), `distance` to the nearest embedded point, `remoteness`, the same in fill distances, `outside`,
        whether that exceeds the argument `outside`, and `flags` of numerical problems, which add up: 1 merged, 2 not
        unisolvent, 4 ill-conditioned, 8 regularized, 16 dropped, 32 undefined."""
        return table_at(X, self._data, Interpolation(kernel, scale, n_neighbors), outside)

    def inverse_errors(
        self,
        rows: ArrayLike | None = None,
        *,
        kernel: str = "cubic",
        scale: float | None = None,
        n_neighbors: int = N_NEIGHBORS,
        outside: float = OUTSIDE,
    ) -> Table:
        """Leave-one-out errors of the inverse map at training rows, all or those with the numbers `rows`: how far each
        is from what the others make of it, `error`, and as a share of its size, `relative_error`; and what `invert`
        tells of its place."""
        return table_left_out(rows, self._data, Interpolation(kernel, scale, n_neighbors), outside)

    @property
    def _space(self) -> Space:
        return self._fitted.space

    @property
    def _data(self) -> Embedded:
        check_is_fitted(self)
        if self._embedded is None:
            raise InvalidInputError(
                "metric='precomputed' was fitted: there are no rows of data to go back to. Fit rows of numbers, by any "
                "metric."
            )
        return self._embedded

    @property
    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    def _new_rows(self, X: Any, own_similarities: ArrayLike | None) -> AnyArray | GivenRows:
        check_is_fitted(self)
        checked = checked_edges if self._space.takes_edges else checked_data
        data = checked(self, X, reset=False)
        if self._settings.induces_distances:
            return GivenRows(data, own_similarities_of(own_similarities, data))
        self._settings.refuse_own_similarities(own_similarities)
        return data
