"""What a user hands to the estimator, checked as scikit-learn does, and with the words of this package."""

from numbers import Integral
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from pipeline.errors import InvalidInputError
from pipeline.estimator.paths import require_edge_lengths
from pipeline.numerics import checks
from pipeline.types import AnyArray


def seed_of(random_state: Any) -> int:
    """An integer is the seed itself, as in a run on disk: both then choose the same landmarks."""
    state = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(state.randint(np.iinfo(np.int32).max))


def checked_data(estimator: Any, X: ArrayLike, reset: bool) -> AnyArray:
    """Rows of finite numbers, as many in each as were fitted; with `reset` the rows to fit."""
    _refuse_other_than_numbers(X)
    data: AnyArray = check_array(
        X,
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        ensure_min_samples=2 if reset else 1,
        estimator=estimator,
        input_name="X",
    )
    checks.require_finite("X", data)
    checks.require_not_too_large("X", data)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return data


def checked_edges(estimator: Any, X: Any, reset: bool) -> Any:
    """The same of a sparse matrix of edge lengths."""
    if not scipy.sparse.issparse(X):
        raise InvalidInputError(
            f"X is a {type(X).__name__}; with metric='precomputed' and a method that measures along a graph it must be "
            "a scipy.sparse matrix of edge lengths."
        )
    edges = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=np.float64,
        ensure_all_finite=False,
        ensure_min_samples=2 if reset else 1,
    )
    require_edge_lengths(edges)
    return edges


def _refuse_other_than_numbers(X: ArrayLike) -> None:
    dtype = getattr(X, "dtype", None)
    kind = getattr(dtype, "kind", "f") if dtype is not None else np.asarray(X).dtype.kind
    if kind == "c":
        raise InvalidInputError(f"Complex data not supported: X has dtype {dtype}; it must hold real numbers.")
    if kind in "US":
        raise InvalidInputError("X holds text; it must hold real numbers: convert it, for example with astype(float).")
