"""Radial functions of the inverse map, and the polynomials that go with them [M eq. 9, 12-14, 17].

| kind         | function of the distance r     | polynomial         | source        |
|--------------|--------------------------------|--------------------|---------------|
| `power`      | r^p, p = 1, 3, 5, 7            | degree (p - 1) / 2 | [M eq. 12]    |
| `thin_plate` | r^p log r, p = 2, 4, 6         | degree p / 2       | [M eq. 13]    |
| `gaussian`   | exp(-(scale r / h)^2)          | none               | [M eq. 5, 9]  |
| `shepard`    | the same, as weights of a mean | none               | [M eq. 17]    |

h is the local fill distance [M eq. 11], so that `scale` is the paper's epsilon x h. A function of the first two kinds
is positive definite, after a change of sign or none, on what is orthogonal to all polynomials of its degree; the
Gaussian needs none, and in the paper has none.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.types import AnyArray, IntArray

POWER, THIN_PLATE, GAUSSIAN, SHEPARD = range(4)
KINDS = ("power", "thin_plate", "gaussian", "shepard")
POWERS = {"power": (3, 1, 5, 7), "thin_plate": (2, 4, 6)}
SCALE_RANGE = (1e-3, 1e3)
HIGHEST_DEGREE = 3
# Their values at all nodes of a neighborhood stand in memory at once.
MOST_TERMS = 5000


@dataclass(frozen=True)
class Kernel:
    """What to interpolate with; as it stands, the paper's cubic with a linear polynomial [M eq. 14].

    `power` is for the first two kinds, 3 and 2 unless given; `scale`, for the last two, in local fill distances.
    `degree` of the polynomial: what the kind needs unless given, -1 for none.
    """

    kind: str = "power"
    power: int | None = None
    scale: float = 1.0
    degree: int | None = None

    def __post_init__(self) -> None:
        checks.one_of("kind", self.kind, KINDS)
        checks.number_in_range("scale", self.scale, *SCALE_RANGE)
        powers = POWERS.get(self.kind, (None,))
        if self.power is not None and self.power not in powers:
            known = ", ".join(map(str, sorted(POWERS.get(self.kind, ()))))
            advice = f"use one of {known}" if known else "leave it out"
            raise InvalidInputError(f"power={self.power!r} is not one that kind={self.kind!r} has; {advice}.")
        if self.degree is not None:
            highest = -1 if self.kind == "shepard" else HIGHEST_DEGREE
            why = f"kind={self.kind!r} and power={self.exponent} need {self.least_degree}"
            checks.integer_in_range("degree", self.degree, self.least_degree, highest, why)

    @property
    def exponent(self) -> int:
        """The power of the distance; 0 where there is none."""
        return int(self.power or POWERS.get(self.kind, (0,))[0])

    @property
    def least_degree(self) -> int:
        """The lowest degree of the polynomial with which every set of distinct nodes that is unisolvent can do."""
        return self.exponent // 2 if self.kind in POWERS else -1

    def terms(self, n_components: int) -> "Terms":
        """The monomials of the polynomial in so many coordinates."""
        degree = self.least_degree if self.degree is None else self.degree
        n_terms = math.comb(n_components + degree, n_components) if degree >= 0 else 0
        if n_terms > MOST_TERMS:
            raise InvalidInputError(
                f"power={self.exponent} with degree={degree} has a polynomial of {n_terms} terms in {n_components} "
                f"coordinates, more than {MOST_TERMS}; use a lower power, such as 3."
            )
        return _monomials(n_components, degree)

    def radial(self) -> "Radial":
        """The same for compiled loops."""
        return Radial(KINDS.index(self.kind), self.exponent, float(self.scale))


class Radial(NamedTuple):
    """A kernel without its polynomial, in numbers."""

    kind: int
    power: int
    scale: float


class Terms(NamedTuple):
    """Monomials from the lowest degree up: each is an earlier one, its parent (c,), times a coordinate (c,).

    The first is 1 and has no parent.
    """

    parents: IntArray
    coordinates: IntArray


def _monomials(n_components: int, degree: int) -> Terms:
    parents, coordinates = ([-1], [0]) if degree >= 0 else ([], [])
    latest = range(len(parents))
    for _ in range(degree):
        first = len(parents)
        for parent in latest:
            # In no other order than that of the coordinates, so that each product comes once.
            lowest = coordinates[parent] if parent else 0
            coordinates.extend(range(lowest, n_components))
            parents.extend([parent] * (n_components - lowest))
        latest = range(first, len(parents))
    return Terms(np.array(parents, dtype=np.int64), np.array(coordinates, dtype=np.int64))


@compiled
def apply_radial(radial: Radial, fill_distance: float, squares: AnyArray) -> None:
    """Put the function's values in place of squared distances, with the sign that makes it positive definite."""
    if radial.kind == POWER:
        _apply_power(radial.power, squares)
    elif radial.kind == THIN_PLATE:
        _apply_thin_plate(radial.power, squares)
    else:
        steepness = (radial.scale / fill_distance) ** 2
        for i in range(len(squares)):
            squares[i] = math.exp(-steepness * squares[i])


@compiled
def _apply_power(power: int, squares: AnyArray) -> None:
    """Without a loop over the power, which would keep this one from being vectorized."""
    half = (power - 1) // 2
    sign = 1.0 if half % 2 == 1 else -1.0
    for i in range(len(squares)):
        square = squares[i]
        first, second, third = (
            (square if half > 0 else 1.0),
            (square if half > 1 else 1.0),
            (square if half > 2 else 1.0),
        )
        squares[i] = sign * math.sqrt(square) * first * second * third


@compiled
def _apply_thin_plate(power: int, squares: AnyArray) -> None:
    half = power // 2
    sign = 0.5 if half % 2 == 1 else -0.5
    for i in range(len(squares)):
        value = sign * math.log(squares[i]) if squares[i] > 0.0 else 0.0
        for _ in range(half):
            value *= squares[i]
        squares[i] = value
