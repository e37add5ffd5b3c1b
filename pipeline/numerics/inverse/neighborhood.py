"""A neighborhood of the inverse map: its kernel and polynomial [M eq. 9, 12-14, 17], its nodes, and workspace.

| kind         | function of the distance r     | polynomial         | source       |
|--------------|--------------------------------|--------------------|--------------|
| `power`      | r^p, p = 1, 3, 5, 7            | degree (p - 1) / 2 | [M eq. 12]   |
| `thin_plate` | r^p log r, p = 2, 4, 6         | degree p / 2       | [M eq. 13]   |
| `gaussian`   | exp(-(scale r / h)^2)          | none               | [M eq. 5, 9] |
| `shepard`    | the same, as weights of a mean | none               | [M eq. 17]   |

h is the local fill distance [M eq. 11], so `scale` is the paper's epsilon x h. Up to sign, the first two kinds are
positive definite on what is orthogonal to all polynomials of their degree; the Gaussian needs none.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.compiled import compiled
from pipeline.numerics.inverse.algebra import add_rows, inner_product, place_of_largest
from pipeline.types import AnyArray, FloatArray, IntArray

POWER, THIN_PLATE, GAUSSIAN, SHEPARD = range(4)
KINDS = ("power", "thin_plate", "gaussian", "shepard")
POWERS = {"power": (3, 1, 5, 7), "thin_plate": (2, 4, 6)}
SCALE_RANGE = (1e-3, 1e3)
HIGHEST_DEGREE = 3
# Their values at all nodes of a neighborhood are in memory at once.
MOST_TERMS = 5000


@dataclass(frozen=True)
class Kernel:
    """The radial function to interpolate with, by default the paper's cubic with a linear polynomial [M eq. 14].
    `power` is for the first two kinds, by default 3 and 2; `scale` is for the last two, in local fill distances.
    `degree` of the polynomial is by default what the kind needs; -1 means none."""

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
            raise InvalidInputError(f"power={self.power!r} is not available for kind={self.kind!r}; {advice}.")
        if self.degree is not None:
            highest = -1 if self.kind == "shepard" else HIGHEST_DEGREE
            why = f"kind={self.kind!r} and power={self.exponent} need {self.least_degree}"
            checks.integer_in_range("degree", self.degree, self.least_degree, highest, why)

    @property
    def exponent(self) -> int:
        """The power of the distance; 0 for kinds without one."""
        return int(self.power or POWERS.get(self.kind, (0,))[0])

    @property
    def least_degree(self) -> int:
        """The lowest degree with which the system of any unisolvent set of distinct nodes is solvable."""
        return self.exponent // 2 if self.kind in POWERS else -1

    def terms(self, n_components: int) -> "Terms":
        """The monomials of the polynomial in `n_components` coordinates."""
        degree = self.least_degree if self.degree is None else self.degree
        n_terms = math.comb(n_components + degree, n_components) if degree >= 0 else 0
        if n_terms > MOST_TERMS:
            raise InvalidInputError(
                f"power={self.exponent} with degree={degree} has a polynomial of {n_terms} terms in {n_components} "
                f"coordinates, more than {MOST_TERMS}; use a lower power, such as 3."
            )
        return _monomials(n_components, degree)

    def radial(self) -> "Radial":
        """The kernel for compiled loops."""
        return Radial(KINDS.index(self.kind), self.exponent, float(self.scale))


class Radial(NamedTuple):
    """A kernel without its polynomial, in numbers."""

    kind: int
    power: int
    scale: float


class Terms(NamedTuple):
    """Monomials from the lowest degree up: each is an earlier one, its parent (c,), times a coordinate (c,). The first
    is 1 and has no parent."""

    parents: IntArray
    coordinates: IntArray


def _monomials(n_components: int, degree: int) -> Terms:
    parents, coordinates = ([-1], [0]) if degree >= 0 else ([], [])
    latest = range(len(parents))
    for _ in range(degree):
        first = len(parents)
        for parent in latest:
            # Coordinates in rising order only, so that each product comes once.
            lowest = coordinates[parent] if parent else 0
            coordinates.extend(range(lowest, n_components))
            parents.extend([parent] * (n_components - lowest))
        latest = range(first, len(parents))
    return Terms(np.array(parents, dtype=np.int64), np.array(coordinates, dtype=np.int64))


@compiled
def apply_radial(radial: Radial, fill_distance: float, squares: AnyArray) -> None:
    """Replace squared distances by the function's values, with the sign that makes it positive definite."""
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
    """Without a loop over the power, which would prevent vectorization."""
    half = (power - 1) // 2
    sign = 1.0 if half % 2 == 1 else -1.0
    for i in range(len(squares)):
        square = squares[i]
        first = square if half > 0 else 1.0
        second = square if half > 1 else 1.0
        third = square if half > 2 else 1.0
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


NOBODY = -1
# Relative to a neighborhood's size, the resolution of single precision: nearer nodes coincide, and directions in which
# they spread less are ignored.
COINCIDING = 1e-7


class Nodes(NamedTuple):
    """Workspace for up to k nodes in d dimensions. node_of (k,): the node of each place of the neighborhood; counts
    (k,): places per node; positions (d, k) relative to the center (d,); nearest (k,): squared distance to the nearest
    other."""

    node_of: IntArray
    counts: IntArray
    center: FloatArray
    positions: FloatArray
    nearest: FloatArray


class Room(NamedTuple):
    """Workspace for a neighborhood of up to k nodes with up to r polynomials of c terms; symbols as in
    `inverse.systems`. triangle (r, r) and sources (r,) say how polynomials were made of monomials; turned (d, k) are
    the nodes' coordinates along the directions (d, d) in which they spread. whole (k + r, k + r) and its rows are not
    touched unless the whole system is solved; weights (k,) are those of one query."""

    nodes: Nodes
    directions: FloatArray
    turned: FloatArray
    monomials: FloatArray
    sources: IntArray
    triangle: FloatArray
    basis: FloatArray
    crossed: FloatArray
    images: FloatArray
    matrix: FloatArray
    factor: FloatArray
    whole: FloatArray
    whole_rows: IntArray
    weights: FloatArray
    spare: FloatArray


class Facts(NamedTuple):
    """A neighborhood's number of distinct nodes and of polynomials, its size, its fill distance and the kernel's length
    in units of that size, condition, flags, the rounding in weights from a right side of size 1, and whether the whole
    system is solved."""

    n_nodes: int
    n_terms: int
    unit: float
    fill_distance: float
    length: float
    condition: float
    flags: int
    rounding: float
    is_whole: bool


def room_for(k: int, d: int, terms: Terms) -> Room:
    c = len(terms.parents)
    r = min(k, c)
    node_of, counts = np.empty((2, k), dtype=np.int64)
    return Room(
        nodes=Nodes(node_of, counts, np.empty(d), np.empty((d, k)), np.empty(k)),
        directions=np.empty((d, d)),
        turned=np.empty((d, k)),
        monomials=np.empty((c, k)),
        sources=np.empty(r, dtype=np.int64),
        triangle=np.empty((r, r)),
        basis=np.empty((r, k)),
        crossed=np.empty((r, r)),
        images=np.empty((r, k)),
        matrix=np.empty((k, k)),
        factor=np.empty((k, k)),
        whole=np.empty((k + r, k + r)),
        whole_rows=np.empty(k + r, dtype=np.int64),
        weights=np.empty(k),
        spare=np.empty(k),
    )


@compiled
def gather(points: AnyArray, places: AnyArray, nodes: Nodes) -> tuple[int, float]:
    """Take the rows of points (n, d) that `places` (k,) names, except NOBODY; return their number and their unit.
    Positions are relative to their mean, in units of the largest resulting coordinate: otherwise powers of distances
    and polynomials would differ too much in size for one matrix."""
    n = 0
    nodes.center[:] = 0.0
    for j in range(len(places)):
        nodes.node_of[j] = NOBODY
        if places[j] != NOBODY:
            nodes.node_of[j], nodes.counts[n] = n, 1
            for a in range(points.shape[1]):
                nodes.positions[a, n] = points[places[j], a]
                nodes.center[a] += points[places[j], a]
            n += 1
    unit = 0.0
    for a in range(len(nodes.center)):
        nodes.center[a] /= max(n, 1)
        for j in range(n):
            nodes.positions[a, j] -= nodes.center[a]
            unit = max(unit, abs(nodes.positions[a, j]))
    unit = unit if unit > 0.0 else 1.0
    for a in range(len(nodes.center)):
        for j in range(n):
            nodes.positions[a, j] /= unit
    return n, unit


@compiled
def fill_squares(nodes: Nodes, n: int, matrix: AnyArray) -> None:
    """Squared distances between nodes in the upper half of a matrix, and each node's least to another."""
    nodes.nearest[:n] = np.inf
    for i in range(n):
        row, nearest = matrix[i, i:n], nodes.nearest[i:n]
        fill_squares_from(nodes.positions[:, i], nodes, i, row)
        row[0] = np.inf
        for j in range(len(row)):
            nearest[j] = min(nearest[j], row[j])
        nearest[0] = min(nearest[0], least_of(row))
        row[0] = 0.0


@compiled
def fill_squares_from(place: AnyArray, nodes: Nodes, first: int, squares: AnyArray) -> None:
    """Squared distances of a place (d,) to the nodes from `first` on, two coordinates at a time, which saves passes."""
    squares[:] = 0.0
    last, d = first + len(squares), len(place)
    for a in range(0, d - 1, 2):
        row, other = nodes.positions[a, first:last], nodes.positions[a + 1, first:last]
        value, second = place[a], place[a + 1]
        for j in range(len(squares)):
            along, across = row[j] - value, other[j] - second
            squares[j] = squares[j] + along * along + across * across
    if d % 2 == 1:
        row, value = nodes.positions[d - 1, first:last], place[d - 1]
        for j in range(len(squares)):
            along = row[j] - value
            squares[j] += along * along


@compiled
def least_of(values: AnyArray) -> float:
    """Four interleaved minima, which need not wait for each other."""
    first, second, third, fourth = np.inf, np.inf, np.inf, np.inf
    together = len(values) - len(values) % 4
    for i in range(0, together, 4):
        first, second = min(first, values[i]), min(second, values[i + 1])
        third, fourth = min(third, values[i + 2]), min(fourth, values[i + 3])
    for i in range(together, len(values)):
        first = min(first, values[i])
    return min(min(first, second), min(third, fourth))


@compiled
def merge(nodes: Nodes, n: int, squares: AnyArray) -> int:
    """Merge each node with later ones that coincide with it and none before; return how many are left. squares (n, n)
    are the squared distances, upper half."""
    kept, became = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n_kept = 0
    for j in range(n):
        node = 0
        while node < n_kept and squares[kept[node], j] > COINCIDING * COINCIDING:
            node += 1
        if node == n_kept:
            kept[node], nodes.counts[node] = j, 0
            for a in range(len(nodes.center)):
                nodes.positions[a, node] = nodes.positions[a, j]
            n_kept += 1
        nodes.counts[node] += 1
        became[j] = node
    for place in range(len(nodes.node_of)):
        if nodes.node_of[place] != NOBODY:
            nodes.node_of[place] = became[nodes.node_of[place]]
    return n_kept


@compiled
def fill_distance(nodes: Nodes, n: int) -> float:
    """Mean distance to the nearest other node [M eq. 11], 0 if there is none."""
    total = 0.0
    for i in range(n):
        total += math.sqrt(nodes.nearest[i]) if n > 1 else 0.0
    return total / n


@compiled
def span_directions(nodes: Nodes, n: int, directions: AnyArray, rest: AnyArray, along: AnyArray) -> None:
    """Orthonormal directions (d, d) in which the nodes spread, the others 0, each towards the node farthest from the
    span so far; rest (d, k) and along (n,) are workspace."""
    for a in range(len(directions)):
        directions[a, :] = 0.0
        for j in range(n):
            rest[a, j] = nodes.positions[a, j]
    for found in range(len(directions)):
        farthest, distance = _farthest(rest, along)
        if distance <= COINCIDING:
            return
        direction = directions[found]
        for a in range(len(direction)):
            direction[a] = rest[a, farthest] / distance
        _make_orthonormal(directions, found)
        along[:] = 0.0
        add_rows(along, 1.0, direction, rest, 0)
        for a in range(len(direction)):
            row, value = rest[a, :n], direction[a]
            for j in range(n):
                row[j] -= along[j] * value


@compiled
def _farthest(offsets: AnyArray, squares: AnyArray) -> tuple[int, float]:
    """The first of the nodes farthest from the center, and its distance; squares (n,) is workspace."""
    squares[:] = 0.0
    for a in range(len(offsets)):
        row = offsets[a, : len(squares)]
        for j in range(len(squares)):
            squares[j] += row[j] * row[j]
    farthest = place_of_largest(squares)
    return farthest, math.sqrt(squares[farthest])


@compiled
def _make_orthonormal(directions: AnyArray, last: int) -> None:
    """Against rounding: a vector from which most was subtracted is not quite orthogonal to what was."""
    direction = directions[last]
    for earlier in range(last):
        along = inner_product(directions[earlier], direction)
        for a in range(len(direction)):
            direction[a] -= along * directions[earlier, a]
    size = math.sqrt(inner_product(direction, direction))
    for a in range(len(direction)):
        direction[a] /= size
