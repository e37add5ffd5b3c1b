"""How badly points that a model has not seen are placed, told by the distances between them alone.

Of p held-out points everything is known: their true dissimilarities (p, p), and the coordinates (p, d) that the model
gives them. A bad model and a bad extension both spoil the distances between coordinates, so no reference embedding is
needed. 0 is perfect, 1 is unrelated, by the measure that is fair to the method:

| measure              | compares                                              | for methods that             |
|----------------------|-------------------------------------------------------|------------------------------|
| unexplained_variance | 1 - r^2 of true against embedded distances            | reproduce distances          |
| unexplained_order    | the same of their ranks                               | reproduce only their order   |
| lost_neighbors       | share of each point's nearest that are no longer near | only keep neighbors together |

The first is the residual variance that Isomap is known by. It does not mind a common factor or, for the constant that
kernel Isomap adds, a common term.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist, squareform

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.statistics.quality import neighbor_recall
from pipeline.types import FloatArray, IntArray

Measure = Callable[[FloatArray, FloatArray], float]
# Nearest points that are looked for again.
NEIGHBORHOOD = 10
# An error counts as good as the best if it is above it by no more than this share of it, or is above it by no more than
# what nobody would see.
TOLERANCE, NEGLIGIBLE = 0.05, 0.001
# Costs that differ by no more than this share are about the same.
ABOUT = 0.1


class Estimate(NamedTuple):
    """The mean of repeated measurements and its standard error."""

    value: float
    standard_error: float

    @property
    def bound(self) -> float:
        """The mean and one standard error: what is only good by luck should not win."""
        return self.value + self.standard_error


def unexplained_variance(true: FloatArray, coordinates: FloatArray) -> float:
    """1 - r^2 of dissimilarities (p, p) against distances between coordinates (p, d); 1 unless they rise together."""
    return _unexplained(*_pairs(true, coordinates))


def unexplained_order(true: FloatArray, coordinates: FloatArray) -> float:
    """1 - r^2 of the ranks of dissimilarities (p, p) against those of distances between coordinates (p, d)."""
    from scipy.stats import rankdata  # takes a second to import

    return _unexplained(*map(rankdata, _pairs(true, coordinates)))


def lost_neighbors(true: FloatArray, coordinates: FloatArray) -> float:
    """Share of the 10 nearest of each point, among all, that are not among its 10 nearest by coordinates."""
    apart, embedded = map(squareform, _pairs(true, coordinates))
    k = min(NEIGHBORHOOD, len(apart) - 1)
    return 1.0 - neighbor_recall(_nearest(embedded, k), _nearest(apart, k))


# What is fair to methods that do not reproduce distances.
_MEASURES: dict[str, Measure] = {
    "nonmetric-mds": unexplained_order,
    **dict.fromkeys(("laplacian", "spectral", "lle"), lost_neighbors),
}


def measure_of(method: str) -> Measure:
    """The measure that is fair to a method."""
    return _MEASURES.get(method, unexplained_variance)


def estimated(errors: Sequence[float]) -> Estimate:
    """The mean of errors of several repeats; of a single one the standard error is not known and counts as 0."""
    values = np.asarray(errors, dtype=np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Estimate(float(values.mean()), spread / float(np.sqrt(len(values))))


def good_enough(least: float) -> float:
    """Up to which error others are as good as the least."""
    return least + max(TOLERANCE * least, NEGLIGIBLE)


def recommended(estimates: Sequence[Estimate], costs: Sequence[float]) -> int:
    """The place of the cheapest of those as good as the best; where several cost about that, of the best of them."""
    bounds, price = np.array([estimate.bound for estimate in estimates]), np.asarray(costs, dtype=np.float64)
    close = bounds <= good_enough(float(bounds.min()))
    affordable = close & (price <= (1 + ABOUT) * price[close].min())
    return min(np.flatnonzero(affordable).tolist(), key=lambda place: (bounds[place], price[place]))


def _pairs(true: FloatArray, coordinates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """True and embedded distances (p (p - 1) / 2,) of the pairs of points."""
    apart, points = (checks.real_array(*named, 2) for named in (("true", true), ("coordinates", coordinates)))
    if apart.shape != (len(points), len(points)) or len(points) < 3:
        raise InvalidInputError(
            f"true has shape {apart.shape} and coordinates {points.shape}; they must be (p, p) and (p, d), p > 2."
        )
    for name, array in (("true", apart), ("coordinates", points)):
        checks.require_finite(name, array)
    return squareform(apart.astype(np.float64), checks=False), pdist(points)


def _unexplained(true: FloatArray, embedded: FloatArray) -> float:
    a, b = true - true.mean(), embedded - embedded.mean()
    sizes = float(np.sqrt((a**2).sum() * (b**2).sum()))
    correlation = float((a * b).sum()) / sizes if sizes > 0 else 0.0
    return 1.0 - max(0.0, min(1.0, correlation)) ** 2


def _nearest(apart: FloatArray, k: int) -> IntArray:
    """The k nearest others (p, k) of each point; ties go to the lower place."""
    without_itself = apart.copy()
    np.fill_diagonal(without_itself, np.inf)
    return np.argsort(without_itself, axis=1, kind="stable")[:, :k]
